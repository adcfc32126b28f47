//! A small server round the store: a pool of threads fed by a channel.
//!
//! Without control every request goes straight into the channel and waits there, first come first
//! served, as in most servers. With Cinnamon the permit is taken before the channel, so that what is
//! in the channel has a slot and nothing queues behind the controller's own queue: an admission that
//! must wait is put into the channel by its waker, when there is something to look at.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use cinnamon_core::{Mode, Rejected, Request};
use cinnamon_rocks::{Operation, Store, StoreError, StorePermit};
use crossbeam_channel::{Receiver, Sender};
use quanta::{Clock, Instant};

use super::load::{Action, Arrival};
use super::stats::{DEADLINE, PhaseStats};
use crate::machine;
use crate::task::{Task, Waiting};

/// Bytes that a decoded request holds while it is in the server.
const BODY_BYTES: usize = 1_024;
/// Bytes of a row: ten to twenty rows a block.
pub(crate) const ROW_BYTES: usize = 256;

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    NoControl,
    Cinnamon,
}

impl Arm {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NoControl => "no control",
            Self::Cinnamon => "Cinnamon",
        }
    }
}

/// A request inside the server.
pub(crate) struct Job {
    arrival: Arrival,
    due: Instant,
    body: Box<[u8]>,
}

/// The server's front: takes requests in.
pub(crate) struct Server {
    arm: Arm,
    store: Store,
    clock: Clock,
    tasks: Sender<Task<Job>>,
    inbox: Receiver<Task<Job>>,
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
}

impl Server {
    pub(crate) fn new(arm: Arm, store: Store, clock: Clock) -> Self {
        let (tasks, inbox) = crossbeam_channel::unbounded();
        store.controller().set_mode(if arm == Arm::NoControl {
            Mode::Off
        } else {
            Mode::Enforce
        });
        Self {
            arm,
            store,
            clock,
            tasks,
            inbox,
            stop: Arc::new(AtomicBool::new(false)),
            served: Arc::new(AtomicU64::new(0)),
        }
    }

    /// A worker for one thread of the pool.
    pub(crate) fn worker(&self) -> Worker {
        Worker {
            store: self.store.clone(),
            clock: self.clock.clone(),
            inbox: self.inbox.clone(),
            stop: Arc::clone(&self.stop),
            served: Arc::clone(&self.served),
        }
    }

    /// Requests run so far.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Takes a request in, due at `due`. `Err` when it was refused on the spot.
    pub(crate) fn offer(
        &self,
        arrival: Arrival,
        due: Instant,
        now: Instant,
    ) -> Result<(), Rejected> {
        let job = Job {
            arrival,
            due,
            body: vec![0; BODY_BYTES].into_boxed_slice(),
        };
        if self.arm == Arm::NoControl {
            self.send(Task::Unasked(job));
            return Ok(());
        }
        let (operation, mut request) = request(&arrival);
        let left = DEADLINE.saturating_sub(now.saturating_duration_since(due));
        request = request.time_left(left).bytes(BODY_BYTES as u32);
        let waiting = Arc::new(Waiting {
            pending: Mutex::new(None),
            tasks: self.tasks.clone(),
        });
        let waker = Waker::from(Arc::clone(&waiting));
        // Held until the admission is stored: a waker may be called before we get there.
        let mut pending = waiting
            .pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut admit = self.store.admit(operation, &request);
        match admit.poll_admit(&waker) {
            Poll::Ready(Ok(permit)) => self.send(Task::Admitted(job, permit)),
            Poll::Ready(Err(rejected)) => return Err(rejected),
            Poll::Pending => *pending = Some((job, admit)),
        }
        Ok(())
    }

    /// Requests that wait in the server: for admission, or in the channel.
    pub(crate) fn waiting(&self) -> u64 {
        let admission: u32 = self
            .store
            .snapshot()
            .lanes
            .iter()
            .map(|lane| lane.waiting)
            .sum();
        u64::from(admission) + self.inbox.len() as u64
    }

    /// Whether everything taken in was answered.
    pub(crate) fn is_idle(&self) -> bool {
        let running = |lane: &cinnamon_core::LaneSnapshot| lane.in_use + lane.open_in_use;
        self.waiting() == 0
            && self
                .store
                .snapshot()
                .lanes
                .iter()
                .all(|lane| running(lane) == 0)
    }

    /// Ends the pool; what is still in the channel is never answered.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    fn send(&self, task: Task<Job>) {
        let _never_closed_while_we_hold_a_receiver = self.tasks.send(task);
    }
}

/// One thread of the pool.
pub(crate) struct Worker {
    store: Store,
    clock: Clock,
    inbox: Receiver<Task<Job>>,
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
}

impl Worker {
    /// Serves until stopped and returns what it saw.
    pub(crate) fn run(&self, phases: usize) -> Vec<PhaseStats> {
        let mut stats = vec![PhaseStats::new(); phases];
        while !self.stop.load(Ordering::Acquire) {
            let Ok(task) = self.inbox.recv_timeout(Duration::from_millis(20)) else {
                continue;
            };
            match task {
                Task::Unasked(job) => {
                    let (_, request) = request(&job.arrival);
                    self.run_job(&mut stats, &job, |store| run_unasked(store, &request, &job));
                }
                Task::Admitted(job, permit) => {
                    self.run_job(&mut stats, &job, |store| run_with(store, permit, &job));
                }
                Task::Look(waiting) => self.look(&mut stats, &waiting),
            }
        }
        stats
    }

    fn look(&self, stats: &mut [PhaseStats], waiting: &Arc<Waiting<Job>>) {
        let mut pending = waiting
            .pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some((job, mut admit)) = pending.take() else {
            return;
        };
        match admit.poll_admit(&Waker::from(Arc::clone(waiting))) {
            Poll::Ready(Ok(permit)) => {
                drop(pending);
                self.run_job(stats, &job, |store| run_with(store, permit, &job));
            }
            Poll::Ready(Err(rejected)) => {
                let arrival = &job.arrival;
                let after = self.clock.now().saturating_duration_since(job.due);
                stats[arrival.phase].refuse(rejected.reason(), arrival, after);
            }
            Poll::Pending => *pending = Some((job, admit)),
        }
    }

    fn run_job(
        &self,
        stats: &mut [PhaseStats],
        job: &Job,
        work: impl FnOnce(&Store) -> Result<(), StoreError>,
    ) {
        let stats = &mut stats[job.arrival.phase];
        let cpu = machine::thread_cpu_time();
        let done = work(&self.store);
        if let Action::Scan { rows, .. } = job.arrival.action {
            stats.rows += u64::from(rows);
            stats.rows_cpu += machine::thread_cpu_time().saturating_sub(cpu);
        }
        self.served.fetch_add(1, Ordering::Relaxed);
        match done {
            Ok(()) => {
                let latency = self.clock.now().saturating_duration_since(job.due);
                stats.done(job.arrival.tier, latency);
            }
            Err(StoreError::Rejected(rejected)) => {
                let after = self.clock.now().saturating_duration_since(job.due);
                stats.refuse(rejected.reason(), &job.arrival, after);
            }
            Err(_) => stats.failed += 1,
        }
    }
}

/// How the request presents itself for admission.
fn request(arrival: &Arrival) -> (Operation, Request) {
    let request = Request::new(arrival.tier).key(arrival.caller);
    match arrival.action {
        Action::Scan { rows, .. } => (Operation::Scan, Store::scan_request(&request, rows)),
        Action::Put { .. } => (Operation::Put, request),
    }
}

fn run_unasked(store: &Store, request: &Request, job: &Job) -> Result<(), StoreError> {
    match job.arrival.action {
        Action::Scan { from, rows } => store.scan(request, &from.to_be_bytes(), rows).map(drop),
        Action::Put { key } => store.put(request, &key.to_be_bytes(), &job.body[..ROW_BYTES]),
    }
}

fn run_with(store: &Store, permit: StorePermit, job: &Job) -> Result<(), StoreError> {
    match job.arrival.action {
        Action::Scan { from, rows } => store.scan_with(permit, &from.to_be_bytes(), rows).map(drop),
        Action::Put { key } => store.put_with(permit, &key.to_be_bytes(), &job.body[..ROW_BYTES]),
    }
}

/// Runs one request on the calling thread, for the capacity measurement.
pub(crate) fn run_closed(store: &Store, action: Action) -> Result<(), StoreError> {
    let request = Request::new(cinnamon_core::Tier::T1);
    match action {
        Action::Scan { from, rows } => store.scan(&request, &from.to_be_bytes(), rows).map(drop),
        Action::Put { key } => store.put(&request, &key.to_be_bytes(), &[0; ROW_BYTES]),
    }
}
