//! `lab alerts`: every alert of `docs/alerts.yml` fires in its own scenario and in no other, and none in calm.
//!
//! A real controller is driven in virtual time. What it emits is recorded as Prometheus would scrape it, and
//! `promtool` evaluates the rules on that, and every panel of `docs/grafana.json` too: each must show something in some
//! scenario.

pub mod dashboard;
pub mod promtool;
pub mod record;
pub mod scenario;

mod live;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cinnamon_core::{BuildError, ConfigError};
use clap::Args;

use self::dashboard::DashboardError;
use self::live::Live;
use self::promtool::{Promtool, ToolError};
use self::record::Recording;
use self::scenario::{SCENARIOS, Script};

/// Which rules and scenarios.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Scenarios by name; all if none is given.
    #[arg(value_name = "SCENARIO")]
    pub scenarios: Vec<String>,
    /// The rules.
    #[arg(long, value_name = "FILE", default_value = "docs/alerts.yml")]
    pub rules: PathBuf,
    /// The dashboard.
    #[arg(long, value_name = "FILE", default_value = "docs/grafana.json")]
    pub dashboard: PathBuf,
    /// Also show the text of each alert, as somebody would read it.
    #[arg(long)]
    pub texts: bool,
    /// Leave the recorded series and the tests of them here.
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AlertsError {
    /// No such scenario.
    #[error("scenario {name:?} is unknown; known are {known}")]
    UnknownScenario {
        /// The name.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// A figure of a scenario is out of bounds.
    #[error("scenario {name}: {source}")]
    Config {
        /// The scenario.
        name: &'static str,
        /// What is out of bounds.
        source: ConfigError,
    },
    /// A scenario's controller cannot be built.
    #[error("scenario {name}: {source}")]
    Build {
        /// The scenario.
        name: &'static str,
        /// Why not.
        source: BuildError,
    },
    /// The dashboard cannot be used.
    #[error(transparent)]
    Dashboard(#[from] DashboardError),
    /// `promtool` did not do its work.
    #[error(transparent)]
    Tool(#[from] ToolError),
}

/// Runs the scenarios and says what fired. 0 when exactly what was meant to did, 1 when not, 2 when there is no
/// outcome.
#[must_use]
pub fn main(options: &Options) -> ExitCode {
    match execute(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("lab alerts: {error}");
            ExitCode::from(2)
        }
    }
}

fn execute(options: &Options) -> Result<bool, AlertsError> {
    let scripts = choose(&options.scenarios)?;
    let queries = dashboard::queries(&options.dashboard)?;
    let promtool = Promtool::find(&options.rules, options.keep.as_deref())?;
    // Beside each, as a second node: what happens to one must not be told of the other.
    let neighbour = record(&scenario::CALM)?;
    for script in &scripts {
        let recording = record(script)?;
        promtool.write(script, &recording, &neighbour, &queries)?;
        println!(
            "{:<18} {:>3} min, {:>3} series: {}",
            script.name,
            (script.seconds() / 60.0).round(),
            recording.series().count(),
            script.about
        );
    }
    let mut faults = promtool.test(&scripts)?;
    let texts = promtool.texts(&scripts)?;
    if options.texts {
        for text in &texts.alerts {
            println!("\n{text}");
        }
    }
    faults.extend(texts.faults);
    faults.extend(promtool.wrong(&queries)?);
    // Of a few scenarios much is never seen.
    if options.scenarios.is_empty() {
        faults.extend(promtool.empty(&scripts, &queries)?);
    }
    for fault in &faults {
        println!("\nFAILED {fault}");
    }
    if faults.is_empty() {
        println!(
            "\nalerts: {} scenarios, each alert fired in its own and in no other; dashboard: {} expressions",
            scripts.len(),
            queries.len()
        );
    }
    Ok(faults.is_empty())
}

fn choose(names: &[String]) -> Result<Vec<&'static Script>, AlertsError> {
    if names.is_empty() {
        return Ok(SCENARIOS.iter().collect());
    }
    let find = |name: &String| {
        let found = SCENARIOS.iter().find(|script| script.name == name);
        found.ok_or_else(|| AlertsError::UnknownScenario {
            name: name.clone(),
            known: SCENARIOS
                .iter()
                .map(|script| script.name)
                .collect::<Vec<_>>()
                .join(", "),
        })
    };
    names.iter().map(find).collect()
}

/// Runs one scenario and returns what a scraper would have seen of it.
///
/// # Errors
///
/// When the scenario cannot be.
pub fn record(script: &'static Script) -> Result<Recording, AlertsError> {
    let name = script.name;
    let mut live = Live::new(script).map_err(|source| AlertsError::Build { name, source })?;
    live.run()
        .map_err(|source| AlertsError::Config { name, source })?;
    Ok(live.into_recording())
}

/// Where the rules of this checkout are, for tests.
#[must_use]
pub fn rules_of_the_book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/alerts.yml")
}
