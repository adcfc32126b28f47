//! What an engine shows of its gate to those who have not come to its lock.

use super::{Doors, Engine, GATE_STALE_NS};
use crate::clock::Instant;
use crate::gate::{Gate, Published};
use crate::priority::{KeyHash, Rank, TIERS, Tier};
use crate::verdict::{Binding, Reason, Verdict};

use super::cause;

impl Engine {
    /// The gate as it may be judged by without the engine: shut off where more than the threshold counts.
    pub(crate) fn published(&self) -> Published {
        if self.threshold.is_open() {
            return Published::SHUT_OFF;
        }
        let more_counts = self.off
            || self.doors != Doors::Open
            // An override's cap ends by itself; while it is the gate, it is like any other.
            || (self.cap != Rank::OPEN && self.binding != Binding::Override)
            || !self.tenant_rules.is_empty()
            || self.tenants.is_on()
            || self.shares.any()
            || !self.throttles.is_empty()
            || !self.steering.takes_sums()
            || self.idles();
        if more_counts {
            return Published::SHUT_OFF;
        }
        Published::new(
            self.threshold,
            self.binding,
            self.retries.storms(),
            self.peers,
        )
    }

    /// The hash by which keys get their ranks now.
    pub(crate) const fn hash(&self) -> KeyHash {
        self.hash
    }

    /// Shows what requests cost that do not say so, if that has changed.
    pub(crate) fn publish_costs(&mut self, gate: &Gate) {
        if std::mem::take(&mut self.costs_changed) {
            for (class, model) in self.classes.iter().enumerate() {
                gate.set_class_cost(class, model.units);
            }
        }
    }

    /// Counts who was refused by the gate that was shown.
    pub(super) fn refused_at_gate(&mut self, by_tier: &[u64; TIERS], cost: u64) {
        for (tier, &requests) in Tier::ALL.into_iter().zip(by_tier) {
            self.verdicts
                .count_many(tier, Verdict::Refuse(Reason::Shed), requests);
        }
        if cost > 0 {
            let cause = cause(self.binding);
            if self.shed_cost.len() <= cause {
                self.shed_cost.resize(cause + 1, 0);
            }
            self.shed_cost[cause] += cost;
        }
    }

    /// Whether nobody has moved a gate that is not open for too long.
    pub(crate) fn gate_is_stale(&self, now: Instant) -> bool {
        let stands_ns = self.time_at(now).nanos_since(self.gate_set_at);
        !self.threshold.is_open() && stands_ns > GATE_STALE_NS
    }

    /// Opens a gate that nobody has moved for too long.
    pub(crate) fn look_after_gate(&mut self, now: Instant) {
        let now = self.advance(now);
        self.open_stale_gate(now);
    }
}
