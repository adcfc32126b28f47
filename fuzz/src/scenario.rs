//! A scenario file of the lab.

use cinnamon_core::Settings;
use cinnamon_core::simulation::{Arrivals, Scenario, Shape, VirtualController};
use cinnamon_lab::sim::scenario::Named;

/// No text panics. What is accepted is a case on each of its services, and a case that is short enough to be run here
/// comes to its end with everybody answered.
///
/// # Panics
///
/// When that does not hold.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match Named::parse("fuzz", text) {
        Ok(named) => {
            let cases = named.cases().expect("it was checked");
            assert_eq!(cases.len(), named.file.services.len());
            if let Some(case) = cases.iter().find(|case| is_short(&case.run)) {
                runs(&case.run);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn runs(scenario: &Scenario) {
    let slots = scenario.service.parallelism.min(1 << 20);
    let settings = match scenario.writes {
        Some(writes) => VirtualController::two_lanes(slots, writes.parallelism.min(1 << 20)),
        None => Settings::one_lane("main", slots),
    };
    let mut controller = VirtualController::new(settings).expect("in bounds");
    match scenario.run(&mut controller, &mut ()) {
        Ok(report) => {
            assert_eq!(report.phases.len(), scenario.phases.len());
            let lane = controller.snapshot();
            assert_eq!((lane.in_use, lane.waiting), (0, 0));
            assert_eq!(lane.verdicts.sum(), lane.offered);
        }
        // What signals may be called is for the controller to say.
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Some hundred requests within some seconds, each of a second or so.
fn is_short(scenario: &Scenario) -> bool {
    let seconds: f64 = scenario.phases.iter().map(|phase| phase.seconds).sum();
    let offers: f64 = scenario
        .phases
        .iter()
        .map(|phase| {
            let most = phase.tenants.iter().copied().fold(1.0, f64::max);
            let times = phase.load * most * phase.low_tiers.max(1.0) * (1.0 + phase.hot);
            phase.seconds * times * scenario.service.capacity_per_s()
        })
        .sum();
    let bursts: f64 = scenario.bursts.iter().map(|b| f64::from(b.requests)).sum();
    let attempts = f64::from(scenario.clients.retries) + 1.0;
    let service = &scenario.service;
    let shape = match service.shape {
        Shape::Constant | Shape::Exponential => true,
        Shape::Lognormal { cv } => cv <= 3.0,
        Shape::Bimodal { times, .. } => times <= 100.0,
    };
    let often = |every_s: f64| seconds / every_s > 100.0;
    let speed = scenario.phases.iter().map(|phase| phase.capacity);
    let room = scenario.phases.iter().map(|phase| phase.parallelism);
    seconds <= 5.0
        && (offers + bursts) * attempts <= 400.0
        && scenario.phases.len() <= 100
        && scenario.clients.retry_after_s <= 1.0
        && service.mean_s <= 0.5
        && shape
        && speed.chain(room).all(|times| times >= 0.1)
        && service
            .work
            .iter()
            .all(|work| (0.1..=10.0).contains(&work.times))
        && !service
            .pauses
            .is_some_and(|it| often(it.every_s) || it.length_s > 0.5 * it.every_s)
        && !service
            .slowness
            .is_some_and(|it| often(it.every_s.min(it.length_s)) || it.speed < 0.1)
        && scenario.key_space.is_none_or(|space| space.keys <= 10_000)
        && !scenario.writes.is_some_and(|writes| writes.mean_s > 0.5)
        && scenario.plants.iter().all(|plant| plant.delay_s <= 5.0)
        && match scenario.arrivals {
            Arrivals::Closed { think_s } => think_s >= 0.1,
            Arrivals::Batches { size } => size <= 100,
            Arrivals::OnOff { on_s, off_s } => on_s + off_s >= 0.01 && off_s <= 1.0,
            Arrivals::Poisson => true,
        }
}
