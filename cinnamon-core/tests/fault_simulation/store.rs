//! A store behind a real controller, in its own time, and what must hold of it after each step.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use cinnamon_core::simulation::Rng;
use cinnamon_core::{
    AdmitKind, AdmitOwned, Clock, Completion, Config, Controller, Instant, Lane, LaneSettings,
    LaneSnapshot, Limit, Mode, Outcome, OwnedPermit, Reason, Request, Settings, ShareSettings,
    Tenant, TenantSettings, Tier, Verdict,
};

use crate::parts::{Bell, Gauge, Hand, Says};
use crate::support::{assert_at_rest, assert_conserved};
use crate::{Checked, ensure};

pub const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Mean service time.
const SERVICE: f64 = 8e6;
/// What is offered in calm, as a share of what the lane can do.
const CALM_LOAD: f64 = 0.35;
const TICK: u64 = 10 * MS;

pub struct Running {
    pub lane: usize,
    pub permit: OwnedPermit,
    /// By the true time.
    ends: u64,
}

pub struct Waiting {
    pub lane: usize,
    admit: AdmitOwned,
    bell: Arc<Bell>,
    /// By the controller's time that is sure to have passed: see [`Store::passed`].
    until: Option<u64>,
    /// By the true time: when its caller gives up.
    leaves: Option<u64>,
}

impl Waiting {
    pub fn is_answered(&self) -> bool {
        self.bell.rung.load(Ordering::SeqCst) > 0
    }
}

/// What callers were told, and what they did, of one lane.
#[derive(Debug, Default)]
struct Told {
    offered: u64,
    refused: [u64; Reason::COUNT],
    /// Those whose caller gave up without having looked at the answer.
    unseen: u64,
}

pub struct Store {
    pub rng: Rng,
    pub controller: Controller,
    pub lanes: Vec<Lane>,
    pub clock: Arc<Hand>,
    pub says: Arc<Mutex<Says>>,
    pub settings: Settings,
    /// Whether the mode may be *monitor*: then verdicts are not what callers are told.
    pub monitors: bool,
    /// What no clock tells.
    pub true_ns: u64,
    pub running: Vec<Running>,
    pub waiting: Vec<Waiting>,
    told: Vec<Told>,
    next_arrival: Vec<u64>,
    pub next_tick: u64,
    // ----- until when, by the true time
    pub frozen_until: u64,
    pub clockless_until: u64,
    pub stalled_until: u64,
    pub surge: (f64, u64),
    pub modes_until: u64,
    pub impatient: bool,
    /// How much time must have passed for the controller, at least: its time stands for a moment when the clock is
    /// set back by less than a second.
    passed: u64,
    /// Of that, since the last tick: lost if the clock is set back before anybody has read it.
    unread: u64,
    /// For how long it may stand yet.
    stands: u64,
    /// The clock was set back, and no tick has seen it.
    unseen_step: bool,
    before: Vec<LaneSnapshot>,
}

impl Store {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let settings = settings(&mut rng);
        let clock = Arc::new(Hand::default());
        let begin = (rng.unit() * 10.0) as u64 * SECOND;
        clock.now.store(begin, Ordering::SeqCst);
        let says = Arc::new(Mutex::new(Says::Pressure(0.3)));
        let config = Config::new(settings.clone()).expect("in bounds");
        let mut builder = Controller::builder(config);
        if rng.bits().is_multiple_of(2) {
            builder = builder.signal(Gauge(Arc::clone(&says)));
        }
        let shared: Arc<dyn Clock> = clock.clone();
        let controller = builder.build_manual(shared).expect("a signal that is one");
        let lanes = settings.lanes.iter();
        let lanes: Vec<Lane> = lanes
            .map(|lane| controller.lane(&lane.name).expect("configured"))
            .collect();
        Self {
            monitors: rng.bits().is_multiple_of(2),
            rng,
            told: lanes.iter().map(|_| Told::default()).collect(),
            next_arrival: vec![0; lanes.len()],
            before: lanes.iter().map(Lane::snapshot).collect(),
            controller,
            lanes,
            clock,
            says,
            settings,
            true_ns: 0,
            running: Vec::new(),
            waiting: Vec::new(),
            next_tick: 0,
            frozen_until: 0,
            clockless_until: 0,
            stalled_until: 0,
            surge: (1.0, 0),
            modes_until: 0,
            impatient: true,
            passed: 0,
            unread: 0,
            stands: 0,
            unseen_step: false,
        }
    }

    pub fn base_limit(&self, lane: usize) -> u32 {
        self.settings.lanes[lane].limit.start()
    }

    /// A number from 0 to below `n`.
    pub fn draw(&mut self, n: usize) -> usize {
        (self.rng.bits() % n as u64) as usize
    }

    // ----- time

    /// Sets the clock back, or forward.
    pub fn set_clock(&mut self, forward: bool, ns: u64) {
        let now = self.clock.now.load(Ordering::SeqCst);
        let to = if forward {
            now + ns
        } else {
            now.saturating_sub(ns)
        };
        self.clock.now.store(to, Ordering::SeqCst);
        if !forward {
            self.passed -= std::mem::take(&mut self.unread);
            self.stands = (self.stands + ns).min(SECOND);
            self.unseen_step = true;
        }
    }

    fn pass(&mut self, dt: u64) {
        self.true_ns += dt;
        self.clock
            .panics
            .store(self.true_ns < self.clockless_until, Ordering::SeqCst);
        if self.true_ns < self.frozen_until {
            return;
        }
        self.clock.now.fetch_add(dt, Ordering::SeqCst);
        if !self.unseen_step {
            let stands = self.stands.min(dt);
            self.stands -= stands;
            self.passed += dt - stands;
            self.unread += dt - stands;
        }
    }

    /// One step of the store's time.
    pub fn step(&mut self, dt: u64) -> Checked {
        self.pass(dt);
        if self.true_ns >= self.stalled_until {
            self.finish_due();
        }
        self.look()?;
        for lane in 0..self.lanes.len() {
            while self.next_arrival[lane] <= self.true_ns {
                self.arrive(lane)?;
            }
        }
        self.check()?;
        if self.true_ns >= self.next_tick {
            self.next_tick = self.true_ns + TICK;
            self.tick()?;
        }
        Ok(())
    }

    pub fn tick(&mut self) -> Checked {
        if self.modes_until != 0 && self.true_ns >= self.modes_until {
            self.enforce();
        }
        let now = self.clock.now.load(Ordering::SeqCst);
        self.controller.tick(Instant::from_nanos(now));
        self.unseen_step = false;
        self.unread = 0;
        for waiting in &self.waiting {
            let over = waiting.until.is_some_and(|until| until <= self.passed);
            ensure!(
                !over || waiting.is_answered(),
                "somebody waits beyond its own time"
            );
        }
        self.check()
    }

    pub fn enforce(&mut self) {
        self.modes_until = 0;
        self.controller.set_mode(Mode::Enforce);
        self.lanes
            .iter()
            .for_each(|lane| lane.set_mode(Mode::Enforce));
    }

    // ----- callers

    fn arrive(&mut self, lane: usize) -> Checked {
        let surge = if self.true_ns < self.surge.1 {
            self.surge.0
        } else {
            1.0
        };
        let per_ns = f64::from(self.base_limit(lane)) / SERVICE * CALM_LOAD * surge;
        self.next_arrival[lane] += self.rng.exponential(1.0 / per_ns) as u64 + 1;
        let (tier, key) = (Tier::ALL[self.draw(6)], self.rng.bits() % 10_000);
        let mut request = match self.draw(20) {
            0 => Request::exempt(),
            1 => Request::untagged(),
            2 => Request::new(tier),
            _ => Request::new(tier).key(key),
        };
        request = request
            .bytes(self.draw(100) as u32)
            .attempt((self.draw(12) / 11) as u8);
        if self.draw(4) == 0 {
            request = request.tenant(Tenant(self.draw(3) as u32));
        }
        let mut until = None;
        let mut tries = false;
        if self.impatient {
            match self.draw(8) {
                0 => tries = true,
                1 | 2 => {
                    let wait = self.rng.bits() % (300 * MS);
                    request = request.max_wait(Duration::from_nanos(wait));
                    until = Some(wait);
                }
                3 => {
                    let left = self.rng.bits() % (300 * MS);
                    request = request.time_left(Duration::from_nanos(left));
                    until = Some(left);
                }
                _ => {}
            }
            if self.draw(8) == 0 {
                request = request.cost(1 + self.draw(30) as u32);
            }
        }
        self.told[lane].offered += 1;
        let leaves = self.true_ns + self.rng.bits() % (100 * MS);
        let leaves = (self.impatient && self.draw(8) == 0).then_some(leaves);
        let bell = Arc::new(Bell {
            panics: self.impatient && self.draw(50) == 0,
            ..Bell::default()
        });
        let mut admit = self.lanes[lane].admit_owned(&request);
        let polled = match tries {
            true => Poll::Ready(self.lanes[lane].try_admit_owned(&request)),
            false => admit.poll_admit(&Waker::from(Arc::clone(&bell))),
        };
        match polled {
            Poll::Ready(answer) => self.answered(lane, answer),
            Poll::Pending => {
                // What it stands now comes on top.
                let until = until.map(|wait| self.passed + wait);
                self.waiting.push(Waiting {
                    lane,
                    admit,
                    bell,
                    until,
                    leaves,
                });
            }
        }
        Ok(())
    }

    fn answered(&mut self, lane: usize, answer: Result<OwnedPermit, cinnamon_core::Rejected>) {
        match answer {
            Ok(permit) => {
                let ends = self.true_ns + self.rng.exponential(SERVICE) as u64;
                self.running.push(Running { lane, permit, ends });
            }
            Err(rejected) => {
                let reason = Reason::ALL.iter().position(|of| *of == rejected.reason());
                self.told[lane].refused[reason.expect("one of all")] += 1;
            }
        }
    }

    fn finish_due(&mut self) {
        for at in (0..self.running.len()).rev() {
            if self.running[at].ends > self.true_ns {
                continue;
            }
            let Running { lane, permit, .. } = self.running.swap_remove(at);
            if self.impatient && self.draw(20) == 0 {
                self.told[lane].offered += 1;
                drop(permit.nested());
            }
            let outcome = match self.draw(30) {
                0 => Outcome::Failure,
                1 if self.impatient => Outcome::Overloaded,
                2 => Outcome::Ignored,
                _ => Outcome::Success,
            };
            let done = Completion::new(outcome);
            match self.draw(10) {
                0 => drop(permit),
                1 => permit.finish(done.cost(1 + self.draw(4) as u32)),
                _ => permit.finish(done),
            }
        }
    }

    /// Whose waker was called looks, or is about to; who has no patience left gives up.
    fn look(&mut self) -> Checked {
        for at in (0..self.waiting.len()).rev() {
            let waiting = &mut self.waiting[at];
            let rung = waiting.bell.rung.load(Ordering::SeqCst);
            ensure!(rung <= 1, "somebody was woken {rung} times for one answer");
            if waiting.leaves.is_some_and(|at| at <= self.true_ns) {
                self.give_up(at);
            } else if rung == 1 && (!self.impatient || !self.rng.bits().is_multiple_of(8)) {
                let mut waiting = self.waiting.swap_remove(at);
                let Poll::Ready(answer) = waiting.admit.poll_admit(Waker::noop()) else {
                    return Err("somebody was woken for nothing".to_owned());
                };
                let again = waiting.admit.poll_admit(Waker::noop());
                ensure!(again.is_pending(), "somebody was answered twice");
                self.answered(waiting.lane, answer);
            }
        }
        Ok(())
    }

    pub fn give_up(&mut self, at: usize) {
        let gone = self.waiting.swap_remove(at);
        self.told[gone.lane].unseen += u64::from(gone.is_answered());
    }

    // ----- what must hold

    pub fn check(&mut self) -> Checked {
        for lane in 0..self.lanes.len() {
            let now = self.lanes[lane].snapshot();
            self.check_lane(lane, &now)
                .map_err(|why| format!("lane {lane}: {why}\n{now:#?}"))?;
            self.before[lane] = now;
        }
        Ok(())
    }

    fn check_lane(&self, lane: usize, now: &LaneSnapshot) -> Checked {
        let (before, told) = (&self.before[lane], &self.told[lane]);
        ensure!(!now.failed, "it has failed");
        ensure!(
            now.offered == told.offered,
            "{} offers, not {}",
            now.offered,
            told.offered
        );
        let answered = now.verdicts.sum() + u64::from(now.waiting);
        ensure!(
            answered == now.offered,
            "{answered} offers are accounted for"
        );
        for tier in Tier::ALL {
            for reason in Reason::ALL {
                let of = |of: &LaneSnapshot| of.verdicts.get(tier, Verdict::Refuse(reason));
                ensure!(of(now) >= of(before), "{reason} of {tier} has become less");
            }
        }
        ensure!(
            now.in_use + now.free == now.limit.max(now.in_use),
            "slots out and free"
        );
        ensure!(
            now.in_use == now.in_use_by_tier.iter().sum::<u32>(),
            "slots by tier"
        );
        ensure!(
            now.waiting == now.waiting_by_tier.iter().sum::<u32>(),
            "waiting by tier"
        );
        let shares = !self.settings.lanes[lane].shares.is_empty();
        ensure!(
            shares || now.waiting == 0 || now.free == 0,
            "somebody waits beside a free slot"
        );
        let of_lane = |waiting: &&Waiting| waiting.lane == lane;
        let unanswered = self
            .waiting
            .iter()
            .filter(of_lane)
            .filter(|w| !w.is_answered())
            .count();
        let waits = now.waiting - now.shadow_waiting;
        ensure!(
            unanswered == waits as usize,
            "{waits} wait, and {unanswered} do"
        );
        let slots = self
            .running
            .iter()
            .filter(|r| r.lane == lane && is_slot(r))
            .count() as u32;
        let held = self
            .running
            .iter()
            .filter(|running| running.lane == lane)
            .count() as u32;
        let unseen = self.waiting.iter().filter(of_lane).count() as u32 - waits;
        let in_use = now.in_use - now.shadow_in_use;
        ensure!(
            (slots..=slots + unseen).contains(&in_use),
            "{slots} permits for {in_use} slots"
        );
        let run = in_use + now.exempt_in_use + now.open_in_use;
        ensure!(
            (held..=held + unseen).contains(&run),
            "{held} permits, and {run} run"
        );
        if !self.monitors {
            // These are told on the spot, and nobody can miss them.
            let on_the_spot = [
                Reason::Shed,
                Reason::Busy,
                Reason::Hopeless,
                Reason::Capped,
                Reason::Closed,
            ];
            for (at, reason) in Reason::ALL.into_iter().enumerate() {
                let counted = now.verdicts.total(Verdict::Refuse(reason));
                let unseen = counted - told.refused[at].min(counted);
                ensure!(
                    told.refused[at] <= counted,
                    "more were told {reason} than counted"
                );
                ensure!(
                    !on_the_spot.contains(&reason) || unseen == 0,
                    "{unseen} of {reason}"
                );
            }
        }
        Ok(())
    }

    /// How many were refused so far, for whatever reason but that callers would not wait.
    pub fn refused(&self) -> u64 {
        let told = self.told.iter();
        told.map(|told| told.refused.iter().sum::<u64>()).sum()
    }

    pub fn is_calm(&self) -> Checked {
        for lane in &self.before {
            ensure!(
                lane.threshold_levels >= 768.0,
                "the gate is still held: {lane:#?}"
            );
        }
        let forced = self.controller.snapshot().overrides;
        ensure!(forced.is_empty(), "an override does not end: {forced:?}");
        Ok(())
    }

    /// The end: who runs is done, who waits is answered, every gauge is zero.
    pub fn come_to_rest(mut self) -> Checked {
        self.running.clear();
        self.controller.close();
        self.look()?;
        ensure!(self.waiting.is_empty(), "somebody is never answered");
        self.running.clear();
        self.check()?;
        for lane in &self.lanes {
            assert_at_rest(&lane.snapshot());
            assert_conserved(&lane.snapshot());
        }
        Ok(())
    }
}

fn is_slot(running: &Running) -> bool {
    running.permit.kind() == AdmitKind::Slot
}

/// A controller of one lane or two; one in a few has tenants' caps, reserved slots, or a limit that finds itself.
fn settings(rng: &mut Rng) -> Settings {
    let mut draw = |n: u64| rng.bits() % n;
    let mut settings = Settings::default();
    for name in ["read", "write"].into_iter().take(1 + draw(2) as usize) {
        let limit = 2 + draw(7) as u32;
        let mut lane = LaneSettings::new(name, limit);
        if draw(8) == 0 {
            let mut found = Limit::auto();
            (found.initial, found.min, found.max) = (Some(limit), 1, 32);
            lane = lane.limit(found);
        }
        if draw(6) == 0 {
            lane = lane.share(ShareSettings::stealable(Tier::T3, 0.25));
        }
        // Of fewer slots it would be half of them, and calm would be an overload.
        if draw(6) == 0 && limit >= 5 {
            lane = lane.share(ShareSettings::hard(Tier::T1, 0.25));
        }
        if draw(2) == 0 {
            lane.queue_len_max = Some(20 + draw(40) as u32);
        }
        if draw(3) == 0 {
            lane = lane.scope(name);
        }
        settings = settings.lane(lane);
    }
    if draw(5) == 0 {
        settings = settings.tenant(TenantSettings::new("*").cap(12));
    }
    settings
}
