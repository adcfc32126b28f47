//! What a supervised signal may and may not do.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

const C: f64 = 1_000.0;
const DT_NS: u64 = 20_000_000;

fn profile(dynamics: Dynamics, authority: Authority) -> Profile {
    Profile {
        name: "signal".to_owned(),
        dynamics,
        least: 0.0,
        most: 1_000.0,
        lanes: 1,
        authority,
        symptom: Symptom::Other,
        remedy: Remedy::PreciseFirst,
        period_s: 0.1,
        horizon_s: Profile::default_horizon_s(dynamics, 0.1),
        said: (authority, 0.1),
    }
}

/// A signal in a loop in which everything that its budget allows is let in at once.
struct Loop {
    signal: Supervised,
    now: Instant,
    flow: Flow,
}

impl Loop {
    fn new(dynamics: Dynamics, authority: Authority) -> Self {
        Self {
            signal: Supervised::new(profile(dynamics, authority)),
            now: Instant::ZERO,
            flow: Flow {
                admitted: 900.0,
                offered: 900.0,
                capacity: C,
                confirmed: false,
                binds: false,
                other_binds: false,
            },
        }
    }

    fn read(&mut self, pressure: f64) {
        let reading = Ok(Reading::pressure(pressure));
        self.signal.read(self.now, self.now, reading);
    }

    fn tick(&mut self) -> Option<Change> {
        self.now = self.now.after_nanos(DT_NS);
        let change = self.signal.tick(0.02, &self.flow, None);
        let budget = self.signal.budget().unwrap_or(f64::INFINITY);
        self.flow.binds = budget < self.flow.offered;
        self.signal.bind(self.flow.binds, 0.02);
        self.flow.admitted = self.flow.offered.min(budget);
        change
    }

    fn changes(&mut self, ticks: u32) -> Vec<Change> {
        (0..ticks).filter_map(|_| self.tick()).collect()
    }
}

fn settling() -> Dynamics {
    Dynamics::settling(Duration::from_secs(1))
}

proptest! {
    #[test]
    fn whatever_it_says_it_moves_a_tenth_a_tick_and_leaves_what_is_not_its_to_take(
        said in prop::collection::vec((0u8..8, 0.0..5.0f64), 1..300),
        kind in 0u8..3,
        measuring: bool,
    ) {
        let second = Duration::from_secs(1);
        let dynamics = match kind {
            0 => Dynamics::settling(second),
            1 => Dynamics::integrating(second).delayed(second / 2),
            _ => Dynamics::binary(second),
        };
        let authority = if measuring { Authority::Measuring } else { Authority::Inferring };
        let mut run = Loop::new(dynamics, authority);
        for (what, pressure) in said {
            match what {
                0 => run.read(f64::NAN),
                1 => run.read(1e12),
                2 => run.signal.read(run.now, run.now, Ok(Reading::unavailable("lost"))),
                3 => run.signal.read(run.now, run.now, Err(SignalFault::Panicked)),
                4 => {}
                _ => run.read(pressure),
            }
            for _ in 0..5 {
                let before = run.signal.budget();
                run.tick();
                let budget = run.signal.budget();
                let least = if measuring { BUDGET_FLOOR } else { 0.5 } * 900.0;
                if let Some(budget) = budget {
                    prop_assert!(budget.is_finite() && budget >= least - 1e-9, "{budget}");
                    let last = before.unwrap_or(900.0);
                    prop_assert!((budget - last).abs() <= SLEW * C + 1e-9, "{last} {budget}");
                } else if let Some(before) = before {
                    // Whoever lets go held nobody back any more.
                    prop_assert!(before > 0.8 * 900.0, "{before}");
                }
            }
        }
    }
}

#[test]
fn each_change_is_told_once_and_in_order() {
    let mut run = Loop::new(settling(), Authority::Measuring);
    run.read(0.5);
    assert_eq!(run.changes(5), []);
    run.read(1.4);
    let changes = run.changes(5);
    assert!(
        matches!(changes[..], [Change::Engaged { pressure: 1.4, budget }] if budget < 900.0),
        "{changes:?}"
    );
    run.signal
        .read(run.now, run.now, Ok(Reading::unavailable("gone")));
    assert_eq!(run.changes(5), [Change::Lost(SignalFault::Unavailable)]);
    assert_eq!(run.signal.snapshot().fault_detail, "gone");
    assert_eq!(run.signal.state(), SignalState::Fading);
    assert_eq!(run.changes(100), [Change::Ignored]);
    run.read(0.5);
    assert_eq!(run.changes(5), [Change::Back]);
    assert_eq!(run.signal.state(), SignalState::Calm);
}

#[test]
fn silence_is_a_fault_after_a_horizon_and_its_grip_is_gone_after_two_more() {
    let mut run = Loop::new(settling(), Authority::Measuring);
    run.read(1.4);
    run.changes(49);
    assert_eq!(run.signal.state(), SignalState::Engaged);
    let held = run.signal.budget().unwrap();
    assert_eq!(run.changes(3), [Change::Lost(SignalFault::Stale)]);
    run.changes(48);
    let half = run.signal.budget().unwrap();
    assert!(half > 1.2 * held && half < 900.0, "{held} {half}");
    run.changes(52);
    assert_eq!(run.signal.budget(), None);
}

#[test]
fn the_same_reading_again_is_no_news_and_grows_old() {
    let mut run = Loop::new(settling(), Authority::Measuring);
    let at = run.now;
    let mut lost = Vec::new();
    for _ in 0..60 {
        let reading = Ok(Reading::pressure(1.2).taken_at(at));
        run.signal.read(run.now, run.now, reading);
        lost.extend(run.tick());
    }
    assert_eq!(run.signal.snapshot().readings, 1);
    assert!(lost.contains(&Change::Lost(SignalFault::Stale)), "{lost:?}");
}

#[test]
fn a_time_in_the_future_is_news_once_and_a_clock_set_back_is_none() {
    let mut run = Loop::new(settling(), Authority::Measuring);
    let ahead = run.now.after_nanos(60_000_000_000);
    for _ in 0..60 {
        let reading = Ok(Reading::pressure(1.2)
            .taken_at(ahead)
            .note("a clock that is ahead"));
        run.signal.read(run.now, run.now, reading);
        run.tick();
    }
    let snapshot = run.signal.snapshot();
    assert_eq!(
        (snapshot.readings, snapshot.fault),
        (1, Some(SignalFault::Stale))
    );
    assert_eq!(snapshot.note, "a clock that is ahead");

    let mut run = Loop::new(settling(), Authority::Measuring);
    run.now = run.now.after_nanos(3_600_000_000_000);
    run.read(0.5);
    run.tick();
    run.now = Instant::ZERO;
    for _ in 0..100 {
        run.read(1.4);
        run.tick();
    }
    assert_eq!(run.signal.state(), SignalState::Engaged);
}

#[test]
fn a_cut_level_needs_no_pressure_but_has_no_more_authority() {
    let mut run = Loop::new(settling(), Authority::Inferring);
    run.read(0.5);
    for _ in 0..20 {
        run.now = run.now.after_nanos(DT_NS);
        run.signal.tick(0.02, &run.flow, Some(100.0));
    }
    assert_eq!(run.signal.budget(), Some(450.0), "half of what is asked");
    run.flow.confirmed = true;
    for _ in 0..20 {
        run.now = run.now.after_nanos(DT_NS);
        run.signal.tick(0.02, &run.flow, Some(100.0));
    }
    assert_eq!(run.signal.budget(), Some(100.0));
}

#[test]
fn what_confirms_it_lifts_the_half_and_what_does_not_answer_to_the_load_loses_it() {
    let mut run = Loop::new(settling(), Authority::Inferring);
    run.flow.confirmed = true;
    for _ in 0..40 {
        run.read(2.0);
        run.changes(5);
    }
    assert!(run.signal.budget().unwrap() < 200.0);
    run.flow.confirmed = false;
    let mut all = Vec::new();
    for _ in 0..60 {
        run.read(2.0);
        all.extend(run.changes(5));
    }
    assert_eq!(run.signal.budget(), Some(900.0), "all but a tenth: {all:?}");
    assert!(matches!(all[..], [Change::Unresponsive { .. }]), "{all:?}");
    for _ in 0..10 {
        run.read(0.8);
        run.changes(5);
    }
    assert!(!run.signal.snapshot().unresponsive, "it moved");
}

#[test]
fn switched_off_it_forgets() {
    let mut run = Loop::new(settling(), Authority::Measuring);
    run.read(1.4);
    run.changes(5);
    run.signal.set_mode(Mode::Off);
    run.tick();
    assert_eq!(
        (run.signal.budget(), run.signal.state()),
        (None, SignalState::Off)
    );
    run.signal.set_mode(Mode::Enforce);
    run.tick();
    assert_eq!(run.signal.budget(), None);
}
