//! The handle callers hold: [`Lane`].
//!
//! A call that has to be decided on reads the clock once, locks the lane's mutex, lets the engine decide, and tells waiters
//! what became of them after the mutex is released. What needs no decision runs without it: a slot while there are plenty
//! ([`SlotWord`]), a refusal by the gate ([`Gate`]). Lock order: the controller's, then a lane's; never two lanes' at once.
//! A panic under the lock does not spread: the lane is marked failed and from then on admits everything without a decision.

mod admit;
mod free;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::admission::Admission;
use crate::clock::{Clock, Instant, read};
use crate::config::{ConfigError, check_limit};
use crate::control::Shared;
use crate::effects::{Effect, Offered, Ticket};
use crate::explain::Explanation;
use crate::gate::{Gate, Published};
use crate::metrics::LaneSnapshot;
use crate::observer::{FinishEvent, OfferAnswer, OfferEvent, StartEvent};
use crate::permit::{Completion, OwnedPermit, Permit};
use crate::priority::{KeyHash, Rank, Tier};
use crate::request::Request;
use crate::retry::Advice;
use crate::shards::Shards;
use crate::signal::Mode;
use crate::slots::SlotWord;
use crate::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, lock};
use crate::verdict::{Binding, Reason, Rejected};
use crate::waiter::{Parker, Waiters};

use admit::Pending;
pub use admit::{Admit, AdmitOwned};

/// A blocked thread looks for itself this often, so that even a dead control thread cannot hold it
/// beyond its timeout. Ten looks a second cost a thousand blocked threads about 1 % of a core.
const PARK_MAX: Duration = Duration::from_millis(100);

/// A queue with its own slots: what callers ask for admission. Cheap to clone; clones are one lane.
#[derive(Clone)]
pub struct Lane {
    shared: Arc<Shared>,
    index: usize,
}

/// One lane inside the controller.
#[derive(Debug)]
pub(crate) struct LaneCore {
    name: String,
    clock: Arc<dyn Clock>,
    /// Read before the lock, by everybody who comes.
    gate: Gate,
    slots: SlotWord,
    shards: Shards,
    state: Mutex<LaneState>,
    failed: AtomicBool,
    /// The log has it.
    told: AtomicBool,
    /// Running requests that were admitted after the lane failed, without its engine.
    outside: AtomicU32,
    /// All that ever were.
    outside_total: AtomicU64,
}

#[derive(Debug)]
struct LaneState {
    engine: Admission,
    waiters: Waiters,
    effects: Vec<Effect>,
    /// What the gate shows.
    published: (Published, KeyHash),
}

impl LaneCore {
    pub(crate) fn new(name: &str, clock: Arc<dyn Clock>, engine: Admission) -> Self {
        Self {
            name: name.to_owned(),
            clock,
            state: Mutex::new(LaneState {
                engine,
                waiters: Waiters::default(),
                effects: Vec::new(),
                published: (Published::SHUT_OFF, KeyHash::new(0, 0)),
            }),
            gate: Gate::new(),
            slots: SlotWord::new(),
            shards: Shards::new(),
            failed: AtomicBool::new(false),
            told: AtomicBool::new(false),
            outside: AtomicU32::new(0),
            outside_total: AtomicU64::new(0),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Running requests that the engine of a failed lane does not know of.
    pub(crate) fn outside(&self) -> u32 {
        self.outside.load(Ordering::Acquire)
    }

    /// Runs `act` on the engine under the lock at `now` (the engine's last time if the clock could
    /// not be read), then wakes whom it concerned. `None` when the lane has failed.
    pub(crate) fn with<R>(
        &self,
        now: Option<Instant>,
        act: impl FnOnce(&mut Admission, &mut Waiters, Instant) -> R,
    ) -> Option<R> {
        let mut wakers = Vec::new();
        let result = self.step(now, &mut wakers, false, act);
        if !wakers.is_empty() {
            wake_all(wakers);
        }
        if result.is_none() {
            self.log_failure();
        }
        result
    }

    /// Like [`LaneCore::with`], for a caller that holds another lock: it must pass `wakers` to
    /// [`wake_all`] once that is released.
    pub(crate) fn with_wakers<R>(
        &self,
        now: Option<Instant>,
        wakers: &mut Vec<Waker>,
        act: impl FnOnce(&mut Admission, &mut Waiters, Instant) -> R,
    ) -> Option<R> {
        self.step(now, wakers, true, act)
    }

    /// One step of the engine; `takes_in` whether it takes in first what was counted without it, as whoever controls it must.
    fn step<R>(
        &self,
        now: Option<Instant>,
        wakers: &mut Vec<Waker>,
        takes_in: bool,
        act: impl FnOnce(&mut Admission, &mut Waiters, Instant) -> R,
    ) -> Option<R> {
        if self.failed() {
            return None;
        }
        let mut state = lock(&self.state);
        if self.failed() {
            // It failed while we stood at the lock; nobody would wake a newcomer.
            return None;
        }
        let step = catch_unwind(AssertUnwindSafe(|| {
            let LaneState {
                engine,
                waiters,
                effects,
                published,
            } = &mut *state;
            if let Some(in_use) = self.slots.hold() {
                engine.resume(in_use);
            }
            if takes_in {
                engine.take_in(&self.shards);
            }
            let mut now = now.unwrap_or_else(|| engine.last_reading());
            if engine.steps_back(now) {
                // An old reading of a thread that was held up, or a clock that was set back? Under
                // the lock nobody is held up.
                now = read(&*self.clock).unwrap_or(now);
            }
            let result = act(engine, waiters, now);
            let shows = (engine.published(), engine.hash());
            if shows != *published {
                self.gate.publish(shows.0, shows.1);
                *published = shows;
            }
            engine.publish_costs(&self.gate);
            // Mostly there is nobody to tell, and to find that out must cost nothing.
            if engine.has_effects() {
                engine.take_effects(effects);
                let told = effects
                    .drain(..)
                    .filter_map(|effect| waiters.resolve(effect.token, effect.result));
                wakers.extend(told);
            }
            self.let_go(engine);
            result
        }));
        if step.is_err() {
            self.failed.store(true, Ordering::Release);
            self.gate.publish(Published::SHUT_OFF, KeyHash::new(0, 0));
            wakers.extend(state.waiters.take_wakers());
        }
        drop(state);
        step.ok()
    }

    /// The last of a step: leaves the slots to whoever comes, if there is nothing to decide.
    fn let_go(&self, engine: &Admission) {
        if engine.runs_free() {
            self.slots.release(&engine.lets_go());
        }
    }

    /// Says in the log that the lane has failed, once. Not where it is noticed: another lock may be held there.
    pub(crate) fn log_failure(&self) {
        if self.failed() && !self.told.swap(true, Ordering::AcqRel) {
            tracing::error!(
                lane = %self.name,
                "admission engine panicked; the lane now admits everything without a decision"
            );
        }
    }

    pub(crate) fn snapshot(&self) -> LaneSnapshot {
        let mut snapshot = {
            let mut state = lock(&self.state);
            let engine = &mut state.engine;
            if let Some(in_use) = self.slots.hold() {
                engine.resume(in_use);
            }
            engine.take_in(&self.shards);
            let snapshot = engine.snapshot(&self.name);
            if !self.failed() {
                self.let_go(engine);
            }
            snapshot
        };
        snapshot.failed = self.failed();
        snapshot.failed_open_in_use = self.outside();
        snapshot.failed_open = self.outside_total.load(Ordering::Relaxed);
        snapshot
    }

    /// Admits past a failed engine.
    fn admit_outside(&self, rank: Rank) -> Ticket {
        self.outside.fetch_add(1, Ordering::AcqRel);
        self.outside_total.fetch_add(1, Ordering::Relaxed);
        Ticket {
            outside: true,
            ..Ticket::open(rank)
        }
    }
}

/// Wakes waiters. A waker is the embedder's code: a panic in it must not keep the others asleep, nor
/// hit whoever happened to give a slot back.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
            tracing::error!("a waiter's waker panicked");
        }
    }
}

impl Lane {
    pub(crate) const fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self { shared, index }
    }

    /// The lane's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.core().name()
    }

    /// Admits the request if it can run now.
    ///
    /// # Errors
    ///
    /// Says why not: shed, busy, hopeless or closed. Nothing of a refused request stays behind.
    pub fn try_admit(&self, request: &Request) -> Result<Permit<'_>, Rejected> {
        self.try_ticket(request)
            .map(|ticket| Permit::new(self, ticket))
    }

    /// Like [`Lane::try_admit`], with a permit that can move to another thread or task.
    ///
    /// # Errors
    ///
    /// As [`Lane::try_admit`].
    pub fn try_admit_owned(&self, request: &Request) -> Result<OwnedPermit, Rejected> {
        self.try_ticket(request)
            .map(|ticket| OwnedPermit::new(self.clone(), ticket))
    }

    /// Waits for admission, on any async runtime or none: no timer and no reactor of the runtime's
    /// is used. The request is offered when the future is first polled.
    ///
    /// # Errors
    ///
    /// Besides the refusals of [`Lane::try_admit`]: evicted or expired after it waited.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue. A slot granted before the drop was
    /// noticed goes to the next waiter; none is ever lost.
    pub const fn admit<'a>(&'a self, request: &Request) -> Admit<'a> {
        Admit::new(self, request)
    }

    /// Like [`Lane::admit`], with a future and a permit that borrow nothing.
    ///
    /// # Errors
    ///
    /// As [`Lane::admit`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lane::admit`].
    pub fn admit_owned(&self, request: &Request) -> AdmitOwned {
        AdmitOwned::new(self.clone(), request)
    }

    /// Waits for admission on the calling thread.
    ///
    /// The wait is bounded by the request's deadline and patience and by the timeout in force, so a
    /// thread that already holds this lane's last slot gets `Expired`, not a deadlock; see
    /// [`Permit::nested`] for work inside work.
    ///
    /// # Errors
    ///
    /// As [`Lane::admit`].
    pub fn admit_blocking(&self, request: &Request) -> Result<Permit<'_>, Rejected> {
        self.block_for_ticket(request)
            .map(|ticket| Permit::new(self, ticket))
    }

    /// Like [`Lane::admit_blocking`], with a permit that can move to another thread or task.
    ///
    /// # Errors
    ///
    /// As [`Lane::admit`].
    pub fn admit_blocking_owned(&self, request: &Request) -> Result<OwnedPermit, Rejected> {
        self.block_for_ticket(request)
            .map(|ticket| OwnedPermit::new(self.clone(), ticket))
    }

    /// Changes the number of slots, 1..=[`LIMIT_MAX`](crate::config::LIMIT_MAX). A lower limit
    /// revokes no permit: it acts as slots come back. A higher one wakes as many waiters as it adds
    /// slots.
    ///
    /// # Errors
    ///
    /// When the limit is out of bounds; then nothing changes.
    pub fn set_limit(&self, limit: u32) -> Result<(), ConfigError> {
        check_limit("limit", limit)?;
        self.with(|engine, _, now| engine.set_limit(now, limit));
        Ok(())
    }

    /// Changes whether this lane's decisions count; the lesser of this and the controller's mode holds.
    /// Who waits is let in when they no longer do.
    pub fn set_mode(&self, mode: Mode) {
        self.shared.set_lane_mode(self.index, mode);
    }

    /// What would become of this request if it were offered now, and why. Nothing is counted, nothing changes,
    /// and nobody's place is taken. A request without a key has another cohort each time that it is offered.
    ///
    /// `None` when the lane has failed: then everything runs.
    #[must_use]
    pub fn explain(&self, request: &Request) -> Option<Explanation> {
        let mut explanation = self.with(|engine, _, now| engine.explain(now, request))?;
        explanation.bound_by = self.shared.binding_name(explanation.binding);
        Some(explanation)
    }

    /// The lane at this moment.
    #[must_use]
    pub fn snapshot(&self) -> LaneSnapshot {
        self.shared.lane_snapshot(self.index)
    }

    /// Makes the lane's engine panic, as a bug in it would. For tests of what happens then.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    pub fn break_engine(&self) {
        #[expect(clippy::panic, reason = "a panic is what is asked for")]
        let broken = self.with(|_, _, _| -> () { panic!("broken on purpose") });
        debug_assert!(broken.is_none());
    }

    /// Lets requests run without the engine however few come, where nothing has to be decided. For tests and benches of
    /// that path: by itself it opens with the pace of what comes.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    pub fn let_run_free(&self) {
        self.with(|engine, _, _| engine.let_run_free());
    }

    // ----- shared with permits and futures

    /// Gives back what the ticket holds.
    pub(crate) fn finish(&self, ticket: &Ticket, done: Option<Completion>) {
        if ticket.free && self.finish_free(ticket, done) {
            // Nobody drains: the doors are open.
            return;
        }
        if ticket.outside {
            self.core().outside.fetch_sub(1, Ordering::AcqRel);
        } else {
            let ended = self.with(|engine, _, now| {
                engine.finish(now, ticket, done);
                engine.held(ticket, now)
            });
            if let Some(held) = ended {
                self.tell_finish(held, ticket, done);
            }
        }
        self.shared.slot_freed();
    }

    #[inline]
    fn tell_offer(&self, request: &Request, answer: OfferAnswer) {
        let observers = self.shared.observers();
        if !observers.is_empty() {
            let event = OfferEvent {
                lane: self.index,
                request,
                answer,
            };
            observers.tell(|observer| observer.on_offer(&event));
        }
    }

    /// A request that waited has its slot.
    fn tell_start(&self, request: &Request, ticket: &Ticket) {
        let observers = self.shared.observers();
        if !observers.is_empty() {
            let event = StartEvent {
                lane: self.index,
                request,
                waited: Duration::from_nanos(ticket.waited_ns),
            };
            observers.tell(|observer| observer.on_start(&event));
        }
    }

    fn tell_finish(&self, held: Duration, ticket: &Ticket, done: Option<Completion>) {
        let observers = self.shared.observers();
        if !observers.is_empty() && !ticket.nested {
            let event = FinishEvent::new(self.index, ticket, done, held);
            observers.tell(|observer| observer.on_finish(&event));
        }
    }

    pub(crate) fn nested(&self, parent: &Ticket) -> Ticket {
        self.with(|engine, _, now| engine.nested(now, parent))
            .unwrap_or_else(|| self.core().admit_outside(parent.rank))
    }

    #[inline]
    fn core(&self) -> &LaneCore {
        self.shared.lane_core(self.index)
    }

    fn with<R>(&self, act: impl FnOnce(&mut Admission, &mut Waiters, Instant) -> R) -> Option<R> {
        self.core().with(self.shared.read_clock(), act)
    }

    /// Refuses what the gate is sure to refuse, without the lock.
    #[inline]
    fn refuse_at_gate(&self, request: &Request) -> Option<Rejected> {
        let core = self.core();
        let refused = core.gate.refuse(request, &core.shards)?;
        if refused.look {
            self.look_after_gate();
        }
        let reason = refused.rejected.reason();
        self.tell_offer(request, OfferAnswer::Refused(reason));
        Some(refused.rejected)
    }

    /// Opens the gate if nobody has moved it for too long.
    #[cold]
    fn look_after_gate(&self) {
        if self.with(|engine, _, now| engine.gate_is_stale(now)) == Some(true) {
            let mut wakers = Vec::new();
            let now = self.shared.read_clock();
            self.core().with_wakers(now, &mut wakers, |engine, _, now| {
                engine.look_after_gate(now);
            });
            wake_all(wakers);
        }
    }

    fn try_ticket(&self, request: &Request) -> Result<Ticket, Rejected> {
        // While slots are free to have, the gate is open.
        if let Some(timed_bits) = self.core().slots.timed_bits() {
            if let Some(ticket) = self.run_free(request, timed_bits) {
                return Ok(ticket);
            }
        } else if let Some(rejected) = self.refuse_at_gate(request) {
            return Err(rejected);
        }
        let offered = self.with(|engine, _, now| {
            let offered = engine.offer(now, request, None);
            let wakeup = engine.waits_in_shadow().then(|| engine.next_wakeup());
            (offered, wakeup)
        });
        let (offered, wakeup) = offered.unzip();
        if let Some(offered) = &offered {
            self.tell_offer(request, OfferAnswer::of(offered));
        }
        if let Some(wakeup) = wakeup.flatten() {
            self.shared.waiter_came(wakeup);
        }
        match offered {
            Some(Offered::Admitted(ticket)) => Ok(ticket),
            Some(Offered::Rejected(rejected)) => Err(rejected),
            // Not reached while the engine keeps its word not to queue who will not wait.
            Some(Offered::Waiting(_)) | None => self.past_the_engine(request),
        }
    }

    fn block_for_ticket(&self, request: &Request) -> Result<Ticket, Rejected> {
        let (parker, waker) = Parker::of_this_thread();
        let mut pending = Pending::Unoffered(*request);
        loop {
            if let Poll::Ready(result) = pending.poll(self, &waker) {
                return result;
            }
            parker.park(PARK_MAX);
        }
    }

    /// What an offer comes to when the engine has failed: it runs, unless the lane was closed.
    fn past_the_engine(&self, request: &Request) -> Result<Ticket, Rejected> {
        let rank = request.rank(KeyHash::new(0, 0), Tier::T3, 0);
        if self.shared.is_closed() {
            let gate = (Rank::OPEN, Binding::Nothing);
            return Err(Rejected::new(
                Reason::Closed,
                rank,
                gate,
                0,
                (request.attempt, Advice::Elsewhere),
            ));
        }
        Ok(self.core().admit_outside(rank))
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
