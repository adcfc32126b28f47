//! Slots that are had without the engine: it loses sight of none, and of nothing that they did.
#![allow(
    clippy::expect_used,
    reason = "helpers of tests, outside of a test function"
)]

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cinnamon_core::{
    Clock, Completion, Config, Controller, FinishEvent, Lane, LaneSettings, LaneSnapshot,
    ManualClock, Mode, Observer, OfferEvent, Outcome, Reason, Request, Settings, Tier, Verdict,
};
use support::*;

/// So many in a row that one of them is sure to be timed, and most are not.
const MANY: u64 = 512;

/// A lane that lets requests run without its engine, on the manual clock.
fn free(limit: u32) -> (Controller, Lane, ManualClock) {
    let (controller, lane, clock) = manual(limit);
    lane.let_run_free();
    (controller, lane, clock)
}

/// Offers one after the other, each for a microsecond.
fn run(lane: &Lane, clock: &ManualClock, requests: u64) -> u64 {
    let mut untimed = 0;
    for key in 0..requests {
        let permit = lane
            .try_admit(&Request::new(Tier::ALL[(key % 6) as usize]).key(key))
            .expect("slots to spare");
        untimed += u64::from(permit.started_at().is_none());
        clock.advance(Duration::from_micros(1));
        permit.finish(Completion::success());
    }
    untimed
}

#[test]
fn a_lane_runs_without_its_engine_once_thousands_come_and_no_longer_when_they_do_not() {
    let (controller, lane, clock) = manual(16);
    clock.advance(Duration::from_secs(1));
    // A hundred a second: each is timed.
    for key in 0..200u64 {
        let permit = lane.try_admit(&T1.key(key)).expect("slots to spare");
        clock.advance(Duration::from_millis(10));
        assert!(permit.started_at().is_some());
        permit.finish(Completion::success());
        controller.tick(clock.now());
    }
    // A million: hardly any, from the first hundred on and without a tick.
    let untimed = run(&lane, &clock, MANY);
    assert!((340..450).contains(&untimed), "{untimed}");
    controller.tick(clock.now());
    assert!(run(&lane, &clock, MANY) > 450);
    // And few again.
    controller.tick(clock.advance(Duration::from_secs(1)));
    assert_eq!(run(&lane, &clock, 10), 0);
}

#[test]
fn everything_that_ran_without_the_engine_is_counted_as_if_it_had_not() {
    let counted = |free: bool| {
        let (controller, lane, clock) = manual(16);
        clock.advance(Duration::from_secs(1));
        if free {
            lane.let_run_free();
        }
        let mut untimed = 0;
        for key in 0..MANY {
            let request = Request::new(Tier::ALL[(key % 6) as usize])
                .key(key)
                .cost(1 + (key % 3) as u32)
                .attempt(u8::from(key % 20 == 0));
            let permit = lane.try_admit(&request).expect("slots to spare");
            clock.advance(Duration::from_millis(1));
            untimed += u64::from(permit.started_at().is_none());
            match key % 5 {
                0 => permit.finish(Completion::new(Outcome::Overloaded)),
                1 => permit.finish(Completion::new(Outcome::Failure)),
                2 => drop(permit),
                _ => permit.finish(Completion::success()),
            }
            if key % 16 == 0 {
                controller.tick(clock.now());
            }
        }
        controller.tick(clock.now());
        assert!(!free || untimed > MANY / 2, "{untimed}");
        let view = controller.decisions().last().expect("it ticked").lanes[0];
        (lane.snapshot(), view)
    };
    let ((free, free_view), (bound, bound_view)) = (counted(true), counted(false));
    assert_eq!(free.offered, MANY);
    assert_eq!(free.offered, bound.offered);
    assert_eq!(free.verdicts, bound.verdicts);
    assert_eq!(free.retried, bound.retried);
    assert_eq!(free.in_use, 0);
    assert_eq!(free.in_use_by_tier, [0; 6]);
    // But for the order in which they were added up.
    for (free, bound, most) in [
        (free_view.offered_per_s, bound_view.offered_per_s, 1e-9),
        (free_view.admitted_per_s, bound_view.admitted_per_s, 1e-9),
        (free_view.capacity_per_s, bound_view.capacity_per_s, 0.01),
    ] {
        assert!(
            (free / bound - 1.0).abs() < most,
            "{free_view:?} {bound_view:?}"
        );
    }
    assert_conserved(&free);
}

#[test]
fn the_last_slots_are_the_engines_and_who_waits_is_woken_by_one_that_was_had_without_it() {
    let (_controller, lane, _clock) = free(4);
    let held: Vec<_> = (0..4u64)
        .map(|key| lane.try_admit(&T1.key(key)).expect("a slot"))
        .collect();
    assert!(held[..3].iter().any(|permit| permit.started_at().is_none()));
    assert!(held[3].started_at().is_some());
    assert_eq!(
        lane.try_admit(&T1).expect_err("it is full").reason(),
        Reason::Busy
    );
    let (woken, waker) = CountingWaker::new();
    let mut waiting = lane.admit(&T1);
    assert!(waiting.poll_admit(&waker).is_pending());
    let mut held = held.into_iter();
    drop(held.next());
    assert_eq!(woken.wakes(), 1, "by whoever gives a slot back");
    let permit = match waiting.poll_admit(&waker) {
        std::task::Poll::Ready(permit) => permit.expect("the slot"),
        std::task::Poll::Pending => panic!("it was granted"),
    };
    assert_eq!((lane.snapshot().in_use, lane.snapshot().free), (4, 0));
    drop((held, permit));
    assert_eq!((lane.snapshot().in_use, lane.snapshot().free), (0, 4));
}

#[test]
fn whatever_has_to_be_decided_ends_it_at_once() {
    let admits = |lane: &Lane| {
        let permits: Vec<_> = (0..64u64)
            .filter_map(|key| lane.try_admit(&Request::new(Tier::T5).key(key)).ok())
            .collect();
        let untimed = permits.iter().filter(|p| p.started_at().is_none()).count();
        (permits.len(), untimed)
    };
    let (controller, lane, clock) = free(1_000);
    assert!(admits(&lane).1 > 40);
    // A cap on what may pass, before any tick.
    let shed = cinnamon_core::Action::Shed(Tier::T5);
    let all = cinnamon_core::Target::Controller;
    let shed = cinnamon_core::Override::new(all, shed, Duration::from_secs(5));
    controller.set_override(shed).expect("in bounds");
    assert_eq!(admits(&lane), (0, 0));
    controller.tick(clock.advance(Duration::from_secs(6)));
    controller.tick(clock.advance(Duration::from_millis(20)));
    assert!(admits(&lane).1 > 40);
    // Modes in which verdicts do not count.
    for mode in [Mode::Monitor, Mode::Off] {
        lane.set_mode(mode);
        assert_eq!(admits(&lane), (64, 0), "{mode:?}");
    }
    lane.set_mode(Mode::Enforce);
    assert!(admits(&lane).1 > 40);
    // Rules for tenants, and shares.
    let reconfigure = |change: &dyn Fn(&mut Settings)| {
        let mut settings = (**controller.config()).clone();
        change(&mut settings);
        let config = Config::new(settings).expect("in bounds");
        controller.reconfigure(config).expect("it can be changed");
        controller.tick(clock.advance(Duration::from_millis(20)));
    };
    reconfigure(&|settings| {
        settings.tenants = vec![cinnamon_core::TenantSettings::new("*").cap(1)];
    });
    assert_eq!(admits(&lane).1, 0);
    reconfigure(&|settings| {
        settings.tenants.clear();
        let share = cinnamon_core::ShareSettings::hard(Tier::T0, 0.1);
        settings.lanes[0].shares = vec![share];
    });
    assert_eq!(admits(&lane).1, 0);
    reconfigure(&|settings| settings.lanes[0].shares.clear());
    assert!(admits(&lane).1 > 40);
    // A limit that falls below what runs, and rises again.
    let held: Vec<_> = (0..40u64)
        .map(|key| lane.try_admit(&T1.key(key)).expect("a slot"))
        .collect();
    lane.set_limit(10).expect("in bounds");
    assert_eq!(admits(&lane), (0, 0));
    assert_eq!(lane.snapshot().in_use, 40);
    lane.set_limit(60).expect("in bounds");
    assert_eq!(admits(&lane).0, 20);
    drop(held);
    assert!(admits(&lane).1 > 40);
    controller.close();
    assert_eq!(admits(&lane), (0, 0));
    assert_conserved(&lane.snapshot());
}

#[test]
fn a_deadline_that_has_passed_is_hopeless_and_one_that_has_not_is_none_of_the_engines_concern() {
    let (_controller, lane, clock) = free(64);
    let now = clock.now();
    let untimed = (0..64u64)
        .map(|key| lane.try_admit(&T1.key(key).deadline(now.after_nanos(1))))
        .filter(|permit| permit.as_ref().expect("in time").started_at().is_none())
        .count();
    assert!(untimed > 40, "{untimed}");
    for key in 0..64u64 {
        let late = lane.try_admit(&T1.key(key).deadline(now));
        assert_eq!(late.expect_err("too late").reason(), Reason::Hopeless);
        let none_left = lane.try_admit(&T1.key(key).time_left(Duration::ZERO));
        assert_eq!(none_left.expect_err("too late").reason(), Reason::Hopeless);
    }
}

/// What an observer was told.
#[derive(Default)]
struct Told {
    offers: AtomicU64,
    finishes: Mutex<Vec<FinishEvent>>,
}

impl Observer for Told {
    fn on_offer(&self, _: &OfferEvent<'_>) {
        self.offers.fetch_add(1, Ordering::Relaxed);
    }

    fn on_finish(&self, event: &FinishEvent) {
        self.finishes.lock().expect("no panic").push(*event);
    }
}

#[test]
fn observers_see_each_request_and_how_long_it_ran() {
    let told = Arc::new(Told::default());
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1));
    let config = Config::new(Settings::one_lane("main", 16)).expect("in bounds");
    let observer: Arc<dyn Observer> = told.clone();
    let controller = Controller::builder(config).observer(observer);
    let controller = controller.build_manual(clock.shared()).expect("it can be");
    let lane = controller.lane("main").expect("it was configured");
    lane.let_run_free();
    assert_eq!(run(&lane, &clock, MANY), 0, "whoever looks, times");
    assert_eq!(told.offers.load(Ordering::Relaxed), MANY);
    let finishes = told.finishes.lock().expect("no panic");
    assert_eq!(finishes.len() as u64, MANY);
    let microsecond = Duration::from_micros(1);
    assert!(
        finishes
            .iter()
            .all(|event| event.service_time == microsecond)
    );
}

#[test]
fn the_service_times_of_a_sample_are_those_of_all() {
    let (controller, lane, clock) = free(16);
    // Of forty thousand a second one thousand are timed, and which these are depends on the thread.
    for _ in 0..2_000 {
        for key in 0..100u64 {
            let permit = lane.try_admit(&T1.key(key)).expect("slots to spare");
            // Every other is four times as long; their rhythm must not be that of the sample.
            clock.advance(Duration::from_micros(if key % 2 == 0 { 10 } else { 40 }));
            permit.finish(Completion::success());
        }
        controller.tick(clock.now());
    }
    let snapshot = lane.snapshot();
    assert!(
        (snapshot.service_mean_s - 25e-6).abs() < 3e-6,
        "{snapshot:?}"
    );
    // Those that were timed stand for the others.
    let counted = snapshot.served.count() as f64 / 200_000.0;
    assert!((0.9..1.1).contains(&counted), "{counted}");
}

/// A lane that is crowded for a tenth of the time, in which work takes twice as long and everybody comes to the engine.
#[test]
fn a_crowded_moment_does_not_outvote_the_calm_in_which_few_are_timed() {
    let (controller, lane, clock) = free(2);
    let (mut taken_ns, mut requests) = (0u64, 0u64);
    // Of a million a second one thousand are timed, and which these are depends on the thread: it takes some million.
    for key in 0..3_000_000u64 {
        let crowded = key % 1_000 >= 900;
        let other = crowded.then(|| lane.try_admit(&T1.key(key)).expect("a slot"));
        let permit = lane.try_admit(&T1.key(key)).expect("a slot");
        let took = if crowded { 2_000 } else { 1_000 };
        clock.advance(Duration::from_nanos(took));
        permit.finish(Completion::success());
        if let Some(other) = other {
            other.finish(Completion::success());
            (taken_ns, requests) = (taken_ns + took, requests + 1);
        }
        (taken_ns, requests) = (taken_ns + took, requests + 1);
        if key % 100 == 0 {
            controller.tick(clock.now());
        }
    }
    let mean_s = taken_ns as f64 / requests as f64 * 1e-9;
    let snapshot = lane.snapshot();
    let off = snapshot.service_mean_s / mean_s;
    // Each counted once, it would be a third too long.
    assert!((off - 1.0).abs() < 0.1, "{off}");
    let counted = snapshot.served.count() as f64 / requests as f64;
    assert!((counted - 1.0).abs() < 0.1, "{counted}");
}

#[test]
fn what_work_really_cost_is_learned_of_what_runs_without_the_engine_too() {
    let (controller, lane, clock) = free(64);
    for key in 0..4_000u64 {
        let permit = lane.try_admit(&T1.key(key)).expect("slots to spare");
        permit.finish(Completion::success().cost(100));
    }
    controller.tick(clock.advance(Duration::from_millis(20)));
    let cost = lane.explain(&T1).expect("it works").cost;
    assert!((95..=100).contains(&cost), "{cost}");
}

fn totals(snapshot: &LaneSnapshot) -> (u64, u64, u64) {
    let slots = snapshot
        .verdicts
        .total(Verdict::Admit(cinnamon_core::AdmitKind::Slot));
    (snapshot.offered, slots, snapshot.verdicts.refused())
}

/// Threads that take and give back slots, some of them full lanes and changes of the limit, modes and overrides in
/// between: in the end every slot is back and every request has one verdict.
#[test]
fn many_threads_lose_no_slot_and_no_request_whatever_is_decided_meanwhile() {
    const THREADS: u64 = 4;
    const EACH: u64 = 40_000;
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1));
    let settings = Settings::default().lane(LaneSettings::new("main", 8));
    let config = Config::new(settings).expect("in bounds");
    let controller = Controller::builder(config);
    let controller = controller.build_manual(clock.shared()).expect("it can be");
    let lane = controller.lane("main").expect("it was configured");
    lane.let_run_free();
    let (admitted, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    let work = |thread: u64| {
        let mut kept = Vec::new();
        for n in 0..EACH {
            let request = Request::new(Tier::ALL[(n % 6) as usize]).key(thread * EACH + n);
            match lane.try_admit_owned(&request) {
                Ok(permit) => {
                    admitted.fetch_add(1, Ordering::Relaxed);
                    kept.push(permit);
                }
                Err(_) => {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            }
            if kept.len() as u64 > n % 5 {
                kept.clear();
            }
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        scope.spawn(|| {
            let mut step = 0u64;
            while !done.load(Ordering::Acquire) {
                step += 1;
                clock.advance(Duration::from_millis(5));
                controller.tick(clock.now());
                lane.set_limit(2 + (step % 17) as u32).expect("in bounds");
                let mode = if step.is_multiple_of(11) {
                    Mode::Off
                } else {
                    Mode::Enforce
                };
                lane.set_mode(mode);
                let snapshot = lane.snapshot();
                assert!(snapshot.in_use <= THREADS as u32 * 6, "{snapshot:?}");
            }
        });
        for worker in workers {
            worker.join().expect("no panic");
        }
        done.store(true, Ordering::Release);
    });
    lane.set_mode(Mode::Enforce);
    lane.set_limit(8).expect("in bounds");
    let snapshot = lane.snapshot();
    let (offered, _, counted_refused) = totals(&snapshot);
    assert_eq!(offered, THREADS * EACH);
    assert_eq!(counted_refused, refused.load(Ordering::Relaxed));
    assert_eq!(
        snapshot.verdicts.admitted(),
        admitted.load(Ordering::Relaxed)
    );
    assert_eq!((snapshot.in_use, snapshot.open_in_use), (0, 0));
    assert_eq!(snapshot.in_use_by_tier, [0; 6]);
    assert_conserved(&snapshot);
    let all: Vec<_> = std::iter::from_fn(|| lane.try_admit(&T1).ok()).collect();
    assert_eq!(all.len(), 8, "every slot can be had again");
}
