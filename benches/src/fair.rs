//! `lab fair`: who pays for what one caller does?
//!
//! A hot key, a tenant that floods, tags that say nothing or lie, a storm of retries, ten thousand clients in lock-step:
//! each in virtual time, with what is made for it and, as a control, without. The control must fail: a check that it
//! passes is none.

pub mod case;
pub mod look;

use std::process::ExitCode;

use cinnamon_core::ConfigError;
use clap::Args;

use self::case::{Bound, CASES, Case, Figure};

/// Which cases, and how often.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Cases by name; all if none is given.
    #[arg(value_name = "CASE")]
    pub cases: Vec<String>,
    /// Seeds 1, 2, … so many; medians count.
    #[arg(long, default_value_t = 5)]
    pub seeds: u64,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FairError {
    /// No such case.
    #[error("case {name:?} is unknown; known are {known}")]
    UnknownCase {
        /// The name.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// A figure of a case is out of bounds.
    #[error("case {case}: {source}")]
    Config {
        /// The case.
        case: &'static str,
        /// What is out of bounds.
        source: ConfigError,
    },
}

/// One figure of a case over all seeds.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is.
    pub figure: &'static str,
    /// Median.
    pub median: f64,
    /// The worst seed's.
    pub worst: f64,
    /// What it must be; nothing for a figure that is only shown.
    pub bound: Option<Bound>,
}

impl Row {
    /// Whether the median is as it must be.
    #[must_use]
    pub fn held(&self) -> bool {
        self.bound.is_none_or(|bound| bound.holds(self.median))
    }
}

/// A case, with and without what is made for it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// With.
    pub with: Vec<Row>,
    /// Without.
    pub without: Vec<Row>,
}

impl Outcome {
    /// Whether everything held with it, and something did not without.
    #[must_use]
    pub fn held(&self) -> bool {
        self.with.iter().all(Row::held) && !self.without.iter().all(Row::held)
    }
}

/// Runs, prints and judges. 0 when every bar held and every control failed, 1 when not, 2 when there is no outcome.
#[must_use]
pub fn main(options: &Options) -> ExitCode {
    match execute(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("lab fair: {error}");
            ExitCode::from(2)
        }
    }
}

fn execute(options: &Options) -> Result<bool, FairError> {
    let mut good = true;
    for case in chosen(&options.cases)? {
        let outcome = measure(case, options.seeds)?;
        println!("{}: {}", case.name, case.about);
        println!(
            "  {:<44} {:>11} {:>11} {:>13} {:>11}",
            "", "median", "worst", "bound", "without"
        );
        for (with, without) in outcome.with.iter().zip(&outcome.without) {
            let bound = with.bound.map_or(String::new(), |bound| bound.to_string());
            let mark = if with.held() { "" } else { "  missed" };
            println!(
                "  {:<44} {:>11} {:>11} {bound:>13} {:>11}{mark}",
                with.figure,
                short(with.median),
                short(with.worst),
                short(without.median),
            );
        }
        if outcome.without.iter().all(Row::held) {
            println!("  the control holds every bar too: they show nothing");
        }
        good &= outcome.held();
    }
    Ok(good)
}

fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 0.01 || v == 0.0 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Case>, FairError> {
    if names.is_empty() {
        return Ok(CASES.iter().collect());
    }
    let find = |name: &String| {
        let found = CASES.iter().find(|case| case.name == name);
        found.ok_or_else(|| FairError::UnknownCase {
            name: name.clone(),
            known: CASES
                .iter()
                .map(|case| case.name)
                .collect::<Vec<_>>()
                .join(", "),
        })
    };
    names.iter().map(find).collect()
}

/// One case over seeds 1 to `seeds`.
///
/// # Errors
///
/// When a figure of the case is out of bounds.
pub fn measure(case: &'static Case, seeds: u64) -> Result<Outcome, FairError> {
    let failed = |source| FairError::Config {
        case: case.name,
        source,
    };
    let run = |guarded: bool| {
        let runs = (1..=seeds.max(1)).map(|seed| (case.run)(seed, guarded));
        let runs: Vec<Vec<Figure>> = runs.collect::<Result<_, _>>().map_err(failed)?;
        Ok::<_, FairError>(rows(&runs))
    };
    Ok(Outcome {
        with: run(true)?,
        without: run(false)?,
    })
}

fn rows(runs: &[Vec<Figure>]) -> Vec<Row> {
    let Some(first) = runs.first() else {
        return Vec::new();
    };
    let row = |i: usize| {
        let mut values: Vec<f64> = runs.iter().map(|run| run[i].value).collect();
        values.sort_by(f64::total_cmp);
        let bound = first[i].bound;
        let low_is_worst = matches!(bound, Some(Bound::AtLeast(_)));
        let last = values.len() - 1;
        Row {
            figure: first[i].name,
            median: values[last / 2],
            worst: values[if low_is_worst { 0 } else { last }],
            bound,
        }
    };
    (0..first.len()).map(row).collect()
}
