//! What a lane has learned, and the threshold it needs: measurements between ticks in, one threshold
//! a tick out.

use crate::arrivals::{Arrivals, Levels};
use crate::budget::{BudgetLaw, Observed, Step};
use crate::capacity::Capacity;
use crate::clock::Instant;
use crate::codel::{Codel, Regime};
use crate::config::{Config, Law};
use crate::distress::Distress;
use crate::explain::LaneDecision;
use crate::flow::{Flow, FlowLaw};
use crate::metrics::LaneSnapshot;
use crate::permit::Outcome;
use crate::priority::{COHORTS, Rank, TIERS, Tier};
use crate::queue::Timeout;
use crate::rate::Window;
use crate::service::{ServiceSummary, ServiceTimes};
use crate::shards::Ended;
use crate::signal::LaneView;
use crate::signal::selector::LaneFlow;

/// Ticks closer together than this see nothing and would take noise for news.
const DT_MIN_S: f64 = 1e-3;
/// What would wait if callers had the patience is remembered up to this many backlog targets: enough
/// to engage, not so much that it outlives the contention.
const UNWILLING_TARGETS_MAX: f64 = 20.0;
/// Memory of the rate at which work begins to run: what signals cut from.
const ADMITTED_MEMORY_S: f64 = 0.5;

/// Parts of the law that the laboratory takes out, one at a time, to see that its bars notice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    /// The boundary level is cut inside.
    pub(crate) fraction: bool,
    /// The distribution is learned from everything offered.
    pub(crate) offered: bool,
    /// The queue is swept.
    pub(crate) sweep: bool,
}

impl Parts {
    pub(crate) const ALL: Self = Self {
        fraction: true,
        offered: true,
        sweep: true,
    };
}

/// Before t0, or t1, is cut into, so many ticks must agree that it is needed, and so many windows of
/// arrivals. A burst within a tick looks like fifty times the capacity for a tick or two; on a quiet service
/// one window of arrivals is a guess. The queue covers the gap.
const CAUTION: [(Tier, u32, u32); 2] = [(Tier::T0, 20, 10), (Tier::T1, 5, 3)];

/// Keeps the threshold off the most important tiers until enough has been seen that asks for them.
#[derive(Debug, Default)]
struct Caution {
    /// For so many ticks, and windows, running the threshold has been wanted below the end of each tier
    /// of [`CAUTION`].
    agreed: [(u32, u32); CAUTION.len()],
}

impl Caution {
    /// `wanted`, or as much of it as has been agreed on; `news` when there was a window in this tick.
    fn temper(&mut self, wanted: Rank, news: bool) -> Rank {
        let mut threshold = wanted;
        for ((tier, least_ticks, least_windows), agreed) in CAUTION.iter().zip(&mut self.agreed) {
            let end = Rank::threshold((tier.index() + 1) * COHORTS, 0.0);
            if wanted >= end {
                *agreed = (0, 0);
                continue;
            }
            agreed.0 = agreed.0.saturating_add(1);
            agreed.1 = agreed.1.saturating_add(u32::from(news));
            if agreed.0 < *least_ticks || agreed.1 < *least_windows {
                threshold = threshold.max(end);
            }
        }
        threshold
    }
}

#[derive(Debug)]
pub(crate) struct Steering {
    law: Law,
    parts: Parts,
    just_engaged: bool,
    caution: Caution,
    arrivals: Arrivals,
    capacity: Capacity,
    service: ServiceTimes,
    summary: ServiceSummary,
    distress: Distress,
    /// Cost per second that begins to run.
    admitted: f64,
    codel: Codel,
    budget: BudgetLaw,
    flow: FlowLaw,
    /// The threshold of the last tick.
    threshold: Rank,
    /// The gate was then set below it.
    held_below: bool,
    /// Cost refused since because its callers would not wait, less what idle slots could have done
    /// of it: the backlog that a lane without patience hides.
    unwilling_cost: f64,
    /// How long nothing has come back although all slots were taken, seconds.
    quiet_s: f64,
    /// For longer than this, and the store stands still, seconds.
    stall_s: f64,
    since: SinceTick,
}

/// What happened since the last tick.
#[derive(Debug, Default)]
struct SinceTick {
    seconds: f64,
    /// Queued cost times seconds.
    backlog_cost_s: f64,
    idle_slot_s: f64,
    used_slot_s: f64,
    /// Seconds without a free slot.
    busy_s: f64,
    /// Seconds of these in which the store stood still.
    stalled_s: f64,
    completed: Window,
    started_cost: f64,
    entered: u32,
    left: u32,
    evicted: bool,
    lost_cost: f64,
}

/// Slots at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    pub(crate) limit: u32,
    pub(crate) in_use: u32,
}

impl Slots {
    fn free(self) -> u32 {
        self.limit.saturating_sub(self.in_use)
    }
}

impl Steering {
    pub(crate) fn new(config: &Config, lane: usize) -> Self {
        let lane = &config.lanes[lane];
        Self {
            law: config.law,
            parts: Parts::ALL,
            just_engaged: false,
            caution: Caution::default(),
            arrivals: Arrivals::new(),
            capacity: Capacity::new(),
            service: ServiceTimes::new(),
            summary: ServiceSummary::default(),
            distress: Distress::default(),
            admitted: 0.0,
            codel: Codel::new(lane.order, lane.codel_target_us, lane.codel_interval_us),
            budget: BudgetLaw::new(config.kp, config.ki_per_s, config.kd_s),
            flow: FlowLaw::new(),
            threshold: Rank::OPEN,
            held_below: false,
            unwilling_cost: 0.0,
            quiet_s: 0.0,
            stall_s: f64::INFINITY,
            since: SinceTick::default(),
        }
    }

    /// What the law is made of; all of it, unless the laboratory says otherwise.
    #[cfg(feature = "test-util")]
    pub(crate) fn set_parts(&mut self, parts: Parts) {
        self.parts = parts;
    }

    /// Takes the anti-windup out of the law.
    #[cfg(feature = "test-util")]
    pub(crate) fn let_wind_up(&mut self) {
        self.budget.let_wind_up();
    }

    pub(crate) const fn parts(&self) -> Parts {
        self.parts
    }

    // ----- what happens

    /// `dt_s` seconds passed with this much cost queued and these slots taken. Returns for how many of them the
    /// store stood still.
    pub(crate) fn passed(&mut self, dt_s: f64, queued_cost: u64, slots: Slots) -> f64 {
        let since = &mut self.since;
        since.seconds += dt_s;
        since.backlog_cost_s += queued_cost as f64 * dt_s;
        since.idle_slot_s += f64::from(slots.free()) * dt_s;
        since.used_slot_s += f64::from(slots.in_use) * dt_s;
        if slots.free() > 0 {
            self.quiet_s = 0.0;
            return 0.0;
        }
        since.busy_s += dt_s;
        self.quiet_s += dt_s;
        let stalled_s = (self.quiet_s - self.stall_s).clamp(0.0, dt_s);
        since.stalled_s += stalled_s;
        stalled_s
    }

    /// A request was offered, whatever becomes of it.
    pub(crate) fn offered(&mut self, rank: Rank, cost: u32) {
        self.arrivals.offer(rank, cost);
        if self.law == Law::Flow {
            self.flow.offer(rank);
        }
    }

    /// Requests were offered that did not come to the engine: the cost of each level, …
    pub(crate) fn offered_at(&mut self, level: usize, cost: u64) {
        self.arrivals.offer_level(level, cost as f64);
    }

    /// … and all of them together.
    pub(crate) fn offered_many(&mut self, by_tier: &[u64; TIERS], cost: u64, squares: u64) {
        self.arrivals
            .offer_many(by_tier, cost as f64, squares as f64);
    }

    /// Whether the law learns from sums of what was offered.
    pub(crate) fn takes_sums(&self) -> bool {
        self.law == Law::Budget && self.parts.offered
    }

    /// A request passed the gate and found a slot or a place.
    pub(crate) fn entered(&mut self) {
        self.since.entered += 1;
    }

    /// A request of this cost began to run.
    pub(crate) fn started(&mut self, cost: u32) {
        self.since.left += 1;
        self.since.started_cost += f64::from(cost);
    }

    /// So many began to run without having been asked about, and cost so much together.
    pub(crate) fn started_many(&mut self, requests: u64, cost: u64) {
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        let since = &mut self.since;
        since.entered = since.entered.saturating_add(requests);
        since.left = since.left.saturating_add(requests);
        since.started_cost += cost as f64;
    }

    /// Slots came back without the engine from work that ended so.
    pub(crate) fn ended_many(&mut self, outcome: Option<Outcome>, ended: &Ended) {
        self.since.completed.add(&Window {
            seconds: 0.0,
            events: ended.requests as f64,
            cost: ended.cost as f64,
            cost_squared: ended.cost_squares as f64,
        });
        self.distress.finished(outcome, ended.requests);
    }

    /// A slot came back that was given for this estimated cost. The estimate and not what the work
    /// really cost: the offered side counts estimates, and a budget in other units than the load
    /// sheds by the ratio of the two.
    pub(crate) fn completed(&mut self, cost: u32) {
        self.since.completed.count(cost);
        self.quiet_s = 0.0;
    }

    /// Such work ended so.
    pub(crate) fn ended(&mut self, outcome: Option<Outcome>) {
        self.distress.finished(outcome, 1);
    }

    /// It held its slot for so long, which may be evidence of the service time; so did others for whom it stands.
    pub(crate) fn held(&mut self, nanos: u64, outcome: Option<Outcome>, stands_for: u64) {
        if outcome.is_some_and(Outcome::teaches) {
            self.service.record(nanos, stands_for);
        } else {
            self.service.record_untaught(nanos, stands_for);
        }
    }

    /// The queue was full and somebody had to go.
    pub(crate) fn evicted(&mut self) {
        self.since.evicted = true;
    }

    /// Somebody left or was refused for want of patience, not of room.
    pub(crate) fn lost_for_impatience(&mut self, cost: u32) {
        self.since.lost_cost += f64::from(cost);
    }

    /// The oldest of the lowest occupied priority has waited so long; `None` when nobody waits.
    pub(crate) fn observe_sojourn(&mut self, now: Instant, sojourn_ns: Option<u64>) {
        self.codel.observe(now, sojourn_ns);
    }

    // ----- what follows

    /// One control step; returns the threshold this lane needs.
    pub(crate) fn tick(&mut self, slots: Slots) -> Rank {
        if self.since.seconds < DT_MIN_S {
            // The first sweep is for the tick that engaged, not for one that a waiter kicked off after it.
            self.just_engaged = false;
            return self.threshold;
        }
        let mut since = std::mem::take(&mut self.since);
        let dt_s = since.seconds;
        since.completed.seconds = dt_s - since.stalled_s;
        since.busy_s -= since.stalled_s;
        self.summary = self.service.roll(dt_s);
        self.stall_s = self.capacity.stall_s(self.summary.mean_s);
        let promised = f64::from(slots.limit) * self.capacity.mean_cost() / self.summary.mean_s;
        let scatter = self.summary.scatter;
        let busy_s = since.busy_s;
        if self
            .capacity
            .tick(&since.completed, busy_s, promised, scatter)
        {
            self.budget.forget_trim();
        }
        let news = self.arrivals.tick(dt_s);
        let admitted = since.started_cost / dt_s;
        self.admitted += (1.0 - (-dt_s / ADMITTED_MEMORY_S).exp()) * (admitted - self.admitted);

        let idle_share =
            since.idle_slot_s / (since.idle_slot_s + since.used_slot_s).max(f64::MIN_POSITIVE);
        let capacity = self.capacity.rate();
        let undone = self.unwilling_cost + since.lost_cost - idle_share * capacity * dt_s;
        let most = UNWILLING_TARGETS_MAX * self.budget.target_s() * capacity;
        self.unwilling_cost = undone.min(most).max(0.0);

        let seen = Observed {
            dt_s,
            backlog_cost: since.backlog_cost_s / dt_s + self.unwilling_cost,
            idle_share,
            evicted: since.evicted,
            service_s: self.summary.mean_s,
            capacity,
            mean_cost: self.capacity.mean_cost(),
            grain: self.arrivals.grain(),
            stalled: self.quiet_s > self.stall_s,
            held_below: self.held_below,
            offered: self.arrivals.bounds(),
            steady_s: self.arrivals.steady_s(),
        };
        self.threshold = match self.law {
            Law::Flow => {
                self.budget.measure(&seen);
                let flow = Flow {
                    entered: since.entered,
                    left: since.left,
                    free: slots.free(),
                    limit: slots.limit,
                };
                self.flow.tick(&flow, dt_s)
            }
            Law::Budget => {
                let step = self.budget.step(&seen);
                self.just_engaged = step == Step::Engaged && seen.offered.1 > capacity;
                if step == Step::Engaged {
                    self.capacity.relearn();
                }
                let mut threshold = self.arrivals.threshold(self.budget.budget());
                threshold = self.caution.temper(threshold, news);
                if !self.parts.fraction && !threshold.is_open() {
                    threshold = Rank::new(threshold.priority(), 0);
                }
                self.budget.threshold_set(threshold.is_open(), dt_s);
                threshold
            }
        };
        let waits = self.budget.figures().wait_s > self.budget.target_s();
        self.distress.tick(dt_s, self.summary.mean_s, waits);
        self.retune(dt_s);
        self.threshold
    }

    /// What signals need to know of the lane.
    pub(crate) fn flow(&self) -> LaneFlow {
        LaneFlow {
            admitted: self.admitted,
            offered: self.arrivals.rate(),
            capacity: self.capacity.rate(),
            shown: self.distress.shows(),
        }
    }

    pub(crate) fn decision(&self) -> LaneDecision {
        let budget = self.budget.budget();
        LaneDecision {
            own_threshold_levels: self.threshold.levels(),
            budget_per_s: budget.is_finite().then_some(budget),
            offered_per_s: self.arrivals.rate(),
            admitted_per_s: self.admitted,
            capacity_per_s: self.capacity.rate(),
            wait_s: self.budget.figures().wait_s,
            wait_target_s: self.budget.target_s(),
            ..LaneDecision::default()
        }
    }

    /// Adds the offered cost per second of each priority.
    pub(crate) fn add_levels(&self, levels: &mut Levels) {
        self.arrivals.add_to(levels);
    }

    pub(crate) fn show(&self, view: &mut LaneView) {
        view.finished = self.distress.counts();
        view.offered_per_s = self.arrivals.rate();
        view.admitted_per_s = self.admitted;
        view.capacity_per_s = self.capacity.rate();
        view.wait_s = self.budget.figures().wait_s;
        view.service_mean_s = self.summary.mean_s;
    }

    /// Takes over settings that can change while it runs; what was learned stays.
    pub(crate) fn reconfigure(&mut self, config: &Config, lane: usize) {
        let lane = &config.lanes[lane];
        if self.law != config.law {
            self.law = config.law;
            self.budget.release();
            self.flow = FlowLaw::new();
            self.threshold = Rank::OPEN;
        }
        self.budget
            .set_gains(config.kp, config.ki_per_s, config.kd_s);
        self.codel
            .configure(lane.order, lane.codel_target_us, lane.codel_interval_us);
    }

    /// Where the gate was set after the last tick, which may be lower than this lane needs.
    pub(crate) fn gate_set(&mut self, threshold: Rank) {
        self.held_below = threshold < self.threshold;
    }

    /// Back to calm, for want of anybody who moves the gate.
    pub(crate) fn release(&mut self) {
        self.budget.release();
        self.unwilling_cost = 0.0;
        self.threshold = Rank::OPEN;
        self.retune(0.0);
    }

    /// Whether the gate yields to idle slots. The reference law is left as it was published.
    pub(crate) fn yields(&self) -> bool {
        // Where callers will not wait, slots are free now and then although too much is asked for.
        let unwilling = self.unwilling_cost > 0.0 || self.since.lost_cost > 0.0;
        self.law == Law::Budget && !unwilling
    }

    /// Whether the last tick engaged the gate on a load that need not fit.
    pub(crate) const fn just_engaged(&self) -> bool {
        self.just_engaged
    }

    pub(crate) const fn engaged(&self) -> bool {
        self.budget.engaged()
    }

    /// Whether nothing has happened since the last tick and nothing is held back.
    pub(crate) fn is_idle(&self) -> bool {
        let since = &self.since;
        since.entered == 0
            && since.completed.events == 0.0
            && since.lost_cost == 0.0
            && self.threshold.is_open()
            && !self.engaged()
    }

    /// The longest anybody may wait now.
    pub(crate) const fn timeout(&self) -> Timeout {
        self.codel.timeout()
    }

    /// What is known of the service time.
    pub(crate) const fn service(&self) -> &ServiceSummary {
        &self.summary
    }

    pub(crate) fn newest_first(&self) -> bool {
        self.codel.newest_first()
    }

    /// Cost per second the lane can serve; 0 while unknown.
    pub(crate) const fn capacity(&self) -> f64 {
        self.capacity.rate()
    }

    /// Completions per second the lane is good for; 0 while unknown.
    pub(crate) fn completions_per_s(&self) -> f64 {
        self.capacity.rate() / self.capacity.mean_cost()
    }

    /// The law's target for the backlog, seconds of work.
    pub(crate) const fn target_s(&self) -> f64 {
        self.budget.target_s()
    }

    pub(crate) fn fill(&self, snapshot: &mut LaneSnapshot) {
        let law = self.budget.figures();
        snapshot.engaged = self.engaged();
        snapshot.budget_per_s = self
            .budget
            .budget()
            .is_finite()
            .then_some(self.budget.budget());
        snapshot.capacity_per_s = self.capacity.rate();
        snapshot.offered_per_s = self.arrivals.rate();
        snapshot.wait_s = law.wait_s;
        snapshot.wait_target_s = law.target_s;
        snapshot.error = match self.law {
            Law::Budget => law.error,
            Law::Flow => self.flow.error,
        };
        snapshot.p = law.terms.p;
        snapshot.i = law.terms.i;
        snapshot.d = law.terms.d;
        snapshot.codel = self.codel.state();
        snapshot.newest_first = self.codel.newest_first();
        snapshot.timeout_s = self.codel.timeout().nanos as f64 * 1e-9;
        snapshot.service_mean_s = self.summary.mean_s;
        snapshot.service_p50_s = self.summary.p50_s;
        snapshot.service_p90_s = self.summary.p90_s;
    }

    /// The law's state as the laboratory draws it.
    #[cfg(feature = "test-util")]
    pub(crate) fn view(&self) -> crate::simulation::View {
        let figures = self.budget.figures();
        crate::simulation::View {
            limit: 0,
            limit_settled: 0,
            threshold: self.threshold.levels(),
            engaged: self.engaged() || !self.threshold.is_open(),
            wait_s: figures.wait_s,
            wait_target_s: figures.target_s,
            saturated: figures.saturated,
            codel: self.codel.state(),
            newest_first: self.codel.newest_first(),
            binding: "nothing",
            signal: None,
            throttled: 0,
        }
    }

    fn retune(&mut self, tick_s: f64) {
        self.codel.retune(&Regime {
            engaged: self.budget.engaged(),
            service_s: self.summary.mean_s,
            service_p90_s: self.summary.p90_s,
            target_wait_s: self.budget.target_s(),
            tick_s,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_tiers_are_cut_into_only_after_some_ticks_and_some_windows_agree() {
        let wanted = Rank::threshold(200, 0.5);
        let end_of_t1 = Rank::threshold(2 * COHORTS, 0.0);
        let mut caution = Caution::default();
        for tick in 1..=4 {
            assert_eq!(caution.temper(wanted, true), end_of_t1, "tick {tick}");
        }
        assert_eq!(caution.temper(wanted, true), wanted, "the fifth");
        assert_eq!(caution.temper(Rank::OPEN, true), Rank::OPEN);
        for _ in 0..100 {
            assert_eq!(
                caution.temper(wanted, false),
                end_of_t1,
                "no news, no agreement"
            );
        }
        let mut caution = Caution::default();
        let nothing = Rank::threshold(0, 0.0);
        let end_of_t0 = Rank::threshold(COHORTS, 0.0);
        let seen: Vec<Rank> = (0..20).map(|_| caution.temper(nothing, true)).collect();
        assert_eq!(
            (seen[3], seen[4], seen[18], seen[19]),
            (end_of_t1, end_of_t0, end_of_t0, nothing)
        );
        let t3 = Rank::threshold(3 * COHORTS, 0.5);
        assert_eq!(
            Caution::default().temper(t3, true),
            t3,
            "lower tiers at once"
        );
    }
}
