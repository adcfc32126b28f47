//! The speed of it all in one table: every subject, ours and others', in interleaved rounds, beside the bars of the
//! design. `make bench` runs it and writes the table into `docs/`; with criterion's benches one digs.
//!
//! ```text
//! cargo bench -p cinnamon-lab --no-default-features --bench speed -- --rounds 31 shed tick
//! ```
#![allow(
    clippy::expect_used,
    reason = "in what the benches share; a benchmark that cannot be run ends"
)]

mod peers;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use cinnamon_core::{Clock, Config, Controller, DEFAULT_PERIOD, MonotonicClock, Settings};
use cinnamon_lab::speed::fixture::{self, SIGNALS, SLOTS};
use cinnamon_lab::speed::ours;
use cinnamon_lab::speed::pool;
use cinnamon_lab::speed::report::{IDLE, Report};
use cinnamon_lab::speed::rounds::{Figures, Subject, measure};
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};

/// Rounds, each of all subjects. More narrow the median no further on a machine with nothing else to do.
const ROUNDS: usize = 201;
/// How long a subject runs in a round, milliseconds: long beside the reading of the clock and an interrupt, short
/// beside whatever slows a machine down for a while.
const RUN_MS: u64 = 2;
/// Pairs of runs of a pool with a controller and without.
const PAIRS: usize = 20;
/// An idle controller is watched so often …
const IDLE_WINDOWS: usize = 5;
/// … for so long: five of its ticks, and an emission of metrics.
const IDLE_WINDOW: Duration = Duration::from_secs(5);
/// Before that its threads start, and nobody asks it anything for as long as it takes to be idle.
const IDLE_FROM: Duration = Duration::from_secs(3);

/// Measures what an admission costs, beside others.
#[derive(Debug, Parser)]
#[command(name = "speed")]
struct Options {
    /// Only subjects whose names contain one of these, and the semaphore they are compared with.
    only: Vec<String>,
    /// Rounds.
    #[arg(long, default_value_t = ROUNDS)]
    rounds: usize,
    /// Milliseconds that a subject runs in a round.
    #[arg(long, default_value_t = RUN_MS)]
    run_ms: u64,
    /// Write the table to this file, for the book.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Write what a pool loses to this file, for the book.
    #[arg(long)]
    pool: Option<PathBuf>,
    /// Write the figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// What cargo tells every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("speed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    // First, while no other controller is there.
    let at_rest = vec![
        idle(0, IDLE)?,
        idle(
            SIGNALS,
            "cinnamon idle controller with 8 signals, of a core",
        )?,
    ];
    let subjects = ours::all()?.into_iter().chain(peers::all());
    let mut subjects: Vec<Subject> = subjects.filter(|s| options.wants(&s.name)).collect();
    let figures = measure(&mut subjects, options.rounds, options.run_ms * 1_000_000)?;
    let report = Report::new(figures, at_rest, options.rounds);
    print!("{}", report.text());
    let pool = pool::markdown(&pool::measure(PAIRS)?);
    print!("{pool}");
    if let Some(path) = &options.markdown {
        std::fs::write(path, report.markdown())?;
    }
    if let Some(path) = &options.pool {
        std::fs::write(path, pool)?;
    }
    if let Some(path) = &options.json {
        std::fs::write(path, report.json()?)?;
    }
    Ok(())
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        let listed = |part: &String| name.contains(part.as_str());
        self.only.is_empty()
            || self.only.iter().any(listed)
            || name == cinnamon_lab::speed::report::SEMAPHORE
    }
}

/// Which share of a core a controller takes that nobody asks anything.
fn idle(signals: usize, name: &str) -> Result<Figures, Box<dyn Error>> {
    let config = Config::new(Settings::one_lane("main", SLOTS))?;
    let builder = fixture::with_gauges(Controller::builder(config), signals, DEFAULT_PERIOD);
    let controller = builder.build()?;
    let clock = MonotonicClock::new();
    pause(IDLE_FROM);
    let mut shares: Vec<f64> = (0..IDLE_WINDOWS)
        .map(|_| {
            let (began, used) = (clock.now(), cpu_ns());
            pause(IDLE_WINDOW);
            (cpu_ns() - used) as f64 / clock.now().nanos_since(began) as f64
        })
        .collect();
    drop(controller);
    shares.sort_by(f64::total_cmp);
    Ok(Figures {
        name: name.to_owned(),
        ns: shares,
    })
}

/// CPU time of this process, all threads, ns.
fn cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec.unsigned_abs() * 1_000_000_000 + used.tv_nsec.unsigned_abs()
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing happens in an idle controller but the passing of time"
)]
fn pause(time: Duration) {
    thread::sleep(time);
}
