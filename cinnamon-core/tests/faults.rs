//! Faults that limiters and queues of this kind really had, as scenarios for ours. The number is
//! the one in the book's chapter "Faults of others"; the source is public.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use cinnamon_core::{
    AdmitKind, Clock, Completion, Config, Controller, Instant, Lane, LaneSettings, Priority,
    Reason, Request, Settings, Tier, Verdict,
};
use support::*;

fn refused(lane: &Lane, reason: Reason) -> u64 {
    lane.snapshot().verdicts.total(Verdict::Refuse(reason))
}

/// Netflix/concurrency-limits#179: a grant racing with the waiter's timeout lost a slot each time.
#[test]
fn bug_01_a_grant_that_meets_the_waiters_end_goes_to_the_next() {
    let (controller, lane, clock) = manual(1);
    for round in 0..200 {
        let granted_first = round % 2 == 0;
        let held = lane.try_admit(&T1).unwrap();
        let (_, waker) = CountingWaker::new();
        let patient = T1.max_wait(Duration::from_millis(10));
        let mut waiting = lane.admit(&patient);
        assert!(waiting.poll_admit(&waker).is_pending());
        if granted_first {
            // Granted a moment before its time is up, dropped before it looked.
            clock.advance(Duration::from_millis(9));
            held.finish(Completion::success());
            clock.advance(Duration::from_millis(9));
            controller.tick(clock.now());
            drop(waiting);
        } else {
            // Its time is up first, then the slot comes back.
            clock.advance(Duration::from_millis(20));
            controller.tick(clock.now());
            held.finish(Completion::success());
            let Poll::Ready(Err(rejected)) = waiting.poll_admit(&waker) else {
                panic!("round {round}: expected an expiry");
            };
            assert_eq!(rejected.reason(), Reason::Expired);
        }
        assert_at_rest(&lane.snapshot());
        lane.try_admit(&T1)
            .expect("the slot is free")
            .finish(Completion::success());
        // Idle time between the rounds, or the lane would rightly find itself overloaded.
        clock.advance(Duration::from_millis(100));
    }
}

/// NVIDIA/SkillSpector#401: cancelled after it was chosen, before it resumed; ownership must be
/// recorded on the waiter under the lock.
#[test]
fn bug_02_cancelled_between_grant_and_wake_up_the_slot_is_free_at_once() {
    let (_controller, lane, _clock) = manual(1);
    let held = lane.try_admit(&T1).unwrap();
    let (counter, waker) = CountingWaker::new();
    let (mut first, mut second) = (lane.admit(&T1), lane.admit(&T1));
    assert!(first.poll_admit(&waker).is_pending());
    assert!(second.poll_admit(&waker).is_pending());
    held.finish(Completion::success());
    assert_eq!(
        counter.wakes(),
        1,
        "exactly one waiter is woken by one slot"
    );
    drop(first);
    assert_eq!(counter.wakes(), 2, "the slot is handed on at once");
    assert!(matches!(second.poll_admit(&waker), Poll::Ready(Ok(_))));
    assert_at_rest(&lane.snapshot());
}

/// resilience4j#263, #1569: releasing twice made the capacity grow. `finish` consumes the permit, so
/// twice is only possible as finish and drop, or through a permit converted in between.
#[test]
fn bug_04_no_permit_is_given_back_twice() {
    let (_controller, lane, _clock) = manual(2);
    let other = lane.try_admit(&T1).unwrap();
    lane.try_admit(&T1).unwrap().finish(Completion::success());
    lane.try_admit(&T1)
        .unwrap()
        .into_owned()
        .finish(Completion::success());
    drop(lane.try_admit(&T1).unwrap().into_owned());
    let outer = lane.try_admit(&T1).unwrap();
    outer.nested().finish(Completion::success());
    drop(outer.nested());
    outer.finish(Completion::success());
    assert_eq!(lane.snapshot().in_use, 1, "one permit is still out");
    drop(other);
    assert_at_rest(&lane.snapshot());
}

/// songzhibin97/gkit#72, Netflix/concurrency-limits#81 and #133: a panic in the work leaked its slot.
#[test]
fn bug_05_a_panic_in_the_work_gives_its_slot_back() {
    let (_controller, lane, _clock) = manual(2);
    for _ in 0..3 {
        let work = catch_unwind(AssertUnwindSafe(|| {
            let _permit = lane.try_admit(&T1).unwrap();
            panic!("the work fails");
        }));
        assert!(work.is_err());
    }
    assert_at_rest(&lane.snapshot());
}

/// The same for code of others that we call: a clock that panics loses no slot and stops nobody.
#[test]
fn bug_05_a_panicking_clock_loses_no_slot() {
    #[derive(Debug)]
    struct Broken(AtomicU32);
    impl Clock for Broken {
        fn now(&self) -> Instant {
            let calls = self.0.fetch_add(1, Ordering::SeqCst);
            assert!(calls == 0, "the clock fails");
            Instant::from_nanos(1_000)
        }
    }
    let config = Config::new(Settings::one_lane("main", 1)).unwrap();
    let controller = Controller::builder(config)
        .build_manual(Arc::new(Broken(AtomicU32::new(0))))
        .unwrap();
    let lane = controller.lane("main").unwrap();
    for _ in 0..10 {
        lane.try_admit(&T1).unwrap().finish(Completion::success());
        drop(lane.try_admit(&T1).unwrap());
    }
    assert!(!controller.snapshot().failed);
    assert_at_rest(&lane.snapshot());
}

/// The same for a waker: its panic neither keeps the others asleep nor hits who gave the slot back.
#[test]
fn bug_05_a_panicking_waker_hurts_nobody_else() {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("the waker fails");
        }
    }
    let (_controller, lane, _clock) = manual(2);
    let held = [lane.try_admit(&T1).unwrap(), lane.try_admit(&T1).unwrap()];
    let (counter, waker) = CountingWaker::new();
    let (mut first, mut second) = (lane.admit(&T1), lane.admit(&T1));
    assert!(first.poll_admit(&Waker::from(Arc::new(Bomb))).is_pending());
    assert!(second.poll_admit(&waker).is_pending());
    drop(held);
    assert_eq!(counter.wakes(), 1);
    assert!(matches!(first.poll_admit(&waker), Poll::Ready(Ok(_))));
    assert!(matches!(second.poll_admit(&waker), Poll::Ready(Ok(_))));
    assert_at_rest(&lane.snapshot());
}

/// The same for the engine itself: the lane fails open, whoever waits gets in, and it is visible.
#[test]
fn bug_05_a_panicking_engine_fails_open() {
    let (controller, lane, clock) = manual(1);
    let held = lane.try_admit(&T1).unwrap();
    let (counter, waker) = CountingWaker::new();
    let mut waiting = lane.admit(&T1);
    assert!(waiting.poll_admit(&waker).is_pending());
    lane.break_engine();
    assert_eq!(
        counter.wakes(),
        1,
        "nobody is left waiting for a dead engine"
    );
    let Poll::Ready(Ok(permit)) = waiting.poll_admit(&waker) else {
        panic!("expected to be let in");
    };
    assert_eq!(permit.kind(), AdmitKind::Open);
    drop((permit, held));
    for _ in 0..100 {
        assert_eq!(lane.try_admit(&T1).unwrap().kind(), AdmitKind::Open);
        assert_eq!(lane.admit_blocking(&T1).unwrap().kind(), AdmitKind::Open);
    }
    controller.tick(clock.now());
    controller.close();
    let snapshot = controller.snapshot();
    assert!(snapshot.failed && snapshot.lanes[0].failed);
}

/// flow-guard 0.2.1: cloning the limiter copied its counters, and permits went back to the copy.
#[test]
fn bug_06_clones_are_one_limiter() {
    let (controller, lane, _clock) = manual(5);
    let handles: Vec<Lane> = (0..7).map(|_| lane.clone()).collect();
    for i in 0..500 {
        let permit = handles[i % 7]
            .try_admit_owned(&T1)
            .expect("strictly sequential requests fit");
        let snapshot = handles[(i + 3) % 7].snapshot();
        assert_eq!(snapshot, controller.clone().snapshot().lanes[0]);
        assert_eq!(snapshot.in_use, 1);
        permit.finish(Completion::success());
    }
    assert_at_rest(&lane.snapshot());
}

/// tower 0.5.3 `LoadShed<ConcurrencyLimit>`: a refused call left a parked waiter behind, which then
/// swallowed the freed slot; 10 of 10 calls were shed with nothing running.
#[test]
fn bug_09_a_refused_request_leaves_no_waiter_behind() {
    let (_controller, lane, _clock) = manual(1);
    let running = lane.try_admit(&T1).unwrap();
    assert_eq!(lane.try_admit(&T1).unwrap_err().reason(), Reason::Busy);
    assert_eq!(lane.snapshot().waiting, 0);
    running.finish(Completion::success());
    for _ in 0..10 {
        lane.try_admit(&T1)
            .expect("nothing is running")
            .finish(Completion::success());
    }
}

/// Netflix/concurrency-limits#234, joshrotenberg/tower-resilience#365: check, then act, let more in
/// than the limit; and a waiter spun.
#[test]
fn bug_11_the_limit_holds_under_a_stampede_and_waiting_costs_no_polls() {
    let (_controller, lane) = live(10);
    let (running, peak) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let start = Barrier::new(64);
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..50 {
                    // On a machine that has other things to do some may be refused; nobody may be let in for it.
                    let Ok(permit) = lane.admit_blocking(&T1) else {
                        continue;
                    };
                    peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                    permit.finish(Completion::success());
                }
            });
        }
    });
    assert!(
        peak.load(Ordering::SeqCst) <= 10,
        "{} ran at once",
        peak.load(Ordering::SeqCst)
    );
    assert_at_rest(&lane.snapshot());

    let held: Vec<_> = (0..10).map(|_| lane.try_admit(&T1).unwrap()).collect();
    let (counter, waker) = CountingWaker::new();
    let mut waiting = lane.admit(&T1);
    assert!(waiting.poll_admit(&waker).is_pending());
    let mut others: Vec<_> = (0..9).map(|_| lane.admit(&T1)).collect();
    let (_, other) = CountingWaker::new();
    assert!(
        others
            .iter_mut()
            .all(|admit| admit.poll_admit(&other).is_pending())
    );
    assert_eq!(counter.wakes(), 0, "nobody is woken without a slot");
    drop(held);
    assert_eq!(counter.wakes(), 1);
}

/// Farfetch/loadshedding#22 and #19, Netflix/concurrency-limits#191: refused requests disturbed the
/// counters, and a gauge never came back to zero.
#[test]
fn bug_12_a_thousand_refusals_of_every_kind_leave_every_gauge_at_zero() {
    let mut settings = Settings::one_lane("main", 1);
    settings.lanes[0].queue_len_max = Some(1);
    let (controller, lane, clock) = manual_with(settings);
    let (_, waker) = CountingWaker::new();
    let held = lane.try_admit(&T1).unwrap();
    let mut calls = 1u64;
    for _ in 0..1_000 {
        let patience = Duration::from_millis(5);
        let mut expires = lane.admit(&T1.bytes(100).cost(7).max_wait(patience).key(1));
        assert!(expires.poll_admit(&waker).is_pending());
        clock.advance(Duration::from_millis(10));
        controller.tick(clock.now());
        assert!(
            matches!(expires.poll_admit(&waker), Poll::Ready(Err(r)) if r.reason() == Reason::Expired)
        );
        // The queue holds one: the less important one must go.
        let mut evicted = lane.admit(&Request::new(Tier::T5).bytes(9));
        assert!(evicted.poll_admit(&waker).is_pending());
        let mut cancelled = lane.admit(&T1.bytes(50));
        assert!(cancelled.poll_admit(&waker).is_pending());
        assert!(
            matches!(evicted.poll_admit(&waker), Poll::Ready(Err(r)) if r.reason() == Reason::Evicted)
        );
        drop(cancelled);
        assert_eq!(lane.try_admit(&T1).unwrap_err().reason(), Reason::Busy);
        let late = T1.deadline(Instant::from_nanos(1));
        assert_eq!(
            lane.try_admit(&late).unwrap_err().reason(),
            Reason::Hopeless
        );
        drop(lane.try_admit(&Request::exempt()).unwrap());
        calls += 6;
        assert_conserved(&lane.snapshot());
    }
    held.finish(Completion::success());
    controller.close();
    assert_eq!(lane.try_admit(&T1).unwrap_err().reason(), Reason::Closed);
    let snapshot = lane.snapshot();
    assert_at_rest(&snapshot);
    assert_eq!(snapshot.offered, calls + 1);
    assert_eq!(snapshot.verdicts.sum(), calls + 1);
    assert_eq!(snapshot.verdicts.total(Verdict::Cancel), 1_000);
}

/// tower-acc 0.1.1: the returned permit went straight to a waiter, so under demand the limit never
/// shrank: 40 stayed 40.
#[test]
fn bug_13_the_limit_shrinks_under_demand() {
    let (_controller, lane, clock) = manual(40);
    let (_, waker) = CountingWaker::new();
    // 200 closed-loop clients: each asks again as soon as it was served.
    let mut running: Vec<_> = (0..40).map(|_| lane.try_admit(&T1).unwrap()).collect();
    let mut waiting: Vec<_> = (0..160).map(|_| lane.admit(&T1)).collect();
    assert!(
        waiting
            .iter_mut()
            .all(|admit| admit.poll_admit(&waker).is_pending())
    );
    lane.set_limit(1).unwrap();
    assert_eq!(lane.snapshot().in_use, 40, "no permit is revoked");
    for left in (1..40).rev() {
        clock.advance(Duration::from_micros(100));
        running.pop().unwrap().finish(Completion::success());
        assert_eq!(
            lane.snapshot().in_use,
            left,
            "a slot over the limit goes to nobody"
        );
    }
    for _ in 0..100 {
        clock.advance(Duration::from_micros(100));
        running.pop().unwrap().finish(Completion::success());
        let next = waiting
            .iter_mut()
            .position(|admit| match admit.poll_admit(&waker) {
                Poll::Ready(Ok(permit)) => {
                    running.push(permit);
                    true
                }
                _ => false,
            });
        drop(waiting.remove(next.expect("the next waiter is served")));
        let mut again = lane.admit(&T1);
        assert!(again.poll_admit(&waker).is_pending());
        waiting.push(again);
        assert_eq!(lane.snapshot().in_use, 1);
    }
}

/// vectordotdev/vector#21340: a limit that shrank to zero was dead for ever.
#[test]
fn bug_14_no_limit_below_one_and_no_factor_that_is_not_a_number() {
    let (_controller, lane, _clock) = manual(3);
    let error = lane.set_limit(0).unwrap_err().to_string();
    assert_eq!(error, "`limit` is 0 but must be between 1 and 1048576");
    assert_eq!(lane.snapshot().limit, 3, "a refused change changes nothing");
    for gain in [f64::NAN, f64::INFINITY, -0.1] {
        let mut settings = Settings::one_lane("main", 1);
        settings.kp = gain;
        assert!(Config::new(settings).is_err(), "{gain} accepted");
    }
    assert!(Config::new(Settings::one_lane("main", 0)).is_err());
    lane.set_limit(1).unwrap();
    lane.try_admit(&T1).unwrap().finish(Completion::success());
}

/// go-concurrency-limits 1.0.1: limit 2, 8 clients, no work; in 4 s 24 calls waited a full second and
/// were refused while 3.9 million passed, for a slot freed between a failed acquire and the push.
#[test]
fn bug_45_no_caller_is_refused_or_forgotten_while_slots_turn_over() {
    let (_controller, lane) = live(2);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    let permit = lane
                        .admit_blocking(&T1)
                        .expect("slots turn over all the time");
                    permit.finish(Completion::success());
                }
            });
        }
    });
    let snapshot = lane.snapshot();
    assert_eq!(admitted_to_slots(&snapshot), 40_000);
    assert_at_rest(&snapshot);
}

/// failsafe-go 0.9.7: with every request at one level, no rate of refusal refused anybody. Here the
/// whole path: one priority, twice the load that fits.
#[test]
fn bug_53_one_priority_holding_all_traffic_is_shed_in_part() {
    let only = Request::at(Priority::from_number(250).unwrap());
    let (controller, lane, clock) = manual(4);
    let (_, waker) = CountingWaker::new();
    let mut running = Vec::new();
    let mut waiting: Vec<cinnamon_core::Admit<'_>> = Vec::new();
    let (mut asked, mut shed, mut lost) = (0, 0, 0);
    // A store of 4 slots that finishes one request a millisecond, offered two.
    for step in 0..20_000u64 {
        clock.advance(Duration::from_micros(500));
        let mut admit = lane.admit(&only.key(step));
        let late = step > 10_000;
        asked += u32::from(late);
        match admit.poll_admit(&waker) {
            Poll::Ready(Ok(permit)) => running.push(permit),
            Poll::Ready(Err(r)) => shed += u32::from(late && r.reason() == Reason::Shed),
            Poll::Pending => waiting.push(admit),
        }
        waiting.retain_mut(|admit| match admit.poll_admit(&waker) {
            Poll::Ready(result) => {
                lost += u32::from(late && result.is_err());
                running.extend(result.ok());
                false
            }
            Poll::Pending => true,
        });
        if step % 2 == 0 && !running.is_empty() {
            running.remove(0).finish(Completion::success());
        }
        if step % 20 == 0 {
            controller.tick(clock.now());
        }
    }
    let share = |n: u32| f64::from(n) / f64::from(asked);
    let refused = share(shed + lost);
    assert!(
        (0.45..0.55).contains(&refused),
        "{refused} refused at twice the load"
    );
    assert!(
        share(shed) > 3.0 * share(lost),
        "{} at the gate, {} in the queue",
        share(shed),
        share(lost)
    );
}

/// scylladb/scylladb#3865, MongoDB's admission README: work that asks again while it holds a slot
/// waits for itself.
#[test]
fn bug_59_admission_inside_admission_never_hangs() {
    let (_controller, lane) = live(1);
    let parent = lane.admit_blocking(&T1).unwrap();
    // Provided for: the parent's slot covers it.
    let child = parent.nested();
    assert_eq!(child.kind(), AdmitKind::Exempt);
    child.finish(Completion::success());
    // Not provided for: it ends by the timeout in force, with the reason.
    let rejected = lane.admit_blocking(&T1).unwrap_err();
    assert_eq!(rejected.reason(), Reason::Expired);
    parent.finish(Completion::success());
    assert_at_rest(&lane.snapshot());
}

/// failsafe-go unlocked in the middle of an update to call back, then overwrote the limit; stopping
/// twice panicked.
#[test]
fn bug_81_a_callback_may_call_back_and_stopping_is_idempotent() {
    struct Busybody {
        controller: Controller,
        lane: Lane,
        seen: Mutex<Vec<u32>>,
    }
    impl Wake for Busybody {
        fn wake(self: Arc<Self>) {
            self.lane.set_limit(7).unwrap();
            drop(self.lane.try_admit(&T1).unwrap());
            self.controller.tick(self.controller.clock().now());
            self.seen
                .lock()
                .unwrap()
                .push(self.controller.snapshot().lanes[0].limit);
        }
    }
    let (controller, lane, _clock) = manual(1);
    let busybody = Arc::new(Busybody {
        controller: controller.clone(),
        lane: lane.clone(),
        seen: Mutex::new(Vec::new()),
    });
    let held = lane.try_admit(&T1).unwrap();
    let mut waiting = lane.admit(&T1);
    assert!(
        waiting
            .poll_admit(&Waker::from(Arc::clone(&busybody)))
            .is_pending()
    );
    held.finish(Completion::success());
    assert_eq!(*busybody.seen.lock().unwrap(), [7]);
    assert_eq!(lane.snapshot().limit, 7, "what the callback set stays set");
    drop(waiting);
    controller.close();
    controller.close();
    controller.drain(Duration::ZERO).unwrap();
    assert_at_rest(&lane.snapshot());
}

/// logicalclocks/rondb#816: a queue blocked the shutdown.
#[test]
fn bug_82_closing_with_a_thousand_queued_answers_each_at_once() {
    let mut settings = Settings::default().lane(LaneSettings::new("main", 3));
    settings.lanes[0].queue_len_max = Some(1_000);
    let (controller, lane, _clock) = manual_with(settings);
    let held: Vec<_> = (0..3).map(|_| lane.try_admit(&T1).unwrap()).collect();
    let (counter, waker) = CountingWaker::new();
    let mut waiting: Vec<_> = (0..1_000).map(|_| lane.admit(&T1)).collect();
    assert!(
        waiting
            .iter_mut()
            .all(|admit| admit.poll_admit(&waker).is_pending())
    );
    controller.close();
    assert_eq!(counter.wakes(), 1_000);
    for admit in &mut waiting {
        let Poll::Ready(Err(rejected)) = admit.poll_admit(&waker) else {
            panic!("expected a refusal");
        };
        assert_eq!(rejected.reason(), Reason::Closed);
    }
    assert_eq!(refused(&lane, Reason::Closed), 1_000);
    assert_eq!(lane.snapshot().in_use, 3, "permits out may finish");
    held.into_iter()
        .for_each(|permit| permit.finish(Completion::success()));
    assert_at_rest(&lane.snapshot());
}
