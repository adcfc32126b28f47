//! `lab slots`: the limit that finds itself against every fixed one, on a real RocksDB store.
//!
//! Clients that never rest ask as fast as they are answered, through a lane of each arm in turn: the same store,
//! as many threads, slices of the arms interleaved, so that what else goes on in the machine meets all alike.
//! Each arm has a controller of its own; the store's is off. Auto begins with what the store gives its lanes, and
//! has some slices to itself before any counts.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use cinnamon_core::simulation::Rng;
use cinnamon_core::{
    AdmitOwned, Completion, Config, Controller, Lane, LaneSettings, Limit, Mode, Order, Outcome,
    OwnedPermit, Request, Settings, Tier,
};
use cinnamon_rocks::{FOUND_LIMIT_MAX, Store, StoreError, StoreOptions};
use clap::Args;
use crossbeam_channel::{Receiver, Sender};
use hdrhistogram::Histogram;
use quanta::Clock;

use crate::task::{Task, Waiting, histogram, join, pause, within};

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
    /// Seconds that Auto has to itself before any slice counts.
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

    fn writes(self, rng: &mut Rng) -> bool {
        match self {
            Self::CachedReads | Self::UncachedReads => false,
            Self::Writes => rng.unit() < 0.9,
            Self::SyncedWrites => true,
        }
    }
}

/// One way to set the limit.
struct Arm {
    name: String,
    fixed: bool,
    controller: Controller,
    lane: Lane,
    /// Of each slice: answers a second, and P95 of the residence.
    slices: Vec<(f64, f64)>,
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
    let clock = Clock::new();
    let mut held = true;
    for workload in Workload::ALL {
        let dir = tempfile::tempdir()?;
        let store = prepare(dir.path(), workload)?;
        let mut arms = arms(workload)?;
        let auto = arms.len() - 1;
        println!("{}", workload.about());
        slice(&store, workload, &arms[auto], &clock, options.search)?;
        for _ in 0..options.rounds {
            for arm in &mut arms {
                let figures = slice(&store, workload, arm, &clock, options.seconds)?;
                arm.slices.push(figures);
            }
        }
        held &= report(&arms);
    }
    Ok(held)
}

fn prepare(path: &Path, workload: Workload) -> Result<Store> {
    let store = Store::open(path, workload.options())?;
    store.controller().set_mode(Mode::Off);
    let request = Request::new(Tier::T1);
    if workload == Workload::SyncedWrites {
        return Ok(store);
    }
    for row in 0..ROWS {
        store.put(&request, &row.to_be_bytes(), &[row as u8; VALUE_BYTES])?;
    }
    for row in 0..ROWS {
        store.get(&request, &row.to_be_bytes())?;
    }
    Ok(store)
}

fn arms(workload: Workload) -> Result<Vec<Arm>> {
    let found = match workload {
        Workload::CachedReads | Workload::UncachedReads => workload.options().read_limit,
        Workload::Writes | Workload::SyncedWrites => workload.options().write_limit,
    };
    let limits = BY_HAND.into_iter().map(Limit::fixed);
    limits
        .chain([found.at_most(FOUND_LIMIT_MAX)])
        .map(|limit| {
            let fixed = limit == Limit::fixed(limit.start());
            let mut lane = LaneSettings::new("main", 1).limit(limit);
            lane.order = Order::Fifo;
            let config = Config::new(Settings::default().lane(lane))?;
            let controller = Controller::builder(config).build()?;
            let lane = controller.lane("main")?;
            Ok(Arm {
                name: if fixed {
                    format!("fixed {limit}")
                } else {
                    "auto".to_owned()
                },
                fixed,
                controller,
                lane,
                slices: Vec::new(),
            })
        })
        .collect()
}

/// A call of a client: when it asked, and the state of its dice.
struct Call {
    rng: Rng,
    asked: u64,
}

/// What is admitted by a lane of the experiment's own, not by the store.
type Work = Task<Call, AdmitOwned, OwnedPermit>;

/// What the threads of a slice share.
struct Slice<'a> {
    store: &'a Store,
    workload: Workload,
    lane: &'a Lane,
    clock: &'a Clock,
    tasks: Sender<Work>,
    inbox: Receiver<Work>,
    counts: AtomicBool,
    over: AtomicBool,
}

impl Slice<'_> {
    /// The client asks, unless the slice is over.
    fn ask(&self, rng: Rng) {
        if self.over.load(Ordering::Relaxed) {
            return;
        }
        // The best tier: what is measured is the limit, and the gate leaves it alone.
        // One key, one level: first come, first served.
        let request = Request::new(Tier::T0).key(1);
        let call = Call {
            rng,
            asked: self.clock.raw(),
        };
        let waiting = Arc::new(Waiting {
            pending: Mutex::new(None),
            tasks: self.tasks.clone(),
        });
        // Held until the admission is stored: the waker may be called before.
        let mut pending = waiting
            .pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut admit = self.lane.admit_owned(&request);
        match admit.poll_admit(&Waker::from(Arc::clone(&waiting))) {
            Poll::Ready(Ok(permit)) => self.send(Task::Admitted(call, permit)),
            Poll::Ready(Err(_)) => self.send(Task::Unasked(call)),
            Poll::Pending => *pending = Some((call, admit)),
        }
    }

    fn send(&self, task: Work) {
        let _never_closed_while_we_hold_a_receiver = self.tasks.send(task);
    }

    /// One thread of the pool.
    fn work(&self) -> std::result::Result<Seen, StoreError> {
        let mut seen = Seen::new();
        while !self.over.load(Ordering::Relaxed) {
            let Ok(task) = self.inbox.recv_timeout(Duration::from_millis(20)) else {
                continue;
            };
            match task {
                Task::Admitted(call, permit) => self.run(call, permit, &mut seen)?,
                // Refused: it asks again.
                Task::Unasked(call) => {
                    seen.refused += 1;
                    pause(REFUSED_PAUSE);
                    self.ask(call.rng);
                }
                Task::Look(waiting) => {
                    let mut pending = waiting
                        .pending
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    let Some((call, mut admit)) = pending.take() else {
                        continue;
                    };
                    match admit.poll_admit(&Waker::from(Arc::clone(&waiting))) {
                        Poll::Ready(Ok(permit)) => {
                            drop(pending);
                            self.run(call, permit, &mut seen)?;
                        }
                        Poll::Ready(Err(_)) => {
                            drop(pending);
                            self.send(Task::Unasked(call));
                        }
                        Poll::Pending => *pending = Some((call, admit)),
                    }
                }
            }
        }
        Ok(seen)
    }

    fn run(
        &self,
        mut call: Call,
        permit: OwnedPermit,
        seen: &mut Seen,
    ) -> std::result::Result<(), StoreError> {
        let keys: [[u8; 8]; ROWS_PER_CALL] =
            std::array::from_fn(|_| (call.rng.bits() % ROWS).to_be_bytes());
        // The store's own controller is off: this is the call and nothing else.
        let request = Request::new(Tier::T1);
        let done = if self.workload.writes(&mut call.rng) {
            let mut batch = self.store.batch();
            for key in &keys {
                batch.put(self.store, key, &[keys[0][7]; VALUE_BYTES]);
            }
            self.store.write(&request, batch)
        } else {
            self.store.multi_get(&request, &keys).map(|_| ())
        };
        permit.finish(Completion::new(match done {
            Ok(()) => Outcome::Success,
            Err(_) => Outcome::Failure,
        }));
        done?;
        if self.counts.load(Ordering::Relaxed) {
            let us = self.clock.delta_as_nanos(call.asked, self.clock.raw()) / 1_000;
            seen.residence_us.saturating_record(us.max(1));
        }
        self.ask(call.rng);
        Ok(())
    }
}

/// What a thread of the pool saw.
struct Seen {
    residence_us: Histogram<u64>,
    refused: u64,
}

impl Seen {
    fn new() -> Self {
        Self {
            residence_us: histogram(),
            refused: 0,
        }
    }
}

/// So many seconds of all clients through this arm's lane.
fn slice(
    store: &Store,
    workload: Workload,
    arm: &Arm,
    clock: &Clock,
    seconds: f64,
) -> Result<(f64, f64)> {
    let (tasks, inbox) = crossbeam_channel::unbounded();
    let slice = Slice {
        store,
        workload,
        lane: &arm.lane,
        clock,
        tasks,
        inbox,
        counts: AtomicBool::new(false),
        over: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| slice.work())).collect();
        (0..CLIENTS).for_each(|client| slice.ask(Rng::new(0x0051_0075 ^ client)));
        pause(SLICE_WARM_UP);
        slice.counts.store(true, Ordering::Relaxed);
        let begun = clock.raw();
        pause(Duration::from_secs_f64(seconds));
        let took_s = clock.delta_as_nanos(begun, clock.raw()) as f64 * 1e-9;
        slice.over.store(true, Ordering::Relaxed);
        let mut all = Seen::new();
        for thread in threads {
            let seen = join(thread)?;
            all.residence_us.add(seen.residence_us)?;
            all.refused += seen.refused;
        }
        // Who still waits is told that it is over.
        while slice.inbox.try_recv().is_ok() {}
        if all.refused > all.residence_us.len() / 100 {
            eprintln!("{}: {} calls were refused", arm.name, all.refused);
        }
        let p95_us = all.residence_us.value_at_quantile(0.95) as f64;
        Ok((all.residence_us.len() as f64 / took_s, p95_us))
    })
}

fn report(arms: &[Arm]) -> bool {
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
        let lane = &arm.controller.snapshot().lanes[0];
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
