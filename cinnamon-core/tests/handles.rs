//! What the handles promise: admission in each style, waiting and giving up, closing and draining,
//! scopes, and the control thread.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use cinnamon_core::{
    AdmitKind, Class, ClassSettings, Clock, Completion, Config, Controller, Instant, Mode, Order,
    Outcome, Reason, Request, Retry, Settings, Tier, Verdict,
};
use support::*;

const fn is_send_sync<T: Send + Sync>() {}
const fn is_send<T: Send>() {}

/// Checked by the compiler.
const _: () = {
    is_send_sync::<Controller>();
    is_send_sync::<cinnamon_core::Lane>();
    is_send_sync::<cinnamon_core::OwnedPermit>();
    is_send_sync::<cinnamon_core::Permit<'static>>();
    is_send::<cinnamon_core::Admit<'static>>();
    is_send::<cinnamon_core::AdmitOwned>();
    is_send_sync::<cinnamon_core::Rejected>();
    is_send_sync::<cinnamon_core::Snapshot>();
};

#[test]
fn the_most_important_waiter_is_served_first() {
    let (_controller, lane, _clock) = manual(1);
    let held = lane.try_admit(&T1).unwrap();
    let (_, waker) = CountingWaker::new();
    let tiers = [Tier::T4, Tier::T1, Tier::T5, Tier::T0, Tier::T2];
    let mut waiting: Vec<_> = tiers
        .iter()
        .map(|&tier| (tier, lane.admit(&Request::new(tier))))
        .collect();
    assert!(
        waiting
            .iter_mut()
            .all(|(_, admit)| admit.poll_admit(&waker).is_pending())
    );
    assert_eq!(lane.snapshot().waiting_by_tier, [1, 1, 1, 0, 1, 1]);
    drop(held);
    let mut served = Vec::new();
    while !waiting.is_empty() {
        let next = waiting
            .iter_mut()
            .position(|(tier, admit)| match admit.poll_admit(&waker) {
                Poll::Ready(Ok(permit)) => {
                    assert_eq!(permit.priority().tier(), *tier);
                    permit.finish(Completion::success());
                    true
                }
                _ => false,
            });
        served.push(waiting.remove(next.expect("somebody has the slot")).0);
    }
    assert_eq!(served, [Tier::T0, Tier::T1, Tier::T2, Tier::T4, Tier::T5]);
}

#[test]
fn a_newcomer_does_not_pass_a_waiter() {
    let (_controller, lane, _clock) = manual(1);
    let held = lane.try_admit(&T1).unwrap();
    let (_, waker) = CountingWaker::new();
    let mut waiting = lane.admit(&Request::new(Tier::T5));
    assert!(waiting.poll_admit(&waker).is_pending());
    drop(held);
    assert_eq!(
        lane.try_admit(&Request::new(Tier::T0))
            .unwrap_err()
            .reason(),
        Reason::Busy
    );
    assert!(matches!(waiting.poll_admit(&waker), Poll::Ready(Ok(_))));
}

#[test]
fn a_future_that_is_never_polled_offers_nothing_and_a_finished_one_stays_pending() {
    let (_controller, lane, _clock) = manual(1);
    drop(lane.admit(&T1));
    assert_eq!(lane.snapshot().offered, 0);
    let (_, waker) = CountingWaker::new();
    let mut admit = lane.admit_owned(&T1);
    assert!(matches!(admit.poll_admit(&waker), Poll::Ready(Ok(_))));
    assert!(admit.poll_admit(&waker).is_pending());
    drop(admit);
    assert_at_rest(&lane.snapshot());
}

#[test]
fn only_the_last_waker_given_is_called() {
    let (_controller, lane, _clock) = manual(1);
    let held = lane.try_admit(&T1).unwrap();
    let ((first, first_waker), (second, second_waker)) =
        (CountingWaker::new(), CountingWaker::new());
    let mut admit = lane.admit(&T1);
    assert!(admit.poll_admit(&first_waker).is_pending());
    assert!(admit.poll_admit(&second_waker).is_pending());
    drop(held);
    assert_eq!((first.wakes(), second.wakes()), (0, 1));
}

#[test]
fn raising_the_limit_wakes_exactly_as_many_as_it_adds_slots() {
    let (_controller, lane, _clock) = manual(1);
    let _held = lane.try_admit(&T1).unwrap();
    let (counter, waker) = CountingWaker::new();
    let mut waiting: Vec<_> = (0..10).map(|_| lane.admit(&T1)).collect();
    assert!(
        waiting
            .iter_mut()
            .all(|admit| admit.poll_admit(&waker).is_pending())
    );
    lane.set_limit(4).unwrap();
    assert_eq!(counter.wakes(), 3);
    assert_eq!((lane.snapshot().in_use, lane.snapshot().waiting), (4, 7));
}

#[test]
fn deadline_and_patience_end_a_wait_and_a_passed_deadline_is_hopeless() {
    let (controller, lane, clock) = manual(1);
    let _held = lane.try_admit(&T1).unwrap();
    let (counter, waker) = CountingWaker::new();
    let now = clock.now();
    let mut by_deadline = lane.admit(&T1.deadline(now.after(Duration::from_millis(30))));
    let mut by_patience = lane.admit(&T1.max_wait(Duration::from_millis(60)));
    let mut by_timeout = lane.admit(&T1);
    for admit in [&mut by_deadline, &mut by_patience, &mut by_timeout] {
        assert!(admit.poll_admit(&waker).is_pending());
    }
    let woken_after = |ms: u64| {
        clock.set(now.after(Duration::from_millis(ms)));
        controller.tick(clock.now());
        counter.wakes()
    };
    assert_eq!(woken_after(29), 0);
    assert_eq!(woken_after(32), 1);
    assert_eq!(woken_after(62), 2);
    assert_eq!(woken_after(499), 2);
    assert_eq!(
        woken_after(500),
        3,
        "nothing was served yet: the patient timeout is 500 ms"
    );
    for admit in [&mut by_deadline, &mut by_patience, &mut by_timeout] {
        assert!(
            matches!(admit.poll_admit(&waker), Poll::Ready(Err(r)) if r.reason() == Reason::Expired)
        );
    }
    let late = lane.try_admit(&T1.deadline(now)).unwrap_err();
    assert_eq!(
        (late.reason(), late.retry()),
        (Reason::Hopeless, Retry::Never)
    );
    let now_or_never = lane.admit(&T1.max_wait(Duration::ZERO)).poll_admit(&waker);
    assert!(matches!(now_or_never, Poll::Ready(Err(r)) if r.reason() == Reason::Busy));
}

#[test]
fn in_calm_a_callers_own_deadline_takes_the_place_of_the_timeout() {
    let (controller, lane, clock) = manual(1);
    let _held = lane.try_admit(&T1).unwrap();
    let (_, waker) = CountingWaker::new();
    let mut patient = lane.admit(&T1.time_left(Duration::from_secs(3)));
    let mut silent = lane.admit(&T1);
    assert!(patient.poll_admit(&waker).is_pending());
    assert!(silent.poll_admit(&waker).is_pending());
    clock.advance(Duration::from_millis(2_999));
    controller.tick(clock.now());
    assert!(
        matches!(silent.poll_admit(&waker), Poll::Ready(Err(r)) if r.reason() == Reason::Expired)
    );
    assert!(patient.poll_admit(&waker).is_pending());
    clock.advance(Duration::from_millis(2));
    controller.tick(clock.now());
    assert!(
        matches!(patient.poll_admit(&waker), Poll::Ready(Err(r)) if r.reason() == Reason::Expired)
    );
}

#[test]
fn a_clock_that_steps_back_or_jumps_loses_nobody() {
    let (controller, lane, clock) = manual(1);
    let held = lane.try_admit(&T1).unwrap();
    let (_, waker) = CountingWaker::new();
    clock.set(Instant::from_nanos(3_600_000_000_000));
    let mut waiting = lane.admit(&T1.max_wait(Duration::from_millis(100)));
    assert!(waiting.poll_admit(&waker).is_pending());
    clock.set(Instant::from_nanos(5));
    controller.tick(clock.now());
    assert!(
        waiting.poll_admit(&waker).is_pending(),
        "no time has passed"
    );
    clock.advance(Duration::from_millis(110));
    controller.tick(clock.now());
    assert!(
        matches!(waiting.poll_admit(&waker), Poll::Ready(Err(r)) if r.reason() == Reason::Expired),
        "time goes on from where it stood"
    );
    held.finish(Completion::success());
    assert_at_rest(&lane.snapshot());
}

#[test]
fn untagged_work_takes_its_class_or_the_default_tier_and_is_counted() {
    let mut settings = Settings::one_lane("main", 9);
    let mut batch = ClassSettings::default();
    batch.default_tier = Some(Tier::T5);
    settings.classes.push(batch);
    let (_controller, lane, _clock) = manual_with(settings);
    let tier = |request: &Request| lane.try_admit(request).unwrap().priority().tier();
    assert_eq!(tier(&Request::untagged()), Tier::T3);
    assert_eq!(tier(&Request::untagged().class(Class(1))), Tier::T5);
    assert_eq!(tier(&Request::untagged().class(Class(999))), Tier::T3);
    assert_eq!(tier(&T1.class(Class(1))), Tier::T1);
    assert_eq!(lane.snapshot().untagged, 3);
}

#[test]
fn exempt_work_runs_beside_a_full_lane_and_is_counted() {
    let (_controller, lane, _clock) = manual(1);
    let held = lane.try_admit(&T1).unwrap();
    let probe = lane.try_admit(&Request::exempt()).unwrap();
    assert_eq!(probe.kind(), AdmitKind::Exempt);
    assert_eq!(
        (lane.snapshot().in_use, lane.snapshot().exempt_in_use),
        (1, 1)
    );
    drop((held, probe));
    assert_eq!(
        lane.snapshot()
            .verdicts
            .total(Verdict::Admit(AdmitKind::Exempt)),
        1
    );
}

#[test]
fn a_queue_of_none_refuses_at_once_and_a_queue_of_bytes_counts_them() {
    let mut settings = Settings::one_lane("main", 1);
    settings.lanes[0].queue_len_max = Some(0);
    let (_controller, lane, _clock) = manual_with(settings);
    let _held = lane.try_admit(&T1).unwrap();
    let (_, waker) = CountingWaker::new();
    let polled = lane.admit(&T1).poll_admit(&waker);
    assert!(matches!(polled, Poll::Ready(Err(r)) if r.reason() == Reason::Evicted));

    let mut settings = Settings::one_lane("main", 1);
    settings.lanes[0].queue_bytes_max = 1_000;
    let (_controller, lane, _clock) = manual_with(settings);
    let _held = lane.try_admit(&T1).unwrap();
    let mut fits = lane.admit(&T1.bytes(900));
    assert!(fits.poll_admit(&waker).is_pending());
    let polled = lane
        .admit(&Request::new(Tier::T2).bytes(200))
        .poll_admit(&waker);
    assert!(matches!(polled, Poll::Ready(Err(r)) if r.reason() == Reason::Evicted));
    assert_eq!(lane.snapshot().waiting_bytes, 900);
}

#[test]
fn off_admits_everything_without_slots_and_lets_the_waiters_in() {
    let (controller, lane, _clock) = manual(1);
    let held = lane.try_admit(&T1).unwrap();
    let (_, waker) = CountingWaker::new();
    let mut waiting = lane.admit(&T1);
    assert!(waiting.poll_admit(&waker).is_pending());
    controller.set_mode(Mode::Off);
    assert!(
        matches!(waiting.poll_admit(&waker), Poll::Ready(Ok(p)) if p.kind() == AdmitKind::Open)
    );
    let open: Vec<_> = (0..5).map(|_| lane.try_admit(&T1).unwrap()).collect();
    assert_eq!(
        (lane.snapshot().in_use, lane.snapshot().open_in_use),
        (1, 5)
    );
    controller.set_mode(Mode::Enforce);
    assert_eq!(lane.try_admit(&T1).unwrap_err().reason(), Reason::Busy);
    drop((held, open));
    assert_at_rest(&lane.snapshot());
}

#[test]
fn the_order_within_a_priority_can_be_chosen() {
    for (order, expected) in [(Order::Fifo, [0, 1, 2]), (Order::Lifo, [2, 1, 0])] {
        let mut settings = Settings::one_lane("main", 1);
        settings.lanes[0].order = order;
        let (_controller, lane, clock) = manual_with(settings);
        let mut held = lane.try_admit(&T1).ok();
        let (_, waker) = CountingWaker::new();
        let mut waiting: Vec<_> = (0..3).map(|_| lane.admit(&T1.key(7))).collect();
        for admit in &mut waiting {
            clock.advance(Duration::from_millis(1));
            assert!(admit.poll_admit(&waker).is_pending());
        }
        let mut served = Vec::new();
        for _ in 0..3 {
            held = None;
            for (n, admit) in waiting.iter_mut().enumerate() {
                if let Poll::Ready(Ok(permit)) = admit.poll_admit(&waker) {
                    served.push(n);
                    held = Some(permit);
                }
            }
        }
        drop(held);
        assert_eq!(served, expected, "{order:?}");
    }
}

#[test]
fn a_class_learns_its_cost_from_completions() {
    let (_controller, lane, _clock) = manual(1);
    for _ in 0..200 {
        lane.try_admit(&T1)
            .unwrap()
            .finish(Completion::success().cost(40));
    }
    let _held = lane.try_admit(&T1).unwrap();
    let (_, waker) = CountingWaker::new();
    let mut waiting = lane.admit(&T1);
    assert!(waiting.poll_admit(&waker).is_pending());
    let learned = lane.snapshot().waiting_cost;
    assert!((38..=40).contains(&learned), "{learned}");
}

#[test]
fn only_success_and_overload_teach_the_service_time() {
    let (controller, lane, clock) = manual(1);
    let run = |ms: u64, end: Option<Outcome>| {
        let permit = lane.try_admit(&T1).unwrap();
        clock.advance(Duration::from_millis(ms));
        match end {
            Some(outcome) => permit.finish(Completion::new(outcome)),
            None => drop(permit),
        }
        controller.tick(clock.now());
        lane.snapshot().service_mean_s
    };
    // With nothing better the time a slot was held gives the scale …
    assert_eq!(run(50, None), 0.050);
    // … until the first completion that is evidence, and never after.
    assert!((run(10, Some(Outcome::Success)) - 0.010).abs() < 1e-9);
    for end in [Some(Outcome::Failure), Some(Outcome::Ignored), None] {
        assert!((run(50, end) - 0.010).abs() < 1e-9, "{end:?}");
    }
    assert!(run(30, Some(Outcome::Overloaded)) > 0.015);
}

#[test]
fn an_unknown_lane_is_named_with_the_known_ones() {
    let (controller, _lane, _clock) = manual(1);
    let error = controller.lane("raed").unwrap_err();
    assert_eq!(
        error.to_string(),
        "no lane is named \"raed\"; there are [\"main\"]"
    );
}

#[test]
fn the_snapshot_is_plain_data() {
    let (controller, lane, clock) = manual(2);
    lane.try_admit(&T1).unwrap().finish(Completion::success());
    controller.tick(clock.now());
    let json = serde_json::to_value(controller.snapshot()).unwrap();
    assert_eq!(json["lanes"][0]["name"], "main");
    assert_eq!(json["lanes"][0]["verdicts"][0]["verdict"], "admit_slot");
    assert_eq!(json["lanes"][0]["verdicts"][0]["tier"], "t1");
    assert_eq!(json["lanes"][0]["budget_per_s"], serde_json::Value::Null);
}

// ----- with the control thread

#[test]
fn draining_lets_the_waiters_finish_and_says_what_did_not() {
    let (controller, lane) = live(1);
    let held = lane.try_admit_owned(&T1).unwrap();
    let served = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let permit = lane.admit_blocking(&T1).expect("who waits keeps the place");
            served.store(true, Ordering::SeqCst);
            permit.finish(Completion::success());
        });
        while lane.snapshot().waiting == 0 {
            thread::yield_now();
        }
        let drained = scope.spawn(|| controller.drain(Duration::from_secs(60)));
        while lane.try_admit(&T1).is_ok_and(|_| true) || !controller.snapshot().closed {
            thread::yield_now();
        }
        held.finish(Completion::success());
        drained.join().unwrap().unwrap();
    });
    assert!(served.load(Ordering::SeqCst));
    assert_at_rest(&lane.snapshot());

    let (controller, lane) = live(1);
    let _held = lane.try_admit(&T1).unwrap();
    let timeout = controller.drain(Duration::from_millis(1)).unwrap_err();
    assert_eq!((timeout.running, timeout.refused), (1, 0));
    assert_eq!(lane.try_admit(&T1).unwrap_err().reason(), Reason::Closed);
}

#[test]
fn the_control_thread_expires_blocked_and_async_waiters() {
    let (_controller, lane) = live(1);
    let _held = lane.try_admit(&T1).unwrap();
    let brief = T1.max_wait(Duration::from_millis(3));
    assert_eq!(
        lane.admit_blocking(&brief).unwrap_err().reason(),
        Reason::Expired
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let rejected = runtime.block_on(lane.admit(&brief)).unwrap_err();
    assert_eq!(rejected.reason(), Reason::Expired);
}

#[test]
fn many_tokio_tasks_share_a_lane_and_may_be_aborted_anywhere() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let (_controller, lane) = live(2);
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for n in 0..2_000u64 {
            let lane = lane.clone();
            tasks.push(tokio::spawn(async move {
                let permit = lane.admit_owned(&T1.key(n)).await?;
                tokio::task::yield_now().await;
                permit.finish(Completion::success());
                Ok::<_, cinnamon_core::Rejected>(())
            }));
            if n % 3 == 0 {
                tasks[n as usize / 2].abort();
                tokio::task::yield_now().await;
            }
        }
        for task in tasks {
            let _aborted_or_refused = task.await;
        }
    });
    assert_at_rest(&lane.snapshot());
}

#[test]
fn the_control_thread_ends_with_the_last_handle() {
    #[derive(Debug)]
    struct Watched(cinnamon_core::MonotonicClock, std::sync::Arc<AtomicBool>);
    impl Clock for Watched {
        fn now(&self) -> Instant {
            self.0.now()
        }
    }
    impl Drop for Watched {
        fn drop(&mut self) {
            self.1.store(true, Ordering::SeqCst);
        }
    }
    let gone = std::sync::Arc::new(AtomicBool::new(false));
    let clock = Watched(cinnamon_core::MonotonicClock::new(), gone.clone());
    let config = Config::new(Settings::one_lane("main", 1)).unwrap();
    let controller = Controller::builder(config)
        .clock(std::sync::Arc::new(clock))
        .build()
        .unwrap();
    let lane = controller.lane("main").unwrap();
    drop(controller);
    let permit = lane.admit_blocking_owned(&T1).unwrap();
    drop(lane);
    assert!(
        !gone.load(Ordering::SeqCst),
        "a permit keeps the controller alive"
    );
    drop(permit);
    while !gone.load(Ordering::SeqCst) {
        thread::yield_now();
    }
}
