//! The gate as callers see it before they come to the lock: in an overload most are refused, and need not stand in line for
//! it.
//!
//! The engine publishes where its gate stands after each step under the lock; an offer reads that word once. What is refused by
//! it is counted here, in shards that only grow, and taken into account by the engine at its next step
//! ([`Engine::take_in`](crate::engine::Engine::take_in)); nobody is counted twice, and nobody is lost. Whatever the word
//! does not say (a deadline, a rule for the tenant, an override, a mode, a reserved share) is for the engine to judge: then
//! the word is [`Published::SHUT_OFF`], and everybody goes to the lock.
//!
//! A refusal costs one load of the word, the hash of the key, and three additions to atomics (four for a retry).

use crate::config::CLASSES_MAX;
use crate::priority::{KeyHash, PRIORITIES, Rank, TIERS, Tier, mix64};
use crate::request::{Request, Tag};
use crate::retry::Advice;
use crate::sync::{AtomicU32, AtomicU64, Ordering, shard};
use crate::verdict::{Binding, Reason, Rejected};

/// Shards of the counters: as many as threads that would otherwise write to one line.
pub(crate) const SHARDS: usize = 8;
/// Every so many refusals of a shard somebody looks whether the control thread still lives: nobody else may come to the
/// lock, and a gate that nobody moves must open.
const LOOK_EVERY: u64 = 64;

/// A square is counted as this at most, so that the sum of a tick does not wrap; of costs above a million the scatter is beyond
/// knowing anyway.
const SQUARE_MAX: u64 = 1 << 40;

/// Where the gate stands, in one word.
///
/// | bits | |
/// |---|---|
/// | 0..32 | the threshold's rank |
/// | 32..40 | index of what binds |
/// | 40..42 | its kind: nothing, backlog, signal, override |
/// | 42 | the retry budget is spent |
/// | 43 | other instances serve the same |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published(u64);

impl Published {
    /// Refuses nobody: the engine must be asked.
    pub(crate) const SHUT_OFF: Self = Self(Rank::OPEN.bits() as u64);

    pub(crate) const fn new(threshold: Rank, binding: Binding, storms: bool, peers: bool) -> Self {
        let (kind, index) = match binding {
            Binding::Backlog { lane } => (1, lane),
            Binding::Signal { index } => (2, index),
            Binding::Override => (3, 0),
            // These hold no gate.
            Binding::Nothing | Binding::Tenant => return Self::SHUT_OFF,
        };
        let flags = (storms as u64) << 42 | (peers as u64) << 43;
        Self(threshold.bits() as u64 | (index as u64) << 32 | kind << 40 | flags)
    }

    const fn threshold(self) -> Rank {
        Rank::from_bits(self.0 as u32)
    }

    const fn binding(self) -> Binding {
        let index = (self.0 >> 32) as u8;
        match self.0 >> 40 & 3 {
            1 => Binding::Backlog { lane: index },
            2 => Binding::Signal { index },
            3 => Binding::Override,
            _ => Binding::Nothing,
        }
    }

    const fn advice(self) -> Advice {
        match (self.0 >> 42 & 1, self.0 >> 43 & 1) {
            (1, _) => Advice::Never,
            (_, 1) => Advice::Elsewhere,
            _ => Advice::Wait,
        }
    }
}

/// What one shard counted, ever.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard {
    tiers: [AtomicU64; TIERS],
    cost_squared: AtomicU64,
    retried: AtomicU64,
}

/// The gate of one lane.
#[derive(Debug)]
pub(crate) struct Gate {
    word: AtomicU64,
    seed: AtomicU64,
    turn: AtomicU32,
    /// What a request of each class costs that does not say so.
    class_costs: Box<[AtomicU32]>,
    classes: AtomicU32,
    shards: Box<[Shard]>,
    /// Cost refused at each level, ever.
    levels: Box<[AtomicU64]>,
}

/// A refusal, and whether it is time to look after the gate.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) rejected: Rejected,
    pub(crate) look: bool,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU64::new(Published::SHUT_OFF.0),
            seed: AtomicU64::new(0),
            turn: AtomicU32::new(0),
            class_costs: (0..CLASSES_MAX).map(|_| AtomicU32::new(1)).collect(),
            classes: AtomicU32::new(1),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            levels: (0..PRIORITIES).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Shows where the gate stands. Called under the lane's lock, by whoever has changed it.
    pub(crate) fn publish(&self, published: Published, hash: KeyHash) {
        let (seed, turn) = hash.parts();
        self.seed.store(seed, Ordering::Relaxed);
        self.turn.store(turn, Ordering::Relaxed);
        // Whoever sees the word sees the hash that it goes with, or a later one.
        self.word.store(published.0, Ordering::Release);
    }

    pub(crate) fn set_class_cost(&self, class: usize, cost: u32) {
        if let Some(of) = self.class_costs.get(class) {
            of.store(cost, Ordering::Relaxed);
            self.classes.fetch_max(class as u32 + 1, Ordering::Relaxed);
        }
    }

    /// Refuses what is sure to be refused, and counts it.
    pub(crate) fn refuse(&self, request: &Request) -> Option<Refused> {
        let word = Published(self.word.load(Ordering::Acquire));
        let threshold = word.threshold();
        if threshold.is_open() || !request.is_plain() {
            return None;
        }
        let hash = KeyHash::of_parts(
            self.seed.load(Ordering::Relaxed),
            self.turn.load(Ordering::Relaxed),
        );
        let rank = match (request.tag, request.key) {
            (Tag::Tier(tier), Some(key)) => hash.rank(tier, key),
            (Tag::Priority(priority), Some(key)) => hash.rank_at(priority, key),
            // Where in its level it would lie is the engine's to say, but not whether a whole level is refused.
            (Tag::Priority(priority), None) => Rank::new(priority, 0),
            (Tag::Tier(_), None) | (Tag::Untagged | Tag::Exempt, _) => return None,
        };
        if rank < threshold {
            return None;
        }
        let cost = match request.get_cost() {
            Some(cost) => cost,
            None => {
                // One that is not configured is treated as the first.
                let known = u32::from(request.class.0) < self.classes.load(Ordering::Relaxed);
                let class = if known {
                    usize::from(request.class.0)
                } else {
                    0
                };
                self.class_costs[class].load(Ordering::Relaxed)
            }
        };
        let shard = &self.shards[shard() % SHARDS];
        // Only sums are read of them, under the lock that orders everything else.
        let add = |to: &AtomicU64, n: u64| to.fetch_add(n, Ordering::Relaxed);
        let cost = u64::from(cost);
        add(&self.levels[rank.priority().level()], cost);
        add(
            &shard.cost_squared,
            cost.saturating_mul(cost).min(SQUARE_MAX),
        );
        if request.attempt > 0 {
            add(&shard.retried, 1);
        }
        // Last: who has seen the request counted sees its cost.
        let tier = &shard.tiers[rank.priority().tier().index()];
        let count = tier.fetch_add(1, Ordering::Release);
        let salt = mix64(request.key.unwrap_or(0) ^ count.rotate_left(32)) as u32;
        let gate = (threshold, word.binding());
        let retry = (request.attempt, word.advice());
        Some(Refused {
            rejected: Rejected::new(Reason::Shed, rank, gate, salt, retry),
            look: count % LOOK_EVERY == LOOK_EVERY - 1,
        })
    }
}

/// What was refused by a [`Gate`] since it was last asked.
#[derive(Debug)]
pub(crate) struct Tally {
    seen_tiers: [u64; TIERS],
    seen_squared: u64,
    seen_retried: u64,
    seen_levels: Box<[u64]>,
}

/// The same, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) tiers: [u64; TIERS],
    pub(crate) cost: u64,
    pub(crate) cost_squared: u64,
    pub(crate) retried: u64,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            seen_tiers: [0; TIERS],
            seen_squared: 0,
            seen_retried: 0,
            seen_levels: vec![0; PRIORITIES].into_boxed_slice(),
        }
    }

    /// What came since the last time; each level and the cost refused there goes to `level`. Cost that is being counted
    /// at this moment may come with the next time, never twice.
    pub(crate) fn take(&mut self, gate: &Gate, mut level: impl FnMut(usize, u64)) -> Option<Taken> {
        let sum = |of: &dyn Fn(&Shard) -> &AtomicU64, order| {
            let shards = gate.shards.iter();
            shards.fold(0u64, |sum, shard| sum.wrapping_add(of(shard).load(order)))
        };
        let mut taken = Taken::default();
        for tier in Tier::ALL.map(Tier::index) {
            let now = sum(&|shard| &shard.tiers[tier], Ordering::Acquire);
            taken.tiers[tier] =
                now.wrapping_sub(std::mem::replace(&mut self.seen_tiers[tier], now));
        }
        if taken.tiers == [0; TIERS] {
            return None;
        }
        let squared = sum(&|shard| &shard.cost_squared, Ordering::Relaxed);
        taken.cost_squared =
            squared.wrapping_sub(std::mem::replace(&mut self.seen_squared, squared));
        let retried = sum(&|shard| &shard.retried, Ordering::Relaxed);
        taken.retried = retried.wrapping_sub(std::mem::replace(&mut self.seen_retried, retried));
        for (index, (cell, seen)) in gate.levels.iter().zip(&mut self.seen_levels).enumerate() {
            let now = cell.load(Ordering::Relaxed);
            let cost = now.wrapping_sub(std::mem::replace(seen, now));
            if cost > 0 {
                taken.cost += cost;
                level(index, cost);
            }
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::priority::Priority;

    fn shut_at(level: usize) -> Gate {
        let gate = Gate::new();
        let binding = Binding::Signal { index: 3 };
        let word = Published::new(Rank::threshold(level, 0.5), binding, false, true);
        gate.publish(word, KeyHash::new(9, 4));
        gate
    }

    #[test]
    fn the_word_keeps_all_that_a_refusal_says() {
        let bindings = [
            Binding::Backlog { lane: 63 },
            Binding::Signal { index: 63 },
            Binding::Override,
        ];
        for binding in bindings {
            for (storms, peers, advice) in [
                (false, false, Advice::Wait),
                (false, true, Advice::Elsewhere),
                (true, true, Advice::Never),
            ] {
                let word = Published::new(Rank::threshold(700, 0.25), binding, storms, peers);
                assert_eq!(word.threshold(), Rank::threshold(700, 0.25));
                assert_eq!((word.binding(), word.advice()), (binding, advice));
            }
        }
        let nobodys = Published::new(Rank::threshold(1, 0.0), Binding::Nothing, false, false);
        assert_eq!(nobodys, Published::SHUT_OFF);
    }

    #[test]
    fn only_plain_requests_beyond_the_threshold_are_refused_here() {
        let gate = shut_at(384);
        let refuses = |request: &Request| gate.refuse(request).is_some();
        let plain = Request::new(Tier::T4).key(7);
        assert!(refuses(&plain));
        assert!(!refuses(&Request::new(Tier::T2).key(7)));
        assert!(
            !refuses(&Request::new(Tier::T4)),
            "its cohort is the engine's to say"
        );
        assert!(!refuses(&Request::untagged().key(7)) && !refuses(&Request::exempt().key(7)));
        assert!(!refuses(&plain.time_left(std::time::Duration::ZERO)));
        let last = shut_at(767);
        assert!(last.refuse(&Request::new(Tier::T1).key(1)).is_none());
        let open = Gate::new();
        assert!(open.refuse(&plain).is_none());
    }

    #[test]
    fn what_was_refused_is_taken_once() {
        let gate = shut_at(384);
        let mut tally = Tally::new();
        assert_eq!(tally.take(&gate, |_, _| ()), None);
        gate.set_class_cost(0, 5);
        let at = |level: u16| Request::at(Priority::from_number(level).unwrap()).key(1);
        let looks = (0..130)
            .filter(|_| gate.refuse(&at(500)).unwrap().look)
            .count();
        assert_eq!(looks, 2);
        gate.refuse(&at(767).cost(3).attempt(2)).unwrap();
        let mut levels = Vec::new();
        let taken = tally
            .take(&gate, |level, cost| levels.push((level, cost)))
            .unwrap();
        assert_eq!(levels, [(500, 650), (767, 3)]);
        assert_eq!(taken.tiers, [0, 0, 0, 130, 0, 1]);
        assert_eq!(
            (taken.cost, taken.cost_squared, taken.retried),
            (653, 130 * 25 + 9, 1)
        );
        assert_eq!(tally.take(&gate, |_, _| panic!("nothing is new")), None);
    }
}
