//! The control law on the manual clock: a sequence of overloads, with fixed seeds, against the
//! figures that a prototype of the law reached (medians of goodput and of t0+t1).
//!
//! `cargo test -p cinnamon-core --all-features --test control_law -- --nocapture` prints the table.

#![allow(clippy::expect_used, reason = "a failed expectation is a failed test")]

use cinnamon_core::simulation::{
    Deadline, Phase, PhaseReport, Report, Scenario, Service, VirtualController,
};
use cinnamon_core::{Law, Settings, Tier};

/// The sequence, in seconds times `k`: every kind of overload, each followed by calm.
fn scenario(seed: u64, parallelism: u32, mean_s: f64, k: f64) -> Scenario {
    let phase = |name: &str, seconds: f64, load: f64| Phase::new(name, seconds * k, load);
    Scenario {
        seed,
        service: Service::new(parallelism, mean_s),
        phases: vec![
            phase("0.7x", 10.0, 0.7),
            phase("2x", 20.0, 2.0),
            phase("12x", 10.0, 12.0),
            phase("back at 0.7x", 15.0, 0.7),
            phase("capacity 0.4", 15.0, 0.7).capacity(0.4),
            phase("capacity back", 15.0, 0.7),
            phase("surge of t3-t5", 10.0, 0.7).low_tiers(33.3),
            phase("after the surge", 15.0, 0.7),
            phase("1.4x", 10.0, 1.4),
        ],
        deadline: Deadline {
            base_s: (6.0 * mean_s).max(1.0),
            services: 0.0,
            told: false,
        },
        ..Scenario::default()
    }
}

fn run_with(scenario: &Scenario, law: Law) -> Report {
    let mut settings = Settings::one_lane("main", scenario.service.parallelism);
    settings.law = law;
    let mut lane = VirtualController::new(settings).expect("settings are in bounds");
    scenario
        .run(&mut lane, &mut ())
        .expect("the scenario is in bounds")
}

fn run(scenario: &Scenario) -> Report {
    run_with(scenario, Law::Budget)
}

fn runs(seeds: u64, parallelism: u32, mean_s: f64, k: f64) -> Vec<Report> {
    let run = |seed| run(&scenario(seed, parallelism, mean_s, k));
    (1..=seeds).map(run).collect()
}

fn median(reports: &[Report], phase: &str, of: impl Fn(&PhaseReport) -> f64) -> f64 {
    let figure = |report: &Report| of(report.phase(phase).expect("phase of the sequence"));
    let mut figures: Vec<f64> = reports.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn t0_t1(phase: &PhaseReport) -> f64 {
    phase.success(&[Tier::T0, Tier::T1])
}

/// Prints a line per phase and returns what strays from the expected medians.
fn compare(name: &str, reports: &[Report], expected: &[(&str, f64, Option<f64>)]) -> Vec<String> {
    let mut strays = Vec::new();
    for &(phase, goodput, protected) in expected {
        let measured = median(reports, phase, |p| p.goodput);
        let measured_protected = median(reports, phase, t0_t1);
        let first_2s = median(reports, phase, PhaseReport::refused_share_first_2s);
        let step = median(reports, phase, |p| p.threshold_step);
        println!(
            "{name:10} {phase:16} goodput {measured:.3} (expected {goodput:.3})  t0+t1 {measured_protected:.4}  \
             refused in first 2 s {first_2s:.3}  threshold step {step:.1}"
        );
        if (measured - goodput).abs() > 0.02 {
            strays.push(format!(
                "{name}, {phase}: goodput {measured:.3}, expected {goodput:.3}"
            ));
        }
        if let Some(protected) = protected.filter(|p| (measured_protected - p).abs() > 0.02) {
            strays.push(format!(
                "{name}, {phase}: t0+t1 {measured_protected:.4}, expected {protected:.4}"
            ));
        }
    }
    strays
}

#[test]
fn a_service_of_1_000_rps_reaches_the_prototypes_figures() {
    let reports = runs(7, 20, 0.02, 1.0);
    let strays = compare(
        "1,000 rps",
        &reports,
        &[
            ("0.7x", 1.0, Some(1.0)),
            ("2x", 0.996, Some(1.0)),
            ("12x", 0.996, None),
            ("back at 0.7x", 1.0, Some(1.0)),
            ("capacity 0.4", 1.002, Some(1.0)),
            ("capacity back", 1.0, Some(1.0)),
            ("surge of t3-t5", 1.002, Some(1.0)),
            ("after the surge", 1.0, Some(1.0)),
            ("1.4x", 0.993, Some(1.0)),
        ],
    );
    assert!(strays.is_empty(), "seeds 1 to 7: {strays:#?}");
}

#[test]
fn a_service_of_32_000_rps_reaches_the_prototypes_figures() {
    let reports = runs(3, 64, 0.002, 0.2);
    let strays = compare(
        "32,000 rps",
        &reports,
        &[
            ("0.7x", 1.0, Some(1.0)),
            ("2x", 0.997, Some(1.0)),
            ("12x", 0.999, None),
            ("back at 0.7x", 1.0, Some(1.0)),
            ("capacity 0.4", 1.0, Some(1.0)),
            ("capacity back", 1.0, Some(1.0)),
            ("surge of t3-t5", 0.992, Some(0.996)),
            ("after the surge", 1.0, Some(1.0)),
            ("1.4x", 0.987, Some(1.0)),
        ],
    );
    assert!(strays.is_empty(), "seeds 1 to 3: {strays:#?}");
}

#[test]
fn nothing_is_lost_in_calm() {
    let mut calm = scenario(11, 20, 0.02, 1.0);
    calm.phases = vec![
        Phase::new("0.7x", 300.0, 0.7),
        Phase::new("0.8x", 300.0, 0.8),
    ];
    for phase in run(&calm).phases {
        assert_eq!(
            phase.refused_at_gate + phase.lost_in_queue,
            0,
            "seed 11, {}",
            phase.name
        );
    }
}

#[test]
fn t0_is_never_refused_by_the_gate_while_it_fits() {
    for report in runs(3, 20, 0.02, 0.5) {
        for phase in report.phases {
            assert!(
                phase.success(&[Tier::T0]) > 0.999,
                "{}: {:?}",
                phase.name,
                phase
            );
        }
    }
}

#[test]
fn bug_73_ten_minutes_at_100x_do_not_wind_the_law_up() {
    let mut long = scenario(7, 20, 0.02, 1.0);
    long.phases = vec![
        Phase::new("100x", 600.0, 100.0),
        Phase::new("right after", 5.0, 0.5),
        Phase::new("later", 20.0, 0.5),
    ];
    let report = run(&long);
    let lost = |p: &PhaseReport| (p.refused_at_gate + p.lost_in_queue) as f64 / p.offers() as f64;
    let (after, later) = (&report.phases[1], &report.phases[2]);
    assert!(
        lost(after) < 0.05,
        "seed 7: {:.3} refused in the first 5 s",
        lost(after)
    );
    assert_eq!(lost(later), 0.0, "seed 7: {later:?}");
    assert!(report.phases[0].goodput > 0.95, "{:?}", report.phases[0]);
}

#[test]
fn the_flow_law_runs_and_holds_its_standing_queue() {
    let report = run_with(&scenario(3, 20, 0.02, 0.5), Law::Flow);
    let overload = report.phase("2x").expect("phase of the sequence");
    assert!(overload.goodput > 0.9, "seed 3: {overload:?}");
    // What the budget law was made to do better: release when the load is gone.
    let back = report.phase("back at 0.7x").expect("phase of the sequence");
    assert!(back.refused_share_first_2s() > 0.3, "seed 3: {back:?}");
}
