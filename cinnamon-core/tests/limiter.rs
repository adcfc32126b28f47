//! Limits that move: one's own limiter, what becomes of slots and waiters, changes while it runs, files.

#![allow(
    clippy::expect_used,
    reason = "a helper of tests may end the test that calls it"
)]

mod support;

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use cinnamon_core::{
    Clock, Completion, Config, Controller, Lane, LaneSettings, Limit, LimitChange, LimitRule,
    Limiter, ManualClock, Mode, Outcome, Settings, SlotUse, Wanted,
};
use support::*;

const TICK: Duration = Duration::from_millis(10);

/// Wants what it is told to want, and keeps what it is told.
#[derive(Clone, Debug, Default)]
struct Scripted(Arc<Mutex<Script>>);

#[derive(Debug, Default)]
struct Script {
    /// Slots, and whether only for a trial; `None`: as they are.
    wants: Option<(u32, bool)>,
    panics: bool,
    seen: Vec<SlotUse>,
    moved: Vec<u32>,
}

impl Scripted {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().expect("no test panics with it")
    }

    fn wants(&self, limit: u32) {
        self.script().wants = Some((limit, false));
    }

    fn tries(&self, limit: u32) {
        self.script().wants = Some((limit, true));
    }

    fn asked(&self) -> usize {
        self.script().seen.len()
    }
}

impl Limiter for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn tick(&mut self, seen: &SlotUse) -> Wanted {
        let mut script = self.script();
        script.seen.push(*seen);
        let (limit, trial) = script.wants.unwrap_or((seen.limit, false));
        let panics = script.panics;
        drop(script);
        assert!(!panics, "on purpose");
        Wanted {
            limit,
            rule: "as told",
            trial,
        }
    }

    fn moved(&mut self, limit: u32) {
        self.script().moved.push(limit);
    }
}

/// One lane, its limit in the hands of a script.
struct Rig {
    limiter: Scripted,
    controller: Controller,
    lane: Lane,
    clock: ManualClock,
}

impl Rig {
    fn new(limit: impl Into<Limit>) -> Self {
        let limiter = Scripted::default();
        let clock = ManualClock::new();
        let controller = Controller::builder(config(limit))
            .limiter("main", limiter.clone())
            .build_manual(clock.shared())
            .expect("the lane is there");
        let lane = controller.lane("main").expect("the lane is there");
        Self {
            limiter,
            controller,
            lane,
            clock,
        }
    }

    fn tick(&self) -> u32 {
        self.clock.advance(TICK);
        self.controller.tick(self.clock.now());
        self.lane.snapshot().limit
    }

    fn reconfigure(&self, limit: impl Into<Limit>) -> u32 {
        self.controller
            .reconfigure(config(limit))
            .expect("only the limit is other");
        self.tick()
    }

    /// How often it changed for good, and the last time.
    fn moves(&self) -> (u64, Option<(u32, u32, String)>) {
        let lane = self.lane.snapshot();
        let told = |LimitChange { from, to, rule, .. }| (from, to, rule);
        (lane.limit_moves, lane.limit_moved.map(told))
    }
}

fn settings(limit: impl Into<Limit>) -> Settings {
    Settings::default().lane(LaneSettings::new("main", 1).limit(limit.into()))
}

fn config(limit: impl Into<Limit>) -> Config {
    Config::new(settings(limit)).expect("in bounds")
}

fn told(from: u32, to: u32, rule: &str) -> Option<(u32, u32, String)> {
    Some((from, to, rule.to_owned()))
}

// ----- one's own

#[test]
fn what_ones_own_limiter_wants_is_in_force_with_the_tick_and_told_but_for_trials() {
    let rig = Rig::new(4);
    assert_eq!(rig.lane.snapshot().limit_rule, "scripted");
    assert_eq!((rig.tick(), rig.moves()), (4, (0, None)));
    rig.limiter.wants(7);
    assert_eq!(rig.tick(), 7);
    assert_eq!(rig.moves(), (1, told(4, 7, "as told")));
    rig.limiter.tries(14);
    assert_eq!(rig.tick(), 14);
    assert!(rig.lane.snapshot().limit_trial);
    assert_eq!(rig.moves(), (1, told(4, 7, "as told")), "only a trial");
    rig.limiter.wants(7);
    assert_eq!(rig.tick(), 7);
    assert!(!rig.lane.snapshot().limit_trial);
    assert_eq!(rig.moves().0, 1, "back from a trial is no change");
    rig.limiter.tries(14);
    rig.tick();
    rig.limiter.wants(14);
    rig.tick();
    assert_eq!(
        rig.moves(),
        (2, told(7, 14, "as told")),
        "a trial that stays"
    );
}

#[test]
fn the_lanes_bounds_hold_for_ones_own_limiter_too() {
    for (limit, least, most) in [
        (Limit::auto().initial(4).at_least(2).at_most(6), 2, 6),
        (Limit::fixed(4), 1, cinnamon_core::DEFAULT_FOUND_LIMIT_MAX),
    ] {
        let rig = Rig::new(limit);
        let lane = rig.lane.snapshot();
        assert_eq!((lane.limit_min, lane.limit_max), (least, most));
        rig.limiter.wants(0);
        assert_eq!(rig.tick(), least);
        rig.limiter.tries(u32::MAX);
        assert_eq!(rig.tick(), most);
        rig.limiter.wants(u32::MAX);
        assert_eq!(rig.tick(), most);
        assert_eq!(rig.moves(), (2, told(least, most, "as told")));
    }
}

#[test]
fn it_is_told_what_the_slots_did_since_it_was_asked_last() {
    let rig = Rig::new(2);
    let pass = |ms| rig.clock.advance(Duration::from_millis(ms));
    let waker = CountingWaker::new().1;
    let [first, second] = [(); 2].map(|()| rig.lane.try_admit_owned(&T1.cost(3)).unwrap());
    let mut third = rig.lane.admit_owned(&T1);
    assert!(third.poll_admit(&waker).is_pending());
    pass(2);
    first.finish(Completion::success());
    let Poll::Ready(Ok(third)) = third.poll_admit(&waker) else {
        unreachable!("a slot came back");
    };
    pass(1);
    second.finish(Completion::new(Outcome::Overloaded));
    pass(1);
    third.finish(Completion::new(Outcome::Failure));
    drop(rig.lane.try_admit(&T1).unwrap());
    pass(6);
    rig.controller.tick(rig.clock.now());
    rig.tick();

    let seen = rig.limiter.script().seen.clone();
    let near = |was: f64, is: f64| assert!((was - is).abs() < 1e-9, "{was} {is}: {seen:?}");
    let (first, second) = (seen[0], seen[1]);
    near(first.seconds, 0.01);
    near(first.slot_s, 2.0 * 0.002 + 2.0 * 0.001 + 0.001);
    near(first.full_s, 0.003);
    near(first.waiting_s, 0.002);
    near(first.succeeded_cost, 3.0);
    near(first.succeeded_cost_squares, 9.0);
    // Neither what failed for reasons of its own nor what was given up says anything of the store.
    assert_eq!((first.succeeded, first.overloaded), (1, 1));
    near(first.service_sum_s, 0.005);
    near(first.service_squares_s2, 0.002 * 0.002 + 0.003 * 0.003);
    near(first.service_least_s, 0.002);
    assert_eq!((first.limit, first.in_use, first.in_use_peak), (2, 0, 2));
    assert_eq!(first.fresh, 2);
    near(second.seconds, 0.01);
    assert_eq!((second.finished(), second.in_use_peak), (0, 0));
}

#[test]
fn work_that_began_under_another_limit_is_not_fresh() {
    let rig = Rig::new(4);
    let old = rig.lane.try_admit(&T1).unwrap();
    rig.limiter.wants(5);
    rig.tick();
    let new = rig.lane.try_admit(&T1).unwrap();
    rig.clock.advance(TICK);
    old.finish(Completion::success());
    new.finish(Completion::success());
    rig.tick();
    let seen = *rig.limiter.script().seen.last().expect("asked twice");
    assert_eq!((seen.succeeded, seen.fresh), (2, 1));
    assert!((seen.fresh_sum_s - 0.01).abs() < 1e-9);
}

#[test]
fn one_that_panics_is_taken_out_and_the_limit_stays_where_it_is() {
    let rig = Rig::new(4);
    rig.limiter.wants(9);
    rig.tick();
    rig.limiter.script().panics = true;
    rig.limiter.wants(2);
    assert_eq!(rig.tick(), 9);
    let lane = rig.lane.snapshot();
    assert!(!lane.failed && !rig.controller.snapshot().failed);
    assert_eq!(lane.limit_rule, "fixed");
    assert_eq!((lane.limit_min, lane.limit_max), (9, 9));
    let asked = rig.limiter.asked();
    rig.limiter.script().panics = false;
    assert_eq!(rig.tick(), 9);
    assert_eq!(rig.limiter.asked(), asked, "nobody asks it any more");
    rig.lane.set_limit(3).unwrap();
    assert_eq!(rig.tick(), 3, "but hands can still set it");
    assert_eq!(rig.reconfigure(Limit::auto()), 3);
    assert_eq!(rig.lane.snapshot().limit_rule, "auto");
}

#[test]
fn a_limiter_is_for_a_lane_that_there_is_and_alone() {
    let build = |lanes: [&str; 2]| {
        let settings = settings(4).lane(LaneSettings::new("bulk", 2));
        let builder = Controller::builder(Config::new(settings).unwrap());
        let builder = lanes.into_iter().fold(builder, |builder, lane| {
            builder.limiter(lane, Scripted::default())
        });
        builder
            .build_manual(ManualClock::new().shared())
            .map(|controller| controller.snapshot().lanes.len())
            .map_err(|error| error.to_string())
    };
    assert_eq!(build(["main", "bulk"]), Ok(2));
    assert_eq!(
        build(["main", "mian"]).unwrap_err(),
        "`limiter \"scripted\"` is for lane \"mian\" but must be for one of the lanes main, bulk"
    );
    assert_eq!(
        build(["main", "main"]).unwrap_err(),
        "`limiter \"scripted\"` is for lane \"main\" but must be the only one for its lane"
    );
}

// ----- slots and waiters

#[test]
fn fewer_slots_act_as_they_come_back_and_revoke_none() {
    let rig = Rig::new(8);
    let mut running: Vec<_> = (0..8).map(|_| rig.lane.try_admit(&T1).unwrap()).collect();
    let (woken, waker) = CountingWaker::new();
    let mut waiting = rig.lane.admit(&T1);
    assert!(waiting.poll_admit(&waker).is_pending());
    rig.limiter.wants(3);
    assert_eq!(rig.tick(), 3);
    for left in (3..8).rev() {
        running
            .pop()
            .expect("eight run")
            .finish(Completion::success());
        let lane = rig.lane.snapshot();
        assert_eq!((lane.in_use, lane.free, woken.wakes()), (left, 0, 0));
        assert_conserved(&lane);
    }
    let fresh = rig.limiter.script().seen.last().map(|seen| seen.in_use);
    assert_eq!(fresh, Some(8));
    running
        .pop()
        .expect("three run")
        .finish(Completion::success());
    assert_eq!((rig.lane.snapshot().in_use, woken.wakes()), (3, 1));
    let Poll::Ready(Ok(permit)) = waiting.poll_admit(&waker) else {
        unreachable!("it was woken for that");
    };
    permit.finish(Completion::success());
    drop(running);
    assert_at_rest(&rig.lane.snapshot());
}

#[test]
fn more_slots_wake_as_many_waiters_as_there_are_new_ones() {
    let rig = Rig::new(2);
    let _running = [(); 2].map(|()| rig.lane.try_admit(&T1).unwrap());
    let (woken, waker) = CountingWaker::new();
    let mut waiting: Vec<_> = (0..10).map(|_| rig.lane.admit(&T1)).collect();
    for admit in &mut waiting {
        assert!(admit.poll_admit(&waker).is_pending());
    }
    for (limit, wakes) in [(5, 3), (5, 3), (6, 4), (40, 10)] {
        rig.limiter.wants(limit);
        rig.tick();
        assert_eq!(woken.wakes(), wakes, "{limit}");
        assert_conserved(&rig.lane.snapshot());
    }
    rig.limiter.tries(3);
    rig.tick();
    let lane = rig.lane.snapshot();
    assert_eq!((lane.limit, lane.in_use, lane.waiting), (3, 12, 0));
}

// ----- changes while it runs

#[test]
fn a_limit_set_by_hand_is_told_and_the_limiter_goes_on_from_there() {
    let rig = Rig::new(4);
    rig.limiter.tries(8);
    rig.tick();
    rig.limiter.script().wants = None;
    rig.lane.set_limit(6).unwrap();
    let lane = rig.lane.snapshot();
    assert_eq!((lane.limit, lane.limit_trial), (6, false));
    assert_eq!(rig.moves(), (1, told(4, 6, "by hand")));
    assert_eq!(rig.limiter.script().moved, [6]);
    assert_eq!(rig.tick(), 6);
    assert_eq!(rig.limiter.script().seen.last().map(|s| s.limit), Some(6));
    assert!(rig.lane.set_limit(0).is_err());
    assert_eq!(
        rig.limiter.script().moved,
        [6],
        "what is refused is not told"
    );
}

#[test]
fn the_rule_changes_while_it_runs_and_what_is_in_force_is_where_it_begins() {
    let rig = Rig::new(4);
    rig.limiter.wants(9);
    rig.tick();
    assert_eq!(rig.reconfigure(4), 9, "nothing is other than it was said");
    assert_eq!(rig.lane.snapshot().limit_rule, "scripted");
    rig.limiter.tries(18);
    rig.tick();
    assert_eq!(rig.reconfigure(Limit::auto().at_most(64)), 9);
    let lane = rig.lane.snapshot();
    assert_eq!(
        (lane.limit_rule.as_str(), lane.limit_trial),
        ("auto", false)
    );
    assert_eq!((lane.limit_min, lane.limit_max), (1, 64));
    assert_eq!(rig.moves().0, 1, "nothing has moved");
    assert_eq!(rig.reconfigure(Limit::auto().at_most(5)), 5);
    assert_eq!(rig.moves(), (2, told(9, 5, "by configuration")));
    assert_eq!(rig.reconfigure(Limit::auto().initial(3).at_most(5)), 3);
    for rule in [LimitRule::Gradient2, LimitRule::Vegas, LimitRule::Aimd] {
        assert_eq!(rig.reconfigure(Limit::found(rule).initial(3)), 3);
        let name = format!("{rule:?}").to_lowercase();
        assert_eq!(rig.lane.snapshot().limit_rule, name);
    }
    assert_eq!(rig.reconfigure(12), 12);
    let lane = rig.lane.snapshot();
    assert_eq!(lane.limit_rule, "fixed");
    assert_eq!((lane.limit_min, lane.limit_max), (12, 12));
}

#[test]
fn while_nothing_is_held_back_the_limit_is_held() {
    for mode in [Mode::Monitor, Mode::Off] {
        let rig = Rig::new(4);
        rig.tick();
        rig.lane.set_mode(mode);
        rig.limiter.wants(9);
        let asked = rig.limiter.asked();
        for _ in 0..5 {
            assert_eq!(rig.tick(), 4, "{mode:?}");
        }
        assert_eq!(rig.limiter.asked(), asked, "{mode:?}");
        rig.lane.set_mode(Mode::Enforce);
        rig.tick();
        assert_eq!(rig.tick(), 9, "{mode:?}");
        let seen = rig.limiter.script().seen[asked];
        assert!(
            seen.seconds < 0.015,
            "the time of {mode:?} is not told: {seen:?}"
        );
    }
}

#[test]
fn a_trial_that_is_on_ends_where_it_began_when_monitoring_begins_or_the_limiter_panics() {
    let rig = Rig::new(4);
    rig.limiter.tries(16);
    assert_eq!(rig.tick(), 16);
    rig.lane.set_mode(Mode::Monitor);
    assert_eq!(rig.tick(), 4);
    assert!(!rig.lane.snapshot().limit_trial);
    assert_eq!(rig.limiter.script().moved, [4], "it is to begin anew");

    let rig = Rig::new(4);
    rig.limiter.tries(16);
    rig.tick();
    rig.limiter.script().panics = true;
    assert_eq!(rig.tick(), 4);
    assert_eq!(rig.moves(), (0, told(4, 4, "the limiter panicked")));
}

#[test]
fn what_is_set_by_hand_stands_beyond_the_bounds_and_widens_them() {
    let rig = Rig::new(Limit::auto().initial(8).at_least(4).at_most(32));
    rig.lane.set_limit(100).unwrap();
    assert_eq!((rig.tick(), rig.tick()), (100, 100));
    rig.lane.set_limit(2).unwrap();
    assert_eq!(rig.tick(), 2);
    let lane = rig.lane.snapshot();
    assert_eq!((lane.limit_min, lane.limit_max), (2, 100));
}

#[test]
fn equal_bounds_hold_for_ones_own_limiter() {
    let rig = Rig::new(Limit::auto().at_least(6).at_most(6));
    rig.limiter.wants(50);
    assert_eq!((rig.tick(), rig.tick()), (6, 6));
}

// ----- in files

#[test]
fn a_lanes_limit_in_a_file_is_a_number_a_rule_or_a_table() {
    let read = |limit: &str| {
        let text = format!("[[lanes]]\nname = \"main\"\nlimit = {limit}");
        toml::from_str::<Config>(&text)
            .map(|config| config.lanes[0].limit)
            .map_err(|error| error.to_string())
    };
    for (text, limit) in [
        ("16", Limit::fixed(16)),
        ("\"auto\"", Limit::auto()),
        ("\"vegas\"", Limit::found(LimitRule::Vegas)),
        ("{}", Limit::auto()),
        ("{ rule = \"fixed\", initial = 16 }", Limit::fixed(16)),
        (
            "{ initial = 64, min = 4, max = 512, service_max_us = 50_000 }",
            Limit::auto()
                .initial(64)
                .at_least(4)
                .at_most(512)
                .service_max_us(50_000),
        ),
        (
            "{ expected_per_s = 2000.0, expected_service_us = 5000.0 }",
            Limit::auto().expected(2e3, 5e3),
        ),
    ] {
        assert_eq!(read(text), Ok(limit), "{text}");
        let written = toml::to_string(&settings(limit)).unwrap();
        let again: Config = toml::from_str(&written).unwrap();
        assert_eq!(again.lanes[0].limit, limit, "{written}");
    }
    let silent: Config = toml::from_str("[[lanes]]\nname = \"main\"").unwrap();
    assert_eq!(silent.lanes[0].limit, Limit::auto());
    for (text, expected) in [
        (
            "0",
            "`lanes[0].limit` is 0 but must be between 1 and 1048576",
        ),
        (
            "\"fixed\"",
            "`lanes[0].limit.initial` is nothing but must be a number of slots, since the rule is `fixed`",
        ),
        (
            "{ min = 9, max = 8 }",
            "`lanes[0].limit.max` is 8 but must be between 9 and 1048576",
        ),
        (
            "{ expected_per_s = 2000.0 }",
            "`lanes[0].limit.expected_service_us` is nothing but must be there, since the other half of the hint is",
        ),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    for text in ["-1", "1.5", "\"fancy\"", "{ initail = 4 }", "[4]"] {
        assert!(read(text).is_err(), "{text}");
    }
}
