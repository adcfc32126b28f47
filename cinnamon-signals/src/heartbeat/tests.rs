use std::sync::Mutex;

use super::*;

/// A heartbeat whose thread is the test.
struct Bench {
    signal: Heartbeat,
    beats: Beats,
    now: Instant,
    sampled: Instant,
    latency_s: Arc<Mutex<f64>>,
    fired_at: Option<Instant>,
}

impl Bench {
    fn new() -> Self {
        let latency_s = Arc::new(Mutex::new(0.010));
        let source = Arc::clone(&latency_s);
        Self {
            signal: Heartbeat::new(move || Some(*source.lock().unwrap())),
            beats: Beats::new(DEFAULT_HEARTBEAT_P99),
            now: Instant::from_nanos(1),
            sampled: Instant::ZERO,
            latency_s,
            fired_at: None,
        }
    }

    fn beat(&mut self, took: Duration) {
        self.now = self.now.after(took);
        if let Some(ended) = self.beats.beat(self.now, took) {
            self.signal.pulse.tell(ended);
        }
        // A machine that starves the one thread starves the sampler too.
        if self.now.since(self.sampled) >= Duration::from_millis(100) {
            self.sampled = self.now;
            let latency_s = Some(*self.latency_s.lock().unwrap());
            let confirmed = self.signal.confirmation.look(self.now, latency_s);
            let reading = self.signal.reading(self.now, confirmed);
            if reading.value().is_some_and(|pressure| pressure >= 1.0) {
                self.fired_at.get_or_insert(self.now);
            }
        }
    }

    /// So many seconds of beats that take this long each, one in ten of them or all.
    fn run(&mut self, seconds: u64, took: Duration, one_in: u64) {
        let until = self.now.after(Duration::from_secs(seconds));
        let mut beats = 0;
        while self.now < until {
            beats += 1;
            let late = beats % one_in == 0;
            self.beat(if late { took } else { HEARTBEAT_SLEEP });
        }
    }
}

#[test]
fn starvation_is_found_within_nine_seconds_once_latency_confirms_it() {
    for (took_ms, one_in) in [(56, 1), (200, 1), (60, 30), (900, 1)] {
        let mut bench = Bench::new();
        bench.run(60, Duration::from_micros(10_200), 1);
        let began = bench.now;
        *bench.latency_s.lock().unwrap() = 0.030;
        bench.run(20, Duration::from_millis(took_ms), one_in);
        let found = bench.fired_at.unwrap().since(began);
        let [least, most] = [7, 9].map(Duration::from_secs);
        // Windows end with a beat: a beat of 0.9 s ends one after 1.8 s.
        let most = if took_ms == 900 { 2 * most } else { most };
        assert!(found > least && found <= most, "{took_ms} ms: {found:?}");
        bench.fired_at = None;
        bench.run(2, HEARTBEAT_SLEEP, 1);
        bench.fired_at = None;
        bench.run(20, HEARTBEAT_SLEEP, 1);
        assert_eq!(bench.fired_at, None, "one good window ends it");
    }
}

#[test]
fn without_confirmation_it_never_fires() {
    let mut bench = Bench::new();
    bench.run(60, HEARTBEAT_SLEEP, 1);
    bench.run(600, Duration::from_millis(200), 1);
    assert_eq!(bench.fired_at, None);
    let reading = bench.signal.reading(bench.now, false);
    assert_eq!(reading.value(), Some(HELD_BACK));
    assert!(format!("{reading:?}").contains("not confirmed: latency 10.000 ms"));
}

#[test]
fn no_pause_shorter_than_eight_seconds_fires_whatever_latency_says() {
    for pause_ms in [100, 400, 2_000, 7_500, 60_000] {
        let mut bench = Bench::new();
        bench.run(60, HEARTBEAT_SLEEP, 1);
        *bench.latency_s.lock().unwrap() = 10.0;
        // One long beat, and as many late ones as there may be in the time.
        bench.beat(Duration::from_millis(pause_ms));
        bench.run(5, HEARTBEAT_SLEEP, 1);
        bench.run(6, Duration::from_millis(80), 1);
        bench.run(60, HEARTBEAT_SLEEP, 1);
        assert_eq!(bench.fired_at, None, "{pause_ms} ms");
    }
}

#[test]
fn a_day_of_noise_and_pauses_does_not_fire_whatever_latency_says() {
    let mut rng = crate::calm::Rng(15);
    let mut bench = Bench::new();
    bench.run(60, HEARTBEAT_SLEEP, 1);
    *bench.latency_s.lock().unwrap() = 10.0;
    let until = bench.now.after(Duration::from_secs(24 * 3_600));
    let mut next_pause = bench.now;
    while bench.now < until {
        let mut took_s = 0.010 + 0.002 * rng.unit();
        if bench.now >= next_pause {
            took_s += 0.010 + 0.390 * rng.unit();
            next_pause = bench
                .now
                .after(Duration::from_secs_f64(0.5 + 3.0 * rng.unit()));
        }
        bench.beat(Duration::from_secs_f64(took_s));
    }
    assert_eq!(
        bench.fired_at, None,
        "a pause in every other second, all day"
    );
}

#[test]
fn the_percentile_is_of_the_beats_and_a_clock_set_back_begins_anew() {
    let mut beats = Beats::new(DEFAULT_HEARTBEAT_P99);
    let mut at = Instant::from_nanos(5);
    assert_eq!(beats.beat(at, HEARTBEAT_SLEEP), None);
    let mut second = |late: usize| {
        let mut ended = None;
        for i in 0..200 {
            let took = if i < late { 60 } else { 5 };
            at = at.after(Duration::from_millis(5));
            ended = ended.or(beats.beat(at, Duration::from_millis(took)));
        }
        ended.unwrap()
    };
    assert_eq!(second(0).in_a_row, 0);
    assert_eq!(second(1).in_a_row, 0, "one beat in two hundred may be late");
    assert_eq!(second(5).in_a_row, 1);
    assert_eq!(second(5).p99, Duration::from_millis(60));
    assert_eq!(beats.beat(Instant::ZERO, Duration::MAX), None);
    assert_eq!(beats.in_a_row, 0);
    for _ in 0..100_000 {
        beats.beat(Instant::ZERO, HEARTBEAT_SLEEP);
    }
    assert!(beats.slept_ns.len() <= BEATS_MAX, "the clock stands still");
}

#[test]
fn a_thread_that_does_not_beat_is_no_overload() {
    let mut bench = Bench::new();
    let said = bench.signal.reading(bench.now, true);
    assert_eq!(said, Reading::unavailable("no window has ended yet"));
    bench.run(60, Duration::from_millis(200), 1);
    let later = bench.now.after(Duration::from_secs(11));
    let said = bench.signal.reading(later, true);
    assert_eq!(said, Reading::unavailable("its thread does not beat"));
    let back = bench.signal.reading(Instant::from_nanos(1), true);
    assert!(back.value().is_some(), "the clock was set back");
}

#[test]
fn the_real_thread_starts_beats_and_ends_with_the_signal() {
    let mut signal = Heartbeat::new(|| None::<f64>);
    assert!(
        signal
            .sample(Instant::ZERO, &View::default())
            .value()
            .is_none()
    );
    let pulse = Arc::clone(&signal.pulse);
    while pulse.windows.load(Ordering::Acquire) == 0 {
        thread::yield_now();
    }
    let reading = signal.sample(Instant::from_nanos(1), &View::default());
    assert!(reading.value().is_some_and(|pressure| pressure < 1.0));
    drop(signal);
    // The thread holds the pulse until it has ended.
    while Arc::strong_count(&pulse) > 1 {
        thread::yield_now();
    }
}

#[test]
fn settings_that_cannot_be_are_refused_by_name() {
    let heartbeat = || Heartbeat::new(|| None::<f64>);
    let error = heartbeat().p99(Duration::from_millis(5)).unwrap_err();
    let text = "`heartbeat.p99` is 0.005 but must be from 0.011 to 1 second";
    assert_eq!(error.to_string(), text);
    assert!(heartbeat().windows(0).is_err() && heartbeat().windows(61).is_err());
    assert!(heartbeat().confirm_factor(1.0).is_err());
    let defaults = heartbeat()
        .p99(DEFAULT_HEARTBEAT_P99)
        .and_then(|one| one.windows(DEFAULT_HEARTBEAT_WINDOWS));
    assert_eq!(Signal::name(&defaults.unwrap()), "heartbeat");
}
