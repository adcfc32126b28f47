use super::*;

const TARGET: Duration = Duration::from_millis(10);
const MAX: Duration = Duration::from_millis(500);
const FAST: Duration = Duration::from_millis(2);
const SLOW: Duration = Duration::from_millis(20);
const LOST: Duration = Duration::from_millis(900);

struct Bench {
    signal: LatencySlo,
    handle: SloHandle,
    tenths: u64,
}

impl Bench {
    fn new() -> Self {
        let slo = Slo::new(Class(3), TARGET, MAX).unwrap();
        let other = Slo::new(Class(4), MAX, LOST).unwrap();
        let (signal, handle) = LatencySlo::of(&[slo, other]).unwrap();
        Self {
            signal,
            handle,
            tenths: 0,
        }
    }

    /// So many seconds, of each tenth of which so many requests were fast, slow and lost.
    fn run(&mut self, seconds: u64, [fast, slow, lost]: [u32; 3]) -> Option<f64> {
        let mut last = None;
        for _ in 0..10 * seconds {
            for (count, time) in [(fast, FAST), (slow, SLOW), (lost, LOST)] {
                (0..count).for_each(|_| self.handle.finished(Class(3), time));
            }
            last = self.sample();
        }
        last
    }

    fn sample(&mut self) -> Option<f64> {
        self.tenths += 1;
        let now = Instant::ZERO.after(Duration::from_millis(100 * self.tenths));
        self.signal.sample(now, &View::default()).value()
    }
}

#[test]
fn pressure_is_the_greater_share_over_its_target() {
    let mut bench = Bench::new();
    let near = |pressure: Option<f64>, expected: f64| {
        assert!(
            (pressure.unwrap() - expected).abs() < 0.01,
            "{pressure:?} {expected}"
        );
    };
    near(bench.run(8, [80, 20, 0]), 0.5);
    near(bench.run(8, [98, 0, 2]), 0.4);
    // Nine tenths slower than the target, less what chance explains.
    let most = bench.run(8, [10, 90, 0]).unwrap();
    assert!((2.0..2.25).contains(&most), "{most}");
    near(bench.run(2, [100, 0, 0]), 0.0);
}

#[test]
fn a_pause_of_400_ms_does_not_count() {
    let mut bench = Bench::new();
    bench.run(10, [70, 0, 0]);
    for _ in 0..4 {
        assert!(bench.sample().unwrap() < 0.5, "nothing finishes");
    }
    // All that waited is slow.
    for _ in 0..3 {
        (0..93).for_each(|_| bench.handle.finished(Class(3), SLOW));
        assert!(bench.sample().unwrap() < 0.5);
    }
    for _ in 0..30 {
        (0..70).for_each(|_| bench.handle.finished(Class(3), FAST));
        assert!(bench.sample().unwrap() < 0.5);
    }
}

#[test]
fn a_backing_store_counts_for_as_long_as_it_reports() {
    let mut bench = Bench::new();
    bench.run(5, [10, 0, 0]);
    for _ in 0..40 {
        bench.handle.report("blobs", 0.6, 0.0);
        bench.sample();
    }
    assert!((bench.sample().unwrap() - 1.5).abs() < 1e-9);
    for _ in 0..60 {
        bench.sample();
    }
    assert_eq!(bench.sample(), Some(0.0), "silent for five seconds");
    for share in [f64::NAN, -0.1, 1.1, f64::INFINITY] {
        bench.handle.report("blobs", share, 0.0);
        bench.handle.report("blobs", 0.0, share);
    }
    assert!(bench.handle.shared.reports.lock().unwrap().is_empty());
    for i in 0..1_000 {
        bench.handle.report(&format!("store {i}"), 0.1, 0.1);
    }
    assert_eq!(bench.handle.shared.reports.lock().unwrap().len(), SLOS_MAX);
}

#[test]
fn its_own_utilisation_is_told_to_who_calls_it() {
    let mut bench = Bench::new();
    assert_eq!(bench.handle.utilisation(), None);
    bench.handle.report("blobs", 1.0, 1.0);
    bench.run(5, [79, 20, 1]);
    let own = bench.handle.utilisation().unwrap();
    assert!((own.over_target - 0.21).abs() < 0.01, "{own:?}");
    assert!((own.over_max - 0.01).abs() < 0.001, "{own:?}");
}

#[test]
fn few_completions_other_classes_and_a_clock_set_back_are_no_overload() {
    let mut bench = Bench::new();
    assert_eq!(bench.run(10, [0, 0, 0]), Some(0.0), "an idle service");
    for _ in 0..100 {
        bench.handle.finished(Class(9), LOST);
        assert_eq!(bench.sample(), Some(0.0));
    }
    bench.run(20, [0, 100, 100]);
    bench.tenths = 0;
    assert_eq!(bench.sample(), None);
}

#[test]
fn promises_that_cannot_be_are_refused_by_name() {
    let refused = |target, max| {
        let error = Slo::new(Class(0), target, max).unwrap_err();
        error.to_string()
    };
    assert!(refused(Duration::ZERO, MAX).starts_with("`slo.target` is 0 but"));
    assert!(refused(MAX, TARGET).starts_with("`slo.max` is 0.01 but must be over `target`"));
    let slo = Slo::new(Class(7), TARGET, MAX).unwrap();
    let error = LatencySlo::of(&[slo, slo]).unwrap_err().to_string();
    let text = "`latency_slo.class` is 7 but must be a class without another promise";
    assert_eq!(error, text);
    let (signal, _handle) = LatencySlo::of(&[slo]).unwrap();
    assert!(signal.target_shares(0.4, f64::NAN).is_err());
}
