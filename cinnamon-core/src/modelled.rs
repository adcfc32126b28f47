//! The parts that models in `loom-tests` are about and that no public type shows; only with `--cfg cinnamon_loom`.

use crate::gate::{Gate, Published};
use crate::permit::Outcome;
use crate::priority::{KeyHash, Rank, Tier};
use crate::request::Request;
use crate::seat::{self, Seat, Seats};
use crate::shards::{Shards, Tally};
use crate::slots::{Free, SlotWord, Taken};
use crate::verdict::{Binding, Rejected};

/// Seats this thread of a model; without it a thread shares its counters.
pub fn sit(index: usize) {
    seat::sit(Seat::Own(index));
}

/// A slot word by itself.
#[derive(Debug)]
pub struct Word(SlotWord);

impl Word {
    /// One that is free, with this limit.
    #[must_use]
    pub fn free(limit: u32) -> Self {
        let word = Self(SlotWord::new());
        word.release(0, limit);
        word
    }

    /// A slot, without the engine.
    pub fn take(&self) -> bool {
        self.0.look().and_then(|seen| self.0.take(seen)).is_some()
    }

    /// Gives it back, without the engine.
    pub fn give_back(&self) -> bool {
        self.0.give_back()
    }

    /// As the engine does it, under a lock: the slots in use, if it was free.
    pub fn hold(&self) -> Option<u32> {
        self.0.hold()
    }

    /// As the engine does it, under a lock.
    pub fn release(&self, in_use: u32, limit: u32) {
        self.0.release(&Free {
            in_use,
            limit,
            turn: 0,
            timed_bits: 16,
        });
    }
}

/// Counters by themselves.
#[derive(Debug)]
pub struct Counters(Shards);

impl Default for Counters {
    fn default() -> Self {
        Self(Shards::new())
    }
}

impl Counters {
    /// Counts a request that started, of this cost; `false` where there is no room to.
    pub fn started(&self, cost: u32) -> bool {
        let counting = self.0.mine();
        if let Some(counting) = &counting {
            let slot = Taken { in_use: 1, turn: 0 };
            counting.started(Rank::threshold(0, 0.0), cost, false, slot);
        }
        counting.is_some()
    }

    /// Counts one that ended.
    pub fn ended(&self, cost: u32) -> bool {
        let counting = self.0.mine();
        if let Some(counting) = &counting {
            counting.ended(Tier::T0, cost, Some(Outcome::Success));
        }
        counting.is_some()
    }
}

/// Who takes counters in.
#[derive(Debug)]
pub struct Reader(Tally);

impl Default for Reader {
    fn default() -> Self {
        Self(Tally::new())
    }
}

impl Reader {
    /// Requests that started since the last time, what they cost, and what those cost that ended.
    pub fn take(&mut self, counters: &Counters) -> (u64, u64, u64) {
        let counted = self.0.take(&counters.0, |_, _| ());
        counted.map_or((0, 0, 0), |counted| {
            let ended = counted.ended_so(Some(Outcome::Success));
            (counted.started()[0], counted.started_cost(), ended.cost)
        })
    }
}

/// A gate by itself, and the counters of whom it refuses.
#[derive(Debug)]
pub struct Door(Gate, Shards);

impl Default for Door {
    fn default() -> Self {
        Self(Gate::new(), Shards::new())
    }
}

impl Door {
    /// Moves it to the middle of this level, with this hash of keys.
    pub fn shut(&self, level: usize, seed: u64) {
        let binding = Binding::Signal { index: 0 };
        let word = Published::new(Rank::threshold(level, 0.5), binding, false, false);
        self.0.publish(word, KeyHash::new(seed, 0));
    }

    /// What it says to a request.
    pub fn refuse(&self, request: &Request) -> Option<Rejected> {
        self.0
            .refuse(request, &self.1)
            .map(|refused| refused.rejected)
    }
}

/// The rank of a key by this seed.
#[must_use]
pub fn rank(tier: Tier, key: u64, seed: u64) -> Rank {
    KeyHash::new(seed, 0).rank(tier, key)
}

/// Seats of threads, by themselves.
#[derive(Debug)]
pub struct Places(Seats);

impl Default for Places {
    fn default() -> Self {
        Self(Seats::new())
    }
}

impl Places {
    /// The first that is free.
    pub fn take(&self) -> Option<usize> {
        self.0.take()
    }

    /// Frees one again.
    pub fn leave(&self, seat: usize) {
        self.0.leave(seat);
    }
}
