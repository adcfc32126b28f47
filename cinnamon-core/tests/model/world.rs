//! The real controller beside the model: each step is taken by both, and then compared.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use cinnamon_core::{
    Admit, AdmitKind, AdmitOwned, Clock, Completion, Config, Controller, Dynamics, Expected,
    Explanation, Instant, Lane, LaneSettings, ManualClock, Mode, Outcome, OwnedPermit, Permit,
    Rank, Reading, Reason, Rejected, Settings, Signal, View,
};

use crate::lane::{Judged, Lane as Model, Place, Seen, Ticket, Told};
use crate::ops::{Ask, Case, Force, How, Op, SECOND, Target};
use crate::support::CountingWaker;
use crate::{Checked, ensure};

pub(super) const NAMES: [&str; 2] = ["read", "write"];
/// How long an epoch of cohorts lasts.
pub(super) const EPOCH: u64 = 60 * SECOND;

/// Says what it is told to.
struct Gauge(Arc<Mutex<f64>>);

impl Signal for Gauge {
    fn name(&self) -> &str {
        "gauge"
    }

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(Duration::from_millis(200))
    }

    fn sample(&mut self, _: Instant, _: &View) -> Reading {
        Reading::pressure(*self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

enum Held<'a> {
    Borrowed(Permit<'a>),
    Owned(OwnedPermit),
}

enum Future<'a> {
    Borrowed(Admit<'a>),
    Owned(Box<AdmitOwned>),
}

impl<'a> Future<'a> {
    fn poll(&mut self, waker: &Waker) -> Poll<Result<Held<'a>, Rejected>> {
        match self {
            Self::Borrowed(admit) => admit.poll_admit(waker).map_ok(Held::Borrowed),
            Self::Owned(admit) => admit.poll_admit(waker).map_ok(Held::Owned),
        }
    }
}

impl Held<'_> {
    fn finish(self, done: Completion) {
        match self {
            Self::Borrowed(permit) => permit.finish(done),
            Self::Owned(permit) => permit.finish(done),
        }
    }

    fn nested(&self) -> Self {
        match self {
            Self::Borrowed(permit) => Self::Borrowed(permit.nested()),
            Self::Owned(permit) => Self::Owned(permit.nested()),
        }
    }

    /// Its kind, its tier, and when it was admitted; of one that had its slot without the engine nobody may know that.
    fn figures(&self) -> (AdmitKind, usize, Option<Instant>) {
        match self {
            Self::Borrowed(p) => (p.kind(), p.priority().tier().index(), p.started_at()),
            Self::Owned(p) => (p.kind(), p.priority().tier().index(), p.started_at()),
        }
    }
}

struct Running<'a> {
    lane: usize,
    held: Held<'a>,
    ticket: Ticket,
}

struct Pending<'a> {
    lane: usize,
    id: u64,
    place: Place,
    future: Future<'a>,
    counter: Arc<CountingWaker>,
    waker: Waker,
    /// What it will find when it looks.
    told: Option<Told>,
}

struct Forced {
    target: Target,
    force: Force,
    /// By the clock.
    ends: u64,
}

pub struct World<'a> {
    controller: &'a Controller,
    lanes: &'a [Lane],
    clock: &'a ManualClock,
    pressure: &'a Mutex<f64>,
    monitors: bool,
    models: Vec<Model>,
    seen: Vec<Seen>,
    running: Vec<Running<'a>>,
    pending: Vec<Pending<'a>>,
    /// Wakers that were replaced: never called again.
    replaced: Vec<Arc<CountingWaker>>,
    next_id: u64,
    mode: Mode,
    lane_modes: Vec<Mode>,
    forced: Vec<Forced>,
    caps: Vec<Rank>,
    settings: Settings,
    next_settings: Option<Settings>,
    /// What the clock read when overrides were last looked at.
    read_at: u64,
    /// How often the gate was seen held, by anything but an override.
    pub held: u64,
}

pub fn settings(case: &Case) -> Settings {
    let mut settings = Settings::default();
    for (i, (lane, name)) in case.lanes.iter().zip(NAMES).enumerate() {
        let mut lane_settings = LaneSettings::new(name, lane.limit);
        lane_settings.order = case.order;
        lane_settings.queue_len_max = lane.queue_len_max;
        lane_settings.queue_bytes_max = lane.queue_bytes_max;
        let own = !case.one_scope && i > 0;
        settings = settings.lane(if own {
            lane_settings.scope("own")
        } else {
            lane_settings
        });
    }
    settings
}

/// How often in this process the law or a signal held a gate in a case, so that somebody may see that it is tried.
pub static HELD: AtomicU64 = AtomicU64::new(0);

/// Plays the case, and compares after each step.
pub fn play(case: &Case) -> Checked {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1));
    let pressure = Arc::new(Mutex::new(0.5));
    let settings = settings(case);
    let config = Config::new(settings.clone()).map_err(|error| error.to_string())?;
    let mut builder = Controller::builder(config);
    if case.signal {
        builder = builder.signal(Gauge(Arc::clone(&pressure)));
    }
    let controller = builder
        .build_manual(clock.shared())
        .map_err(|error| error.to_string())?;
    let lanes: Result<Vec<Lane>, _> = settings
        .lanes
        .iter()
        .map(|lane| controller.lane(&lane.name))
        .collect();
    let lanes = lanes.map_err(|error| error.to_string())?;
    let mut world = World {
        controller: &controller,
        lanes: &lanes,
        clock: &clock,
        pressure: &pressure,
        monitors: case.monitors,
        models: (0..lanes.len())
            .map(|i| Model::new(i, &case.lanes[i], SECOND))
            .collect(),
        seen: Vec::new(),
        running: Vec::new(),
        pending: Vec::new(),
        replaced: Vec::new(),
        next_id: 0,
        mode: Mode::Enforce,
        lane_modes: vec![Mode::Enforce; lanes.len()],
        forced: Vec::new(),
        caps: vec![Rank::OPEN; lanes.len()],
        settings,
        next_settings: None,
        read_at: SECOND,
        held: 0,
    };
    world.look(None)?;
    for (number, op) in case.ops.iter().enumerate() {
        let stepped = world.step(op).and_then(|()| world.all_conserve());
        stepped.map_err(|why| format!("step {number}, {op:?}: {why}"))?;
    }
    HELD.fetch_add(u64::from(world.held > 0), Ordering::Relaxed);
    world
        .come_to_rest()
        .map_err(|why| format!("at the end: {why}"))
}

impl<'a> World<'a> {
    fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    fn step(&mut self, op: &Op) -> Checked {
        match *op {
            Op::Offer { lane, how, ask } => self.offer(lane % self.lanes.len(), how, ask),
            Op::Poll { nth, fresh } if !self.pending.is_empty() => {
                self.poll(nth % self.pending.len(), fresh)
            }
            Op::Cancel { nth } if !self.pending.is_empty() => {
                let gone = self.pending.swap_remove(nth % self.pending.len());
                drop(gone.future);
                let clock = self.now();
                self.after(None, |models, seen| {
                    models[gone.lane].abandon(clock, gone.id, &seen[gone.lane])
                })
            }
            Op::Finish { nth, outcome, cost } if !self.running.is_empty() => {
                self.finish(nth % self.running.len(), outcome, cost)
            }
            Op::Drop { nth, panics } if !self.running.is_empty() => {
                let Running { lane, held, ticket } =
                    self.running.swap_remove(nth % self.running.len());
                if panics {
                    let work = catch_unwind(AssertUnwindSafe(move || {
                        let _held = held;
                        std::panic::resume_unwind(Box::new("the work fails"));
                    }));
                    ensure!(work.is_err(), "a panic got lost");
                } else {
                    drop(held);
                }
                self.given_back(lane, ticket)
            }
            Op::IntoOwned { nth } if !self.running.is_empty() => {
                let nth = nth % self.running.len();
                let Running { lane, held, ticket } = self.running.swap_remove(nth);
                let held = match held {
                    Held::Borrowed(permit) => Held::Owned(permit.into_owned()),
                    owned @ Held::Owned(_) => owned,
                };
                self.running.push(Running { lane, held, ticket });
                self.after(None, |_, _| Ok(()))
            }
            Op::Nested { nth } if !self.running.is_empty() => {
                let nth = nth % self.running.len();
                let parent = &self.running[nth];
                let (lane, of, held) = (parent.lane, parent.ticket, parent.held.nested());
                let (id, clock) = (self.new_id(), self.now());
                let mut ticket = of;
                self.after(None, |models, seen| {
                    ticket = models[lane].nested(clock, &of, id, &seen[lane])?;
                    Ok(())
                })?;
                self.start(lane, held, ticket)
            }
            Op::Advance { ns } => {
                self.clock.advance(Duration::from_nanos(ns));
                self.after(None, |_, _| Ok(()))
            }
            Op::SetBack { ns } => {
                // Small steps back are told from great ones by what was read before: so it is read.
                self.observe()?;
                self.clock
                    .set(Instant::from_nanos(self.now().saturating_sub(ns)));
                self.observe()
            }
            Op::Tick => self.tick(),
            Op::Limit { lane, limit } => self.set_limit(lane % self.lanes.len(), limit),
            Op::LaneMode { lane, mode } => {
                let (lane, mode) = (lane % self.lanes.len(), self.may_be(mode));
                self.lane_modes[lane] = mode;
                self.lanes[lane].set_mode(mode);
                self.modes_changed()
            }
            Op::Mode { mode } => {
                self.mode = self.may_be(mode);
                self.controller.set_mode(self.mode);
                self.modes_changed()
            }
            Op::Force { target, force, ttl } => self.force(target, force, ttl),
            Op::Clear { target } => self.clear(target),
            Op::Reconfigure { lane, ref to, mode } => self.reconfigure(lane, to, mode),
            Op::Explain { lane, ask } => self.explain(lane % self.lanes.len(), ask),
            Op::Pressure { value } => {
                *self.pressure.lock().unwrap_or_else(PoisonError::into_inner) = value;
                Ok(())
            }
            Op::Storm {
                lane,
                rounds,
                per_round,
                key,
            } => self.storm(lane % self.lanes.len(), rounds, per_round, key),
            Op::Drain => self.drain(),
            Op::Close => {
                self.controller.close();
                let clock = self.now();
                self.each(|model, seen| model.close(clock, seen))
            }
            _ => Ok(()),
        }
    }

    // ----- offers

    fn offer(&mut self, lane: usize, how: How, mut ask: Ask) -> Checked {
        let clock = self.now();
        let model = &self.models[lane];
        if self.monitors && ask.key.is_none() {
            // Which of those without a key has to go cannot be seen while they wait in a shadow only.
            ask.key = Some(self.next_id);
        }
        if self.monitors {
            ask.tenant = None;
        }
        let request = ask.request(clock);
        if how == How::NotPolled {
            drop(self.lanes[lane].admit(&request));
            return self.after(None, |_, _| Ok(()));
        }
        let blocks = model.may_block(clock, &ask);
        let how = match how {
            How::Blocking if blocks => How::Future,
            How::BlockingOwned if blocks => How::FutureOwned,
            how => how,
        };
        let waits = !matches!(how, How::Try | How::TryOwned);
        let (counter, waker) = CountingWaker::new();
        let mut future = None;
        let on = &self.lanes[lane];
        let answer = match how {
            How::Try => Poll::Ready(on.try_admit(&request).map(Held::Borrowed)),
            How::TryOwned => Poll::Ready(on.try_admit_owned(&request).map(Held::Owned)),
            How::Blocking => Poll::Ready(on.admit_blocking(&request).map(Held::Borrowed)),
            How::BlockingOwned => Poll::Ready(on.admit_blocking_owned(&request).map(Held::Owned)),
            How::Future | How::NotPolled => {
                let admit = future.insert(Future::Borrowed(on.admit(&request)));
                admit.poll(&waker)
            }
            How::FutureOwned => {
                let admit = Box::new(on.admit_owned(&request));
                future.insert(Future::Owned(admit)).poll(&waker)
            }
        };
        if answer.is_ready()
            && let Some(mut done) = future.take()
        {
            ensure!(
                done.poll(&waker).is_pending(),
                "an answered future answers again"
            );
        }
        let place = model.place(&ask);
        let id = self.new_id();
        let told = None;
        if let Some(future) = future {
            self.pending.push(Pending {
                lane,
                id,
                place,
                future,
                counter,
                waker,
                told,
            });
        }
        let evicted = match &answer {
            Poll::Ready(Err(rejected)) => rejected.reason() == Reason::Evicted,
            _ => false,
        };
        let (mut told, mut ticket) = (None, None);
        self.after(Some((lane, evicted)), |models, seen| {
            (told, ticket) = models[lane].offer(clock, id, &ask, waits, &seen[lane])?;
            Ok(())
        })?;
        let held = self.agrees(lane, answer, told, place)?;
        if let (Some(held), Some(ticket)) = (held, ticket) {
            self.start(lane, held, ticket)?;
        }
        Ok(())
    }

    /// Whether what a caller was told is what the model tells.
    fn agrees<'b>(
        &self,
        lane: usize,
        answer: Poll<Result<Held<'b>, Rejected>>,
        told: Option<Told>,
        place: Place,
    ) -> Checked<Option<Held<'b>>> {
        match (answer, told) {
            (Poll::Pending, None) => Ok(None),
            (Poll::Ready(Ok(held)), Some(Told::Runs(kind))) if held.figures().0 == kind => {
                Ok(Some(held))
            }
            (Poll::Ready(Err(rejected)), Some(Told::Refused(reason))) => {
                ensure!(
                    rejected.reason() == reason,
                    "{rejected} instead of {reason}"
                );
                ensure!(
                    place.holds(rejected.rank()),
                    "{} is not in {place:?}",
                    rejected.rank()
                );
                let beyond = rejected.rank() >= rejected.threshold();
                ensure!(beyond || reason != Reason::Shed, "{rejected}");
                Ok(None)
            }
            (Poll::Pending, told) => Err(format!("lane {lane}: it waits, not {told:?}")),
            (Poll::Ready(Ok(held)), told) => Err(format!(
                "lane {lane}: it runs ({:?}), not {told:?}",
                held.figures().0
            )),
            (Poll::Ready(Err(rejected)), told) => {
                Err(format!("lane {lane}: {rejected}, not {told:?}"))
            }
        }
    }

    fn start(&mut self, lane: usize, held: Held<'a>, ticket: Ticket) -> Checked {
        let (kind, tier, started_at) = held.figures();
        ensure!(
            (kind, tier) == (ticket.kind, ticket.tier),
            "a permit of {kind:?}, t{tier}, not {ticket:?}"
        );
        // By the lane's time, which is the clock's until that is set back.
        if let Some(started) = started_at.map(Instant::as_nanos) {
            ensure!(
                started == ticket.since,
                "started at {started}, not {}",
                ticket.since
            );
        }
        self.running.push(Running { lane, held, ticket });
        Ok(())
    }

    fn poll(&mut self, nth: usize, fresh: bool) -> Checked {
        let clock = self.now();
        let mut pending = self.pending.swap_remove(nth);
        let (counter, waker) = if fresh {
            CountingWaker::new()
        } else {
            (Arc::clone(&pending.counter), pending.waker.clone())
        };
        let answer = pending.future.poll(&waker);
        let (lane, id, place) = (pending.lane, pending.id, pending.place);
        let is_ready = answer.is_ready();
        if is_ready {
            let again = pending.future.poll(&waker);
            ensure!(again.is_pending(), "an answered future answers again");
        }
        self.pending.push(pending);
        self.after(None, |models, seen| models[lane].expire(clock, &seen[lane]))?;
        let Some(mut pending) = self.pending.pop() else {
            return Ok(());
        };
        let held = self.agrees(lane, answer, pending.told, place)?;
        let ticket = self.models[lane].take_granted(id);
        ensure!(held.is_some() == ticket.is_some(), "granted is {ticket:?}");
        if let (Some(held), Some(ticket)) = (held, ticket) {
            self.start(lane, held, ticket)?;
        }
        if !is_ready {
            if fresh {
                self.replaced
                    .push(std::mem::replace(&mut pending.counter, counter));
                pending.waker = waker;
            }
            self.pending.push(pending);
        }
        Ok(())
    }

    fn explain(&mut self, lane: usize, ask: Ask) -> Checked {
        let clock = self.now();
        let before = self.controller.snapshot();
        let explained = self.lanes[lane].explain(&ask.request(clock));
        let model = &self.models[lane];
        let now = clock.saturating_add(model.skew).max(model.now);
        let mut may: Vec<Expected> = model
            .judge(clock, now, &ask, true)
            .into_iter()
            .map(|judged| match judged {
                Judged::Runs(_) => Expected::Runs,
                // That its time is too short is found when it would wait.
                Judged::Refused(reason) => Expected::Refused(reason),
                Judged::Waits => Expected::Waits,
            })
            .collect();
        // Who leaves a full queue is seen when it is done.
        if may.contains(&Expected::Waits) && model.is_beyond_full(1, ask.bytes) {
            may.push(Expected::Refused(Reason::Evicted));
        }
        let Some(Explanation {
            answer, rank, mode, ..
        }) = explained
        else {
            return Err("the lane has failed".to_owned());
        };
        ensure!(
            may.contains(&answer),
            "explained as {answer:?}, not {may:?}"
        );
        ensure!(model.place(&ask).holds(rank), "explained at {rank}");
        ensure!(mode == model.mode, "explained under {mode:?}");
        ensure!(
            before == self.controller.snapshot(),
            "explaining changes something"
        );
        self.after(None, |_, _| Ok(()))
    }

    // ----- permits

    fn finish(&mut self, nth: usize, outcome: Outcome, cost: Option<u32>) -> Checked {
        let Running { lane, held, ticket } = self.running.swap_remove(nth);
        let done = Completion::new(outcome);
        held.finish(cost.map_or(done, |cost| done.cost(cost)));
        self.given_back(lane, ticket)
    }

    fn given_back(&mut self, lane: usize, ticket: Ticket) -> Checked {
        let clock = self.now();
        self.after(None, |models, seen| {
            models[lane].finish(clock, &ticket, &seen[lane])
        })
    }

    // ----- comparing

    /// Lets the model take the step that the controller has taken, and compares. `offered` is the lane of an offer in it,
    /// and whether that was evicted.
    fn after(
        &mut self,
        offered: Option<(usize, bool)>,
        step: impl FnOnce(&mut [Model], &[Seen]) -> Checked,
    ) -> Checked {
        self.look(offered)?;
        step(&mut self.models, &self.seen)?;
        self.compare()
    }

    fn each(&mut self, step: impl Fn(&mut Model, &Seen) -> Checked) -> Checked {
        self.after(None, |models, seen| {
            models
                .iter_mut()
                .zip(seen)
                .try_for_each(|(model, seen)| step(model, seen))
        })
    }
}

#[path = "compare.rs"]
mod compare;
#[path = "operator.rs"]
mod operator;
