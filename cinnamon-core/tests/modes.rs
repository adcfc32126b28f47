//! Enforce, Monitor, Off: what each does, and that Monitor says what Enforce would do.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of tests may end the test that calls it"
)]

mod support;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use cinnamon_core::simulation::{Answer, Done, Offer, Policy, Rng, VirtualController};
use cinnamon_core::{
    Clock, Instant, KeyHash, LaneSettings, Mode, OwnedPermit, Reason, Request, Settings, Tier,
    Verdict, VerdictCounts,
};
use support::*;

/// A request of a trace in which neither arrivals nor service times depend on anybody.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at_ns: u64,
    service_ns: u64,
    request: Request,
}

/// Calm, then twice the capacity, then calm, then a burst; 10 slots of 10 ms. A third has a deadline, and
/// some would rather not wait at all.
fn trace(seed: u64) -> Vec<Arrival> {
    let mut rng = Rng::new(seed);
    let mut at_s = 0.0;
    let mut arrivals = Vec::new();
    while at_s < 12.0 {
        let load = if (3.0..7.0).contains(&at_s) { 2.0 } else { 0.7 };
        at_s += rng.exponential(1.0 / (1_000.0 * load));
        let copies = if (9.0..9.001).contains(&at_s) { 300 } else { 1 };
        for copy in 0..copies {
            let tier = Tier::ALL[rng.weighted(&[2.0, 28.0, 20.0, 20.0, 15.0, 15.0])];
            let at_ns = (at_s * 1e9) as u64 + copy;
            let mut request = Request::new(tier).key(rng.bits());
            match rng.bits() % 6 {
                0 | 1 => {
                    let deadline =
                        Instant::from_nanos(at_ns + 50_000_000 + rng.bits() % 500_000_000);
                    request = request.deadline(deadline);
                }
                2 => request = request.max_wait(Duration::ZERO),
                _ => {}
            }
            arrivals.push(Arrival {
                at_ns,
                service_ns: (rng.exponential(0.01) * 1e9) as u64 + 1,
                request,
            });
        }
    }
    arrivals
}

/// Runs the trace in this mode; the counts of verdicts after every single event.
fn run(arrivals: &[Arrival], mode: Mode) -> (Vec<VerdictCounts>, usize) {
    let mut controller = VirtualController::new(Settings::one_lane("main", 10)).unwrap();
    controller.set_mode(Instant::ZERO, mode);
    let mut ends: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    let mut counts = Vec::new();
    let mut waited = 0;
    let mut next = 0;
    loop {
        let end = ends.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        let tick = controller.next_wakeup().unwrap().as_nanos();
        let arrival = arrivals.get(next).map_or(u64::MAX, |arrival| arrival.at_ns);
        if arrival == u64::MAX {
            break;
        }
        let now_ns = end.min(tick).min(arrival);
        let now = Instant::from_nanos(now_ns);
        if now_ns == end {
            let Some(Reverse((_, token))) = ends.pop() else {
                break;
            };
            controller.finish(now, token, Done::SUCCESS);
        } else if now_ns == tick {
            controller.wake(now);
            counts.push(controller.snapshot().verdicts);
        } else {
            let token = next as u32;
            let offer = Offer {
                token,
                request: arrivals[next].request,
                priority: KeyHash::new(0, 0).rank(Tier::T2, 0).priority(),
                lane: 0,
            };
            match controller.offer(now, &offer) {
                Answer::Run => ends.push(Reverse((now_ns + arrivals[next].service_ns, token))),
                Answer::Wait => waited += 1,
                Answer::Refuse(_) => {}
            }
            next += 1;
            counts.push(controller.snapshot().verdicts);
        }
        let mut answers = Vec::new();
        controller.take_answers(&mut answers);
        for (token, answer) in answers {
            if answer == Answer::Run {
                ends.push(Reverse((
                    now_ns + arrivals[token as usize].service_ns,
                    token,
                )));
            }
        }
    }
    (counts, waited)
}

#[test]
fn bug_79_monitor_says_verdict_by_verdict_what_enforce_does_and_lets_nobody_wait() {
    for seed in 1..=3 {
        let arrivals = trace(seed);
        let (enforced, waited) = run(&arrivals, Mode::Enforce);
        let (monitored, held_up) = run(&arrivals, Mode::Monitor);
        assert!(waited > 1_000 && held_up == 0);
        assert_eq!(enforced.len(), monitored.len(), "seed {seed}");
        let differs = enforced.iter().zip(&monitored).position(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}: first event that differs");
        let last = &monitored[monitored.len() - 1];
        for reason in [Reason::Shed, Reason::Busy, Reason::Evicted, Reason::Expired] {
            let count = last.total(Verdict::Refuse(reason));
            assert!(count > 0, "seed {seed}: {reason} should occur");
        }
    }
}

#[test]
fn who_waits_is_let_in_when_decisions_no_longer_count_and_slots_stay_counted() {
    for mode in [Mode::Monitor, Mode::Off] {
        let (controller, lane, _) = manual(1);
        let held = lane.try_admit(&T1).unwrap();
        let (_, waker) = CountingWaker::new();
        let mut waiting = lane.admit(&T1);
        assert!(waiting.poll_admit(&waker).is_pending());
        controller.set_mode(mode);
        let std::task::Poll::Ready(Ok(let_in)) = waiting.poll_admit(&waker) else {
            unreachable!("{mode:?}: it is let in");
        };
        let more = lane.try_admit(&T1).unwrap();
        controller.set_mode(Mode::Enforce);
        assert!(
            lane.try_admit(&T1).is_err(),
            "{mode:?}: the slot is still held"
        );
        drop((held, let_in, more));
        drop(waiting);
        assert_at_rest(&lane.snapshot());
        assert!(lane.try_admit(&T1).is_ok());
    }
}

#[test]
fn the_lesser_of_the_controllers_and_the_lanes_mode_holds() {
    let settings = Settings::one_lane("main", 1);
    let (controller, lane, _) = manual_with(settings);
    let _held = lane.try_admit(&T1).unwrap();
    for (whole, own, expected) in [
        (Mode::Enforce, Mode::Monitor, Mode::Monitor),
        (Mode::Monitor, Mode::Enforce, Mode::Monitor),
        (Mode::Off, Mode::Monitor, Mode::Off),
        (Mode::Enforce, Mode::Enforce, Mode::Enforce),
    ] {
        controller.set_mode(whole);
        lane.set_mode(own);
        assert_eq!(lane.snapshot().mode, expected);
        assert_eq!(lane.try_admit(&T1).is_ok(), expected != Mode::Enforce);
    }
}

#[test]
fn what_a_monitored_lane_would_need_no_other_lane_suffers_for() {
    let settings = Settings::default()
        .lane(LaneSettings::new("a", 2))
        .lane(LaneSettings::new("b", 2));
    let (controller, a, clock) = manual_with(settings);
    let b = controller.lane("b").unwrap();
    a.set_mode(Mode::Monitor);
    let mut running: Vec<(Instant, OwnedPermit)> = Vec::new();
    for n in 0..20_000u64 {
        let now = clock.advance(Duration::from_micros(500));
        running.retain(|(end, _)| *end > now);
        // Ten times what `a` can do, and a tenth of what `b` can.
        let permit = a.try_admit_owned(&Request::new(Tier::T5).key(n)).unwrap();
        running.push((now.after(Duration::from_millis(10)), permit));
        if n % 100 == 0 {
            let permit = b.try_admit_owned(&Request::new(Tier::T5).key(n)).unwrap();
            running.push((now.after(Duration::from_millis(10)), permit));
        }
        if n % 20 == 0 {
            controller.tick(clock.now());
        }
    }
    let would_shed = a.snapshot().verdicts.total(Verdict::Refuse(Reason::Shed));
    assert!(would_shed > 10_000, "{would_shed}");
    assert_eq!(b.snapshot().verdicts.refused(), 0);
}

#[test]
fn drain_waits_for_what_runs_and_not_for_shadows() {
    let (controller, lane, clock) = manual(1);
    controller.set_mode(Mode::Monitor);
    let (first, second) = (lane.try_admit(&T1).unwrap(), lane.admit(&T1));
    let (_, waker) = CountingWaker::new();
    let mut second = second;
    let std::task::Poll::Ready(Ok(second)) = second.poll_admit(&waker) else {
        unreachable!("in monitor nobody waits");
    };
    clock.advance(Duration::from_millis(1));
    drop(second);
    // In the shadow the second still waits for the first.
    assert_eq!(lane.snapshot().shadow_waiting, 1);
    let timeout = controller.drain(Duration::ZERO).unwrap_err();
    assert_eq!((timeout.running, timeout.refused), (1, 0));
    drop(first);
    assert_eq!(controller.drain(Duration::from_secs(60)), Ok(()));
}

#[test]
fn a_closed_lane_refuses_in_every_mode() {
    for mode in [Mode::Monitor, Mode::Off, Mode::Enforce] {
        let (controller, lane, _) = manual(1);
        controller.set_mode(mode);
        controller.close();
        let rejected = lane.try_admit(&T1).unwrap_err();
        assert_eq!(rejected.reason(), Reason::Closed);
        assert_at_rest(&lane.snapshot());
    }
}
