//! What an engine says to an offer. [`Engine::judge`] decides, and changes nothing; [`Engine::offer`] acts on it, and
//! [`Engine::explain`] only tells.

use super::{Doors, Engine, GATE_STALE_NS, IDLE_SLOTS_SHARE, cause};
use crate::clock::Instant;
use crate::effects::{Offered, Ticket};
use crate::explain::{Expected, Explanation};
use crate::overrides::TenantRule;
use crate::priority::{Rank, Tier};
use crate::queue::Entry;
use crate::request::{Request, Tag, Tenant};
use crate::signal::Mode;
use crate::steering::Slots;
use crate::throttle::Throttle;
use crate::verdict::{AdmitKind, Binding, Reason};

/// What a request is, to the engine.
#[derive(Clone, Copy, Debug)]
struct Weighed {
    rank: Rank,
    cost: u32,
    class: u16,
    /// The tier that it claims; where it is placed may be lower.
    claimed: Tier,
}

impl Weighed {
    const fn tier(&self) -> Tier {
        self.rank.priority().tier()
    }
}

/// What is to become of an offer.
#[derive(Clone, Copy, Debug)]
enum Judged {
    Runs(AdmitKind),
    /// No slot is free for it.
    Waits,
    /// … and the gate that refused it.
    Refused(Reason, (Rank, Binding)),
}

impl Engine {
    /// Asks to run. `wait` names the waiter if the caller is ready to wait.
    pub(crate) fn offer(&mut self, now: Instant, request: &Request, wait: Option<u32>) -> Offered {
        let clock_now = now;
        let now = self.advance(now);
        self.offered += 1;
        self.pace.offered(now, self.offered);
        self.retries.arrived(request.attempt);
        self.open_stale_gate(now);
        let weighed = self.weigh(now, request);
        let Weighed {
            rank, cost, class, ..
        } = weighed;
        self.last = Ticket {
            started_at: now,
            cost,
            class,
            tenant: request.tenant,
            key: request.key,
            bytes: request.bytes,
            ..Ticket::open(rank)
        };
        if request.tag == Tag::Untagged {
            self.untagged += 1;
        }
        let judged = self.judge(clock_now, now, request, &weighed);
        self.account(now, request, &weighed, &judged);
        match judged {
            Judged::Runs(AdmitKind::Slot) => {
                self.steering.entered();
                self.steering.started(cost);
                let ticket = self.take_slot(self.last);
                self.admit(ticket)
            }
            Judged::Runs(AdmitKind::Exempt) => {
                self.exempt_in_use += 1;
                let kind = AdmitKind::Exempt;
                self.admit(Ticket { kind, ..self.last })
            }
            Judged::Runs(AdmitKind::Open) => {
                self.open_in_use += 1;
                self.admit(self.last)
            }
            Judged::Refused(reason, gate) => self.reject_at(request, rank, reason, gate),
            Judged::Waits => self.wait(clock_now, now, request, wait),
        }
    }

    /// What would become of this request if it were offered now; nothing is counted and nothing changes.
    pub(crate) fn explain(&self, now: Instant, request: &Request) -> Explanation {
        let engine_now = now.after_nanos(self.skew_ns).max(self.now);
        let weighed = self.weigh(engine_now, request);
        let mut gate = (self.threshold, self.binding);
        let answer = match self.judge(now, engine_now, request, &weighed) {
            Judged::Runs(_) => Expected::Runs,
            Judged::Refused(reason, of) => {
                gate = of;
                Expected::Refused(reason)
            }
            Judged::Waits if request.max_wait.is_some_and(|wait| wait.is_zero()) => {
                Expected::Refused(Reason::Busy)
            }
            Judged::Waits if u64::from(request.bytes) > self.queue_bytes_max => {
                Expected::Refused(Reason::Evicted)
            }
            Judged::Waits if self.has_no_place_for(weighed.rank, request.bytes) => {
                Expected::Refused(Reason::Evicted)
            }
            Judged::Waits => Expected::Waits,
        };
        Explanation {
            answer,
            rank: weighed.rank,
            cost: weighed.cost,
            threshold: gate.0,
            binding: gate.1,
            bound_by: String::new(),
            free: self.limit.saturating_sub(self.in_use),
            waiting: self.queue.len(),
            mode: Mode::Enforce,
        }
    }

    /// Decides on an offer. `now` is the engine's time, `clock_now` the clock's.
    fn judge(
        &self,
        clock_now: Instant,
        now: Instant,
        request: &Request,
        weighed: &Weighed,
    ) -> Judged {
        let Weighed { rank, .. } = *weighed;
        let gate = (self.threshold, self.binding);
        if self.doors != Doors::Open {
            return Judged::Refused(Reason::Closed, gate);
        }
        if request.tag == Tag::Exempt {
            return Judged::Runs(AdmitKind::Exempt);
        }
        let rule = self.rule_of(request, now);
        if self.off || rule.is_some_and(|rule| rule.off) {
            return Judged::Runs(AdmitKind::Open);
        }
        if let Some(rule) = rule.filter(|rule| rank >= rule.cap) {
            return Judged::Refused(Reason::Capped, (rule.cap, Binding::Override));
        }
        if self
            .tenant(request)
            .is_some_and(|tenant| self.tenants.would_cap(tenant, self.limit))
        {
            return Judged::Refused(Reason::Capped, (Rank::OPEN, Binding::Tenant));
        }
        let deadline = request
            .deadline_at(clock_now)
            .map(|at| at.after_nanos(self.skew_ns));
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Judged::Refused(Reason::Hopeless, gate);
        }
        for throttle in self.throttles_of(now, request) {
            if !throttle.has_room(now, weighed.tier()) {
                let index = throttle.signal();
                return Judged::Refused(Reason::Capped, (Rank::OPEN, Binding::Signal { index }));
            }
        }
        let tier = weighed.tier().index();
        let waiting = self.queue.tier_len()[tier];
        if rank >= self.threshold
            && !self.idles()
            && !self.shares.guarantees(tier, waiting, self.limit)
        {
            return Judged::Refused(Reason::Shed, gate);
        }
        let cap = self.cap_now(now);
        if rank >= cap {
            return Judged::Refused(Reason::Shed, (cap, Binding::Override));
        }
        let free = self.limit.saturating_sub(self.in_use);
        if free > 0 && self.is_next(tier, free) {
            return Judged::Runs(AdmitKind::Slot);
        }
        Judged::Waits
    }

    /// Counts what an offer comes to, but for its verdict.
    fn account(&mut self, now: Instant, request: &Request, weighed: &Weighed, judged: &Judged) {
        let Weighed { rank, cost, .. } = *weighed;
        let (shed, refused) = match *judged {
            Judged::Runs(AdmitKind::Exempt | AdmitKind::Open) => return,
            Judged::Refused(Reason::Closed, _) => return,
            Judged::Refused(Reason::Shed, gate) => (Some(gate.1), None),
            Judged::Refused(reason, gate) => (None, Some((reason, gate.1))),
            _ => (None, None),
        };
        if let Some(tenant) = self.tenant(request) {
            let (placed, capacity) = (weighed.tier(), self.steering.capacity());
            let tiers = (weighed.claimed, placed);
            let counted = self.tenants.charge(now, tenant, tiers, cost, capacity);
            self.last.counted = counted;
            if refused == Some((Reason::Capped, Binding::Tenant)) {
                self.tenants.caps(tenant, self.limit);
            }
        }
        let by_throttle = matches!(refused, Some((Reason::Capped, Binding::Signal { .. })));
        if refused.is_none() || by_throttle {
            // What one of them refuses, none of the others is to pay for.
            for throttle in self.throttles_of(now, request) {
                throttle.count(cost, by_throttle);
                if !by_throttle {
                    throttle.pay(now, cost);
                }
            }
        }
        if refused.is_some() {
            return;
        }
        if shed.is_none() || self.steering.parts().offered {
            self.steering.offered(rank, cost);
        }
        if let Some(binding) = shed {
            let cause = cause(binding);
            if self.shed_cost.len() <= cause {
                self.shed_cost.resize(cause + 1, 0);
            }
            self.shed_cost[cause] += u64::from(cost);
        }
    }

    /// Queues an offer for which no slot is free, if it may wait and there is a place for it.
    fn wait(
        &mut self,
        clock_now: Instant,
        now: Instant,
        request: &Request,
        wait: Option<u32>,
    ) -> Offered {
        let Ticket {
            rank,
            cost,
            class,
            counted,
            ..
        } = self.last;
        let deadline = request
            .deadline_at(clock_now)
            .map(|at| at.after_nanos(self.skew_ns));
        let patience = request.max_wait.map(|wait| now.after(wait));
        let expires_at = match (deadline, patience) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b).unwrap_or(Instant::FAR_FUTURE),
        };
        let Some(token) = wait.filter(|_| expires_at > now) else {
            self.steering.lost_for_impatience(cost);
            return self.reject(request, rank, Reason::Busy);
        };
        if u64::from(request.bytes) > self.queue_bytes_max {
            // It fits no queue, however empty; nobody must leave for it.
            return self.reject(request, rank, Reason::Evicted);
        }
        self.enqueue(Entry {
            rank,
            cost,
            bytes: request.bytes,
            class,
            tenant: request.tenant,
            counted,
            key: request.key,
            attempt: request.attempt,
            salt: self.salt(request),
            token,
            enqueued_at: now,
            expires_at,
        })
    }

    /// Rank, cost and class of a request.
    fn weigh(&self, now: Instant, request: &Request) -> Weighed {
        let class = self.class_of(request);
        let model = &self.classes[usize::from(class)];
        let tenant = self.tenant(request);
        let of_tenant = tenant.and_then(|tenant| self.tenants.default_tier(tenant));
        let untagged_tier = of_tenant
            .or(model.default_tier)
            .unwrap_or(self.untagged_tier);
        let cost = request.cost.map_or(model.units, u32::from);
        let claimed = request.claimed_tier().unwrap_or(untagged_tier);
        let placed = match tenant {
            Some(tenant) if request.tag != Tag::Exempt => {
                let capacity = self.steering.capacity();
                self.tenants.place(now, tenant, claimed, capacity)
            }
            _ => claimed,
        };
        let request = request.at_best(placed);
        Weighed {
            rank: request.rank(self.hash, untagged_tier.max(placed), self.offered),
            cost,
            class,
            claimed,
        }
    }

    // ----- helpers

    /// The tenant of a request, where there are rules for tenants.
    fn tenant(&self, request: &Request) -> Option<Tenant> {
        request.tenant.filter(|_| self.tenants.is_on())
    }

    /// What throttles this request, while there is a control step to look after it.
    fn throttles_of(&self, now: Instant, request: &Request) -> impl Iterator<Item = &Throttle> {
        let dead = self.throttles.is_empty() || now.nanos_since(self.gate_set_at) > GATE_STALE_NS;
        let all = if dead { &[][..] } else { &self.throttles[..] };
        let concerns = move |throttle: &&Throttle| throttle.concerns(self.lane, request);
        all.iter().map(AsRef::as_ref).filter(concerns)
    }

    /// Whether nobody waits who comes before a newcomer of this tier for whom there is a slot. Without shares nobody
    /// waits while one is free; with them those do who may not have it.
    fn is_next(&self, tier: usize, free: u32) -> bool {
        if !self.shares.any() {
            return self.queue.is_empty();
        }
        let waiting = self.queue.tier_len();
        let wants = |of: usize| of == tier || waiting[of] > 0;
        let next = self.shares.next_tier(free, self.limit, wants);
        waiting[tier] == 0 && next == Some(tier)
    }

    fn class_of(&self, request: &Request) -> u16 {
        if usize::from(request.class.0) < self.classes.len() {
            request.class.0
        } else {
            0
        }
    }

    pub(super) fn open_stale_gate(&mut self, now: Instant) {
        if !self.threshold.is_open() && now.nanos_since(self.gate_set_at) > GATE_STALE_NS {
            self.threshold = Rank::OPEN;
            self.binding = Binding::Nothing;
            self.steering.release();
        }
    }

    /// Whether so many slots are free, and nobody waits, that there is nothing to refuse anybody for: the
    /// load has just gone, and the law will see it at the next tick. Only the lane's own backlog yields
    /// to its own idle slots; what another lane of the scope needs does not.
    pub(super) fn idles(&self) -> bool {
        let Slots { limit, in_use } = self.slots();
        self.steering.yields()
            && self.queue.is_empty()
            && limit.saturating_sub(in_use) > (limit / IDLE_SLOTS_SHARE).max(1)
            && self.binding == Binding::Backlog { lane: self.lane }
    }

    /// What an override says of the request's tenant at `now`, by the engine's time.
    fn rule_of(&self, request: &Request, now: Instant) -> Option<TenantRule> {
        if self.tenant_rules.is_empty() {
            return None;
        }
        let of_tenant = |rule: &&TenantRule| Some(rule.tenant) == request.tenant;
        let rule = self.tenant_rules.iter().find(of_tenant).copied();
        rule.filter(|rule| now < rule.ends_at)
    }
}
