//! What is worth a line in the log: changes of what holds a gate, and of how a signal stands. Collected
//! under the locks, written after them: a subscriber is the embedder's code.
//!
//! A gate that flaps writes a line a second and not fifty: of what changes faster the last is written, with the
//! number of changes that it stands for. So the log always ends with how things are.

use crate::clock::Instant;
use crate::engine::{Moved, PANICKED};
use crate::health::Health;
use crate::priority::Rank;
use crate::signal::Who;
use crate::signal::selector::LaneFlow;
use crate::signal::supervised::Change;
use crate::verdict::Binding;

/// Time between two lines of one lane, or one signal.
const PACE_NS: u64 = 1_000_000_000;

/// Something that changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Another cause holds this lane's gate.
    Bound {
        lane: usize,
        binding: Binding,
        threshold: Rank,
        flow: LaneFlow,
    },
    /// The number of a lane's slots is another, not for a trial only.
    Limit { lane: usize, moved: Moved },
    /// A signal changed its standing.
    Signal { signal: usize, change: Change },
    /// Other culprits are throttled: how many, and the first of them with its rate.
    Throttled {
        count: usize,
        worst: Option<(Who, f64)>,
    },
    /// The node is in another state.
    Health { health: Health },
}

#[derive(Clone, Debug, Default)]
struct Pace {
    pending: Option<Event>,
    /// Changes that the pending one stands for.
    changes: u32,
    due: Instant,
}

/// Events that wait for their turn.
#[derive(Debug)]
pub(crate) struct Journal {
    lanes: Vec<Pace>,
    limits: Vec<Pace>,
    signals: Vec<Pace>,
    throttles: Pace,
    health: Pace,
}

impl Journal {
    pub(crate) fn new(lanes: usize, signals: usize) -> Self {
        Self {
            lanes: vec![Pace::default(); lanes],
            limits: vec![Pace::default(); lanes],
            signals: vec![Pace::default(); signals],
            throttles: Pace::default(),
            health: Pace::default(),
        }
    }

    pub(crate) fn note(&mut self, event: Event) {
        let pace = match event {
            Event::Bound { lane, .. } => self.lanes.get_mut(lane),
            Event::Limit { lane, .. } => self.limits.get_mut(lane),
            Event::Signal { signal, .. } => self.signals.get_mut(signal),
            Event::Throttled { .. } => Some(&mut self.throttles),
            Event::Health { .. } => Some(&mut self.health),
        };
        if let Some(pace) = pace {
            pace.pending = Some(event);
            pace.changes += 1;
        }
    }

    /// Moves what may be written at `now` into `out`, each with the number of changes it stands for.
    pub(crate) fn take_due(&mut self, now: Instant, out: &mut Vec<(Event, u32)>) {
        let lanes = self.lanes.iter_mut().chain(&mut self.limits);
        let lines = lanes.chain(&mut self.signals);
        for pace in lines.chain([&mut self.throttles, &mut self.health]) {
            // The clock may have been set back.
            let far = pace.due.nanos_since(now) > PACE_NS;
            if (pace.due <= now || far)
                && let Some(event) = pace.pending.take()
            {
                out.push((event, std::mem::take(&mut pace.changes)));
                pace.due = now.after_nanos(PACE_NS);
            }
        }
    }
}

/// Names for what events speak of by index.
pub(crate) struct Names<'a> {
    pub(crate) lane: &'a dyn Fn(usize) -> &'a str,
    pub(crate) signals: &'a [String],
    pub(crate) binding: &'a dyn Fn(Binding) -> String,
}

/// Writes `events`.
pub(crate) fn log(events: &[(Event, u32)], names: &Names<'_>) {
    for (event, changes) in events {
        match *event {
            Event::Bound {
                lane,
                binding,
                threshold,
                flow,
            } => {
                let lane = (names.lane)(lane);
                let (capacity, offered) = (flow.capacity, flow.offered);
                if binding == Binding::Nothing {
                    tracing::info!(lane, capacity, offered, changes, "the gate is open");
                } else {
                    let by = (names.binding)(binding);
                    tracing::info!(lane, %by, %threshold, capacity, offered, changes, "the gate is held");
                }
            }
            Event::Limit { lane, moved } => {
                let lane = (names.lane)(lane);
                let (from, to, rule) = (moved.from, moved.to, moved.rule);
                if rule == PANICKED {
                    tracing::error!(lane, limit = to, rule, "the limit stays where it is");
                } else {
                    tracing::info!(lane, from, to, rule, changes, "the limit is another");
                }
            }
            Event::Throttled { worst: None, .. } => {
                tracing::info!(changes, "nobody is throttled any more");
            }
            Event::Throttled {
                count,
                worst: Some((who, rate)),
            } => {
                tracing::info!(
                    throttled = count,
                    ?who,
                    rate,
                    changes,
                    "culprits are throttled"
                );
            }
            Event::Health { health } => {
                let (state, headroom) = (health.state.as_str(), health.headroom);
                let (refused, weight) = (health.protected_refused, health.weight);
                tracing::info!(
                    state,
                    headroom,
                    protected_refused = refused,
                    weight,
                    changes,
                    "health"
                );
            }
            Event::Signal { signal, change } => {
                let signal = names.signals.get(signal).map_or("", String::as_str);
                log_change(signal, change, *changes);
            }
        }
    }
}

fn log_change(signal: &str, change: Change, changes: u32) {
    match change {
        Change::Engaged { pressure, budget } => {
            tracing::info!(signal, pressure, budget, changes, "a signal took hold");
        }
        Change::Released => tracing::info!(signal, changes, "a signal let go"),
        Change::Lost(fault) => {
            let fault = fault.as_str();
            tracing::warn!(signal, fault, changes, "a signal is lost");
        }
        Change::Ignored => tracing::warn!(signal, changes, "a lost signal has no say any more"),
        Change::Back => tracing::info!(signal, changes, "a signal is back"),
        Change::Unresponsive { authority } => {
            tracing::warn!(
                signal,
                authority,
                changes,
                "a signal does not respond to the load"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(lane: usize, threshold: Rank) -> Event {
        Event::Bound {
            lane,
            binding: Binding::Nothing,
            threshold,
            flow: LaneFlow::default(),
        }
    }

    #[test]
    fn what_flaps_is_written_once_a_second_and_ends_with_how_things_are() {
        let mut journal = Journal::new(2, 1);
        let mut written = Vec::new();
        for tick in 0..200u64 {
            let level = Rank::threshold((tick % 700) as usize, 0.0);
            if tick < 120 {
                journal.note(bound(0, level));
            }
            journal.take_due(Instant::from_nanos(tick * 20_000_000), &mut written);
        }
        let changes: Vec<u32> = written.iter().map(|(_, changes)| *changes).collect();
        assert_eq!(changes, [1, 50, 50, 19]);
        let (last, _) = written[3];
        assert!(matches!(last, Event::Bound { threshold, .. } if threshold.levels() == 119.0));
        journal.note(Event::Signal {
            signal: 0,
            change: Change::Back,
        });
        journal.note(bound(1, Rank::OPEN));
        // An hour back in time is no reason to keep silent for an hour.
        journal.note(bound(0, Rank::OPEN));
        written.clear();
        journal.take_due(Instant::ZERO, &mut written);
        assert_eq!(written.len(), 3);
    }
}
