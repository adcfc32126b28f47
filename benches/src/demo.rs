//! `lab demo`: break one node four ways, and see who gets dropped.
//!
//! A RocksDB store serves an ordinary load at 0.7 of what it can. Then it is broken: by a surge, a storm of scans, a
//! write stall, a hot key. Each failure is walked through the generations of overload control, from the same
//! checkpoint and by the same schedule: none, a fixed limit, CoDel, Uber's flow law, Cinnamon.

mod arm;
mod html;
mod load;
mod screen;
mod server;
mod stats;
mod switch;

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cinnamon_core::{Mode, Request, Snapshot, Tier};
use cinnamon_lab::endpoint::Endpoint;
use cinnamon_rocks::{Store, StoreOptions};
use clap::Args;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use quanta::Clock;

use arm::Arm;
use load::{AFTER_S, CALM_S, FAILURE_S, ROW_BYTES, ROWS, Schedule, Way};
use server::{Server, fill};
use stats::Stats;

use crate::machine;
use crate::task::{few_slots, histogram, join, pause, within};

const BLOCK_CACHE_BYTES: u64 = 16 << 20;
/// Small memtables and a slow disk, the same on every machine, bring the store into a write stall within seconds.
/// With RocksDB's 64 MiB and a fast disk it takes minutes.
const WRITE_BUFFER_BYTES: u64 = 512 << 10;
const WRITE_BUFFERS_MAX: u32 = 4;
const L0_STOP_TRIGGER: u32 = 24;
const BACKGROUND_BYTES_PER_S: u64 = 32 << 20;
/// The generator looks for what is due this often.
const GENERATOR_PERIOD: Duration = Duration::from_micros(250);
/// The generator's lateness at its 99th percentile above which a run says nothing.
const LATENESS_P99_MAX: Duration = Duration::from_millis(20);
/// The capacity is measured for so long, after a second that does not count.
const MEASURE: Duration = Duration::from_secs(4);
const WARM_UP: Duration = Duration::from_secs(1);
/// After a run of Cinnamon, until its last figures are in the metrics: they are emitted once a second.
const EMITTED: Duration = Duration::from_millis(1_300);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Options of `lab demo`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Seed of the schedules.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Multiple of the length of all phases.
    #[arg(long, default_value_t = 1.0, value_parser = scale)]
    scale: f64,
    /// Only this failure.
    #[arg(long, value_parser = way)]
    way: Option<Way>,
    /// Where the metrics are served in Prometheus form while it runs; port 0 takes any that is free.
    #[arg(long, default_value = "127.0.0.1:0", value_parser = loopback)]
    listen: SocketAddr,
    /// Seconds for which they are served after the end.
    #[arg(long, default_value_t = 0.0, value_parser = hold)]
    hold: f64,
    /// Where the page with the pictures goes.
    #[arg(long, default_value = "report.html")]
    report: PathBuf,
}

fn scale(text: &str) -> std::result::Result<f64, String> {
    within(text, 0.05, 60.0)
}

fn hold(text: &str) -> std::result::Result<f64, String> {
    within(text, 0.0, 3_600.0)
}

fn way(text: &str) -> std::result::Result<Way, String> {
    let names = Way::ALL.map(Way::name).join(", ");
    let found = Way::ALL.into_iter().find(|way| way.name() == text);
    found.ok_or_else(|| format!("`{text}` is none of {names}"))
}

fn loopback(text: &str) -> std::result::Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        _ => Err(format!(
            "`{text}` is no loopback address with a port, such as 127.0.0.1:9464"
        )),
    }
}

/// One arm's run through one failure.
#[derive(Debug)]
struct Run {
    way: Way,
    arm: Arm,
    stats: Stats,
    /// Of the arms with a controller, at the end.
    snapshot: Option<Snapshot>,
    lateness_us: Histogram<u64>,
}

impl Run {
    fn is_valid(&self) -> bool {
        let p99 = Duration::from_micros(self.lateness_us.value_at_quantile(0.99));
        p99 <= LATENESS_P99_MAX
    }
}

/// All that was measured.
#[derive(Debug)]
struct Outcome {
    seed: u64,
    scale: f64,
    capacity_per_s: f64,
    runs: Vec<Run>,
    switch: switch::Reached,
}

pub(crate) fn main(options: &Options) -> ExitCode {
    match run(options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("the demo could not be run: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<ExitCode> {
    let endpoint = Endpoint::start(options.listen)?;
    eprintln!("metrics while it runs: {}", endpoint.url());
    let ways: Vec<Way> = match options.way {
        Some(way) => vec![way],
        None => Way::ALL.to_vec(),
    };
    let dir = tempfile::tempdir()?;
    let clock = Clock::new();
    let run_s = (CALM_S + FAILURE_S + AFTER_S) * options.scale;
    let bar = progress_bar(run_s * (ways.len() * Arm::ALL.len()) as f64);

    bar.set_message("loading");
    let base = dir.path().join("base");
    load_rows(&base)?;
    let mut number = 0;
    let mut copy = |options: StoreOptions, arm: Arm| -> Result<Store> {
        number += 1;
        let path = dir.path().join(format!("copy-{number}"));
        Store::open(&base, store_options("base", Arm::NoControl))?.checkpoint(&path)?;
        Ok(Store::open_with(&path, options, |builder| {
            arm.add(builder)
        })?)
    };
    bar.set_message("measuring");
    let capacity_per_s = capacity(&mut copy, &clock, options.seed)?;
    let mut runs = Vec::new();
    for &way in &ways {
        // Cinnamon first: who goes without control leaves hundreds of megabytes of dead requests behind, which
        // slows the next one.
        for arm in Arm::ALL.into_iter().rev() {
            bar.set_message(format!("{}: {}", way.name(), arm.name()));
            let store = copy(store_options(&controller_name(way, arm), arm), arm)?;
            let policy = arm.policy(threads(), f64::from(threads()) / capacity_per_s)?;
            let server = Server::new(arm, store, policy, clock.clone());
            let schedule = Schedule::new(way, capacity_per_s, options.scale, options.seed);
            runs.push(run_arm(way, arm, &server, schedule, &bar));
        }
    }
    bar.set_message("switch");
    let mut with_file = store_options("switch", Arm::Cinnamon);
    let file = dir.path().join("override");
    with_file.control.override_file = Some(file.clone());
    let schedule = Schedule::new(Way::Surge, capacity_per_s, options.scale, options.seed);
    let store = copy(with_file, Arm::Cinnamon)?;
    let switch = switch::measure(store, &file, schedule, options.scale, clock)?;
    bar.finish_and_clear();
    let outcome = Outcome {
        seed: options.seed,
        scale: options.scale,
        capacity_per_s,
        runs,
        switch,
    };
    let code = screen::print(&outcome);
    std::fs::write(&options.report, html::page(&outcome)?)?;
    println!("\npictures: {}", options.report.display());
    if options.hold > 0.0 {
        println!("metrics for {} s more: {}", options.hold, endpoint.url());
        pause(Duration::from_secs_f64(options.hold));
    }
    Ok(code)
}

/// The name of a run's controller in the metrics.
fn controller_name(way: Way, arm: Arm) -> String {
    match arm {
        Arm::Cinnamon => way.name().to_owned(),
        _ => format!("{}: {}", way.name(), arm.name()),
    }
}

fn store_options(name: &str, arm: Arm) -> StoreOptions {
    let mut options = unthrottled();
    options.background_bytes_per_s = Some(BACKGROUND_BYTES_PER_S);
    name.clone_into(&mut options.control.name);
    arm.set(&mut options);
    options
}

fn unthrottled() -> StoreOptions {
    let mut options = StoreOptions::default();
    // All arms have the same threads, and so the same slots.
    few_slots(&mut options);
    options.block_cache_bytes = BLOCK_CACHE_BYTES;
    options.write_buffer_bytes = WRITE_BUFFER_BYTES;
    options.triggers.write_buffers_max = WRITE_BUFFERS_MAX;
    options.triggers.l0_stop = L0_STOP_TRIGGER;
    options.write_stall = false;
    options
}

/// Threads of the pool: one per slot, so that no admitted request waits for a thread.
fn threads() -> u32 {
    let options = unthrottled();
    options.read_limit.start() + options.write_limit.start()
}

fn load_rows(path: &Path) -> Result<()> {
    let store = Store::open(path, unthrottled())?;
    store.controller().set_mode(Mode::Off);
    let request = Request::new(Tier::T1);
    let mut value = [0u8; ROW_BYTES];
    for row in 0..ROWS {
        // Half of each row is noise, so that it compresses as real rows do.
        fill(&mut value[..ROW_BYTES / 2], row);
        store.put(&request, &row.to_be_bytes(), &value)?;
    }
    Ok(())
}

/// Ordinary requests a second that the server without control gets done while it is offered more than it can.
fn capacity(
    copy: &mut impl FnMut(StoreOptions, Arm) -> Result<Store>,
    clock: &Clock,
    seed: u64,
) -> Result<f64> {
    // What it will be nobody knows: ten times what two cores do is an overload everywhere.
    const OFFERED_PER_S: f64 = 4_000.0;
    let store = copy(store_options("capacity", Arm::NoControl), Arm::NoControl)?;
    let seconds = (WARM_UP + MEASURE).as_secs_f64() + 0.2;
    let schedule = Schedule::steady(OFFERED_PER_S, seconds, seed);
    let server = Server::new(Arm::NoControl, store, None, clock.clone());
    let per_s = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads())
            .map(|_| scope.spawn(|| server.work()))
            .collect();
        let generator = scope.spawn(|| generate(&server, schedule));
        pause(WARM_UP);
        let (from, before) = (server.elapsed(), server.served());
        pause(MEASURE);
        let per_s = (server.served() - before) as f64 / (server.elapsed() - from).as_secs_f64();
        join(generator);
        server.stop();
        workers.into_iter().map(join).for_each(drop);
        per_s
    });
    Ok(per_s)
}

fn run_arm(way: Way, arm: Arm, server: &Server, schedule: Schedule, bar: &ProgressBar) -> Run {
    let over = AtomicBool::new(false);
    let (stats, lateness_us) = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads())
            .map(|_| scope.spawn(|| server.work()))
            .collect();
        let others = [
            scope.spawn(|| observe(server, &over, bar)),
            scope.spawn(|| wake(server, &over)),
        ];
        let generator = scope.spawn(|| generate(server, schedule));
        let (mut stats, lateness_us) = join(generator);
        // Who was taken in may still be answered in time.
        let end = server.elapsed() + stats::DEADLINE;
        while server.elapsed() < end && server.waiting() > 0 {
            pause(Duration::from_millis(10));
        }
        over.store(true, Ordering::Release);
        server.stop();
        let parts = workers.into_iter().chain(others).map(join);
        parts.for_each(|part| stats.add(&part));
        (stats, lateness_us)
    });
    let mut snapshot = None;
    if arm.is_controlled() {
        pause(EMITTED);
        snapshot = Some(server.store().snapshot());
    }
    Run {
        way,
        arm,
        stats,
        snapshot,
        lateness_us,
    }
}

/// Offers each request of the schedule when it is due.
fn generate(server: &Server, schedule: Schedule) -> (Stats, Histogram<u64>) {
    machine::prefer_this_thread();
    let mut stats = Stats::new();
    let mut lateness_us = histogram();
    let mut now = server.elapsed();
    for arrival in schedule {
        while now < arrival.at {
            pause(GENERATOR_PERIOD);
            now = server.elapsed();
        }
        lateness_us.saturating_record((now - arrival.at).as_micros() as u64);
        server.offer(&mut stats, arrival, now);
    }
    (stats, lateness_us)
}

/// Watches the queue, the memory and who is throttled, and moves the bar.
fn observe(server: &Server, over: &AtomicBool, bar: &ProgressBar) -> Stats {
    const PERIOD: Duration = Duration::from_millis(50);
    let mut stats = Stats::new();
    let mut last = server.elapsed();
    while !over.load(Ordering::Acquire) {
        let snapshot = server.store().snapshot();
        stats.waiting_peak = stats.waiting_peak.max(server.waiting_in(&snapshot));
        stats.throttle(last, &snapshot.throttles);
        stats.memory_peak_bytes = stats.memory_peak_bytes.max(machine::resident_bytes());
        pause(PERIOD);
        let now = server.elapsed();
        bar.inc((now - last).as_millis() as u64);
        last = now;
    }
    stats
}

/// Lets a policy act in time.
fn wake(server: &Server, over: &AtomicBool) -> Stats {
    let mut stats = Stats::new();
    while !over.load(Ordering::Acquire) {
        server.wake(&mut stats);
        pause(server::WAKE_PERIOD);
    }
    stats
}

fn progress_bar(seconds: f64) -> ProgressBar {
    let bar = ProgressBar::new((seconds * 1e3) as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg:30} {wide_bar} {percent:>3} %") {
        bar.set_style(style);
    }
    bar
}
