//! Faults that limits of others really had, as scenarios for ours: limits that move, that are learned, that are
//! changed while they are in use. The number is the one in the book's chapter "Faults of others".

#![allow(
    clippy::expect_used,
    reason = "a helper of tests may end the test that calls it"
)]

mod support;

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use cinnamon_core::{
    Clock, Completion, Config, Controller, Lane, LaneSettings, Limit, LimitRule, Limiter,
    ManualClock, Outcome, Reason, Request, Settings, ShareSettings, SlotUse, Tier, Wanted,
};
use support::*;

/// Everything that finds a limit by itself.
const RULES: [LimitRule; 4] = [
    LimitRule::Auto,
    LimitRule::Gradient2,
    LimitRule::Vegas,
    LimitRule::Aimd,
];

fn found(rule: LimitRule, initial: u32) -> (Controller, Lane, ManualClock) {
    let limit = Limit::found(rule).initial(initial);
    manual_with(Settings::default().lane(LaneSettings::new("main", 1).limit(limit)))
}

/// Passes `ms` milliseconds with a tick every ten.
fn pass(controller: &Controller, clock: &ManualClock, ms: u64) {
    for _ in 0..ms.div_ceil(10) {
        clock.advance(Duration::from_millis(10));
        controller.tick(clock.now());
    }
}

/// A healthy stretch: one request after the other, 2 ms each, for so many seconds.
fn sequential(controller: &Controller, lane: &Lane, clock: &ManualClock, seconds: u64) {
    for n in 0..seconds * 500 {
        let permit = lane
            .try_admit(&T1.key(n))
            .expect("one at a time is no load");
        clock.advance(Duration::from_millis(2));
        permit.finish(Completion::success());
        if n % 5 == 0 {
            controller.tick(clock.now());
        }
    }
}

/// As many at once as fit, `ms` milliseconds each, for so many seconds.
fn saturated(controller: &Controller, lane: &Lane, clock: &ManualClock, (seconds, ms): (u64, u64)) {
    for _ in 0..seconds * 1_000 / ms {
        let running: Vec<_> = (0..1_000)
            .map_while(|n| lane.try_admit(&Request::new(Tier::T0).key(n)).ok())
            .collect();
        clock.advance(Duration::from_millis(ms));
        for permit in running {
            permit.finish(Completion::success());
        }
        controller.tick(clock.now());
    }
}

/// Remembers what it was told, and changes nothing.
#[derive(Clone, Debug, Default)]
struct Listener(Arc<Mutex<Vec<SlotUse>>>);

impl Limiter for Listener {
    fn name(&self) -> &'static str {
        "listener"
    }

    fn tick(&mut self, seen: &SlotUse) -> Wanted {
        self.0.lock().expect("no test panics with it").push(*seen);
        Wanted {
            limit: seen.limit,
            rule: "as it is",
            trial: false,
        }
    }

    fn moved(&mut self, _limit: u32) {}
}

/// vectordotdev/vector#21340 and #21344: `2 - (2 * 0.3)` slots were forgotten as two, and the limiter was dead.
#[test]
fn bug_14_no_rule_cuts_below_one_slot_whatever_fails() {
    for rule in RULES {
        for start in 1..=5 {
            let (controller, lane, clock) = found(rule, start);
            for _ in 0..100 {
                for _ in 0..20 {
                    let permit = lane.try_admit(&T1).expect("a slot is left");
                    clock.advance(Duration::from_millis(1));
                    permit.finish(Completion::new(Outcome::Overloaded));
                }
                pass(&controller, &clock, 1_000);
                assert!(lane.snapshot().limit >= 1, "{rule:?} from {start}");
            }
            let permit = lane.try_admit(&T1);
            permit.expect("it is alive").finish(Completion::success());
        }
    }
}

/// mcp-hangar/mcp-hangar#1432 and #1486: a reload replaced the limiter, old permits counted nowhere, and twice the
/// limit ran; a reload that failed was applied by half. argoproj/argo-workflows#16405: giving back asked for the
/// configuration, and lost the slot with it. hive#716: a reload said OK and the old caps stayed.
#[test]
fn bug_16_permits_of_before_a_reload_count_and_a_bad_reload_changes_nothing() {
    let config = |limit| Config::new(Settings::one_lane("main", limit));
    for (old, new) in [(4, 4), (4, 2), (4, 9)] {
        let (controller, lane, clock) = manual(old);
        let held: Vec<_> = (0..old)
            .map(|_| lane.try_admit(&T1).expect("fits"))
            .collect();
        controller
            .reconfigure(config(new).expect("in bounds"))
            .expect("a limit may change");
        controller.tick(clock.now());
        assert_eq!(lane.snapshot().limit, new, "it is in force at once");
        let more: Vec<_> = (0..20).map_while(|_| lane.try_admit(&T1).ok()).collect();
        let total = held.len() + more.len();
        assert_eq!(total as u32, old.max(new), "old permits count");
        drop(more);
        for permit in held {
            permit.finish(Completion::success());
            assert_conserved(&lane.snapshot());
        }
        let after: Vec<_> = (0..20).map_while(|_| lane.try_admit(&T1).ok()).collect();
        assert_eq!(after.len() as u32, new);
        drop(after);
        assert_at_rest(&lane.snapshot());
    }

    let (controller, lane, clock) = manual(4);
    let held = lane.try_admit(&T1).expect("fits");
    let before = (lane.snapshot(), controller.config());
    assert!(config(0).is_err(), "what cannot be is no configuration");
    // Valid by itself, but not here: its limit must not be in force either.
    let mut other = Settings::one_lane("other", 9);
    other.kp = 1.0;
    let refused = controller.reconfigure(Config::new(other).expect("in bounds"));
    assert!(refused.is_err());
    controller.tick(clock.now());
    assert_eq!(lane.snapshot(), before.0);
    assert_eq!(controller.config(), before.1);
    held.finish(Completion::success());
    assert_at_rest(&lane.snapshot());
}

/// tokio-rs/tokio#8395 and #8020: counts of permits overflowed, and a closed semaphore opened again.
/// ray-project/ray#64039: a negative value read as unlocked. congestion-limiter 0.1.0: `limit - in_flight` of a
/// partition underflowed as soon as it borrowed.
#[test]
fn bug_17_no_sum_runs_over_at_the_edges_and_closed_stays_closed() {
    // More is in use than the limit is, and a tier has borrowed more than its share.
    let lane = LaneSettings::new("main", 8)
        .share(ShareSettings::stealable(Tier::T4, 0.25))
        .share(ShareSettings::hard(Tier::T0, 0.25));
    let (controller, lane, clock) = manual_with(Settings::default().lane(lane));
    let t4 = Request::new(Tier::T4);
    let borrowed: Vec<_> = (0..6).map(|_| lane.try_admit(&t4).expect("lent")).collect();
    for limit in [1, 2, 1 << 20, 1, 8] {
        lane.set_limit(limit).expect("in bounds");
        let snapshot = lane.snapshot();
        assert_eq!(snapshot.free, limit.saturating_sub(snapshot.in_use));
        lane.explain(&t4).expect("it works");
        controller.tick(clock.now());
    }
    drop(borrowed);

    // The dearest and largest requests there can be, waiting, running, and ending dearer still.
    let huge = T1.cost(u32::MAX).bytes(u32::MAX).attempt(u8::MAX);
    let huge = huge.max_wait(Duration::MAX).time_left(Duration::MAX);
    let (_, waker) = CountingWaker::new();
    for round in 0..2_000 {
        let running: Vec<_> = (0..8).map_while(|_| lane.try_admit(&huge).ok()).collect();
        let mut waits = lane.admit(&huge.bytes(round));
        let _ = waits.poll_admit(&waker);
        clock.advance(Duration::from_millis(3));
        for permit in running {
            permit.finish(Completion::success().cost(u32::MAX));
        }
        drop(waits);
        controller.tick(clock.now());
        let snapshot = lane.snapshot();
        assert_conserved(&snapshot);
        assert!(snapshot.capacity_per_s.is_finite() && snapshot.offered_per_s.is_finite());
        assert!(snapshot.wait_s.is_finite() && snapshot.threshold_levels.is_finite());
    }
    assert_at_rest(&lane.snapshot());

    controller.close();
    lane.set_limit(1 << 20).expect("in bounds");
    let refused = lane.try_admit(&T1).map(drop);
    assert_eq!(refused.expect_err("closed").reason(), Reason::Closed);
}

/// Netflix/concurrency-limits#35 and #37: one lucky sample pinned the baseline for ever.
#[test]
fn bug_20_one_lucky_sample_moves_nothing() {
    let (controller, lane, clock) = found(LimitRule::Auto, 8);
    saturated(&controller, &lane, &clock, (20, 10));
    let before = lane.snapshot();
    let lucky = lane.try_admit(&T1).expect("idle");
    clock.advance(Duration::from_micros(1));
    lucky.finish(Completion::success());
    saturated(&controller, &lane, &clock, (20, 10));
    let after = lane.snapshot();
    assert!(
        after.limit_moves == before.limit_moves || after.limit >= before.limit,
        "{before:?}\n{after:?}"
    );
    assert!((after.service_p50_s - 0.01).abs() < 0.001, "{after:?}");
    assert!((after.service_mean_s - 0.01).abs() < 0.001, "{after:?}");
}

/// envoyproxy/envoy#14997: an update without samples made the smallest round-trip time 1.8e19.
#[test]
fn bug_22_a_tick_without_a_sample_changes_nothing() {
    for rule in RULES {
        let (controller, lane, clock) = found(rule, 8);
        let steady = |what: &str| {
            pass(&controller, &clock, 5_000);
            let lane = lane.snapshot();
            assert_eq!(lane.limit, 8, "{rule:?}, {what}");
            let estimates = [lane.service_mean_s, lane.capacity_per_s, lane.offered_per_s];
            assert!(
                estimates.iter().all(|it| it.is_finite()),
                "{rule:?}, {what}"
            );
            assert_eq!(lane.threshold, "open");
        };
        steady("no sample");
        lane.try_admit(&T1)
            .expect("idle")
            .finish(Completion::success());
        steady("one sample, of no duration");
        for _ in 0..1_000 {
            drop(lane.try_admit(&T1).expect("idle"));
        }
        steady("all cancelled");
        // Nothing of that has poisoned what comes after.
        saturated(&controller, &lane, &clock, (20, 10));
        assert!(lane.snapshot().limit >= 8, "{rule:?}");
    }
}

/// envoyproxy/envoy#8524: the timer of updates was not started again after a special state.
#[test]
fn bug_23_the_limiter_is_asked_on_after_every_special_state() {
    use cinnamon_core::Mode;
    let listener = Listener::default();
    let clock = ManualClock::new();
    let settings = Settings::one_lane("main", 4);
    let controller = Controller::builder(Config::new(settings.clone()).expect("in bounds"))
        .limiter("main", listener.clone())
        .build_manual(clock.shared())
        .expect("the lane is there");
    let lane = controller.lane("main").expect("it was configured");
    let asked = || listener.0.lock().expect("no test panics with it").len();
    let states: [(&str, &dyn Fn()); 6] = [
        ("controller off", &|| controller.set_mode(Mode::Off)),
        ("controller monitors", &|| {
            controller.set_mode(Mode::Monitor);
        }),
        ("lane off", &|| lane.set_mode(Mode::Off)),
        ("lane monitors", &|| lane.set_mode(Mode::Monitor)),
        ("override", &|| {
            let off = "mode off for 1s".parse().expect("a line");
            controller.set_override(off).expect("in bounds");
        }),
        ("reload", &|| {
            let again = Config::new(settings.clone()).expect("in bounds");
            controller.reconfigure(again).expect("the same");
        }),
    ];
    for (what, enter) in states {
        enter();
        sequential(&controller, &lane, &clock, 2);
        controller.set_mode(Mode::Enforce);
        lane.set_mode(Mode::Enforce);
        pass(&controller, &clock, 20);
        let before = asked();
        pass(&controller, &clock, 1_000);
        assert_eq!(asked() - before, 100, "after {what}");
        // And a step in load is seen by it.
        sequential(&controller, &lane, &clock, 1);
        let seen = listener.0.lock().expect("no test panics with it");
        let finished: u64 = seen.iter().rev().take(90).map(SlotUse::finished).sum();
        assert!(finished > 400, "after {what}: {finished}");
    }
}

/// Netflix/concurrency-limits#53: a limit that nobody used up grew. tower-resilience 0.14: 2,000 sequential requests
/// took it from 10 to 1,000.
#[test]
fn bug_26_a_limit_that_is_not_used_up_does_not_grow() {
    for rule in RULES {
        let (controller, lane, clock) = found(rule, 10);
        sequential(&controller, &lane, &clock, 600);
        assert!(
            lane.snapshot().limit <= 10,
            "{rule:?}: {}",
            lane.snapshot().limit
        );
        let burst: Vec<_> = (0..5_000).map_while(|_| lane.try_admit(&T1).ok()).collect();
        assert!(burst.len() <= 10, "{rule:?}: {} ran at once", burst.len());
    }
}

/// envoyproxy/envoy#16392, #41214, #33739 and #34257: a decision from too few samples. Netflix/concurrency-limits#125:
/// a window of health checks.
#[test]
fn bug_28_few_failures_decide_nothing_and_health_checks_are_no_samples() {
    for rule in RULES {
        let (controller, lane, clock) = found(rule, 8);
        for _ in 0..3 {
            let permit = lane.try_admit(&T1).expect("idle");
            clock.advance(Duration::from_millis(300));
            permit.finish(Completion::new(Outcome::Overloaded));
            controller.tick(clock.now());
        }
        // A minute of nothing but health checks.
        for _ in 0..600 {
            let permit = lane.try_admit(&Request::exempt()).expect("idle");
            clock.advance(Duration::from_millis(1));
            permit.finish(Completion::success());
            pass(&controller, &clock, 100);
        }
        let lane = lane.snapshot();
        assert_eq!(lane.limit, 8, "{rule:?}");
        assert_eq!(lane.threshold, "open");
        assert_eq!(lane.served.count(), 3, "{rule:?}: exempt work was sampled");
    }
    // By the rule of ours not later either: half a request a second, and some of them fail.
    let (controller, lane, clock) = found(LimitRule::Auto, 8);
    for n in 0..300 {
        let permit = lane.try_admit(&T1).expect("idle");
        clock.advance(Duration::from_millis(20));
        let ended = [Outcome::Success, Outcome::Overloaded][usize::from(n % 10 == 0)];
        permit.finish(Completion::new(ended));
        pass(&controller, &clock, 2_000);
        assert_eq!(lane.snapshot().limit, 8);
    }
}

/// congestion-limiter 0.1.0: a window lasted twice its maximum, one change in 6.5 s of 2 ms calls.
/// platinummonkey/go-concurrency-limits#141: no update while every call failed.
#[test]
fn bug_29_windows_close_in_time_and_while_everything_fails() {
    let listener = Listener::default();
    let clock = ManualClock::new();
    let controller = Controller::builder(Config::new(Settings::one_lane("main", 4)).expect("ok"))
        .limiter("main", listener.clone())
        .build_manual(clock.shared())
        .expect("the lane is there");
    let lane = controller.lane("main").expect("it was configured");
    sequential(&controller, &lane, &clock, 5);
    let ticks = listener.0.lock().expect("no test panics with it").len();
    assert_eq!(ticks, 500, "one for each tick");

    // The rule with a window of a second falls a step a second while everything is overloaded.
    let (controller, lane, clock) = found(LimitRule::Aimd, 100);
    let mut cuts = 0;
    for _ in 0..10 {
        let before = lane.snapshot().limit;
        for _ in 0..100 {
            let permit = lane.try_admit(&T1).expect("one at a time fits");
            clock.advance(Duration::from_millis(10));
            permit.finish(Completion::new(Outcome::Overloaded));
            controller.tick(clock.now());
        }
        cuts += u32::from(lane.snapshot().limit < before);
    }
    assert!((9..=10).contains(&cuts), "{cuts} cuts in ten seconds");
}

/// Netflix/concurrency-limits#176: failures within a microsecond read as low latency. rust-zero-core
/// 0.1.0-alpha.1: a permit dropped at once made the learned limit 1.
#[test]
fn bug_30_fast_failures_and_cancelled_work_move_no_limit() {
    for rule in RULES {
        let run = |failing: bool| {
            let (controller, lane, clock) = found(rule, 8);
            let mut limits = Vec::new();
            for _ in 0..5_000 {
                for _ in 0..if failing { 3 } else { 0 } {
                    let invalid = lane.try_admit(&T1).expect("nothing runs");
                    invalid.finish(Completion::new(Outcome::Failure));
                    drop(lane.try_admit(&T1).expect("nothing runs"));
                    let unsaid = lane.try_admit(&T1).expect("nothing runs");
                    unsaid.finish(Completion::new(Outcome::Ignored));
                }
                // As many as there are slots, 40 ms each for the first eight of them: a knee. (So few a second that each is timed.)
                let slots = lane.snapshot().limit;
                let running: Vec<_> = (0..slots)
                    .map(|_| {
                        clock.advance(Duration::from_micros(500));
                        lane.try_admit(&T1).expect("a slot is free")
                    })
                    .collect();
                clock.advance(Duration::from_millis(5 * running.len().max(8) as u64));
                for permit in running {
                    permit.finish(Completion::success());
                }
                controller.tick(clock.now());
                limits.push(lane.snapshot().limit);
            }
            let lane = lane.snapshot();
            (limits, lane.service_mean_s, lane.service_p50_s)
        };
        let (with, without) = (run(true), run(false));
        assert!(
            without.0.iter().any(|&limit| limit != 8),
            "{rule:?}: it moves"
        );
        assert!(with == without, "{rule:?}");
    }
}

/// throttle-net 2.0: eight cancelled calls on a healthy store took the limit from 64 to 1. failsafe-go 0.9.2: the
/// permits of cancelled work were not given back.
#[test]
fn bug_31_a_storm_of_disconnects_is_no_overload() {
    for rule in RULES {
        let (controller, lane, clock) = found(rule, 64);
        sequential(&controller, &lane, &clock, 5);
        let (_, waker) = CountingWaker::new();
        for n in 0..1_000u64 {
            // Running, granted but not looked at, waiting: all give up.
            let held: Vec<_> = (0..1_000).map_while(|_| lane.try_admit(&T1).ok()).collect();
            assert!(held.len() >= 64, "{rule:?}: {n} {}", held.len());
            let (mut granted, mut waits) = (lane.admit(&T1), lane.admit(&T1));
            assert!(granted.poll_admit(&waker).is_pending());
            assert!(waits.poll_admit(&waker).is_pending());
            clock.advance(Duration::from_micros(100 + n % 7));
            drop(held);
            drop((granted, waits));
            assert_at_rest(&lane.snapshot());
            pass(&controller, &clock, 10);
        }
        let lane = lane.snapshot();
        assert!(lane.limit >= 64, "{rule:?}: {}", lane.limit);
        assert_eq!(
            (lane.threshold.as_str(), lane.engaged_s),
            ("open", 0.0),
            "{rule:?}"
        );
    }
}

/// promptfoo/promptfoo#10547: one congestion event, and a cut for each of the requests in it.
#[test]
fn bug_33_a_hundred_that_fail_together_are_one_cut() {
    for rule in RULES {
        let (controller, lane, clock) = found(rule, 100);
        sequential(&controller, &lane, &clock, 3);
        let before = lane.snapshot().limit;
        let all: Vec<_> = (0..before)
            .map(|_| lane.try_admit(&T1).expect("free"))
            .collect();
        clock.advance(Duration::from_millis(50));
        for permit in all {
            permit.finish(Completion::new(Outcome::Overloaded));
        }
        pass(&controller, &clock, 5_000);
        let after = lane.snapshot().limit;
        assert!(
            f64::from(after) >= (f64::from(before) * 0.9).floor() - 1.0,
            "{rule:?}: from {before} to {after}"
        );
    }
    let (controller, lane, clock) = found(LimitRule::Aimd, 100);
    let all: Vec<_> = (0..100)
        .map(|_| lane.try_admit(&T1).expect("free"))
        .collect();
    clock.advance(Duration::from_millis(50));
    for permit in all {
        permit.finish(Completion::new(Outcome::Overloaded));
    }
    pass(&controller, &clock, 5_000);
    assert_eq!(lane.snapshot().limit, 90, "exactly one");
}

/// Netflix/concurrency-limits#213: how many were in flight was recorded at the start and used at the end. What counts
/// here is the most at once since the last tick, whoever began or ended in it.
#[test]
fn bug_36_utilisation_is_the_most_at_once_since_the_last_tick() {
    let listener = Listener::default();
    let clock = ManualClock::new();
    let controller = Controller::builder(Config::new(Settings::one_lane("main", 8)).expect("ok"))
        .limiter("main", listener.clone())
        .build_manual(clock.shared())
        .expect("the lane is there");
    let lane = controller.lane("main").expect("it was configured");
    let mut held: Vec<_> = (0..5).map(|_| lane.try_admit(&T1).expect("free")).collect();
    pass(&controller, &clock, 10);
    clock.advance(Duration::from_millis(2));
    held.truncate(1);
    held.extend((0..2).map(|_| lane.try_admit(&T1).expect("free")));
    clock.advance(Duration::from_millis(2));
    held.truncate(2);
    pass(&controller, &clock, 20);
    drop(held);
    let seen = listener.0.lock().expect("no test panics with it");
    let peaks: Vec<_> = seen.iter().map(|it| (it.in_use_peak, it.in_use)).collect();
    assert_eq!(peaks, [(5, 5), (5, 2), (2, 2)]);
}

/// tower-acc 0.1.1, the other half: who waits is served from the smaller pool, and not one more runs meanwhile.
#[test]
fn bug_13_after_a_cut_no_more_run_than_the_new_limit_within_a_service_time() {
    let (controller, lane, clock) = manual(40);
    let (_, waker) = CountingWaker::new();
    // (when it is done, the permit), each takes 10 ms
    let mut running = Vec::new();
    let mut served = 0;
    let mut waiting: Vec<_> = (0..200).map(|_| lane.admit_owned(&T1)).collect();
    for ms in 0..200u64 {
        if ms == 50 {
            lane.set_limit(1).expect("in bounds");
        }
        waiting.retain_mut(|admit| match admit.poll_admit(&waker) {
            Poll::Ready(result) => {
                // Refused, it is one of those who ask again below.
                running.extend(result.ok().map(|permit| (ms + 10, permit)));
                false
            }
            Poll::Pending => true,
        });
        let most = if ms < 60 { 40 } else { 1 };
        assert!(running.len() <= most, "{} run at {ms} ms", running.len());
        clock.advance(Duration::from_millis(1));
        let (done, still): (Vec<_>, Vec<_>) =
            running.into_iter().partition(|(until, _)| *until <= ms + 1);
        running = still;
        for (_, permit) in done {
            permit.finish(Completion::success());
            served += u32::from(ms >= 60);
        }
        let clients = running.len() + waiting.len();
        waiting.extend((clients..200).map(|_| lane.admit_owned(&T1)));
        controller.tick(clock.now());
    }
    assert!((13..=14).contains(&served), "{served} served one by one");
}
