//! The simulation from the outside: Cinnamon holds its bars, whatever must fail fails, and the program
//! says what it should. Fixed seeds, so that a figure is the same on every run.
#![allow(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::collections::BTreeSet;
use std::process::{Command, Output};

use cinnamon_lab::sim::arms::{ARMS, Kind};
use cinnamon_lab::sim::command::{Options, plan};
use cinnamon_lab::sim::outcome::Row;
use cinnamon_lab::sim::run::{Outcome, run};

fn outcome_on(options: &Options, threads: usize) -> Outcome {
    let tasks = plan(options).expect("the built-in files are in order");
    run(&tasks, threads, &|| {}).expect("every figure is in bounds")
}

fn named(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn misses(rows: &[Row]) -> Vec<String> {
    let missed = rows.iter().filter(|row| row.pass == Some(false));
    missed.map(|row| format!("{row:?}")).collect()
}

/// The short form of `lab sim`: every scenario, and as many seeds as a minute allows. A run on a quiet
/// service has a few hundred requests, one on a busy service millions.
const SEEDS: &[(&str, u64)] = &[
    ("10rps", 20),
    ("1000rps", 20),
    ("32000rps", 3),
    ("320000rps", 1),
];

/// Of the scenarios with signals, which are minutes long.
const SIGNAL_SEEDS: u64 = 3;

#[test]
fn cinnamon_holds_every_bar() {
    let mut tasks = plan(&Options {
        arms: named(&["cinnamon"]),
        ..Options::default()
    })
    .expect("the built-in files are in order");
    for task in &mut tasks {
        let seeds = SEEDS
            .iter()
            .find(|(service, _)| *service == task.case.service);
        let signals = !task.case.run.plants.is_empty();
        task.arms[0].1 = if signals {
            SIGNAL_SEEDS
        } else {
            seeds.expect("every service has its seeds").1
        };
    }
    let outcome = run(&tasks, 2, &|| {}).expect("every figure is in bounds");
    let judged = outcome.rows.iter().filter(|row| row.pass.is_some()).count();
    assert!(judged > 900, "only {judged} figures were judged");
    assert_eq!(
        misses(&outcome.rows),
        Vec::<String>::new(),
        "seeds as in {SEEDS:?}"
    );
    for row in &outcome.rows {
        if row.bar.starts_with("goodput") {
            assert!(row.max <= 1.0, "no ratio to the oracle exceeds 1: {row:?}");
        }
        // What was cut off to that end is the noise of a phase's edges and of its longest requests.
        if row.bar == "excess" && row.scenario == "phases" {
            assert!(row.max < 0.03, "the oracle is no oracle: {row:?}");
        }
    }
}

/// Each arm that must fail, with a bar that it must miss: scenario, phase, bar. On 1000rps, seeds 1 to 3.
const MUST_MISS: &[(&str, &str, &str, &str)] = &[
    ("always-admit", "phases", "2x", "t0-t1-median"),
    ("random-shed", "phases", "surge of t3-t5", "t0-t1-median"),
    (
        "frozen-threshold",
        "phases",
        "capacity back",
        "goodput-median",
    ),
    ("no-fraction", "one-level", "2x", "goodput-median"),
    ("no-anti-windup", "stall", "1.2x again", "goodput-median"),
    ("admitted-histogram", "phases", "2x", "step"),
    ("no-sweep", "phases", "1.4x", "ticks-to-target"),
    ("ten-times-gain", "phases", "2x", "inversions"),
    (
        "ten-times-slots",
        "phases",
        "capacity 0.4",
        "goodput-median",
    ),
];

#[test]
fn whatever_must_fail_misses_the_bar_that_is_meant_for_it() {
    let must: BTreeSet<&str> = ARMS
        .iter()
        .filter(|arm| matches!(arm.kind, Kind::Control | Kind::Mutant))
        .map(|arm| arm.name)
        .collect();
    let listed: BTreeSet<&str> = MUST_MISS.iter().map(|row| row.0).collect();
    assert_eq!(must, listed, "every control and every mutant has its bar");
    for scenario in ["phases", "one-level", "stall"] {
        let of_scenario = MUST_MISS.iter().filter(|row| row.1 == scenario);
        let mut arms: Vec<&str> = of_scenario.clone().map(|row| row.0).collect();
        arms.push("cinnamon");
        let tasks = plan(&Options {
            scenarios: named(&[scenario]),
            arms: named(&arms),
            seeds: Some(3),
            ..Options::default()
        });
        let mut tasks = tasks.expect("the built-in files are in order");
        tasks.retain(|task| task.case.service == "1000rps");
        let rows = run(&tasks, 2, &|| {})
            .expect("every figure is in bounds")
            .rows;
        for &(arm, _, phase, bar) in of_scenario {
            let find = |arm: &str| {
                let mut rows = rows
                    .iter()
                    .filter(|row| row.arm == arm && row.phase == phase);
                rows.find(|row| row.bar == bar)
                    .expect("the bar is judged in this phase")
            };
            assert_eq!(find(arm).pass, Some(false), "{:?}", find(arm));
            assert_eq!(find("cinnamon").pass, Some(true), "{:?}", find("cinnamon"));
        }
    }
}

#[test]
fn without_its_signals_cinnamon_misses_the_bars_that_are_theirs() {
    for scenario in [
        "lag",
        "memory",
        "two-signals",
        "both-lanes",
        "telemetry-lost",
    ] {
        let options = Options {
            scenarios: named(&[scenario]),
            arms: named(&["no-signals"]),
            seeds: Some(1),
            ..Options::default()
        };
        let rows = outcome_on(&options, 2).rows;
        let missed = |row: &&Row| row.pass == Some(false) && row.bar == "off-target";
        assert!(rows.iter().any(|row| missed(&row)), "{scenario}");
    }
}

#[test]
fn the_outcome_does_not_depend_on_the_number_of_threads() {
    let options = Options {
        scenarios: named(&["retries", "closed-loop", "quiet"]),
        arms: named(&["cinnamon", "codel"]),
        seeds: Some(2),
        ..Options::default()
    };
    let (one, three) = (outcome_on(&options, 1), outcome_on(&options, 3));
    assert_eq!(one.rows, three.rows);
    assert_eq!(one.charts.len(), three.charts.len());
}

fn lab(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(arguments).output().expect("lab starts")
}

#[test]
fn json_is_one_object_a_line_with_the_fields_and_kinds_that_were_promised() {
    let folder = tempfile::tempdir().expect("a folder for the report");
    let report = folder.path().join("report.html");
    let report = report.to_str().expect("a path in UTF-8");
    let output = lab(&[
        "sim", "quiet", "--arm", "cinnamon", "--seeds", "2", "--json", "--report", report,
    ]);
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(printed.lines().count() > 10, "{printed}");
    for line in printed.lines() {
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(line).expect(line);
        let names: Vec<&str> = object.keys().map(String::as_str).collect();
        let promised = "arm bar bound max median min pass phase scenario seeds service value";
        assert_eq!(names.join(" "), promised, "{line}");
        for text in ["scenario", "service", "arm", "phase", "bar"] {
            assert!(object[text].is_string(), "{line}");
        }
        for number in ["value", "bound", "seeds", "min", "median", "max"] {
            assert!(object[number].is_number(), "{line}");
        }
        assert!(object["pass"].is_boolean(), "{line}");
    }
    let page = std::fs::read_to_string(report).expect("the report was written");
    assert!(page.contains("<svg") && page.contains("quiet"));
}

#[test]
fn a_name_that_does_not_exist_is_answered_with_those_that_do() {
    for (arguments, known) in [
        (
            ["sim", "phasse"].as_slice(),
            "known are phases, near-capacity",
        ),
        (
            &["sim", "phases", "--arm", "codle"],
            "known are cinnamon, none",
        ),
        (&["sim", "/nowhere/a.toml"], "/nowhere/a.toml"),
    ] {
        let output = lab(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(known), "{said}");
    }
}

#[test]
fn list_names_every_scenario_and_every_arm() {
    let printed = String::from_utf8_lossy(&lab(&["list"]).stdout).into_owned();
    for arm in ARMS {
        assert!(
            printed.contains(&format!("  {} ", arm.name)),
            "{}: {printed}",
            arm.name
        );
    }
    for (scenario, _) in cinnamon_lab::sim::scenario::BUILT_IN {
        assert!(
            printed.contains(&format!(" {scenario} ")),
            "{scenario}: {printed}"
        );
    }
}
