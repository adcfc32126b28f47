//! What the rest of the world sees and sets of an engine: figures out, settings in.

use super::tenants::Account;
use super::{ClassModel, Doors, Engine};
use crate::arrivals::Levels;
use crate::clock::Instant;
use crate::config::Config;
use crate::explain::LaneDecision;
use crate::metrics::{LaneSnapshot, ShedWork, TenantSnapshot, VerdictCounts};
use crate::overrides::TenantRule;
use crate::priority::Rank;
use crate::request::Tenant;
use crate::signal::LaneView;
use crate::signal::selector::LaneFlow;
use crate::sync::Arc;
use crate::throttle::Throttle;
use crate::verdict::{AdmitKind, Binding, Reason, Verdict};

impl Engine {
    /// These tenants have rules of their own, by their place in the settings.
    pub(crate) fn set_tenant_cards(&mut self, cards: &[(Tenant, u16)]) {
        self.tenants.set_cards(cards);
    }

    /// This tenant is gone; what it has here keeps its rule.
    pub(crate) fn drop_tenant_card(&mut self, tenant: Tenant) {
        self.tenants.drop_card(tenant);
    }

    /// Who is throttled from now on.
    pub(crate) fn set_throttles(&mut self, throttles: &[Arc<Throttle>]) {
        self.throttles.clear();
        self.throttles.extend_from_slice(throttles);
    }

    /// What each tenant claimed and what became of it, in no order; last, with no tenant, that of those of whom no
    /// account is kept.
    pub(crate) fn tenant_figures(&self, lane: &str) -> Vec<TenantSnapshot> {
        let snapshot = |tenant, account: Account| TenantSnapshot {
            lane: lane.to_owned(),
            tenant,
            name: None,
            running: account.running,
            waiting: account.waiting,
            offered: account.figures.offered,
            claimed_cost: account.figures.claimed,
            demoted_cost: account.figures.demoted,
            capped: account.figures.capped,
        };
        let accounts = self.tenants.accounts();
        let known = accounts.map(|(tenant, account)| snapshot(Some(tenant), *account));
        let past = Account::past(*self.tenants.past());
        let past = (past.figures.offered > 0).then(|| snapshot(None, past));
        known.chain(past).collect()
    }

    pub(crate) const fn verdicts(&self) -> &VerdictCounts {
        &self.verdicts
    }

    /// What the lane's own law makes of it, for the record of a tick.
    pub(crate) fn decision(&self) -> LaneDecision {
        self.steering.decision()
    }

    /// What signals need to know of the lane.
    pub(crate) fn flow(&self) -> LaneFlow {
        self.steering.flow()
    }

    /// Adds the offered cost per second of each priority.
    pub(crate) fn add_levels(&self, levels: &mut Levels) {
        self.steering.add_levels(levels);
    }

    pub(crate) fn show(&self, view: &mut LaneView) {
        view.limit = self.limit;
        view.in_use = self.in_use;
        view.waiting = self.queue.len();
        view.waiting_bytes = self.queue.bytes();
        view.offered = self.offered;
        view.retried = self.retries.retried;
        self.steering.show(view);
    }

    /// Takes over the settings that are other in `new` than in `old`; what was learned stays.
    pub(crate) fn reconfigure(&mut self, now: Instant, old: &Config, new: &Config) {
        let lane = usize::from(self.lane);
        let settings = &new.lanes[lane];
        self.cohort_seed = new.cohort_seed;
        self.untagged_tier = new.untagged_tier;
        self.peers = new.peers;
        self.queue_len_max = settings.queue_len_max;
        self.queue_bytes_max = settings.queue_bytes_max;
        for (i, class) in new.classes.iter().enumerate() {
            match (self.classes.get_mut(i), old.classes.get(i)) {
                (Some(model), Some(before)) if before.cost == class.cost => {
                    model.default_tier = class.default_tier;
                }
                (Some(model), _) => {
                    *model = ClassModel::new(class);
                    self.costs_changed = true;
                }
                (None, _) => {
                    self.classes.push(ClassModel::new(class));
                    self.costs_changed = true;
                }
            }
        }
        self.steering.reconfigure(new, lane);
        self.shares.reconfigure(settings);
        self.tenants.reconfigure(new, lane);
        let now = self.advance(now);
        self.reconfigure_limit(now, old, new);
        // Slots may be free now that were somebody's.
        self.dispatch(now);
    }

    /// Puts a fault into the law.
    #[cfg(feature = "test-util")]
    pub(crate) fn set_parts(&mut self, parts: crate::steering::Parts) {
        self.steering.set_parts(parts);
    }

    /// Takes the anti-windup out of the law.
    #[cfg(feature = "test-util")]
    pub(crate) fn let_wind_up(&mut self) {
        self.steering.let_wind_up();
    }

    /// How the lane stands, for the laboratory.
    #[cfg(feature = "test-util")]
    pub(crate) fn view(&self) -> crate::simulation::View {
        crate::simulation::View {
            limit: self.limit,
            limit_settled: self.settled_limit(),
            threshold: self.threshold.levels(),
            binding: match self.binding {
                Binding::Nothing => "nothing",
                Binding::Backlog { .. } => "backlog",
                Binding::Signal { .. } => "signal",
                Binding::Override => "override",
                // It holds no gate.
                Binding::Tenant => "tenant",
            },
            ..self.steering.view()
        }
    }

    pub(crate) fn snapshot(&self, name: &str) -> LaneSnapshot {
        let mut snapshot = LaneSnapshot {
            name: name.to_owned(),
            limit: self.limit,
            in_use: self.in_use,
            free: self.limit.saturating_sub(self.in_use),
            in_use_by_tier: std::array::from_fn(|tier| self.shares.in_use(tier)),
            exempt_in_use: self.exempt_in_use,
            open_in_use: self.open_in_use,
            waiting: self.queue.len(),
            waiting_by_tier: *self.queue.tier_len(),
            waiting_peak: self.waiting_peak,
            waiting_cost: self.queue.cost(),
            waiting_bytes: self.queue.bytes(),
            offered: self.offered,
            untagged: self.untagged,
            retried: self.retries.retried,
            retry_share: self.retries.share(),
            retry_denied: self.retries.denied,
            verdicts: self.verdicts.clone(),
            threshold: self.threshold.to_string(),
            threshold_levels: self.threshold.levels(),
            binding: self.binding,
            engaged_s: self.held_ns as f64 * 1e-9,
            shed: self.shed(),
            waited: self.waited.clone(),
            served: self.served.clone(),
            ..LaneSnapshot::default()
        };
        let slots = self.verdicts.total(Verdict::Admit(AdmitKind::Slot));
        snapshot
            .waited
            .record_zeros(slots.saturating_sub(self.waited.count()));
        self.steering.fill(&mut snapshot);
        self.fill_limit(&mut snapshot);
        snapshot
    }

    /// What was shed, by what held the gate.
    fn shed(&self) -> Vec<ShedWork> {
        let work = |(cause, &cost): (usize, &u64)| ShedWork {
            cause: match cause {
                0 => Binding::Backlog { lane: self.lane },
                1 => Binding::Override,
                _ => Binding::Signal {
                    index: (cause - 2) as u8,
                },
            },
            by: String::new(),
            cost,
        };
        let all = self.shed_cost.iter().enumerate().map(work);
        all.filter(|work| work.cost > 0).collect()
    }

    /// No rank from `cap` on passes until `ends_at`, by the clock; in force at once. Who waits and would not pass is
    /// evicted.
    pub(crate) fn set_cap(&mut self, now: Instant, cap: Rank, ends_at: Instant) {
        let now = self.advance(now);
        self.cap = cap;
        self.cap_ends = ends_at.after_nanos(self.skew_ns);
        self.open_stale_gate(now);
        if self.cap_now(now) < self.threshold {
            // To be seen before the next tick.
            if self.binding != Binding::Nothing {
                self.held_ns += now.nanos_since(self.gate_set_at);
            }
            (self.threshold, self.binding) = (cap, Binding::Override);
            self.gate_set_at = now;
        }
        self.evict_beyond(self.cap_now(now));
    }

    /// Takes over for which tenants something else holds than for all.
    pub(crate) fn set_tenant_rules(&mut self, rules: &[TenantRule]) {
        let in_engine_time = |rule: &TenantRule| TenantRule {
            ends_at: rule.ends_at.after_nanos(self.skew_ns),
            ..*rule
        };
        self.tenant_rules = rules.iter().map(in_engine_time).collect();
    }

    /// Off: everything is admitted without a decision, and nobody waits.
    pub(crate) fn set_off(&mut self, now: Instant, off: bool) {
        let now = self.advance(now);
        self.off = off;
        while self.off {
            let Some(entry) = self.queue.pop_best(false) else {
                return;
            };
            self.grant(now, &entry, AdmitKind::Open);
        }
    }

    /// Takes no more offers; whoever waits keeps the place.
    pub(crate) fn drain(&mut self, now: Instant) {
        self.advance(now);
        if self.doors == Doors::Open {
            self.doors = Doors::Draining;
        }
    }

    /// Takes no more offers and refuses whoever waits. Permits out stay valid.
    pub(crate) fn close(&mut self, now: Instant) {
        self.advance(now);
        self.doors = Doors::Closed;
        while let Some(entry) = self.queue.pop_best(false) {
            self.refuse(&entry, Reason::Closed);
        }
    }
}
