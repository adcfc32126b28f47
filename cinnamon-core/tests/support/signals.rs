//! Signals in simulation: plants, and what became of whom.

use cinnamon_core::simulation::{
    End, Fate, Phase, Plant, PlantKind, Policy, Scenario, Trouble, TroubleKind, View,
    VirtualController, Witness,
};
use cinnamon_core::{Authority, Instant, Reason, Settings, Tier};

/// What happened, in order.
#[derive(Default)]
pub struct Log {
    pub fates: Vec<Fate>,
    pub views: Vec<(f64, View)>,
    /// Time, plant, pressure.
    pub pressures: Vec<(f64, usize, f64)>,
}

pub fn seconds(at: Instant) -> f64 {
    at.as_nanos() as f64 * 1e-9
}

impl Witness for Log {
    fn ended(&mut self, fate: &Fate) {
        self.fates.push(*fate);
    }

    fn woken(&mut self, now: Instant, view: &View) {
        self.views.push((seconds(now), *view));
    }

    fn measured(&mut self, now: Instant, plant: usize, pressure: f64) {
        self.pressures.push((seconds(now), plant, pressure));
    }
}

impl Log {
    pub fn arrived(&self, from_s: f64, to_s: f64) -> impl Iterator<Item = &Fate> {
        self.fates
            .iter()
            .filter(move |fate| (from_s..to_s).contains(&seconds(fate.arrived_at)))
    }

    /// Answers in time per second.
    pub fn good_per_s(&self, from_s: f64, to_s: f64) -> f64 {
        let good = self.arrived(from_s, to_s).filter(|f| f.end == End::Good);
        good.count() as f64 / (to_s - from_s)
    }

    pub fn good_of(&self, tier: Tier, from_s: f64, to_s: f64) -> f64 {
        let of = self.arrived(from_s, to_s).filter(|fate| fate.tier == tier);
        let (good, all) = of.fold((0, 0), |(good, all), fate| {
            (good + usize::from(fate.end == End::Good), all + 1)
        });
        good as f64 / f64::from(all.max(1))
    }

    /// Offers that the gate refused.
    pub fn shed(&self, from_s: f64, to_s: f64) -> usize {
        self.arrived(from_s, to_s)
            .filter(|fate| fate.end == End::Refused(Reason::Shed))
            .count()
    }

    /// Mean, least and greatest pressure of the first plant.
    pub fn pressure(&self, from_s: f64, to_s: f64) -> (f64, f64, f64) {
        let within =
            |(at_s, plant, _): &&(f64, usize, f64)| *plant == 0 && (from_s..to_s).contains(at_s);
        let pressures: Vec<f64> = self.pressures.iter().filter(within).map(|p| p.2).collect();
        (
            pressures.iter().sum::<f64>() / pressures.len() as f64,
            pressures.iter().copied().fold(f64::INFINITY, f64::min),
            pressures.iter().copied().fold(0.0, f64::max),
        )
    }
}

pub fn plant(kind: PlantKind, carries: &[(f64, f64)], time_s: f64) -> Plant {
    Plant {
        name: "plant".to_owned(),
        kind,
        carries: carries.to_vec(),
        time_s,
        declared_s: None,
        delay_s: 0.1,
        period_s: 0.1,
        authority: Authority::Measuring,
        lane: None,
        troubles: Vec::new(),
    }
}

/// A gauge that says this whatever happens.
pub fn gauge(pressure: f64, authority: Authority) -> Plant {
    Plant {
        delay_s: 0.0,
        authority,
        ..plant(PlantKind::Gauge, &[(0.0, pressure)], 1.0)
    }
}

/// A controller under these settings, in virtual time.
pub fn virtual_controller(settings: Settings) -> VirtualController {
    VirtualController::new(settings).expect("settings are in bounds")
}

/// Runs the scenario against this policy.
pub fn play(scenario: &Scenario, policy: &mut dyn Policy) -> Log {
    let mut log = Log::default();
    scenario
        .run(policy, &mut log)
        .expect("the scenario is in bounds");
    log
}

pub fn run_with(settings: Settings, scenario: &Scenario) -> (Log, VirtualController) {
    let mut controller = virtual_controller(settings);
    let log = play(scenario, &mut controller);
    (log, controller)
}

/// 1,000 requests a second on 20 slots.
pub fn run(scenario: &Scenario) -> (Log, VirtualController) {
    run_with(Settings::one_lane("read", 20), scenario)
}

pub fn scenario(plants: Vec<Plant>, phases: &[(f64, f64)]) -> Scenario {
    let phase = |&(seconds, load): &(f64, f64)| Phase::new("phase", seconds, load);
    Scenario {
        phases: phases.iter().map(phase).collect(),
        plants,
        ..Scenario::default()
    }
}

pub fn trouble(from_s: f64, to_s: f64, what: TroubleKind) -> Trouble {
    Trouble { from_s, to_s, what }
}
