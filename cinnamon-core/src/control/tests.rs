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

/// Until nobody has come for two seconds, and then for a second at a time.
#[test]
fn when_nobody_asks_anything_it_rests_until_somebody_does() {
    let (controller, clock) = controller();
    let (shared, lane) = (&controller.shared, controller.lane("main").unwrap());
    let sleeps_ms = |by: Duration| {
        let now = clock.advance(by);
        shared.drive(now).nanos_since(now) / 1_000_000
    };
    // One request a second is enough for it to stay awake.
    for _ in 0..12 {
        drop(lane.try_admit(&Request::new(Tier::T1)).unwrap());
        for _ in 0..4 {
            assert!(sleeps_ms(Duration::from_millis(250)) <= 250);
        }
    }
    let quiet: Vec<u64> = (0..12).map(|_| sleeps_ms(Duration::from_secs(1))).collect();
    let awake = quiet.iter().take_while(|&&ms| ms <= 250).count();
    assert!((4..=8).contains(&awake), "{quiet:?}");
    assert!(quiet[awake..].iter().all(|&ms| ms == 1_000), "{quiet:?}");
    // Woken for nothing it goes on resting.
    let ticks = controller.snapshot().ticks;
    assert_eq!(sleeps_ms(Duration::from_millis(400)), 600);
    assert_eq!(controller.snapshot().ticks, ticks);
    // The first who comes wakes it, and has it tick at once.
    assert!(!shared.kick.was_kicked());
    let permit = lane.try_admit(&Request::new(Tier::T1)).unwrap();
    assert!(shared.kick.was_kicked());
    assert!(sleeps_ms(Duration::from_millis(1)) <= 250);
    assert_eq!(controller.snapshot().ticks, ticks + 1);
    // While it runs there is no rest.
    for _ in 0..20 {
        assert!(sleeps_ms(Duration::from_millis(250)) <= 250);
    }
    drop(permit);
}
