//! What is emitted is what is documented, and what the snapshot says.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of tests may end the test that calls it"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use cinnamon_core::export::{METRICS, MetricKind};
use cinnamon_core::{
    AdmitKind, Authority, Completion, Config, Controller, Dynamics, Instant, ManualClock, Mode,
    Reading, Reason, Request, Settings, Signal, Snapshot, Tier, Verdict, View,
};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_util::MetricKind as Kind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use support::*;

/// Full from the third second on.
struct Debt;

impl Signal for Debt {
    fn name(&self) -> &str {
        "debt"
    }

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(Duration::from_secs(1))
    }

    fn authority(&self) -> Authority {
        Authority::Measuring
    }

    fn sample(&mut self, now: Instant, _view: &View) -> Reading {
        match now.as_nanos() / 1_000_000_000 {
            0..3 => Reading::pressure(0.5),
            3..6 => Reading::pressure(1.5),
            _ => Reading::unavailable("gone"),
        }
    }
}

type Emitted = BTreeMap<(String, BTreeMap<String, String>), (Kind, f64)>;

fn emitted(snapshotter: &Snapshotter) -> Emitted {
    let all = snapshotter.snapshot().into_vec();
    all.into_iter()
        .map(|(key, _, _, value)| {
            let labels = key.key().labels();
            let labels = labels.map(|label| (label.key().to_owned(), label.value().to_owned()));
            let mut labels: BTreeMap<String, String> = labels.collect();
            assert_eq!(labels.remove("controller").as_deref(), Some("default"));
            let value = match value {
                DebugValue::Counter(count) => count as f64,
                DebugValue::Gauge(gauge) => gauge.into_inner(),
                DebugValue::Histogram(_) => f64::NAN,
            };
            let name = key.key().name().to_owned();
            ((name, labels), (key.kind(), value))
        })
        .collect()
}

/// Seven seconds of load on a controller that nobody but us drives, with a recorder that comes after it.
fn run() -> (Snapshot, Emitted) {
    let clock = ManualClock::new();
    let config = Config::new(Settings::one_lane("main", 4)).unwrap();
    let controller = Controller::builder(config).signal(Debt);
    let controller = controller.build_manual(clock.shared()).unwrap();
    let lane = controller.lane("main").unwrap();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let mut held = None;
        for n in 0..700u64 {
            let forced = match n {
                100 => Some("tenant 7 shed t3 for 2s"),
                690 => Some("shed t5 for 10s"),
                _ => None,
            };
            if let Some(forced) = forced {
                controller.set_override(forced.parse().unwrap()).unwrap();
            }
            let tier = Tier::ALL[(n % 6) as usize];
            if let Ok(permit) = lane.try_admit(&Request::new(tier).key(n)) {
                let done = held.replace(permit);
                if let Some(permit) = done {
                    permit.finish(Completion::success());
                }
            }
            let _ = lane.try_admit(&Request::untagged().deadline(Instant::ZERO));
            controller.tick(clock.advance(Duration::from_millis(10)));
        }
        drop(held);
        // The next emission is due, and nothing happens after it.
        controller.tick(clock.advance(Duration::from_secs(1)));
    });
    (controller.snapshot(), emitted(&snapshotter))
}

#[test]
fn every_metric_that_is_emitted_is_documented_with_its_kind_and_labels_and_no_other_is() {
    let (_, emitted) = run();
    let seen: BTreeSet<&str> = emitted.keys().map(|(name, _)| name.as_str()).collect();
    let known: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(seen, known);
    for ((name, labels), (kind, _)) in &emitted {
        let metric = METRICS.iter().find(|metric| metric.name == name).unwrap();
        let counter = metric.kind == MetricKind::Counter;
        assert_eq!(*kind == Kind::Counter, counter, "{name}");
        let of: BTreeSet<&str> = labels.keys().map(String::as_str).collect();
        assert_eq!(of, metric.labels.iter().copied().collect(), "{name}");
    }
}

#[test]
fn bug_78_metrics_equal_the_snapshot_and_verdicts_add_up() {
    let (snapshot, emitted) = run();
    let value = |name: &str, labels: &[(&str, &str)]| {
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let key = (name.to_owned(), labels.collect());
        emitted.get(&key).map(|(_, value)| *value)
    };
    let lane = &snapshot.lanes[0];
    let of_lane = |name: &str| value(name, &[("lane", "main")]);
    let verdicts: f64 = emitted
        .iter()
        .filter(|((name, _), _)| name == "cinnamon_verdicts_total")
        .map(|(_, (_, value))| value)
        .sum();
    assert_eq!(verdicts, lane.offered as f64);
    let left_s = |target: &str, action: &str| {
        let labels = [("target", target), ("action", action)];
        value("cinnamon_override_seconds", &labels)
    };
    assert_eq!(value("cinnamon_overrides", &[]), Some(1.0));
    let left = snapshot.overrides[0].left_s;
    assert_eq!(left_s("controller", "shed t5"), Some(left));
    assert_eq!(left_s("tenants", "shed t3"), Some(0.0), "it has ended");
    for (name, histogram) in [("waited", &lane.waited), ("served", &lane.served)] {
        let count = format!("cinnamon_{name}_seconds_count");
        assert_eq!(of_lane(&count), Some(histogram.count() as f64));
        let bucket = format!("cinnamon_{name}_seconds_bucket");
        let all = value(&bucket, &[("lane", "main"), ("le", "+Inf")]);
        assert_eq!(all, Some(histogram.count() as f64));
    }
    let slots = lane.verdicts.total(Verdict::Admit(AdmitKind::Slot));
    assert_eq!(lane.waited.count(), slots);
    let shed = lane.shed.iter().map(|work| work.cost).sum::<u64>();
    assert!(shed > 0 && shed == lane.verdicts.total(Verdict::Refuse(Reason::Shed)));
    let by_signal = lane.shed.iter().find(|work| work.by == "debt").unwrap();
    assert_eq!(snapshot.signals[0].shed_cost, by_signal.cost);
    assert_eq!(of_lane("cinnamon_offered_total"), Some(verdicts));
    assert_eq!(of_lane("cinnamon_untagged_total"), Some(700.0));
    for (tier, verdict, requests) in lane.verdicts.iter() {
        let tier = tier.to_string();
        let labels = [("lane", "main"), ("tier", &tier), ("verdict", verdict)];
        let counted = value("cinnamon_verdicts_total", &labels);
        assert_eq!(counted, Some(requests as f64), "{tier} {verdict}");
    }
    for (name, expected) in [
        ("cinnamon_limit", 4.0),
        ("cinnamon_threshold_levels", lane.threshold_levels),
        ("cinnamon_capacity_cost_per_second", lane.capacity_per_s),
        ("cinnamon_offered_cost_per_second", lane.offered_per_s),
        ("cinnamon_wait_target_seconds", lane.wait_target_s),
        ("cinnamon_timeout_seconds", lane.timeout_s),
    ] {
        assert_eq!(of_lane(name), Some(expected), "{name}");
    }
    let signal = &snapshot.signals[0];
    let of_signal = |name: &str| value(name, &[("signal", "debt")]);
    assert!(signal.bound_s > 1.0 && signal.readings > 50);
    assert_eq!(
        of_signal("cinnamon_signal_bound_seconds"),
        Some(signal.bound_s)
    );
    let readings = of_signal("cinnamon_signal_readings_total");
    assert_eq!(readings, Some(signal.readings as f64));
    assert_eq!(of_signal("cinnamon_signal_pressure"), Some(1.5));
    let fault = [("signal", "debt"), ("fault", "unavailable")];
    let faults = value("cinnamon_signal_faults_total", &fault);
    assert_eq!(faults, Some(signal.faults[0] as f64));
    for state in ["calm", "engaged", "fading", "ignored", "waiting", "off"] {
        let on = value(
            "cinnamon_signal_state",
            &[("signal", "debt"), ("state", state)],
        );
        assert_eq!(
            on == Some(1.0),
            signal.state == serde_json::from_str(&format!("\"{state}\"")).unwrap()
        );
    }
    assert_eq!(
        value("cinnamon_ticks_total", &[]),
        Some(snapshot.ticks as f64)
    );
}

#[test]
fn metrics_come_at_most_once_a_second() {
    let (controller, _, clock) = manual(1);
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        controller.tick(clock.advance(Duration::from_secs(2)));
        let ticks = |emitted: Emitted| {
            let key = ("cinnamon_ticks_total".to_owned(), BTreeMap::new());
            emitted.get(&key).map(|(_, value)| *value)
        };
        assert_eq!(ticks(emitted(&snapshotter)), Some(1.0));
        for _ in 0..40 {
            controller.tick(clock.advance(Duration::from_millis(20)));
        }
        assert_eq!(ticks(emitted(&snapshotter)), Some(0.0), "nothing new");
        for _ in 0..20 {
            controller.tick(clock.advance(Duration::from_millis(20)));
        }
        assert!(ticks(emitted(&snapshotter)) > Some(40.0));
    });
}

/// Panics whatever it is asked.
struct Broken;

impl Recorder for Broken {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        std::panic::resume_unwind(Box::new("a bug in a recorder"));
    }

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        std::panic::resume_unwind(Box::new("a bug in a recorder"));
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn a_recorder_that_panics_harms_nobody() {
    let (controller, lane, clock) = manual(1);
    metrics::with_local_recorder(&Broken, || {
        for _ in 0..5 {
            controller.tick(clock.advance(Duration::from_secs(2)));
        }
    });
    assert_eq!(controller.snapshot().ticks, 5);
    assert!(!controller.snapshot().failed && lane.try_admit(&T1).is_ok());
}

/// Asks another thread to use the controller, and waits for that, whenever it is called.
struct Slow {
    ask: Mutex<mpsc::Sender<()>>,
    answer: Mutex<mpsc::Receiver<bool>>,
    answers: AtomicUsize,
}

impl Slow {
    fn wait(&self) {
        self.ask.lock().unwrap().send(()).unwrap();
        // Far longer than it takes; a lock that is held would be held for ever.
        let answer = self.answer.lock().unwrap();
        if answer.recv_timeout(Duration::from_secs(20)) == Ok(true) {
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Recorder for Slow {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() == "cinnamon_offered_total" {
            self.wait();
        }
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        if key.name() == "cinnamon_override_seconds" {
            self.wait();
        }
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn a_recorder_that_takes_its_time_holds_up_nobody() {
    let (controller, lane, clock) = manual(1);
    controller
        .set_override("tenant 7 shed t3 for 1h".parse().unwrap())
        .unwrap();
    let (ask, asked) = mpsc::channel();
    let (answer, answers) = mpsc::channel();
    let recorder = Slow {
        ask: Mutex::new(ask),
        answer: Mutex::new(answers),
        answers: AtomicUsize::new(0),
    };
    let user = controller.clone();
    let worker = thread::spawn(move || {
        while asked.recv().is_ok() {
            let admitted = lane.try_admit(&T1).is_ok();
            user.set_mode(Mode::Enforce);
            user.set_override("shed t5 for 1ms".parse().unwrap())
                .unwrap();
            answer.send(admitted && !user.snapshot().failed).unwrap();
        }
    });
    metrics::with_local_recorder(&recorder, || {
        controller.tick(clock.advance(Duration::from_secs(2)));
    });
    assert_eq!(recorder.answers.load(Ordering::Relaxed), 2);
    drop(recorder);
    worker.join().unwrap();
}

/// The page of the book has the same table; this prints it when it does not.
#[test]
fn the_book_documents_the_same_table() {
    const PAGE: &str = include_str!("../../docs/src/metrics.md");
    let mut table =
        String::from("| metric | kind | unit | labels | what it says |\n|---|---|---|---|---|\n");
    for metric in METRICS {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
        let _ = writeln!(
            table,
            "| `{}` | {kind} | {} | {} | {} |",
            metric.name,
            metric.unit,
            labels.join(", "),
            metric.about
        );
    }
    assert!(
        PAGE.contains(&table),
        "docs/src/metrics.md should hold\n{table}"
    );
}
