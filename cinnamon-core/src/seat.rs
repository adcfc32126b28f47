//! Each thread's place among the counters: see [`Shards`](crate::shards::Shards).
//!
//! A thread that has a seat is the only one that writes to its shard of each lane, so that it may count with plain
//! stores. There are [`SEATS`] of them, for the whole process; who comes later shares the shards behind them, and takes
//! turns there. A thread's seat is free again when the thread ends.

use crate::sync::{AtomicU64, Ordering};

/// Threads with shards of their own: as many as bits in a word, more than the cores of most machines.
pub(crate) const SEATS: usize = if cfg!(cinnamon_loom) { 3 } else { 64 };

/// Where a thread counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// In this shard, alone.
    Own(usize),
    /// In one that it shares with others, this one first.
    Shared(usize),
}

/// Which seats are taken.
#[derive(Debug)]
pub(crate) struct Seats(AtomicU64);

impl Seats {
    #[cfg(not(cinnamon_loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[cfg(cinnamon_loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Takes the first free seat. Who had it before has stored all that it counted: the new owner goes on from there.
    pub(crate) fn take(&self) -> Option<usize> {
        let mut taken = self.0.load(Ordering::Relaxed);
        loop {
            let seat = taken.trailing_ones();
            if seat as usize == SEATS {
                return None;
            }
            let with = taken | 1 << seat;
            match self
                .0
                .compare_exchange_weak(taken, with, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Some(seat as usize),
                Err(now) => taken = now,
            }
        }
    }

    pub(crate) fn leave(&self, seat: usize) {
        self.0.fetch_and(!(1 << seat), Ordering::Release);
    }
}

#[cfg(not(cinnamon_loom))]
mod of_thread {
    use super::{Seat, Seats};
    use crate::sync::{AtomicUsize, Ordering};

    static SEATS: Seats = Seats::new();

    /// How many came too late for one.
    static LATE: AtomicUsize = AtomicUsize::new(0);

    /// A thread's hold of its seat.
    struct Hold(Seat);

    impl Hold {
        fn take() -> Self {
            let late = || Seat::Shared(LATE.fetch_add(1, Ordering::Relaxed));
            Self(SEATS.take().map_or_else(late, Seat::Own))
        }
    }

    impl Drop for Hold {
        fn drop(&mut self) {
            if let Seat::Own(seat) = self.0 {
                SEATS.leave(seat);
            }
        }
    }

    thread_local! {
        static HOLD: Hold = Hold::take();
    }

    /// The seat of this thread. One that is being torn down has none any more.
    #[inline]
    pub(crate) fn seat() -> Seat {
        HOLD.try_with(|hold| hold.0).unwrap_or(Seat::Shared(0))
    }
}

/// In a model each thread says itself where it sits: the model checker runs all of them on one thread of the system.
#[cfg(cinnamon_loom)]
mod of_thread {
    use std::cell::Cell;

    use super::Seat;

    loom::thread_local! {
        static SEAT: Cell<Seat> = Cell::new(Seat::Shared(0));
    }

    pub(crate) fn seat() -> Seat {
        SEAT.with(Cell::get)
    }

    pub(crate) fn sit(seat: Seat) {
        SEAT.with(|mine| mine.set(seat));
    }
}

pub(crate) use of_thread::*;

#[cfg(all(test, not(cinnamon_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_seat_has_one_owner_at_a_time_and_there_are_so_many() {
        let seats = Seats::new();
        let taken: Vec<_> = (0..SEATS).map(|_| seats.take()).collect();
        assert_eq!(taken, (0..SEATS).map(Some).collect::<Vec<_>>());
        assert_eq!(seats.take(), None);
        seats.leave(7);
        seats.leave(63);
        assert_eq!(
            [seats.take(), seats.take(), seats.take()],
            [Some(7), Some(63), None]
        );
    }

    #[test]
    fn a_thread_keeps_its_seat_and_no_other_has_it() {
        let mine = seat();
        assert_eq!(seat(), mine);
        let other = std::thread::spawn(seat).join().unwrap();
        assert!(other != mine);
    }
}
