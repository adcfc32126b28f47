//! What runs without the engine: a slot had and given back while there is nothing to decide.
//!
//! | | atomic read-modify-writes | locks | clock reads |
//! |---|---|---|---|
//! | a slot had | 1, of the slot word | none | none |
//! | … and given back | 1, of the slot word | none | none |
//! | refused by the gate | none | none | none |
//! | one in sixteen requests, or fewer of very many | as by the engine | the lane's | one at each end |
//!
//! A thread without a [`Seat`](crate::seat::Seat) needs one more each time, for its shard; a permit that owns its lane's handle one at each end, for
//! the handle's count.

use super::Lane;
use crate::clock::Instant;
use crate::effects::Ticket;
use crate::observer::OfferAnswer;
use crate::permit::Completion;
use crate::request::Request;
use crate::slots::Seen;
use crate::verdict::AdmitKind;

impl Lane {
    /// A slot for one about whom the engine need not be asked; else for how many it stands there, as a power of two.
    #[inline(always)]
    pub(super) fn run_free(&self, request: &Request, seen: Seen) -> Result<Ticket, u8> {
        const FOR_ITSELF: u8 = 0;
        let core = self.core();
        let observed = !self.shared.observers().is_empty();
        let mut now = Instant::FAR_FUTURE;
        if observed || !request.is_plain() {
            // Before anything is taken: it is the embedder's code.
            now = self.shared.read_clock().ok_or(FOR_ITSELF)?;
            let is_over = |at| at <= now || core.gate.is_before(now);
            if request.deadline_at(now).is_some_and(is_over) {
                return Err(FOR_ITSELF);
            }
        }
        let counting = core.shards.mine().ok_or(FOR_ITSELF)?;
        if counting.is_timed(seen.timed_bits()) {
            counting.passed_on();
            return Err(seen.timed_bits() as u8);
        }
        let rank = core.gate.rank(request, counting.number());
        let rank = rank.ok_or(FOR_ITSELF)?;
        let cost = core.gate.cost(request);
        let slot = core.slots.take(seen).ok_or(FOR_ITSELF)?;
        counting.started(rank, cost, request.attempt > 0, slot);
        drop(counting);
        let ticket = Ticket {
            kind: AdmitKind::Slot,
            started_at: if observed { now } else { Instant::FAR_FUTURE },
            cost,
            class: core.gate.class(request),
            tenant: request.tenant,
            key: request.key,
            bytes: request.bytes,
            free: true,
            ..Ticket::open(rank)
        };
        if observed {
            self.tell_offer(request, OfferAnswer::Runs);
        }
        Ok(ticket)
    }

    /// The same, for one who has stood at the lock.
    #[cold]
    pub(super) fn run_free_after_all(&self, request: &Request, seen: Seen) -> Result<Ticket, u8> {
        self.run_free(request, seen)
    }

    /// Gives back a slot that was had without the engine.
    #[inline]
    pub(super) fn finish_free(&self, ticket: &Ticket, done: Option<Completion>) -> Back {
        let core = self.core();
        let mut now = Instant::FAR_FUTURE;
        if !self.shared.observers().is_empty() {
            match self.shared.read_clock() {
                Some(read) => now = read,
                None => return Back::ByEngine,
            }
        }
        let Some(counting) = core.shards.mine() else {
            return Back::ByEngine;
        };
        if let Some(cost) = done.and_then(|done| done.cost)
            && counting.is_lesson(ticket.cost, cost)
        {
            counting.passed_on();
            return Back::ByEngine;
        }
        if !core.slots.give_back() {
            return Back::Held;
        }
        let tier = ticket.rank.priority().tier();
        counting.ended(tier, ticket.cost, done.map(|done| done.outcome));
        drop(counting);
        if now != Instant::FAR_FUTURE {
            self.tell_finish(now.since(ticket.started_at), ticket, done);
        }
        Back::Free
    }
}

/// How a slot that was had without the engine comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Back {
    /// It did.
    Free,
    /// The engine holds the slots at this moment.
    Held,
    /// The engine is to know of it.
    ByEngine,
}
