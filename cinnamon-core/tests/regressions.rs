//! Faults that were found in this crate, each by the scenario that showed it.

#![allow(clippy::expect_used, reason = "a failed expectation is a failed test")]

mod support;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use cinnamon_core::simulation::{
    Arrivals, Clients, Phase, PhaseReport, Scenario, Service, Shape, VirtualController,
};
use cinnamon_core::{
    Action, AdmitOwned, Clock, Completion, Config, Controller, HealthState, Instant, Lane,
    LaneSnapshot, ManualClock, Mode, Override, OwnedPermit, Reason, Request, Settings, Target,
    Tenant, Tier,
};
use support::*;

/// A store of `limit` slots that serves each request in `service`, on the manual clock.
struct VirtualStore {
    controller: Controller,
    lane: Lane,
    clock: ManualClock,
    waker: Waker,
    service: Duration,
    running: VecDeque<(Instant, OwnedPermit)>,
    waiting: Vec<AdmitOwned>,
    next_tick: Instant,
    finish: fn(OwnedPermit),
}

impl VirtualStore {
    fn new(limit: u32, service: Duration, finish: fn(OwnedPermit)) -> Self {
        let (controller, lane, clock) = manual(limit);
        let next_tick = clock.now();
        Self {
            controller,
            lane,
            clock,
            waker: Waker::noop().clone(),
            service,
            running: VecDeque::new(),
            waiting: Vec::new(),
            next_tick,
            finish,
        }
    }

    fn start(&mut self, permit: OwnedPermit) {
        self.running
            .push_back((self.clock.now().after(self.service), permit));
    }

    /// Lets `step` pass; `stalled` stores finish nothing.
    fn pass(&mut self, step: Duration, stalled: bool) {
        let now = self.clock.advance(step);
        while !stalled && self.running.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, permit)) = self.running.pop_front() {
                (self.finish)(permit);
            }
            self.look();
        }
        if now >= self.next_tick {
            self.next_tick = now.after(Duration::from_millis(10));
            self.controller.tick(now);
            self.look();
        }
    }

    fn look(&mut self) {
        let mut admitted = Vec::new();
        let waker = &self.waker;
        self.waiting
            .retain_mut(|admit| match admit.poll_admit(waker) {
                Poll::Ready(result) => {
                    admitted.extend(result.ok());
                    false
                }
                Poll::Pending => true,
            });
        admitted.into_iter().for_each(|permit| self.start(permit));
    }

    /// Offers one request that waits; `false` when it was refused on the spot.
    fn offer(&mut self, request: &Request) -> bool {
        let mut admit = self.lane.admit_owned(request);
        match admit.poll_admit(&self.waker) {
            Poll::Ready(Ok(permit)) => self.start(permit),
            Poll::Ready(Err(_)) => return false,
            Poll::Pending => self.waiting.push(admit),
        }
        true
    }

    /// Offers one request that does not wait.
    fn try_offer(&mut self, request: &Request) -> bool {
        match self.lane.try_admit_owned(request) {
            Ok(permit) => {
                self.start(permit);
                true
            }
            Err(_) => false,
        }
    }

    fn refused(&self) -> u64 {
        self.lane.snapshot().verdicts.refused()
    }
}

fn succeed(permit: OwnedPermit) {
    permit.finish(Completion::success());
}

fn mixed(n: u64) -> Request {
    Request::new(Tier::ALL[(n % 6) as usize]).key(n)
}

/// A window without completions was taken for a capacity of zero: after a stall of 6 s a pool of 4
/// refused for 45 s, t0 included.
#[test]
fn a_stall_of_the_store_does_not_outlast_itself() {
    // 4 slots of 20 ms serve 200 a second; 140 are offered.
    let mut store = VirtualStore::new(4, Duration::from_millis(20), succeed);
    let gap = Duration::from_micros(7_143);
    let mut run = |seconds: f64, stalled: bool, from: u64| {
        let before = store.refused();
        let steps = (seconds / gap.as_secs_f64()) as u64;
        for n in from..from + steps {
            store.pass(gap, stalled);
            store.offer(&mixed(n));
        }
        store.refused() - before
    };
    assert_eq!(run(3.0, false, 0), 0);
    run(6.0, true, 10_000);
    run(5.0, false, 20_000);
    assert_eq!(
        run(10.0, false, 30_000),
        0,
        "refused later than 5 s after the stall"
    );
}

/// Capacity was counted in what the work cost and the load in what it was thought to cost: with
/// estimates ten times too high half of a calm load was shed, and stayed shed.
#[test]
fn estimates_in_other_units_than_the_real_cost_shed_nothing() {
    for (estimate, finish) in [
        (
            50,
            (|permit: OwnedPermit| permit.finish(Completion::success().cost(1))) as fn(OwnedPermit),
        ),
        (1, |permit| permit.finish(Completion::success().cost(50))),
    ] {
        let mut store = VirtualStore::new(20, Duration::from_millis(20), finish);
        let mut run = |steps: u64, gap_us: u64| {
            let before = store.refused();
            for n in 0..steps {
                store.pass(Duration::from_micros(gap_us), false);
                store.offer(&mixed(n).cost(estimate));
            }
            store.refused() - before
        };
        assert_eq!(run(3_000, 1_400), 0, "0.7x, estimate {estimate}");
        assert!(run(8_000, 500) > 2_000, "2x, estimate {estimate}");
        run(3_000, 1_400);
        assert_eq!(
            run(10_000, 1_400),
            0,
            "0.7x some seconds after, estimate {estimate}"
        );
    }
}

/// Callers that never wait leave no backlog, so the gate never engaged and every tier was refused
/// alike.
#[test]
fn callers_that_do_not_wait_are_shed_by_tier_too() {
    let mut store = VirtualStore::new(20, Duration::from_millis(20), succeed);
    let (mut t0, mut t0_served) = (0u32, 0u32);
    for n in 0..120_000u64 {
        store.pass(Duration::from_micros(83), false);
        let important = n % 20 == 0;
        let tier = if important { Tier::T0 } else { Tier::T5 };
        let served = store.try_offer(&Request::new(tier).key(n));
        if important && n > 24_000 {
            t0 += 1;
            t0_served += u32::from(served);
        }
    }
    let share = f64::from(t0_served) / f64::from(t0);
    assert!(share > 0.75, "{share} of t0 served at 12x");
}

/// Callers that only drop their permits teach no service time; with a service time of zero the law
/// had no scale, and a calm pool of 5 lost 8 %.
#[test]
fn callers_that_only_drop_their_permits_lose_nothing_in_calm() {
    let mut store = VirtualStore::new(5, Duration::from_millis(500), drop);
    let mut rng = cinnamon_core::simulation::Rng::new(4);
    for n in 0..4_000u64 {
        let gap = Duration::from_secs_f64(rng.exponential(1.0 / 7.0));
        let mut left = gap;
        while left > Duration::ZERO {
            let step = left.min(Duration::from_millis(5));
            store.pass(step, false);
            left -= step;
        }
        store.offer(&mixed(n));
    }
    let refused = store.refused();
    assert!(refused < 4, "seed 4: {refused} of 4,000 refused at 0.7x");
}

/// One reading more than a second old, of a thread that was held up, moved time on for good and
/// expired whoever waited.
#[test]
fn an_old_reading_of_the_clock_expires_nobody() {
    let (controller, lane, clock) = manual(1);
    let _held = lane.try_admit(&T1).unwrap();
    clock.advance(Duration::from_secs(10));
    let mut waiting = lane.admit(&T1.max_wait(Duration::from_millis(400)));
    let (_, waker) = CountingWaker::new();
    assert!(waiting.poll_admit(&waker).is_pending());
    let old = Instant::from_nanos(clock.now().as_nanos() - 1_100_000_000);
    controller.tick(old);
    clock.advance(Duration::from_millis(1));
    controller.tick(clock.now());
    assert!(waiting.poll_admit(&waker).is_pending());
}

/// One request too large for the queue emptied it.
#[test]
fn a_request_that_fits_no_queue_empties_none() {
    let (_controller, lane, _clock) = manual(1);
    let _held = lane.try_admit(&T1).unwrap();
    let (_, waker) = CountingWaker::new();
    let mut waiting: Vec<_> = (0..40).map(|_| lane.admit(&T1.bytes(1_000))).collect();
    assert!(
        waiting
            .iter_mut()
            .all(|admit| admit.poll_admit(&waker).is_pending())
    );
    let polled = lane
        .admit(&Request::new(Tier::T0).bytes(u32::MAX))
        .poll_admit(&waker);
    assert!(matches!(polled, Poll::Ready(Err(r)) if r.reason() == Reason::Evicted));
    assert_eq!(lane.snapshot().waiting, 40);
}

/// A failed lane went on admitting after it was closed, and draining did not see what ran in it.
#[test]
fn a_failed_lane_can_still_be_closed_and_drained() {
    let (controller, lane, _clock) = manual(1);
    lane.break_engine();
    let running = lane.try_admit(&T1).unwrap();
    assert_eq!(lane.snapshot().failed_open_in_use, 1);
    let timeout = controller.drain(Duration::ZERO).unwrap_err();
    assert_eq!(timeout.running, 1);
    assert_eq!(lane.try_admit(&T1).unwrap_err().reason(), Reason::Closed);
    drop(running);
    controller.drain(Duration::ZERO).unwrap();
    assert_eq!(
        (
            lane.snapshot().failed_open_in_use,
            lane.snapshot().failed_open
        ),
        (0, 1)
    );
}

/// A waker may own a permit of the lane it waits for, as the task of an executor does. Dropping it
/// under the lane's lock gave the permit back under that lock: a deadlock.
#[test]
fn a_waker_that_owns_a_permit_may_be_replaced_and_dropped() {
    struct Task(#[expect(dead_code, reason = "held, to be dropped")] Mutex<OwnedPermit>);
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let (_controller, lane, _clock) = manual(2);
    let task = || {
        Waker::from(Arc::new(Task(Mutex::new(
            lane.try_admit_owned(&T1).unwrap(),
        ))))
    };
    let (first, second) = (task(), task());
    let mut admit = lane.admit_owned(&T1.cost(3));
    assert!(admit.poll_admit(&first).is_pending());
    drop(first);
    // Replaces the first, whose permit goes back and makes room.
    assert!(matches!(admit.poll_admit(&second), Poll::Ready(Ok(_))));
    drop(second);
    let (held, last) = (lane.try_admit_owned(&T1).unwrap(), task());
    let mut admit = lane.admit_owned(&T1);
    assert!(admit.poll_admit(&last).is_pending());
    drop(last);
    drop(admit);
    drop(held);
    assert_at_rest(&lane.snapshot());
}

/// Who was woken by a tick was woken while the controller was locked, so it could not tick.
#[test]
fn who_is_woken_by_a_tick_may_tick() {
    struct Ticker(Controller);
    impl Wake for Ticker {
        fn wake(self: Arc<Self>) {
            self.0.tick(self.0.clock().now());
        }
    }
    let (controller, lane, clock) = manual(1);
    let _held = lane.try_admit(&T1).unwrap();
    let mut waiting = lane.admit(&T1.max_wait(Duration::from_millis(1)));
    let waker = Waker::from(Arc::new(Ticker(controller.clone())));
    assert!(waiting.poll_admit(&waker).is_pending());
    clock.advance(Duration::from_millis(5));
    controller.tick(clock.now());
    assert_eq!(controller.snapshot().ticks, 2);
}

/// After the clock was set back by an hour the control thread waited for an hour.
#[test]
fn the_control_thread_goes_on_when_the_clock_is_set_back() {
    let clock = ManualClock::new();
    clock.set(Instant::from_nanos(3_600_000_000_000));
    let config = Config::new(Settings::one_lane("main", 1)).unwrap();
    let controller = Controller::builder(config)
        .clock(clock.shared())
        .build()
        .unwrap();
    let ticks_beyond = |ticks: u64| {
        while controller.snapshot().ticks <= ticks {
            assert!(!controller.snapshot().failed);
            clock.advance(Duration::from_micros(10));
            thread::yield_now();
        }
    };
    ticks_beyond(2);
    clock.set(Instant::from_nanos(10));
    ticks_beyond(controller.snapshot().ticks + 2);
}

/// After the clock was set back by an hour the health stood still for an hour, and each tick was counted as late.
#[test]
fn health_and_late_ticks_go_on_when_the_clock_is_set_back() {
    let (controller, lane, clock) = manual(2);
    let _held = lane.try_admit(&Request::new(Tier::T1)).unwrap();
    let tick_for = |ticks: u32| {
        for _ in 0..ticks {
            clock.advance(Duration::from_micros(20_100));
            let _permit = lane.try_admit(&Request::new(Tier::T1));
            controller.tick(clock.now());
        }
        controller.snapshot()
    };
    clock.set(Instant::from_nanos(3_600_000_000_000));
    controller.report_canary(false);
    assert_eq!(tick_for(5).health.state, HealthState::Saturated);
    controller.report_canary(true);
    clock.set(Instant::from_nanos(10));
    let before = controller.snapshot().ticks_late;
    let after = tick_for(500);
    assert!(after.health.state < HealthState::Saturated);
    assert!(after.ticks_late <= before + 1, "{}", after.ticks_late);
}

fn simulated(scenario: &Scenario) -> (PhaseReport, LaneSnapshot) {
    let slots = scenario.service.parallelism;
    let settings = Settings::one_lane("main", slots);
    let mut lane = VirtualController::new(settings).expect("settings are in bounds");
    let report = scenario.run(&mut lane, &mut ());
    let mut phases = report.expect("the scenario is in bounds").phases;
    let last = phases.pop().expect("a phase");
    (last, lane.snapshot())
}

/// A gate that yields to idle slots stood open to callers who never wait: between two of them slots are
/// free, whatever is asked for. On one slot every tier was served alike.
#[test]
fn callers_who_never_wait_do_not_hold_the_gate_open() {
    for slots in [1, 2, 5, 20] {
        let (overload, _) = simulated(&Scenario {
            service: Service::new(slots, 0.001 * f64::from(slots)),
            clients: Clients {
                never_wait: true,
                ..Clients::default()
            },
            phases: vec![
                Phase::new("first", 5.0, 2.0),
                Phase::new("overload", 20.0, 2.0),
            ],
            ..Scenario::default()
        });
        let (best, worst) = (
            overload.success(&[Tier::T0, Tier::T1]),
            overload.success(&[Tier::T4, Tier::T5]),
        );
        assert!(
            worst < 0.03 && best > 10.0 * worst,
            "{slots} slots: t0+t1 {best:.3}, t4+t5 {worst:.3}"
        );
    }
}

/// Two hundred requests come back at one instant, then none for as long as the next two hundred take, as
/// from a group commit. The gaps were taken for stalls and left out of the time: the capacity looked 35
/// times what it was, and the gate never closed.
#[test]
fn work_that_comes_back_together_is_no_stall() {
    let (overload, lane) = simulated(&Scenario {
        service: Service {
            shape: Shape::Constant,
            ..Service::new(200, 0.2)
        },
        arrivals: Arrivals::Batches { size: 200 },
        phases: vec![Phase::new("12x", 20.0, 12.0)],
        ..Scenario::default()
    });
    assert!(overload.goodput > 0.8, "{overload:?}");
    assert!(lane.capacity_per_s < 2_500.0, "{lane:#?}");
}

/// Each calm after an overload let the integral run to its lower bound, and the next overload began with a
/// budget of 1.2 times the capacity.
#[test]
fn calm_leaves_nothing_in_the_integral() {
    let (_, lane) = simulated(&Scenario {
        phases: vec![
            Phase::new("overload", 5.0, 2.0),
            Phase::new("calm, still engaged", 0.9, 0.5),
        ],
        ..Scenario::default()
    });
    assert!(lane.i > -0.05, "{lane:#?}");
}

/// Set while the clock was an hour ahead, and put right before the next tick: an override of two seconds held the gate
/// for that hour.
#[test]
fn an_override_set_before_the_clock_is_set_back_ends_in_its_time() {
    let (controller, lane, clock) = manual(4);
    controller.tick(clock.now());
    clock.advance(Duration::from_secs(3_600));
    let shed = Action::Shed(Tier::T1);
    let what = Override::new(Target::Controller, shed, Duration::from_secs(2));
    controller.set_override(what).unwrap();
    clock.set(Instant::from_nanos(2_000_000_000));
    controller.tick(clock.now());
    assert!(lane.try_admit(&T1).is_err());
    clock.advance(Duration::from_millis(1_990));
    controller.tick(clock.now());
    assert!(lane.try_admit(&T1).is_err(), "nor is it shorter");
    clock.advance(Duration::from_millis(10));
    controller.tick(clock.now());
    assert_eq!(controller.snapshot().overrides, []);
    lane.try_admit(&T1).unwrap().finish(Completion::success());
}

/// The end of a tenant's override was put into the time of a lane that had not seen the clock being set back, and so was
/// over before it began.
#[test]
fn a_tenants_override_holds_although_the_clock_was_just_set_back() {
    let (controller, lane, clock) = manual(4);
    clock.advance(Duration::from_secs(100));
    lane.try_admit(&T1).unwrap().finish(Completion::success());
    clock.set(Instant::from_nanos(50_000_000_000));
    let target = Target::Tenant(Tenant(7));
    let shed = Action::Shed(Tier::T1);
    let what = Override::new(target, shed, Duration::from_secs(10));
    controller.set_override(what).unwrap();
    let request = T1.tenant(Tenant(7));
    let refused = |at_s: u64| {
        clock.set(Instant::from_nanos(at_s * 1_000_000_000));
        lane.try_admit(&request)
            .err()
            .map(|rejected| rejected.reason())
    };
    assert_eq!(refused(50), Some(Reason::Capped));
    assert_eq!(refused(59), Some(Reason::Capped));
    assert_eq!(refused(60), None);
}

/// The process was stopped for an hour, or its clock was set: what ran meanwhile was taken for work of an hour. The mean
/// service time was half a minute then, and where more went wrong at once calm traffic was shed for as long.
#[test]
fn an_hour_that_nobody_saw_teaches_nothing() {
    // 4 slots of 8 ms serve 500 a second; as many are offered.
    let mut store = VirtualStore::new(4, Duration::from_millis(8), succeed);
    for step in 0..3_000u64 {
        store.offer(&mixed(step));
        if step == 1_000 {
            assert_eq!(store.lane.snapshot().free, 0, "all slots are taken");
            store.clock.advance(Duration::from_secs(3_600));
        }
        store.pass(Duration::from_millis(2), false);
        if step > 1_100 {
            let lane = store.lane.snapshot();
            assert!(lane.service_mean_s < 0.01, "step {step}: {lane:#?}");
            assert!(lane.capacity_per_s > 400.0, "step {step}: {lane:#?}");
        }
    }
}

/// A drain took the time to the present before it let the shadows of the past end: who had got a slot there in time was
/// counted as expired.
#[test]
fn a_drain_under_monitor_lets_shadows_end_in_their_own_time() {
    let (controller, lane, clock) = manual(1);
    controller.set_mode(Mode::Monitor);
    let wait = |request: Request| match lane.admit_owned(&request).poll_admit(Waker::noop()) {
        Poll::Ready(Ok(permit)) => permit,
        other => panic!("monitor lets everybody in, not {other:?}"),
    };
    let (first, second) = (wait(T1), wait(T1));
    let third = wait(T1.max_wait(Duration::from_millis(12)));
    clock.advance(Duration::from_millis(4));
    second.finish(Completion::success());
    clock.advance(Duration::from_millis(1));
    first.finish(Completion::success());
    // In the shadow the second runs from now on, for 4 ms; then it is the third's turn.
    clock.advance(Duration::from_millis(15));
    let drained = controller.drain(Duration::ZERO);
    assert!(drained.is_err(), "the third still runs");
    let lane = lane.snapshot();
    assert_eq!(admitted_to_slots(&lane), 3, "{lane:#?}");
    drop(third);
}
