//! Signals are sampled here: beside the control thread, off the path of any request.
//!
//! A signal is the embedder's code; it may block, and it may panic. Whoever samples takes the signal out of its
//! slot, and puts it back when it has answered. When it does not answer, the thread that waits for it is left to
//! wait, and another goes on with the others; once it answers after all it is put back, and the thread that
//! waited ends. So there are never more threads than signals that hang, and one.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::clock::Instant;
use crate::control::Shared;
use crate::driver::{BLIND_SLEEP, Kick};
use crate::signal::{Mode, Reading, Signal, SignalFault, View};
use crate::sync::{
    Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, ThreadBuilder, Weak, lock,
};

/// A sample that takes so many periods has failed …
pub(crate) const SLOW_PERIODS: u64 = 3;
/// … but none that takes less than this: a scheduler may be that late.
pub(crate) const SLOW_MIN_NS: u64 = 250_000_000;
/// A signal that panics is asked again after twice as long each time, up to this: each panic writes to the log
/// of the process.
const PANIC_REST_MAX_NS: u64 = 60_000_000_000;

/// Where a signal lives.
pub(crate) struct Slot {
    /// Empty while it is being sampled.
    signal: Mutex<Option<Box<dyn Signal>>>,
    period_ns: AtomicU64,
    due_ns: AtomicU64,
    /// When the sample under way began, ns; 0 when there is none.
    began_ns: AtomicU64,
    off: AtomicBool,
    /// It was told that the sample under way is slow.
    told_slow: AtomicBool,
    /// The thread that waits for it was replaced.
    left_behind: AtomicBool,
    panics: AtomicU32,
    mail: Mutex<Option<Mail>>,
}

/// What a sample brought, and when it was asked for.
type Mail = (Instant, Result<Reading, SignalFault>);

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

impl Slot {
    pub(crate) fn new(signal: Box<dyn Signal>, period_ns: u64, now: Instant) -> Self {
        Self {
            signal: Mutex::new(Some(signal)),
            period_ns: AtomicU64::new(period_ns),
            due_ns: AtomicU64::new(now.as_nanos()),
            began_ns: AtomicU64::new(0),
            off: AtomicBool::new(false),
            told_slow: AtomicBool::new(false),
            left_behind: AtomicBool::new(false),
            panics: AtomicU32::new(0),
            mail: Mutex::new(None),
        }
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        self.off.store(mode == Mode::Off, Ordering::Relaxed);
    }

    pub(crate) fn set_period_ns(&self, period_ns: u64) {
        self.period_ns.store(period_ns, Ordering::Relaxed);
    }

    /// What came in since this was last asked; only the last of it counts.
    pub(crate) fn take_mail(&self) -> Option<Mail> {
        lock(&self.mail).take()
    }

    /// Whether its sample under way has just become too slow.
    fn has_become_slow(&self, now: Instant) -> bool {
        self.is_slow(now) && !self.told_slow.swap(true, Ordering::Relaxed)
    }

    fn is_slow(&self, now: Instant) -> bool {
        let most_ns = SLOW_PERIODS.saturating_mul(self.period_ns.load(Ordering::Relaxed));
        self.hangs_for(now, most_ns.max(SLOW_MIN_NS))
    }

    /// Whether a sample has been under way for longer than this.
    fn hangs_for(&self, now: Instant, nanos: u64) -> bool {
        let began = Instant::from_nanos(self.began_ns.load(Ordering::Acquire));
        // One that began in the future began before the clock was set back: nobody knows when.
        let unknown = began.nanos_since(now) > nanos;
        began != Instant::ZERO && (unknown || now.nanos_since(began) > nanos)
    }

    fn is_off(&self) -> bool {
        self.off.load(Ordering::Relaxed)
    }

    fn is_due(&self, now: Instant) -> bool {
        let due = Instant::from_nanos(self.due_ns.load(Ordering::Relaxed));
        let period_ns = self.period_ns.load(Ordering::Relaxed);
        let panics = self.panics.load(Ordering::Relaxed);
        let longest_ns = if panics > 0 {
            period_ns.max(PANIC_REST_MAX_NS)
        } else {
            period_ns
        };
        // A plan further ahead than that was made before the clock was set back.
        due <= now || due.nanos_since(now) > longest_ns
    }

    /// Takes one sample, unless somebody else is at it.
    pub(crate) fn sample(&self, now: Instant, view: &View) {
        let Some(mut signal) = lock(&self.signal).take() else {
            return;
        };
        let period_ns = self.period_ns.load(Ordering::Relaxed);
        self.due_ns
            .store(now.after_nanos(period_ns).as_nanos(), Ordering::Relaxed);
        self.told_slow.store(false, Ordering::Relaxed);
        self.left_behind.store(false, Ordering::Relaxed);
        self.began_ns
            .store(now.as_nanos().max(1), Ordering::Release);
        let sampled = catch_unwind(AssertUnwindSafe(|| signal.sample(now, view)));
        self.began_ns.store(0, Ordering::Release);
        let mail = match sampled {
            Ok(reading) => {
                self.panics.store(0, Ordering::Relaxed);
                *lock(&self.signal) = Some(signal);
                Ok(reading)
            }
            Err(panic) => {
                let panics = self.panics.fetch_add(1, Ordering::Relaxed).min(30);
                let rest_ns = period_ns.saturating_mul(2 << panics).min(PANIC_REST_MAX_NS);
                let due = now.after_nanos(rest_ns.max(period_ns));
                self.due_ns.store(due.as_nanos(), Ordering::Relaxed);
                *lock(&self.signal) = Some(signal);
                discard(panic);
                Err(SignalFault::Panicked)
            }
        };
        // True when it was asked, at the earliest: an answer that took seconds is seconds old.
        *lock(&self.mail) = Some((now, mail));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(signal) = lock(&self.signal).take() {
            discard(Box::new(signal));
        }
    }
}

/// Drops what may panic when it is dropped.
fn discard(what: Box<dyn Any + '_>) {
    drop(catch_unwind(AssertUnwindSafe(|| drop(what))));
}

/// Those of `slots` that are due, and when the next of the others will be.
pub(crate) fn due(slots: &[Slot], now: Instant) -> (u64, Instant) {
    let mut mask = 0;
    let mut next = Instant::FAR_FUTURE;
    for (i, slot) in slots.iter().enumerate() {
        if slot.is_off() {
            // Its plan stands still; who waited for it would not sleep.
            continue;
        }
        if slot.is_due(now) {
            mask |= 1 << i;
            next = next.min(now.after_nanos(slot.period_ns.load(Ordering::Relaxed)));
        } else {
            next = next.min(Instant::from_nanos(slot.due_ns.load(Ordering::Relaxed)));
        }
    }
    (mask, next)
}

/// Samples the signals in `mask` as long as `goes_on` says what time it is; returns whether it still does.
fn sample(
    slots: &[Slot],
    mask: u64,
    now: Instant,
    view: &View,
    goes_on: impl Fn() -> Option<Instant>,
) -> bool {
    let mut now = now;
    for (i, slot) in slots.iter().enumerate() {
        if mask >> i & 1 == 1 {
            slot.sample(now, view);
            // The next is not to be blamed for how long this one took.
            let Some(after) = goes_on() else {
                return false;
            };
            now = after;
        }
    }
    true
}

/// Which thread samples now.
#[derive(Debug)]
pub(crate) struct Sampling {
    pub(crate) slots: Arc<[Slot]>,
    /// The number of the thread that is to go on; others end.
    thread: AtomicU64,
    /// The tick samples; there is no thread.
    manual: bool,
    kick: Arc<Kick>,
}

impl Sampling {
    pub(crate) fn new(slots: Vec<Slot>, manual: bool) -> Self {
        Self {
            slots: slots.into(),
            manual,
            thread: AtomicU64::new(0),
            kick: Arc::new(Kick::new()),
        }
    }

    pub(crate) fn stop(&self) {
        self.kick.stop();
    }

    /// Samples what is due on this thread, where there is no other for it.
    pub(crate) fn sample_if_manual(&self, now: Instant, view: impl FnOnce() -> View) {
        if !self.manual || self.slots.is_empty() {
            return;
        }
        let (mask, _) = due(&self.slots, now);
        if mask != 0 {
            sample(&self.slots, mask, now, &view(), || Some(now));
        }
    }

    /// Whether a sample of this signal has just become too slow.
    pub(crate) fn has_become_slow(&self, index: usize, now: Instant) -> bool {
        self.slots[index].has_become_slow(now)
    }

    /// Starts another thread if the present one hangs: after a quarter of a second, however long the signal it
    /// hangs in may take. The others have periods of their own.
    pub(crate) fn replace_if_stuck(&self, shared: &Arc<Shared>, now: Instant) {
        let hangs = |slot: &Slot| {
            slot.hangs_for(now, SLOW_MIN_NS) && !slot.left_behind.swap(true, Ordering::Relaxed)
        };
        let hanging = self.slots.iter().filter(|slot| hangs(slot)).count();
        if hanging > 0
            && let Err(error) = start(shared)
        {
            tracing::error!(%error, "no thread could be started to sample the other signals");
        }
    }
}

/// Starts a thread that samples the signals of `shared`; the one before it ends when it can.
pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<()> {
    let sampling = shared.sampling();
    if sampling.slots.is_empty() {
        return Ok(());
    }
    let number = sampling.thread.fetch_add(1, Ordering::AcqRel) + 1;
    let weak = Arc::downgrade(shared);
    let slots = Arc::clone(&sampling.slots);
    let kick = Arc::clone(&sampling.kick);
    ThreadBuilder::new()
        .name("cinnamon-sampler".to_owned())
        .spawn(move || run(number, &weak, &slots, &kick))
        .map(drop)
}

fn run(number: u64, weak: &Weak<Shared>, slots: &[Slot], kick: &Kick) {
    loop {
        let Some(shared) = weak.upgrade() else {
            return;
        };
        let Some(now) = shared.read_clock() else {
            // The control thread watches the clock too, and gives up when it is dead.
            let dead = shared.failed.load(Ordering::Acquire);
            drop(shared);
            if dead || !kick.sleep(Instant::ZERO, Instant::ZERO.after(BLIND_SLEEP)) {
                return;
            }
            continue;
        };
        let (mask, next) = due(slots, now);
        let view = if mask == 0 {
            View::default()
        } else {
            shared.view()
        };
        // Not held while a signal is asked: it may never answer, and the controller must be able to end.
        drop(shared);
        let goes_on = || {
            let shared = weak.upgrade()?;
            let goes_on = shared.sampling().thread.load(Ordering::Acquire) == number;
            goes_on.then(|| shared.read_clock().unwrap_or(now))
        };
        if !sample(slots, mask, now, &view, goes_on) {
            return;
        }
        let Some(shared) = weak.upgrade() else {
            return;
        };
        let after = shared.read_clock().unwrap_or(now);
        drop(shared);
        if !kick.sleep(after, next) {
            return;
        }
    }
}
