//! `lab limits`: does the limit find itself, and what do others find?
//!
//! A simulated store has room for so many requests at once; the right limit, capacity times unloaded service
//! time, is that room, and it is known. Each limiter is let loose on it from good and bad beginnings, while
//! the store changes and its clients misbehave. Three that do not look must fail: a check that they pass is none.

pub mod case;
pub mod judge;
pub mod rules;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cinnamon_core::ConfigError;
use clap::Args;

use self::case::{Case, cases};
use self::judge::{Figures, run};
use self::rules::{RULES, Rule};

/// Which cases and limiters.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Cases whose names begin so; all if none is given.
    #[arg(value_name = "CASE")]
    pub cases: Vec<String>,
    /// Instead of the cases, the grid of rates, service times and wrong beginnings: goodput at twice the capacity.
    #[arg(long)]
    pub grid: bool,
    /// Limiters by name, repeatable; all if none is given.
    #[arg(long, value_name = "NAME")]
    pub rule: Vec<String>,
    /// Seeds 1, 2, … so many; medians count.
    #[arg(long, default_value_t = 10)]
    pub seeds: u64,
    /// Run only this seed, and print each change of the limit.
    #[arg(long, value_name = "SEED")]
    pub trace: Option<u64>,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// No such limiter.
    #[error("limiter {name:?} is unknown; known are {known}")]
    UnknownRule {
        /// The name.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// No such case.
    #[error("no case begins with {name:?}")]
    UnknownCase {
        /// The beginning of a name.
        name: String,
    },
    /// A figure of a case is out of bounds.
    #[error("case {case}: {source}")]
    Config {
        /// The case.
        case: String,
        /// What is out of bounds.
        source: ConfigError,
    },
}

/// One case under one limiter: medians over all seeds.
#[derive(Clone, Debug)]
pub struct Row {
    /// The case's name.
    pub case: String,
    /// The limiter's.
    pub rule: &'static str,
    /// Which bars were missed, and how.
    pub misses: Vec<String>,
    /// Settled limit over the room, or as its bar has it, in the last phase.
    pub ratio: f64,
    /// Mean of [`Figures::regret`].
    pub regret: f64,
    /// Mean of [`Figures::goodput`].
    pub goodput: f64,
}

/// Runs, prints and judges. 0 when Auto held everywhere and every control failed somewhere, 1 when not, 2 when
/// there is no outcome.
#[must_use]
pub fn main(options: &Options) -> ExitCode {
    match execute(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("lab limits: {error}");
            ExitCode::from(2)
        }
    }
}

fn execute(options: &Options) -> Result<bool, LimitsError> {
    let rules = chosen_rules(&options.rule)?;
    let all = if options.grid { case::grid() } else { cases() };
    let cases = chosen_cases(all, &options.cases)?;
    let rows = measure(&cases, &rules, options.seeds, options.trace)?;
    if options.grid {
        return Ok(grid(&rules, &rows));
    }
    print!("{}", judge::table(&rows, &rules));
    let mut good = true;
    for rule in &rules {
        let of_rule: Vec<&Row> = rows.iter().filter(|row| row.rule == rule.name).collect();
        let held = of_rule.iter().filter(|row| row.misses.is_empty()).count();
        println!("{:<11} held {held} of {}", rule.name, of_rule.len());
        match rule.kind {
            rules::Kind::Product => good &= held == of_rule.len(),
            rules::Kind::Control if cases.len() > 1 => good &= held < of_rule.len(),
            _ => {}
        }
    }
    Ok(good)
}

/// The worst cell of the grid, as a share of what the store could have done …
const GRID_WORST: f64 = 0.9;
/// … and what this share of the cells is to reach.
const GRID_SHARE: f64 = 0.95;
const GRID_GOOD: f64 = 0.97;

fn grid(rules: &[&'static Rule], rows: &[Row]) -> bool {
    print!("{}", judge::table(rows, rules));
    let mut held = true;
    for rule in rules {
        let cells = rows.iter().filter(|row| row.rule == rule.name);
        let cells: Vec<f64> = cells.map(|row| row.goodput).collect();
        let worst = cells.iter().copied().fold(f64::INFINITY, f64::min);
        let good = cells
            .iter()
            .filter(|goodput| **goodput >= GRID_GOOD)
            .count();
        let share = good as f64 / cells.len() as f64;
        let holds = worst >= GRID_WORST && share >= GRID_SHARE;
        let word = if holds { "held" } else { "missed" };
        println!(
            "{:<11} worst cell {worst:.3}, {good} of {} cells at {GRID_GOOD} or more: {word}",
            rule.name,
            cells.len()
        );
        if rule.kind == rules::Kind::Product {
            held &= holds;
        }
    }
    held
}

fn chosen_rules(names: &[String]) -> Result<Vec<&'static Rule>, LimitsError> {
    if names.is_empty() {
        return Ok(RULES.iter().collect());
    }
    let find = |name: &String| {
        let found = RULES.iter().find(|rule| rule.name == name);
        found.ok_or_else(|| LimitsError::UnknownRule {
            name: name.clone(),
            known: RULES.map(|rule| rule.name).join(", "),
        })
    };
    names.iter().map(find).collect()
}

fn chosen_cases(all: Vec<Case>, names: &[String]) -> Result<Vec<Case>, LimitsError> {
    for name in names {
        if !all.iter().any(|case| case.name.starts_with(name.as_str())) {
            return Err(LimitsError::UnknownCase { name: name.clone() });
        }
    }
    let wanted = |case: &Case| {
        names.is_empty()
            || names
                .iter()
                .any(|name| case.name.starts_with(name.as_str()))
    };
    Ok(all.into_iter().filter(wanted).collect())
}

/// All cases under all rules, on two threads.
///
/// # Errors
///
/// When a case is out of bounds.
pub fn measure(
    cases: &[Case],
    rules: &[&'static Rule],
    seeds: u64,
    trace: Option<u64>,
) -> Result<Vec<Row>, LimitsError> {
    let jobs: Vec<(usize, usize)> = (0..cases.len())
        .flat_map(|case| (0..rules.len()).map(move |rule| (case, rule)))
        .collect();
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<Row, LimitsError>)>> = Mutex::default();
    let work = || {
        while let Some(&(case, rule)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let index = case * rules.len() + rule;
            let row = one(&cases[case], rules[rule], seeds, trace);
            results
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .push((index, row));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut results = results
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, row)| row).collect()
}

fn one(
    case: &Case,
    rule: &'static Rule,
    seeds: u64,
    trace: Option<u64>,
) -> Result<Row, LimitsError> {
    let failed = |source| LimitsError::Config {
        case: case.name.clone(),
        source,
    };
    let mut all = Vec::new();
    let seeds = trace.map_or(1..=seeds.max(1), |seed| seed..=seed);
    for seed in seeds {
        all.push(run(case, rule, seed, trace.is_some()).map_err(failed)?);
    }
    let mean = |of: fn(&Figures) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    Ok(Row {
        case: case.name.clone(),
        rule: rule.name,
        misses: judge::misses(case, &all),
        ratio: judge::medians(&all, case.bars.len() - 1).0,
        regret: mean(|figures| figures.regret),
        goodput: mean(|figures| figures.goodput),
    })
}
