//! What an engine leaves to those who come while there is nothing to decide: see [`SlotWord`](crate::slots::SlotWord).

use super::{Doors, Engine};
use crate::clock::Instant;
use crate::permit::Outcome;
use crate::priority::{Rank, Tier};
use crate::shards::Shards;
use crate::slots::Free;
use crate::verdict::{AdmitKind, Verdict};

/// With this in the environment, and the feature `test-util`, requests may run without the engine at any pace: so all tests
/// can be run on that path.
const RUN_FREE: &str = "CINNAMON_RUN_FREE";

/// From so many requests a second on they may run without the engine. Below, its lock costs less than a thousandth of a core,
/// and every service time is worth having; of four thousand a second, one in sixteen is 250.
const FREE_FROM_PER_S: f64 = 4_000.0;
/// One in so many, as a power of two, goes to the engine although it need not: its service time is taken, and the engine
/// sees the slots in use. …
const TIMED_BITS: u32 = if cfg!(cinnamon_loom) { 16 } else { 4 };
const TIMED_BITS_MAX: u32 = 16;
/// … But no more than so many a second: more would tell nothing new, and while the engine looks, nobody runs without it. (With
/// 4,000 a second a pool of two threads and jobs of 9 us lost 4 to 5 % of its throughput, with 1,000 it loses 2 to 3 %.)
const TIMED_MAX_PER_S: f64 = 1_000.0;
/// That is looked at over so long at least: ticks that a waiter kicked off see nothing.
const LOOKED_AT_NS: u64 = 1_000_000;
/// So many that come at that pace are enough to believe in it: a lane that was idle has its next tick in a quarter of a
/// second, and in that time come thousands.
const BURST: u64 = 64;
const BURST_NS: u64 = (BURST as f64 / FREE_FROM_PER_S * 1e9) as u64;

/// How fast requests come.
#[derive(Debug)]
pub(super) struct Pace {
    since: Instant,
    offered: u64,
    /// When so many of those that came to the engine had come.
    burst_since: Instant,
    burst_from: u64,
    fast: bool,
    timed_bits: u32,
    /// Fast or not; only tests want that.
    forced: bool,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            offered: 0,
            burst_since: now,
            burst_from: 0,
            fast: false,
            timed_bits: TIMED_BITS,
            forced: cfg!(feature = "test-util") && std::env::var_os(RUN_FREE).is_some(),
        }
    }

    /// The next one came to the engine; so many had, all in all.
    pub(super) fn offered(&mut self, now: Instant, offered: u64) {
        if offered.wrapping_sub(self.burst_from) >= BURST {
            // Only a tick, which knows of the others, finds that they have become few.
            self.fast |= now.nanos_since(self.burst_since) <= BURST_NS;
            (self.burst_since, self.burst_from) = (now, offered);
        }
    }

    /// So many came until now.
    pub(super) fn tick(&mut self, now: Instant, offered: u64) {
        let dt_ns = now.nanos_since(self.since);
        if dt_ns < LOOKED_AT_NS {
            return;
        }
        self.since = now;
        let came = offered.wrapping_sub(std::mem::replace(&mut self.offered, offered));
        let per_s = came as f64 * 1e9 / dt_ns as f64;
        self.fast = per_s >= FREE_FROM_PER_S;
        let bits = (per_s / TIMED_MAX_PER_S).max(1.0).log2().ceil() as u32;
        self.timed_bits = bits.clamp(TIMED_BITS, TIMED_BITS_MAX);
    }
}

impl Engine {
    /// Whether who comes now may have a slot without being judged: nothing is refused, nobody waits, and nothing is
    /// counted but sums.
    pub(crate) fn runs_free(&self) -> bool {
        (self.pace.fast || self.pace.forced)
            && self.queue.is_empty()
            && self.in_use + 1 < self.limit
            && self.threshold.is_open()
            && self.cap == Rank::OPEN
            && self.doors == Doors::Open
            && !self.off
            && self.tenant_rules.is_empty()
            && !self.tenants.is_on()
            && !self.shares.any()
            && self.throttles.is_empty()
            && self.steering.takes_sums()
            && !self.steering.engaged()
    }

    /// Goes on from what was done without it: so many slots are in use now.
    pub(crate) fn resume(&mut self, in_use: u32) {
        let before = std::mem::replace(&mut self.in_use, in_use);
        self.in_use_before.get_or_insert(before);
    }

    /// What it leaves to them.
    pub(crate) const fn lets_go(&self) -> Free {
        Free {
            in_use: self.in_use,
            limit: self.limit,
            turn: self.tally.turn(),
            timed_bits: self.pace.timed_bits,
        }
    }

    /// Whoever comes may run without the engine from now on, however few come.
    #[cfg(feature = "test-util")]
    pub(crate) fn let_run_free(&mut self) {
        self.pace.forced = true;
    }

    /// Takes into account who did not come to it.
    pub(crate) fn take_in(&mut self, shards: &Shards) {
        let steering = &mut self.steering;
        let level = |level, cost| steering.offered_at(level, cost);
        let Some(counted) = self.tally.take(shards, level) else {
            return;
        };
        let (started, refused) = (counted.started(), counted.refused());
        let (runs, refusals) = (started.iter().sum::<u64>(), refused.iter().sum::<u64>());
        let by_tier = std::array::from_fn(|tier| started[tier] + refused[tier]);
        let cost = counted.started_cost() + counted.refused_cost();
        self.steering
            .offered_many(&by_tier, cost, counted.offered_squares());
        self.steering.started_many(runs, counted.started_cost());
        self.offered += runs + refusals;
        self.retries
            .arrived_many(runs, counted.started_retries(), false);
        self.retries
            .arrived_many(refusals, counted.refused_retries(), true);
        self.refused_at_gate(&refused, counted.refused_cost());
        let ended = counted.ended();
        for tier in Tier::ALL {
            let index = tier.index();
            let verdict = Verdict::Admit(AdmitKind::Slot);
            self.verdicts.count_many(tier, verdict, started[index]);
            self.shares.moved(index, started[index], ended[index]);
        }
        for outcome in [
            Some(Outcome::Success),
            Some(Outcome::Overloaded),
            Some(Outcome::Failure),
            None,
        ] {
            let ended = counted.ended_so(outcome);
            self.steering.ended_many(outcome, &ended);
            self.slotting.ended_many(outcome, &ended);
        }
        self.slotting.saw_peak(counted.in_use_peak);
    }
}
