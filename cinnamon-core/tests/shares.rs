//! Slots that are one tier's.
#![allow(
    clippy::expect_used,
    reason = "helpers of tests, outside of a test function"
)]

mod support;

use std::task::Poll;
use std::time::Duration;

use cinnamon_core::{
    Clock, Completion, Expected, Lane, LaneSettings, Reason, Request, Settings, ShareSettings,
    Tier, Verdict,
};
use support::*;

fn settings(limit: u32, shares: &[ShareSettings]) -> Settings {
    let lane = LaneSettings::new("main", limit);
    Settings::default().lane(shares.iter().fold(lane, |lane, &share| lane.share(share)))
}

fn at(tier: Tier) -> Request {
    Request::new(tier)
}

fn is_free_for(lane: &Lane, tier: Tier) -> bool {
    lane.explain(&at(tier)).expect("it works").answer == Expected::Runs
}

#[test]
fn a_hard_share_is_there_when_its_tier_comes_and_lent_to_nobody() {
    let hard = ShareSettings::hard(Tier::T0, 0.25);
    let (_controller, lane, _) = manual_with(settings(8, &[hard]));
    let (_, waker) = CountingWaker::new();
    let held: Vec<_> = (0..6)
        .map(|_| lane.try_admit(&at(Tier::T1)).unwrap())
        .collect();
    assert!(!is_free_for(&lane, Tier::T1) && is_free_for(&lane, Tier::T0));
    assert_eq!(
        lane.try_admit(&at(Tier::T1)).unwrap_err().reason(),
        Reason::Busy
    );
    let mut waits = lane.admit(&at(Tier::T1));
    assert!(waits.poll_admit(&waker).is_pending());
    // Somebody waits, and t0 runs all the same.
    let first = lane.try_admit(&at(Tier::T0)).unwrap();
    let second = lane.try_admit(&at(Tier::T0)).unwrap();
    assert_eq!(
        lane.try_admit(&at(Tier::T0)).unwrap_err().reason(),
        Reason::Busy
    );
    drop(first);
    assert!(
        waits.poll_admit(&waker).is_pending(),
        "what comes back of a hard share is kept"
    );
    drop(second);
    assert_eq!(lane.snapshot().in_use_by_tier, [0, 6, 0, 0, 0, 0]);
    drop(held);
    assert!(waits.poll_admit(&waker).is_ready());
    drop(waits);
    assert_at_rest(&lane.snapshot());
}

#[test]
fn a_stealable_share_is_lent_and_comes_back_with_the_next_slot() {
    let lent = ShareSettings::stealable(Tier::T4, 0.25);
    let (_controller, lane, _) = manual_with(settings(4, &[lent]));
    let (_, waker) = CountingWaker::new();
    let mut held: Vec<_> = (0..4)
        .map(|_| lane.try_admit(&at(Tier::T1)).unwrap())
        .collect();
    let mut better = lane.admit(&at(Tier::T0));
    assert!(better.poll_admit(&waker).is_pending());
    let mut owed = lane.admit(&at(Tier::T4));
    assert!(owed.poll_admit(&waker).is_pending());
    let mut more = lane.admit(&at(Tier::T4));
    assert!(more.poll_admit(&waker).is_pending());
    drop(held.pop());
    let Poll::Ready(Ok(served)) = owed.poll_admit(&waker) else {
        panic!("the slot that comes back is its");
    };
    drop(held.pop());
    assert!(
        more.poll_admit(&waker).is_pending(),
        "beyond its share strict priority holds"
    );
    assert!(better.poll_admit(&waker).is_ready());
    drop(served);
}

/// 100 requests a second are served by 4 slots, 200 come: as many of t1 as fit, and as many of t4.
fn overload(settings: Settings) -> [f64; 2] {
    let (controller, lane, clock) = manual_with(settings);
    let (_, waker) = CountingWaker::new();
    let mut waiting = Vec::new();
    let mut running = std::collections::VecDeque::new();
    for step in 0..6_000u64 {
        clock.advance(Duration::from_millis(5));
        let tier = if step % 2 == 0 { Tier::T1 } else { Tier::T4 };
        waiting.push(lane.admit_owned(&at(tier).key(step)));
        if step % 2 == 0
            && let Some(permit) = running.pop_front()
        {
            let permit: cinnamon_core::OwnedPermit = permit;
            permit.finish(Completion::success());
        }
        waiting.retain_mut(|admit| match admit.poll_admit(&waker) {
            Poll::Ready(result) => {
                running.extend(result.ok());
                false
            }
            Poll::Pending => true,
        });
        if step % 4 == 0 {
            controller.tick(clock.now());
        }
    }
    let verdicts = lane.snapshot().verdicts;
    let slot = Verdict::Admit(cinnamon_core::AdmitKind::Slot);
    [Tier::T1, Tier::T4].map(|tier| verdicts.get(tier, slot) as f64 / 3_000.0)
}

#[test]
fn in_an_overload_a_share_is_served_and_no_more_than_it() {
    let [t1, t4] = overload(settings(4, &[]));
    assert!(t1 > 0.97 && t4 < 0.06, "strict priority: {t1} {t4}");
    let [t1, t4] = overload(settings(4, &[ShareSettings::stealable(Tier::T4, 0.25)]));
    assert!((0.68..=0.80).contains(&t1), "{t1}");
    assert!((0.20..=0.32).contains(&t4), "{t4}");
}

#[test]
fn a_hard_slot_is_had_by_its_tier_while_a_better_one_waits_for_others() {
    let hard = ShareSettings::hard(Tier::T4, 0.2);
    let (_controller, lane, _) = manual_with(settings(10, &[hard]));
    let (_, waker) = CountingWaker::new();
    let _held: Vec<_> = (0..8)
        .map(|_| lane.try_admit(&at(Tier::T1)).unwrap())
        .collect();
    let mut better = lane.admit(&at(Tier::T1));
    assert!(better.poll_admit(&waker).is_pending());
    assert!(is_free_for(&lane, Tier::T4));
    assert!(lane.try_admit(&at(Tier::T4)).is_ok());
}

#[test]
fn slots_that_are_no_longer_reserved_go_to_who_waits() {
    let hard = ShareSettings::hard(Tier::T0, 0.5);
    let (controller, lane, clock) = manual_with(settings(10, &[hard]));
    let (_, waker) = CountingWaker::new();
    let _held: Vec<_> = (0..5)
        .map(|_| lane.try_admit(&at(Tier::T3)).unwrap())
        .collect();
    let mut waits = lane.admit(&at(Tier::T3));
    assert!(waits.poll_admit(&waker).is_pending());
    let without = cinnamon_core::Config::new(settings(10, &[])).unwrap();
    controller.reconfigure(without).unwrap();
    controller.tick(clock.now());
    assert!(waits.poll_admit(&waker).is_ready());
}
