//! Hooks on the path of a request, for signals that must see each of them: [`Observer`].

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::effects::{Offered, Ticket};
use crate::permit::{Completion, Outcome};
use crate::priority::Priority;
use crate::request::{Class, Request, Tenant};
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::verdict::Reason;

/// Sees every request as it is offered and as it finishes. Called on the thread of the request, with no
/// lock held, so it must be short and must not block: count into atomics, and let a
/// [`Signal`](crate::Signal) read them. An observer that panics is not called again.
pub trait Observer: Send + Sync {
    /// A request was offered.
    fn on_offer(&self, _offer: &OfferEvent<'_>) {}

    /// A request that waited has its slot, and begins to run. (One that runs at once is told at its offer.)
    fn on_start(&self, _start: &StartEvent<'_>) {}

    /// A request that was offered and ran is done. (Work nested in another's slot was not offered.)
    fn on_finish(&self, _finish: &FinishEvent) {}
}

/// A request that was offered.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OfferEvent<'a> {
    /// Index of its lane, in the order of the settings.
    pub lane: usize,
    /// The request.
    pub request: &'a Request,
    /// What became of it at once.
    pub answer: OfferAnswer,
}

/// A request that waited and begins to run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StartEvent<'a> {
    /// Index of its lane, in the order of the settings.
    pub lane: usize,
    /// The request.
    pub request: &'a Request,
    /// How long it waited.
    pub waited: Duration,
}

/// What becomes of an offer at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferAnswer {
    /// It runs.
    Runs,
    /// It waits; it runs later or not at all. Only if it ran will there be a [`FinishEvent`].
    Waits,
    /// It was refused.
    Refused(Reason),
}

impl OfferAnswer {
    pub(crate) const fn of(offered: &Offered) -> Self {
        match offered {
            Offered::Admitted(_) => Self::Runs,
            Offered::Waiting(_) => Self::Waits,
            Offered::Rejected(rejected) => Self::Refused(rejected.reason()),
        }
    }
}

/// A request that ran and is done.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FinishEvent {
    /// Index of its lane, in the order of the settings.
    pub lane: usize,
    /// The priority it was admitted at.
    pub priority: Priority,
    /// Its class.
    pub class: Class,
    /// Its tenant.
    pub tenant: Option<Tenant>,
    /// Its key.
    pub key: Option<u64>,
    /// The bytes it said it held while it waited.
    pub bytes: u32,
    /// The cost it was admitted at, work units.
    pub estimated_cost: u32,
    /// What it really cost, if the caller said.
    pub cost: Option<u32>,
    /// How it ended; `None` when its permit was dropped.
    pub outcome: Option<Outcome>,
    /// How long it waited before.
    pub waited: Duration,
    /// How long it ran.
    pub service_time: Duration,
}

impl FinishEvent {
    pub(crate) fn new(
        lane: usize,
        ticket: &Ticket,
        done: Option<Completion>,
        service_time: Duration,
    ) -> Self {
        Self {
            lane,
            priority: ticket.rank.priority(),
            class: Class(ticket.class),
            tenant: ticket.tenant,
            key: ticket.key,
            bytes: ticket.bytes,
            estimated_cost: ticket.cost,
            cost: done.and_then(|done| done.cost),
            outcome: done.map(|done| done.outcome),
            waited: Duration::from_nanos(ticket.waited_ns),
            service_time,
        }
    }
}

/// The observers of a controller.
#[derive(Default)]
pub(crate) struct Observers(Box<[Hook]>);

struct Hook {
    observer: Arc<dyn Observer>,
    broken: AtomicBool,
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", self.0.len())
    }
}

impl Observers {
    pub(crate) fn new(observers: Vec<Arc<dyn Observer>>) -> Self {
        let hook = |observer| Hook {
            observer,
            broken: AtomicBool::new(false),
        };
        Self(observers.into_iter().map(hook).collect())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn tell(&self, event: impl Fn(&dyn Observer)) {
        for hook in &self.0 {
            if hook.broken.load(Ordering::Relaxed) {
                continue;
            }
            // Its fault must not become the request's.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| event(&*hook.observer))) {
                hook.broken.store(true, Ordering::Relaxed);
                // Nor may that of what it threw, or of who writes the log: whoever offers may have a slot and no permit yet.
                _ = catch_unwind(AssertUnwindSafe(|| {
                    drop(payload);
                    tracing::error!("an observer panicked and is not called again");
                }));
            }
        }
    }
}
