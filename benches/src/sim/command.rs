//! `lab sim` on the command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use cinnamon_core::ConfigError;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::arms::{self, ARMS, Arm, Kind};
use super::html;
use super::outcome::Row;
use super::run::{Outcome, Task, pieces, run};
use super::scenario::{BUILT_IN, Case, Named, ScenarioError, built_in};
use super::table;

/// Which scenarios, arms and seeds.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// Scenarios by name, or paths of scenario files; all but the long ones if none is given.
    #[arg(value_name = "SCENARIO")]
    pub scenarios: Vec<String>,
    /// Only these arms (may be repeated); see `lab list`.
    #[arg(long = "arm", value_name = "ARM")]
    pub arms: Vec<String>,
    /// Seeds 1 to N for every arm. By default 20 for Cinnamon on the smaller services, 6 where signals are
    /// measured, 4 and 2 where a run has millions of requests, and 2 for the other arms.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub seeds: Option<u64>,
    /// Also the long scenarios, one seed each, and 20 seeds of the others for Cinnamon: some five minutes.
    #[arg(long)]
    pub long: bool,
    /// One JSON object a line instead of tables: every figure that is held to a bar.
    #[arg(long)]
    pub json: bool,
    /// With --json, also the figures that are only reported; their `bound` and `pass` are null.
    #[arg(long, requires = "json")]
    pub figures: bool,
    /// Where the report with the pictures goes.
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub report: PathBuf,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// A scenario cannot be used.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// No such scenario.
    #[error("scenario {name:?} is unknown; known are {known}, and paths that end in .toml")]
    UnknownScenario {
        /// The name.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// No such arm.
    #[error("arm {name:?} is unknown; known are {known}")]
    UnknownArm {
        /// The name.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// A figure of an arm is out of bounds.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The report cannot be drawn.
    #[error(transparent)]
    Html(#[from] html::HtmlError),
    /// The report or a line cannot be written.
    #[error("{what}: {source}")]
    Write {
        /// What was to be written.
        what: String,
        /// Why it was not.
        source: std::io::Error,
    },
}

/// Runs the simulation, prints the outcome and writes the report. 0 when Cinnamon held every bar, 1
/// when it missed one, 2 when there is no outcome.
#[must_use]
pub fn main(options: &Options) -> ExitCode {
    match execute(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("lab sim: {error}");
            ExitCode::from(2)
        }
    }
}

/// What `lab list` says of the simulation.
#[must_use]
pub fn list() -> String {
    let mut text = String::from("scenarios of `lab sim` (* only with --long or by name)\n");
    for named in built_in().unwrap_or_default() {
        let mark = if named.file.long { "*" } else { " " };
        text += &format!("{mark} {:<18} {}\n", named.name, named.file.about);
        text += &format!("  {:<18} on {}\n", "", named.file.services.join(", "));
    }
    text += "\narms of `lab sim`\n";
    for arm in ARMS {
        text += &format!("  {:<18} {}\n", arm.name, arm.about);
    }
    text
}

fn execute(options: &Options) -> Result<bool, CommandError> {
    let tasks = plan(options)?;
    let (outcome, seconds) = with_progress(&tasks)?;
    let held = table::missed(&outcome.rows, "cinnamon").next().is_none();
    if options.json {
        let mut lines = String::new();
        let wanted = |row: &&Row| options.figures || row.pass.is_some();
        for row in outcome.rows.iter().filter(wanted) {
            lines +=
                &serde_json::to_string(row).map_err(|error| write_error("a row", error.into()))?;
            lines.push('\n');
        }
        print!("{lines}");
    } else {
        print!("{}", table::render(&outcome.rows));
    }
    let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let seeds = tasks
        .iter()
        .flat_map(|task| &task.arms)
        .map(|&(_, seeds)| seeds);
    let note = format!(
        "Every run has a seed from 1 on, up to {} a case; figures are medians or worsts over the seeds, pictures show seed 1.",
        seeds.max().unwrap_or(0)
    );
    let page = html::render(
        "Overload in virtual time",
        &format!("lab {command}"),
        &note,
        &outcome.rows,
        &outcome.charts,
    )?;
    std::fs::write(&options.report, page)
        .map_err(|source| write_error(&options.report.display().to_string(), source))?;
    eprintln!(
        "{} runs in {seconds:.1} s; pictures in {}",
        runs(&tasks),
        options.report.display()
    );
    Ok(held)
}

fn write_error(what: &str, source: std::io::Error) -> CommandError {
    CommandError::Write {
        what: what.to_owned(),
        source,
    }
}

fn runs(tasks: &[Task]) -> u64 {
    tasks
        .iter()
        .flat_map(|task| &task.arms)
        .map(|&(_, seeds)| seeds)
        .sum()
}

fn with_progress(tasks: &[Task]) -> Result<(Outcome, f64), CommandError> {
    let bar = ProgressBar::new(pieces(tasks) as u64);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {elapsed} (left {eta})")
    {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let outcome = run(tasks, threads, &|| bar.inc(1));
    let seconds = bar.elapsed().as_secs_f64();
    bar.finish_and_clear();
    Ok((outcome?, seconds))
}

/// Which cases run with which arms and how many seeds.
///
/// # Errors
///
/// When a name is unknown or a file cannot be used.
pub fn plan(options: &Options) -> Result<Vec<Task>, CommandError> {
    let chosen: Vec<&'static Arm> = options
        .arms
        .iter()
        .map(|name| arm(name))
        .collect::<Result<_, _>>()?;
    let mut tasks = Vec::new();
    for named in scenarios(options)? {
        for case in named.cases()? {
            let arms: Vec<&'static Arm> = if chosen.is_empty() {
                by_default(&named, case.service)?
            } else {
                chosen.clone()
            };
            let arms = arms.into_iter().map(|arm| {
                let default = || default_seeds(arm.kind, &case, &named, options.long);
                (arm, options.seeds.unwrap_or_else(default))
            });
            let arms = arms.collect();
            tasks.push(Task { case, arms });
        }
    }
    Ok(tasks)
}

fn scenarios(options: &Options) -> Result<Vec<Named>, CommandError> {
    if options.scenarios.is_empty() {
        let mut all = built_in()?;
        all.retain(|named| options.long || !named.file.long);
        return Ok(all);
    }
    options
        .scenarios
        .iter()
        .map(|name| {
            let path = Path::new(name);
            if path.extension().is_some_and(|ending| ending == "toml") {
                return Ok(Named::read(path)?);
            }
            let text = BUILT_IN.iter().find(|(known, _)| known == name);
            let (name, text) = text.ok_or_else(|| CommandError::UnknownScenario {
                name: name.clone(),
                known: BUILT_IN
                    .iter()
                    .map(|&(name, _)| name)
                    .collect::<Vec<_>>()
                    .join(", "),
            })?;
            Ok(Named::parse(name, text)?)
        })
        .collect()
}

fn arm(name: &str) -> Result<&'static Arm, CommandError> {
    arms::arm(name).ok_or_else(|| CommandError::UnknownArm {
        name: name.to_owned(),
        known: ARMS
            .iter()
            .map(|arm| arm.name)
            .collect::<Vec<_>>()
            .join(", "),
    })
}

/// The product, and beside it what the file names, else the baselines; those only on the middle
/// service, where a run is cheap and nothing is special.
fn by_default(named: &Named, service: &str) -> Result<Vec<&'static Arm>, CommandError> {
    let mut arms: Vec<&'static Arm> = ARMS
        .iter()
        .filter(|arm| arm.kind == Kind::Product)
        .collect();
    if service != MIDDLE && named.file.services.len() > 1 {
        return Ok(arms);
    }
    match &named.file.arms {
        Some(names) => {
            for name in names {
                arms.push(arm(name)?);
            }
        }
        None => arms.extend(ARMS.iter().filter(|arm| arm.kind == Kind::Baseline)),
    }
    Ok(arms)
}

/// The service on which arms are compared.
const MIDDLE: &str = "1000rps";

/// Seeds of a scenario with signals.
const SIGNAL_SEEDS: u64 = 6;

/// Enough for a worst run to mean something, few enough for a minute on two cores.
fn default_seeds(kind: Kind, case: &Case, named: &Named, long: bool) -> u64 {
    match (kind, case.service) {
        // Hours of traffic are many runs in one.
        _ if named.file.long => 1,
        (Kind::Product, _) if long => 20,
        // Minutes of traffic each, and a loop with little chance in it.
        (Kind::Product, _) if !case.run.plants.is_empty() => SIGNAL_SEEDS,
        (Kind::Product, "32000rps") => 4,
        (Kind::Product, "320000rps") => 2,
        (Kind::Product, _) => 20,
        _ => 2,
    }
}
