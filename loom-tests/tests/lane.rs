//! The lane's own code: admission, the queue and the control step meeting one another.
#![cfg(cinnamon_loom)]
#![allow(clippy::expect_used, reason = "a model that cannot go on is to end")]

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cinnamon_core::modelled::sit;
use cinnamon_core::{Clock, Completion, Config, Reason};
use loom_tests::{Bell, T1, assert_at_rest, check, lane, spawn};

/// A slot had without the engine, and given back, while the limit is changed.
#[test]
fn a_slot_comes_and_goes_while_the_limit_changes() {
    check(3, || {
        let (_controller, lane, _) = lane(4);
        let worker = {
            let lane = lane.clone();
            spawn(move || {
                sit(0);
                let permit = lane.try_admit(&T1).expect("there are three");
                permit.finish(Completion::success());
            })
        };
        lane.set_limit(3).expect("in bounds");
        worker.join().expect("no panic");
        assert_at_rest(&lane, 1);
    });
}

/// A slot is given back while somebody comes to wait for it: it is had at once, or its waker is called.
#[test]
fn nobody_waits_for_a_slot_that_has_come_back() {
    check(2, || {
        let (_controller, lane, _) = lane(3);
        sit(0);
        let first = lane.try_admit_owned(&T1).expect("a slot");
        let worker = spawn(move || {
            sit(1);
            first.finish(Completion::success());
        });
        // One without the engine, the last one by it; then there is none, unless the first has come back.
        let second = lane.try_admit_owned(&T1).expect("another one");
        let third = lane.try_admit_owned(&T1).expect("the last one");
        let (bell, waker) = Bell::new();
        let mut waiting = lane.admit(&T1);
        let mut answer = waiting.poll_admit(&waker);
        worker.join().expect("no panic");
        if answer.is_pending() {
            assert!(bell.rang(), "nobody told it");
            answer = waiting.poll_admit(&waker);
        }
        match answer {
            Poll::Ready(permit) => drop(permit.expect("its turn came")),
            Poll::Pending => unreachable!("a slot is free"),
        }
        drop((second, third));
        assert_at_rest(&lane, 4);
    });
}

/// Who waits gives up while a slot is granted to it: the slot goes to the next, or is free.
#[test]
fn a_slot_granted_to_one_who_gave_up_is_free() {
    check(3, || {
        let (_controller, lane, _) = lane(1);
        let held = lane.try_admit_owned(&T1).expect("a slot");
        let (_, waker) = Bell::new();
        let mut waiting = lane.admit(&T1);
        assert!(waiting.poll_admit(&waker).is_pending());
        let (bell, next_waker) = Bell::new();
        let mut next = lane.admit(&T1);
        assert!(next.poll_admit(&next_waker).is_pending());
        let worker = spawn(move || held.finish(Completion::success()));
        drop(waiting);
        worker.join().expect("no panic");
        assert!(bell.rang(), "the next one was not told");
        match next.poll_admit(&next_waker) {
            Poll::Ready(permit) => drop(permit.expect("its turn came")),
            Poll::Pending => unreachable!("a slot is free"),
        }
        assert_at_rest(&lane, 3);
    });
}

/// Its time runs out while a slot is granted to it: it gets one answer, and no slot is lost.
#[test]
fn a_grant_and_an_expiry_give_one_answer() {
    check(2, || {
        let (controller, lane, clock) = lane(1);
        let held = lane.try_admit_owned(&T1).expect("a slot");
        let (bell, waker) = Bell::new();
        let mut waiting = lane.admit(&T1.max_wait(Duration::from_millis(1)));
        assert!(waiting.poll_admit(&waker).is_pending());
        let worker = {
            let lane = lane.clone();
            spawn(move || {
                held.finish(Completion::success());
                // Whoever looks keeps the time.
                drop(lane.explain(&T1));
            })
        };
        controller.tick(clock.advance(Duration::from_millis(2)));
        worker.join().expect("no panic");
        assert!(bell.rang());
        match waiting.poll_admit(&waker) {
            Poll::Ready(Ok(permit)) => drop(permit),
            Poll::Ready(Err(rejected)) => assert_eq!(rejected.reason(), Reason::Expired),
            Poll::Pending => unreachable!("its time is over"),
        }
        assert_at_rest(&lane, 2);
    });
}

/// The waker that a poll leaves, and the grant that looks for it: one of the two sees the other.
#[test]
fn a_grant_between_the_offer_and_its_waker_is_seen() {
    check(3, || {
        let (_controller, lane, _) = lane(1);
        let held = lane.try_admit_owned(&T1).expect("a slot");
        let worker = spawn(move || drop(held));
        let (bell, waker) = Bell::new();
        let mut waiting = lane.admit(&T1);
        let mut answer = waiting.poll_admit(&waker);
        worker.join().expect("no panic");
        if answer.is_pending() {
            assert!(bell.rang(), "nobody told it");
            answer = waiting.poll_admit(&waker);
        }
        assert!(matches!(answer, Poll::Ready(Ok(_))));
        drop(answer);
        assert_at_rest(&lane, 2);
    });
}

/// A lane is closed while requests come: who comes after that is refused, who came before keeps the slot.
#[test]
fn nobody_is_let_in_after_the_lane_was_closed() {
    check(2, || {
        let (controller, lane, _) = lane(4);
        let worker = {
            let lane = lane.clone();
            spawn(move || {
                sit(0);
                lane.try_admit_owned(&T1)
            })
        };
        controller.close();
        sit(1);
        let late = lane.try_admit(&T1).map(drop);
        assert_eq!(late.expect_err("it is closed").reason(), Reason::Closed);
        let before = worker.join().expect("no panic");
        assert_eq!(lane.snapshot().in_use, u32::from(before.is_ok()));
        drop(before);
        assert_at_rest(&lane, 2);
    });
}

/// Another configuration comes into force while slots are had and given back without the engine.
#[test]
fn a_new_configuration_loses_no_slot() {
    check(2, || {
        let (controller, lane, clock) = lane(4);
        let mut settings = (**controller.config()).clone();
        settings.lanes[0].limit = 3.into();
        let config = Config::new(settings).expect("in bounds");
        controller.reconfigure(config).expect("that may be changed");
        sit(1);
        let mine = lane.try_admit_owned(&T1).expect("there are three");
        let worker = spawn(move || {
            sit(0);
            mine.finish(Completion::success());
        });
        controller.tick(clock.now());
        worker.join().expect("no panic");
        let snapshot = lane.snapshot();
        assert_eq!((snapshot.limit, snapshot.in_use), (3, 0));
        assert_at_rest(&lane, 1);
    });
}

/// An override caps what may pass while requests come: once it is in force nobody below it is let in.
#[test]
fn nobody_slips_through_a_gate_that_has_been_shut() {
    check(2, || {
        let (controller, lane, _) = lane(4);
        let worker = {
            let lane = lane.clone();
            spawn(move || {
                sit(0);
                lane.try_admit_owned(&T1).is_ok()
            })
        };
        let shed = cinnamon_core::Action::Shed(cinnamon_core::Tier::T1);
        let all = cinnamon_core::Target::Controller;
        let shed = cinnamon_core::Override::new(all, shed, Duration::from_secs(1));
        controller.set_override(shed).expect("in bounds");
        sit(1);
        assert!(lane.try_admit(&T1).is_err());
        worker.join().expect("no panic");
        assert_at_rest(&lane, 2);
    });
}

/// Two threads and no engine: what they did is known when they are done.
#[test]
fn two_threads_without_the_engine_are_counted_in_full() {
    check(2, || {
        let (_controller, lane, _) = lane(8);
        let works = |seat: usize| {
            let lane = lane.clone();
            move || {
                sit(seat);
                let permit = lane.try_admit(&T1.cost(5)).expect("there are many");
                permit.finish(Completion::success());
            }
        };
        let other = spawn(works(0));
        works(1)();
        other.join().expect("no panic");
        assert_at_rest(&lane, 2);
    });
}

/// A panic in the engine's step while another thread comes: the lane lets everybody in, and says so.
#[test]
fn a_lane_whose_engine_panics_lets_everybody_in() {
    check(2, || {
        let (_controller, lane, _) = lane(4);
        let worker = {
            let lane = lane.clone();
            spawn(move || {
                sit(0);
                drop(lane.try_admit(&T1).expect("either way"));
            })
        };
        lane.break_engine();
        sit(1);
        drop(lane.try_admit(&T1).expect("it has failed"));
        worker.join().expect("no panic");
        assert_eq!(lane.snapshot().failed_open_in_use, 0);
        assert!(lane.snapshot().failed);
    });
}

/// The permits of two threads are shared between them: one gives back what the other had.
#[test]
fn a_slot_may_be_given_back_by_another_thread() {
    check(2, || {
        let (_controller, lane, _) = lane(3);
        sit(0);
        let mine = Arc::new(loom::sync::Mutex::new(Some(
            lane.try_admit_owned(&T1).expect("a slot"),
        )));
        let other = {
            let (lane, mine) = (lane.clone(), Arc::clone(&mine));
            spawn(move || {
                sit(1);
                drop(mine.lock().expect("no panic").take());
                lane.snapshot().in_use
            })
        };
        let taken = mine.lock().expect("no panic").take();
        drop(taken);
        assert!(other.join().expect("no panic") <= 1);
        assert_at_rest(&lane, 1);
    });
}
