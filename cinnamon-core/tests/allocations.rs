//! What allocates and what does not, counted by an allocator: nothing on the path of a request, once warm; and how
//! much a controller, a lane, a signal and a waiter hold. `make bench` prints the same figures.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of tests may end the test that calls it"
)]

mod support;

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allocation_counter::{AllocationInfo, measure};
use cinnamon_core::{
    Action, AdmitOwned, Clock, Completion, Config, Controller, Dynamics, Instant, Lane,
    LaneSettings, ManualClock, Mode, Override, Permit, Reading, Reason, Rejected, Request,
    Settings, Signal, Target, Tier, View,
};
use support::{T1, manual};

/// So many times is done what must not allocate: more often than any buffer of ours grows in steps.
const TIMES: u64 = 10_000;
/// So often is it done first.
const WARM_UP: u64 = 100;
/// Slots of the lanes here: more than are ever taken, but where a full lane is the point.
const SLOTS: u32 = 16;

/// Most bytes of a controller with one lane, idle, without its threads' stacks: half as much again as today. Most of
/// it are the last 512 decisions, and the lane's.
const CONTROLLER_BYTES_MAX: i64 = 320 << 10;
/// Most bytes of a further lane; its share of the last decisions is among them.
const LANE_BYTES_MAX: i64 = 128 << 10;
/// Most bytes that one more waiter takes of the lane, its future not counted.
const WAITER_BYTES_MAX: i64 = 192;

/// Does it often enough to be warm, then counts.
fn warm(mut act: impl FnMut()) -> AllocationInfo {
    for _ in 0..WARM_UP {
        act();
    }
    measure(|| {
        for _ in 0..TIMES {
            act();
        }
    })
}

fn assert_none(what: &str, info: AllocationInfo) {
    assert_eq!(info.count_total, 0, "{what}: {info:?}");
}

/// A lane whose time goes on, as in life: without it most of the accounting would be skipped.
fn moving(limit: u32) -> (Controller, Lane, impl Fn()) {
    let (controller, lane, clock) = manual(limit);
    let step = move || {
        clock.advance(Duration::from_nanos(100));
    };
    (controller, lane, step)
}

fn shut(controller: &Controller, clock_now: Instant) {
    let action = Action::Shed(Tier::T1);
    let all = Override::new(Target::Controller, action, Duration::from_secs(3_600));
    controller.set_override(all).unwrap();
    controller.tick(clock_now);
}

#[test]
fn admitting_and_finishing_allocate_nothing() {
    let (_controller, lane, step) = moving(SLOTS);
    let mut key = 0;
    let borrowed = warm(|| {
        key += 1;
        step();
        let permit = lane.try_admit(&T1.key(key)).unwrap();
        permit.finish(Completion::success());
    });
    assert_none("borrowed", borrowed);
    let dear = warm(|| {
        step();
        let permit = lane.try_admit(&T1.cost(7)).unwrap();
        permit.finish(Completion::success().cost(9));
    });
    assert_none("with costs", dear);
    let dropped = warm(|| drop(lane.try_admit(&T1).unwrap()));
    assert_none("dropped", dropped);
}

#[test]
fn owning_a_permit_allocates_nothing() {
    let (_controller, lane, step) = moving(SLOTS);
    let owned = warm(|| {
        step();
        let permit = lane.try_admit_owned(&T1).unwrap();
        permit.finish(Completion::success());
    });
    assert_none("owned", owned);
}

#[test]
fn a_free_slot_is_had_without_an_allocation_by_futures_and_threads_too() {
    let (_controller, lane, step) = moving(SLOTS);
    let awaited = warm(|| {
        step();
        let admit = pin!(lane.admit(&T1));
        match admit.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => permit.unwrap().finish(Completion::success()),
            Poll::Pending => panic!("there are free slots"),
        }
    });
    assert_none("awaited", awaited);
    let blocking = warm(|| {
        let permit = lane.admit_blocking(&T1).unwrap();
        permit.finish(Completion::success());
    });
    assert_none("blocking", blocking);
}

#[test]
fn exempt_and_nested_work_and_work_while_off_allocate_nothing() {
    let (controller, lane, step) = moving(SLOTS);
    let exempt = warm(|| {
        step();
        let permit = lane.try_admit(&Request::exempt()).unwrap();
        permit.nested().finish(Completion::success());
        permit.finish(Completion::success());
    });
    assert_none("exempt and nested", exempt);
    controller.set_mode(Mode::Off);
    let off = warm(|| {
        let permit = lane.try_admit(&T1).unwrap();
        permit.finish(Completion::success());
    });
    assert_none("off", off);
}

#[test]
fn monitoring_allocates_nothing() {
    let (controller, lane, step) = moving(SLOTS);
    controller.set_mode(Mode::Monitor);
    let monitor = warm(|| {
        step();
        let permit = lane.try_admit(&T1).unwrap();
        permit.finish(Completion::success());
    });
    assert_none("monitor", monitor);
}

#[test]
fn refusing_allocates_nothing() {
    let (controller, lane, clock) = manual(1);
    let held = lane.try_admit(&T1).unwrap();
    let refused = |expected: Reason| {
        let step = || {
            clock.advance(Duration::from_nanos(100));
            let refused: Rejected = lane.try_admit(&T1).unwrap_err();
            assert_eq!(refused.reason(), expected);
        };
        warm(step)
    };
    assert_none("busy", refused(Reason::Busy));
    held.finish(Completion::success());
    shut(&controller, clock.now());
    assert_none("shed", refused(Reason::Shed));
    let owned = warm(|| {
        let refused = lane.try_admit_owned(&T1).unwrap_err();
        assert_eq!(refused.reason(), Reason::Shed);
    });
    assert_none("shed, owned", owned);
}

/// One waiter at a time, as in a lane that is just full: a future waits, is granted the slot, and looks.
#[test]
fn what_waiting_allocates_is_the_list_of_whom_to_wake() {
    let (_controller, lane, clock) = manual(1);
    let mut held: Option<Permit<'_>> = lane.try_admit(&T1).ok();
    let handed_on = warm(|| {
        clock.advance(Duration::from_nanos(100));
        let mut next = lane.admit(&T1);
        assert!(next.poll_admit(Waker::noop()).is_pending());
        if let Some(permit) = held.take() {
            permit.finish(Completion::success());
        }
        match next.poll_admit(Waker::noop()) {
            Poll::Ready(permit) => held = permit.ok(),
            Poll::Pending => panic!("the slot was handed on"),
        }
    });
    assert!(held.is_some());
    assert!(handed_on.count_total <= TIMES, "{handed_on:?}");
    assert_eq!(handed_on.bytes_current, 0, "{handed_on:?}");
}

/// What `times` ticks allocate, `step` apart and each after a little work on both of two lanes; less than a second of
/// them, in which no metrics are emitted.
fn ticks(signals: u32, step: Duration, times: u32) -> AllocationInfo {
    assert!(step * times < Duration::from_secs(1));
    let clock = ManualClock::new();
    let settings = Settings::default()
        .lane(LaneSettings::new("read", SLOTS))
        .lane(LaneSettings::new("write", SLOTS));
    let builder = Controller::builder(Config::new(settings).unwrap());
    let builder = (0..signals).fold(builder, |b, n| b.signal(Half(format!("gauge-{n}"))));
    let controller = builder.build_manual(clock.shared()).unwrap();
    let lanes = ["read", "write"].map(|name| controller.lane(name).unwrap());
    let tick = |step| {
        for lane in &lanes {
            let permit = lane.try_admit(&T1).unwrap();
            permit.finish(Completion::success());
        }
        controller.tick(clock.advance(step));
    };
    // The decisions of the last ticks are kept in buffers that are made once, and used again.
    for _ in 0..cinnamon_core::DECISIONS_KEPT {
        tick(step);
    }
    tick(Duration::from_secs(1));
    measure(|| (0..times).for_each(|_| tick(step)))
}

#[test]
fn a_tick_allocates_nothing_but_the_view_that_signals_are_shown() {
    let without = ticks(0, Duration::from_micros(50), 10_000);
    assert_none("without signals", without);
    let (lanes, samplings) = (2, 40);
    let with = ticks(8, Duration::from_millis(20), samplings);
    // A list of the lanes, and of each its name and its scope.
    let view = 1 + 2 * lanes;
    assert!(with.count_total <= u64::from(view * samplings), "{with:?}");
    assert_eq!(with.bytes_current, 0, "{with:?}");
}

/// A gauge at half its target, read at every tick.
struct Half(String);

impl Signal for Half {
    fn name(&self) -> &str {
        &self.0
    }

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(Duration::from_secs(5))
    }

    fn period(&self) -> Duration {
        Duration::from_millis(10)
    }

    fn sample(&mut self, _now: Instant, _view: &View) -> Reading {
        Reading::pressure(0.5)
    }
}

/// Bytes still held of what `make` made.
fn bytes_of<T>(make: impl FnOnce() -> T) -> (i64, T) {
    let mut made = None;
    let info = measure(|| made = Some(make()));
    (info.bytes_current, made.unwrap())
}

fn with_lanes(lanes: u32) -> Controller {
    let lane =
        |settings: Settings, n| settings.lane(LaneSettings::new(&format!("lane-{n}"), SLOTS));
    let settings = (0..lanes).fold(Settings::default(), lane);
    let clock = ManualClock::new();
    let builder = Controller::builder(Config::new(settings).unwrap());
    let controller = builder.build_manual(clock.shared()).unwrap();
    for second in 1..1_000 {
        controller.tick(Instant::from_nanos(second * 1_000_000_000));
    }
    controller
}

#[test]
fn an_idle_controller_and_its_lanes_are_small() {
    let (one, _keep) = bytes_of(|| with_lanes(1));
    let (nine, _keep) = bytes_of(|| with_lanes(9));
    let lane = (nine - one) / 8;
    assert!((1..=CONTROLLER_BYTES_MAX).contains(&one), "{one}");
    assert!((1..=LANE_BYTES_MAX).contains(&lane), "{lane}");
}

#[test]
fn a_waiter_is_small_and_leaves_nothing_behind_but_its_place() {
    const WAITERS: i64 = 4_096;
    let mut settings = LaneSettings::new("main", 1);
    settings.queue_len_max = Some(WAITERS as u32);
    let (_controller, lane, _clock) = support::manual_with(Settings::default().lane(settings));
    let _held = lane.try_admit(&T1).unwrap();
    let mut waiting: Vec<AdmitOwned> = Vec::with_capacity(WAITERS as usize);
    let mut fill = || {
        waiting.clear();
        for key in 0..WAITERS as u64 {
            let mut admit = lane.admit_owned(&T1.key(key));
            assert!(admit.poll_admit(Waker::noop()).is_pending());
            waiting.push(admit);
        }
    };
    let grown = measure(&mut fill);
    let each = grown.bytes_current / WAITERS;
    assert!((1..=WAITER_BYTES_MAX).contains(&each), "{grown:?}");
    fill();
    let again = measure(&mut fill);
    assert_eq!(again.bytes_current, 0, "{again:?}");
}
