//! The handle callers hold: [`Lane`].
//!
//! A call that has to be decided on reads the clock once, locks the lane's mutex, lets the engine decide, and tells waiters
//! what became of them after the mutex is released. What needs no decision runs without it: a slot while there are plenty
//! ([`SlotWord`](crate::slots::SlotWord)), a refusal by the gate ([`Gate`](crate::gate::Gate)). Lock order: the controller's, then a lane's; never two lanes' at once.
//! A panic under the lock does not spread: the lane is marked failed and from then on admits everything without a decision.

mod admit;
mod core;
mod free;

use std::fmt;
use std::task::Poll;
use std::time::Duration;

use crate::admission::Admission;
use crate::clock::Instant;
use crate::config::{ConfigError, check_limit};
use crate::control::Shared;
use crate::effects::{Offered, Ticket};
use crate::explain::Explanation;
use crate::metrics::LaneSnapshot;
use crate::observer::{FinishEvent, OfferAnswer, OfferEvent, StartEvent};
use crate::permit::{Completion, OwnedPermit, Permit};
use crate::priority::{KeyHash, Rank, Tier};
use crate::request::Request;
use crate::retry::Advice;
use crate::signal::Mode;
use crate::sync::{Arc, Ordering, lock};
use crate::verdict::{Binding, Reason, Rejected};
use crate::waiter::{Parker, Waiters};

use self::core::Counts;
pub(crate) use self::core::{LaneCore, wake_all};
use admit::Pending;
pub use admit::{Admit, AdmitOwned};
use free::Back;

/// A blocked thread looks for itself this often, so that even a dead control thread cannot hold it
/// beyond its timeout. Ten looks a second cost a thousand blocked threads about 1 % of a core.
const PARK_MAX: Duration = Duration::from_millis(100);

/// A queue with its own slots: what callers ask for admission. Cheap to clone; clones are one lane.
#[derive(Clone)]
pub struct Lane {
    shared: Arc<Shared>,
    index: usize,
}

/// What an offer came to before it came to the engine, or there.
enum Decided<R> {
    Before(Result<Ticket, Rejected>),
    /// `None` when the engine has failed. The request stands for two to this power there, if its time is taken.
    ByEngine(Option<R>, u8),
}

/// An offer that the engine is to be asked about.
#[derive(Clone, Copy, Debug)]
struct Asks {
    /// What it stands for there, see [`Decided::ByEngine`].
    stands_for_bits: u8,
    /// The engine let others run without it when this one came.
    was_free: bool,
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
        let mut back = Back::ByEngine;
        if ticket.free {
            back = self.finish_free(ticket, done);
            if back == Back::Free {
                // Nobody drains: the doors are open.
                return;
            }
        }
        if ticket.outside {
            self.core().outside.fetch_sub(1, Ordering::AcqRel);
        } else if let Some(held) = self.finish_by_engine(ticket, done, back) {
            self.tell_finish(held, ticket, done);
        }
        self.shared.slot_freed();
    }

    /// How long it was held; `None` when that is none of the engine's business any more.
    fn finish_by_engine(
        &self,
        ticket: &Ticket,
        done: Option<Completion>,
        back: Back,
    ) -> Option<Duration> {
        let core = self.core();
        let now = self.shared.read_clock();
        let mut state = lock(&core.state);
        // As for an offer: whoever held it may have let go.
        if back == Back::Held && core.slots.is_free() {
            drop(state);
            if self.finish_free(ticket, done) == Back::Free {
                return None;
            }
            state = lock(&core.state);
        }
        let mut wakers = Vec::new();
        let held = core.step(state, now, &mut wakers, Counts::Left, |engine, _, now| {
            engine.finish(now, ticket, done);
            engine.held(ticket, now)
        });
        core.tell(wakers);
        held
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
    #[inline(always)]
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
            self.core().with_counts(now, &mut wakers, |engine, _, now| {
                engine.look_after_gate(now);
            });
            wake_all(wakers);
        }
    }

    /// Has a slot without the engine, or is refused by the gate; else the engine is to be asked.
    #[inline(always)]
    fn decide_before(&self, request: &Request) -> Result<Result<Ticket, Rejected>, Asks> {
        // While slots are free to have, the gate is open.
        if let Some(seen) = self.core().slots.look() {
            match self.run_free(request, seen) {
                Ok(ticket) => return Ok(Ok(ticket)),
                Err(stands_for_bits) => {
                    return Err(Asks {
                        stands_for_bits,
                        was_free: true,
                    });
                }
            }
        }
        match self.refuse_at_gate(request) {
            Some(rejected) => Ok(Err(rejected)),
            None => Err(Asks {
                stands_for_bits: 0,
                was_free: false,
            }),
        }
    }

    fn decide_by_engine<R>(
        &self,
        request: &Request,
        asks: Asks,
        ask: impl FnOnce(&mut Admission, &mut Waiters, Instant) -> R,
    ) -> Decided<R> {
        let core = self.core();
        let mut stands_for_bits = asks.stands_for_bits;
        let now = self.shared.read_clock();
        let mut state = lock(&core.state);
        // It was held by somebody's step that is over: no need for one of ours, for which others would have to stand here too.
        if !asks.was_free
            && let Some(seen) = core.slots.look()
        {
            drop(state);
            match self.run_free_after_all(request, seen) {
                Ok(ticket) => return Decided::Before(Ok(ticket)),
                Err(bits) => stands_for_bits = bits,
            }
            state = lock(&core.state);
        }
        let mut wakers = Vec::new();
        let answer = core.step(state, now, &mut wakers, Counts::Left, ask);
        core.tell(wakers);
        self.shared.rouse();
        Decided::ByEngine(answer, stands_for_bits)
    }

    #[inline]
    fn try_ticket(&self, request: &Request) -> Result<Ticket, Rejected> {
        match self.decide_before(request) {
            Ok(answer) => answer,
            Err(asks) => self.try_by_engine(request, asks),
        }
    }

    #[inline(never)]
    fn try_by_engine(&self, request: &Request, asks: Asks) -> Result<Ticket, Rejected> {
        let decided = self.decide_by_engine(request, asks, |engine, _, now| {
            let offered = engine.offer(now, request, None);
            let wakeup = engine.waits_in_shadow().then(|| engine.next_wakeup());
            (offered, wakeup)
        });
        let (offered, stands_for_bits) = match decided {
            Decided::Before(answer) => return answer,
            Decided::ByEngine(offered, stands_for_bits) => (offered, stands_for_bits),
        };
        let (offered, wakeup) = offered.unzip();
        if let Some(offered) = &offered {
            self.tell_offer(request, OfferAnswer::of(offered));
        }
        if let Some(wakeup) = wakeup.flatten() {
            self.shared.waiter_came(wakeup);
        }
        match offered {
            Some(Offered::Admitted(ticket)) => Ok(Ticket {
                stands_for_bits,
                ..ticket
            }),
            Some(Offered::Rejected(rejected)) => Err(rejected),
            // Not reached while the engine keeps its word not to queue who will not wait.
            Some(Offered::Waiting(_)) | None => self.past_the_engine(request),
        }
    }

    #[inline]
    fn block_for_ticket(&self, request: &Request) -> Result<Ticket, Rejected> {
        match self.decide_before(request) {
            Ok(answer) => answer,
            Err(asks) => self.block_by_engine(request, asks),
        }
    }

    #[inline(never)]
    fn block_by_engine(&self, request: &Request, asks: Asks) -> Result<Ticket, Rejected> {
        let mut pending = Pending::Unoffered(*request);
        // Mostly nobody has to wait, and no waker is needed.
        if let Poll::Ready(result) = pending.offer_at_once(self, asks) {
            return result;
        }
        let (parker, waker) = Parker::of_this_thread();
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
