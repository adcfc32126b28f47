//! The snapshot as metrics, through the `metrics` facade.
//!
//! Called by the control thread at most once a second, with no lock held. Handles are fetched each time, so a
//! recorder that is installed after the controller was built gets everything from then on. Every name, its unit
//! and its labels are in [`METRICS`].

use metrics::{counter, describe_counter, describe_gauge, gauge};

use crate::codel::CodelState;
use crate::health::HealthState;
use crate::histogram::Histogram;
use crate::metrics::{LaneSnapshot, Snapshot};
use crate::priority::Tier;
use crate::signal::{Mode, SignalFault, SignalSnapshot, SignalState};
use crate::verdict::Binding;

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

const LANE: &[&str] = &["lane"];
const SIGNAL: &[&str] = &["signal"];

const fn of(
    name: &'static str,
    kind: MetricKind,
    unit: &'static str,
    labels: &'static [&'static str],
    about: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        unit,
        labels,
        about,
    }
}

use MetricKind::{Counter, Gauge};

/// Every metric there is. Labels have few values: lanes, tiers, verdicts, signals, states.
pub const METRICS: &[Metric] = &[
    of(
        "cinnamon_mode",
        Gauge,
        "1 or 0",
        &["mode"],
        "whether decisions count, for all lanes",
    ),
    of(
        "cinnamon_ticks_total",
        Counter,
        "steps",
        &[],
        "control steps taken",
    ),
    of(
        "cinnamon_ticks_late_total",
        Counter,
        "steps",
        &[],
        "control steps that came later than one period after they were due",
    ),
    of(
        "cinnamon_failed",
        Gauge,
        "1 or 0",
        &[],
        "a panic inside: such lanes admit everything",
    ),
    of(
        "cinnamon_closed",
        Gauge,
        "1 or 0",
        &[],
        "no more work is taken",
    ),
    of(
        "cinnamon_overrides",
        Gauge,
        "overrides",
        &[],
        "how many are in force",
    ),
    of(
        "cinnamon_override_seconds",
        Gauge,
        "seconds",
        &["target", "action"],
        "what is left of each override; 0 once it has ended",
    ),
    of(
        "cinnamon_override_file_error",
        Gauge,
        "1 or 0",
        &[],
        "the override file is not understood",
    ),
    of(
        "cinnamon_health",
        Gauge,
        "1 or 0",
        &["state"],
        "healthy, stressed (less important work is refused), saturated (protected work is)",
    ),
    of(
        "cinnamon_headroom",
        Gauge,
        "0 to 1",
        &[],
        "the least of what is left of each lane's capacity and each signal's target",
    ),
    of(
        "cinnamon_weight",
        Gauge,
        "0 to 100",
        &[],
        "for a load balancer: falls with the share of protected work refused",
    ),
    of(
        "cinnamon_protected_refused",
        Gauge,
        "0 to 1",
        &[],
        "share of t0 and t1 refused",
    ),
    of(
        "cinnamon_demand",
        Gauge,
        "capacities",
        &[],
        "offered over capacity in the fullest lane, refused or not: what an autoscaler should see",
    ),
    of(
        "cinnamon_lane_mode",
        Gauge,
        "1 or 0",
        &["lane", "mode"],
        "whether the lane's decisions count",
    ),
    of(
        "cinnamon_offered_total",
        Counter,
        "requests",
        LANE,
        "requests offered",
    ),
    of(
        "cinnamon_untagged_total",
        Counter,
        "requests",
        LANE,
        "requests offered that did not say their importance",
    ),
    of(
        "cinnamon_verdicts_total",
        Counter,
        "requests",
        &["lane", "tier", "verdict"],
        "verdicts given; every offered request gets one",
    ),
    of("cinnamon_limit", Gauge, "slots", LANE, "slots of the lane"),
    of(
        "cinnamon_limit_min",
        Gauge,
        "slots",
        LANE,
        "the least that the limit may become by itself; the limit while it is fixed",
    ),
    of(
        "cinnamon_limit_max",
        Gauge,
        "slots",
        LANE,
        "the most that it may become",
    ),
    of(
        "cinnamon_in_use",
        Gauge,
        "requests",
        &["lane", "kind"],
        "requests that run: with a slot, exempt, or open because decisions do not count",
    ),
    of(
        "cinnamon_waiting",
        Gauge,
        "requests",
        &["lane", "tier"],
        "requests that wait",
    ),
    of(
        "cinnamon_waiting_bytes",
        Gauge,
        "bytes",
        LANE,
        "what waiting requests hold, by their own account",
    ),
    of(
        "cinnamon_engaged",
        Gauge,
        "1 or 0",
        LANE,
        "the backlog's law is engaged",
    ),
    of(
        "cinnamon_engaged_seconds_total",
        Counter,
        "seconds",
        LANE,
        "for how long the gate was held, by whatever",
    ),
    of(
        "cinnamon_shed_cost_total",
        Counter,
        "cost",
        &["lane", "cause"],
        "cost refused by the gate, by what held it: backlog, override, or a signal's name",
    ),
    of(
        "cinnamon_threshold_levels",
        Gauge,
        "levels",
        LANE,
        "first priority not admitted; 768 when open",
    ),
    of(
        "cinnamon_bound_by",
        Gauge,
        "1 or 0",
        &["lane", "cause"],
        "what holds the threshold: nothing, backlog, override, or a signal's name",
    ),
    of(
        "cinnamon_budget_cost_per_second",
        Gauge,
        "cost per second",
        LANE,
        "what the backlog's law lets in; infinite when open",
    ),
    of(
        "cinnamon_capacity_cost_per_second",
        Gauge,
        "cost per second",
        LANE,
        "C: what the lane can serve; 0 while unknown",
    ),
    of(
        "cinnamon_offered_cost_per_second",
        Gauge,
        "cost per second",
        LANE,
        "A: what is offered, refused or not",
    ),
    of(
        "cinnamon_wait_seconds",
        Gauge,
        "seconds",
        LANE,
        "W: the time-averaged backlog",
    ),
    of(
        "cinnamon_wait_target_seconds",
        Gauge,
        "seconds",
        LANE,
        "W*: its target",
    ),
    of("cinnamon_error", Gauge, "-1 to 1", LANE, "the law's error"),
    of(
        "cinnamon_term",
        Gauge,
        "share of C",
        &["lane", "term"],
        "the law's terms: p, i, d",
    ),
    of(
        "cinnamon_codel_state",
        Gauge,
        "1 or 0",
        &["lane", "state"],
        "CoDel's state: calm, above, standing",
    ),
    of(
        "cinnamon_newest_first",
        Gauge,
        "1 or 0",
        LANE,
        "the newest of a tier is served first",
    ),
    of(
        "cinnamon_timeout_seconds",
        Gauge,
        "seconds",
        LANE,
        "the longest anybody may wait",
    ),
    of(
        "cinnamon_service_seconds",
        Gauge,
        "seconds",
        &["lane", "of"],
        "how long requests run: mean, p50, p90",
    ),
    of(
        "cinnamon_waited_seconds_bucket",
        Counter,
        "requests",
        &["lane", "le"],
        "waits of those who got a slot: how many took at most `le` seconds",
    ),
    of(
        "cinnamon_waited_seconds_count",
        Counter,
        "requests",
        LANE,
        "waits of those who got a slot: how many",
    ),
    of(
        "cinnamon_waited_seconds_sum",
        Gauge,
        "seconds",
        LANE,
        "waits of those who got a slot: together",
    ),
    of(
        "cinnamon_served_seconds_bucket",
        Counter,
        "requests",
        &["lane", "le"],
        "times for which slots were held: how many took at most `le` seconds",
    ),
    of(
        "cinnamon_served_seconds_count",
        Counter,
        "requests",
        LANE,
        "times for which slots were held: how many",
    ),
    of(
        "cinnamon_served_seconds_sum",
        Gauge,
        "seconds",
        LANE,
        "times for which slots were held: together",
    ),
    of(
        "cinnamon_signal_mode",
        Gauge,
        "1 or 0",
        &["signal", "mode"],
        "whether the signal's budget counts",
    ),
    of(
        "cinnamon_signal_state",
        Gauge,
        "1 or 0",
        &["signal", "state"],
        "how it stands with its supervisor",
    ),
    of(
        "cinnamon_signal_pressure",
        Gauge,
        "targets",
        SIGNAL,
        "last good pressure; absent before the first",
    ),
    of(
        "cinnamon_signal_age_seconds",
        Gauge,
        "seconds",
        SIGNAL,
        "age of that",
    ),
    of(
        "cinnamon_signal_budget_cost_per_second",
        Gauge,
        "cost per second",
        SIGNAL,
        "what it allows its lanes; infinite while it has no grip",
    ),
    of(
        "cinnamon_signal_threshold_levels",
        Gauge,
        "levels",
        SIGNAL,
        "the threshold that comes to; 768 when open",
    ),
    of(
        "cinnamon_signal_authority",
        Gauge,
        "share of C",
        SIGNAL,
        "what it may take now",
    ),
    of(
        "cinnamon_signal_unresponsive",
        Gauge,
        "1 or 0",
        SIGNAL,
        "the load was cut and its pressure did not move",
    ),
    of(
        "cinnamon_signal_binding",
        Gauge,
        "1 or 0",
        SIGNAL,
        "it holds the gate of some lane",
    ),
    of(
        "cinnamon_signal_bound_seconds",
        Gauge,
        "seconds",
        SIGNAL,
        "for how long it ever has",
    ),
    of(
        "cinnamon_signal_readings_total",
        Counter,
        "readings",
        SIGNAL,
        "good readings",
    ),
    of(
        "cinnamon_signal_faults_total",
        Counter,
        "faults",
        &["signal", "fault"],
        "faults: unavailable, out-of-range, stale, slow, panicked",
    ),
];

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
