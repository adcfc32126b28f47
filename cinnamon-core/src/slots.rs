//! The slot word: how many slots are taken, of how many, and whether one can be had without the lane's lock.
//!
//! While nobody waits, nothing is refused and slots are free, an admission needs nothing of the engine but a slot. Then the
//! word is *free*: who comes takes a slot by one compare-and-swap, and gives it back by another. Whenever the engine has
//! something to decide, it *holds* the word first, under the lane's lock: from then on nobody changes it, everybody comes
//! to the lock, and what the word says of the slots in use is what the engine goes on from. It lets go at the end of its step,
//! if by then there is nothing to decide again.
//!
//! | | who takes or gives back a slot | left by |
//! |---|---|---|
//! | free | anybody, while more than one slot is free afterwards | [`hold`](SlotWord::hold), under the lock |
//! | held | the engine, under the lock | [`release`](SlotWord::release), under the lock |
//!
//! The last free slot is the engine's to give. So it knows when all are taken and when they no longer are, and nobody can come to
//! wait while one is given back without it: no wake-up is lost.

use crate::sync::{AtomicU64, Ordering, peek};

/// Bits of the slots in use, and of the limit above them; a limit has at most 21.
const COUNT_BITS: u32 = 24;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// The turn is above both, then how many are timed, and the flag in the last bit.
const TURN_SHIFT: u32 = 2 * COUNT_BITS;
const TURN_BITS: u32 = 10;
/// Turns are told apart modulo this.
pub(crate) const TURNS: u64 = 1 << TURN_BITS;
const TIMED_SHIFT: u32 = TURN_SHIFT + TURN_BITS;
const TIMED: u64 = (1 << 5) - 1;
const HELD: u64 = 1 << 63;

/// | bits | |
/// |---|---|
/// | 0..24 | slots in use |
/// | 24..48 | the limit |
/// | 48..58 | the turn: how often counters were taken in, modulo 2^10 |
/// | 58..63 | one in two to this power goes to the engine, to be timed |
/// | 63 | held by the engine |
///
/// The only word of a lane that all its callers write to: it has a cache line for itself.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct SlotWord(AtomicU64);

/// What the engine says when it lets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) in_use: u32,
    pub(crate) limit: u32,
    pub(crate) turn: u64,
    pub(crate) timed_bits: u32,
}

/// The word as it was when it was free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Seen {
    /// Which share of requests is to go to the engine all the same, as a power of two.
    pub(crate) const fn timed_bits(self) -> u32 {
        (self.0 >> TIMED_SHIFT & TIMED) as u32
    }
}

/// A slot taken without the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Slots in use, this one among them.
    pub(crate) in_use: u32,
    pub(crate) turn: u64,
}

impl SlotWord {
    /// One that the engine holds.
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(HELD))
    }

    /// Whether slots may be had without the engine.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.0.load(Ordering::Relaxed) & HELD == 0
    }

    /// The word while it is free. Whoever sees it so sees the costs and the hash that were shown before.
    #[inline]
    pub(crate) fn look(&self) -> Option<Seen> {
        let word = peek(&self.0);
        (word & HELD == 0).then_some(Seen(word))
    }

    /// Takes a slot, if that is not the engine's to decide. It begins with the word that was seen: where two threads change
    /// it all the time, each further look costs as much as a change.
    #[inline]
    pub(crate) fn take(&self, seen: Seen) -> Option<Taken> {
        let mut word = seen.0;
        loop {
            let in_use = word & COUNT;
            let limit = word >> COUNT_BITS & COUNT;
            if word & HELD != 0 || in_use + 1 >= limit {
                return None;
            }
            // Acquire: what the engine did before it let go, such as opening the gate, is seen.
            match self
                .0
                .compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => {
                    return Some(Taken {
                        in_use: in_use as u32 + 1,
                        turn: word >> TURN_SHIFT & (TURNS - 1),
                    });
                }
                Err(now) => word = now,
            }
        }
    }

    /// Gives a slot back, if that is not the engine's to do.
    #[inline]
    pub(crate) fn give_back(&self) -> bool {
        let mut word = peek(&self.0);
        loop {
            if word & HELD != 0 || word & COUNT == 0 {
                return false;
            }
            // Release: whoever sees the slot free sees the work done.
            match self
                .0
                .compare_exchange_weak(word, word - 1, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Holds the word, and says how many slots are in use if it was free. Under the lane's lock.
    pub(crate) fn hold(&self) -> Option<u32> {
        // Only who has the lock lets go of it, so what is seen held stays held.
        if peek(&self.0) & HELD != 0 {
            return None;
        }
        let word = self.0.fetch_or(HELD, Ordering::AcqRel);
        Some((word & COUNT) as u32)
    }

    /// Lets go of it. Under the lane's lock.
    pub(crate) fn release(&self, free: &Free) {
        let Free {
            in_use,
            limit,
            turn,
            timed_bits,
        } = *free;
        debug_assert!(u64::from(in_use) <= COUNT && u64::from(limit) <= COUNT);
        let word = u64::from(in_use) & COUNT
            | (u64::from(limit) & COUNT) << COUNT_BITS
            | (turn % TURNS) << TURN_SHIFT
            | (u64::from(timed_bits) & TIMED) << TIMED_SHIFT;
        self.0.store(word, Ordering::Release);
    }
}

#[cfg(all(test, not(cinnamon_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_slot_is_the_engines_to_give() {
        let word = SlotWord::new();
        let release = |in_use, limit, turn| {
            word.release(&Free {
                in_use,
                limit,
                turn,
                timed_bits: 31,
            });
        };
        let take = || word.look().and_then(|seen| word.take(seen));
        assert_eq!(word.look(), None);
        assert!(!word.give_back());
        release(0, 3, 5);
        assert_eq!(word.look().map(Seen::timed_bits), Some(31));
        assert_eq!(take(), Some(Taken { in_use: 1, turn: 5 }));
        assert_eq!(take(), Some(Taken { in_use: 2, turn: 5 }));
        assert_eq!(take(), None);
        assert!(word.give_back());
        assert_eq!(take().map(|taken| taken.in_use), Some(2));
        assert_eq!(word.hold(), Some(2));
        assert_eq!((word.hold(), take()), (None, None));
        assert!(!word.give_back() && !word.is_free());
        release(1, 1, TURNS + 1);
        assert_eq!(take(), None);
        assert!(word.give_back() && !word.give_back());
        release(0, 1 << 20, TURNS + 1);
        assert_eq!(take(), Some(Taken { in_use: 1, turn: 1 }));
    }
}
