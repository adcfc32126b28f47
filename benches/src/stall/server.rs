//! A small server round the store: one pool of threads for reads and one for writes, each fed by a channel.
//!
//! Without control every request goes straight into its channel and waits there, first come first served.
//! With Cinnamon the permit is taken before the channel, as in `lab demo`: what is in a channel has a slot,
//! and an admission that must wait is put into it by its waker.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use cinnamon_core::{Mode, Reason, Request};
use cinnamon_rocks::{Operation, Store, StoreError, StorePermit};
use cinnamon_signals::WriteBytesHandle;
use clap::ValueEnum;
use crossbeam_channel::{Receiver, Sender};
use quanta::{Clock, Instant};

use super::load::{self, Arrival, Kind, VALUE_BYTES};
use super::stats::{DEADLINE, Stats};
use crate::task::{Task, Waiting};

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Arm {
    /// Nobody: threads and an endless line.
    NoControl,
    /// Cinnamon, which knows nothing of stalls.
    WithoutSignal,
    /// Cinnamon with the signal of the store.
    WriteStall,
    /// Cinnamon with a budget of bytes.
    WriteBytes,
}

impl Arm {
    pub(crate) const ALL: [Self; 4] = [
        Self::NoControl,
        Self::WithoutSignal,
        Self::WriteStall,
        Self::WriteBytes,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NoControl => "no control",
            Self::WithoutSignal => "Cinnamon without the signal",
            Self::WriteStall => "Cinnamon with WriteStall",
            Self::WriteBytes => "Cinnamon with WriteBytes",
        }
    }

    /// For so long only half of what can be sustained is offered at first: a rate over a window is known only after one,
    /// and with these memtables RocksDB stops a second after the rush has come.
    pub(crate) const fn lead(self) -> Duration {
        match self {
            Self::WriteBytes => Duration::from_secs(3),
            _ => Duration::ZERO,
        }
    }
}

/// Bytes of a write, key and value.
const WRITE_BYTES: u64 = (size_of::<u64>() + VALUE_BYTES) as u64;

/// Both ends of what the workers of one kind are fed by.
type Channel = (Sender<Task<Arrival>>, Receiver<Task<Arrival>>);

/// The server.
pub(crate) struct Server {
    arm: Arm,
    store: Store,
    clock: Clock,
    start: Instant,
    /// Requests due earlier than this after the start are not counted.
    warm_up: Duration,
    /// By kind.
    channels: [Channel; 2],
    stop: AtomicBool,
    written: AtomicU64,
    /// Told of each write that was let in.
    bytes: Option<WriteBytesHandle>,
}

impl Server {
    pub(crate) fn new(arm: Arm, store: Store, clock: Clock, warm_up: Duration) -> Self {
        store.controller().set_mode(if arm == Arm::NoControl {
            Mode::Off
        } else {
            Mode::Enforce
        });
        Self {
            arm,
            store,
            start: clock.now(),
            clock,
            warm_up,
            channels: std::array::from_fn(|_| crossbeam_channel::unbounded()),
            stop: AtomicBool::new(false),
            written: AtomicU64::new(0),
            bytes: None,
        }
    }

    /// The same, and each write that is let in is told to this.
    pub(crate) fn telling(mut self, bytes: Option<WriteBytesHandle>) -> Self {
        self.bytes = bytes;
        self
    }

    pub(crate) const fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) const fn arm(&self) -> Arm {
        self.arm
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.start)
    }

    /// What is due in this time after the start is not counted.
    pub(crate) const fn warm_up(&self) -> Duration {
        self.warm_up
    }

    /// Writes that RocksDB has taken so far.
    pub(crate) const fn written(&self) -> &AtomicU64 {
        &self.written
    }

    /// Takes a request in at `now` after the start.
    pub(crate) fn offer(&self, stats: &mut Stats, arrival: Arrival, now: Duration) {
        let kind = arrival.kind;
        if self.counts(&arrival) {
            stats.cell_mut(arrival.kind, arrival.tier).offered += 1;
        }
        let (operation, request) = request(&arrival);
        if self.arm == Arm::NoControl {
            self.send(kind, Task::Unasked(arrival));
            return;
        }
        let left = DEADLINE.saturating_sub(now.saturating_sub(arrival.at));
        let waiting = Arc::new(Waiting {
            pending: Mutex::new(None),
            tasks: self.channels[arrival.kind as usize].0.clone(),
        });
        let waker = Waker::from(Arc::clone(&waiting));
        // Held until the admission is stored: a waker may be called before we get there.
        let mut pending = waiting
            .pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut admit = self.store.admit(operation, &request.time_left(left));
        match admit.poll_admit(&waker) {
            Poll::Ready(Ok(permit)) => self.send(kind, Task::Admitted(arrival, permit)),
            Poll::Ready(Err(rejected)) => self.refuse(stats, &arrival, rejected.reason()),
            Poll::Pending => *pending = Some((arrival, admit)),
        }
    }

    /// Serves this kind on the calling thread until stopped.
    pub(crate) fn work(&self, kind: Kind) -> Stats {
        let mut stats = Stats::new();
        while !self.stop.load(Ordering::Acquire) {
            let inbox = &self.channels[kind as usize].1;
            let Ok(task) = inbox.recv_timeout(Duration::from_millis(20)) else {
                continue;
            };
            match task {
                Task::Unasked(arrival) => self.run(&mut stats, &arrival, None),
                Task::Admitted(arrival, permit) => self.run(&mut stats, &arrival, Some(permit)),
                Task::Look(waiting) => self.look(&mut stats, &waiting),
            }
        }
        stats
    }

    /// Ends the pools; what is still in the channels is never answered.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    fn look(&self, stats: &mut Stats, waiting: &Arc<Waiting<Arrival>>) {
        let mut pending = waiting
            .pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some((arrival, mut admit)) = pending.take() else {
            return;
        };
        match admit.poll_admit(&Waker::from(Arc::clone(waiting))) {
            Poll::Ready(Ok(permit)) => {
                drop(pending);
                self.run(stats, &arrival, Some(permit));
            }
            Poll::Ready(Err(rejected)) => self.refuse(stats, &arrival, rejected.reason()),
            Poll::Pending => *pending = Some((arrival, admit)),
        }
    }

    fn run(&self, stats: &mut Stats, arrival: &Arrival, permit: Option<StorePermit>) {
        let done = match arrival.kind {
            Kind::Read => get(&self.store, arrival, permit),
            Kind::Write => {
                let told = self.bytes.as_ref().map(|bytes| bytes.admit(WRITE_BYTES));
                let done = put(&self.store, arrival, permit);
                // Dropped, it is taken back.
                if let Some(told) = told.filter(|_| done.is_ok()) {
                    told.complete(WRITE_BYTES);
                }
                done
            }
        };
        if done.is_ok() && arrival.kind == Kind::Write {
            self.written.fetch_add(1, Ordering::Relaxed);
        }
        match done {
            Ok(()) if self.counts(arrival) => {
                let latency = self.elapsed().saturating_sub(arrival.at);
                stats.done(arrival.kind, arrival.tier, latency);
            }
            Ok(()) => {}
            Err(StoreError::Rejected(rejected)) => self.refuse(stats, arrival, rejected.reason()),
            Err(_) => stats.cell_mut(arrival.kind, arrival.tier).failed += 1,
        }
    }

    fn refuse(&self, stats: &mut Stats, arrival: &Arrival, reason: Reason) {
        stats.note_refusal(arrival.tier, self.elapsed());
        if self.counts(arrival) {
            stats.refuse(arrival.kind, arrival.tier, reason);
        }
    }

    fn counts(&self, arrival: &Arrival) -> bool {
        arrival.at >= self.warm_up
    }

    fn send(&self, kind: Kind, task: Task<Arrival>) {
        let _never_closed_while_we_hold_a_receiver = self.channels[kind as usize].0.send(task);
    }
}

/// How the request presents itself for admission.
fn request(arrival: &Arrival) -> (Operation, Request) {
    let request = Request::new(arrival.tier).key(arrival.caller);
    match arrival.kind {
        Kind::Read => (Operation::Get, request),
        Kind::Write => (Operation::Put, request),
    }
}

fn get(store: &Store, arrival: &Arrival, permit: Option<StorePermit>) -> Result<(), StoreError> {
    let key = arrival.key.to_be_bytes();
    let value = match permit {
        Some(permit) => store.get_with(permit, &key),
        None => store.get(&request(arrival).1, &key),
    };
    value.map(drop)
}

fn put(store: &Store, arrival: &Arrival, permit: Option<StorePermit>) -> Result<(), StoreError> {
    let key = arrival.key.to_be_bytes();
    let mut value = [0; VALUE_BYTES];
    load::fill(&mut value, arrival.caller ^ arrival.key << 32);
    match permit {
        Some(permit) => store.put_with(permit, &key, &value),
        None => store.put(&request(arrival).1, &key, &value),
    }
}
