//! The handles under overload: the gate, who it speaks for, and when it gives way.

mod support;

use std::collections::VecDeque;
use std::task::Poll;
use std::time::Duration;

use cinnamon_core::{
    AdmitOwned, Binding, Clock, Completion, Controller, LaneSettings, OwnedPermit, Reason, Request,
    Retry, Settings, Tier,
};
use support::*;

/// Who is still there after an overload.
struct Load {
    running: VecDeque<OwnedPermit>,
    waiting: Vec<AdmitOwned>,
}

impl Load {
    /// Nobody comes any more; who waits is served, and everybody finishes. No tick meanwhile.
    fn run_out(mut self) {
        let (_, waker) = CountingWaker::new();
        while let Some(permit) = self.running.pop_front() {
            permit.finish(Completion::success());
            self.waiting
                .retain_mut(|admit| match admit.poll_admit(&waker) {
                    Poll::Ready(result) => {
                        self.running.extend(result.ok());
                        false
                    }
                    Poll::Pending => true,
                });
        }
        assert!(self.waiting.is_empty());
    }
}

/// Drives a lane of `limit` slots into overload on the manual clock: one completion and `offers`
/// offers of each tier a millisecond.
fn overload(
    controller: &Controller,
    lane: &cinnamon_core::Lane,
    clock: &cinnamon_core::ManualClock,
    ms: u64,
    offers: u64,
) -> Load {
    let (_, waker) = CountingWaker::new();
    let mut running = VecDeque::new();
    let mut waiting = Vec::new();
    for step in 0..ms {
        clock.advance(Duration::from_millis(1));
        for n in 0..offers * 6 {
            let key = step * 1_000 + n;
            waiting.push(lane.admit_owned(&Request::new(Tier::ALL[(n % 6) as usize]).key(key)));
        }
        waiting.retain_mut(|admit| match admit.poll_admit(&waker) {
            Poll::Ready(result) => {
                running.extend(result.ok());
                false
            }
            Poll::Pending => true,
        });
        if let Some(permit) = running.pop_front() {
            permit.finish(Completion::success());
        }
        if step % 10 == 0 {
            controller.tick(clock.now());
        }
    }
    Load { running, waiting }
}

#[test]
fn overload_engages_the_gate_which_says_why() {
    let (controller, lane, clock) = manual(4);
    let busy = overload(&controller, &lane, &clock, 2_000, 1);
    let snapshot = lane.snapshot();
    assert!(
        snapshot.engaged && snapshot.budget_per_s.is_some(),
        "{snapshot:#?}"
    );
    assert!(
        (900.0..1_100.0).contains(&snapshot.capacity_per_s),
        "{snapshot:#?}"
    );
    assert!(
        (5_500.0..6_500.0).contains(&snapshot.offered_per_s),
        "{snapshot:#?}"
    );
    assert!(
        (64.0..192.0).contains(&snapshot.threshold_levels),
        "one sixth fits: {snapshot:#?}"
    );
    assert_eq!(snapshot.binding, Binding::Backlog { lane: 0 });

    let rejected = lane.try_admit(&Request::new(Tier::T5).key(1)).unwrap_err();
    assert_eq!(rejected.reason(), Reason::Shed);
    assert_eq!(rejected.threshold().to_string(), snapshot.threshold);
    assert!(rejected.rank() >= rejected.threshold() && rejected.did_no_work());
    assert!(matches!(rejected.retry(), Retry::After(wait) if wait >= Duration::from_millis(300)));
    assert!(rejected.to_string().starts_with("shed: t5."), "{rejected}");
    drop(busy);
}

#[test]
fn lanes_of_one_scope_have_the_lowest_threshold_any_of_them_needs() {
    let settings = Settings::default()
        .lane(LaneSettings::new("read", 4))
        .lane(LaneSettings::new("write", 4))
        .lane(LaneSettings::new("other", 4).scope("another disk"));
    let (controller, read, clock) = manual_with(settings);
    let busy = overload(&controller, &read, &clock, 2_000, 1);
    let snapshot = controller.snapshot();
    let [read, write, other] = ["read", "write", "other"].map(|name| snapshot.lane(name).unwrap());
    assert!(read.engaged && !write.engaged);
    assert_eq!(write.threshold, read.threshold);
    assert_eq!(write.binding, Binding::Backlog { lane: 0 });
    assert_eq!(
        (other.threshold.as_str(), other.binding),
        ("open", Binding::Nothing)
    );
    let write = controller.lane("write").unwrap();
    let t5_write = write.try_admit(&Request::new(Tier::T5).key(1));
    assert_eq!(t5_write.unwrap_err().reason(), Reason::Shed);
    drop(busy);
}

#[test]
fn a_closed_gate_yields_to_idle_slots_of_its_own_lane() {
    let settings = Settings::default()
        .lane(LaneSettings::new("read", 4))
        .lane(LaneSettings::new("write", 4));
    let (controller, read, clock) = manual_with(settings);
    let busy = overload(&controller, &read, &clock, 2_000, 1);
    let t5 = Request::new(Tier::T5).key(1);
    assert_eq!(read.try_admit(&t5).unwrap_err().reason(), Reason::Shed);
    busy.run_out();
    // The load is gone and every slot is free; the next tick, up to 20 ms away, will open the gate.
    assert!(read.snapshot().threshold_levels < 768.0);
    let first = read.try_admit(&t5).unwrap();
    let second = read.try_admit(&t5).unwrap();
    let third = read.try_admit(&t5).unwrap();
    assert_eq!(
        read.try_admit(&t5).unwrap_err().reason(),
        Reason::Shed,
        "the last slot is for those whom the gate lets in"
    );
    let write = controller.lane("write").unwrap();
    assert_eq!(
        write.try_admit(&t5).unwrap_err().reason(),
        Reason::Shed,
        "idle slots here are not idle capacity of what both lanes share"
    );
    drop((first, second, third));
}

#[test]
fn idle_slots_yield_to_nobody_whom_an_override_sheds() {
    let (controller, lane, clock) = manual(4);
    let busy = overload(&controller, &lane, &clock, 2_000, 1);
    controller
        .set_override("shed t5 for 1h".parse().unwrap())
        .unwrap();
    busy.run_out();
    let bound_by = lane.snapshot().bound_by;
    assert_eq!(bound_by, "backlog of lane main", "the law's gate is lower");
    let t5 = lane.try_admit(&Request::new(Tier::T5).key(1)).unwrap_err();
    assert_eq!(
        (t5.reason(), t5.binding()),
        (Reason::Shed, Binding::Override)
    );
    assert!(lane.try_admit(&Request::new(Tier::T4).key(1)).is_ok());
}

#[test]
fn a_gate_that_nobody_moves_any_more_opens() {
    let (controller, lane, clock) = manual(4);
    let busy = overload(&controller, &lane, &clock, 2_000, 1);
    let t5 = Request::new(Tier::T5).key(1);
    assert_eq!(lane.try_admit(&t5).unwrap_err().reason(), Reason::Shed);
    drop(busy);
    clock.advance(Duration::from_millis(2_001));
    // Who is refused before the lock looks every 64th time whether somebody still moves the gate.
    let refused = (0..1_000).take_while(|_| lane.try_admit(&t5).is_err());
    let refused = refused.count();
    assert!(
        refused <= 64,
        "the control thread is dead, fail open: {refused}"
    );
    assert_eq!(lane.snapshot().threshold, "open");
}
