//! Switches that may be thrown where nothing else may be done: [`KillSwitch`].

use std::fmt;

use crate::config::ConfigError;
use crate::overrides::{OVERRIDES_MAX, Override, OverrideSource, Overrides};
use crate::sync::{Arc, AtomicU8, AtomicUsize, Mutex, Ordering, Weak, lock};

/// Nothing has happened since the control thread last looked.
const SEEN: u8 = 0;
const THROWN: u8 = 1;
const RELEASED: u8 = 2;

/// An override that waits to be thrown. Made by [`Controller::kill_switch`](crate::Controller::kill_switch); clones
/// are one switch.
///
/// Throwing and releasing are a single atomic store, which is allowed in a signal handler. The control thread
/// looks at the switch every 20 ms, whatever the workers do.
#[derive(Clone)]
pub struct KillSwitch {
    state: Arc<AtomicU8>,
}

impl KillSwitch {
    /// Puts the override in force, for the whole of its time from now. Safe in a signal handler.
    pub fn throw(&self) {
        self.state.store(THROWN, Ordering::Release);
    }

    /// Ends the override if this switch has put it in force. Safe in a signal handler.
    pub fn release(&self) {
        self.state.store(RELEASED, Ordering::Release);
    }
}

impl fmt::Debug for KillSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KillSwitch").finish_non_exhaustive()
    }
}

/// The switches that are out.
#[derive(Debug, Default)]
pub(crate) struct Switches {
    out: Mutex<Vec<(Override, Weak<AtomicU8>)>>,
    /// Length of `out`, for whoever only wants to know whether there are any.
    count: AtomicUsize,
}

impl Switches {
    /// Hands out a switch for `what`.
    pub(crate) fn add(&self, what: Override) -> Result<KillSwitch, ConfigError> {
        // What could not be set is refused now: nobody is there to be told when the switch is thrown.
        let ttl = what.ttl;
        let now = crate::clock::Instant::ZERO;
        Overrides::default().set(now, what.clone(), ttl, OverrideSource::Switch)?;
        let mut out = lock(&self.out);
        out.retain(|(_, state)| state.strong_count() > 0);
        ConfigError::within("switches", out.len() + 1, 1, OVERRIDES_MAX)?;
        let state = Arc::new(AtomicU8::new(SEEN));
        out.push((what, Arc::downgrade(&state)));
        self.count.store(out.len(), Ordering::Release);
        Ok(KillSwitch { state })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Those that were thrown (`true`) or released since this was last asked. One that is gone is forgotten; what
    /// it has put in force stays for its time.
    pub(crate) fn take(&self) -> Vec<(Override, bool)> {
        let mut changed = Vec::new();
        let mut out = lock(&self.out);
        out.retain(|(what, state)| {
            let Some(state) = state.upgrade() else {
                return false;
            };
            match state.swap(SEEN, Ordering::AcqRel) {
                THROWN => changed.push((what.clone(), true)),
                RELEASED => changed.push((what.clone(), false)),
                _ => {}
            }
            true
        });
        self.count.store(out.len(), Ordering::Release);
        changed
    }
}
