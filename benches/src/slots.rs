//! `lab slots`: the limit that finds itself against every fixed one, on a real RocksDB store.
//!
//! Clients that never rest ask as fast as they are answered, as tasks of a runtime: an asynchronous store for each way
//! to set the limit, with its own pool of threads, as it is shipped. Each has the same rows in a folder of its own; their slices are
//! interleaved, in another order each round, so that what else goes on in the machine meets all alike. Auto begins
//! with what the store gives its lanes, and has some seconds to itself before any counts.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cinnamon_core::simulation::Rng;
use cinnamon_core::{LaneSettings, Limit, Mode, Order, Request, Tier};
use cinnamon_rocks::{AsyncStore, Store, StoreError, StoreOptions};
use clap::Args;
use hdrhistogram::Histogram;
use quanta::Clock;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::task::{histogram, pause, within};

const ROWS: u64 = 200_000;
const VALUE_BYTES: usize = 100;
/// Rows of a call: with one, of 5 us, what is measured is how threads wake one another.
const ROWS_PER_CALL: usize = 64;
/// Clients: half as many again as the highest limit tried by hand, or it would limit nothing.
const CLIENTS: u64 = 48;
/// A client that was refused asks again after this: at once would be a second overload.
const REFUSED_PAUSE: Duration = Duration::from_millis(2);
/// The fixed limits that are tried by hand.
const BY_HAND: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// At the beginning of a slice the clients come from another arm.
const SLICE_WARM_UP: Duration = Duration::from_millis(100);
/// The bars: throughput of the best, and P95 of its residence.
const THROUGHPUT_MIN: f64 = 0.95;
const P95_MAX: f64 = 1.25;
/// Of the fixed limits whose throughput is at least this much of the greatest, the best has the least P95.
const AS_GOOD: f64 = 0.98;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Options of `lab slots`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Slices that each arm gets and that count.
    #[arg(long, default_value_t = 8)]
    rounds: u32,
    /// Seconds of a slice.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Seconds that Auto has to itself before any slice counts; where writes change the store, each arm has them.
    #[arg(long, default_value_t = 8.0, value_parser = seconds)]
    search: f64,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    within(text, 0.2, 600.0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workload {
    CachedReads,
    UncachedReads,
    Writes,
    SyncedWrites,
}

impl Workload {
    const ALL: [Self; 4] = [
        Self::CachedReads,
        Self::UncachedReads,
        Self::Writes,
        Self::SyncedWrites,
    ];

    const fn about(self) -> &'static str {
        match self {
            Self::CachedReads => "cached reads, 64 rows a call: every row in the block cache",
            Self::UncachedReads => "uncached reads: no block cache, every read fetches its block",
            Self::Writes => "write-heavy: nine calls in ten write",
            Self::SyncedWrites => "synced writes: each waits for its log record to be on the disk",
        }
    }

    fn options(self) -> StoreOptions {
        let mut options = StoreOptions::default();
        options.write_stall = false;
        options.block_cache_bytes = match self {
            Self::UncachedReads => 0,
            _ => 256 << 20,
        };
        options.sync_writes = self == Self::SyncedWrites;
        options
    }

    const fn mostly_writes(self) -> bool {
        matches!(self, Self::Writes | Self::SyncedWrites)
    }

    fn writes(self, rng: &mut Rng) -> bool {
        match self {
            Self::CachedReads | Self::UncachedReads => false,
            Self::Writes => rng.unit() < 0.9,
            Self::SyncedWrites => true,
        }
    }
}

/// One way to set the limit, and the store it is set of.
struct Arm {
    name: String,
    fixed: bool,
    store: AsyncStore,
    /// Of each slice: answers a second, and P95 of the residence.
    slices: Vec<(f64, f64)>,
    _dir: TempDir,
}

/// Runs all workloads. 0 when the bars were held in each, 1 when not, 2 when it could not be run.
pub(crate) fn main(options: &Options) -> ExitCode {
    match run(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("lab slots: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_time()
        .build()?;
    let clock = Clock::new();
    let mut held = true;
    for workload in Workload::ALL {
        println!("{}", workload.about());
        let mut arms = arms(workload)?;
        let mut rng = Rng::new(0x0051_0075);
        for arm in &arms {
            // What was written meanwhile has to be compacted in the slices that count: all or none.
            if !arm.fixed || workload.mostly_writes() {
                slice(&runtime, workload, arm, &clock, options.search)?;
            }
        }
        for _ in 0..options.rounds {
            // What one leaves behind for its successor, a compaction, is not always for the same.
            let mut order: Vec<usize> = (0..arms.len()).collect();
            for last in (1..order.len()).rev() {
                order.swap(last, (rng.bits() % (last as u64 + 1)) as usize);
            }
            for index in order {
                let arm = &mut arms[index];
                let figures = slice(&runtime, workload, arm, &clock, options.seconds)?;
                arm.slices.push(figures);
            }
        }
        held &= report(&arms, workload);
        for arm in &arms {
            arm.store.shutdown();
        }
    }
    Ok(held)
}

fn arms(workload: Workload) -> Result<Vec<Arm>> {
    let found = workload.options();
    let found = [found.read_limit, found.write_limit];
    let by_hand = BY_HAND.into_iter().map(|slots| [Limit::fixed(slots); 2]);
    by_hand
        .chain([found])
        .map(|limits| {
            let mut options = workload.options();
            [options.read_limit, options.write_limit] = limits;
            options.control.lanes = Vec::new();
            for (name, limit) in [("read", limits[0]), ("write", limits[1])] {
                let mut lane = LaneSettings::new(name, 1).limit(limit);
                lane.order = Order::Fifo;
                options.control.lanes.push(lane);
            }
            let dir = tempfile::tempdir()?;
            let store = prepare(&dir, options)?;
            let fixed = limits != found;
            Ok(Arm {
                name: if fixed {
                    format!("fixed {}", limits[0])
                } else {
                    "auto".to_owned()
                },
                fixed,
                store: AsyncStore::new(store)?,
                slices: Vec::new(),
                _dir: dir,
            })
        })
        .collect()
}

/// A store with all its rows, each read once.
fn prepare(dir: &TempDir, options: StoreOptions) -> Result<Store> {
    let store = Store::open(dir.path(), options)?;
    store.controller().set_mode(Mode::Off);
    let request = Request::new(Tier::T1);
    let rows: Vec<u64> = (0..ROWS).collect();
    for rows in rows.chunks(1_000) {
        let mut batch = store.batch();
        for row in rows {
            batch.put(&store, &row.to_be_bytes(), &[*row as u8; VALUE_BYTES]);
        }
        store.write(&request, batch)?;
    }
    for row in rows {
        store.get(&request, &row.to_be_bytes())?;
    }
    store.controller().set_mode(Mode::Enforce);
    Ok(store)
}

/// What a client saw.
struct Seen {
    residence_us: Histogram<u64>,
    refused: u64,
}

/// One client: asks as soon as it is answered.
async fn client(
    store: AsyncStore,
    workload: Workload,
    mut rng: Rng,
    clock: Clock,
    [counts, over]: [Arc<AtomicBool>; 2],
) -> std::result::Result<Seen, StoreError> {
    let mut seen = Seen {
        residence_us: histogram(),
        refused: 0,
    };
    // The best tier: what is measured is the limit, and the gate leaves it alone. One key, one level: first
    // come, first served.
    let request = Request::new(Tier::T0).key(1);
    while !over.load(Ordering::Relaxed) {
        let keys: [[u8; 8]; ROWS_PER_CALL] =
            std::array::from_fn(|_| (rng.bits() % ROWS).to_be_bytes());
        let asked = clock.raw();
        let done = if workload.writes(&mut rng) {
            let mut batch = store.batch();
            for key in &keys {
                batch.put(store.store(), key, &[keys[0][7]; VALUE_BYTES]);
            }
            store.write(&request, batch).await
        } else {
            let keys = keys.iter().map(|key| key.to_vec()).collect();
            store.multi_get(&request, keys).await.map(drop)
        };
        match done {
            Ok(()) if counts.load(Ordering::Relaxed) => {
                let us = clock.delta_as_nanos(asked, clock.raw()) / 1_000;
                seen.residence_us.saturating_record(us.max(1));
            }
            Ok(()) => {}
            Err(StoreError::Rejected(_)) => {
                seen.refused += 1;
                tokio::time::sleep(REFUSED_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(seen)
}

/// So many seconds of all clients on this arm's store: answers a second, and P95 of the residence.
fn slice(
    runtime: &Runtime,
    workload: Workload,
    arm: &Arm,
    clock: &Clock,
    seconds: f64,
) -> Result<(f64, f64)> {
    let (counts, over) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let rng = Rng::new(0x0051_0075 ^ number);
        let flags = [Arc::clone(&counts), Arc::clone(&over)];
        let client = client(arm.store.clone(), workload, rng, clock.clone(), flags);
        clients.spawn_on(client, runtime.handle());
    }
    pause(SLICE_WARM_UP);
    counts.store(true, Ordering::Relaxed);
    let begun = clock.raw();
    pause(Duration::from_secs_f64(seconds));
    let took_s = clock.delta_as_nanos(begun, clock.raw()) as f64 * 1e-9;
    over.store(true, Ordering::Relaxed);
    let (mut residence_us, mut refused) = (histogram(), 0);
    for seen in runtime.block_on(clients.join_all()) {
        let seen = seen?;
        residence_us.add(seen.residence_us)?;
        refused += seen.refused;
    }
    if refused > residence_us.len() / 100 {
        eprintln!("{}: {refused} calls were refused", arm.name);
    }
    let p95_us = residence_us.value_at_quantile(0.95) as f64;
    Ok((residence_us.len() as f64 / took_s, p95_us))
}

fn report(arms: &[Arm], workload: Workload) -> bool {
    let median = |arm: &Arm, of: fn(&(f64, f64)) -> f64| {
        let mut all: Vec<f64> = arm.slices.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let throughput = |arm: &Arm| median(arm, |slice| slice.0);
    let p95_us = |arm: &Arm| median(arm, |slice| slice.1);
    let most = arms.iter().filter(|arm| arm.fixed).map(throughput);
    let most = most.fold(0.0, f64::max);
    let good = |arm: &&Arm| arm.fixed && throughput(arm) >= AS_GOOD * most;
    let best = arms.iter().filter(good);
    let best = best.min_by(|a, b| p95_us(a).total_cmp(&p95_us(b)));
    let mut held = false;
    for arm in arms {
        let lanes = arm.store.store().controller().snapshot().lanes;
        let lane = &lanes[usize::from(workload.mostly_writes())];
        let mut note = String::new();
        if let Some(best) = best {
            let ratios = (
                throughput(arm) / throughput(best),
                p95_us(arm) / p95_us(best),
            );
            note = format!(
                "{:.2} of its throughput, {:.2} of its P95",
                ratios.0, ratios.1
            );
            if arm.name == best.name {
                note = "the best by hand".to_owned();
            }
            if !arm.fixed {
                held = ratios.0 >= THROUGHPUT_MIN && ratios.1 <= P95_MAX;
                let word = if held { "held" } else { "MISSED" };
                let moved = lane.limit_moved.as_ref();
                let moved = moved.map_or_else(String::new, |moved| {
                    format!(", from {} to {}: {}", moved.from, moved.to, moved.rule)
                });
                note = format!("{note}: {word}; limit {}{moved}", lane.limit);
            }
        }
        println!(
            "  {:<9} {:>9.0} answers/s, P95 {:>8.0} us   {note}",
            arm.name,
            throughput(arm),
            p95_us(arm),
        );
    }
    held
}
