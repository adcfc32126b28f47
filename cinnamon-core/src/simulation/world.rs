//! The event loop of the simulation.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::clock::Instant;
use crate::config::ConfigError;
use crate::priority::mix64;
use crate::retry::Retry;
use crate::simulation::plant::{PlantSignal, Works};
use crate::simulation::policy::{Answer, Offer, Policy};
use crate::simulation::report::{End, Fate, PhaseReport, Report, Witness};
use crate::simulation::scenario::{Heed, Scenario};
use crate::simulation::store::{Speed, Store, seconds};
use crate::simulation::workload::{Draw, Workload};
use crate::verdict::Reason;

/// The stretch at the beginning of a phase that is counted apart.
const EARLY_S: f64 = 2.0;

/// A request between its arrival and its end.
#[derive(Clone, Copy, Debug)]
struct Job {
    draw: Draw,
    fate: Fate,
    /// The closed-loop client who waits for it.
    client: bool,
    waiting: bool,
    /// Told apart from the one that had this token before.
    serial: u64,
}

/// What clients do of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    /// Gives up waiting: token and serial.
    GiveUp(u32, u64),
    /// Tries again: token under which the job is kept.
    Retry(u32),
    /// A closed-loop client asks.
    Ask,
    /// A phase begins: clients come or go.
    Staff(usize),
    /// A phase begins: the store has room for more or fewer.
    Room(usize),
}

pub(super) struct World<'a> {
    scenario: &'a Scenario,
    policy: &'a mut dyn Policy,
    witness: &'a mut dyn Witness,
    workload: Workload<'a>,
    /// One per lane.
    stores: Vec<Store>,
    plants: Vec<Works>,
    /// The store's speeds to come, next last.
    speeds: Vec<(Instant, f64)>,
    now: Instant,
    end: Instant,
    starts: Vec<Instant>,
    jobs: Vec<Job>,
    free_jobs: Vec<u32>,
    next_arrival: Option<(Instant, Draw)>,
    acts: BinaryHeap<Reverse<(Instant, u64, Act)>>,
    clients: usize,
    clients_wanted: usize,
    waiting: u64,
    requests: u64,
    serial: u64,
    answers: Vec<(u32, Answer)>,
    reports: Vec<PhaseReport>,
    steps: Vec<(f64, u64)>,
    threshold: f64,
    trace: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(
        scenario: &'a Scenario,
        policy: &'a mut dyn Policy,
        witness: &'a mut dyn Witness,
    ) -> Result<Self, ConfigError> {
        let unit = scenario.service.capacity_per_s();
        let works = |plant| Works::new(plant, unit);
        let plants: Vec<Works> = scenario.plants.iter().map(works).collect();
        let signal = |(plant, works)| PlantSignal::new(plant, works);
        policy.attach(scenario.plants.iter().zip(&plants).map(signal).collect())?;
        let mut speeds: Vec<(Instant, f64)> = Speed::of(scenario).changes().collect();
        speeds.reverse();
        let workload = Workload::new(scenario);
        let mut world = Self {
            scenario,
            policy,
            witness,
            stores: std::iter::once(scenario.service.parallelism)
                .chain(scenario.writes.iter().map(|writes| writes.parallelism))
                .map(Store::new)
                .collect(),
            plants,
            speeds,
            now: Instant::ZERO,
            end: seconds(workload.end_s()),
            starts: (0..scenario.phases.len())
                .map(|i| seconds(scenario.phase_start_s(i)))
                .collect(),
            workload,
            jobs: Vec::new(),
            free_jobs: Vec::new(),
            next_arrival: None,
            acts: BinaryHeap::new(),
            clients: 0,
            clients_wanted: 0,
            waiting: 0,
            requests: 0,
            serial: 0,
            answers: Vec::new(),
            reports: scenario
                .phases
                .iter()
                .map(|phase| PhaseReport {
                    name: phase.name.clone(),
                    ..PhaseReport::default()
                })
                .collect(),
            steps: vec![(0.0, 0); scenario.phases.len()],
            threshold: 768.0,
            trace: 0,
        };
        if !scenario.phases.is_empty() {
            world.next_arrival = world.workload.next();
            for (phase, &start) in world.starts.clone().iter().enumerate() {
                if scenario.phases.iter().any(|phase| phase.parallelism != 1.0) {
                    world.plan(start, Act::Room(phase));
                }
                if world.workload.clients(phase) > 0 {
                    world.plan(start, Act::Staff(phase));
                }
            }
        }
        Ok(world)
    }

    pub(super) fn run(mut self) -> Report {
        // When nobody comes any more, who came is still served, so that the last phase is judged like
        // the others.
        loop {
            let arrival = self.next_arrival.map_or(Instant::FAR_FUTURE, |(at, _)| at);
            let act = self
                .acts
                .peek()
                .map_or(Instant::FAR_FUTURE, |Reverse((at, ..))| *at);
            let nobody_comes = arrival == Instant::FAR_FUTURE && act == Instant::FAR_FUTURE;
            if nobody_comes && self.stores.iter().all(Store::is_empty) && self.waiting == 0 {
                break;
            }
            let speed = self
                .speeds
                .last()
                .map_or(Instant::FAR_FUTURE, |&(at, _)| at);
            let done = self
                .stores
                .iter()
                .map(Store::next_done)
                .min()
                .unwrap_or(Instant::FAR_FUTURE);
            let wake = self
                .policy
                .next_wakeup()
                .unwrap_or(Instant::FAR_FUTURE)
                .max(self.now);
            let next = speed.min(done).min(wake).min(act).min(arrival);
            if next == Instant::FAR_FUTURE {
                // Waiters whom nothing will ever wake: the policy has lost them.
                break;
            }
            self.now = next;
            if next == speed {
                if let Some((_, speed)) = self.speeds.pop() {
                    for store in &mut self.stores {
                        store.set_speed(next, speed);
                    }
                }
            } else if next == done {
                self.complete();
            } else if next == wake {
                self.wake();
            } else if next == act {
                self.act();
            } else {
                self.arrive();
            }
            self.take_answers();
        }
        self.report()
    }

    fn arrive(&mut self) {
        if let Some((_, draw)) = self.next_arrival.take() {
            self.next_arrival = self.workload.next();
            self.come(draw, false);
        }
    }

    /// A request comes for the first time.
    fn come(&mut self, draw: Draw, client: bool) {
        let phase = self.workload.phase_at(self.now_s());
        let report = &mut self.reports[phase];
        report.offered[draw.tier.index()] += 1;
        let deadline = &self.scenario.deadline;
        let allowed_s = deadline.base_s + deadline.services * draw.work_s;
        let fate = Fate {
            request: self.requests,
            attempt: 0,
            phase: phase as u16,
            tier: draw.tier,
            priority: self.workload.request(&draw).1,
            lane: draw.lane as u8,
            tenant: draw.tenant,
            key: draw.key,
            hot: draw.hot,
            arrived_at: self.now,
            offered_at: self.now,
            work_s: draw.work_s,
            deadline_at: self.now.after(Duration::from_secs_f64(allowed_s)),
            started_at: None,
            ended_at: self.now,
            end: End::GaveUp,
        };
        self.requests += 1;
        if self.is_early(&fate) {
            self.reports[phase].offered_first_2s += 1;
        }
        let job = Job {
            draw,
            fate,
            client,
            waiting: false,
            serial: 0,
        };
        self.offer(job);
    }

    fn offer(&mut self, mut job: Job) {
        let (mut request, priority) = self.workload.request(&job.draw);
        if self.scenario.deadline.told {
            request = request.deadline(job.fate.deadline_at);
        }
        request = request.attempt(job.fate.attempt);
        job.fate.offered_at = self.now;
        job.fate.started_at = None;
        job.serial = self.serial;
        self.serial += 1;
        let token = self.store_job(job);
        let offer = Offer {
            token,
            request,
            priority,
            lane: job.draw.lane,
        };
        match self.policy.offer(self.now, &offer) {
            Answer::Run => self.begin(token),
            Answer::Wait => {
                self.note(1, token);
                self.waiting += 1;
                let job = &mut self.jobs[token as usize];
                job.waiting = true;
                let serial = job.serial;
                if let Some(patience_s) = self.scenario.clients.patience_s {
                    let at = self.now.after(Duration::from_secs_f64(patience_s));
                    self.plan(at, Act::GiveUp(token, serial));
                }
            }
            Answer::Refuse(reason) => {
                self.note(2, token);
                self.refused(token, End::Refused(reason));
            }
        }
    }

    fn begin(&mut self, token: u32) {
        self.note(3, token);
        let job = &mut self.jobs[token as usize];
        job.waiting = false;
        job.fate.started_at = Some(self.now);
        let (work_s, lane) = (job.fate.work_s, job.draw.lane);
        self.stores[lane].begin(self.now, token, work_s);
        for plant in &self.plants {
            plant.admit(self.now, lane);
        }
    }

    fn complete(&mut self) {
        let due = |store: &&mut Store| store.next_done() == self.now;
        let Some(token) = self
            .stores
            .iter_mut()
            .find(due)
            .and_then(|store| store.pop(self.now))
        else {
            return;
        };
        self.note(4, token);
        let job = self.jobs[token as usize];
        let done = self.workload.done(&job.draw);
        self.policy.finish(self.now, token, done);
        let good = self.now <= job.fate.deadline_at;
        let report = &mut self.reports[usize::from(job.fate.phase)];
        if good {
            report.good[job.fate.tier.index()] += 1;
        } else {
            report.late += 1;
        }
        self.end_job(token, if good { End::Good } else { End::Late });
        self.next_of(&job);
    }

    fn wake(&mut self) {
        self.policy.wake(self.now);
        let view = self.policy.view();
        if view.threshold < 768.0 || self.threshold < 768.0 {
            let phase = self.workload.phase_at(self.now_s());
            let (sum, count) = &mut self.steps[phase];
            *sum += (view.threshold - self.threshold).abs();
            *count += 1;
        }
        self.threshold = view.threshold;
        self.trace = mix64(self.trace ^ view.threshold.to_bits());
        self.witness.woken(self.now, &view);
        for (index, plant) in self.plants.iter().enumerate() {
            self.witness
                .measured(self.now, index, plant.pressure(self.now));
        }
    }

    fn act(&mut self) {
        let Some(Reverse((_, _, act))) = self.acts.pop() else {
            return;
        };
        match act {
            Act::GiveUp(token, serial) => {
                let job = self.jobs[token as usize];
                if job.serial == serial && job.waiting && self.policy.cancel(self.now, token) {
                    self.note(7, token);
                    self.waiting -= 1;
                    let early = self.is_early(&job.fate);
                    let report = &mut self.reports[usize::from(job.fate.phase)];
                    report.lost_in_queue += 1;
                    report.refused_first_2s += u64::from(early);
                    self.end_job(token, End::GaveUp);
                    self.next_of(&job);
                }
            }
            Act::Retry(token) => {
                let job = self.jobs[token as usize];
                self.free_jobs.push(token);
                self.offer(job);
            }
            Act::Ask => self.ask(),
            Act::Room(phase) => {
                let times = self.scenario.phases[phase].parallelism;
                for store in &mut self.stores {
                    store.set_room(self.now, times);
                }
            }
            Act::Staff(phase) => {
                self.clients_wanted = self.workload.clients(phase);
                while self.clients < self.clients_wanted {
                    self.clients += 1;
                    self.think();
                }
            }
        }
    }

    /// A closed-loop client's turn.
    fn ask(&mut self) {
        if self.clients > self.clients_wanted || self.now >= self.end {
            self.clients -= 1;
            return;
        }
        let draw = self.workload.draw(self.now_s());
        self.come(draw, true);
    }

    fn think(&mut self) {
        let think_s = self.workload.think_s();
        self.plan(self.now.after(Duration::from_secs_f64(think_s)), Act::Ask);
    }

    /// The client of this request has its answer for good.
    fn next_of(&mut self, job: &Job) {
        if job.client {
            self.think();
        }
    }

    fn refused(&mut self, token: u32, end: End) {
        let mut job = self.jobs[token as usize];
        let early = self.is_early(&job.fate);
        let report = &mut self.reports[usize::from(job.fate.phase)];
        match end {
            End::Lost(_) => report.lost_in_queue += 1,
            _ => report.refused_at_gate += 1,
        }
        report.refused_first_2s += u64::from(early);
        self.end_job(token, end);
        let clients = &self.scenario.clients;
        if job.fate.attempt >= clients.retries || end == End::Refused(Reason::Closed) {
            self.next_of(&job);
            return;
        }
        let own = Duration::from_secs_f64(clients.retry_after_s);
        let advice = self.policy.retry(token);
        let wait = match (clients.heed, advice) {
            (Heed::Never | Heed::All, Some(Retry::Never)) => None,
            (Heed::All, Some(Retry::Elsewhere)) => None,
            (Heed::All, Some(Retry::After(wait))) => Some(wait),
            _ => Some(own),
        };
        let Some(wait) = wait else {
            self.next_of(&job);
            return;
        };
        job.fate.attempt += 1;
        let at = self.now.after(wait);
        let token = self.store_job(job);
        self.plan(at, Act::Retry(token));
    }

    fn take_answers(&mut self) {
        let mut answers = std::mem::take(&mut self.answers);
        self.policy.take_answers(&mut answers);
        for (token, answer) in answers.drain(..) {
            match answer {
                Answer::Wait => {}
                Answer::Run => {
                    self.waiting -= 1;
                    self.begin(token);
                }
                Answer::Refuse(reason) => {
                    self.waiting -= 1;
                    self.note(6, token);
                    self.refused(token, End::Lost(reason));
                }
            }
        }
        self.answers = answers;
    }

    fn end_job(&mut self, token: u32, end: End) {
        let job = &mut self.jobs[token as usize];
        job.waiting = false;
        job.serial = u64::MAX;
        job.fate.ended_at = self.now;
        job.fate.end = end;
        self.witness.ended(&job.fate);
        self.free_jobs.push(token);
    }

    fn report(mut self) -> Report {
        let full = self.scenario.service.capacity_per_s();
        for (i, phase) in self.scenario.phases.iter().enumerate() {
            let report = &mut self.reports[i];
            let offered = report.offers() as f64 / phase.seconds;
            let good = report.good.iter().sum::<u64>() as f64 / phase.seconds;
            let possible = offered.min(full * phase.capacity * phase.parallelism);
            report.goodput = if possible > 0.0 { good / possible } else { 1.0 };
            let (sum, ticks) = self.steps[i];
            report.threshold_step = sum / ticks.max(1) as f64;
        }
        Report {
            phases: self.reports,
            trace: self.trace,
        }
    }

    // ----- helpers

    fn now_s(&self) -> f64 {
        // Half a nanosecond of rounding must not put an arrival into the phase before its own.
        (self.now.as_nanos() as f64 + 0.5) * 1e-9
    }

    fn note(&mut self, kind: u64, what: u32) {
        let event = (kind << 32 | u64::from(what)) ^ self.now.as_nanos().rotate_left(20);
        self.trace = mix64(self.trace ^ event);
    }

    fn plan(&mut self, at: Instant, act: Act) {
        self.serial += 1;
        self.acts.push(Reverse((at, self.serial, act)));
    }

    fn store_job(&mut self, job: Job) -> u32 {
        match self.free_jobs.pop() {
            Some(token) => {
                self.jobs[token as usize] = job;
                token
            }
            None => {
                self.jobs.push(job);
                self.jobs.len() as u32 - 1
            }
        }
    }

    fn is_early(&self, fate: &Fate) -> bool {
        let start = self.starts[usize::from(fate.phase)];
        fate.arrived_at.nanos_since(start) < (EARLY_S * 1e9) as u64
    }
}
