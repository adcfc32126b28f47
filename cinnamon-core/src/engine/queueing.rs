//! An engine's queue: who gets in, who runs next, who has to go.

use super::Engine;
use crate::clock::Instant;
use crate::effects::Offered;
use crate::priority::{Rank, TIERS, Tier};
use crate::queue::Entry;
use crate::verdict::{AdmitKind, Reason, Verdict};

/// A waiting queue may be this many limits long (flat between 20 and 50) …
const QUEUE_LIMITS: u32 = 20;
/// … but at least this long: twice the queue at which contention is believed, or a small pool would
/// evict in calm weather …
const QUEUE_LEN_MIN: u32 = 160;
/// … and at least as long as what is served in this time.
const QUEUE_SECONDS: f64 = 0.1;
/// Upper bound on what is derived; a larger queue must be asked for.
const QUEUE_LEN_DERIVED_MAX: u32 = 65_536;
/// The sweep trims the backlog to this many targets …
const SWEEP_TARGETS: f64 = 2.0;
/// … and at engagement to this many: then the backlog is a heap of the past, not the scatter of the
/// present, and is to be back at its target within two ticks.
const SWEEP_TARGETS_FIRST: f64 = 0.8;

impl Engine {
    pub(super) fn enqueue(&mut self, entry: Entry) -> Offered {
        let (rank, token) = (entry.rank, entry.token);
        self.steering.entered();
        if entry.counted {
            self.tenants.change(entry.tenant, 0, 1);
        }
        let id = self.queue.push(entry);
        while self.queue.len() > self.queue_len_max() || self.queue.bytes() > self.queue_bytes_max {
            let tier = self.giving_tier().or_else(|| self.worst_tier());
            let Some(worst) = tier.and_then(|tier| self.queue.pop_victim(tier)) else {
                break;
            };
            self.steering.evicted();
            if worst.token == token {
                self.count(rank, Verdict::Refuse(Reason::Evicted));
                self.left(&worst);
                return Offered::Rejected(self.rejected(&worst, Reason::Evicted));
            }
            self.refuse(&worst, Reason::Evicted);
        }
        self.waiting_peak = self.waiting_peak.max(self.queue.len());
        Offered::Waiting(id)
    }

    /// Whether the queue is full of what is at least as good as such a newcomer, who then is the one to leave. Between
    /// tenants of one tier another may leave in his place: whoever has most in the queue.
    pub(super) fn has_no_place_for(&self, rank: Rank, bytes: u32) -> bool {
        let full = self.queue.len() >= self.queue_len_max()
            || self.queue.bytes().saturating_add(u64::from(bytes)) > self.queue_bytes_max;
        let tier = rank.priority().tier().index();
        let waiting = self.queue.tier_len();
        let gives = |of: usize, waiting: u32| !self.shares.shields(of, waiting, self.limit);
        let others_give = (tier + 1..TIERS).any(|of| waiting[of] > 0 && gives(of, waiting[of]));
        let worst = self.queue.worst_of(tier);
        full && !others_give
            && gives(tier, waiting[tier] + 1)
            && worst.is_none_or(|worst| worst.rank.priority() < rank.priority())
    }

    fn queue_len_max(&self) -> u32 {
        self.queue_len_max.unwrap_or_else(|| {
            let by_capacity = (QUEUE_SECONDS * self.completions_per_s()) as u32;
            let derived = self.limit.saturating_mul(QUEUE_LIMITS).max(by_capacity);
            derived.clamp(QUEUE_LEN_MIN, QUEUE_LEN_DERIVED_MAX)
        })
    }

    /// Fills free slots from the queue.
    pub(super) fn dispatch(&mut self, now: Instant) {
        if self.queue.is_empty() || self.in_use >= self.limit {
            return;
        }
        self.observe_sojourn(now);
        while self.in_use < self.limit {
            let Some(entry) = self.pop_next() else {
                return;
            };
            let waited = now.nanos_since(entry.enqueued_at);
            if entry.expires_at <= now || self.steering.timeout().ends(&entry, waited) {
                self.expire_entry(now, &entry);
                continue;
            }
            self.waited.record(waited);
            self.steering.started(entry.cost);
            self.grant(now, &entry, AdmitKind::Slot);
        }
    }

    /// Takes whose turn it is to have a free slot.
    fn pop_next(&mut self) -> Option<Entry> {
        let newest_first = self.steering.newest_first();
        if !self.shares.any() {
            return self.queue.pop_best(newest_first);
        }
        let free = self.limit - self.in_use;
        let waits = |tier: usize| self.queue.tier_len()[tier] > 0;
        let tier = self.shares.next_tier(free, self.limit, waits)?;
        self.queue.pop_of(tier, newest_first)
    }

    /// The worst tier with waiters beyond what its share shields.
    fn giving_tier(&self) -> Option<usize> {
        let waiting = self.queue.tier_len();
        let gives = |&tier: &usize| {
            waiting[tier] > 0 && !self.shares.shields(tier, waiting[tier], self.limit)
        };
        (0..TIERS).rev().find(gives)
    }

    fn worst_tier(&self) -> Option<usize> {
        let waiting = self.queue.tier_len();
        (0..TIERS).rev().find(|&tier| waiting[tier] > 0)
    }

    pub(super) fn observe_sojourn(&mut self, now: Instant) {
        let worst = self.queue.worst();
        let sojourn = worst.map(|entry| now.nanos_since(entry.enqueued_at));
        self.steering.observe_sojourn(now, sojourn);
    }

    pub(super) fn expire_until(&mut self, now: Instant) {
        if self.queue.is_empty() {
            return;
        }
        let mut expired = std::mem::take(&mut self.expired);
        self.queue.pop_due(now, &mut expired);
        let timeout = self.steering.timeout();
        expired.extend(std::iter::from_fn(|| self.queue.pop_overdue(now, timeout)));
        for entry in expired.drain(..) {
            self.expire_entry(now, &entry);
        }
        self.expired = expired;
    }

    fn expire_entry(&mut self, now: Instant, entry: &Entry) {
        if entry.expires_at <= now {
            self.steering.lost_for_impatience(entry.cost);
        }
        self.refuse(entry, Reason::Expired);
    }

    /// Evicts waiters whose whole level lies beyond the threshold, worst first, until the backlog is
    /// near its target. Without it the gate would pay for what the queue holds by refusing better
    /// work: t0+t1 at 2x on 10 rps rose from 0.947 to 0.991 of its offers.
    pub(super) fn sweep(&mut self) {
        let first = self.steering.just_engaged();
        let targets = if first {
            SWEEP_TARGETS_FIRST
        } else {
            SWEEP_TARGETS
        };
        let allowed = targets * self.steering.target_s() * self.steering.capacity();
        while self.queue.cost() as f64 > allowed {
            let beyond = |worst: &Entry| {
                let tier = worst.rank.priority().tier();
                whole_level(worst.rank) >= self.threshold || (first && tier >= Tier::T2)
            };
            let Some(tier) = self.giving_tier() else {
                return;
            };
            if !self.queue.worst_of(tier).is_some_and(beyond) {
                return;
            }
            if let Some(victim) = self.queue.pop_victim(tier) {
                self.refuse(&victim, Reason::Evicted);
            }
        }
    }

    /// Evicts whoever waits and would no longer be let in.
    pub(super) fn evict_beyond(&mut self, cap: Rank) {
        while let Some(worst) = self.queue.worst()
            && worst.rank >= cap
            && let Some(worst) = self.queue.pop_worst()
        {
            self.refuse(&worst, Reason::Evicted);
        }
    }
}

/// The first rank of the level that `rank` lies in.
const fn whole_level(rank: Rank) -> Rank {
    Rank::new(rank.priority(), 0)
}
