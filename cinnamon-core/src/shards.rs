//! What is counted without the lane's lock: cumulative counters, one set for each thread.
//!
//! A thread with a [`Seat`] of its own writes to its shard alone, with plain loads and stores; the others share a few shards
//! and take turns by a flag. The engine reads all of them at its ticks, without a lock, and takes into account what came
//! since the last time ([`Tally`]). Counters only grow and are never reset, so that nothing is lost and nothing counted twice;
//! what is being counted at that moment comes with the next tick.
//!
//! A shard is made when its thread first counts something in this lane: a few kilobytes, once.

use std::ops::Deref;

use crate::permit::Outcome;
use crate::priority::{PRIORITIES, Rank, TIERS, Tier, mix64};
use crate::seat::{SEATS, Seat, seat};
use crate::slots::{self, TURNS};
use crate::sync::{AtomicBool, AtomicU64, OnceLock, Ordering, peek};

/// Shards of those who have no seat.
const SHARED: usize = if cfg!(cinnamon_loom) { 2 } else { 8 };
/// A model has few shards and levels: each counter is a state of its own there.
const LEVELS: usize = if cfg!(cinnamon_loom) { 2 } else { PRIORITIES };

/// A square is counted as this at most, that of a cost of 16 million: a thread's sum of a tick wraps after 65,000 such.
const SQUARE_MAX: u64 = 1 << 48;

/// Kinds of ends beside success that are told apart.
const OTHER_ENDS: usize = 3;

// Places of the counters in a shard. What an admission in calm weather and its success add to lies on one cache line, that of
// its tier: between two requests the store has used the cache for its own purposes, and each line is fetched anew.
const TIER: usize = 8;
const STARTED: usize = 0;
const STARTED_COST: usize = 1;
const STARTED_SQUARES: usize = 2;
const STARTED_RETRIES: usize = 3;
const SUCCEEDED: usize = 4;
const SUCCEEDED_COST: usize = 5;
const SUCCEEDED_SQUARES: usize = 6;
// Then the others.
const REFUSED: usize = TIERS * TIER;
const REFUSED_COST: usize = REFUSED + TIERS;
const REFUSED_SQUARES: usize = REFUSED_COST + 1;
const REFUSED_RETRIES: usize = REFUSED_SQUARES + 1;
/// By tier, ends other than success; then count, cost and squares of each kind.
const ENDED: usize = REFUSED_RETRIES + 1;
const END_KINDS: usize = ENDED + TIERS;
const COUNTERS: usize = END_KINDS + 3 * OTHER_ENDS;

/// What one shard counted, ever.
#[derive(Debug)]
#[repr(C, align(128))]
struct Shard {
    /// Somebody counts; only where several do.
    busy: AtomicBool,
    /// How often something was counted; stored last.
    events: AtomicU64,
    /// The most slots in use that were seen in a turn, and above them the turn.
    peak: AtomicU64,
    counters: Lines<COUNTERS>,
    /// Cost offered at each level.
    levels: Lines<LEVELS>,
}

/// Counters from the start of a cache line on.
#[derive(Debug)]
#[repr(align(64))]
struct Lines<const N: usize>([AtomicU64; N]);

impl<const N: usize> Lines<N> {
    fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const N: usize> Deref for Lines<N> {
    type Target = [AtomicU64; N];

    fn deref(&self) -> &[AtomicU64; N] {
        &self.0
    }
}

impl Shard {
    fn new() -> Self {
        Self {
            busy: AtomicBool::new(false),
            // The first one would be timed; a model is about those that are not.
            events: AtomicU64::new(u64::from(cfg!(cinnamon_loom))),
            peak: AtomicU64::new(0),
            counters: Lines::new(),
            levels: Lines::new(),
        }
    }
}

/// Adds to a counter that nobody else writes to.
#[inline]
fn add(to: &AtomicU64, n: u64) {
    to.store(
        to.load(Ordering::Relaxed).wrapping_add(n),
        Ordering::Relaxed,
    );
}

#[inline]
fn square(cost: u32) -> u64 {
    let cost = u64::from(cost);
    (cost * cost).min(SQUARE_MAX)
}

/// Where an end other than success is counted; `None` for that.
const fn end(outcome: Option<Outcome>) -> Option<usize> {
    match outcome {
        Some(Outcome::Success) => None,
        Some(Outcome::Overloaded) => Some(END_KINDS),
        Some(Outcome::Failure) => Some(END_KINDS + 3),
        Some(Outcome::Ignored) | None => Some(END_KINDS + 6),
    }
}

/// The counters of one lane.
#[derive(Debug)]
pub(crate) struct Shards(Box<[OnceLock<Box<Shard>>]>);

/// The right to count in one shard.
#[derive(Debug)]
pub(crate) struct Counting<'a> {
    shard: &'a Shard,
    index: usize,
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        if self.index >= SEATS {
            // Who has it next goes on from what was stored.
            self.shard.busy.store(false, Ordering::Release);
        }
    }
}

impl Shards {
    pub(crate) fn new() -> Self {
        let shards = Self((0..SEATS + SHARED).map(|_| OnceLock::new()).collect());
        if cfg!(cinnamon_loom) {
            // The model checker does not know that who finds one made finds it whole.
            (0..SEATS + SHARED).for_each(|index| _ = shards.shard(index));
        }
        shards
    }

    /// The shard of this thread; `None` when it has none for itself and all that are shared are being written to. Then there
    /// is the lane's lock.
    #[inline(always)]
    pub(crate) fn mine(&self) -> Option<Counting<'_>> {
        match seat() {
            Seat::Own(index) => Some(Counting {
                shard: self.shard(index),
                index,
            }),
            Seat::Shared(first) => self.any(first),
        }
    }

    #[cold]
    fn any(&self, first: usize) -> Option<Counting<'_>> {
        (0..SHARED).find_map(|next| {
            let index = SEATS + (first + next) % SHARED;
            let shard = self.shard(index);
            // It is held for some nanoseconds, or as long as its thread has lost its core: not to be waited for.
            let free =
                shard
                    .busy
                    .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
            // Only then: one that is made gives the shard back when it is dropped.
            free.is_ok().then(|| Counting { shard, index })
        })
    }

    #[inline]
    fn shard(&self, index: usize) -> &Shard {
        self.0[index].get_or_init(|| Box::new(Shard::new()))
    }
}

impl Counting<'_> {
    /// A number for the next event. Those of different shards do not run in step.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        let events = self.shard.events.load(Ordering::Relaxed);
        events.wrapping_add((self.index as u64) << 24)
    }

    /// Whether the next request is the one of two to the power of `bits` that is timed. Which these are has no rhythm that one of the
    /// caller's could keep step with.
    #[inline]
    pub(crate) fn is_timed(&self, bits: u32) -> bool {
        mix64(self.number()) & !(u64::MAX << bits) == 0
    }

    /// Whether the engine is to learn that work cost this and not what was thought: one in sixteen times, one in four where
    /// it is off by more than a factor of two.
    #[inline]
    pub(crate) fn is_lesson(&self, thought: u32, cost: u32) -> bool {
        let (less, more) = (thought.min(cost), thought.max(cost));
        let bits = if more / 2 > less { 2 } else { 4 };
        self.is_timed(bits)
    }

    /// Somebody went to the engine: the next one is another.
    #[inline]
    pub(crate) fn passed_on(&self) {
        self.done();
    }

    /// A request of this rank and cost runs, in this slot.
    #[inline]
    pub(crate) fn started(&self, rank: Rank, cost: u32, retry: bool, slot: slots::Taken) {
        self.offered(rank, cost);
        let tier = self.of_tier(rank.priority().tier());
        add(&tier[STARTED], 1);
        add(&tier[STARTED_COST], u64::from(cost));
        add(&tier[STARTED_SQUARES], square(cost));
        if retry {
            add(&tier[STARTED_RETRIES], 1);
        }
        let peak = slot.turn << 32 | u64::from(slot.in_use);
        let seen = self.shard.peak.load(Ordering::Relaxed);
        if seen >> 32 != slot.turn || seen < peak {
            self.shard.peak.store(peak, Ordering::Relaxed);
        }
        self.done();
    }

    /// One was refused by the gate. Returns how many of its tier that makes.
    #[inline]
    pub(crate) fn refused(&self, rank: Rank, cost: u32, retry: bool) -> u64 {
        self.offered(rank, cost);
        let counters = &self.shard.counters;
        let of_tier = &counters[REFUSED + rank.priority().tier().index()];
        add(of_tier, 1);
        add(&counters[REFUSED_COST], u64::from(cost));
        add(&counters[REFUSED_SQUARES], square(cost));
        if retry {
            add(&counters[REFUSED_RETRIES], 1);
        }
        self.done();
        of_tier.load(Ordering::Relaxed)
    }

    /// One that ran here, or elsewhere, is done.
    #[inline]
    pub(crate) fn ended(&self, tier: Tier, cost: u32, outcome: Option<Outcome>) {
        match end(outcome) {
            None => {
                let tier = self.of_tier(tier);
                add(&tier[SUCCEEDED], 1);
                add(&tier[SUCCEEDED_COST], u64::from(cost));
                add(&tier[SUCCEEDED_SQUARES], square(cost));
            }
            Some(end) => {
                let counters = &self.shard.counters;
                add(&counters[ENDED + tier.index()], 1);
                add(&counters[end], 1);
                add(&counters[end + 1], u64::from(cost));
                add(&counters[end + 2], square(cost));
            }
        }
        self.done();
    }

    /// The counters of a tier.
    #[inline]
    fn of_tier(&self, tier: Tier) -> &[AtomicU64] {
        let from = tier.index() * TIER;
        &self.shard.counters[from..from + TIER]
    }

    #[inline]
    fn offered(&self, rank: Rank, cost: u32) {
        let level = rank.priority().level();
        let level = if cfg!(cinnamon_loom) {
            level % LEVELS
        } else {
            level
        };
        add(&self.shard.levels[level], u64::from(cost));
    }

    /// Last: who sees the event sees all that was counted of it.
    #[inline]
    fn done(&self) {
        let events = &self.shard.events;
        let next = peek(events).wrapping_add(1);
        events.store(next, Ordering::Release);
    }
}

/// What was counted since it was last asked.
#[derive(Debug)]
pub(crate) struct Tally {
    seen: Box<[Option<Box<Seen>>]>,
    turn: u64,
}

/// A shard as it was.
#[derive(Debug)]
struct Seen {
    events: u64,
    counters: [u64; COUNTERS],
    levels: [u64; LEVELS],
}

/// What came, added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    counters: [u64; COUNTERS],
    /// The most slots in use at once; 0 where none was taken.
    pub(crate) in_use_peak: u32,
}

/// Requests that ended alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) requests: u64,
    pub(crate) cost: u64,
    pub(crate) cost_squares: u64,
}

impl Counted {
    /// A figure of each tier.
    fn of_tiers(&self, what: usize) -> [u64; TIERS] {
        std::array::from_fn(|tier| self.counters[tier * TIER + what])
    }

    fn sum(&self, what: usize) -> u64 {
        let add = |sum: u64, of: u64| sum.wrapping_add(of);
        self.of_tiers(what).into_iter().fold(0, add)
    }

    /// Requests that had a slot, by tier, …
    pub(crate) fn started(&self) -> [u64; TIERS] {
        self.of_tiers(STARTED)
    }

    /// … what they cost, …
    pub(crate) fn started_cost(&self) -> u64 {
        self.sum(STARTED_COST)
    }

    /// … and how many were no first attempt.
    pub(crate) fn started_retries(&self) -> u64 {
        self.sum(STARTED_RETRIES)
    }

    /// Requests that the gate refused, by tier, …
    pub(crate) fn refused(&self) -> [u64; TIERS] {
        std::array::from_fn(|tier| self.counters[REFUSED + tier])
    }

    /// … what they would have cost, …
    pub(crate) const fn refused_cost(&self) -> u64 {
        self.counters[REFUSED_COST]
    }

    /// … and how many were no first attempt.
    pub(crate) const fn refused_retries(&self) -> u64 {
        self.counters[REFUSED_RETRIES]
    }

    /// The squares of all these costs, summed.
    pub(crate) fn offered_squares(&self) -> u64 {
        self.sum(STARTED_SQUARES)
            .wrapping_add(self.counters[REFUSED_SQUARES])
    }

    /// Slots that came back, by tier, …
    pub(crate) fn ended(&self) -> [u64; TIERS] {
        let succeeded = self.of_tiers(SUCCEEDED);
        std::array::from_fn(|tier| succeeded[tier].wrapping_add(self.counters[ENDED + tier]))
    }

    /// … and by how the work in them ended.
    pub(crate) fn ended_so(&self, outcome: Option<Outcome>) -> Ended {
        match end(outcome) {
            None => Ended {
                requests: self.sum(SUCCEEDED),
                cost: self.sum(SUCCEEDED_COST),
                cost_squares: self.sum(SUCCEEDED_SQUARES),
            },
            Some(end) => Ended {
                requests: self.counters[end],
                cost: self.counters[end + 1],
                cost_squares: self.counters[end + 2],
            },
        }
    }
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            seen: (0..SEATS + SHARED).map(|_| None).collect(),
            turn: 0,
        }
    }

    /// How often it was asked; the slot word shows it, so that a peak is known to be a new one.
    pub(crate) const fn turn(&self) -> u64 {
        self.turn
    }

    /// What came since the last time; each level and the cost offered there goes to `level`.
    pub(crate) fn take(
        &mut self,
        shards: &Shards,
        mut level: impl FnMut(usize, u64),
    ) -> Option<Counted> {
        let mut counted = Counted {
            counters: [0; COUNTERS],
            in_use_peak: 0,
        };
        let mut any = false;
        for (shard, seen) in shards.0.iter().zip(&mut self.seen) {
            let Some(shard) = shard.get() else { continue };
            let seen = seen.get_or_insert_with(|| {
                Box::new(Seen {
                    events: 0,
                    counters: [0; COUNTERS],
                    levels: [0; LEVELS],
                })
            });
            let events = shard.events.load(Ordering::Acquire);
            if events == std::mem::replace(&mut seen.events, events) {
                continue;
            }
            any = true;
            let counters = shard.counters.iter().zip(&mut seen.counters);
            let mut started = false;
            for (index, ((now, seen), sum)) in counters.zip(&mut counted.counters).enumerate() {
                let news = news(now, seen);
                *sum = sum.wrapping_add(news);
                started |= index < REFUSED && index % TIER == STARTED && news > 0;
            }
            let levels = shard.levels.iter().zip(&mut seen.levels);
            for (index, (now, seen)) in levels.enumerate() {
                let cost = news(now, seen);
                if cost > 0 {
                    level(index, cost);
                }
            }
            let peak = shard.peak.load(Ordering::Relaxed);
            // Turns come round: only of one who has taken a slot since is the peak a new one.
            if started && peak >> 32 == self.turn {
                counted.in_use_peak = counted.in_use_peak.max(peak as u32);
            }
        }
        self.turn = (self.turn + 1) % TURNS;
        any.then_some(counted)
    }
}

/// What a counter has grown by since it was seen.
fn news(now: &AtomicU64, seen: &mut u64) -> u64 {
    let now = now.load(Ordering::Relaxed);
    now.wrapping_sub(std::mem::replace(seen, now))
}

#[cfg(all(test, not(cinnamon_loom)))]
mod tests {
    use super::*;

    fn rank(level: usize) -> Rank {
        Rank::threshold(level, 0.0)
    }

    const SLOT: slots::Taken = slots::Taken { in_use: 3, turn: 0 };

    #[test]
    fn what_was_counted_is_taken_once() {
        let shards = Shards::new();
        let mut tally = Tally::new();
        assert_eq!(tally.take(&shards, |_, _| ()), None);
        let mine = shards.mine().unwrap();
        let turn = tally.turn();
        mine.started(rank(500), 5, false, slots::Taken { turn, ..SLOT });
        mine.started(rank(500), 5, true, slots::Taken { in_use: 2, turn });
        mine.refused(rank(767), 3, true);
        mine.ended(Tier::T3, 5, Some(Outcome::Success));
        mine.ended(Tier::T3, 5, None);
        let mut levels = Vec::new();
        let taken = tally
            .take(&shards, |level, cost| levels.push((level, cost)))
            .unwrap();
        assert_eq!(levels, [(500, 10), (767, 3)]);
        assert_eq!(taken.started(), [0, 0, 0, 2, 0, 0]);
        assert_eq!((taken.started_cost(), taken.started_retries()), (10, 1));
        assert_eq!(taken.refused(), [0, 0, 0, 0, 0, 1]);
        assert_eq!((taken.refused_cost(), taken.refused_retries()), (3, 1));
        assert_eq!(taken.offered_squares(), 2 * 25 + 9);
        assert_eq!(taken.ended(), [0, 0, 0, 2, 0, 0]);
        let ended = Ended {
            requests: 1,
            cost: 5,
            cost_squares: 25,
        };
        assert_eq!(taken.ended_so(Some(Outcome::Success)), ended);
        assert_eq!(taken.ended_so(None), ended);
        assert_eq!(taken.ended_so(Some(Outcome::Overloaded)), Ended::default());
        assert_eq!(taken.in_use_peak, 3);
        assert_eq!(tally.take(&shards, |_, _| panic!("nothing is new")), None);
        // The peak of another turn is none of this one.
        mine.ended(Tier::T3, 5, None);
        assert_eq!(tally.take(&shards, |_, _| ()).unwrap().in_use_peak, 0);
    }

    #[test]
    fn one_in_sixteen_is_timed_whatever_the_rhythm() {
        let shards = Shards::new();
        let mine = shards.mine().unwrap();
        for every in [1, 2, 3, 16, 17] {
            let (mut timed, mut last, mut longest) = (0, 0, 0);
            for n in 0..16_000 {
                if mine.is_timed(4) {
                    timed += 1;
                    longest = longest.max(n - last);
                    last = n;
                }
                (0..every).for_each(|_| mine.passed_on());
            }
            assert!((900..1_100).contains(&timed), "{timed} of every {every}th");
            assert!(longest < 256, "{longest} of every {every}th");
        }
    }

    #[test]
    fn who_has_no_seat_takes_turns_and_loses_nothing() {
        const THREADS: usize = 4;
        const EACH: u64 = 20_000;
        let shards = Shards::new();
        let count = |index: usize| {
            let shared = SEATS + index % 2;
            let mut done = 0;
            while done < EACH {
                let shard = shards.shard(shared);
                if shard.busy.swap(true, Ordering::Acquire) {
                    std::thread::yield_now();
                    continue;
                }
                Counting {
                    shard,
                    index: shared,
                }
                .ended(Tier::T0, 1, None);
                done += 1;
            }
        };
        std::thread::scope(|scope| {
            let count = &count;
            (0..THREADS).for_each(|index| drop(scope.spawn(move || count(index))));
        });
        let taken = Tally::new().take(&shards, |_, _| ()).unwrap();
        assert_eq!(taken.ended()[0], THREADS as u64 * EACH);
    }

    #[test]
    fn counters_may_wrap() {
        let shards = Shards::new();
        let mut tally = Tally::new();
        let mine = shards.mine().unwrap();
        mine.of_tier(Tier::T0)[STARTED_COST].store(u64::MAX - 4, Ordering::Relaxed);
        mine.shard.events.store(u64::MAX, Ordering::Relaxed);
        tally.take(&shards, |_, _| ());
        mine.started(rank(0), 10, false, SLOT);
        assert_eq!(tally.take(&shards, |_, _| ()).unwrap().started_cost(), 10);
    }
}
