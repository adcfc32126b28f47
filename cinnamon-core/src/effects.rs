//! What passes between an engine and its callers: tickets, answers, and what waiters must be told.

use crate::clock::Instant;
use crate::priority::Rank;
use crate::queue::WaiterId;
use crate::request::Tenant;
use crate::verdict::{AdmitKind, Rejected};

/// Proof of admission; given back at `Engine::finish`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) kind: AdmitKind,
    pub(crate) started_at: Instant,
    pub(crate) rank: Rank,
    pub(crate) cost: u32,
    pub(crate) class: u16,
    pub(crate) tenant: Option<Tenant>,
    /// It is in its tenant's account.
    pub(crate) counted: bool,
    pub(crate) key: Option<u64>,
    pub(crate) bytes: u32,
    /// In the queue.
    pub(crate) waited_ns: u64,
    /// Given by a lane whose engine has failed; it is not the engine's to take back.
    pub(crate) outside: bool,
    /// It has its slot without the engine: `started_at` is [`Instant::FAR_FUTURE`] unless somebody wanted to know.
    pub(crate) free: bool,
    /// Its service time stands for those of two to this power: of those who have their slots without the engine only some are
    /// sent there to be timed.
    pub(crate) stands_for_bits: u8,
    /// It runs in the slot of its parent, and was never offered.
    pub(crate) nested: bool,
    /// The request's shadow, if it was let in by a lane that only monitors; else [`NO_SHADOW`].
    pub(crate) shadow: u32,
}

impl Ticket {
    /// One for a request of which nothing is known but its rank.
    pub(crate) const fn open(rank: Rank) -> Self {
        Self {
            kind: AdmitKind::Open,
            started_at: Instant::ZERO,
            rank,
            cost: 1,
            class: 0,
            tenant: None,
            counted: false,
            key: None,
            bytes: 0,
            waited_ns: 0,
            outside: false,
            free: false,
            stands_for_bits: 0,
            nested: false,
            shadow: NO_SHADOW,
        }
    }
}

/// No shadow.
pub(crate) const NO_SHADOW: u32 = u32::MAX;

/// What an offer came to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Offered {
    Admitted(Ticket),
    Waiting(WaiterId),
    Rejected(Rejected),
}

/// What a waiter must be told. `token` is what the caller gave at the offer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect {
    pub(crate) token: u32,
    pub(crate) result: Result<Ticket, Rejected>,
}
