//! The rest of a controller that nobody asks anything.
//!
//! A wake-up costs some 200 us of a core however little is done then, for everything is cold (`make bench`, idle controller): four
//! a second, one of which emitted metrics, came to 0.12 %. After two seconds without an offer, and with nothing running, the
//! control thread wakes once a second only, emits metrics every fifth time, and is woken by the first offer: 0.07 %. That is
//! one relaxed load of a line that is hardly ever written, for offers that take the lane's lock; those that do not come
//! by the thousand, so that there is no rest.
//!
//! | the thread | sees | then |
//! |---|---|---|
//! | ticks, idle | an offer since the last tick, work that runs, an override, a switch | a tick in a quarter of a second, as ever |
//! | ticks, idle | no offer in eight ticks | says that it rests; and if there is none even now, sleeps for a second |
//! | rests | an offer | a tick at once |
//!
//! An offer that comes while the thread says so is seen by one of the two: both look under the lane's lock, the thread after it
//! has said that it rests, and the caller before it looks whether it does.

use std::task::Waker;
use std::time::Duration;

use super::{EMIT_NS, Shared};
use crate::clock::Instant;
use crate::lane::wake_all;
use crate::sync::{Ordering, lock};

/// Idle ticks without an offer after which it rests: two seconds. Callers that come more often than that never pay for a
/// wake-up.
const QUIET_TICKS: u32 = 8;
/// Between ticks while it rests.
pub(crate) const REST_NS: u64 = 1_000_000_000;
/// Between emissions of metrics while it rests. A recorder keeps what it was told last; one that is installed late has
/// everything soon, and who draws `cinnamon_ticks_total` sees that the thread lives.
const REST_EMIT_NS: u64 = 5_000_000_000;

/// How long nobody has asked anything.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// All that was ever offered, when it was last looked.
    offered: u64,
    /// Idle ticks since that last changed.
    quiet: u32,
    /// The next tick was put off.
    rests: bool,
}

impl Shared {
    /// Puts the next tick off if nobody asks anything.
    pub(super) fn begin_rest(&self, now: Instant) {
        let mut wakers = Vec::new();
        let rests = self.may_rest(now, &mut wakers);
        if !rests {
            self.rests.store(false, Ordering::Relaxed);
        }
        wake_all(wakers);
    }

    fn may_rest(&self, now: Instant, wakers: &mut Vec<Waker>) -> bool {
        let mut control = lock(&self.control);
        let control = &mut *control;
        let before = std::mem::take(&mut control.rest);
        if !control.idle {
            return false;
        }
        let (offered, running) = self.asked(wakers);
        control.rest.offered = offered;
        if offered != before.offered || running > 0 {
            return false;
        }
        control.rest.quiet = before.quiet.saturating_add(1);
        let watched = self.has_switches() || control.overrides.next_end().is_some();
        if control.rest.quiet < QUIET_TICKS || watched {
            return false;
        }
        self.rests.store(true, Ordering::Relaxed);
        if self.asked(wakers).0 != offered {
            return false;
        }
        control.rest.rests = true;
        control.next_tick = now.after_nanos(REST_NS);
        true
    }

    /// How long after metrics were emitted they are emitted again: while it rests there is hardly any news.
    pub(super) fn emit_period_ns(&self) -> u64 {
        match self.rests.load(Ordering::Relaxed) {
            true => REST_EMIT_NS,
            false => EMIT_NS,
        }
    }

    /// If somebody has come meanwhile, a tick is due.
    pub(super) fn end_rest(&self, now: Instant) {
        let mut control = lock(&self.control);
        if control.rest.rests && !self.rests.load(Ordering::Relaxed) {
            control.rest = Rest::default();
            control.next_tick = now;
        }
    }

    /// Somebody has come.
    #[inline]
    pub(crate) fn rouse(&self) {
        if self.rests.load(Ordering::Relaxed) {
            self.rouse_now();
        }
    }

    #[cold]
    fn rouse_now(&self) {
        // One of those who come at once is enough.
        if self.rests.swap(false, Ordering::Relaxed)
            && let Some(now) = self.read_clock()
        {
            self.kick.no_later_than(now, Duration::ZERO);
        }
    }

    /// All that was ever offered, and what runs now.
    fn asked(&self, wakers: &mut Vec<Waker>) -> (u64, u32) {
        let mut all = (0, 0);
        for lane in &self.lanes {
            lane.with_counts(None, wakers, |engine, _, _| {
                all = (all.0 + engine.offered(), all.1 + engine.running());
            });
        }
        all
    }
}
