//! Switches that may be thrown where nothing else may be done: [`KillSwitch`].

use std::fmt;

use crate::config::ConfigError;
use crate::overrides::{OVERRIDES_MAX, Override, check};
use crate::sync::{Arc, AtomicU8, AtomicU64, AtomicUsize, Mutex, Ordering, lock};

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
    out: Mutex<Vec<Out>>,
    /// Length of `out`, for whoever only wants to know whether there are any.
    count: AtomicUsize,
    /// Numbers given out.
    numbers: AtomicU64,
    /// Held from taking what was thrown until it is in force.
    pub(crate) polling: Mutex<()>,
}

#[derive(Debug)]
struct Out {
    /// From 1.
    number: u64,
    what: Override,
    state: Arc<AtomicU8>,
}

impl Switches {
    /// Hands out a switch for `what`.
    pub(crate) fn add(&self, what: Override) -> Result<KillSwitch, ConfigError> {
        // What could not be set is refused now: nobody is there to be told when the switch is thrown.
        check(&what)?;
        let mut out = lock(&self.out);
        ConfigError::within("switches", out.len() + 1, 1, OVERRIDES_MAX)?;
        let state = Arc::new(AtomicU8::new(SEEN));
        out.push(Out {
            number: self.numbers.fetch_add(1, Ordering::Relaxed) + 1,
            what,
            state: Arc::clone(&state),
        });
        self.count.store(out.len(), Ordering::Release);
        Ok(KillSwitch { state })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Those that were thrown (`true`) or released since this was last asked, by number. One that is gone is
    /// forgotten after a last look; what it has put in force stays for its time.
    pub(crate) fn take(&self) -> Vec<(u64, Override, bool)> {
        let mut changed = Vec::new();
        let mut out = lock(&self.out);
        out.retain(|switch| {
            // In this order: who is gone by now did what it did before the look.
            let is_held = Arc::strong_count(&switch.state) > 1;
            match switch.state.swap(SEEN, Ordering::AcqRel) {
                THROWN => changed.push((switch.number, switch.what.clone(), true)),
                RELEASED => changed.push((switch.number, switch.what.clone(), false)),
                _ => {}
            }
            is_held
        });
        self.count.store(out.len(), Ordering::Release);
        changed
    }
}
