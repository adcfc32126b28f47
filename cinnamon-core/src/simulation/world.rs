//! The event loop of the simulation.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::{PhaseReport, Report, Rng, Scenario};
use crate::clock::{Instant, nanos};
use crate::config::Config;
use crate::controller::tick_interval_ns;
use crate::effects::{Effect, Offered, Ticket};
use crate::engine::Engine;
use crate::permit::Completion;
use crate::priority::{TIERS, Tier, mix64};
use crate::request::Request;
use crate::verdict::Binding;

/// A request on its way through the simulated store.
#[derive(Clone, Copy, Debug)]
struct Job {
    arrived_at: Instant,
    phase: usize,
    tier: Tier,
    /// Service time in means, drawn at arrival: it belongs to the request, not to the fate it meets.
    work: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Done {
    at: Instant,
    job: u32,
}

pub(super) struct World<'a> {
    scenario: &'a Scenario,
    config: &'a Config,
    engine: Engine,
    rng: Rng,
    now: Instant,
    phase: usize,
    phase_ends: Vec<Instant>,
    jobs: Vec<(Job, Option<Ticket>)>,
    free_jobs: Vec<u32>,
    done: BinaryHeap<Reverse<Done>>,
    running: u32,
    next_arrival: Instant,
    next_tick: Instant,
    effects: Vec<Effect>,
    reports: Vec<PhaseReport>,
    steps: Vec<(f64, u64)>,
    last_threshold: f64,
    idle: bool,
    trace: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario, config: &'a Config) -> Self {
        let mut end_s = 0.0;
        let phase_ends = scenario.phases.iter().map(|phase| {
            end_s += phase.seconds;
            seconds(end_s)
        });
        let mut world = Self {
            scenario,
            config,
            engine: Engine::new(config, 0, Instant::ZERO),
            rng: Rng::new(scenario.seed),
            now: Instant::ZERO,
            phase: 0,
            phase_ends: phase_ends.collect(),
            jobs: Vec::new(),
            free_jobs: Vec::new(),
            done: BinaryHeap::new(),
            running: 0,
            next_arrival: Instant::FAR_FUTURE,
            next_tick: Instant::ZERO,
            effects: Vec::new(),
            reports: scenario
                .phases
                .iter()
                .map(|phase| PhaseReport {
                    name: phase.name.clone(),
                    ..PhaseReport::default()
                })
                .collect(),
            steps: vec![(0.0, 0); scenario.phases.len()],
            last_threshold: 768.0,
            idle: true,
            trace: 0,
        };
        if !world.phase_ends.is_empty() {
            world.schedule_arrival();
            world.schedule_tick();
        }
        world
    }

    pub(super) fn run(mut self) -> Report {
        // When nobody comes any more, who came is still served, so that the last phase is judged like
        // the others.
        loop {
            let done = self
                .done
                .peek()
                .map_or(Instant::FAR_FUTURE, |Reverse(done)| done.at);
            let nobody_comes = self.next_arrival == Instant::FAR_FUTURE;
            if nobody_comes && self.running == 0 && self.engine.waiting() == 0 {
                break;
            }
            let next = done.min(self.next_tick).min(self.next_arrival);
            self.now = next;
            while self.now >= self.phase_ends[self.phase] && self.phase + 1 < self.phase_ends.len()
            {
                self.phase += 1;
            }
            if next == done {
                self.complete();
            } else if next == self.next_tick {
                self.tick();
            } else {
                self.arrive();
            }
            self.apply_effects();
        }
        self.report()
    }

    fn arrive(&mut self) {
        let tier = self.draw_tier();
        let job = Job {
            arrived_at: self.now,
            phase: self.phase,
            tier,
            work: self.rng.exponential(1.0),
        };
        let key = self.rng.bits();
        self.schedule_arrival();
        let first = self.is_early(&job);
        let report = &mut self.reports[self.phase];
        report.offered[tier.index()] += 1;
        report.offered_first_2s += u64::from(first);

        let mut request = Request::new(tier).key(key);
        if self.scenario.tell_deadline {
            request = request.time_left(self.scenario.deadline);
        }
        let token = self.store_job(job);
        match self.engine.offer(self.now, &request, Some(token)) {
            Offered::Admitted(ticket) => self.begin(token, ticket),
            Offered::Waiting(_) => {
                self.note(1, token);
                if self.idle {
                    // As a waiter kicks the control thread out of its long sleep.
                    self.next_tick = self.now;
                }
            }
            Offered::Rejected(_) => {
                self.note(2, token);
                let report = &mut self.reports[job.phase];
                report.refused_at_gate += 1;
                report.refused_first_2s += u64::from(first);
                self.free_jobs.push(token);
            }
        }
    }

    fn begin(&mut self, token: u32, ticket: Ticket) {
        self.note(3, token);
        self.running += 1;
        let service = &self.scenario.service;
        let crowding = f64::from(self.running) / f64::from(service.parallelism);
        let speed = self.scenario.phases[self.phase].capacity / crowding.max(1.0);
        let (job, slot) = &mut self.jobs[token as usize];
        *slot = Some(ticket);
        let takes = job.work * service.mean.as_secs_f64() / speed;
        let at = self.now.after(Duration::from_secs_f64(takes));
        self.done.push(Reverse(Done { at, job: token }));
    }

    fn complete(&mut self) {
        let Some(Reverse(done)) = self.done.pop() else {
            return;
        };
        self.note(4, done.job);
        self.running -= 1;
        let (job, ticket) = &mut self.jobs[done.job as usize];
        let report = &mut self.reports[job.phase];
        if self.now.since(job.arrived_at) <= self.scenario.deadline {
            report.good[job.tier.index()] += 1;
        } else {
            report.late += 1;
        }
        if let Some(ticket) = ticket.take() {
            self.engine
                .finish(self.now, &ticket, Some(Completion::success()));
        }
        self.free_jobs.push(done.job);
    }

    fn tick(&mut self) {
        self.idle = self.engine.is_idle();
        let threshold = self.engine.tick(self.now);
        self.engine
            .set_gate(self.now, threshold, Binding::Backlog { lane: 0 }, 0);
        let levels = threshold.levels();
        if !threshold.is_open() || self.last_threshold < 768.0 {
            let (sum, count) = &mut self.steps[self.phase];
            *sum += (levels - self.last_threshold).abs();
            *count += 1;
        }
        self.last_threshold = levels;
        self.note(5, threshold.bits());
        self.schedule_tick();
    }

    fn apply_effects(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        self.engine.take_effects(&mut effects);
        for effect in effects.drain(..) {
            match effect.result {
                Ok(ticket) => self.begin(effect.token, ticket),
                Err(_) => {
                    self.note(6, effect.token);
                    let job = self.jobs[effect.token as usize].0;
                    let first = self.is_early(&job);
                    let report = &mut self.reports[job.phase];
                    report.lost_in_queue += 1;
                    report.refused_first_2s += u64::from(first);
                    self.free_jobs.push(effect.token);
                }
            }
        }
        self.effects = effects;
    }

    fn report(mut self) -> Report {
        let service = &self.scenario.service;
        let full = f64::from(service.parallelism) / service.mean.as_secs_f64();
        for (i, phase) in self.scenario.phases.iter().enumerate() {
            let report = &mut self.reports[i];
            let offered = report.offers() as f64 / phase.seconds;
            let good = report.good.iter().sum::<u64>() as f64 / phase.seconds;
            let possible = offered.min(full * phase.capacity);
            report.goodput = if possible > 0.0 { good / possible } else { 1.0 };
            let (sum, ticks) = self.steps[i];
            report.threshold_step = sum / ticks.max(1) as f64;
        }
        Report {
            phases: self.reports,
            lane: self.engine.snapshot("main"),
            trace: self.trace,
        }
    }

    // ----- helpers

    fn note(&mut self, kind: u64, what: u32) {
        let event = (kind << 32 | u64::from(what)) ^ self.now.as_nanos().rotate_left(20);
        self.trace = mix64(self.trace ^ event);
    }

    fn store_job(&mut self, job: Job) -> u32 {
        match self.free_jobs.pop() {
            Some(token) => {
                self.jobs[token as usize] = (job, None);
                token
            }
            None => {
                self.jobs.push((job, None));
                self.jobs.len() as u32 - 1
            }
        }
    }

    fn is_early(&self, job: &Job) -> bool {
        let start = job
            .phase
            .checked_sub(1)
            .map_or(Instant::ZERO, |i| self.phase_ends[i]);
        job.arrived_at.since(start) < Duration::from_secs(2)
    }

    /// Offers of this tier in this phase, relative to the mix.
    fn weight(&self, phase: usize, tier: usize) -> f64 {
        let low_tiers = self.scenario.phases[phase].low_tiers;
        self.scenario.mix[tier] * if tier >= 3 { low_tiers } else { 1.0 }
    }

    fn total_weight(&self, phase: usize) -> f64 {
        (0..TIERS).map(|tier| self.weight(phase, tier)).sum()
    }

    fn draw_tier(&mut self) -> Tier {
        let mut left = self.rng.unit() * self.total_weight(self.phase);
        for tier in Tier::ALL {
            left -= self.weight(self.phase, tier.index());
            if left < 0.0 {
                return tier;
            }
        }
        Tier::T5
    }

    /// Draws the next arrival. Poisson arrivals have no memory, so a gap that reaches beyond the end
    /// of its phase is drawn again at the rate of the next.
    fn schedule_arrival(&mut self) {
        let service = &self.scenario.service;
        let full = f64::from(service.parallelism) / service.mean.as_secs_f64();
        let (mut from, mut phase) = (self.now, self.phase);
        loop {
            let rate = full * self.scenario.phases[phase].load * self.total_weight(phase);
            let gap_s = self.rng.exponential(1.0 / rate);
            let gap = Duration::try_from_secs_f64(gap_s).unwrap_or(Duration::MAX);
            self.next_arrival = from.after_nanos(nanos(gap).max(1));
            if self.next_arrival < self.phase_ends[phase] {
                return;
            }
            from = self.phase_ends[phase];
            phase += 1;
            if phase == self.phase_ends.len() {
                self.next_arrival = Instant::FAR_FUTURE;
                return;
            }
        }
    }

    fn schedule_tick(&mut self) {
        let interval = tick_interval_ns(self.config, self.engine.completions_per_s(), self.idle);
        self.next_tick = self.now.after_nanos(interval);
    }
}

fn seconds(s: f64) -> Instant {
    Instant::ZERO.after(Duration::from_secs_f64(s))
}
