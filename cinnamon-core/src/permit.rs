//! The right to run: [`Permit`] and [`OwnedPermit`].
//!
//! A permit is given back exactly once, by type: [`Permit::finish`] consumes it, and dropping it does
//! the same without a lesson. Nothing else can give a slot back.

use crate::clock::Instant;
use crate::effects::Ticket;
use crate::lane::Lane;
use crate::priority::Priority;
use crate::verdict::AdmitKind;

/// How the work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It did what was asked.
    Success,
    /// It failed for a reason that says nothing of load: not found, invalid, no permission. Its
    /// duration teaches nothing.
    Failure,
    /// It failed, or took too long, because something it needs is overloaded.
    Overloaded,
    /// Say nothing of it.
    Ignored,
}

impl Outcome {
    /// Whether the service time of such work is evidence.
    pub(crate) const fn teaches(self) -> bool {
        matches!(self, Self::Success | Self::Overloaded)
    }
}

/// How the work ended, and what it really cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    pub(crate) outcome: Outcome,
    pub(crate) cost: Option<u32>,
}

impl Completion {
    /// Work that ended so, at its estimated cost.
    #[must_use]
    pub const fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            cost: None,
        }
    }

    /// Work that succeeded, at its estimated cost.
    #[must_use]
    pub const fn success() -> Self {
        Self::new(Outcome::Success)
    }

    /// What the work really cost, in work units: what it examined, not what it returned. It teaches its class's mean; of
    /// a lane with thousands a second without contention a part of it does. 0 counts as 1.
    #[must_use]
    pub const fn cost(mut self, units: u32) -> Self {
        self.cost = Some(if units == 0 { 1 } else { units });
        self
    }
}

/// The right to run one request, borrowed from its [`Lane`]. Hold it while the work runs, not while
/// the answer is sent.
///
/// Call [`finish`](Permit::finish) when the work is done. Dropping the permit (an early return, a
/// panic) frees the slot too, but teaches nothing of the service time.
#[derive(Debug)]
#[must_use = "dropping a permit at once gives its slot back before the work has run"]
pub struct Permit<'a> {
    lane: &'a Lane,
    ticket: Ticket,
    given_back: bool,
}

/// Like [`Permit`], but owns its lane's handle, so that it can move to another task or thread.
#[derive(Debug)]
#[must_use = "dropping a permit at once gives its slot back before the work has run"]
pub struct OwnedPermit {
    lane: Lane,
    ticket: Ticket,
    given_back: bool,
}

impl<'a> Permit<'a> {
    pub(crate) const fn new(lane: &'a Lane, ticket: Ticket) -> Self {
        Self {
            lane,
            ticket,
            given_back: false,
        }
    }

    /// The same permit with a handle of its own.
    pub fn into_owned(mut self) -> OwnedPermit {
        // The owned one gives it back.
        self.given_back = true;
        OwnedPermit::new(self.lane.clone(), self.ticket)
    }
}

impl OwnedPermit {
    pub(crate) const fn new(lane: Lane, ticket: Ticket) -> Self {
        Self {
            lane,
            ticket,
            given_back: false,
        }
    }
}

/// What both permits can do; `$nested` is what their nested permit is.
macro_rules! permit {
    ($permit:ty, $nested:ty, $nest:expr) => {
        /// Gives the slot back and says how the work ended. Whoever waits next is woken before this
        /// returns; it never blocks beyond the lane's short lock, and never panics.
        pub fn finish(mut self, completion: Completion) {
            self.given_back = true;
            self.lane.finish(&self.ticket, Some(completion));
        }

        /// A permit for work done inside this one's: a sub-query, a read before a write. It runs in
        /// its parent's slot, so it can neither wait nor be refused. A second, ordinary admission
        /// while holding a slot would wait for oneself once the lane is full; it would end as
        /// expired, not hang, but it would not run.
        pub fn nested(&self) -> $nested {
            let ticket = self.lane.nested(&self.ticket);
            $nest(&self.lane, ticket)
        }

        /// Whether it holds a slot, is exempt, or was admitted without a decision.
        #[must_use]
        pub const fn kind(&self) -> AdmitKind {
            self.ticket.kind
        }

        /// The priority it was admitted at.
        #[must_use]
        pub const fn priority(&self) -> Priority {
            self.ticket.rank.priority()
        }

        /// When it was admitted, by the controller's clock. `None` when nobody looked at the clock: of a lane that lets in
        /// thousands a second without contention, and without observers, one in sixteen or fewer are timed.
        #[must_use]
        pub fn started_at(&self) -> Option<Instant> {
            let at = self.ticket.started_at;
            (at != Instant::FAR_FUTURE).then_some(at)
        }
    };
}

impl<'a> Permit<'a> {
    permit!(Permit<'a>, Permit<'a>, |lane: &&'a Lane, ticket| {
        Permit::new(lane, ticket)
    });
}

impl OwnedPermit {
    permit!(OwnedPermit, OwnedPermit, |lane: &Lane, ticket| {
        OwnedPermit::new(lane.clone(), ticket)
    });
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if !self.given_back {
            self.lane.finish(&self.ticket, None);
        }
    }
}

impl Drop for OwnedPermit {
    fn drop(&mut self) {
        if !self.given_back {
            self.lane.finish(&self.ticket, None);
        }
    }
}
