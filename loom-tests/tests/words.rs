//! The words by themselves: slots, gate, counters, seats.
#![cfg(cinnamon_loom)]
#![allow(clippy::expect_used, reason = "a model that cannot go on is to end")]

use std::sync::Arc;

use cinnamon_core::modelled::{Counters, Door, Places, Reader, Word, rank, sit};
use cinnamon_core::{Request, Tier};
use loom::sync::Mutex;
use loom_tests::{check, spawn};

/// A slot is taken and given back while the limit is changed: what is in use is known exactly, and never more than the limit.
#[test]
fn slots_are_taken_while_the_limit_changes() {
    check(3, || {
        let word = Arc::new(Word::free(3));
        let engine = Arc::new(Mutex::new(()));
        let other = {
            let (word, engine) = (Arc::clone(&word), Arc::clone(&engine));
            spawn(move || {
                let lock = engine.lock().expect("no panic");
                let in_use = word.hold().expect("it was free");
                assert!(in_use <= 2);
                // Nobody changes it now.
                assert!(!word.give_back() && !word.take());
                word.release(in_use, 4);
                drop(lock);
            })
        };
        let mine = u32::from(word.take()) + u32::from(word.take());
        let back = u32::from(mine > 0 && word.give_back());
        other.join().expect("no panic");
        let lock = engine.lock().expect("no panic");
        assert_eq!(word.hold(), Some(mine - back));
        drop(lock);
    });
}

/// Two take the slots that may be had without the engine: never the last one.
#[test]
fn the_last_slot_is_never_had_without_the_engine() {
    check(3, || {
        let word = Arc::new(Word::free(3));
        let takes = |word: Arc<Word>| move || u32::from(word.take()) + u32::from(word.take());
        let other = spawn(takes(Arc::clone(&word)));
        let mine = takes(Arc::clone(&word))();
        let taken = mine + other.join().expect("no panic");
        assert_eq!(taken, 2);
        assert_eq!(word.hold(), Some(2));
    });
}

/// The gate moves while it is read: a refusal is by one state of it, with the hash that belongs to it or a later one.
#[test]
fn a_refusal_is_by_one_state_of_the_gate() {
    check(3, || {
        // By the first hash this key lies below the middle of its tier, by the second above: it is refused by neither state,
        // only by the second one's threshold with the first one's hash.
        let (old, new) = (1, 2);
        let below = |key: u64, seed| rank(Tier::T1, key, seed).levels() < 192.0;
        let key = (0..)
            .find(|&key| !below(key, old) && below(key, new))
            .expect("some key");
        let door = Arc::new(Door::default());
        door.shut(255, old);
        let mover = {
            let door = Arc::clone(&door);
            spawn(move || door.shut(192, new))
        };
        sit(0);
        assert!(door.refuse(&Request::new(Tier::T1).key(key)).is_none());
        mover.join().expect("no panic");
    });
}

/// Counters are taken in while they are added to: nothing is lost, and nothing comes twice.
#[test]
fn counters_are_taken_in_while_they_grow() {
    check(3, || {
        let counters = Arc::new(Counters::default());
        let adder = {
            let counters = Arc::clone(&counters);
            spawn(move || {
                sit(0);
                assert!(counters.started(3));
                assert!(counters.ended(3));
            })
        };
        let mut reader = Reader::default();
        let first = reader.take(&counters);
        assert!(first.0 <= 1 && first.1 <= 3 && first.2 <= 3, "{first:?}");
        adder.join().expect("no panic");
        let rest = reader.take(&counters);
        let all = (first.0 + rest.0, first.1 + rest.1, first.2 + rest.2);
        assert_eq!(all, (1, 3, 3));
        assert_eq!(reader.take(&counters), (0, 0, 0));
    });
}

/// Threads without seats share counters by turns.
#[test]
fn shared_counters_are_added_to_by_one_at_a_time() {
    check(3, || {
        let counters = Arc::new(Counters::default());
        let adds = |counters: Arc<Counters>| {
            move || u64::from(counters.ended(1)) + u64::from(counters.ended(1))
        };
        let other = spawn(adds(Arc::clone(&counters)));
        let mine = adds(Arc::clone(&counters))();
        let added = mine + other.join().expect("no panic");
        assert_eq!(Reader::default().take(&counters).2, added);
        assert_eq!(added, 4, "there is always one that is free");
    });
}

/// A seat goes from one thread to the next: what the first counted with plain stores the second goes on from.
#[test]
fn a_seat_is_handed_on_with_its_counters() {
    check(3, || {
        let counters = Arc::new(Counters::default());
        let places = Arc::new(Places::default());
        let counts = |counters: Arc<Counters>, places: Arc<Places>| {
            move || {
                let seat = places.take().expect("there are many");
                sit(seat);
                assert!(counters.ended(1));
                places.leave(seat);
            }
        };
        let other = spawn(counts(Arc::clone(&counters), Arc::clone(&places)));
        counts(Arc::clone(&counters), Arc::clone(&places))();
        other.join().expect("no panic");
        assert_eq!(Reader::default().take(&counters).2, 2);
    });
}
