//! The limit that finds itself, on the simulated store: what it finds, what it leaves alone, what it costs.

#![allow(
    clippy::expect_used,
    reason = "a helper of tests may end the test that calls it"
)]

use cinnamon_core::simulation::{
    End, Fate, Phase, Scenario, Service, View, VirtualController, Witness,
};
use cinnamon_core::{Instant, LaneSettings, Limit, Mode, Settings};

fn settings(limit: Limit) -> Settings {
    Settings::default().lane(LaneSettings::new("main", 1).limit(limit))
}

#[test]
fn a_ceiling_below_what_the_store_can_do_costs_some_slots_for_a_while_and_not_the_store() {
    // An exponential service of 20 ms has its P90 at 46 ms, whatever the slots.
    for seed in 1..=3 {
        let ceiling = Limit::auto().initial(20).service_max_us(30_000);
        let calm = simulate(ceiling, (20.0, 0.7), Mode::Enforce, seed);
        let answered = f64::from(calm.good) / (20.0 * 700.0);
        assert!(answered > 0.95, "seed {seed}: {answered}");
        let busy = simulate(ceiling, (20.0, 1.5), Mode::Enforce, seed);
        assert!(busy.settled() >= 12, "seed {seed}: {:?}", busy.limits);
    }
}

/// What became of a run.
#[derive(Debug, Default)]
struct Run {
    /// When, the limit in force, the settled limit; at each change.
    limits: Vec<(f64, u32, u32)>,
    good: u32,
}

impl Witness for Run {
    fn ended(&mut self, fate: &Fate) {
        self.good += u32::from(fate.end == End::Good);
    }

    fn woken(&mut self, now: Instant, view: &View) {
        let (limit, settled) = (view.limit, view.limit_settled);
        let last = self.limits.last();
        if last.is_none_or(|last| (last.1, last.2) != (limit, settled)) {
            let now_s = now.as_nanos() as f64 * 1e-9;
            self.limits.push((now_s, limit, settled));
        }
    }
}

impl Run {
    fn settled(&self) -> u32 {
        self.limits.last().expect("it ticks").2
    }

    fn moves(&self) -> usize {
        let moves = |pair: &&[(f64, u32, u32)]| pair[0].2 != pair[1].2;
        self.limits.windows(2).filter(moves).count()
    }

    /// Seconds on trial.
    fn trials_s(&self) -> f64 {
        let trial = |pair: &[(f64, u32, u32)]| match pair {
            [(from_s, limit, settled), (to_s, ..)] if limit != settled => to_s - from_s,
            _ => 0.0,
        };
        self.limits.windows(2).map(trial).sum()
    }
}

/// So many seconds of so much load on a store with room for 20 and 1,000 a second.
fn simulate(limit: Limit, (seconds, load): (f64, f64), mode: Mode, seed: u64) -> Run {
    let mut settings = settings(limit);
    settings.mode = mode;
    let scenario = Scenario {
        seed,
        phases: vec![Phase::new("steady", seconds, load)],
        ..Scenario::default()
    };
    let mut controller = VirtualController::new(settings).expect("in bounds");
    let mut run = Run::default();
    scenario.run(&mut controller, &mut run).expect("in bounds");
    run
}

fn steady(start: u32, load: f64, mode: Mode, seed: u64) -> Run {
    simulate(Limit::auto().initial(start), (20.0, load), mode, seed)
}

#[test]
fn auto_finds_the_room_of_the_store_from_too_few_and_from_too_many() {
    for start in [2, 8, 80] {
        for seed in 1..=3 {
            let slots = steady(start, 1.5, Mode::Enforce, seed).settled();
            assert!((16..=24).contains(&slots), "{start} {seed}: {slots}");
        }
    }
}

#[test]
fn auto_leaves_a_limit_alone_that_is_not_used_up_and_one_that_is_only_monitored() {
    for seed in 1..=3 {
        let spare = steady(64, 0.7, Mode::Enforce, seed);
        assert_eq!((spare.limits.len(), spare.settled()), (1, 64));
        let monitored = steady(5, 0.7, Mode::Monitor, seed);
        assert_eq!((monitored.limits.len(), monitored.settled()), (1, 5));
        assert!(steady(5, 0.7, Mode::Enforce, seed).moves() > 0);
    }
}

/// Ten requests a second, of half a second each, on a store with room for five: three slots are too few for 0.7x.
#[test]
fn more_slots_that_are_needed_are_kept_although_few_samples_seem_to_take_longer() {
    let mut stayed = Vec::new();
    for seed in 1..=30 {
        let mut scenario = Scenario {
            seed,
            service: Service::new(5, 0.5),
            phases: vec![Phase::new("calm", 60.0, 0.7)],
            ..Scenario::default()
        };
        scenario.deadline.base_s = 3.0;
        let settings = settings(Limit::auto().initial(3));
        let mut controller = VirtualController::new(settings).expect("in bounds");
        let mut run = Run::default();
        scenario.run(&mut controller, &mut run).expect("in bounds");
        if run.settled() == 3 {
            stayed.push(seed);
        }
    }
    // In some a minute passes without a trial.
    assert!(
        stayed.len() <= 5,
        "with seeds {stayed:?} three were thought to be enough"
    );
}

/// The same arrivals and work with the right number of slots and with Auto beginning there; 300 s at 1.5x.
#[test]
fn in_a_long_overload_trials_take_little_time_and_less_work() {
    for seed in 1..=2 {
        let run = |limit| simulate(limit, (300.0, 1.5), Mode::Enforce, seed);
        let (fixed, auto) = (run(Limit::fixed(20)), run(Limit::auto().initial(20)));
        let time = auto.trials_s() / 300.0;
        let work = 1.0 - f64::from(auto.good) / f64::from(fixed.good);
        eprintln!("seed {seed}: {time:.3} of the time, {work:.4} of the answers in time");
        assert!((0.01..0.1).contains(&time), "{time}");
        assert!(work < 0.01, "{work}");
    }
}
