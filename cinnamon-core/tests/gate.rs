//! Refusals before the lock: they are the engine's own, and none is lost or counted twice.
#![allow(
    clippy::expect_used,
    reason = "helpers of tests, outside of a test function"
)]

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cinnamon_core::{
    Clock, Completion, Dynamics, Expected, Instant, Mode, Reading, Reason, Request, Settings,
    Signal, TenantSettings, Tier, Verdict, View,
};
use support::*;

/// Holds the gate somewhere in the middle of what is offered, for ever.
struct Heavy;

impl Signal for Heavy {
    fn name(&self) -> &str {
        "heavy"
    }

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(Duration::from_secs(1))
    }

    fn sample(&mut self, _: Instant, _: &View) -> Reading {
        Reading::pressure(1.3)
    }
}

/// A lane whose gate is held by a signal, on the manual clock.
fn held(
    settings: Settings,
) -> (
    cinnamon_core::Controller,
    cinnamon_core::Lane,
    cinnamon_core::ManualClock,
) {
    let clock = cinnamon_core::ManualClock::new();
    clock.advance(Duration::from_secs(1));
    let config = cinnamon_core::Config::new(settings).expect("in bounds");
    let controller = cinnamon_core::Controller::builder(config).signal(Heavy);
    let controller = controller
        .build_manual(clock.shared())
        .expect("a signal that is one");
    let lane = controller.lane("main").expect("it was configured");
    for step in 0..6_000u64 {
        for tier in Tier::ALL {
            if let Ok(permit) = lane.try_admit(&Request::new(tier).key(step * 7)) {
                permit.finish(Completion::success());
            }
        }
        clock.advance(Duration::from_millis(1));
        if step % 10 == 0 {
            controller.tick(clock.now());
        }
    }
    (controller, lane, clock)
}

#[test]
fn what_is_refused_before_the_lock_is_what_the_engine_would_refuse() {
    let (_controller, lane, _) = held(Settings::one_lane("main", 64));
    let threshold = lane.snapshot().threshold_levels;
    assert!((64.0..700.0).contains(&threshold), "{threshold}");
    let before = lane.snapshot();
    let (mut refused, mut ran) = (0u64, 0u64);
    for key in 0..3_000u64 {
        let request = Request::new(Tier::ALL[(key % 6) as usize])
            .key(key * 977)
            .cost(2);
        let expected = lane.explain(&request).unwrap();
        match lane.try_admit(&request) {
            Ok(permit) => {
                assert_eq!(expected.answer, Expected::Runs, "{expected}");
                permit.finish(Completion::success());
                ran += 1;
            }
            Err(rejected) => {
                assert_eq!(
                    expected.answer,
                    Expected::Refused(Reason::Shed),
                    "{expected}"
                );
                assert_eq!(rejected.rank(), expected.rank);
                assert_eq!(rejected.threshold(), expected.threshold);
                assert_eq!(rejected.binding(), expected.binding);
                refused += 1;
            }
        }
    }
    assert!(refused > 300 && ran > 300, "{refused} {ran}");
    let after = lane.snapshot();
    let shed = |of: &cinnamon_core::LaneSnapshot| of.verdicts.total(Verdict::Refuse(Reason::Shed));
    assert_eq!(shed(&after) - shed(&before), refused);
    assert_eq!(after.offered - before.offered, 3_000);
    let cost = |of: &cinnamon_core::LaneSnapshot| of.shed.iter().map(|work| work.cost).sum::<u64>();
    assert_eq!(cost(&after) - cost(&before), 2 * refused);
    assert_conserved(&after);
}

/// Where the threshold lies inside a tier, keyless work of it is cut in the same proportion as keyed work, once.
#[test]
fn keyless_work_is_cut_in_proportion_and_not_twice() {
    let (_controller, lane, _) = held(Settings::one_lane("main", 64));
    let levels = lane.snapshot().threshold_levels;
    let tier = Tier::ALL[(levels / 128.0) as usize];
    let share = (levels / 128.0).fract();
    assert!((0.05..0.95).contains(&share), "{levels}");
    let before = lane.snapshot();
    let mut ran = 0;
    for n in 0..3_000 {
        // Something else in between, which the gate refuses.
        if tier < Tier::T5 && n % 3 == 0 {
            assert!(lane.try_admit(&Request::new(Tier::T5)).is_err());
        }
        if let Ok(permit) = lane.try_admit(&Request::new(tier)) {
            ran += 1;
            permit.finish(Completion::success());
        }
    }
    let let_in = f64::from(ran) / 3_000.0;
    assert!((let_in - share).abs() < 0.03, "{let_in} for {share}");
    let after = lane.snapshot();
    assert!(after.offered - before.offered >= 3_000);
    assert_conserved(&after);
}

#[test]
fn where_more_than_the_threshold_counts_everybody_is_judged_by_the_engine() {
    let (controller, lane, clock) = held(Settings::one_lane("main", 64));
    let of = |key| {
        Request::new(Tier::T5)
            .key(key)
            .tenant(cinnamon_core::Tenant(7))
    };
    let is_shed = |request: &Request| {
        lane.explain(request).unwrap().answer == Expected::Refused(Reason::Shed)
    };
    let request = (0..10_000).map(of).find(is_shed).unwrap();
    // A rule for a tenant that was not there when the gate was last shown.
    assert_eq!(lane.try_admit(&request).unwrap_err().reason(), Reason::Shed);
    let mut settings = (**controller.config()).clone();
    settings.tenants = vec![TenantSettings::new("#7").cap(1)];
    controller
        .reconfigure(cinnamon_core::Config::new(settings).unwrap())
        .unwrap();
    controller.tick(clock.now());
    assert!(lane.try_admit(&request).is_err());
    assert_eq!(controller.tenants()[0].offered, 1, "it came to the engine");
    // A mode in which nobody is refused, at once.
    lane.set_mode(Mode::Monitor);
    assert!(lane.try_admit(&request).is_ok());
    lane.set_mode(Mode::Enforce);
    // A closed lane says so.
    controller.close();
    assert_eq!(
        lane.try_admit(&request).unwrap_err().reason(),
        Reason::Closed
    );
}

#[test]
fn many_threads_lose_no_refusal_and_count_none_twice() {
    const THREADS: u64 = 4;
    const EACH: u64 = 30_000;
    let (controller, lane, clock) = held(Settings::one_lane("main", 64));
    let before = lane.snapshot();
    let shed = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (lane, shed) = (&lane, &shed);
                scope.spawn(move || {
                    for n in 0..EACH {
                        let key = thread * EACH + n;
                        let request = Request::new(Tier::ALL[(key % 6) as usize]).key(key * 31);
                        match lane.try_admit(&request) {
                            Ok(permit) => permit.finish(Completion::success()),
                            Err(rejected) if rejected.reason() == Reason::Shed => {
                                shed.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(_) => {}
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                clock.advance(Duration::from_millis(10));
                controller.tick(clock.now());
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::Release);
    });
    let after = lane.snapshot();
    assert_eq!(after.offered - before.offered, THREADS * EACH);
    let counted =
        |of: &cinnamon_core::LaneSnapshot| of.verdicts.total(Verdict::Refuse(Reason::Shed));
    assert_eq!(
        counted(&after) - counted(&before),
        shed.load(Ordering::Relaxed)
    );
    assert_conserved(&after);
    assert_eq!(after.in_use, 0);
}
