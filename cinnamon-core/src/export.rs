//! The snapshot as metrics, through the `metrics` facade.
//!
//! Called by the control thread at most once a second, with no lock held. Handles are fetched each time, so a
//! recorder that is installed after the controller was built gets everything from then on. Every name, its unit
//! and its labels are in [`METRICS`].

mod table;

use metrics::{counter, describe_counter, describe_gauge, gauge};

use crate::codel::CodelState;
use crate::health::HealthState;
use crate::histogram::Histogram;
use crate::metrics::{LaneSnapshot, Snapshot};
use crate::priority::Tier;
use crate::signal::{Mode, SignalFault, SignalSnapshot, SignalState};
use crate::verdict::Binding;

use MetricKind::{Counter, Gauge};
pub use table::METRICS;

/// Whether a metric only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It counts since the controller was built.
    Counter,
    /// It says how things stand.
    Gauge,
}

/// One metric.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: MetricKind,
    /// Its unit in words.
    pub unit: &'static str,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub about: &'static str,
}

const MODES: [Mode; 3] = [Mode::Off, Mode::Monitor, Mode::Enforce];
const STATES: [(SignalState, &str); 6] = [
    (SignalState::Waiting, "waiting"),
    (SignalState::Calm, "calm"),
    (SignalState::Engaged, "engaged"),
    (SignalState::Fading, "fading"),
    (SignalState::Ignored, "ignored"),
    (SignalState::Off, "off"),
];
const FAULTS: [SignalFault; SignalFault::COUNT] = [
    SignalFault::Unavailable,
    SignalFault::OutOfRange,
    SignalFault::Stale,
    SignalFault::Slow,
    SignalFault::Panicked,
];
const CODEL: [(CodelState, &str); 3] = [
    (CodelState::Calm, "calm"),
    (CodelState::Above, "above"),
    (CodelState::Standing, "standing"),
];

/// Emits everything. `past` are the overrides that were emitted before: a recorder keeps what it was told last, so
/// it must be told that they are over.
pub(crate) fn emit(snapshot: &Snapshot, past: &mut Vec<(String, String)>) {
    describe();
    emit_overrides(snapshot, past);
    for mode in MODES {
        gauge!("cinnamon_mode", "mode" => mode.as_str()).set(flag(snapshot.mode == mode));
    }
    counter!("cinnamon_ticks_total").absolute(snapshot.ticks);
    counter!("cinnamon_ticks_late_total").absolute(snapshot.ticks_late);
    gauge!("cinnamon_failed").set(flag(snapshot.failed));
    gauge!("cinnamon_closed").set(flag(snapshot.closed));
    let health = &snapshot.health;
    for state in HealthState::ALL {
        let on = flag(health.state == state);
        gauge!("cinnamon_health", "state" => state.as_str()).set(on);
    }
    gauge!("cinnamon_headroom").set(health.headroom);
    gauge!("cinnamon_weight").set(f64::from(health.weight));
    gauge!("cinnamon_protected_refused").set(health.protected_refused);
    gauge!("cinnamon_demand").set(health.demand);
    for lane in &snapshot.lanes {
        emit_lane(lane, &snapshot.signals);
    }
    snapshot.signals.iter().for_each(emit_signal);
}

fn emit_overrides(snapshot: &Snapshot, past: &mut Vec<(String, String)>) {
    let left = |(target, action): &(String, String), left_s: f64| {
        let labels = [("target", target.clone()), ("action", action.clone())];
        gauge!("cinnamon_override_seconds", &labels).set(left_s);
    };
    let in_force = &snapshot.overrides;
    let labels = in_force
        .iter()
        .map(|of| (of.target.clone(), of.action.clone()));
    let labels: Vec<_> = labels.collect();
    let ended = past.iter().filter(|past| !labels.contains(past));
    ended.for_each(|ended| left(ended, 0.0));
    for (labels, of) in labels.iter().zip(in_force) {
        left(labels, of.left_s);
    }
    *past = labels;
    gauge!("cinnamon_overrides").set(in_force.len() as f64);
    gauge!("cinnamon_override_file_error").set(flag(snapshot.override_file_error.is_some()));
}

fn emit_lane(lane: &LaneSnapshot, signals: &[SignalSnapshot]) {
    let name = || lane.name.clone();
    let set = |metric: &'static str, value: f64| gauge!(metric, "lane" => name()).set(value);
    let labelled = |metric: &'static str, label: &'static str, of: &str, value: f64| {
        gauge!(metric, "lane" => name(), label => of.to_owned()).set(value);
    };
    for mode in MODES {
        let on = flag(lane.mode == mode);
        labelled("cinnamon_lane_mode", "mode", mode.as_str(), on);
    }
    counter!("cinnamon_offered_total", "lane" => name()).absolute(lane.offered);
    counter!("cinnamon_untagged_total", "lane" => name()).absolute(lane.untagged);
    for (tier, verdict, requests) in lane.verdicts.iter() {
        let tier = tier.to_string();
        counter!("cinnamon_verdicts_total", "lane" => name(), "tier" => tier, "verdict" => verdict)
            .absolute(requests);
    }
    set("cinnamon_limit", lane.limit.into());
    set("cinnamon_limit_min", lane.limit_min.into());
    set("cinnamon_limit_max", lane.limit_max.into());
    for (kind, requests) in [
        ("slot", lane.in_use),
        ("exempt", lane.exempt_in_use),
        ("open", lane.open_in_use + lane.failed_open_in_use),
    ] {
        labelled("cinnamon_in_use", "kind", kind, requests.into());
    }
    for (tier, requests) in Tier::ALL.into_iter().zip(lane.waiting_by_tier) {
        labelled(
            "cinnamon_waiting",
            "tier",
            &tier.to_string(),
            requests.into(),
        );
    }
    set("cinnamon_waiting_bytes", lane.waiting_bytes as f64);
    set("cinnamon_engaged", flag(lane.engaged));
    counter!("cinnamon_engaged_seconds_total", "lane" => name()).absolute(lane.engaged_s as u64);
    for work in &lane.shed {
        counter!("cinnamon_shed_cost_total", "lane" => name(), "cause" => work.by.clone())
            .absolute(work.cost);
    }
    set("cinnamon_threshold_levels", lane.threshold_levels);
    for histogram in [
        (
            &lane.waited,
            [
                "cinnamon_waited_seconds_bucket",
                "cinnamon_waited_seconds_count",
                "cinnamon_waited_seconds_sum",
            ],
        ),
        (
            &lane.served,
            [
                "cinnamon_served_seconds_bucket",
                "cinnamon_served_seconds_count",
                "cinnamon_served_seconds_sum",
            ],
        ),
    ] {
        emit_histogram(&lane.name, histogram.0, histogram.1);
    }
    let holds =
        |cause: &str, holds: bool| labelled("cinnamon_bound_by", "cause", cause, flag(holds));
    holds("override", lane.binding == Binding::Override);
    holds("nothing", lane.binding == Binding::Nothing);
    holds("backlog", matches!(lane.binding, Binding::Backlog { .. }));
    for (index, signal) in signals.iter().enumerate() {
        let binding = Binding::Signal { index: index as u8 };
        holds(&signal.name, lane.binding == binding);
    }
    set(
        "cinnamon_budget_cost_per_second",
        lane.budget_per_s.unwrap_or(f64::INFINITY),
    );
    set("cinnamon_capacity_cost_per_second", lane.capacity_per_s);
    set("cinnamon_offered_cost_per_second", lane.offered_per_s);
    set("cinnamon_wait_seconds", lane.wait_s);
    set("cinnamon_wait_target_seconds", lane.wait_target_s);
    set("cinnamon_error", lane.error);
    for (term, value) in [("p", lane.p), ("i", lane.i), ("d", lane.d)] {
        labelled("cinnamon_term", "term", term, value);
    }
    for (state, word) in CODEL {
        labelled(
            "cinnamon_codel_state",
            "state",
            word,
            flag(lane.codel == state),
        );
    }
    set("cinnamon_newest_first", flag(lane.newest_first));
    set("cinnamon_timeout_seconds", lane.timeout_s);
    for (of, seconds) in [
        ("mean", lane.service_mean_s),
        ("p50", lane.service_p50_s),
        ("p90", lane.service_p90_s),
    ] {
        labelled("cinnamon_service_seconds", "of", of, seconds);
    }
}

/// In the form that Prometheus expects of a histogram: each bucket counts all that are in it or below.
fn emit_histogram(lane: &str, histogram: &Histogram, [bucket, count, sum]: [&'static str; 3]) {
    let lane = || lane.to_owned();
    let mut below = 0;
    for (bound_s, requests) in histogram.buckets() {
        below += requests;
        let le = if bound_s.is_finite() {
            bound_s.to_string()
        } else {
            "+Inf".to_owned()
        };
        counter!(bucket, "lane" => lane(), "le" => le).absolute(below);
    }
    counter!(count, "lane" => lane()).absolute(below);
    gauge!(sum, "lane" => lane()).set(histogram.sum_s());
}

fn emit_signal(signal: &SignalSnapshot) {
    let name = || signal.name.clone();
    let set = |metric: &'static str, value: f64| gauge!(metric, "signal" => name()).set(value);
    for mode in MODES {
        let on = flag(signal.mode == mode);
        gauge!("cinnamon_signal_mode", "signal" => name(), "mode" => mode.as_str()).set(on);
    }
    for (state, word) in STATES {
        let on = flag(signal.state == state);
        gauge!("cinnamon_signal_state", "signal" => name(), "state" => word).set(on);
    }
    if let Some(pressure) = signal.pressure {
        set("cinnamon_signal_pressure", pressure);
    }
    set("cinnamon_signal_age_seconds", signal.age_s);
    let budget = signal.budget_per_s.unwrap_or(f64::INFINITY);
    set("cinnamon_signal_budget_cost_per_second", budget);
    set("cinnamon_signal_threshold_levels", signal.threshold_levels);
    set("cinnamon_signal_authority", signal.authority);
    set("cinnamon_signal_unresponsive", flag(signal.unresponsive));
    set("cinnamon_signal_binding", flag(signal.binding));
    set("cinnamon_signal_bound_seconds", signal.bound_s);
    counter!("cinnamon_signal_readings_total", "signal" => name()).absolute(signal.readings);
    for fault in FAULTS {
        let count = signal.faults[fault as usize];
        counter!("cinnamon_signal_faults_total", "signal" => name(), "fault" => fault.as_str())
            .absolute(count);
    }
}

fn describe() {
    for metric in METRICS {
        let about = format!("{} ({})", metric.about, metric.unit);
        match metric.kind {
            Counter => describe_counter!(metric.name, about),
            Gauge => describe_gauge!(metric.name, about),
        }
    }
}

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}
