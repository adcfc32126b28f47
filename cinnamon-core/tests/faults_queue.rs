//! Faults that queues and priorities of others really had, as scenarios for ours. The number is the one in the book's
//! chapter "Faults of others".

#![allow(
    clippy::expect_used,
    reason = "a helper of tests may end the test that calls it"
)]

mod support;

use std::collections::BTreeSet;
use std::task::Poll;
use std::time::Duration;

use cinnamon_core::{
    Admit, AdmitOwned, Clock, CodelState, Completion, Controller, Lane, LaneSettings, ManualClock,
    Order, OwnedPermit, Reason, Request, Settings, Tier,
};
use support::*;

/// A store that works on so many requests at once for so many milliseconds each, and whoever stands before it.
struct Store {
    controller: Controller,
    lane: Lane,
    clock: ManualClock,
    service_ms: u64,
    ms: u64,
    waiting: Vec<(u64, AdmitOwned)>,
    running: Vec<(u64, u64, OwnedPermit)>,
}

/// What became of a numbered request within a millisecond.
#[derive(Debug, Default)]
struct Ended {
    served: Vec<u64>,
    refused: Vec<(u64, Reason)>,
}

impl Store {
    fn new(settings: Settings, service_ms: u64) -> Self {
        let (controller, lane, clock) = manual_with(settings);
        Self {
            controller,
            lane,
            clock,
            service_ms,
            ms: 0,
            waiting: Vec::new(),
            running: Vec::new(),
        }
    }

    fn ask(&mut self, number: u64, request: &Request) {
        self.waiting.push((number, self.lane.admit_owned(request)));
    }

    /// A millisecond passes: who asked is offered in the order of asking, and who is done is done.
    fn step(&mut self) -> Ended {
        let mut ended = Ended::default();
        self.poll(&mut ended);
        self.ms += 1;
        self.clock.advance(Duration::from_millis(1));
        let now_ms = self.ms;
        for (_, number, permit) in self.running.extract_if(.., |it| it.0 <= now_ms) {
            permit.finish(Completion::success());
            ended.served.push(number);
        }
        if self.ms.is_multiple_of(10) {
            self.controller.tick(self.clock.now());
        }
        self.poll(&mut ended);
        ended
    }

    fn poll(&mut self, ended: &mut Ended) {
        let (_, waker) = CountingWaker::new();
        let until = self.ms + self.service_ms;
        self.waiting
            .retain_mut(|(number, admit)| match admit.poll_admit(&waker) {
                Poll::Pending => true,
                Poll::Ready(Ok(permit)) => {
                    self.running.push((until, *number, permit));
                    false
                }
                Poll::Ready(Err(rejected)) => {
                    ended.refused.push((*number, rejected.reason()));
                    false
                }
            });
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }
}

fn with_order(limit: u32, order: Order) -> Settings {
    let mut settings = Settings::one_lane("main", limit);
    settings.lanes[0].order = order;
    settings
}

/// ravinet/mahimahi#165: a shadowed variable, and another item was returned than the one that was taken out.
#[test]
fn bug_38_each_of_the_numbered_is_served_or_refused_once_and_the_worst_oldest_goes_first() {
    // Of those who wait the oldest of the worst tier makes room.
    let mut settings = Settings::one_lane("main", 1);
    settings.lanes[0].queue_len_max = Some(6);
    let (_controller, lane, _clock) = manual_with(settings);
    let _held = lane.try_admit(&T1).expect("free");
    let (_, waker) = CountingWaker::new();
    let tiers = [5, 3, 5, 2, 3, 4];
    let at = |tier: usize| Request::new(Tier::ALL[tier]).key(7);
    let mut queued: Vec<_> = tiers
        .iter()
        .map(|&tier| lane.admit(&at(tier)))
        .enumerate()
        .collect();
    let pending = |queued: &mut Vec<(usize, Admit<'_>)>| -> Vec<usize> {
        queued.retain_mut(|(_, admit)| admit.poll_admit(&waker).is_pending());
        queued.iter().map(|(number, _)| *number).collect()
    };
    assert_eq!(pending(&mut queued), [0, 1, 2, 3, 4, 5]);
    let mut better: Vec<_> = (0..5).map(|_| lane.admit(&T1)).collect();
    for (left, better) in [
        &[1, 2, 3, 4, 5][..],
        &[1, 3, 4, 5],
        &[1, 3, 4],
        &[3, 4],
        &[3],
    ]
    .into_iter()
    .zip(&mut better)
    {
        assert!(better.poll_admit(&waker).is_pending());
        assert_eq!(pending(&mut queued), left);
    }

    // And in an overload everybody ends once.
    for order in [Order::Adaptive, Order::Fifo, Order::Lifo] {
        let mut store = Store::new(with_order(4, order), 4);
        let (mut served, mut refused) = (BTreeSet::new(), BTreeSet::new());
        let mut number = 0;
        while store.ms < 6_000 || !store.is_idle() {
            for _ in 0..if store.ms < 6_000 { 3 } else { 0 } {
                let tier = Tier::ALL[(number * 7 % 6) as usize];
                store.ask(number, &Request::new(tier).key(number));
                number += 1;
            }
            let ended = store.step();
            assert!(ended.served.into_iter().all(|it| served.insert(it)));
            assert!(ended.refused.into_iter().all(|it| refused.insert(it.0)));
        }
        assert!(served.is_disjoint(&refused), "{order:?}");
        assert_eq!((served.len() + refused.len()) as u64, number, "{order:?}");
        assert_at_rest(&store.lane.snapshot());
    }
}

/// RFC 8289: an empty queue is calm; what an overload left behind must not meet the first request of the next day.
#[test]
fn bug_40_after_an_overload_and_an_idle_hour_the_first_request_meets_no_memory_of_it() {
    let mut store = Store::new(Settings::one_lane("main", 4), 4);
    for number in 0..15_000 {
        store.ask(number, &Request::new(Tier::T3).key(number));
        if number % 3 == 0 {
            store.step();
        }
    }
    assert!(store.lane.snapshot().engaged, "an overload");
    while !store.is_idle() {
        store.step();
    }
    for _ in 0..3_600 {
        store.clock.advance(Duration::from_secs(1));
        store.controller.tick(store.clock.now());
    }
    let lane = store.lane.snapshot();
    assert_eq!((lane.codel, lane.newest_first), (CodelState::Calm, false));
    assert_eq!((lane.engaged, lane.threshold.as_str()), (false, "open"));
    let least = Request::new(Tier::T5).key(1);
    store
        .lane
        .try_admit(&least)
        .expect("nothing is shed")
        .finish(Completion::success());
    let held: Vec<_> = (0..4)
        .map(|_| store.lane.try_admit(&T1).expect("free"))
        .collect();
    let (_, waker) = CountingWaker::new();
    let (mut first, mut second) = (store.lane.admit(&least), store.lane.admit(&least));
    assert!(first.poll_admit(&waker).is_pending() && second.poll_admit(&waker).is_pending());
    drop(held.into_iter().next());
    assert!(first.poll_admit(&waker).is_ready(), "the oldest first");
}

/// cockroachdb/cockroach#71882: newest first served other transactions at each step, and all got half done. Here one
/// key has one rank at each step, so the gate lets whole transactions in.
#[test]
fn bug_42_transactions_of_ten_steps_get_done_newest_first_too() {
    let done = |order: Order| {
        let mut store = Store::new(with_order(4, order), 4);
        // A step of each is one request; who is refused a step is lost with all that was done for it.
        let mut steps = std::collections::BTreeMap::new();
        let (mut next, mut completed) = (0u64, 0u64);
        while store.ms < 20_000 {
            // 1,000 steps a second can be done; 200 transactions a second ask for 2,000.
            if store.ms.is_multiple_of(5) {
                steps.insert(next, 0);
                store.ask(next, &Request::new(Tier::T3).key(next));
                next += 1;
            }
            let ended = store.step();
            for (number, _) in ended.refused {
                steps.remove(&number);
            }
            for number in ended.served {
                let step = steps.get_mut(&number).expect("it was under way");
                *step += 1;
                if *step == 10 {
                    steps.remove(&number);
                    completed += u64::from(store.ms > 5_000);
                } else {
                    store.ask(number, &Request::new(Tier::T3).key(number));
                }
            }
        }
        completed as f64 / 15.0
    };
    let [fifo, lifo, adaptive] = [Order::Fifo, Order::Lifo, Order::Adaptive].map(done);
    eprintln!("transactions a second: {fifo:.1} fifo, {lifo:.1} lifo, {adaptive:.1} adaptive");
    assert!(fifo > 70.0, "of 100 that can be done: {fifo}");
    assert!(
        adaptive > 0.98 * fifo && lifo > 0.85 * fifo,
        "{fifo} {lifo} {adaptive}"
    );
}

/// Newest first starved the old without telling them; StarRocks/starrocks#79173: what had been given up was served
/// afterwards, and prolonged the outage.
#[test]
fn bug_43_newest_first_tells_the_old_at_their_deadline_and_serves_nothing_stale() {
    let mut store = Store::new(with_order(4, Order::Lifo), 4);
    let patience_ms = 100;
    let mut asked = Vec::new();
    while store.ms < 12_000 || !store.is_idle() {
        // Ten seconds of overload of one tier, then a tenth of that.
        let (now_ms, number) = (store.ms, asked.len() as u64);
        let comes = if now_ms < 10_000 {
            2
        } else {
            u64::from(now_ms % 5 == 0)
        };
        for number in number..number + if now_ms < 12_000 { comes } else { 0 } {
            let left = Duration::from_millis(patience_ms);
            store.ask(number, &Request::new(Tier::T2).key(number).time_left(left));
            asked.push(now_ms);
        }
        let ended = store.step();
        let age = |number: u64| store.ms - asked[number as usize];
        for &(number, reason) in &ended.refused {
            // Ticks are every ten milliseconds here.
            assert!(
                age(number) <= patience_ms + 11,
                "{} ms, {reason:?}",
                age(number)
            );
        }
        for &number in &ended.served {
            assert!(age(number) <= patience_ms + 11 + 4, "{} ms", age(number));
        }
        if now_ms > 11_000 {
            assert_eq!(ended.refused, [], "a second after the overload");
        }
    }
}

/// dsx-ai-factory/nv-redfish#212, smol-rs/async-lock#23, vectorize-io/hindsight#4157: one waiter starved for 20 s while
/// the holder came back 392 times. throttle-net 2.0: who tried right after a release won.
#[test]
fn bug_44_a_hog_that_asks_again_at_once_never_passes_a_waiter() {
    let (_controller, lane, clock) = manual(1);
    let (_, waker) = CountingWaker::new();
    for _ in 0..392 {
        let held = lane.try_admit(&T1).expect("free");
        let mut waits = lane.admit(&T1);
        assert!(waits.poll_admit(&waker).is_pending());
        clock.advance(Duration::from_millis(1));
        held.finish(Completion::success());
        let hog = lane.try_admit(&T1).map(drop);
        assert_eq!(hog.expect_err("not his turn").reason(), Reason::Busy);
        assert!(matches!(waits.poll_admit(&waker), Poll::Ready(Ok(_))));
    }
}

/// opsmill/infrahub#9879, llm-d/llm-d-router#1934: what was to be shed stood in the queue first.
#[test]
fn bug_48_what_the_gate_sheds_never_enters_the_queue() {
    let mut store = Store::new(Settings::one_lane("main", 4), 4);
    for number in 0..9_000 {
        let tier = Tier::ALL[(number % 6) as usize];
        store.ask(number, &Request::new(tier).key(number));
        if number % 3 == 0 {
            store.step();
        }
    }
    let before = store.lane.snapshot();
    assert!(before.engaged && before.waiting > 0, "{before:#?}");
    let (counter, waker) = CountingWaker::new();
    for key in 0..1_000 {
        let mut least = Request::new(Tier::T5).key(key).bytes(1_000);
        if key % 2 == 0 {
            // With a deadline it is for the engine to judge.
            least = least.time_left(Duration::from_secs(60));
        }
        let Poll::Ready(Err(rejected)) = store.lane.admit(&least).poll_admit(&waker) else {
            panic!("it is not asked to wait");
        };
        assert_eq!(rejected.reason(), Reason::Shed);
        let now = store.lane.snapshot();
        assert_eq!((now.waiting, now.waiting_bytes), (before.waiting, 0));
    }
    assert_eq!(counter.wakes(), 0);

    // A full queue in which nobody is worse refuses at once too.
    let mut settings = Settings::one_lane("main", 1);
    settings.lanes[0].queue_len_max = Some(3);
    let (_controller, lane, _clock) = manual_with(settings);
    let _held = lane.try_admit(&T1).expect("free");
    let mut queued: Vec<_> = (0..3).map(|_| lane.admit(&T1)).collect();
    assert!(
        queued
            .iter_mut()
            .all(|admit| admit.poll_admit(&waker).is_pending())
    );
    for _ in 0..1_000 {
        let refused = lane.admit(&Request::new(Tier::T5)).poll_admit(&waker);
        assert!(matches!(refused, Poll::Ready(Err(r)) if r.reason() == Reason::Evicted));
        assert_eq!(lane.snapshot().waiting_by_tier, [0, 3, 0, 0, 0, 0]);
    }
}

/// getsentry/relay#5689: a backlog of 0 delayed its refusals; alibaba/sentinel-golang#305.
#[test]
fn bug_49_a_queue_of_none_and_of_one_hold_none_and_one() {
    for len in [0, 1] {
        let mut settings = Settings::one_lane("main", 2);
        settings.lanes[0].queue_len_max = Some(len);
        let (_controller, lane, clock) = manual_with(settings);
        let (_, waker) = CountingWaker::new();
        let held = [(); 2].map(|()| lane.try_admit(&T1).expect("free"));
        let mut queued: Vec<_> = (0..5).map(|_| lane.admit(&T1)).collect();
        let waits = |admit: &mut Admit<'_>| admit.poll_admit(&waker).is_pending();
        let waiting = queued
            .iter_mut()
            .filter_map(|a| waits(a).then_some(()))
            .count();
        assert_eq!(lane.snapshot().waiting, len);
        assert!(waiting >= len as usize);
        assert_eq!(lane.snapshot().verdicts.refused(), 5 - u64::from(len));
        clock.advance(Duration::from_millis(1));
        drop(queued);
        drop(held);
        assert_at_rest(&lane.snapshot());
    }
}

/// grafana/mimir#10772: a burst right after the step that found no overload was let in whole.
#[test]
fn bug_51_between_two_ticks_the_queue_has_its_bound() {
    for (limit, most) in [(1, 160), (4, 160), (100, 2_000)] {
        let (controller, lane, clock) = manual(limit);
        for _ in 0..100 {
            let permit = lane.try_admit(&T1).expect("calm");
            clock.advance(Duration::from_millis(20));
            permit.finish(Completion::success());
            controller.tick(clock.now());
        }
        let (_, waker) = CountingWaker::new();
        let mut burst: Vec<_> = (0..10 * most).map(|_| lane.admit(&T1)).collect();
        let polled = burst.iter_mut().map(|admit| admit.poll_admit(&waker));
        let running: Vec<_> = polled
            .filter(|polled| matches!(polled, Poll::Ready(Ok(_))))
            .collect();
        let snapshot = lane.snapshot();
        assert_eq!((snapshot.in_use, snapshot.waiting), (limit, most));
        assert_eq!(running.len() as u32, limit);
        assert_eq!(snapshot.verdicts.refused(), u64::from(9 * most - limit));
    }
}

/// scylladb/scylladb#11770: inactive holders were put out on one of the paths that blocked a waiter, and not on the
/// others. Nothing holds a slot here but a permit, and whichever way it ends the next waiter has it.
#[test]
fn bug_77_whichever_way_a_slot_becomes_free_who_waits_has_it() {
    use cinnamon_core::{Config, Mode, Outcome};
    type Frees = fn(&Controller, &Lane, OwnedPermit) -> Option<OwnedPermit>;
    let ways: [(&str, Frees); 6] = [
        ("finished", |_, _, held| {
            held.finish(Completion::success());
            None
        }),
        ("failed", |_, _, held| {
            held.finish(Completion::new(Outcome::Failure));
            None
        }),
        ("dropped", |_, _, held| {
            drop(held);
            None
        }),
        ("limit raised", |_, lane, held| {
            lane.set_limit(2).expect("in bounds");
            Some(held)
        }),
        ("reconfigured", |controller, _, held| {
            let two = Config::new(Settings::one_lane("main", 2)).expect("in bounds");
            controller.reconfigure(two).expect("a limit may change");
            Some(held)
        }),
        ("switched off", |_, lane, held| {
            lane.set_mode(Mode::Off);
            Some(held)
        }),
    ];
    for (what, free) in ways {
        let (controller, lane, clock) = manual(1);
        let held = lane.try_admit_owned(&T1).expect("free");
        let (counter, waker) = CountingWaker::new();
        let mut waits = lane.admit(&T1);
        assert!(waits.poll_admit(&waker).is_pending());
        let held = free(&controller, &lane, held);
        controller.tick(clock.now());
        assert_eq!(counter.wakes(), 1, "{what}");
        assert!(
            matches!(waits.poll_admit(&waker), Poll::Ready(Ok(_))),
            "{what}"
        );
        drop(held);
        assert_at_rest(&lane.snapshot());
    }
    // A granted waiter that is gone by then is a free slot too.
    let (_controller, lane, _clock) =
        manual_with(Settings::default().lane(LaneSettings::new("main", 1)));
    let held = lane.try_admit(&T1).expect("free");
    let (_, waker) = CountingWaker::new();
    let (mut gone, mut waits) = (lane.admit(&T1), lane.admit(&T1));
    assert!(gone.poll_admit(&waker).is_pending() && waits.poll_admit(&waker).is_pending());
    drop(held);
    drop(gone);
    assert!(matches!(waits.poll_admit(&waker), Poll::Ready(Ok(_))));
}
