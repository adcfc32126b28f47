//! The snapshot as metrics, through the `metrics` facade.
//!
//! Called by the control thread at most once a second, with no lock held. Handles are fetched each time, so a
//! recorder that is installed after the controller was built gets everything from then on. Every name, its unit
//! and its labels are in [`METRICS`].

mod keys;
mod table;

use metrics::with_recorder;

use std::cell::RefCell;

use crate::codel::CodelState;
use crate::health::HealthState;
use crate::histogram::Histogram;
use crate::metrics::{LaneSnapshot, Snapshot, ThrottleSnapshot};
use crate::priority::Tier;
use crate::signal::{Mode, SignalFault, SignalSnapshot, SignalState};
use crate::verdict::Binding;

use keys::{Keys, METADATA};
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
    /// Its labels, besides `controller`, the controller's name, which all of them have.
    pub labels: &'static [&'static str],
    /// What it says.
    pub about: &'static str,
}

const WAITED: [&str; 3] = [
    "cinnamon_waited_seconds_bucket",
    "cinnamon_waited_seconds_count",
    "cinnamon_waited_seconds_sum",
];
const SERVED: [&str; 3] = [
    "cinnamon_served_seconds_bucket",
    "cinnamon_served_seconds_count",
    "cinnamon_served_seconds_sum",
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

/// What is kept from one emission to the next.
#[derive(Debug, Default)]
pub(crate) struct Emission {
    keys: Keys,
    /// The overrides that were emitted: a recorder keeps what it was told last, so it must be told that they are over.
    past: Vec<(String, String)>,
}

/// Emits everything.
pub(crate) fn emit(snapshot: &Snapshot, kept: &mut Emission) {
    kept.keys.begin();
    let out = Out {
        controller: &snapshot.name,
        keys: RefCell::new(&mut kept.keys),
    };
    out.overrides(snapshot, &mut kept.past);
    for mode in MODES {
        let on = flag(snapshot.mode == mode);
        out.set("cinnamon_mode", &[("mode", mode.as_str())], on);
    }
    out.count("cinnamon_ticks_late_total", &[], snapshot.ticks_late);
    out.set("cinnamon_failed", &[], flag(snapshot.failed));
    out.set("cinnamon_closed", &[], flag(snapshot.closed));
    let health = &snapshot.health;
    for state in HealthState::ALL {
        let on = flag(health.state == state);
        out.set("cinnamon_health", &[("state", state.as_str())], on);
    }
    out.set("cinnamon_headroom", &[], health.headroom);
    out.set("cinnamon_weight", &[], health.weight.into());
    out.set("cinnamon_protected_refused", &[], health.protected_refused);
    out.set("cinnamon_demand", &[], health.demand);
    for lane in &snapshot.lanes {
        out.lane(lane);
        out.gate(lane, &snapshot.signals);
    }
    out.throttles(&snapshot.throttles, &snapshot.signals);
    snapshot
        .signals
        .iter()
        .for_each(|signal| out.signal(signal));
    // Last: whoever sees this moved has all the others of the same moment.
    out.count("cinnamon_ticks_total", &[], snapshot.ticks);
}

/// Where one controller's figures go.
struct Out<'a> {
    controller: &'a str,
    keys: RefCell<&'a mut Keys>,
}

impl Out<'_> {
    fn set(&self, metric: &'static str, labels: &[(&'static str, &str)], value: f64) {
        let mut keys = self.keys.borrow_mut();
        let key = keys.next(metric, self.controller, labels);
        with_recorder(|recorder| recorder.register_gauge(key, &METADATA).set(value));
    }

    fn count(&self, metric: &'static str, labels: &[(&'static str, &str)], value: u64) {
        let mut keys = self.keys.borrow_mut();
        let key = keys.next(metric, self.controller, labels);
        with_recorder(|recorder| recorder.register_counter(key, &METADATA).absolute(value));
    }

    fn overrides(&self, snapshot: &Snapshot, past: &mut Vec<(String, String)>) {
        let left = |(target, action): &(String, String), left_s: f64| {
            let labels = [("target", &**target), ("action", &**action)];
            self.set("cinnamon_override_seconds", &labels, left_s);
        };
        let in_force = &snapshot.overrides;
        let mut longest: Vec<((String, String), f64)> = Vec::new();
        for of in in_force {
            // Tenants are too many to be labels.
            let target = match of.target.split_once(' ') {
                Some(("tenant", _)) => "tenants",
                _ => &of.target,
            };
            let labels = (target.to_owned(), of.action.clone());
            match longest.iter_mut().find(|(known, _)| *known == labels) {
                Some((_, left_s)) => *left_s = left_s.max(of.left_s),
                None => longest.push((labels, of.left_s)),
            }
        }
        let is_over = |past: &&(String, String)| longest.iter().all(|(now, _)| now != *past);
        past.iter().filter(is_over).for_each(|past| left(past, 0.0));
        longest
            .iter()
            .for_each(|(labels, left_s)| left(labels, *left_s));
        *past = longest.into_iter().map(|(labels, _)| labels).collect();
        self.set("cinnamon_overrides", &[], in_force.len() as f64);
        let error = flag(snapshot.override_file_error.is_some());
        self.set("cinnamon_override_file_error", &[], error);
    }

    /// How many each signal has throttled.
    fn throttles(&self, throttles: &[ThrottleSnapshot], signals: &[SignalSnapshot]) {
        for signal in signals {
            let held = throttles
                .iter()
                .filter(|throttle| throttle.by == signal.name);
            let labels = [("signal", &*signal.name)];
            self.set("cinnamon_throttles", &labels, held.count() as f64);
        }
    }

    fn lane(&self, lane: &LaneSnapshot) {
        let name = ("lane", &*lane.name);
        let set = |metric, value: f64| self.set(metric, &[name], value);
        let labelled = |metric, label, of: &str, value: f64| {
            self.set(metric, &[name, (label, of)], value);
        };
        for mode in MODES {
            let on = flag(lane.mode == mode);
            labelled("cinnamon_lane_mode", "mode", mode.as_str(), on);
        }
        self.count("cinnamon_offered_total", &[name], lane.offered);
        self.count("cinnamon_untagged_total", &[name], lane.untagged);
        self.count("cinnamon_retried_total", &[name], lane.retried);
        self.count("cinnamon_retry_denied_total", &[name], lane.retry_denied);
        set("cinnamon_retry_share", lane.retry_share);
        for (tier, verdict, requests) in lane.verdicts.iter() {
            let labels = [name, ("tier", tier.as_str()), ("verdict", verdict)];
            self.count("cinnamon_verdicts_total", &labels, requests);
        }
        set("cinnamon_limit", lane.limit.into());
        set("cinnamon_limit_min", lane.limit_min.into());
        set("cinnamon_limit_max", lane.limit_max.into());
        self.count("cinnamon_limit_moves_total", &[name], lane.limit_moves);
        for (kind, requests) in [
            ("slot", lane.in_use),
            ("exempt", lane.exempt_in_use),
            ("open", lane.open_in_use + lane.failed_open_in_use),
        ] {
            labelled("cinnamon_in_use", "kind", kind, requests.into());
        }
        for (tier, requests) in Tier::ALL.into_iter().zip(lane.waiting_by_tier) {
            labelled("cinnamon_waiting", "tier", tier.as_str(), requests.into());
        }
        set("cinnamon_waiting_bytes", lane.waiting_bytes as f64);
        self.histogram(name, &lane.waited, WAITED);
        self.histogram(name, &lane.served, SERVED);
        for (state, word) in CODEL {
            let on = flag(lane.codel == state);
            labelled("cinnamon_codel_state", "state", word, on);
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

    /// The lane's gate and its law.
    fn gate(&self, lane: &LaneSnapshot, signals: &[SignalSnapshot]) {
        let name = ("lane", &*lane.name);
        let set = |metric, value: f64| self.set(metric, &[name], value);
        set("cinnamon_engaged", flag(lane.engaged));
        let engaged_s = lane.engaged_s as u64;
        self.count("cinnamon_engaged_seconds_total", &[name], engaged_s);
        for work in &lane.shed {
            let labels = [name, ("cause", &*work.by)];
            self.count("cinnamon_shed_cost_total", &labels, work.cost);
        }
        set("cinnamon_threshold_levels", lane.threshold_levels);
        let holds = |cause: &str, holds: bool| {
            self.set("cinnamon_bound_by", &[name, ("cause", cause)], flag(holds));
        };
        holds("nothing", lane.binding == Binding::Nothing);
        holds("override", lane.binding == Binding::Override);
        holds("backlog", matches!(lane.binding, Binding::Backlog { .. }));
        for (index, signal) in signals.iter().enumerate() {
            let binding = Binding::Signal { index: index as u8 };
            holds(&signal.name, lane.binding == binding);
        }
        let budget = lane.budget_per_s.unwrap_or(f64::INFINITY);
        set("cinnamon_budget_cost_per_second", budget);
        set("cinnamon_capacity_cost_per_second", lane.capacity_per_s);
        set("cinnamon_offered_cost_per_second", lane.offered_per_s);
        set("cinnamon_wait_seconds", lane.wait_s);
        set("cinnamon_wait_target_seconds", lane.wait_target_s);
        set("cinnamon_error", lane.error);
        for (term, value) in [("p", lane.p), ("i", lane.i), ("d", lane.d)] {
            self.set("cinnamon_term", &[name, ("term", term)], value);
        }
    }

    /// In the form that Prometheus expects of a histogram: each bucket counts all that are in it or below.
    fn histogram(&self, lane: (&'static str, &str), of: &Histogram, metrics: [&'static str; 3]) {
        let [bucket, count, sum] = metrics;
        let mut below = 0;
        for (bound_s, requests) in of.buckets() {
            below += requests;
            let le = if bound_s.is_finite() {
                bound_s.to_string()
            } else {
                "+Inf".to_owned()
            };
            self.count(bucket, &[lane, ("le", &*le)], below);
        }
        self.count(count, &[lane], below);
        self.set(sum, &[lane], of.sum_s());
    }

    fn signal(&self, signal: &SignalSnapshot) {
        let name = ("signal", &*signal.name);
        let set = |metric, value: f64| self.set(metric, &[name], value);
        for mode in MODES {
            let on = flag(signal.mode == mode);
            let labels = [name, ("mode", mode.as_str())];
            self.set("cinnamon_signal_mode", &labels, on);
        }
        for (state, word) in STATES {
            let on = flag(signal.state == state);
            self.set("cinnamon_signal_state", &[name, ("state", word)], on);
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
        self.count("cinnamon_signal_readings_total", &[name], signal.readings);
        for fault in FAULTS {
            let labels = [name, ("fault", fault.as_str())];
            let count = signal.faults[fault as usize];
            self.count("cinnamon_signal_faults_total", &labels, count);
        }
    }
}

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}
