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
/// A signal that panics so often in a row is not asked again: each panic writes to the log of the process.
const PANICS_MAX: u32 = 3;

/// Where a signal lives.
pub(crate) struct Slot {
    /// Empty while it is being sampled, and once it was retired.
    signal: Mutex<Option<Box<dyn Signal>>>,
    period_ns: AtomicU64,
    due_ns: AtomicU64,
    /// When the sample under way began, ns; 0 when there is none.
    began_ns: AtomicU64,
    off: AtomicBool,
    /// It was told that the sample under way is slow.
    told_slow: AtomicBool,
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
        let began = Instant::from_nanos(self.began_ns.load(Ordering::Acquire));
        let most_ns = SLOW_PERIODS.saturating_mul(self.period_ns.load(Ordering::Relaxed));
        began != Instant::ZERO && now.nanos_since(began) > most_ns.max(SLOW_MIN_NS)
    }

    fn is_due(&self, now: Instant) -> bool {
        let due = Instant::from_nanos(self.due_ns.load(Ordering::Relaxed));
        // A plan further ahead than a period was made before the clock was set back.
        let set_back = due.nanos_since(now) > self.period_ns.load(Ordering::Relaxed);
        !self.off.load(Ordering::Relaxed) && (due <= now || set_back)
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
                let panics = self.panics.fetch_add(1, Ordering::Relaxed) + 1;
                if panics < PANICS_MAX {
                    *lock(&self.signal) = Some(signal);
                } else {
                    discard(Box::new(signal));
                }
                discard(panic);
                Err(SignalFault::Panicked)
            }
        };
        // True when it was asked, at the earliest: an answer that took seconds is seconds old.
        *lock(&self.mail) = Some((now, mail));
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
        if slot.is_due(now) {
            mask |= 1 << i;
            next = next.min(now.after_nanos(slot.period_ns.load(Ordering::Relaxed)));
        } else {
            next = next.min(Instant::from_nanos(slot.due_ns.load(Ordering::Relaxed)));
        }
    }
    (mask, next)
}

/// Samples the signals in `mask`, as long as `goes_on`; returns whether it still does.
fn sample(
    slots: &[Slot],
    mask: u64,
    now: Instant,
    view: &View,
    goes_on: impl Fn() -> bool,
) -> bool {
    for (i, slot) in slots.iter().enumerate() {
        if mask >> i & 1 == 1 {
            slot.sample(now, view);
            if !goes_on() {
                return false;
            }
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
    /// That thread hangs in a sample.
    stuck: AtomicBool,
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
            stuck: AtomicBool::new(false),
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
            sample(&self.slots, mask, now, &view(), || true);
        }
    }

    /// Whether a sample of this signal has just become too slow.
    pub(crate) fn has_become_slow(&self, index: usize, now: Instant) -> bool {
        let slow = self.slots[index].has_become_slow(now);
        if slow {
            self.stuck.store(true, Ordering::Relaxed);
        }
        slow
    }

    /// Starts another thread if the present one hangs.
    pub(crate) fn replace_if_stuck(&self, shared: &Arc<Shared>) {
        if self.stuck.swap(false, Ordering::Relaxed)
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
            let shared = weak.upgrade();
            shared.is_some_and(|shared| shared.sampling().thread.load(Ordering::Acquire) == number)
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
