//! The control thread: ticks, and expiry between them.
//!
//! It holds the controller weakly, so it ends when the last handle is gone. While nothing happens it
//! sleeps a quarter of a second at a time, and a second when nobody asks anything; a waiter that comes sooner than that, or
//! whose time runs out sooner, kicks it, and so does the first who asks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::clock::Instant;
use crate::control::{IDLE_TICK_NS, REST_NS, Shared};
use crate::sync::{
    Arc, AtomicU64, Condvar, Mutex, Ordering, ThreadBuilder, Weak, lock, wait_while,
};

/// What a clock that cannot be read is taken to say: look again after this time.
pub(crate) const BLIND_SLEEP: Duration = Duration::from_millis(20);
/// A clock that cannot be read this often running, a second, is dead: nobody's time would ever run
/// out, and the gate would stay where it is.
const BLIND_MAX: u32 = 50;

/// How others wake the control thread early.
#[derive(Debug)]
pub(crate) struct Kick {
    state: Mutex<KickState>,
    condvar: Condvar,
    /// When the thread will wake by itself, ns; 0 while it is awake. A hint: read without the lock.
    wakes_at: AtomicU64,
    /// When it last fell asleep, ns.
    slept_at: AtomicU64,
}

#[derive(Debug, Default)]
struct KickState {
    kicked: bool,
    stopped: bool,
}

impl Kick {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(KickState::default()),
            condvar: Condvar::new(),
            wakes_at: AtomicU64::new(0),
            slept_at: AtomicU64::new(0),
        }
    }

    /// Wakes the thread if it would sleep beyond `at`, or if it is in a sleep longer than `tick`
    /// (idle): somebody waits now, so ticks are needed. A thread that is awake looks once more: it
    /// may have looked at this lane before the waiter came.
    pub(crate) fn no_later_than(&self, at: Instant, tick: Duration) {
        let wakes_at = Instant::from_nanos(self.wakes_at.load(Ordering::Acquire));
        let slept_at = Instant::from_nanos(self.slept_at.load(Ordering::Acquire));
        let awake = wakes_at == Instant::ZERO;
        let idle = wakes_at.since(slept_at) > tick;
        if awake || idle || wakes_at > at {
            lock(&self.state).kicked = true;
            self.condvar.notify_one();
        }
    }

    /// Whether the thread was kicked since it last slept.
    #[cfg(test)]
    pub(crate) fn was_kicked(&self) -> bool {
        lock(&self.state).kicked
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.condvar.notify_one();
    }

    /// Sleeps until `until` or a kick; `false` when stopped.
    pub(crate) fn sleep(&self, now: Instant, until: Instant) -> bool {
        let mut state = lock(&self.state);
        self.slept_at.store(now.as_nanos(), Ordering::Release);
        self.wakes_at.store(until.as_nanos(), Ordering::Release);
        if !state.kicked && !state.stopped {
            // Never longer than the longest plan: the clock may have been set back since it was made.
            let time = until.since(now).min(Duration::from_nanos(REST_NS));
            let sleeps = |state: &mut KickState| !state.kicked && !state.stopped;
            state = wait_while(&self.condvar, state, time, sleeps);
        }
        self.wakes_at.store(0, Ordering::Release);
        state.kicked = false;
        !state.stopped
    }
}

/// Starts the control thread of `shared`.
pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<()> {
    let weak = Arc::downgrade(shared);
    let kick = Arc::clone(shared.kick());
    ThreadBuilder::new()
        .name("cinnamon-driver".to_owned())
        .spawn(move || drive(&weak, &kick))
        .map(drop)
}

fn drive(weak: &Weak<Shared>, kick: &Kick) {
    let mut blind = 0u32;
    loop {
        let Some(shared) = weak.upgrade() else {
            return;
        };
        let (now, next) = match shared.read_clock() {
            Some(now) => {
                blind = 0;
                // What it calls of the embedder's, such as a subscriber of the log, must not end it.
                let drove = catch_unwind(AssertUnwindSafe(|| shared.drive(now)));
                let next = drove.unwrap_or_else(|_| now.after(Duration::from_nanos(IDLE_TICK_NS)));
                shared.sampling().replace_if_stuck(&shared, now);
                // The step took time too.
                (shared.read_clock().unwrap_or(now), next)
            }
            None => {
                blind = blind.wrapping_add(1);
                if blind.is_multiple_of(BLIND_MAX) {
                    shared.fail("the clock panics whenever it is read");
                    shared.emit();
                }
                (Instant::ZERO, Instant::ZERO.after(BLIND_SLEEP))
            }
        };
        // The last handle may be ours: then this runs the controller's end, which stops us.
        drop(shared);
        if !kick.sleep(now, next) {
            return;
        }
    }
}
