//! What runs without the engine: a slot had and given back while there is nothing to decide.
//!
//! | | atomic read-modify-writes | locks | clock reads |
//! |---|---|---|---|
//! | a slot had | 1, of the slot word | none | none |
//! | … and given back | 1, of the slot word | none | none |
//! | refused by the gate | none | none | none |
//! | one in sixteen requests, or fewer of very many | as by the engine | the lane's | one at each end |
//!
//! A thread without a [`Seat`](crate::seat::Seat) needs one more each time, for its shard.

use super::Lane;
use crate::clock::Instant;
use crate::effects::Ticket;
use crate::observer::OfferAnswer;
use crate::permit::Completion;
use crate::request::Request;
use crate::verdict::AdmitKind;

impl Lane {
    /// A slot for one about whom the engine need not be asked.
    #[inline]
    pub(super) fn run_free(&self, request: &Request, timed_bits: u32) -> Option<Ticket> {
        let core = self.core();
        let counting = core.shards.mine()?;
        if counting.is_timed(timed_bits) {
            counting.passed_on();
            return None;
        }
        let rank = core.gate.rank(request, counting.number())?;
        let cost = core.gate.cost(request);
        let observed = !self.shared.observers().is_empty();
        let now = if observed || !request.is_plain() {
            self.shared.read_clock()?
        } else {
            Instant::FAR_FUTURE
        };
        if !request.is_plain() && request.deadline_at(now).is_some_and(|at| at <= now) {
            return None;
        }
        let slot = core.slots.take()?;
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
        Some(ticket)
    }

    /// Gives back a slot that was had without the engine, if it is not to know of that either.
    #[inline]
    pub(super) fn finish_free(&self, ticket: &Ticket, done: Option<Completion>) -> bool {
        let core = self.core();
        if !core.slots.is_free() {
            return false;
        }
        let Some(counting) = core.shards.mine() else {
            return false;
        };
        if !core.slots.give_back() {
            return false;
        }
        let tier = ticket.rank.priority().tier();
        counting.ended(tier, ticket.cost, done.map(|done| done.outcome));
        drop(counting);
        if !self.shared.observers().is_empty() {
            let now = self.shared.read_clock().unwrap_or_default();
            self.tell_finish(now.since(ticket.started_at), ticket, done);
        }
        true
    }
}
