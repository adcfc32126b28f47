//! Handles that watch lanes by themselves.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cinnamon_core::{
    Completion, Config, Controller, Lane, LaneSettings, ManualClock, Observer, Outcome, Request,
    Scope, Settings, Signal, Tenant, Tier, Who,
};
use cinnamon_signals::{HotKeys, HotTenants, Retries, WriteBytes};

const OTHER: Tier = Tier::T2;

/// Lanes `read` and `write` of one slot each; a tick a tenth of a second.
struct Rig {
    clock: ManualClock,
    controller: Controller,
    read: Lane,
    write: Lane,
}

impl Rig {
    fn new(signal: impl Signal + 'static, observer: impl Observer + 'static) -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1));
        let lanes = ["read", "write"].map(|name| LaneSettings::new(name, 1));
        let mut settings = Settings::one_lane("read", 1);
        settings.lanes = lanes.to_vec();
        let controller = Controller::builder(Config::new(settings).unwrap())
            .signal(signal)
            .observer(Arc::new(observer))
            .build_manual(clock.shared())
            .unwrap();
        Self {
            read: controller.lane("read").unwrap(),
            write: controller.lane("write").unwrap(),
            clock,
            controller,
        }
    }

    /// So many tenths of a second, `work` before each: the last pressure.
    fn run(&self, tenths: u64, mut work: impl FnMut(&Self)) -> f64 {
        for _ in 0..tenths {
            work(self);
            self.controller
                .tick(self.clock.advance(Duration::from_millis(100)));
        }
        let signal = &self.controller.snapshot().signals[0];
        signal.pressure.unwrap_or(f64::NAN)
    }

    fn who(&self) -> Vec<Who> {
        let signal = &self.controller.snapshot().signals[0];
        signal.culprits.iter().map(|one| one.who).collect()
    }
}

fn ends(lane: &Lane, bytes: u32, completion: Completion) {
    let permit = lane.try_admit(&Request::new(OTHER).bytes(bytes)).unwrap();
    permit.finish(completion);
}

#[test]
fn bytes_of_writes_are_counted_corrected_and_taken_back() {
    let (signal, handle) = WriteBytes::new(10_000.0).unwrap();
    let scope = Scope::Lane("write".to_owned());
    let signal = signal.scope(scope).cost_unit(100).unwrap();
    let rig = Rig::new(signal, handle);
    let success = Completion::success();
    let near = |pressure: f64, expected: f64| {
        assert!((pressure - expected).abs() < 1e-9, "{pressure} {expected}");
    };
    near(rig.run(50, |rig| ends(&rig.write, 500, success)), 0.5);
    let reads = rig.run(30, |rig| ends(&rig.read, 50_000, success));
    near(reads, 0.0);
    near(
        rig.run(30, |rig| ends(&rig.write, 500, success.cost(2))),
        0.2,
    );
    let failed = [
        (Outcome::Failure, 0.0),
        (Outcome::Overloaded, 0.5),
        (Outcome::Ignored, 0.5),
    ];
    for (outcome, expected) in failed {
        let pressure = rig.run(30, |rig| ends(&rig.write, 500, Completion::new(outcome)));
        near(pressure, expected);
    }
    let dropped = |rig: &Rig| drop(rig.write.try_admit(&Request::new(OTHER).bytes(500)));
    near(rig.run(30, dropped), 0.0);
}

#[test]
fn who_waits_writes_when_it_begins_and_who_gives_up_never_did() {
    let (signal, handle) = WriteBytes::new(1e9).unwrap();
    let rig = Rig::new(signal.in_flight(1_000).unwrap(), handle);
    let request = Request::new(OTHER).bytes(400);
    rig.run(30, |_| {});
    let in_flight = |rig: &Rig| rig.run(1, |_| {});
    let running = rig.write.try_admit(&request).unwrap();
    let mut waits = pin!(rig.write.admit(&request));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    {
        let mut gives_up = pin!(rig.write.admit(&request));
        assert!(gives_up.as_mut().poll(&mut context).is_pending());
    }
    assert!(rig.write.try_admit(&request).is_err());
    assert_eq!(in_flight(&rig), 0.4);
    running.finish(Completion::success());
    let Poll::Ready(Ok(running)) = waits.as_mut().poll(&mut context) else {
        panic!("its slot is free");
    };
    assert_eq!(in_flight(&rig), 0.4);
    running.finish(Completion::success());
    assert!(in_flight(&rig) < 1e-3, "all that is left is the rate");
}

#[test]
fn keys_and_tenants_are_seen_let_in_or_refused_in_scope_and_with_what_has_none() {
    let scope = || Scope::Lane("write".to_owned());
    let offer = |rig: &Rig| {
        // The slot is taken, so nothing of this is let in.
        for i in 0..100 {
            let request = Request::new(OTHER).key(i).tenant(Tenant(i as u32 % 5));
            assert!(rig.write.try_admit(&request).is_err());
            let hot = Request::new(OTHER).key(7_777).tenant(Tenant(77));
            assert!(rig.write.try_admit(&hot.cost(2)).is_err());
            assert!(rig.write.try_admit(&Request::new(OTHER)).is_err());
            // Out of scope.
            let elsewhere = hot.key(8_888).tenant(Tenant(88));
            assert!((0..3).all(|_| rig.read.try_admit(&elsewhere).is_err()));
        }
    };
    let full = |rig: &Rig| {
        let taken = [&rig.read, &rig.write].map(|lane| lane.try_admit_owned(&Request::new(OTHER)));
        taken.map(Result::unwrap)
    };
    let (signal, handle) = HotKeys::with_seed(1);
    let rig = Rig::new(signal.scope(scope()), handle);
    let _slots = full(&rig);
    rig.run(20, offer);
    assert_eq!(rig.who(), [Who::Key(7_777)]);
    let share = rig.controller.snapshot().signals[0].culprits[0].share;
    assert!((share - 1.0 / 3.0).abs() < 1e-9, "{share}");

    let (signal, handle) = HotTenants::new();
    let rig = Rig::new(signal.scope(scope()), handle);
    let _slots = full(&rig);
    rig.run(20, offer);
    assert_eq!(rig.who(), [Who::Tenant(Tenant(77))]);
    let share = rig.controller.snapshot().signals[0].culprits[0].share;
    assert!((share - 0.5).abs() < 1e-9, "{share}");
}

#[test]
fn retries_are_seen_and_nobody_is_refused_for_them() {
    struct Nobody;
    impl Observer for Nobody {}
    let rig = Rig::new(Retries::new(), Nobody);
    let pressure = rig.run(100, |rig| {
        for attempt in [0, 0, 1] {
            for _ in 0..10 {
                let request = Request::new(Tier::T4).attempt(attempt);
                let permit = rig.write.try_admit(&request).unwrap();
                permit.finish(Completion::success());
            }
        }
    });
    assert!((2.5..3.34).contains(&pressure), "{pressure}");
    let signal = &rig.controller.snapshot().signals[0];
    assert_eq!(signal.budget_per_s, None);
}
