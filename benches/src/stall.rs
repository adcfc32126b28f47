//! `lab stall`: a store that takes writes faster than it can compact them, who gets dropped?
//!
//! RocksDB holds writes back when compaction falls behind: first it delays all writers alike, then it stops
//! them. What it can take in the long run is measured first, by writers that never rest. Then 2.5 times that
//! is offered, with reads beside it, three times from the same checkpoint and by the same schedule: without
//! control, with Cinnamon that knows nothing of stalls, and with the signal
//! [`WriteStall`](cinnamon_rocks::WriteStall).

mod load;
mod report;
mod server;
mod stats;
mod watch;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use cinnamon_core::simulation::Rng;
use cinnamon_core::{Mode, Request, Tier};
use cinnamon_rocks::{Store, StoreError, StoreOptions};
use clap::Args;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use quanta::Clock;

use load::{Kind, LOAD, Schedule, VALUE_BYTES, rows};
use server::{Arm, Server};
use stats::{Stats, histogram};
use watch::Seen;

/// Small memtables bring the store into its stall within seconds: with RocksDB's 64 MiB it takes minutes.
const WRITE_BUFFER_BYTES: u64 = 1 << 20;
/// Four memtables: with RocksDB's two every burst of writes that outruns one flush is a stop, whatever is
/// compacted.
const WRITE_BUFFERS_MAX: u32 = 4;
/// What flushes and compactions may write: a slow disk, the same on every machine. A write is written some
/// seventeen times until it has come to rest.
const BACKGROUND_BYTES_PER_S: u64 = 64 << 20;
/// All rows fit: reads are served from memory, and what they lose they lose to admission alone.
const BLOCK_CACHE_BYTES: u64 = 256 << 20;
/// Writers that never rest, in the runs that look for the best sustained rate.
const CLOSED_WRITERS: [u64; 2] = [2, 8];
/// Writers, and their time, that bring a store into the state in which it is measured. After twenty seconds
/// what they get done no longer falls.
const PREPARE_WRITERS: u64 = 8;
const PREPARE: Duration = Duration::from_secs(22);
/// Not counted at the start of each run: by then writers that never rest are in their stall, and the gates
/// of the arms have found their place.
const WARM_UP: Duration = Duration::from_secs(4);
/// The generator looks for what is due this often.
const GENERATOR_PERIOD: Duration = Duration::from_micros(250);
/// The generator's lateness at its 99th percentile above which a run says nothing.
const LATENESS_P99_MAX: Duration = Duration::from_millis(20);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Options of `lab stall`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Seed of the schedule.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds of each run that count. Below 8 they are too few to judge by.
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// Print all figures, and how things stood every tenth of a second, as JSON.
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.5..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("`{text}` is not a number between 0.5 and 600")),
    }
}

/// What so many writers that never rest got done.
#[derive(Debug)]
struct Closed {
    writers: u64,
    writes_per_s: f64,
    seen: Seen,
}

/// One arm's run.
#[derive(Debug)]
struct ArmRun {
    arm: Arm,
    stats: Stats,
    seen: Seen,
    writes_per_s: f64,
    lateness_us: Histogram<u64>,
}

impl ArmRun {
    fn is_valid(&self) -> bool {
        let p99 = Duration::from_micros(self.lateness_us.value_at_quantile(0.99));
        p99 <= LATENESS_P99_MAX
    }
}

/// All that was measured.
#[derive(Debug)]
struct Outcome {
    seed: u64,
    seconds: f64,
    closed: Vec<Closed>,
    runs: Vec<ArmRun>,
}

impl Outcome {
    /// The best sustained rate, writes per second.
    fn best_per_s(&self) -> f64 {
        best_per_s(&self.closed)
    }
}

fn best_per_s(closed: &[Closed]) -> f64 {
    closed
        .iter()
        .map(|run| run.writes_per_s)
        .fold(0.0, f64::max)
}

pub(crate) fn main(options: &Options) -> ExitCode {
    match run(options) {
        Ok(outcome) if options.json => report::print_json(&outcome),
        Ok(outcome) => report::print(&outcome),
        Err(error) => {
            eprintln!("the experiment could not be run: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<Outcome> {
    let dir = tempfile::tempdir()?;
    let clock = Clock::new();
    let measure = Duration::from_secs_f64(options.seconds);
    let runs = CLOSED_WRITERS.len() + Arm::ALL.len();
    let bar = progress_bar((WARM_UP + measure) * runs as u32);

    bar.set_message("loading");
    let name = |run: usize| dir.path().join(format!("run-{run}"));
    let prepared: Vec<_> = (0..runs).map(name).collect();
    prepare(&dir.path().join("base"), &prepared, options.seed, &clock)?;
    let mut prepared = prepared.into_iter();
    let mut open = |signal: bool| -> Result<Store> {
        let path = prepared
            .next()
            .ok_or("fewer stores were prepared than there are runs")?;
        Ok(Store::open(path, options_of_store(signal))?)
    };
    let mut closed = Vec::new();
    let best = cinnamon_rocks::env("BEST", 0.0);
    if best > 0.0 {
        closed.push(Closed {
            writers: 0,
            writes_per_s: best,
            seen: Seen::default(),
        });
    }
    for writers in CLOSED_WRITERS {
        if best > 0.0 {
            continue;
        }
        bar.set_message(format!("{writers} writers"));
        let store = open(false)?;
        closed.push(closed_loop(
            &store,
            writers,
            measure,
            options.seed,
            &clock,
            &bar,
        )?);
    }
    let mut runs = Vec::new();
    for arm in Arm::ALL {
        if cinnamon_rocks::env("ONLY", 0.0) > 0.0 && arm != Arm::WriteStall {
            continue;
        }
        bar.set_message(arm.name());
        let store = open(arm == Arm::WriteStall)?;
        let schedule = Schedule::new(LOAD * best_per_s(&closed), options.seed);
        runs.push(run_arm(arm, store, schedule, measure, &clock, &bar));
    }
    bar.finish_and_clear();
    Ok(Outcome {
        seed: options.seed,
        seconds: options.seconds,
        closed,
        runs,
    })
}

fn unthrottled(signal: bool) -> StoreOptions {
    let mut options = StoreOptions::default();
    options.block_cache_bytes = BLOCK_CACHE_BYTES;
    options.write_buffer_bytes =
        (cinnamon_rocks::env("MEMT", 1.0) * WRITE_BUFFER_BYTES as f64) as u64;
    options.triggers.write_buffers_max = WRITE_BUFFERS_MAX;
    options.triggers.l0_stop = cinnamon_rocks::env("STOP", 36.0) as u32; options.triggers.l0_compaction = cinnamon_rocks::env("TRIG", 4.0) as u32; options.write_stall = signal;
    options
}

fn options_of_store(signal: bool) -> StoreOptions {
    let mut options = unthrottled(signal);
    options.background_bytes_per_s = Some((cinnamon_rocks::env("BG", 64.0) * 1048576.0) as u64);
    let _ = BACKGROUND_BYTES_PER_S;
    options.background_jobs_max = cinnamon_rocks::env("JOBS", 2.0) as u32;
    options
}

/// Makes a store for each run: filled, written to until its lower levels owe what they owe in the long run,
/// and left alone until L0 is empty.
///
/// A store that is merely full takes twice as much for the first half minute, all of it on credit: what
/// lower levels owe grows, and no rate measured meanwhile can be sustained.
fn prepare(base: &Path, copies: &[PathBuf], seed: u64, clock: &Clock) -> Result<()> {
    const REST_MAX: Duration = Duration::from_secs(20);
    let store = Store::open(base, unthrottled(false))?;
    store.controller().set_mode(Mode::Off);
    let request = Request::new(Tier::T1);
    let mut value = [0; VALUE_BYTES];
    for row in 0..rows() {
        load::fill(&mut value, row);
        store.put(&request, &row.to_be_bytes(), &value)?;
    }
    drop(store);
    let store = Store::open(base, options_of_store(false))?;
    store.controller().set_mode(Mode::Off);
    let over = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    thread::scope(|scope| {
        let write = |number| write_on(&store, seed ^ number << 48, &over, &written);
        let spawn = |number| scope.spawn(move || write(number));
        let threads: Vec<_> = (1..=PREPARE_WRITERS).map(spawn).collect();
        pause(Duration::from_secs_f64(cinnamon_rocks::env(
            "PREP",
            PREPARE.as_secs_f64(),
        )));
        over.store(true, Ordering::Release);
        threads.into_iter().try_for_each(join)
    })?;
    let start = clock.now();
    let few = u64::from(StoreOptions::default().triggers.l0_compaction);
    while store.stall_gauges().l0_files.unwrap_or(0) >= few {
        if clock.now().saturating_duration_since(start) > REST_MAX {
            return Err("the store did not come to rest after it was filled".into());
        }
        pause(Duration::from_millis(5));
    }
    for copy in copies {
        store.checkpoint(copy)?;
    }
    Ok(())
}

/// Writes without a rest until it is `over`.
fn write_on(
    store: &Store,
    seed: u64,
    over: &AtomicBool,
    written: &AtomicU64,
) -> std::result::Result<(), StoreError> {
    let mut rng = Rng::new(seed);
    let mut value = [0; VALUE_BYTES];
    while !over.load(Ordering::Acquire) {
        let key = rng.bits() % rows();
        load::fill(&mut value, rng.bits());
        store.put(&Request::new(Tier::T1), &key.to_be_bytes(), &value)?;
        written.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// What writers that never rest get done, the stalls included.
fn closed_loop(
    store: &Store,
    writers: u64,
    measure: Duration,
    seed: u64,
    clock: &Clock,
    bar: &ProgressBar,
) -> Result<Closed> {
    store.controller().set_mode(Mode::Off);
    let over = AtomicBool::new(false);
    let server = Server::new(Arm::NoControl, store.clone(), clock.clone(), WARM_UP);
    let write = |number| write_on(store, seed ^ number << 32, &over, server.written());
    let (seen, writes_per_s, done) = thread::scope(|scope| {
        let spawn = |number| scope.spawn(move || write(number));
        let threads: Vec<_> = (1..=writers).map(spawn).collect();
        let (seen, writes_per_s) = watch(&server, measure, clock, bar);
        over.store(true, Ordering::Release);
        let done: std::result::Result<Vec<()>, StoreError> =
            threads.into_iter().map(join).collect();
        (seen, writes_per_s, done)
    });
    done?;
    Ok(Closed {
        writers,
        writes_per_s,
        seen,
    })
}

fn run_arm(
    arm: Arm,
    store: Store,
    schedule: Schedule,
    measure: Duration,
    clock: &Clock,
    bar: &ProgressBar,
) -> ArmRun {
    let options = options_of_store(false);
    let server = Server::new(arm, store, clock.clone(), WARM_UP);
    let end = WARM_UP + measure;
    let pools = [
        (Kind::Read, options.read_limit),
        (Kind::Write, options.write_limit),
    ];
    thread::scope(|scope| {
        let work = |kind| {
            let server = &server;
            scope.spawn(move || server.work(kind))
        };
        let threads: Vec<_> = pools
            .into_iter()
            .flat_map(|(kind, threads)| (0..threads).map(move |_| kind))
            .map(work)
            .collect();
        let generator = scope.spawn(|| generate(&server, schedule, end, clock));
        let (seen, writes_per_s) = watch(&server, measure, clock, bar);
        let (mut stats, lateness_us) = join(generator);
        // Who was taken in may still be answered in time.
        pause(stats::DEADLINE);
        server.stop();
        threads
            .into_iter()
            .map(join)
            .for_each(|part| stats.add(&part));
        ArmRun {
            arm,
            stats,
            seen,
            writes_per_s,
            lateness_us,
        }
    })
}

/// Watches a run to its end: what was seen, and writes per second, both without the warm-up.
fn watch(server: &Server, measure: Duration, clock: &Clock, bar: &ProgressBar) -> (Seen, f64) {
    let mut seen = Seen::default();
    let (mut last, mut from) = (Duration::ZERO, None);
    loop {
        let at = clock.now().saturating_duration_since(server.start());
        let counts = at >= WARM_UP;
        if counts && from.is_none() {
            from = Some((at, server.written().load(Ordering::Relaxed)));
        }
        seen.look(
            server.store(),
            server.written().load(Ordering::Relaxed),
            at,
            at - last,
            counts,
        );
        bar.inc((at - last).as_millis() as u64);
        last = at;
        if at >= WARM_UP + measure {
            break;
        }
        pause(watch::PERIOD);
    }
    let (from, before) = from.unwrap_or((last, 0));
    let writes = server.written().load(Ordering::Relaxed) - before;
    (seen, writes as f64 / (last - from).as_secs_f64())
}

/// Offers each request of the schedule when it is due.
fn generate(
    server: &Server,
    schedule: Schedule,
    end: Duration,
    clock: &Clock,
) -> (Stats, Histogram<u64>) {
    // Refused without the right to; the lateness is measured either way.
    let _refused = rustix::process::setpriority_process(None, -10);
    let mut stats = Stats::new();
    let mut lateness_us = histogram();
    let mut now = clock.now();
    for arrival in schedule.take_while(|arrival| arrival.at < end) {
        let due = server.start() + arrival.at;
        while now < due {
            pause(GENERATOR_PERIOD);
            now = clock.now();
        }
        lateness_us.saturating_record(now.saturating_duration_since(due).as_micros() as u64);
        server.offer(&mut stats, arrival, now);
    }
    (stats, lateness_us)
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a load generator waits for real time"
)]
fn pause(time: Duration) {
    thread::sleep(time);
}

fn progress_bar(time: Duration) -> ProgressBar {
    let bar = ProgressBar::new(time.as_millis() as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg:27} {wide_bar} {percent:>3} %") {
        bar.set_style(style);
    }
    bar
}
