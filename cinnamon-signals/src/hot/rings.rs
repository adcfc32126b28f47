//! Keys and tenants on their way from the threads of requests to the sampler: [`Rings`].

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Rings, so that threads do not wait for each other's cache lines.
const RINGS: usize = 8;
/// Words that a ring holds. With ten samples a second that is 40,000 a second from each of eight threads; of more
/// the latest are seen.
pub(crate) const SLOTS: usize = 4_096;

/// The latest words, by thread. Writers never wait; what nobody read in time is overwritten.
#[derive(Debug)]
pub(crate) struct Rings(Box<[Ring]>);

/// On a cache line of its own, or two: processors fetch neighbours.
#[derive(Debug)]
#[repr(align(128))]
struct Ring {
    /// Words that were ever written.
    written: AtomicU64,
    /// Weight of what came without one.
    nameless: AtomicU64,
    slots: Box<[AtomicU64]>,
}

/// How far a reader is in each ring, in words and in nameless weight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor([(u64, u64); RINGS]);

/// What came since a reader was there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Came {
    /// Words, with those that are gone.
    pub(crate) all: u64,
    /// Weight of what came without one.
    pub(crate) nameless: u64,
}

thread_local! {
    /// The ring of this thread.
    static OWN: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % RINGS)
    };
}

impl Rings {
    pub(crate) fn new() -> Self {
        let ring = |_| Ring {
            written: AtomicU64::new(0),
            nameless: AtomicU64::new(0),
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        };
        Self((0..RINGS).map(ring).collect())
    }

    /// One addition and one store.
    pub(crate) fn push(&self, word: u64) {
        let ring = self.own();
        let number = ring.written.fetch_add(1, Ordering::Relaxed);
        // Read before it is written, the slot shows a word of one lap ago: one wrong key in a statistic.
        ring.slots[number as usize % SLOTS].store(word, Ordering::Relaxed);
    }

    /// One addition.
    pub(crate) fn push_nameless(&self, weight: u64) {
        self.own().nameless.fetch_add(weight, Ordering::Relaxed);
    }

    /// The ring of this thread. A thread that is ending has none of its own any more.
    fn own(&self) -> &Ring {
        &self.0[OWN.try_with(Cell::get).unwrap_or(0)]
    }

    /// What was written since the cursor was there.
    pub(crate) fn drain(&self, cursor: &mut Cursor, mut take: impl FnMut(u64)) -> Came {
        let mut came = Came::default();
        for (ring, (seen, nameless_seen)) in self.0.iter().zip(&mut cursor.0) {
            let nameless = ring.nameless.load(Ordering::Relaxed);
            let new = nameless.wrapping_sub(*nameless_seen);
            came.nameless = came.nameless.saturating_add(new);
            *nameless_seen = nameless;
            let written = ring.written.load(Ordering::Relaxed);
            let new = written.wrapping_sub(*seen);
            came.all = came.all.saturating_add(new);
            for back in (1..=new.min(SLOTS as u64)).rev() {
                let number = written.wrapping_sub(back);
                take(ring.slots[number as usize % SLOTS].load(Ordering::Relaxed));
            }
            *seen = written;
        }
        came
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read_once_and_of_too_many_the_latest() {
        let (rings, mut cursor) = (Rings::new(), Cursor::default());
        let drain = |cursor: &mut Cursor| {
            let mut keys = Vec::new();
            let came = rings.drain(cursor, |key| keys.push(key));
            (keys, came.all)
        };
        (0..10).for_each(|key| rings.push(key));
        assert_eq!(drain(&mut cursor), ((0..10).collect(), 10));
        assert_eq!(drain(&mut cursor), (vec![], 0));
        rings.push_nameless(40);
        rings.push_nameless(2);
        let nameless = |cursor: &mut Cursor| rings.drain(cursor, |_| {}).nameless;
        assert_eq!([nameless(&mut cursor), nameless(&mut cursor)], [42, 0]);
        let flood = 3 * SLOTS as u64;
        (0..flood).for_each(|key| rings.push(key));
        let (keys, all) = drain(&mut cursor);
        assert_eq!(all, flood);
        assert_eq!(keys, (2 * SLOTS as u64..flood).collect::<Vec<_>>());
    }

    #[test]
    fn threads_do_not_lose_keys() {
        let (rings, mut cursor) = (Rings::new(), Cursor::default());
        std::thread::scope(|scope| {
            for thread in 0..16_u64 {
                let rings = &rings;
                scope.spawn(move || (0..100).for_each(|key| rings.push(1_000 * thread + key)));
            }
        });
        let mut keys = Vec::new();
        assert_eq!(rings.drain(&mut cursor, |key| keys.push(key)).all, 1_600);
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 1_600);
    }
}
