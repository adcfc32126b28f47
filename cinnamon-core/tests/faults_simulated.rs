//! Faults that adaptive limiters of others really had, as whole scenarios in virtual time. The number is the one in
//! the book's chapter "Faults of others".

#![allow(
    clippy::expect_used,
    reason = "a helper of tests may end the test that calls it"
)]

mod support;

use cinnamon_core::simulation::{
    Arrivals, Burst, Deadline, End, Fate, Phase, PlantKind, Scenario, Service, Shape, View, Witness,
};
use cinnamon_core::{Instant, LaneSettings, Limit, Settings, ShareSettings, SignalState, Tier};
use support::signals::*;

fn auto(initial: u32) -> Settings {
    let lane = LaneSettings::new("main", 1).limit(Limit::auto().initial(initial));
    Settings::default().lane(lane)
}

fn phases(phases: &[(f64, f64, f64)]) -> Vec<Phase> {
    let phase = |&(seconds, load, capacity)| Phase::new("phase", seconds, load).capacity(capacity);
    phases.iter().map(phase).collect()
}

/// The settled limit over time.
#[derive(Default)]
struct Limits(Vec<(f64, u32)>);

impl Witness for Limits {
    fn woken(&mut self, now: Instant, view: &View) {
        self.0.push((seconds(now), view.limit_settled));
    }
}

impl Limits {
    fn within(&self, from_s: f64, to_s: f64) -> (u32, u32) {
        let of = |&&(at_s, _): &&(f64, u32)| (from_s..to_s).contains(&at_s);
        let limits: Vec<u32> = self.0.iter().filter(of).map(|it| it.1).collect();
        let least = limits.iter().min().expect("it ticked");
        (*least, *limits.iter().max().expect("it ticked"))
    }
}

fn limits(settings: Settings, scenario: &Scenario) -> Limits {
    let mut limits = Limits::default();
    scenario
        .run(&mut virtual_controller(settings), &mut limits)
        .expect("the scenario is in bounds");
    limits
}

/// Netflix/concurrency-limits#165 and #137, failsafe-go/failsafe-go#127: the baseline went up with a sustained overload
/// until nothing was limited. There is no baseline of latency here to go up: what counts is the throughput that slots
/// bring.
#[test]
fn bug_19_a_store_that_is_slow_for_ten_minutes_does_not_take_the_limit_up() {
    // From 20 ms to a flat 5 s, at 140 requests a second.
    let scenario = Scenario {
        service: Service {
            shape: Shape::Constant,
            ..Service::new(4, 0.02)
        },
        phases: phases(&[(60.0, 0.7, 1.0), (600.0, 0.7, 0.004), (60.0, 0.7, 1.0)]),
        ..Scenario::default()
    };
    for (settings, most) in [(auto(4), 8), (auto(64), 64)] {
        let limits = limits(settings.clone(), &scenario);
        let (_, peak) = limits.within(60.0, 660.0);
        assert!(peak <= most, "{peak}");
        let (log, _) = run_with(settings, &scenario);
        let lost = 700.0 / 5.0 - log.good_per_s(665.0, 720.0);
        assert!(lost < 1.0, "{lost} a second are lost when it is over");
    }
}

/// tower-resilience 0.14: a store that became five times slower for good took the limit from 200 to 1.
#[test]
fn bug_20_a_store_that_is_slower_for_good_keeps_its_slots() {
    let scenario = Scenario {
        phases: phases(&[(30.0, 1.5, 1.0), (60.0, 1.5, 0.2)]),
        ..Scenario::default()
    };
    let limits = limits(auto(20), &scenario);
    let (least, most) = limits.within(60.0, 90.0);
    assert!(least >= 14 && most <= 30, "{least} to {most}");
}

/// envoyproxy/envoy#8337 and #9007: probes in step across a fleet, and probes that refused. #46602: the floor was taken
/// for the width of a probe. #9947: it was ignored.
#[test]
fn bug_24_trials_are_not_in_step_refuse_nobody_in_calm_and_keep_the_floor() {
    // When each of a fleet is on trial, in tenths of a second. A live controller draws its own seed; here it is told, and
    // nothing else is different: a closed loop in which nobody is refused.
    let on_trial = |seed: u64| {
        #[derive(Default)]
        struct Trials(Vec<bool>, u32);
        impl Witness for Trials {
            fn woken(&mut self, now: Instant, view: &View) {
                let at = (seconds(now) * 10.0) as usize;
                if at < self.0.len() {
                    self.0[at] |= view.limit != view.limit_settled;
                }
                self.1 = self.1.min(view.limit);
            }
        }
        let mut settings = auto(20);
        settings.lanes[0].limit = Limit::auto().initial(20).at_least(12);
        settings.cohort_seed = seed;
        let scenario = Scenario {
            arrivals: Arrivals::Closed { think_s: 0.001 },
            phases: phases(&[(60.0, 1.3, 1.0)]),
            ..Scenario::default()
        };
        let mut trials = Trials(vec![false; 600], u32::MAX);
        let mut controller = virtual_controller(settings);
        scenario
            .run(&mut controller, &mut trials)
            .expect("in bounds");
        assert!(trials.1 >= 12, "seed {seed}: {} slots", trials.1);
        trials.0
    };
    let fleet: Vec<Vec<bool>> = (0..24).map(on_trial).collect();
    let at_once = |at: usize| fleet.iter().filter(|trials| trials[at]).count();
    let busiest = (100..600).map(at_once).max().expect("there is time");
    let any = (0..600).filter(|&at| at_once(at) > 0).count();
    eprintln!("{busiest} at most at once, some for {any} tenths of a second");
    assert!(any > 0, "nobody is ever on trial");
    assert!(busiest <= 12, "{busiest} of 24 on trial at once");

    let calm = Scenario {
        phases: phases(&[(300.0, 0.5, 1.0)]),
        ..Scenario::default()
    };
    let (log, _) = run_with(auto(20), &calm);
    assert!(log.fates.iter().all(|fate| fate.end == End::Good));
}

/// cockroachdb/cockroach#115373: tokens fell to nothing while it was quiet. #109361: one low sample let in far too much.
#[test]
fn bug_27_five_quiet_minutes_cost_nothing_afterwards() {
    for load in [0.7, 0.9] {
        let scenario = Scenario {
            phases: phases(&[(300.0, 0.7, 1.0), (300.0, 0.0001, 1.0), (10.0, load, 1.0)]),
            ..Scenario::default()
        };
        let (log, controller) = run_with(auto(20), &scenario);
        let lost = |fate: &&Fate| !matches!(fate.end, End::Good);
        let first: Vec<_> = log.arrived(600.0, 601.0).filter(lost).collect();
        assert!(first.is_empty(), "{load}: {first:?}");
        assert!(controller.snapshot().limit >= 20, "{load}");
    }
}

/// Skepfyr/little-loadshedder#4: a burst of 100 on a service of 1 ms let in two. Netflix/concurrency-limits#35,
/// vectordotdev/vector#18175: it took too long to come up.
#[test]
fn bug_34_the_first_second_of_life_refuses_nobody() {
    // What a lane begins with when nothing is said depends on the machine; this is the least.
    for (parallelism, mean_s, burst) in [(8, 0.001, 100), (8, 0.02, 100), (5, 0.5, 5)] {
        let scenario = Scenario {
            service: Service::new(parallelism, mean_s),
            phases: phases(&[(1.0, 0.5, 1.0)]),
            bursts: vec![Burst {
                at_s: 0.0,
                requests: burst,
                within_s: 0.0,
                class: None,
            }],
            deadline: Deadline {
                base_s: 60.0,
                services: 0.0,
                told: false,
            },
            ..Scenario::default()
        };
        let (log, _) = run_with(auto(8), &scenario);
        let good = log
            .fates
            .iter()
            .filter(|fate| fate.end == End::Good)
            .count();
        assert_eq!(good, log.fates.len(), "{parallelism} {mean_s}");
    }
}

/// linkerd/linkerd2#11055 and #11198: with a queue of 100 instead of 10,000, half of a burst failed.
#[test]
fn bug_50_a_burst_of_a_thousand_short_requests_is_absorbed() {
    for within_s in [0.0, 0.05] {
        let scenario = Scenario {
            service: Service::new(64, 0.002),
            phases: phases(&[(4.0, 0.6, 1.0)]),
            bursts: vec![Burst {
                at_s: 2.0,
                requests: 1_000,
                within_s,
                class: None,
            }],
            ..Scenario::default()
        };
        let (log, _) = run_with(Settings::one_lane("main", 64), &scenario);
        let lost = log.fates.iter().filter(|fate| fate.end != End::Good);
        assert_eq!(lost.count(), 0, "within {within_s} s");
    }
}

/// cardstack/boxel#5572, Netflix/concurrency-limits#120, teradata-labs/loom#376: the low tier starved for ever, or aged
/// until everything was of the top class. Strict priority here, unless a share is reserved, and no tier ever changes.
#[test]
fn bug_57_the_low_tier_gets_what_is_said_and_stays_what_it_is() {
    let served = |shares: &[ShareSettings]| {
        let mut settings = Settings::one_lane("main", 20);
        settings.lanes[0].shares = shares.to_vec();
        let scenario = Scenario {
            phases: phases(&[(600.0, 1.1, 1.0)]),
            mix: [0.95, 0.0, 0.0, 0.0, 0.0, 0.05],
            ..Scenario::default()
        };
        let (log, _) = run_with(settings, &scenario);
        assert!(
            log.fates
                .iter()
                .all(|fate| fate.tier == fate.priority.tier())
        );
        [Tier::T0, Tier::T5].map(|tier| log.good_of(tier, 10.0, 600.0))
    };
    let [t0, t5] = served(&[]);
    assert!(t0 > 0.94 && t5 < 0.15, "strict: {t0} {t5}");
    // A share is slots: two of them lose a fifth of what would keep them half busy, four lose next to nothing.
    let [t0, t5] = served(&[ShareSettings::stealable(Tier::T5, 0.1)]);
    assert!(t0 > 0.89 && t5 > 0.7, "with a tenth: {t0} {t5}");
    let [t0, t5] = served(&[ShareSettings::stealable(Tier::T5, 0.2)]);
    assert!(t0 > 0.88 && t5 > 0.97, "with a fifth: {t0} {t5}");
}

/// tikv/tikv#14392: a level far over its limit counted for nothing, for it hardly rose.
#[test]
fn bug_66_a_gauge_that_creeps_past_its_target_counts() {
    // Room for 1.2 of what is asked, less and less over five minutes, to 0.8.
    let carries: Vec<(f64, f64)> = (0..=300)
        .map(|s| (f64::from(s), 0.7 * (1.2 - 0.4 * f64::from(s) / 300.0)))
        .collect();
    let level = plant(PlantKind::Level, &carries, 2.0);
    let (log, controller) = run(&scenario(vec![level], &[(360.0, 0.7)]));
    assert_eq!(log.shed(0.0, 140.0), 0, "below its target");
    let (settled, _, most) = log.pressure(320.0, 360.0);
    assert!(
        (settled - 1.0).abs() < 0.05 && most < 1.15,
        "{settled} {most}"
    );
    assert_eq!(controller.signals()[0].state, SignalState::Engaged);
}
