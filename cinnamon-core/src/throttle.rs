//! A tenant or a key that may run only so much: what the control step writes and every lane reads.
//!
//! One for all lanes: a key that is hot does not get its rate once for each. A rate is kept by when what was let in will
//! have been paid for (the generic cell rate algorithm), so that nobody has to refill anything.

use crate::clock::Instant;
use crate::priority::Tier;
use crate::request::Request;
use crate::signal::Who;
use crate::sync::lone::{AtomicU64, Ordering};

/// What may come at once, in time at its rate: as long as the longest tick, so that a throttle is no metronome.
const BURST_NS: u64 = 250_000_000;
/// Each tier finds so much less of it than the one before: the last of what a culprit may run is for its best work.
const TIER_STEP_NS: u64 = BURST_NS / 12;

/// One culprit, throttled.
#[derive(Debug)]
pub(crate) struct Throttle {
    who: Who,
    /// Index of the signal that named it.
    signal: u8,
    /// Bit per lane.
    lanes: u64,
    /// Cost per second, as bits.
    per_s: AtomicU64,
    /// When all that was let in will have been paid for, ns.
    paid_at: AtomicU64,
    /// When that was last looked at, ns.
    seen_at: AtomicU64,
    /// Cost that came and that was refused, ever.
    came: AtomicU64,
    refused: AtomicU64,
}

impl Throttle {
    pub(crate) const fn new(who: Who, signal: u8, lanes: u64, per_s: f64) -> Self {
        Self {
            who,
            signal,
            lanes,
            per_s: AtomicU64::new(per_s.to_bits()),
            paid_at: AtomicU64::new(0),
            seen_at: AtomicU64::new(0),
            came: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    pub(crate) const fn who(&self) -> Who {
        self.who
    }

    pub(crate) const fn signal(&self) -> u8 {
        self.signal
    }

    /// Bit per lane.
    pub(crate) const fn lanes(&self) -> u64 {
        self.lanes
    }

    pub(crate) fn per_s(&self) -> f64 {
        f64::from_bits(self.per_s.load(Ordering::Relaxed))
    }

    /// Another rate. What is owed stays the same cost, and so takes another time.
    pub(crate) fn set_per_s(&self, per_s: f64) {
        let before = f64::from_bits(self.per_s.swap(per_s.to_bits(), Ordering::Relaxed));
        let seen = self.seen_at.load(Ordering::Relaxed);
        let rescale = |at: u64| {
            let owed = at.saturating_sub(seen) as f64 * before / per_s;
            Some(seen.saturating_add(owed as u64))
        };
        let order = Ordering::Relaxed;
        let rescaled = self.paid_at.fetch_update(order, order, rescale);
        debug_assert!(rescaled.is_ok());
    }

    /// Cost that came, and that was refused, ever.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.came), load(&self.refused))
    }

    /// Whether it is about this request of this lane.
    pub(crate) fn concerns(&self, lane: u8, request: &Request) -> bool {
        let is_it = match self.who {
            Who::Tenant(tenant) => request.get_tenant() == Some(tenant),
            Who::Key(key) => request.get_key() == Some(key),
        };
        is_it && self.lanes >> lane & 1 == 1
    }

    /// Whether a request of this tier would be let in at `now`.
    pub(crate) fn has_room(&self, now: Instant, tier: Tier) -> bool {
        let owes_ns = self
            .paid_at
            .load(Ordering::Relaxed)
            .saturating_sub(now.as_nanos());
        // Infrastructure is refused by nobody but the operator.
        tier == Tier::T0 || owes_ns <= BURST_NS - TIER_STEP_NS * tier.index() as u64
    }

    /// Counts a request that comes.
    pub(crate) fn count(&self, cost: u32, refused: bool) {
        self.came.fetch_add(cost.into(), Ordering::Relaxed);
        if refused {
            self.refused.fetch_add(cost.into(), Ordering::Relaxed);
        }
    }

    /// Takes the cost of one that is let in from the rate.
    pub(crate) fn pay(&self, now: Instant, cost: u32) {
        let takes_ns = (f64::from(cost) / self.per_s() * 1e9) as u64;
        let now = now.as_nanos();
        self.seen_at.store(now, Ordering::Relaxed);
        // A clock that was set back must not have it wait for the time it had before.
        let most = now.saturating_add(BURST_NS).saturating_add(takes_ns);
        let pay = |at: u64| Some(at.max(now).saturating_add(takes_ns).min(most));
        // Never fails: the closure always gives a value.
        let paid = self
            .paid_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
        debug_assert!(paid.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(throttle: &Throttle, now: Instant, tier: Tier, cost: u32) -> bool {
        let has_room = throttle.has_room(now, tier);
        throttle.count(cost, !has_room);
        if has_room {
            throttle.pay(now, cost);
        }
        has_room
    }

    fn let_in(throttle: &Throttle, tiers: &[Tier], seconds: u64) -> Vec<u32> {
        let mut admitted = vec![0; tiers.len()];
        for ms in 0..seconds * 1_000 {
            for (i, &tier) in tiers.iter().enumerate() {
                let now = Instant::from_nanos(ms * 1_000_000);
                admitted[i] += u32::from(admits(throttle, now, tier, 2));
            }
        }
        admitted
    }

    #[test]
    fn a_culprit_runs_at_its_rate_and_its_best_work_first() {
        let throttle = Throttle::new(Who::Key(1), 0, 1, 100.0);
        // Fifty a second, and the seventh of a second that may come at once.
        assert_eq!(let_in(&throttle, &[Tier::T5], 10), [508]);
        let throttle = Throttle::new(Who::Key(1), 0, 1, 100.0);
        let admitted = let_in(&throttle, &[Tier::T5, Tier::T1], 10);
        assert!(admitted[0] < 20 && admitted[1] > 490, "{admitted:?}");
        let (came, refused) = throttle.counts();
        assert_eq!(came - refused, u64::from(2 * admitted.iter().sum::<u32>()));
    }

    #[test]
    fn infrastructure_passes_and_a_slow_rate_still_lets_something_through() {
        let throttle = Throttle::new(Who::Key(1), 0, 1, 1.0);
        assert_eq!(let_in(&throttle, &[Tier::T0], 1), [1_000]);
        let throttle = Throttle::new(Who::Key(1), 0, 1, 1.0);
        assert_eq!(let_in(&throttle, &[Tier::T5], 20), [11]);
    }

    #[test]
    fn a_clock_set_back_does_not_lock_it_out() {
        let throttle = Throttle::new(Who::Key(1), 0, 1, 100.0);
        let day = Instant::from_nanos(86_400_000_000_000);
        assert!(admits(&throttle, day, Tier::T5, 1));
        let before = Instant::from_nanos(1_000_000_000);
        assert!(!throttle.has_room(before, Tier::T5));
        // Its lane's time does not run back; but should it, the next that is let in puts it right.
        assert!(admits(&throttle, before, Tier::T0, 1));
        assert!(throttle.has_room(Instant::from_nanos(1_200_000_000), Tier::T5));
    }

    #[test]
    fn what_is_owed_is_paid_off_sooner_at_a_higher_rate() {
        let throttle = Throttle::new(Who::Key(1), 0, 1, 100.0);
        let at_s = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        // A hundred seconds' worth, which was let in as one request.
        assert!(admits(&throttle, at_s(10), Tier::T5, 10_000));
        assert!(!throttle.has_room(at_s(12), Tier::T5));
        throttle.set_per_s(10_000.0);
        assert!(throttle.has_room(at_s(12), Tier::T5), "{throttle:?}");
    }
}
