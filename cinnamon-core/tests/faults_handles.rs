//! Faults that handles, permits and accounts of others really had, as scenarios for ours. The number is the one in the
//! book's chapter "Faults of others".

#![allow(
    clippy::expect_used,
    reason = "a helper of tests may end the test that calls it"
)]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use cinnamon_core::{
    Clock, Completion, Config, Controller, Instant, LaneSettings, ManualClock, Mode, Outcome,
    Reason, Request, Settings, Tenant, TenantSettings, TenantSnapshot, Tier, TierBudget, Verdict,
};
use support::*;

const A: Tenant = Tenant(1);
const B: Tenant = Tenant(2);

fn of(tenant: Tenant) -> Request {
    T1.tenant(tenant)
}

fn figures(controller: &Controller, tenant: Tenant) -> TenantSnapshot {
    let mut all = controller.tenants().into_iter();
    all.find(|of| of.tenant == Some(tenant))
        .expect("it was seen")
}

/// Netflix/concurrency-limits#179, the ten thousand races: whichever of grant, timeout and cancellation comes first, at
/// whichever nanosecond, the slot goes to who still waits, or is free.
#[test]
fn bug_01_ten_thousand_races_of_grant_timeout_and_cancellation_lose_no_slot() {
    let (controller, lane, clock) = manual(1);
    let patience = Duration::from_micros(100);
    for round in 0..10_000u64 {
        let held = lane.try_admit(&T1).expect("the slot is free");
        let (_, waker) = CountingWaker::new();
        let mut racer = lane.admit_owned(&T1.max_wait(patience));
        assert!(racer.poll_admit(&waker).is_pending());
        let mut next = lane.admit_owned(&T1);
        assert!(next.poll_admit(&waker).is_pending());
        // About the end of its patience, before and after; in each order.
        clock.advance(Duration::from_nanos(99_990 + round % 21));
        let mut held = Some(held);
        let mut racer = Some(racer);
        for step in [round % 3, (round + 1 + round / 3 % 2) % 3, 3] {
            match step {
                0 => drop(held.take()),
                1 => controller.tick(clock.now()),
                2 => drop(racer.take()),
                _ => {
                    drop(held.take());
                    drop(racer.take());
                }
            }
            assert_conserved(&lane.snapshot());
        }
        let Poll::Ready(Ok(permit)) = next.poll_admit(&waker) else {
            panic!("round {round}: the slot went to nobody");
        };
        permit.finish(Completion::success());
        assert_at_rest(&lane.snapshot());
        clock.advance(Duration::from_millis(10));
        controller.tick(clock.now());
    }
}

/// linkerd/linkerd2-proxy#751, linkerd/linkerd2#5183 and #5541: the slot was held for as long as somebody held the
/// response, read or not.
#[test]
fn bug_07_finishing_frees_the_slot_however_long_the_response_is_kept() {
    struct Response {
        body: Vec<u8>,
    }
    let (controller, lane, clock) = manual(1);
    let answer = || {
        let permit = lane.try_admit_owned(&T1).expect("nothing runs");
        clock.advance(Duration::from_millis(1));
        permit.finish(Completion::success());
        Response { body: vec![0; 64] }
    };
    let kept: Vec<Response> = (0..100).map(|_| answer()).collect();
    clock.advance(Duration::from_secs(10));
    controller.tick(clock.now());
    assert_at_rest(&lane.snapshot());
    assert_eq!(lane.snapshot().served.count(), 100);
    let teaches = lane.snapshot().service_mean_s;
    // Whoever ties the permit to the response instead frees the slot with it, and teaches nothing.
    let tied = (answer(), lane.try_admit_owned(&T1).expect("free"));
    clock.advance(Duration::from_secs(10));
    assert_eq!(lane.snapshot().in_use, 1);
    drop(tied);
    clock.advance(Duration::from_millis(10));
    controller.tick(clock.now());
    assert_at_rest(&lane.snapshot());
    assert_eq!(lane.snapshot().service_mean_s, teaches);
    assert_eq!(kept.iter().map(|it| it.body.len()).sum::<usize>(), 6_400);
}

/// congestion-limiter 0.1.0: giving back, and shrinking, spawned a task; outside of a runtime, or in one that was
/// shutting down, that was a panic.
#[test]
fn bug_18_permits_need_no_runtime_and_may_outlive_one() {
    let (controller, lane, _clock) = manual(4);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .expect("threads can be had");
    let held: Vec<_> = (0..3)
        .map(|_| runtime.block_on(lane.admit_owned(&T1)).expect("free"))
        .collect();
    let in_task = runtime.block_on(lane.admit_owned(&T1)).expect("free");
    runtime.spawn(async move {
        let _held = in_task;
        std::future::pending::<()>().await;
    });
    let waits = lane.admit_owned(&T1);
    runtime.spawn(async move { waits.await.map(drop) });
    // Shrinking takes place while the tasks, and what they hold, are dropped.
    lane.set_limit(1).expect("in bounds");
    drop(runtime);
    assert_eq!(lane.snapshot().in_use, 3);
    drop(held);
    assert_at_rest(&lane.snapshot());
    controller.close();
}

/// vectordotdev/vector#21725, hyperdxio/hyperdx#461: what was refused for its content was taken for overload, and one
/// tenant throttled all.
#[test]
fn bug_32_a_tenant_whose_every_request_fails_concerns_nobody() {
    let run = |failing: bool| {
        let mut settings = Settings::one_lane("main", 4);
        settings.tenants = vec![TenantSettings::new("*").cap(4)];
        let (controller, lane, clock) = manual_with(settings);
        for n in 0..20_000u64 {
            let permit = lane.try_admit(&of(B).key(n)).expect("calm");
            if failing {
                for _ in 0..2 {
                    let denied = lane.try_admit(&of(A).key(n)).expect("calm");
                    clock.advance(Duration::from_micros(10));
                    denied.finish(Completion::new(Outcome::Failure));
                }
            } else {
                clock.advance(Duration::from_micros(20));
            }
            clock.advance(Duration::from_millis(1));
            permit.finish(Completion::success());
            if n % 10 == 0 {
                controller.tick(clock.now());
            }
        }
        let lane = lane.snapshot();
        assert_eq!(lane.verdicts.refused(), 0);
        assert_eq!(lane.engaged_s, 0.0);
        let learned = (lane.limit, lane.service_mean_s, lane.service_p90_s);
        (learned, figures(&controller, B).offered)
    };
    assert_eq!(run(true), run(false));
}

/// kubernetes/kubernetes#140884 and #140885: what was removed while work of it ran was an index out of bounds later.
#[test]
fn bug_62_a_tenant_forgotten_while_its_work_runs_harms_nobody_and_stays_capped() {
    let rules = vec![TenantSettings::new("*").cap(3)];
    let mut settings = Settings::one_lane("main", 8);
    settings.tenants = rules;
    let (controller, lane, clock) = manual_with(settings);
    let [gone, stays] = ["gone", "stays"].map(|name| controller.tenant(name));
    let running: Vec<_> = (0..2)
        .map(|_| lane.try_admit(&of(gone)).expect("free"))
        .collect();
    let other = lane.try_admit(&of(stays)).expect("free");
    controller.forget_tenant(gone);
    controller.tick(clock.now());
    // What still comes under its number counts with what runs of it: forgetting is no way round a cap.
    let third = lane.try_admit(&of(gone)).expect("the last of three");
    let beyond = lane.try_admit(&of(gone)).map(drop);
    assert_eq!(beyond.expect_err("over its cap").reason(), Reason::Capped);
    // Its name has another number then, and ten thousand others come and go meanwhile.
    let again = controller.tenant("gone");
    assert_ne!(again, gone);
    for n in 0..10_000 {
        let passing = controller.tenant(&format!("t{n}"));
        lane.try_admit(&of(passing))
            .expect("free")
            .finish(Completion::success());
        controller.forget_tenant(passing);
    }
    for permit in running {
        permit.finish(Completion::success());
    }
    third.finish(Completion::success());
    assert_eq!(
        figures(&controller, stays).running,
        1,
        "nobody else is charged"
    );
    other.finish(Completion::success());
    assert_at_rest(&lane.snapshot());
    let all: u32 = controller.tenants().iter().map(|it| it.running).sum();
    assert_eq!(all, 0);
}

/// tikv/tikv#17603 and #17615: nested wrappers each charged the cost of the same request. tikv/tikv#18940: the limiter
/// of priorities was switched off for its faults.
#[test]
fn bug_63_what_runs_inside_of_admitted_work_is_charged_once() {
    let mut settings = Settings::one_lane("main", 2);
    settings.tenants = vec![
        TenantSettings::new("#1")
            .cap(1)
            .budget(TierBudget::per_s(Tier::T1, 1e6)),
    ];
    let (controller, lane, clock) = manual_with(settings);
    for n in 0..100u64 {
        let outer = lane.try_admit(&of(A).cost(10)).expect("free");
        clock.advance(Duration::from_millis(1));
        {
            let inner = outer.nested();
            let innermost = outer.nested();
            assert_eq!(lane.snapshot().in_use, 1, "one slot for all of it");
            assert_eq!(figures(&controller, A).running, 1);
            innermost.finish(Completion::success().cost(10));
            inner.finish(Completion::success().cost(10));
        }
        outer.finish(Completion::success().cost(10));
        let it = figures(&controller, A);
        assert_eq!(it.claimed_cost, [0, 10 * (n + 1), 0, 0, 0, 0]);
        assert_eq!(lane.snapshot().served.count(), n + 1);
    }
    assert_at_rest(&lane.snapshot());
}

/// tikv/tikv#14507, #14509 and #14464: virtual time ran over. Time itself stands at its end here.
#[test]
fn bug_71_at_the_end_of_time_nothing_runs_over_and_the_order_holds() {
    let clock = ManualClock::new();
    let before_the_end = u64::MAX - 30_000_000_000;
    clock.set(Instant::from_nanos(before_the_end));
    let config = Config::new(Settings::one_lane("main", 1)).expect("in bounds");
    let controller = Controller::builder(config)
        .build_manual(clock.shared())
        .expect("no signals");
    let lane = controller.lane("main").expect("it was configured");
    let (_, waker) = CountingWaker::new();
    // A minute, though half of one is left.
    for n in 0..6_000u64 {
        let held = lane.try_admit(&T1.key(n)).expect("calm");
        let far = Instant::FAR_FUTURE;
        let mut late = lane.admit(&Request::new(Tier::T4).deadline(far).key(n));
        let mut soon = lane.admit(&Request::new(Tier::T0).max_wait(Duration::MAX).key(n));
        let wait = [late.poll_admit(&waker), soon.poll_admit(&waker)];
        // At the end itself there is no later any more.
        if clock.now() < far {
            assert!(wait.iter().all(Poll::is_pending), "{n}: {wait:?}");
        }
        clock.set(clock.now().after(Duration::from_millis(10)));
        controller.tick(clock.now());
        held.finish(Completion::success());
        if wait[1].is_pending() {
            match soon.poll_admit(&waker) {
                Poll::Ready(Ok(permit)) => permit.finish(Completion::success()),
                Poll::Ready(Err(rejected)) => assert_eq!(clock.now(), far, "{n}: {rejected}"),
                Poll::Pending => panic!("{n}: the best first"),
            }
        }
        drop((late, wait));
        assert_at_rest(&lane.snapshot());
    }
    assert!(!controller.snapshot().failed);
}

/// tikv/pd#8435: 1.48 million a second at a limit of 4,000, for some numbers of threads; boinkor-net/governor#16,
/// throttle-net 1.x.
#[test]
fn bug_72_the_limit_holds_for_any_number_of_threads() {
    for threads in [1, 2, 3, 8, 17, 64] {
        let (_controller, lane) = live(3);
        let (running, peak) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let start = Barrier::new(threads);
        thread::scope(|scope| {
            for thread in 0..threads {
                let (lane, running, peak, start) = (&lane, &running, &peak, &start);
                scope.spawn(move || {
                    start.wait();
                    for n in 0..1_200 / threads {
                        // By the fast way, by the queue, and owned.
                        let admitted = match (thread + n) % 3 {
                            0 => lane.try_admit(&T1).map(|permit| permit.into_owned()),
                            1 => lane.try_admit_owned(&Request::new(Tier::T4).cost(9)),
                            _ => lane.admit_blocking_owned(&T1),
                        };
                        let Ok(permit) = admitted else { continue };
                        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                        peak.fetch_max(now, Ordering::SeqCst);
                        thread::yield_now();
                        running.fetch_sub(1, Ordering::SeqCst);
                        permit.finish(Completion::success());
                    }
                });
            }
        });
        let peak = peak.load(Ordering::SeqCst);
        assert!(peak <= 3, "{threads} threads: {peak} ran at once");
        assert_at_rest(&lane.snapshot());
    }
}

/// Netflix/concurrency-limits#234, with reserved shares and unequal costs: neither lets one more run than there are
/// slots.
#[test]
fn bug_11_shares_and_costs_let_no_more_run_than_there_are_slots() {
    use cinnamon_core::ShareSettings;
    let lane = LaneSettings::new("main", 10)
        .share(ShareSettings::hard(Tier::T0, 0.2))
        .share(ShareSettings::stealable(Tier::T4, 0.3));
    let (controller, lane, _clock) = manual_with(Settings::default().lane(lane));
    let (running, peak) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let start = Barrier::new(16);
    thread::scope(|scope| {
        for thread in 0..16u32 {
            let (lane, running, peak, start) = (&lane, &running, &peak, &start);
            scope.spawn(move || {
                start.wait();
                for n in 0..500u32 {
                    let tier = Tier::ALL[((thread + n) % 6) as usize];
                    let request = Request::new(tier).cost(1 + n % 1_000);
                    if let Ok(permit) = lane.try_admit(&request) {
                        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                        peak.fetch_max(now, Ordering::SeqCst);
                        thread::yield_now();
                        running.fetch_sub(1, Ordering::SeqCst);
                        permit.finish(Completion::success());
                    }
                }
            });
        }
    });
    assert!(peak.load(Ordering::SeqCst) <= 10);
    assert_at_rest(&lane.snapshot());
    controller.close();
}

/// The kind of songzhibin97/gkit#72 once more: whatever part of the embedder's code panics in one life of a controller,
/// work goes on and every slot comes back.
#[test]
fn bug_05_panics_of_everything_that_is_plugged_in_at_once_lose_no_slot() {
    use cinnamon_core::{FinishEvent, Limiter, Observer, OfferEvent, SlotUse, Wanted};
    use support::plugins::Made;
    #[derive(Debug)]
    struct Bomb;
    impl Observer for Bomb {
        fn on_offer(&self, _offer: &OfferEvent<'_>) {
            panic!("the observer fails");
        }
        fn on_finish(&self, _finish: &FinishEvent) {
            panic!("the observer fails");
        }
    }
    impl Limiter for Bomb {
        fn name(&self) -> &'static str {
            "bomb"
        }
        fn tick(&mut self, _seen: &SlotUse) -> Wanted {
            panic!("the limiter fails");
        }
        fn moved(&mut self, _limit: u32) {
            panic!("the limiter fails");
        }
    }
    let clock = ManualClock::new();
    let controller = Controller::builder(plugins())
        .signal(Made::new("bomb", |_, _| panic!("the signal fails")))
        .observer(Arc::new(Bomb))
        .limiter("main", Bomb)
        .build_manual(clock.shared())
        .expect("they build");
    let lane = controller.lane("main").expect("it was configured");
    for n in 0..200u64 {
        let work = catch_unwind(AssertUnwindSafe(|| {
            let permit = lane.try_admit(&T1.key(n)).expect("nothing else runs");
            assert!(n % 2 == 0, "the work fails");
            permit.finish(Completion::success());
        }));
        assert_eq!(work.is_ok(), n % 2 == 0);
        clock.advance(Duration::from_millis(10));
        controller.tick(clock.now());
    }
    lane.set_limit(3).expect("in bounds");
    controller.tick(clock.now());
    let snapshot = controller.snapshot();
    assert!(!snapshot.failed && !snapshot.lanes[0].failed);
    assert!(
        snapshot.signals[0].fault.is_some(),
        "it is counted as failed"
    );
    assert_eq!(snapshot.lanes[0].verdicts.refused(), 0);
    assert_at_rest(&lane.snapshot());
    controller.set_mode(Mode::Off);
    assert!(lane.try_admit(&T1).is_ok());
}

fn plugins() -> Config {
    support::plugins::config()
}

/// Farfetch/loadshedding#22 and #19 once more: refusals by the gate, by a cap and by an operator.
#[test]
fn bug_12_a_thousand_refusals_by_gate_cap_and_override_leave_every_gauge_at_zero() {
    let mut settings = Settings::one_lane("main", 4);
    settings.tenants = vec![TenantSettings::new("#1").cap(1)];
    let (controller, lane, clock) = manual_with(settings);
    let shed = "shed t4 for 10m".parse().expect("a line");
    controller.set_override(shed).expect("in bounds");
    let off = "tenant 2 shed t1 for 10m".parse().expect("a line");
    controller.set_override(off).expect("in bounds");
    controller.tick(clock.now());
    let held = lane.try_admit(&of(A)).expect("free");
    let (_, waker) = CountingWaker::new();
    for key in 0..1_000 {
        let least = Request::new(Tier::T5).key(key).bytes(100).cost(7);
        for (request, reason) in [
            (least, Reason::Shed),
            (of(A).key(key).bytes(100), Reason::Capped),
            (of(B).key(key).bytes(100), Reason::Capped),
        ] {
            let tried = lane.try_admit(&request).map(drop);
            assert_eq!(tried.expect_err("refused").reason(), reason);
            let waits = lane.admit(&request).poll_admit(&waker).map_ok(drop);
            assert!(matches!(waits, Poll::Ready(Err(r)) if r.reason() == reason));
        }
        assert_conserved(&lane.snapshot());
    }
    held.finish(Completion::success());
    assert_at_rest(&lane.snapshot());
    let refused = |reason| lane.snapshot().verdicts.total(Verdict::Refuse(reason));
    assert_eq!(
        (refused(Reason::Shed), refused(Reason::Capped)),
        (2_000, 4_000)
    );
    let of_a = figures(&controller, A);
    assert_eq!((of_a.running, of_a.waiting), (0, 0));
}

/// boinkor-net/governor#299, chatmail/filtermail#166, n0-computer/iroh#4295: cores whose counters differ, and requests
/// refused at random for it.
#[test]
fn bug_70_a_clock_that_differs_between_threads_or_stands_still_refuses_nobody() {
    #[derive(Debug, Default)]
    struct Uneven(AtomicU64);
    impl Clock for Uneven {
        fn now(&self) -> Instant {
            // A microsecond a call, and up to a second behind.
            let calls = self.0.fetch_add(1, Ordering::Relaxed);
            let behind = calls.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1_000_000_000;
            Instant::from_nanos(2_000_000_000 + calls * 1_000 - behind)
        }
    }
    let config = Config::new(Settings::one_lane("main", 8)).expect("in bounds");
    let controller = Controller::builder(config)
        .build_manual(Arc::new(Uneven::default()))
        .expect("no signals");
    let lane = controller.lane("main").expect("it was configured");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for n in 0..2_000u64 {
                    let patient = T1.key(n).max_wait(Duration::from_secs(3_600));
                    let permit = lane
                        .try_admit(&patient)
                        .expect("as many as there are slots");
                    permit.finish(Completion::success());
                    if n % 50 == 0 {
                        controller.tick(controller.clock().now());
                    }
                }
            });
        }
    });
    assert_at_rest(&lane.snapshot());
    assert_eq!(lane.snapshot().verdicts.refused(), 0);
    assert!(!controller.snapshot().failed);

    // Time stands still: who waits has the slot when it is free, and ticks are harmless.
    let (controller, lane, clock) = manual(1);
    for n in 0..1_000u64 {
        let (_, waker) = CountingWaker::new();
        let held = lane.try_admit(&T1.key(n)).expect("free");
        let mut waits = lane.admit(&T1.key(n).time_left(Duration::from_nanos(1)));
        assert!(waits.poll_admit(&waker).is_pending());
        controller.tick(clock.now());
        held.finish(Completion::success());
        assert!(matches!(waits.poll_admit(&waker), Poll::Ready(Ok(_))));
    }
    assert_at_rest(&lane.snapshot());
}
