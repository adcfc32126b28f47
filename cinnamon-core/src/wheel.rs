//! A hashed timing wheel: who has a deadline of its own, and whose has come.
//!
//! Varghese and Lauck's scheme 6 (1987): deadlines hash into slots of about a millisecond, entries
//! further away than one turn stay in their slot for another. Insert and remove are O(1); advancing
//! looks at each entry once a turn. A deadline is noticed up to one slot late, never early, and
//! nothing is ever granted late: the dispatcher compares the exact deadline.

use crate::clock::Instant;
use crate::list::{Links, List, NIL};

/// A slot is 2^20 ns, 1.05 ms: a tick is 5 ms at least, so finer slots would buy nothing.
const SLOT_BITS: u32 = 20;
/// One turn is 256 slots, 0.27 s; longer deadlines are looked at once a turn, which is cheap.
const SLOTS: usize = 256;

#[derive(Debug)]
pub(crate) struct Wheel {
    slots: [List; SLOTS],
    /// Bit `i` is set when slot `i` is occupied.
    occupied: [u64; SLOTS / 64],
    links: Links,
    /// Slot number (since the origin of time) up to which deadlines were looked at.
    cursor: u64,
}

impl Wheel {
    pub(crate) const fn new() -> Self {
        Self {
            slots: [List::EMPTY; SLOTS],
            occupied: [0; SLOTS / 64],
            links: Links::new(),
            cursor: 0,
        }
    }

    /// Adds `index`, due at `deadline`, and returns the slot to give back to [`Wheel::remove`].
    pub(crate) fn insert(&mut self, index: u32, deadline: Instant) -> u16 {
        self.links.grow(index as usize + 1);
        let slot = (deadline.as_nanos() >> SLOT_BITS).max(self.cursor) as usize % SLOTS;
        self.links.push_back(&mut self.slots[slot], index);
        self.occupied[slot / 64] |= 1 << (slot % 64);
        slot as u16
    }

    /// Removes `index` from the slot that [`Wheel::insert`] named.
    pub(crate) fn remove(&mut self, index: u32, slot: u16) {
        let slot = usize::from(slot);
        self.links.unlink(&mut self.slots[slot], index);
        if self.slots[slot].is_empty() {
            self.occupied[slot / 64] &= !(1 << (slot % 64));
        }
    }

    /// Appends to `due` every index whose deadline (by `deadline_of`) is not after `now`. They stay
    /// on the wheel until removed.
    pub(crate) fn advance(
        &mut self,
        now: Instant,
        deadline_of: impl Fn(u32) -> Instant,
        due: &mut Vec<u32>,
    ) {
        let target = (now.as_nanos() >> SLOT_BITS).max(self.cursor);
        let last = target.min(self.cursor + SLOTS as u64 - 1);
        for slot in self.cursor..=last {
            let mut index = self.slots[slot as usize % SLOTS].front();
            while index != NIL {
                if deadline_of(index) <= now {
                    due.push(index);
                }
                index = self.links.next(index);
            }
        }
        self.cursor = target;
    }

    /// When to look again: the end of the next occupied slot, or `None` when the wheel is empty.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let start = self.cursor as usize % SLOTS;
        let ahead = (0..=SLOTS / 64).find_map(|step| {
            // The first word is looked at twice: from `start` up, and at last below `start`.
            let word = (start / 64 + step) % (SLOTS / 64);
            let mask = match step {
                0 => u64::MAX << (start % 64),
                n if n == SLOTS / 64 => !(u64::MAX << (start % 64)),
                _ => u64::MAX,
            };
            let bits = self.occupied[word] & mask;
            (bits != 0).then(|| {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                (slot + SLOTS - start) % SLOTS
            })
        })?;
        Some(Instant::from_nanos(
            (self.cursor + ahead as u64 + 1) << SLOT_BITS,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn deadlines_within_and_beyond_a_turn_come_due_once_and_never_early() {
        let deadlines: Vec<Instant> = [3, 3, 90, 270, 271, 5_000].map(at_ms).to_vec();
        let mut wheel = Wheel::new();
        let mut slots: Vec<Option<u16>> = Vec::new();
        for (i, &deadline) in deadlines.iter().enumerate() {
            slots.push(Some(wheel.insert(i as u32, deadline)));
        }
        let mut noticed = vec![None; deadlines.len()];
        for ms in 0..6_000 {
            let mut due = Vec::new();
            wheel.advance(at_ms(ms), |i| deadlines[i as usize], &mut due);
            for i in due {
                wheel.remove(i, slots[i as usize].take().unwrap());
                noticed[i as usize] = Some(ms);
            }
        }
        assert_eq!(noticed, [3, 3, 90, 270, 271, 5_000].map(Some).to_vec());
        assert_eq!(wheel.next_wakeup(), None);
    }

    #[test]
    fn the_wake_up_is_soon_after_the_next_deadline_within_a_turn() {
        let mut wheel = Wheel::new();
        for start_ms in [0u64, 40, 66, 200, 1_000] {
            wheel.advance(at_ms(start_ms), |_| Instant::FAR_FUTURE, &mut Vec::new());
            for ahead_ms in [1u64, 5, 63, 70, 250] {
                let deadline = at_ms(start_ms + ahead_ms);
                let slot = wheel.insert(0, deadline);
                let wakeup = wheel.next_wakeup().unwrap();
                assert!(wakeup > deadline && wakeup.nanos_since(deadline) <= 1 << SLOT_BITS);
                wheel.remove(0, slot);
            }
        }
    }

    #[test]
    fn a_long_jump_and_a_deadline_in_the_past_are_noticed_at_once() {
        let mut wheel = Wheel::new();
        wheel.insert(0, at_ms(10));
        let mut due = Vec::new();
        wheel.advance(at_ms(3_600_000), |_| at_ms(10), &mut due);
        assert_eq!(due, [0]);
        let mut wheel = Wheel::new();
        wheel.advance(at_ms(500), |_| Instant::FAR_FUTURE, &mut due);
        wheel.insert(1, at_ms(1));
        due.clear();
        wheel.advance(at_ms(500), |_| at_ms(1), &mut due);
        assert_eq!(due, [1]);
    }
}
