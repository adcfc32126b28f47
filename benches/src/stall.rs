//! `lab stall`: a store that takes writes faster than it can compact them, who gets dropped?
//!
//! RocksDB holds writes back when compaction falls behind: first it delays all writers alike, then it stops
//! them. What it gets done is measured first, by writers that never rest, and then what it can sustain, at constant
//! rates. Twice the first is offered, with reads beside it, four times from the same checkpoint and by the same schedule: without
//! control, with Cinnamon that knows nothing of stalls, with the signal
//! [`WriteStall`](cinnamon_rocks::WriteStall), and with [`WriteBytes`] whose budget follows what compactions take out of L0
//! (this one has a lead, [`Arm::lead`]).

mod budget;
mod load;
mod report;
mod server;
mod stats;
mod steady;
mod watch;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use cinnamon_core::simulation::Rng;
use cinnamon_core::{Mode, Request, Scope, Tier};
use cinnamon_rocks::{Store, StoreError, StoreOptions};
use cinnamon_signals::{WriteBytes, WriteBytesHandle};
use clap::Args;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use quanta::Clock;

use budget::Budget;
use load::{Kind, LOAD, ROWS, Schedule, VALUE_BYTES};
use server::{Arm, Server};
use stats::Stats;
use steady::Steady;
use watch::Seen;

use crate::task::{few_slots, histogram, join, pause, within};

/// Small memtables bring the store into its stall within seconds: with RocksDB's 64 MiB it takes minutes.
const WRITE_BUFFER_BYTES: u64 = 512 << 10;
/// Four memtables: with RocksDB's two every burst of writes that outruns one flush is a stop, whatever is
/// compacted.
const WRITE_BUFFERS_MAX: u32 = 4;
/// L0 files at which RocksDB stops, near to the 20 at which it delays: its default for many years, and that of
/// many stores in production.
const L0_STOP_TRIGGER: u32 = 24;
/// What flushes and compactions may write: a slow disk, the same on every machine.
const BACKGROUND_BYTES_PER_S: u64 = 32 << 20;
/// All rows fit: reads are served from memory, and what they lose they lose to admission alone.
const BLOCK_CACHE_BYTES: u64 = 256 << 20;
/// Writers that never rest.
const CLOSED_WRITERS: [u64; 2] = [8, 2];
/// For so long they write before the arms' stores are copied off: until the lower levels owe what they owe
/// in the long run in a store that is held at its soft limits, some 250 MiB by RocksDB's own estimate.
///
/// A store that is merely full takes twice as much for the first half minute, all of it on credit.
const PREPARE: Duration = Duration::from_secs(8);
/// So much longer they write before their rate is measured: by then it no longer falls, and what they owe no
/// longer grows.
const SETTLE: [Duration; 2] = [Duration::from_secs(12), Duration::from_secs(5)];
/// Not counted at the start of each arm, after its lead: by then the gates have found their place, and whom nobody holds back
/// is in his stall. (The signal's own time is two seconds here, and its mean is two seconds late.)
const WARM_UP: Duration = Duration::from_secs(12);
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
    /// Seconds of each run that count. With 8 the best sustained rate varies by 15 % from run to run.
    #[arg(long, default_value_t = 20.0, value_parser = seconds)]
    seconds: f64,
    /// Only this arm, and others named so.
    #[arg(long = "arm", value_enum)]
    arms: Vec<Arm>,
    /// Print all figures, and how things stood every tenth of a second, as JSON.
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    within(text, 0.5, 600.0)
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
    steady: Vec<Steady>,
    /// The best sustained rate, writes per second: the highest of the constant ones that was taken without a stall.
    best_per_s: f64,
    runs: Vec<ArmRun>,
}

impl Outcome {
    /// What the writers that never rest got done, writes per second.
    fn closed_per_s(&self) -> f64 {
        closed_per_s(&self.closed)
    }
}

fn closed_per_s(closed: &[Closed]) -> f64 {
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
    let closed: Duration = SETTLE.iter().map(|&settle| settle + measure).sum();
    let chosen = |arm: &Arm| options.arms.is_empty() || options.arms.contains(arm);
    let chosen: Vec<Arm> = Arm::ALL.into_iter().filter(chosen).collect();
    let arms: Duration = chosen
        .iter()
        .map(|arm| arm.lead() + WARM_UP + measure)
        .sum();
    let steady = (WARM_UP + measure) * steady::RUNS_MAX as u32;
    let bar = progress_bar(closed + steady + arms);

    bar.set_message("preparing");
    let store = prepare(&dir.path().join("base"), options.seed, &clock)?;
    let path = |arm: Arm| dir.path().join(arm.name());
    for &arm in &chosen {
        store.checkpoint(path(arm))?;
    }
    let fresh = |number: usize| dir.path().join(format!("steady-{number}"));
    for number in 0..steady::RUNS_MAX {
        store.checkpoint(fresh(number))?;
    }
    let (mut closed, mut budget) = (Vec::new(), Budget::new());
    for (writers, settle) in CLOSED_WRITERS.into_iter().zip(SETTLE) {
        bar.set_message(format!("{writers} writers that never rest"));
        let server = Server::new(Arm::NoControl, store.clone(), clock.clone(), settle);
        let learned = learning(&mut budget, &store, || {
            closed_loop(&server, writers, measure, options.seed, &bar)
        });
        closed.push(learned?);
    }
    drop(store);
    let closed_per_s = closed_per_s(&closed);
    let mut steady_runs: Vec<Steady> = Vec::new();
    let found = steady::highest(|share| {
        bar.set_message(format!("{share:.3} of that, constant"));
        let store = Store::open(fresh(steady_runs.len()), options_of_store(false))?;
        let server = Server::new(Arm::NoControl, store, clock.clone(), WARM_UP);
        let watch = || watch(&server, measure, &bar);
        let run = steady::run(&server, share, closed_per_s, options.seed << 32, watch)?;
        let holds = run.holds();
        steady_runs.push(run);
        Ok::<bool, Box<dyn Error>>(holds)
    });
    let Some(share) = found? else {
        return Err("RocksDB holds back the least of the constant rates, too".into());
    };
    let mut budget = Some(budget.of_another_store());
    let mut runs = Vec::new();
    for &arm in &chosen {
        bar.set_message(arm.name());
        let (store, bytes) = open(&path(arm), arm, &mut budget)?;
        let schedule = Schedule::new(LOAD * closed_per_s, arm.lead(), options.seed);
        let warm_up = arm.lead() + WARM_UP;
        let server = Server::new(arm, store, clock.clone(), warm_up).telling(bytes);
        runs.push(run_arm(&server, schedule, measure, &bar));
    }
    bar.finish_and_clear();
    Ok(Outcome {
        seed: options.seed,
        seconds: options.seconds,
        closed,
        steady: steady_runs,
        best_per_s: share * closed_per_s,
        runs,
    })
}

fn unthrottled(signal: bool) -> StoreOptions {
    let mut options = StoreOptions::default();
    // Both arms have the same threads, and so the same slots.
    few_slots(&mut options);
    options.block_cache_bytes = BLOCK_CACHE_BYTES;
    options.write_buffer_bytes = WRITE_BUFFER_BYTES;
    options.triggers.write_buffers_max = WRITE_BUFFERS_MAX;
    options.triggers.l0_stop = L0_STOP_TRIGGER;
    options.write_stall = signal;
    options
}

fn options_of_store(signal: bool) -> StoreOptions {
    let mut options = unthrottled(signal);
    options.background_bytes_per_s = Some(BACKGROUND_BYTES_PER_S);
    options
}

/// The store of an arm, and whom to tell of its writes.
fn open(
    path: &Path,
    arm: Arm,
    budget: &mut Option<Budget>,
) -> Result<(Store, Option<WriteBytesHandle>)> {
    let mut options = options_of_store(arm == Arm::WriteStall);
    let Some(mut budget) = budget.take_if(|_| arm == Arm::WriteBytes) else {
        return Ok((Store::open(path, options)?, None));
    };
    options.count_background_bytes = true;
    let watch = Arc::new(OnceLock::new());
    let seen = Arc::clone(&watch);
    let (bytes, handle) = WriteBytes::following(move || budget.look(seen.get()?));
    // Reads fill no L0.
    let bytes = bytes.scope(Scope::Lane("write".to_owned()));
    let store = Store::open_with(path, options, |builder| builder.signal(bytes))?;
    let _first_and_last = watch.set(store.background());
    Ok((store, Some(handle)))
}

/// A store that is full, in debt, and at rest in L0.
fn prepare(path: &Path, seed: u64, clock: &Clock) -> Result<Store> {
    const REST_MAX: Duration = Duration::from_secs(20);
    let store = Store::open(path, unthrottled(false))?;
    store.controller().set_mode(Mode::Off);
    let request = Request::new(Tier::T1);
    let mut value = [0; VALUE_BYTES];
    for row in 0..ROWS {
        load::fill(&mut value, row);
        store.put(&request, &row.to_be_bytes(), &value)?;
    }
    drop(store);
    let mut options = options_of_store(false);
    // For the budget that learns from it.
    options.count_background_bytes = true;
    let store = Store::open(path, options)?;
    store.controller().set_mode(Mode::Off);
    let none = AtomicU64::new(0);
    write_on(&store, CLOSED_WRITERS[0], seed << 32, &none, || {
        pause(PREPARE);
    })?;
    let start = clock.now();
    let few = u64::from(StoreOptions::default().triggers.l0_compaction);
    while store.stall_gauges().l0_files.unwrap_or(0) >= few {
        if clock.now().saturating_duration_since(start) > REST_MAX {
            return Err("the store did not come to rest after it was filled".into());
        }
        pause(Duration::from_millis(5));
    }
    Ok(store)
}

/// Lets the budget watch the store while that goes on.
fn learning<T>(budget: &mut Budget, store: &Store, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    let watch = store.background();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                let _learned = budget.look(&watch);
                pause(budget::PERIOD);
            }
        });
        let done = work();
        over.store(true, Ordering::Release);
        done
    })
}

/// What so many writers that never rest get done, RocksDB's delays and stops included.
fn closed_loop(
    server: &Server,
    writers: u64,
    measure: Duration,
    seed: u64,
    bar: &ProgressBar,
) -> Result<Closed> {
    let seed = seed << 32 ^ writers << 16;
    let seen = write_on(server.store(), writers, seed, server.written(), || {
        watch(server, measure, bar)
    });
    let (seen, writes_per_s) = seen?;
    Ok(Closed {
        writers,
        writes_per_s,
        seen,
    })
}

/// Lets so many threads write without a rest for as long as `meanwhile` takes.
fn write_on<T>(
    store: &Store,
    writers: u64,
    seed: u64,
    written: &AtomicU64,
    meanwhile: impl FnOnce() -> T,
) -> std::result::Result<T, StoreError> {
    let over = AtomicBool::new(false);
    let write = |number| {
        let mut rng = Rng::new(seed ^ number);
        let mut value = [0; VALUE_BYTES];
        while !over.load(Ordering::Acquire) {
            let key = rng.bits() % ROWS;
            load::fill(&mut value, rng.bits());
            store.put(&Request::new(Tier::T1), &key.to_be_bytes(), &value)?;
            written.fetch_add(1, Ordering::Relaxed);
        }
        Ok::<(), StoreError>(())
    };
    thread::scope(|scope| {
        let write = &write;
        let spawn = |number| scope.spawn(move || write(number));
        let threads: Vec<_> = (0..writers).map(spawn).collect();
        let seen = meanwhile();
        over.store(true, Ordering::Release);
        threads.into_iter().try_for_each(join)?;
        Ok(seen)
    })
}

fn run_arm(server: &Server, schedule: Schedule, measure: Duration, bar: &ProgressBar) -> ArmRun {
    let options = options_of_store(false);
    let pools = [
        (Kind::Read, options.read_limit.start()),
        (Kind::Write, options.write_limit.start()),
    ];
    thread::scope(|scope| {
        let work = |kind| scope.spawn(move || server.work(kind));
        let threads: Vec<_> = pools
            .into_iter()
            .flat_map(|(kind, threads)| (0..threads).map(move |_| kind))
            .map(work)
            .collect();
        let generator = scope.spawn(move || generate(server, schedule, server.warm_up() + measure));
        let (seen, writes_per_s) = watch(server, measure, bar);
        let (mut stats, lateness_us) = join(generator);
        // Who was taken in may still be answered in time.
        pause(stats::DEADLINE);
        server.stop();
        let parts = threads.into_iter().map(join);
        parts.for_each(|part| stats.add(&part));
        ArmRun {
            arm: server.arm(),
            stats,
            seen,
            writes_per_s,
            lateness_us,
        }
    })
}

/// Watches a run to its end: what was seen, and writes per second, both without the warm-up.
fn watch(server: &Server, measure: Duration, bar: &ProgressBar) -> (Seen, f64) {
    let written = || server.written().load(Ordering::Relaxed);
    let mut seen = Seen::default();
    let (mut last, mut from) = (Duration::ZERO, None);
    loop {
        let at = server.elapsed();
        let counts = at >= server.warm_up();
        if counts && from.is_none() {
            from = Some((at, written()));
        }
        seen.look(server.store(), written(), at, at - last, counts);
        bar.inc((at - last).as_millis() as u64);
        last = at;
        if at >= server.warm_up() + measure {
            break;
        }
        pause(watch::PERIOD);
    }
    let (from, before) = from.unwrap_or((last, 0));
    let writes = written() - before;
    (seen, writes as f64 / (last - from).as_secs_f64())
}

/// Offers each request of the schedule when it is due.
fn generate(server: &Server, schedule: Schedule, end: Duration) -> (Stats, Histogram<u64>) {
    // Refused without the right to; the lateness is measured either way.
    let _refused = rustix::process::setpriority_process(None, -10);
    let mut stats = Stats::new();
    let mut lateness_us = histogram();
    let mut now = server.elapsed();
    for arrival in schedule.take_while(|arrival| arrival.at < end) {
        while now < arrival.at {
            pause(GENERATOR_PERIOD);
            now = server.elapsed();
        }
        lateness_us.saturating_record((now - arrival.at).as_micros() as u64);
        server.offer(&mut stats, arrival, now);
    }
    (stats, lateness_us)
}

fn progress_bar(time: Duration) -> ProgressBar {
    let bar = ProgressBar::new(time.as_millis() as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg:27} {wide_bar} {percent:>3} %") {
        bar.set_style(style);
    }
    bar
}
