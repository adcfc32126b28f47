//! `lab surge`: one store, one overload, judged by promises.
//!
//! A RocksDB store larger than its block cache is overloaded twice from the same checkpoint and by
//! the same schedule: once without control, once with Cinnamon.

mod load;
mod report;
mod server;
mod stats;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cinnamon_core::simulation::Rng;
use cinnamon_core::{Mode, Request, Tier};
use cinnamon_rocks::{Store, StoreOptions};
use clap::Args;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use quanta::{Clock, Instant};

use load::{Arrival, Phase, Schedule};
use server::{Arm, ROW_BYTES, Server};
use stats::PhaseStats;

use crate::machine;
use crate::task::{few_slots, histogram, join, pause, within};

/// Rows in the store; 256 bytes each make 77 MB, five times the block cache.
const ROWS: u64 = 300_000;
const BLOCK_CACHE_BYTES: u64 = 16 << 20;
/// The generator looks for what is due this often: coarse enough to cost little, fine enough against
/// a deadline of a second.
const GENERATOR_PERIOD: Duration = Duration::from_micros(250);
/// The generator's lateness at its 99th percentile above which a run says nothing.
const LATENESS_P99_MAX: Duration = Duration::from_millis(20);
/// Share of all CPU time of the machine that the generator may use.
const GENERATOR_CPU_MAX: f64 = 0.10;
type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Options of `lab surge`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Seed of the schedule.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Multiple of the length of all phases. Below 1 the phases are too short to judge promises by.
    #[arg(long, default_value_t = 1.0, value_parser = scale)]
    scale: f64,
}

fn scale(text: &str) -> std::result::Result<f64, String> {
    within(text, 0.05, 60.0)
}

/// One arm's run.
#[derive(Debug)]
struct ArmRun {
    arm: Arm,
    phases: Vec<PhaseStats>,
    generator: GeneratorRun,
}

/// How the generator did, which decides whether the run counts.
#[derive(Debug)]
struct GeneratorRun {
    lateness_us: Histogram<u64>,
    /// Its CPU time as a share of all CPU time of the machine during the run.
    cpu_share: f64,
}

impl GeneratorRun {
    fn is_valid(&self) -> bool {
        let p99 = Duration::from_micros(self.lateness_us.value_at_quantile(0.99));
        p99 <= LATENESS_P99_MAX && self.cpu_share <= GENERATOR_CPU_MAX
    }
}

pub(crate) fn main(options: &Options) -> ExitCode {
    match run(options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("the surge could not be run: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<ExitCode> {
    let phases = load::phases(options.scale);
    let seconds: f64 = phases.iter().map(|phase| phase.seconds).sum();
    let dir = tempfile::tempdir()?;
    let clock = Clock::new();
    let bar = progress_bar(2.0 * seconds);

    bar.set_message("loading");
    let base = dir.path().join("base");
    load_rows(&base)?;
    let mut capacity = Capacity {
        measured: Vec::new(),
        threads: pool_threads(),
    };
    let open = |name: String| -> Result<Store> {
        let path = dir.path().join(name);
        checkpoint(&base, &path)?;
        Ok(Store::open(&path, options_of_store())?)
    };
    bar.set_message("measuring");
    let rough_per_s = closed_loop(&open("rough".to_owned())?, &clock, options.seed)?;
    let measure = |n: usize| {
        let store = open(format!("capacity-{n}"))?;
        Ok::<_, Box<dyn Error>>(saturate(store, rough_per_s, &clock, options.seed))
    };
    capacity.measured.push(measure(0)?);

    let mut runs = Vec::new();
    // Cinnamon first: the arm without control leaves hundreds of megabytes of dead requests behind, and
    // while the machine took those back the next arm ran up to a quarter slower.
    for (n, arm) in [Arm::Cinnamon, Arm::NoControl].into_iter().enumerate() {
        let store = open(format!("arm-{n}"))?;
        let schedule = Schedule::new(phases.clone(), capacity.least(), ROWS, options.seed);
        runs.push(run_arm(arm, store, &phases, schedule, &clock, &bar));
        bar.set_message("measuring");
        capacity.measured.push(measure(n + 1)?);
    }
    bar.finish_and_clear();

    let verdict = report::print(&capacity, &phases, &runs, options.seed);
    Ok(verdict)
}

/// What the saturated server gets done, and how fast the machine was meanwhile.
#[derive(Clone, Copy, Debug)]
struct Saturated {
    per_s: f64,
    rows_per_cpu_s: f64,
}

/// What the server can do, measured before the first arm and after each.
///
/// The machine under us may be half as fast a moment later, so a measurement holds for another moment
/// only after the speed of both was compared: by the rows that scans step over in a second of CPU time.
#[derive(Debug)]
struct Capacity {
    measured: Vec<Saturated>,
    threads: usize,
}

impl Capacity {
    /// The least so far, requests per second: what an arm's load is a multiple of, so that 0.7x is calm
    /// on a machine that was merely quick for a moment.
    fn least(&self) -> f64 {
        let per_s = self.measured.iter().map(|measured| measured.per_s);
        per_s.fold(f64::MAX, f64::min)
    }

    /// What an arm's phase is judged by: the mean of the measurements before and after the arm, at the
    /// speed that the machine had in the phase.
    fn in_phase(&self, arm: usize, stats: &PhaseStats) -> f64 {
        let around = &self.measured[arm..=arm + 1];
        let at_speed = around.iter().map(|measured| {
            let speed = stats.rows_per_cpu_s().unwrap_or(measured.rows_per_cpu_s);
            measured.per_s * speed / measured.rows_per_cpu_s
        });
        at_speed.sum::<f64>() / around.len() as f64
    }

    /// Mean time that a request keeps one of the threads busy, microseconds.
    fn service_mean_us(&self) -> f64 {
        self.threads as f64 / self.least() * 1e6
    }
}

fn options_of_store() -> StoreOptions {
    let mut options = StoreOptions::default();
    // All arms have the same threads, and so the same slots.
    few_slots(&mut options);
    options.block_cache_bytes = BLOCK_CACHE_BYTES;
    options
}

/// Threads of the pool: one per slot, so that no admitted request waits for a thread.
fn pool_threads() -> usize {
    let options = options_of_store();
    (options.read_limit.start() + options.write_limit.start()) as usize
}

fn load_rows(path: &Path) -> Result<()> {
    let store = Store::open(path, options_of_store())?;
    let request = Request::new(Tier::T1);
    let mut rng = Rng::new(0);
    let mut value = [0u8; ROW_BYTES];
    for row in 0..ROWS {
        // Half of each row is noise, so that it compresses as real rows do.
        for chunk in value[..ROW_BYTES / 2].chunks_exact_mut(8) {
            chunk.copy_from_slice(&rng.bits().to_le_bytes());
        }
        store.put(&request, &row.to_be_bytes(), &value)?;
    }
    Ok(())
}

fn checkpoint(base: &Path, path: &Path) -> Result<()> {
    Ok(Store::open(base, options_of_store())?.checkpoint(path)?)
}

/// Requests per second that the pool's threads get done by themselves, each asking again as soon as it
/// was served: a first idea of the capacity.
fn closed_loop(store: &Store, clock: &Clock, seed: u64) -> Result<f64> {
    const MEASURE: Duration = Duration::from_millis(1_500);
    store.controller().set_mode(Mode::Off);
    let start = clock.now();
    let client = |number: u64| {
        let mut rng = Rng::new(seed ^ ((number + 1) << 32));
        let mut done = 0u64;
        while clock.now().saturating_duration_since(start) < MEASURE {
            server::run_closed(store, load::action(&mut rng, ROWS))?;
            done += 1;
        }
        Ok(done)
    };
    let done = thread::scope(|scope| {
        let spawn = |number| scope.spawn(move || client(number));
        let clients: Vec<_> = (0..pool_threads() as u64).map(spawn).collect();
        let done = clients.into_iter().map(join);
        done.sum::<std::result::Result<u64, cinnamon_rocks::StoreError>>()
    })?;
    Ok(done as f64 / MEASURE.as_secs_f64())
}

/// Requests per second that the server without control gets done while it is offered twice as many
/// as it may be able to: what it can serve, with the generator at work beside it.
fn saturate(store: Store, rough_per_s: f64, clock: &Clock, seed: u64) -> Saturated {
    const WARM_UP: Duration = Duration::from_millis(1_000);
    const MEASURE: Duration = Duration::from_millis(5_000);
    let seconds = (WARM_UP + MEASURE).as_secs_f64() + 0.1;
    let schedule = Schedule::new(load::saturation(seconds, 2.0), rough_per_s, ROWS, seed);
    let server = Server::new(Arm::NoControl, store, clock.clone());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..pool_threads())
            .map(|_| {
                let worker = server.worker();
                scope.spawn(move || worker.run(1))
            })
            .collect();
        scope.spawn(|| generate(&server, schedule, 1, clock, clock.now()));
        pause(WARM_UP);
        let (from, served) = (clock.now(), server.served());
        pause(MEASURE);
        let seconds = clock.now().saturating_duration_since(from).as_secs_f64();
        let done = server.served() - served;
        server.stop();
        let mut stats = PhaseStats::new();
        for worker in workers {
            join(worker).iter().for_each(|part| stats.add(part));
        }
        Saturated {
            per_s: done as f64 / seconds,
            rows_per_cpu_s: stats.rows_per_cpu_s().unwrap_or(1.0),
        }
    })
}

fn run_arm(
    arm: Arm,
    store: Store,
    phases: &[Phase],
    schedule: Schedule,
    clock: &Clock,
    bar: &ProgressBar,
) -> ArmRun {
    bar.set_message(arm.name());
    let server = Server::new(arm, store, clock.clone());
    let over = AtomicBool::new(false);
    let start = clock.now();
    let (total, generator) = thread::scope(|scope| {
        let workers: Vec<_> = (0..pool_threads())
            .map(|_| {
                let worker = server.worker();
                scope.spawn(move || worker.run(phases.len()))
            })
            .collect();
        let observer = scope.spawn(|| observe(&server, phases, clock, start, &over, bar));
        let generator = scope.spawn(|| generate(&server, schedule, phases.len(), clock, start));

        let (mut total, generator) = join(generator);
        // Who was taken in may still be answered in time.
        let end = clock.now() + stats::DEADLINE;
        while clock.now() < end && !server.is_idle() {
            pause(Duration::from_millis(10));
        }
        over.store(true, Ordering::Release);
        server.stop();
        let seen = workers.into_iter().map(join).chain([join(observer)]);
        for stats in seen {
            total
                .iter_mut()
                .zip(&stats)
                .for_each(|(sum, part)| sum.add(part));
        }
        (total, generator)
    });
    ArmRun {
        arm,
        phases: total,
        generator,
    }
}

/// Offers each request of the schedule when it is due.
fn generate(
    server: &Server,
    schedule: impl Iterator<Item = Arrival>,
    phases: usize,
    clock: &Clock,
    start: Instant,
) -> (Vec<PhaseStats>, GeneratorRun) {
    machine::prefer_this_thread();
    let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
    let cpu_before = machine::thread_cpu_time();
    let mut stats = vec![PhaseStats::new(); phases];
    let mut lateness_us = histogram();
    let mut now = clock.now();
    for arrival in schedule {
        let due = start + arrival.at;
        while now < due {
            pause(GENERATOR_PERIOD);
            now = clock.now();
        }
        lateness_us.saturating_record(now.saturating_duration_since(due).as_micros() as u64);
        let phase = &mut stats[arrival.phase];
        phase.offered[arrival.tier.index()] += 1;
        if let Err(rejected) = server.offer(arrival, due, now) {
            let after = now.saturating_duration_since(due);
            phase.refuse(rejected.reason(), &arrival, after);
        }
    }
    let cpu = machine::thread_cpu_time().saturating_sub(cpu_before);
    let elapsed = clock.now().saturating_duration_since(start);
    let run = GeneratorRun {
        lateness_us,
        cpu_share: cpu.as_secs_f64() / elapsed.as_secs_f64() / cores,
    };
    (stats, run)
}

/// Watches the queue and the memory, and moves the bar.
fn observe(
    server: &Server,
    phases: &[Phase],
    clock: &Clock,
    start: Instant,
    over: &AtomicBool,
    bar: &ProgressBar,
) -> Vec<PhaseStats> {
    const PERIOD: Duration = Duration::from_millis(50);
    const CPU_SLICE: Duration = Duration::from_millis(500);
    let mut stats = vec![PhaseStats::new(); phases.len()];
    let mut shown_ms = 0;
    let mut cpu_before = machine::process_cpu_time();
    let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
    let mut slice = (start, cpu_before, 0);
    while !over.load(Ordering::Acquire) {
        let elapsed = clock.now().saturating_duration_since(start);
        let mut left_s = elapsed.as_secs_f64();
        let phase = phases.iter().position(|phase| {
            left_s -= phase.seconds;
            left_s < 0.0
        });
        if let Some(phase) = phase {
            let seen = &mut stats[phase];
            seen.waiting_peak = seen.waiting_peak.max(server.waiting());
            seen.memory_peak_bytes = seen.memory_peak_bytes.max(machine::resident_bytes());
            let cpu = machine::process_cpu_time();
            seen.cpu += cpu.saturating_sub(cpu_before);
            cpu_before = cpu;
            let into_phase_s = left_s + phases[phase].seconds;
            if slice.2 != phase || into_phase_s <= stats::GRACE.as_secs_f64() {
                // What is left of the phase before is not this one's.
                slice = (clock.now(), cpu, phase);
            }
            let slice_s = clock.now().saturating_duration_since(slice.0).as_secs_f64();
            if slice_s >= CPU_SLICE.as_secs_f64() {
                let share = cpu.saturating_sub(slice.1).as_secs_f64() / slice_s / cores;
                seen.cpu_share_peak = seen.cpu_share_peak.max(share);
                slice = (clock.now(), cpu, phase);
            }
            let elapsed_ms = elapsed.as_millis() as u64;
            bar.inc(elapsed_ms - shown_ms);
            shown_ms = elapsed_ms;
        }
        pause(PERIOD);
    }
    stats
}

fn progress_bar(seconds: f64) -> ProgressBar {
    let bar = ProgressBar::new((seconds * 1e3) as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg:12} {wide_bar} {percent:>3} %") {
        bar.set_style(style);
    }
    bar
}
