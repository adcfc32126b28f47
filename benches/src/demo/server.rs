//! A small server round the store: a pool of threads fed by a channel, and before it whoever decides.
//!
//! Without control every request goes straight into the channel. A policy of the laboratory, behind a mutex, or
//! the store's own controller decides before the channel, so that what is in it has a slot.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use cinnamon_core::simulation::{Answer, Done, Offer, Policy};
use cinnamon_core::{Instant as Time, KeyHash, Request, Snapshot};
use cinnamon_rocks::{Operation, Store, StoreError, StorePermit};
use crossbeam_channel::{Receiver, Sender};
use quanta::{Clock, Instant};

use super::arm::Arm;
use super::load::{Action, Arrival, FAT_ROW_BYTES};
use super::stats::{DEADLINE, Stats};
use crate::task::{Task, Waiting};

/// Bytes that a decoded request holds while it is in the server.
const BODY_BYTES: usize = 1_024;
/// Most requests that wait for the arm with a fixed limit: what thread pools come with.
const FIXED_QUEUE_LEN: usize = 256;
/// Policies are asked this often whether their time has come.
pub(crate) const WAKE_PERIOD: Duration = Duration::from_millis(2);

/// A request inside the server.
pub(crate) struct Job {
    arrival: Arrival,
    body: Box<[u8]>,
    /// Of a policy's offer.
    token: Option<u32>,
}

/// A policy, and who waits for it.
struct Decider {
    policy: Box<dyn Policy>,
    waiting: HashMap<u32, Job>,
    waiting_max: usize,
    free: Vec<u32>,
    tokens: u32,
    answers: Vec<(u32, Answer)>,
}

pub(crate) struct Server {
    arm: Arm,
    store: Store,
    clock: Clock,
    start: Instant,
    decider: Option<Mutex<Decider>>,
    tasks: Sender<Task<Job>>,
    inbox: Receiver<Task<Job>>,
    stop: AtomicBool,
    served: AtomicU64,
}

impl Server {
    pub(crate) fn new(
        arm: Arm,
        store: Store,
        policy: Option<Box<dyn Policy>>,
        clock: Clock,
    ) -> Self {
        let (tasks, inbox) = crossbeam_channel::unbounded();
        store.controller().set_mode(arm.mode());
        let decider = policy.map(|policy| {
            Mutex::new(Decider {
                policy,
                waiting: HashMap::new(),
                waiting_max: match arm {
                    Arm::FixedFifo => FIXED_QUEUE_LEN,
                    _ => usize::MAX,
                },
                free: Vec::new(),
                tokens: 0,
                answers: Vec::new(),
            })
        });
        Self {
            arm,
            store,
            start: clock.now(),
            clock,
            decider,
            tasks,
            inbox,
            stop: AtomicBool::new(false),
            served: AtomicU64::new(0),
        }
    }

    pub(crate) const fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.start)
    }

    /// Requests run so far.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Requests that wait in the server: for admission, or in the channel.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting_in(&self.store.snapshot())
    }

    /// The same, as this snapshot of the store has it.
    pub(crate) fn waiting_in(&self, snapshot: &Snapshot) -> u64 {
        let admission: u32 = snapshot.lanes.iter().map(|lane| lane.waiting).sum();
        let policy = self
            .decider
            .as_ref()
            .map_or(0, |decider| lock(decider).waiting.len());
        u64::from(admission) + policy as u64 + self.inbox.len() as u64
    }

    /// Takes a request in at `now` after the start.
    pub(crate) fn offer(&self, stats: &mut Stats, arrival: Arrival, now: Duration) {
        stats.offer(&arrival);
        let job = Job {
            arrival,
            body: vec![0; BODY_BYTES].into_boxed_slice(),
            token: None,
        };
        match (&self.decider, self.arm.is_controlled()) {
            (Some(decider), _) => self.offer_policy(stats, decider, job, now),
            (None, true) => self.offer_store(stats, job, now),
            (None, false) => self.send(Task::Unasked(job)),
        }
    }

    fn offer_policy(
        &self,
        stats: &mut Stats,
        decider: &Mutex<Decider>,
        mut job: Job,
        now: Duration,
    ) {
        let mut decider = lock(decider);
        let decider = &mut *decider;
        let token = decider.free.pop().unwrap_or_else(|| {
            decider.tokens += 1;
            decider.tokens - 1
        });
        job.token = Some(token);
        let arrival = job.arrival;
        let priority = KeyHash::new(0, 0)
            .rank(arrival.tier, arrival.caller)
            .priority();
        let offer = Offer {
            token,
            request: request(&arrival).1,
            priority,
            lane: 0,
        };
        match decider.policy.offer(time(now), &offer) {
            Answer::Run => self.send(Task::Unasked(job)),
            Answer::Refuse(reason) => {
                decider.free.push(token);
                stats.refuse(&arrival, reason.as_str());
            }
            Answer::Wait if decider.waiting.len() >= decider.waiting_max => {
                decider.policy.cancel(time(now), token);
                decider.free.push(token);
                stats.refuse(&arrival, "queue full");
            }
            Answer::Wait => {
                decider.waiting.insert(token, job);
            }
        }
        self.pass_on(stats, decider);
    }

    /// Acts on what a policy has to tell.
    fn pass_on(&self, stats: &mut Stats, decider: &mut Decider) {
        let mut answers = std::mem::take(&mut decider.answers);
        decider.policy.take_answers(&mut answers);
        for (token, answer) in answers.drain(..) {
            let Some(job) = decider.waiting.remove(&token) else {
                continue;
            };
            match answer {
                Answer::Refuse(reason) => {
                    decider.free.push(token);
                    stats.refuse(&job.arrival, reason.as_str());
                }
                Answer::Run | Answer::Wait => self.send(Task::Unasked(job)),
            }
        }
        decider.answers = answers;
    }

    /// Lets a policy act whose time has come.
    pub(crate) fn wake(&self, stats: &mut Stats) {
        let Some(decider) = &self.decider else {
            return;
        };
        let now = time(self.elapsed());
        let mut decider = lock(decider);
        if decider.policy.next_wakeup().is_some_and(|at| at <= now) {
            decider.policy.wake(now);
            self.pass_on(stats, &mut decider);
        }
    }

    fn offer_store(&self, stats: &mut Stats, job: Job, now: Duration) {
        let arrival = job.arrival;
        let (operation, request) = request(&arrival);
        let left = DEADLINE.saturating_sub(now.saturating_sub(arrival.at));
        let waiting = Arc::new(Waiting {
            pending: Mutex::new(None),
            tasks: self.tasks.clone(),
        });
        let waker = Waker::from(Arc::clone(&waiting));
        // Held until the admission is stored: a waker may be called before we get there.
        let mut pending = lock(&waiting.pending);
        let request = request.time_left(left).bytes(BODY_BYTES as u32);
        let mut admit = self.store.admit(operation, &request);
        match admit.poll_admit(&waker) {
            Poll::Ready(Ok(permit)) => self.send(Task::Admitted(job, permit)),
            Poll::Ready(Err(rejected)) => stats.refuse(&arrival, rejected.reason().as_str()),
            Poll::Pending => *pending = Some((job, admit)),
        }
    }

    /// Serves on the calling thread until stopped.
    pub(crate) fn work(&self) -> Stats {
        let mut stats = Stats::new();
        while !self.stop.load(Ordering::Acquire) {
            let Ok(task) = self.inbox.recv_timeout(Duration::from_millis(20)) else {
                continue;
            };
            match task {
                Task::Unasked(job) => self.run(&mut stats, &job, None),
                Task::Admitted(job, permit) => self.run(&mut stats, &job, Some(permit)),
                Task::Look(waiting) => self.look(&mut stats, &waiting),
            }
        }
        stats
    }

    /// Ends the pool; what is still in the channel is never answered.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    fn look(&self, stats: &mut Stats, waiting: &Arc<Waiting<Job>>) {
        let mut pending = lock(&waiting.pending);
        let Some((job, mut admit)) = pending.take() else {
            return;
        };
        match admit.poll_admit(&Waker::from(Arc::clone(waiting))) {
            Poll::Ready(Ok(permit)) => {
                drop(pending);
                self.run(stats, &job, Some(permit));
            }
            Poll::Ready(Err(rejected)) => stats.refuse(&job.arrival, rejected.reason().as_str()),
            Poll::Pending => *pending = Some((job, admit)),
        }
    }

    fn run(&self, stats: &mut Stats, job: &Job, permit: Option<StorePermit>) {
        let arrival = &job.arrival;
        let done = act(&self.store, arrival, permit, &job.body);
        self.served.fetch_add(1, Ordering::Relaxed);
        match done {
            Ok(rows) => {
                let latency = self.elapsed().saturating_sub(arrival.at);
                stats.done(arrival, latency, rows);
            }
            Err(StoreError::Rejected(rejected)) => {
                stats.refuse(arrival, rejected.reason().as_str());
            }
            Err(_) => stats.lose(arrival, "failed"),
        }
        if let (Some(decider), Some(token)) = (&self.decider, job.token) {
            let mut decider = lock(decider);
            decider
                .policy
                .finish(time(self.elapsed()), token, Done::SUCCESS);
            decider.free.push(token);
            self.pass_on(stats, &mut decider);
        }
    }

    fn send(&self, task: Task<Job>) {
        let _never_closed_while_we_hold_a_receiver = self.tasks.send(task);
    }
}

/// How a request presents itself for admission.
fn request(arrival: &Arrival) -> (Operation, Request) {
    let request = Request::new(arrival.tier).key(arrival.caller);
    match arrival.action {
        Action::Scan { rows, .. } => (Operation::Scan, Store::scan_request(&request, rows)),
        Action::Put { .. } => (Operation::Put, request),
    }
}

/// Runs the request on the calling thread, and says how many rows it returned.
fn act(
    store: &Store,
    arrival: &Arrival,
    permit: Option<StorePermit>,
    body: &[u8],
) -> Result<u64, StoreError> {
    match arrival.action {
        Action::Scan { from, rows } => {
            let from = from.to_be_bytes();
            let found = match permit {
                Some(permit) => store.scan_with(permit, &from, rows),
                None => store.scan(&request(arrival).1, &from, rows),
            };
            found.map(|rows| rows.len() as u64)
        }
        Action::Put { key, bytes } => {
            let mut value = [0; FAT_ROW_BYTES];
            let value = &mut value[..bytes];
            fill(value, arrival.caller ^ key << 32 ^ body.len() as u64);
            let key = key.to_be_bytes();
            let done = match permit {
                Some(permit) => store.put_with(permit, &key, value),
                None => store.put(&request(arrival).1, &key, value),
            };
            done.map(|()| 0)
        }
    }
}

/// Noise, so that compaction has to write all of it.
pub(crate) fn fill(value: &mut [u8], seed: u64) {
    let mut rng = cinnamon_core::simulation::Rng::new(seed);
    for chunk in value.chunks_mut(8) {
        let noise = rng.bits().to_le_bytes();
        chunk.copy_from_slice(&noise[..chunk.len()]);
    }
}

fn time(since_start: Duration) -> Time {
    Time::from_nanos(since_start.as_nanos() as u64)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
