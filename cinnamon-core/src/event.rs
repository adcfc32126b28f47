//! What is worth a line in the log: changes of what holds a gate, and of how a signal stands. Collected
//! under the locks, written after them: a subscriber is the embedder's code.

use crate::priority::Rank;
use crate::signal::supervised::Change;
use crate::verdict::Binding;

#[derive(Debug)]
pub(crate) enum Event {
    /// Another cause holds this lane's gate.
    Bound {
        lane: String,
        binding: Binding,
        threshold: Rank,
    },
    /// A signal changed its standing.
    Signal { name: String, change: Change },
}

impl Event {
    pub(crate) fn bound(lane: &str, binding: Binding, threshold: Rank) -> Self {
        Self::Bound {
            lane: lane.to_owned(),
            binding,
            threshold,
        }
    }

    pub(crate) fn signal(name: &str, change: Change) -> Self {
        Self::Signal {
            name: name.to_owned(),
            change,
        }
    }
}

/// Writes `events`; `name_of` says what a binding is called.
pub(crate) fn log(events: &[Event], name_of: impl Fn(Binding) -> String) {
    for event in events {
        match event {
            Event::Bound {
                lane,
                binding: Binding::Nothing,
                ..
            } => tracing::info!(%lane, "the gate is open"),
            Event::Bound {
                lane,
                binding,
                threshold,
            } => {
                let by = name_of(*binding);
                tracing::info!(%lane, %by, %threshold, "the gate is held by another cause");
            }
            Event::Signal { name, change } => match change {
                Change::Engaged { pressure, budget } => {
                    tracing::info!(signal = %name, pressure, budget_per_s = budget, "a signal took hold");
                }
                Change::Released => tracing::info!(signal = %name, "a signal let go"),
                Change::Lost(fault) => {
                    tracing::warn!(signal = %name, fault = fault.as_str(), "a signal is lost");
                }
                Change::Ignored => {
                    tracing::warn!(signal = %name, "a lost signal has no say any more");
                }
                Change::Back => tracing::info!(signal = %name, "a signal is back"),
                Change::Unresponsive { authority } => {
                    tracing::warn!(signal = %name, authority, "a signal does not respond to the load");
                }
            },
        }
    }
}
