//! The gate as callers see it before they come to the lock: in an overload most are refused, and need not stand in line for
//! it.
//!
//! The engine publishes where its gate stands after each step under the lock; an offer reads that word once. What is refused by
//! it is counted in [`Shards`], and taken into account by the engine at its next tick
//! ([`Engine::take_in`](crate::engine::Engine::take_in)); nobody is counted twice, and nobody is lost. Whatever the word
//! does not say (a deadline, a rule for the tenant, an override, a mode, a reserved share) is for the engine to judge: then
//! the word is [`Published::SHUT_OFF`], and everybody goes to the lock.
//!
//! A refusal costs one load of the word, the hash of the key, and some plain stores to counters of the thread's own.

use crate::clock::Instant;
use crate::config::CLASSES_MAX;
use crate::priority::{KeyHash, Rank};
use crate::request::Request;
use crate::retry::Advice;
use crate::shards::Shards;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::verdict::{Binding, Reason, Rejected};

/// Every so many refusals of a tier in a shard somebody looks whether the control thread still lives: nobody else may come to the
/// lock, and a gate that nobody moves must open.
const LOOK_EVERY: u64 = 64;
/// A model has one class: each cost is a state of its own there.
const CLASSES_SHOWN: usize = if cfg!(cinnamon_loom) { 1 } else { CLASSES_MAX };

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

/// The gate of one lane, as everybody may read it. It is written to only when it moves.
#[derive(Debug)]
pub(crate) struct Gate {
    word: AtomicU64,
    seed: AtomicU64,
    turn: AtomicU32,
    /// What the clock read when the engine last let go of the slots, ns.
    read_at: AtomicU64,
    classes: AtomicU32,
    /// What a request of each class costs that does not say so.
    class_costs: Box<[AtomicU32]>,
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
            read_at: AtomicU64::new(0),
            classes: AtomicU32::new(1),
            class_costs: (0..CLASSES_SHOWN).map(|_| AtomicU32::new(1)).collect(),
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

    /// The engine lets go of the slots, at this reading of the clock.
    pub(crate) fn let_go_at(&self, reading: Instant) {
        self.read_at.store(reading.as_nanos(), Ordering::Relaxed);
    }

    /// Whether the clock has been set back since: then what time it is, is for the engine to say.
    #[inline]
    pub(crate) fn is_before(&self, reading: Instant) -> bool {
        reading.as_nanos() < self.read_at.load(Ordering::Relaxed)
    }

    pub(crate) fn set_class_cost(&self, class: usize, cost: u32) {
        if let Some(of) = self.class_costs.get(class) {
            of.store(cost, Ordering::Relaxed);
            self.classes.fetch_max(class as u32 + 1, Ordering::Relaxed);
        }
    }

    /// Refuses what is sure to be refused, and counts it.
    #[inline]
    pub(crate) fn refuse(&self, request: &Request, shards: &Shards) -> Option<Refused> {
        let word = Published(self.word.load(Ordering::Acquire));
        let threshold = word.threshold();
        if threshold.is_open() || !request.is_plain() {
            return None;
        }
        // Where in its tier or level one without a key lies is for the engine to say, but not whether all of that is refused.
        // (Judged here by one number and there by another, of what lies on the threshold a quarter ran instead of half.)
        if request.key.is_none() && request.first_rank()? < threshold {
            return None;
        }
        let counting = shards.mine()?;
        let rank = self.rank(request, counting.number())?;
        if rank < threshold {
            return None;
        }
        let retry = request.attempt > 0;
        let count = counting.refused(rank, self.cost(request), retry);
        // It is mixed when somebody asks for the advice.
        let key = request.key.unwrap_or(0);
        let salt = (key ^ key >> 32 ^ count.wrapping_mul(0x9E37_79B9)) as u32;
        let gate = (threshold, word.binding());
        let retry = (request.attempt, word.advice());
        Some(Refused {
            rejected: Rejected::new(Reason::Shed, rank, gate, salt, retry),
            look: count.is_multiple_of(LOOK_EVERY),
        })
    }

    /// The rank of a request that says its own tier; `number` is where it lies if it has no key.
    #[inline]
    pub(crate) fn rank(&self, request: &Request, number: u64) -> Option<Rank> {
        // Which tier another is of, or whether it is to be judged at all, is for the engine to say.
        let tier = request.claimed_tier()?;
        let seed = self.seed.load(Ordering::Relaxed);
        let turn = self.turn.load(Ordering::Relaxed);
        Some(request.rank(KeyHash::of_parts(seed, turn), tier, number))
    }

    /// What a request is charged.
    #[inline]
    pub(crate) fn cost(&self, request: &Request) -> u32 {
        if let Some(cost) = request.get_cost() {
            return cost;
        }
        self.class_costs[usize::from(self.class(request))].load(Ordering::Relaxed)
    }

    /// Its class; one that is not configured is treated as the first.
    #[inline]
    pub(crate) fn class(&self, request: &Request) -> u16 {
        let known = u32::from(request.class.0) < self.classes.load(Ordering::Relaxed);
        if known { request.class.0 } else { 0 }
    }
}

#[cfg(all(test, not(cinnamon_loom)))]
mod tests {
    use super::*;
    use crate::priority::{Priority, Tier};
    use crate::shards::Tally;

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
        let shards = Shards::new();
        let refuses = |request: &Request| gate.refuse(request, &shards).is_some();
        let plain = Request::new(Tier::T4).key(7);
        assert!(refuses(&plain));
        assert!(!refuses(&Request::new(Tier::T2).key(7)));
        assert!(refuses(&Request::new(Tier::T4)) && !refuses(&Request::new(Tier::T3)));
        assert!(!refuses(&Request::untagged().key(7)) && !refuses(&Request::exempt().key(7)));
        assert!(!refuses(&plain.time_left(std::time::Duration::ZERO)));
        let last = shut_at(767);
        assert!(
            last.refuse(&Request::new(Tier::T1).key(1), &shards)
                .is_none()
        );
        let open = Gate::new();
        assert!(open.refuse(&plain, &shards).is_none());
    }

    #[test]
    fn what_was_refused_is_counted_and_now_and_then_somebody_looks() {
        let gate = shut_at(384);
        let shards = Shards::new();
        let mut tally = Tally::new();
        gate.set_class_cost(0, 5);
        let at = |level: u16| Request::at(Priority::from_number(level).unwrap()).key(1);
        let looks = (0..130)
            .filter(|_| gate.refuse(&at(500), &shards).unwrap().look)
            .count();
        assert_eq!(looks, 2);
        gate.refuse(&at(767).cost(3).attempt(2), &shards).unwrap();
        let mut levels = Vec::new();
        let taken = tally
            .take(&shards, |level, cost| levels.push((level, cost)))
            .unwrap();
        assert_eq!(levels, [(500, 650), (767, 3)]);
        assert_eq!(taken.refused(), [0, 0, 0, 130, 0, 1]);
        assert_eq!((taken.refused_cost(), taken.refused_retries()), (653, 1));
        assert_eq!(taken.offered_squares(), 130 * 25 + 9);
    }
}
