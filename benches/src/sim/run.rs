//! Runs a plan on all cores.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cinnamon_core::ConfigError;
use cinnamon_core::simulation::{Arrivals, Scenario};

use super::arms::Arm;
use super::bars;
use super::measures::{Figures, figures};
use super::oracle::Oracle;
use super::outcome::{Chart, Row};
use super::record::Record;
use super::scenario::Case;
use super::timeline;

/// One case with the arms that run it, and with how many seeds.
#[derive(Clone, Debug)]
pub struct Task {
    /// The case.
    pub case: Case,
    /// Arms and seeds: 1, 2, … so many.
    pub arms: Vec<(&'static Arm, u64)>,
}

/// What a plan came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Every figure, in the order of the plan.
    pub rows: Vec<Row>,
    /// One picture for each case and arm, of seed 1.
    pub charts: Vec<Chart>,
}

/// Runs of one seed of one case, by index of the arm.
type Runs = Vec<(usize, Vec<Figures>, Option<Chart>)>;

/// How many pieces of work there are; `done` of [`run`] is called after each.
#[must_use]
pub fn pieces(tasks: &[Task]) -> usize {
    tasks.iter().map(|task| most_seeds(task) as usize).sum()
}

fn most_seeds(task: &Task) -> u64 {
    task.arms.iter().map(|&(_, seeds)| seeds).max().unwrap_or(0)
}

/// Runs everything on `threads` threads; the outcome does not depend on how many.
///
/// # Errors
///
/// When a scenario or the settings of an arm are out of bounds.
pub fn run(
    tasks: &[Task],
    threads: usize,
    done: &(dyn Fn() + Sync),
) -> Result<Outcome, ConfigError> {
    let mut jobs: Vec<(usize, u64)> = Vec::new();
    for (i, task) in tasks.iter().enumerate() {
        jobs.extend((1..=most_seeds(task)).map(|seed| (i, seed)));
    }
    // The longest first, so that no core ends alone on one.
    jobs.sort_by_key(|&(task, seed)| {
        let Scenario {
            service, phases, ..
        } = &tasks[task].case.run;
        let offers = phases
            .iter()
            .map(|p| p.seconds * p.load * p.low_tiers)
            .sum::<f64>();
        let arms = tasks[task]
            .arms
            .iter()
            .filter(|&&(_, seeds)| seed <= seeds)
            .count();
        std::cmp::Reverse((offers * service.capacity_per_s()) as u64 * arms as u64)
    });
    let next = AtomicUsize::new(0);
    let results: Mutex<BTreeMap<(usize, u64), Result<Runs, ConfigError>>> = Mutex::default();
    let work = || {
        while let Some(&(task, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = one(&tasks[task], seed);
            let mut results = results
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            results.insert((task, seed), result);
            drop(results);
            done();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    let results = results
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut runs: Vec<Vec<Vec<Vec<Figures>>>> = tasks
        .iter()
        .map(|task| vec![Vec::new(); task.arms.len()])
        .collect();
    let mut outcome = Outcome::default();
    for ((task, _), result) in results {
        for (arm, figures, chart) in result? {
            runs[task][arm].push(figures);
            outcome.charts.extend(chart);
        }
    }
    for (task, by_arm) in tasks.iter().zip(&runs) {
        for (&(arm, _), runs) in task.arms.iter().zip(by_arm) {
            outcome.rows.extend(bars::judge(&task.case, arm.name, runs));
        }
    }
    Ok(outcome)
}

/// All arms of one case with one seed. Where arrivals do not depend on answers, they share a trace,
/// and the oracle runs once.
fn one(task: &Task, seed: u64) -> Result<Runs, ConfigError> {
    let mut case = task.case.clone();
    case.run.seed = seed;
    let closed = matches!(case.run.arrivals, Arrivals::Closed { .. });
    let mut shared: Option<Oracle> = None;
    let mut runs = Runs::new();
    for (i, &(arm, seeds)) in task.arms.iter().enumerate() {
        if seed > seeds {
            continue;
        }
        let mut policy = (arm.build)(&case.run)?;
        let mut record = Record::default();
        case.run.run(policy.as_mut(), &mut record)?;
        drop(policy);
        record.finish();
        let oracle = match shared.take() {
            Some(oracle) if !closed && case.run.writes.is_none() => oracle,
            _ if case.run.writes.is_some() => Oracle::none(&record.trials),
            _ => Oracle::of(&case.run, &record.trials),
        };
        let chart =
            (seed == 1).then(|| timeline::chart(&case, arm.name, &record, &oracle.answered));
        runs.push((i, figures(&case.run, &record, &oracle), chart));
        shared = Some(oracle);
    }
    Ok(runs)
}
