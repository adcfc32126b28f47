use super::*;
use crate::clock::ManualClock;
use crate::config::Settings;
use crate::controller::Controller;
use crate::priority::Tier;
use crate::request::Request;

fn controller() -> (Controller, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(9));
    let config = Config::new(Settings::one_lane("main", 1)).unwrap();
    let controller = Controller::builder(config)
        .build_manual(clock.shared())
        .unwrap();
    (controller, clock)
}

#[test]
fn a_waiter_ends_the_long_sleep_of_an_idle_controller() {
    let (controller, clock) = controller();
    let shared = &controller.shared;
    shared.drive(clock.now());
    let now = clock.advance(Duration::from_millis(3));
    assert!(!shared.is_due(now));
    let lane = controller.lane("main").unwrap();
    let _held = lane.try_admit(&Request::new(Tier::T1)).unwrap();
    assert!(
        shared.is_due(now),
        "the first load after idling is measured from the start"
    );
    let next = shared.drive(now);
    assert!(
        next.nanos_since(now) <= 20_000_000,
        "and ticks come as under load"
    );
    assert!(!shared.is_due(now));
}

#[test]
fn a_failed_control_step_lets_everybody_in_and_does_not_spin() {
    let (controller, clock) = controller();
    let lane = controller.lane("main").unwrap();
    let _held = lane.try_admit(&Request::new(Tier::T1)).unwrap();
    controller.shared.fail("for this test");
    assert!(lane.try_admit(&Request::new(Tier::T5)).is_ok());
    assert!(controller.snapshot().failed);
    for _ in 0..3 {
        let now = clock.advance(Duration::from_secs(5));
        let next = controller.shared.drive(now);
        assert_eq!(next.nanos_since(now), IDLE_TICK_NS);
    }
}

#[test]
fn metrics_go_on_after_a_failure_and_say_so() {
    let (controller, clock) = controller();
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        controller.shared.fail("for this test");
        controller
            .shared
            .drive(clock.advance(Duration::from_secs(2)));
    });
    let all = snapshotter.snapshot().into_vec();
    let failed = all.iter().find_map(|(key, _, _, value)| {
        (key.key().name() == "cinnamon_failed").then_some(format!("{value:?}"))
    });
    assert_eq!(failed.as_deref(), Some("Gauge(1.0)"));
}
