//! How many calls there were of late, in tenths of a second. Written on the path of a call, without a lock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cinnamon_core::Instant;
use cinnamon_signals::{LatencyShares, ServiceShares};

/// How far back a share looks, and up to a tenth of a second more: as far as that of
/// [`LatencySlo`](cinnamon_signals::LatencySlo), which it is told to.
pub const UTILISATION_WINDOW: Duration = Duration::from_secs(1);
/// How far back it looks at most, while calls are few: what is older than a caller's patience is another incident.
pub const UTILISATION_WINDOW_MAX: Duration = Duration::from_secs(5);
/// Calls that a share is taken over, at least; missing ones count as served in time. One slow call of one is no overload.
pub const UTILISATION_CALLS: u32 = cinnamon_signals::SLO_COMPLETIONS;

/// Time that one slot stands for: a tenth of the window, so that it slides and does not jump.
const SLOT: Duration = Duration::from_millis(100);
const SLOT_NS: u64 = SLOT.as_nanos() as u64;
/// Slots of the window, beside the one that is being filled.
const WINDOW_SLOTS: u64 = UTILISATION_WINDOW.as_nanos() as u64 / SLOT_NS;
const WINDOW_MAX_SLOTS: u64 = UTILISATION_WINDOW_MAX.as_nanos() as u64 / SLOT_NS;
/// Slots kept: the longest window, the one being filled, and some to spare for a thread that is late. A power of two,
/// for the path divides by it.
const SLOTS: u64 = 64;
const _: () = assert!(SLOTS > WINDOW_MAX_SLOTS + 1);

/// Calls of the last seconds: a ring of slots.
pub(crate) struct Counts {
    slots: Box<[Slot]>,
}

/// What ended within a tenth of a second.
#[derive(Debug, Default)]
struct Slot {
    /// Calls served, fast or slow.
    served: Lap,
    /// Those of them over the target.
    over_target: Lap,
    /// Those of them over the maximum.
    over_max: Lap,
    /// Calls refused.
    refused: Lap,
}

/// A number that is 0 again with each lap of the ring: 24 bits of the lap that it is of, 40 of the number. In one word,
/// so that who comes first in a lap clears and counts in one step, and nobody sees what is left of an earlier lap as
/// this one's. (A lap is 6.4 s; 2^24 of them are three years, 2^40 calls in a tenth of a second there are not.)
#[derive(Debug, Default)]
struct Lap(AtomicU64);

const NUMBER_BITS: u32 = 40;

impl Lap {
    fn add_one(&self, lap: u64) {
        let tag = lap << NUMBER_BITS;
        let mut word = self.0.load(Ordering::Relaxed);
        while word >> NUMBER_BITS != tag >> NUMBER_BITS {
            // Also when it is of a later lap: the clock was set back, or this thread is late by a whole lap, and then
            // a tenth of a second of 5 s is lost.
            match self
                .0
                .compare_exchange_weak(word, tag | 1, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self, lap: u64) -> u64 {
        let word = self.0.load(Ordering::Relaxed);
        if word >> NUMBER_BITS == (lap << NUMBER_BITS) >> NUMBER_BITS {
            word & ((1 << NUMBER_BITS) - 1)
        } else {
            0
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Served within the target.
    InTime,
    /// Served over the target.
    OverTarget,
    /// Served over the maximum, or it failed for load.
    OverMax,
    /// Refused for load.
    Refused,
}

/// Sums over some slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    served: u64,
    over_target: u64,
    over_max: u64,
    refused: u64,
}

impl Counts {
    pub(crate) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
        }
    }

    /// A call ended so at `now`. One to three relaxed additions.
    pub(crate) fn count(&self, now: Instant, end: End) {
        let (slot, lap) = self.slot(now.as_nanos() / SLOT_NS);
        match end {
            End::Refused => return slot.refused.add_one(lap),
            End::InTime => {}
            End::OverTarget => slot.over_target.add_one(lap),
            End::OverMax => {
                slot.over_target.add_one(lap);
                slot.over_max.add_one(lap);
            }
        }
        slot.served.add_one(lap);
    }

    /// The shares over the latest window that says enough.
    pub(crate) fn shares(&self, now: Instant) -> ServiceShares {
        let served = self.sums(now, |sums| sums.served);
        let asked = self.sums(now, |sums| sums.served + sums.refused);
        let latency = LatencyShares::new(
            share(served.over_target, served.served),
            share(served.over_max, served.served),
        );
        // What others write to meanwhile is not of one moment.
        let missed = asked.refused + asked.over_target.min(asked.served);
        ServiceShares::new(share(missed, asked.served + asked.refused), latency)
    }

    /// Back to where there are enough of these, but over the window at least and the longest one at most.
    fn sums(&self, now: Instant, of: impl Fn(&Sums) -> u64) -> Sums {
        let newest = now.as_nanos() / SLOT_NS;
        let mut sums = Sums::default();
        for back in 0..=WINDOW_MAX_SLOTS.min(newest) {
            if back > WINDOW_SLOTS && of(&sums) >= u64::from(UTILISATION_CALLS) {
                break;
            }
            let (slot, lap) = self.slot(newest - back);
            sums.served += slot.served.get(lap);
            sums.over_target += slot.over_target.get(lap);
            sums.over_max += slot.over_max.get(lap);
            sums.refused += slot.refused.get(lap);
        }
        sums
    }

    fn slot(&self, number: u64) -> (&Slot, u64) {
        (&self.slots[(number % SLOTS) as usize], number / SLOTS)
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts").finish_non_exhaustive()
    }
}

fn share(part: u64, whole: u64) -> f64 {
    let whole = whole.max(u64::from(UTILISATION_CALLS));
    part.min(whole) as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(ms))
    }

    /// So many calls in time, over the target, over the maximum, and refused.
    fn count(counts: &Counts, ms: u64, ends: [u32; 4]) {
        let kinds = [End::InTime, End::OverTarget, End::OverMax, End::Refused];
        for (end, times) in kinds.into_iter().zip(ends) {
            (0..times).for_each(|_| counts.count(at(ms), end));
        }
    }

    /// Overall, over the target, over the maximum.
    fn shares(counts: &Counts, ms: u64) -> [f64; 3] {
        let shares = counts.shares(at(ms));
        [
            shares.overall,
            shares.latency.slo_target,
            shares.latency.slo_max,
        ]
    }

    #[test]
    fn shares_are_of_what_was_served_and_overall_of_what_was_asked() {
        let counts = Counts::new();
        assert_eq!(shares(&counts, 0), [0.0; 3]);
        count(&counts, 50, [60, 30, 10, 0]);
        assert_eq!(shares(&counts, 50), [0.4, 0.4, 0.1]);
        // As many again are refused: those that are served are no slower for it.
        count(&counts, 90, [0, 0, 0, 100]);
        assert_eq!(shares(&counts, 90), [0.7, 0.4, 0.1]);
    }

    #[test]
    fn what_is_refused_is_not_hidden_by_what_is_quick() {
        let counts = Counts::new();
        count(&counts, 50, [50, 0, 0, 50]);
        assert_eq!(shares(&counts, 50), [0.5, 0.0, 0.0]);
        count(&counts, 1_950, [0, 0, 0, 30]);
        assert_eq!(shares(&counts, 1_950)[0], 1.0, "nothing but refusals");
    }

    #[test]
    fn few_calls_are_no_overload() {
        let counts = Counts::new();
        count(&counts, 50, [0, 0, 1, 0]);
        assert_eq!(shares(&counts, 50), [0.05; 3]);
        count(&counts, 60, [0, 0, 0, 3]);
        assert_eq!(shares(&counts, 60), [0.2, 0.05, 0.05]);
    }

    #[test]
    fn many_calls_are_seen_for_a_second_and_few_for_five() {
        let counts = Counts::new();
        count(&counts, 10_000, [0, 40, 0, 0]);
        count(&counts, 10_100, [60, 0, 0, 0]);
        assert_eq!(shares(&counts, 11_099)[1], 0.4);
        assert_eq!(shares(&counts, 11_100)[1], 0.0, "a second later");
        // Nine calls are too few, so those before them count too; until they are five seconds old.
        let counts = Counts::new();
        count(&counts, 10_000, [0, 20, 0, 0]);
        count(&counts, 14_000, [9, 0, 0, 0]);
        assert_eq!(shares(&counts, 15_099)[1], 20.0 / 29.0);
        assert_eq!(shares(&counts, 15_100)[1], 0.0);
    }

    #[test]
    fn a_tenth_of_a_second_is_its_own_however_often_the_ring_went_round() {
        let counts = Counts::new();
        let lap_ms = SLOTS * 100;
        count(&counts, 0, [0, 0, 40, 40]);
        for laps in [1, 2, 3, 1_000, 10_000_000] {
            let ms = laps * lap_ms;
            assert_eq!(shares(&counts, ms), [0.0; 3], "{laps} laps on");
            count(&counts, ms, [90, 10, 0, 0]);
            assert_eq!(shares(&counts, ms), [0.1, 0.1, 0.0]);
        }
        // The clock was set back.
        count(&counts, 0, [0, 30, 0, 0]);
        assert_eq!(shares(&counts, 0)[1], 1.0);
    }

    #[test]
    fn threads_that_begin_a_slot_together_lose_no_call() {
        let counts = Counts::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                // Less than a lap, or one that is late would clear what the others count.
                let times = 6_400..12_400;
                scope.spawn(|| times.for_each(|ms| count(&counts, ms, [1, 1, 0, 1])));
            }
        });
        // Of each of the last 1,100 milliseconds one of each, from each thread.
        let sums = counts.sums(at(12_399), |sums| sums.served);
        assert_eq!(
            (sums.served, sums.over_target, sums.refused),
            (8_800, 4_400, 4_400)
        );
    }
}
