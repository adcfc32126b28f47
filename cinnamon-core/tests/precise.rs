//! Culprits that a signal names: they are throttled, and nobody else.
#![allow(
    clippy::expect_used,
    reason = "helpers of tests, outside of a test function"
)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cinnamon_core::{
    Binding, Clock, Completion, Config, Controller, Culprit, Dynamics, Instant, Lane, LaneSettings,
    ManualClock, Mode, OwnedPermit, Reading, Reason, Remedy, Request, Settings, Signal,
    SignalState, Tier, View, Who,
};

const HOT: u64 = 7;

/// Says the pressure that it is told, in hundredths, and that the key 7 has half of the load.
struct Accuser {
    pressure: Arc<AtomicU64>,
    remedy: Remedy,
}

impl Signal for Accuser {
    fn name(&self) -> &str {
        "accuser"
    }

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(Duration::from_secs(1))
    }

    fn remedy(&self) -> Remedy {
        self.remedy
    }

    fn sample(&mut self, _: Instant, _: &View) -> Reading {
        let pressure = self.pressure.load(Ordering::Relaxed) as f64 / 100.0;
        if pressure > 900.0 {
            return Reading::unavailable("one lost sample");
        }
        let who = Who::Key(HOT);
        Reading::pressure(pressure).culprits(vec![Culprit { who, share: 0.5 }])
    }
}

struct Rig {
    controller: Controller,
    lane: Lane,
    clock: ManualClock,
    pressure: Arc<AtomicU64>,
}

impl Rig {
    fn new(remedy: Remedy) -> Self {
        Self::with(remedy, Settings::one_lane("main", 8))
    }

    fn with(remedy: Remedy, settings: Settings) -> Self {
        let pressure = Arc::new(AtomicU64::new(0));
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1));
        let signal = Accuser {
            pressure: Arc::clone(&pressure),
            remedy,
        };
        let config = Config::new(settings).expect("in bounds");
        let controller = Controller::builder(config).signal(signal);
        let controller = controller
            .build_manual(clock.shared())
            .expect("a signal that is one");
        let lane = controller.lane("main").expect("it was configured");
        Self {
            controller,
            lane,
            clock,
            pressure,
        }
    }

    fn say(&self, pressure: f64) {
        self.pressure
            .store((pressure * 100.0) as u64, Ordering::Relaxed);
    }

    /// 200 requests a second of 5 ms, every other one of the hot key; returns what was refused of it and of the rest.
    fn run(&self, seconds: u64) -> [u32; 2] {
        let mut refused = [0, 0];
        for step in 0..seconds * 200 {
            let hot = step % 2 == 0;
            let key = if hot { HOT } else { 1_000 + step };
            let permit = self.lane.try_admit(&Request::new(Tier::T3).key(key));
            self.clock.advance(Duration::from_millis(5));
            match permit {
                Ok(permit) => permit.finish(Completion::success()),
                Err(_) => refused[usize::from(!hot)] += 1,
            }
            if step % 4 == 0 {
                self.controller.tick(self.clock.now());
            }
        }
        refused
    }
}

#[test]
fn who_is_named_is_throttled_and_let_go_when_the_pressure_is_gone() {
    let rig = Rig::new(Remedy::Precise);
    assert_eq!(rig.run(5), [0, 0], "calm");
    rig.say(5.0);
    let [hot, others] = rig.run(10);
    assert!(hot > 700 && others == 0, "{hot} {others}");
    let snapshot = rig.controller.snapshot();
    let throttle = &snapshot.throttles[0];
    assert_eq!(
        (throttle.who, throttle.by.as_str()),
        (Who::Key(HOT), "accuser")
    );
    assert!(
        throttle.refused_cost > 700 && throttle.rate_per_s < 15.0,
        "{throttle:?}"
    );
    assert!(
        (80.0..=120.0).contains(&throttle.offered_per_s),
        "{throttle:?}"
    );
    let signal = snapshot.signal("accuser").unwrap();
    assert_eq!(signal.state, SignalState::Calm, "the gate is left alone");
    assert_eq!(signal.pressure, Some(5.0), "and nothing is hidden");
    let refused = rig
        .lane
        .try_admit(&Request::new(Tier::T3).key(HOT))
        .unwrap_err();
    assert_eq!(
        (refused.reason(), refused.binding()),
        (Reason::Capped, Binding::Signal { index: 0 })
    );
    let explained = rig.lane.explain(&Request::new(Tier::T3).key(HOT)).unwrap();
    assert_eq!(explained.bound_by, "signal accuser");
    assert!(rig.lane.try_admit(&Request::new(Tier::T0).key(HOT)).is_ok());

    rig.say(0.2);
    rig.run(3);
    assert_eq!(rig.run(5), [0, 0]);
    assert!(rig.controller.snapshot().throttles.is_empty());
}

#[test]
fn the_gate_moves_when_the_culprits_throttle_has_not_helped() {
    let rig = Rig::new(Remedy::PreciseFirst);
    rig.run(5);
    rig.say(1.6);
    let state = || rig.controller.snapshot().signals[0].state;
    rig.run(1);
    assert_eq!(
        state(),
        SignalState::Calm,
        "the throttle has three settling times"
    );
    rig.run(2);
    assert_eq!(state(), SignalState::Engaged);
}

#[test]
fn one_whose_remedy_is_broad_names_and_throttles_nobody() {
    let rig = Rig::new(Remedy::Broad);
    rig.run(5);
    rig.say(1.6);
    rig.run(1);
    let snapshot = rig.controller.snapshot();
    assert!(snapshot.throttles.is_empty());
    assert_eq!(snapshot.signals[0].state, SignalState::Engaged);
    assert_eq!(
        snapshot.signals[0].culprits.len(),
        1,
        "shown beside the reason"
    );
}

#[test]
fn a_signal_that_only_monitors_throttles_nobody_and_one_switched_off_lets_go() {
    let rig = Rig::new(Remedy::Precise);
    rig.run(5);
    rig.say(5.0);
    let set = |mode| rig.controller.set_signal_mode("accuser", mode).unwrap();
    set(Mode::Monitor);
    assert_eq!(rig.run(3), [0, 0]);
    set(Mode::Enforce);
    assert!(rig.run(3)[0] > 0);
    set(Mode::Off);
    rig.run(1);
    assert_eq!(rig.run(3), [0, 0]);
}

#[test]
fn without_control_steps_nobody_stays_throttled() {
    let rig = Rig::new(Remedy::Precise);
    rig.run(5);
    rig.say(5.0);
    assert!(rig.run(3)[0] > 0);
    // The control thread is dead: its last word counts for two seconds.
    rig.clock.advance(Duration::from_secs(3));
    let hot = Request::new(Tier::T5).key(HOT);
    for _ in 0..1_000 {
        drop(rig.lane.try_admit(&hot).unwrap());
    }
}

#[test]
fn a_lane_that_nobody_uses_does_not_slow_the_release() {
    let settings = Settings::one_lane("main", 8).lane(LaneSettings::new("idle", 8));
    let rig = Rig::with(Remedy::Precise, settings);
    rig.run(5);
    rig.say(5.0);
    rig.run(10);
    rig.say(0.2);
    rig.run(3);
    assert_eq!(rig.run(5), [0, 0]);
}

#[test]
fn one_lost_sample_does_not_let_a_culprit_go_and_a_lost_signal_does() {
    let rig = Rig::new(Remedy::Precise);
    rig.run(5);
    rig.say(5.0);
    rig.run(10);
    rig.say(1_000.0);
    rig.clock.advance(Duration::from_millis(100));
    rig.controller.tick(rig.clock.now());
    rig.clock.advance(Duration::from_millis(5));
    rig.controller.tick(rig.clock.now());
    assert_eq!(rig.controller.snapshot().throttles.len(), 1);
    // Its horizon is a second, and its grip fades over two of them.
    rig.run(4);
    assert!(rig.controller.snapshot().throttles.is_empty());
    assert_eq!(rig.run(3), [0, 0]);
}

/// The others have gone, and the culprit alone asks for all that the lane can do. It used to be let go only where all of
/// it would fit, and was starved for minutes in an empty lane.
#[test]
fn a_culprit_gets_the_room_that_nobody_else_uses() {
    let settings = Settings::one_lane("main", 10);
    let rig = Rig::with(Remedy::Precise, settings);
    let mut running: VecDeque<(Instant, OwnedPermit)> = VecDeque::new();
    let mut serve = |ms: u64, others: bool| {
        let mut hot_served = 0;
        for step in 0..ms {
            let now = rig.clock.advance(Duration::from_millis(1));
            while running.front().is_some_and(|(until, _)| *until <= now) {
                if let Some((_, permit)) = running.pop_front() {
                    permit.finish(Completion::success());
                }
            }
            let other = (others && step % 10 < 6).then_some(1_000 + step);
            for key in [Some(HOT), other].into_iter().flatten() {
                if let Ok(permit) = rig.lane.try_admit_owned(&Request::new(Tier::T3).key(key)) {
                    hot_served += u64::from(key == HOT);
                    running.push_back((now.after(Duration::from_millis(10)), permit));
                }
            }
            if step % 10 == 1 {
                rig.controller.tick(now);
            }
        }
        hot_served as f64 / ms as f64
    };
    serve(5_000, true);
    rig.say(5.0);
    serve(5_000, true);
    rig.say(0.2);
    serve(3_000, false);
    let share = serve(2_000, false);
    assert!(share > 0.6, "of a thousand a second: {share}");
}
