//! What is shown of a controller, as plain data: [`ControllerView`], made of two scrapes of it.
//!
//! What a metric does not say is `None`, so that an older or a younger process can be looked at too. Requests and
//! cost per second are differences of counters.

mod between;

use std::collections::BTreeMap;

use cinnamon_core::{TIERS, Tier};
use serde::Serialize;

pub(super) use between::Between;

/// A threshold from here on admits everything.
pub(super) const OPEN_LEVELS: f64 = 768.0;

/// A controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ControllerView {
    /// Its name.
    pub name: String,
    /// The time that rates are of, seconds; `None` when there are none yet.
    pub rates_over_s: Option<f64>,
    /// The time that quantiles are of, seconds.
    pub times_over_s: Option<f64>,
    /// What decisions count for: enforce, monitor, off.
    pub mode: Option<String>,
    /// healthy, stressed, saturated.
    pub health: Option<String>,
    /// What is left of the scarcest capacity or target, 0 to 1.
    pub headroom: Option<f64>,
    /// For a load balancer, 0 to 100.
    pub weight: Option<f64>,
    /// Share of t0 and t1 refused.
    pub protected_refused: Option<f64>,
    /// Offered over capacity in the fullest lane.
    pub demand: Option<f64>,
    /// Control steps taken so far.
    pub ticks: Option<f64>,
    /// Control steps per second.
    pub ticks_per_s: Option<f64>,
    /// Control steps that came late so far.
    pub ticks_late: Option<f64>,
    /// Control steps that came late, per second.
    pub ticks_late_per_s: Option<f64>,
    /// Something panicked inside: it, or a lane of it, admits everything.
    pub failed: bool,
    /// It takes no more work.
    pub closed: bool,
    /// What an operator forces upon it for a time.
    pub overrides: Vec<OverrideView>,
    /// The override file is not understood.
    pub override_file_error: bool,
    /// Its lanes, by name.
    pub lanes: Vec<LaneView>,
    /// Its signals, by name.
    pub signals: Vec<SignalView>,
}

/// Something forced upon a controller for a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OverrideView {
    /// On what it bears.
    pub target: String,
    /// What it does.
    pub action: String,
    /// For how long yet, seconds.
    pub left_s: f64,
}

/// A lane.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LaneView {
    /// Its name.
    pub name: String,
    /// What its decisions count for.
    pub mode: Option<String>,
    /// Whether the backlog's law steers.
    pub engaged: bool,
    /// The first priority not admitted, such as t3.64, or open.
    pub threshold: Option<String>,
    /// The same on the scale 0 to 768.
    pub threshold_levels: Option<f64>,
    /// What holds it there: nothing, backlog, override, or a signal's name.
    pub bound_by: Option<String>,
    /// Slots.
    pub limit: Option<f64>,
    /// The least that the limit becomes by itself.
    pub limit_min: Option<f64>,
    /// The most that it becomes.
    pub limit_max: Option<f64>,
    /// Requests that run with a slot.
    pub in_use: Option<f64>,
    /// Requests that run and are exempt.
    pub exempt_in_use: Option<f64>,
    /// Requests that run because decisions do not count.
    pub open_in_use: Option<f64>,
    /// What waiting requests hold.
    pub waiting_bytes: Option<f64>,
    /// Requests offered per second.
    pub offered_per_s: Option<f64>,
    /// Requests admitted per second, however they run.
    pub admitted_per_s: Option<f64>,
    /// Requests offered per second that do not say how important they are.
    pub untagged_per_s: Option<f64>,
    /// Cost offered per second, as the law sees it.
    pub offered_cost_per_s: Option<f64>,
    /// Cost per second that can be served; 0 while unknown.
    pub capacity_cost_per_s: Option<f64>,
    /// The one over the other.
    pub demand: Option<f64>,
    /// Cost per second that the backlog's law lets in; `None` while it is open.
    pub budget_cost_per_s: Option<f64>,
    /// Cost per second that the gate refused, by what held it.
    pub shed_cost_per_s: BTreeMap<String, f64>,
    /// The backlog, seconds of work.
    pub wait_s: Option<f64>,
    /// Its target.
    pub wait_target_s: Option<f64>,
    /// How long those waited who got a slot.
    pub waited: Option<Times>,
    /// How long they held it.
    pub served: Option<Times>,
    /// calm, above, standing.
    pub codel: Option<String>,
    /// The newest of a tier is served first.
    pub newest_first: bool,
    /// The longest anybody may wait.
    pub timeout_s: Option<f64>,
    /// By tier, t0 first.
    pub tiers: Vec<TierView>,
}

/// A tier of a lane.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TierView {
    /// Its name.
    pub tier: String,
    /// Requests that wait.
    pub waiting: Option<f64>,
    /// Requests per second by verdict, those that occurred.
    pub verdicts_per_s: BTreeMap<String, f64>,
}

/// Quantiles, as bounds of the buckets that they lie in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// Half took at most so long, seconds; infinite beyond the last bound.
    pub p50_s: f64,
    /// 99 of 100 took at most so long, seconds.
    pub p99_s: f64,
    /// The last bound there is, seconds.
    pub bound_max_s: f64,
}

/// A signal.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SignalView {
    /// Its name.
    pub name: String,
    /// What its budget counts for.
    pub mode: Option<String>,
    /// waiting, calm, engaged, fading, ignored, off.
    pub state: Option<String>,
    /// Its last good pressure; 1.0 is at its target.
    pub pressure: Option<f64>,
    /// The age of that, seconds.
    pub age_s: Option<f64>,
    /// Cost per second that it allows its lanes; `None` while it has no grip.
    pub budget_cost_per_s: Option<f64>,
    /// The threshold that comes to.
    pub threshold: Option<String>,
    /// The share of the capacity that it may take.
    pub authority: Option<f64>,
    /// The load was cut and its pressure did not move.
    pub unresponsive: bool,
    /// It holds the gate of some lane.
    pub binding: bool,
    /// The faults that it had in the time that rates are of.
    pub faults: Vec<String>,
}

impl ControllerView {
    /// What there is to say of a controller now, given how it was. `long` reaches further back, for quantiles.
    pub(super) fn new(name: &str, between: &Between<'_>, long: &Between<'_>) -> Self {
        let now = between.now();
        let gauge = |metric| between.gauge(metric, &[]);
        let on = |metric| gauge(metric).is_some_and(|value| value > 0.0);
        let overrides = now.pairs("cinnamon_override_seconds", ["target", "action"]);
        let in_force = overrides.filter(|(_, _, left_s)| *left_s > 0.0);
        let lane = |name: &String| LaneView::new(name, between, long);
        let signal = |name: &String| SignalView::new(name, between);
        Self {
            name: name.to_owned(),
            rates_over_s: between.elapsed_s(),
            times_over_s: long.elapsed_s(),
            mode: now.state("cinnamon_mode", &[], "mode"),
            health: now.state("cinnamon_health", &[], "state"),
            headroom: gauge("cinnamon_headroom"),
            weight: gauge("cinnamon_weight"),
            protected_refused: gauge("cinnamon_protected_refused"),
            demand: gauge("cinnamon_demand"),
            ticks: gauge("cinnamon_ticks_total"),
            ticks_per_s: between.per_s("cinnamon_ticks_total", &[]),
            ticks_late: gauge("cinnamon_ticks_late_total"),
            ticks_late_per_s: between.per_s("cinnamon_ticks_late_total", &[]),
            failed: on("cinnamon_failed"),
            closed: on("cinnamon_closed"),
            overrides: in_force
                .map(|(target, action, left_s)| OverrideView {
                    target: target.to_owned(),
                    action: action.to_owned(),
                    left_s,
                })
                .collect(),
            override_file_error: on("cinnamon_override_file_error"),
            lanes: now
                .names("cinnamon_limit", "lane")
                .iter()
                .map(lane)
                .collect(),
            signals: now
                .names("cinnamon_signal_mode", "signal")
                .iter()
                .map(signal)
                .collect(),
        }
    }
}

impl LaneView {
    fn new(name: &str, between: &Between<'_>, long: &Between<'_>) -> Self {
        let now = between.now();
        let lane = [("lane", name)];
        let gauge = |metric| between.gauge(metric, &lane);
        let on = |metric| gauge(metric).is_some_and(|value| value > 0.0);
        let in_use = |kind| between.gauge("cinnamon_in_use", &[lane[0], ("kind", kind)]);
        let tiers = tiers(&lane, between);
        let admitted = tiers.iter().map(TierView::admitted_per_s).sum();
        let offered_cost_per_s = gauge("cinnamon_offered_cost_per_second");
        let capacity_cost_per_s = gauge("cinnamon_capacity_cost_per_second");
        let shed = now.by("cinnamon_shed_cost_total", &lane, "cause");
        let shed = shed.filter_map(|(cause, _)| {
            let labels = [lane[0], ("cause", cause)];
            let per_s = between.per_s("cinnamon_shed_cost_total", &labels)?;
            (per_s > 0.0).then(|| (cause.to_owned(), per_s))
        });
        Self {
            name: name.to_owned(),
            mode: now.state("cinnamon_lane_mode", &lane, "mode"),
            engaged: on("cinnamon_engaged"),
            threshold: gauge("cinnamon_threshold_levels").map(threshold),
            threshold_levels: gauge("cinnamon_threshold_levels"),
            bound_by: now.state("cinnamon_bound_by", &lane, "cause"),
            limit: gauge("cinnamon_limit"),
            limit_min: gauge("cinnamon_limit_min"),
            limit_max: gauge("cinnamon_limit_max"),
            in_use: in_use("slot"),
            exempt_in_use: in_use("exempt"),
            open_in_use: in_use("open"),
            waiting_bytes: gauge("cinnamon_waiting_bytes"),
            offered_per_s: between.per_s("cinnamon_offered_total", &lane),
            admitted_per_s: between.elapsed_s().map(|_| admitted),
            untagged_per_s: between.per_s("cinnamon_untagged_total", &lane),
            offered_cost_per_s,
            capacity_cost_per_s,
            demand: offered_cost_per_s
                .zip(capacity_cost_per_s.filter(|capacity| *capacity > 0.0))
                .map(|(offered, capacity)| offered / capacity),
            budget_cost_per_s: gauge("cinnamon_budget_cost_per_second"),
            shed_cost_per_s: shed.collect(),
            wait_s: gauge("cinnamon_wait_seconds"),
            wait_target_s: gauge("cinnamon_wait_target_seconds"),
            waited: long.times("cinnamon_waited_seconds_bucket", &lane),
            served: long.times("cinnamon_served_seconds_bucket", &lane),
            codel: now.state("cinnamon_codel_state", &lane, "state"),
            newest_first: on("cinnamon_newest_first"),
            timeout_s: gauge("cinnamon_timeout_seconds"),
            tiers,
        }
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> Option<f64> {
        let mut waiting = self.tiers.iter().filter_map(|tier| tier.waiting).peekable();
        waiting.peek()?;
        Some(waiting.sum())
    }
}

fn tiers(lane: &[(&str, &str); 1], between: &Between<'_>) -> Vec<TierView> {
    let tier = |tier: Tier| {
        let tier = tier.to_string();
        let labels = [lane[0], ("tier", &*tier)];
        let all = between
            .now()
            .by("cinnamon_verdicts_total", &labels, "verdict");
        let verdicts = all.filter_map(|(verdict, _)| {
            let labels = [labels[0], labels[1], ("verdict", verdict)];
            let per_s = between.per_s("cinnamon_verdicts_total", &labels)?;
            Some((verdict.to_owned(), per_s))
        });
        TierView {
            waiting: between.gauge("cinnamon_waiting", &labels),
            verdicts_per_s: verdicts.collect(),
            tier,
        }
    };
    let tiers: [TierView; TIERS] = Tier::ALL.map(tier);
    tiers.into()
}

impl TierView {
    /// Requests of this tier admitted per second, however they run.
    #[must_use]
    pub fn admitted_per_s(&self) -> f64 {
        let admitted =
            |(verdict, per_s): (&String, &f64)| verdict.starts_with("admit").then_some(*per_s);
        self.verdicts_per_s.iter().filter_map(admitted).sum()
    }
}

impl SignalView {
    fn new(name: &str, between: &Between<'_>) -> Self {
        let now = between.now();
        let signal = [("signal", name)];
        let gauge = |metric| between.gauge(metric, &signal);
        let on = |metric| gauge(metric).is_some_and(|value| value > 0.0);
        let faults = now.by("cinnamon_signal_faults_total", &signal, "fault");
        let had = |fault: &str| {
            let labels = [signal[0], ("fault", fault)];
            between.per_s("cinnamon_signal_faults_total", &labels) > Some(0.0)
        };
        let faults = faults.filter(|(fault, _)| had(fault));
        Self {
            name: name.to_owned(),
            mode: now.state("cinnamon_signal_mode", &signal, "mode"),
            state: now.state("cinnamon_signal_state", &signal, "state"),
            pressure: gauge("cinnamon_signal_pressure"),
            age_s: gauge("cinnamon_signal_age_seconds"),
            budget_cost_per_s: gauge("cinnamon_signal_budget_cost_per_second"),
            threshold: gauge("cinnamon_signal_threshold_levels").map(threshold),
            authority: gauge("cinnamon_signal_authority"),
            unresponsive: on("cinnamon_signal_unresponsive"),
            binding: on("cinnamon_signal_binding"),
            faults: faults.map(|(fault, _)| fault.to_owned()).collect(),
        }
    }
}

/// As the core writes it, without the fraction.
fn threshold(levels: f64) -> String {
    if levels >= OPEN_LEVELS {
        return "open".to_owned();
    }
    let level = levels.max(0.0) as u32;
    let cohorts = OPEN_LEVELS as u32 / TIERS as u32;
    format!("t{}.{}", level / cohorts, level % cohorts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_written_as_the_core_writes_them() {
        for (levels, text) in [
            (0.0, "t0.0"),
            (448.9, "t3.64"),
            (767.99, "t5.127"),
            (768.0, "open"),
            (-1.0, "t0.0"),
        ] {
            assert_eq!(threshold(levels), text);
        }
    }
}
