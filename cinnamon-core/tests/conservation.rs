//! Every offered request gets exactly one verdict; slots out and free are the limit; gauges return
//! to zero: whatever is cancelled, panics, is closed or reconfigured.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use cinnamon_core::simulation::Rng;
use cinnamon_core::{
    AdmitKind, AdmitOwned, Clock, Completion, Instant, LaneSettings, Mode, Outcome, OwnedPermit,
    Reason, Request, Settings, Tier, Verdict,
};
use proptest::prelude::*;
use support::*;

/// One step of a caller, the world or the operator.
#[derive(Clone, Debug)]
enum Step {
    Try {
        lane: usize,
        tier: usize,
    },
    Wait {
        lane: usize,
        tier: usize,
        patience_us: Option<u32>,
    },
    Exempt {
        lane: usize,
    },
    Nested {
        nth: usize,
    },
    Poll {
        nth: usize,
    },
    Cancel {
        nth: usize,
    },
    Finish {
        nth: usize,
        outcome: usize,
        cost: u32,
    },
    Drop {
        nth: usize,
    },
    Panic {
        nth: usize,
    },
    Limit {
        lane: usize,
        limit: u32,
    },
    Mode {
        mode: Mode,
    },
    LaneMode {
        lane: usize,
        mode: Mode,
    },
    Advance {
        us: u32,
    },
    BackInTime {
        us: u32,
    },
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    let lane = 0..2usize;
    let (tier, nth) = (0..6usize, 0..64usize);
    prop_oneof![
        4 => (lane.clone(), tier.clone()).prop_map(|(lane, tier)| Step::Try { lane, tier }),
        6 => (lane.clone(), tier, proptest::option::of(0..200_000u32))
            .prop_map(|(lane, tier, patience_us)| Step::Wait { lane, tier, patience_us }),
        1 => lane.clone().prop_map(|lane| Step::Exempt { lane }),
        1 => nth.clone().prop_map(|nth| Step::Nested { nth }),
        4 => nth.clone().prop_map(|nth| Step::Poll { nth }),
        2 => nth.clone().prop_map(|nth| Step::Cancel { nth }),
        5 => (nth.clone(), 0..4usize, 0..9u32)
            .prop_map(|(nth, outcome, cost)| Step::Finish { nth, outcome, cost }),
        1 => nth.clone().prop_map(|nth| Step::Drop { nth }),
        1 => nth.prop_map(|nth| Step::Panic { nth }),
        1 => (lane, 1..6u32).prop_map(|(lane, limit)| Step::Limit { lane, limit }),
        1 => mode().prop_map(|mode| Step::Mode { mode }),
        1 => (0..2usize, mode()).prop_map(|(lane, mode)| Step::LaneMode { lane, mode }),
        4 => (0..50_000u32).prop_map(|us| Step::Advance { us }),
        1 => (0..5_000_000u32).prop_map(|us| Step::BackInTime { us }),
        3 => Just(Step::Tick),
    ]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Off), Just(Mode::Monitor), Just(Mode::Enforce)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_offer_gets_one_verdict_and_every_slot_comes_back(
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let settings = Settings::default()
            .lane(LaneSettings::new("read", 3))
            .lane(LaneSettings::new("write", 1));
        let (controller, _, clock) = manual_with(settings);
        let lanes = [controller.lane("read").unwrap(), controller.lane("write").unwrap()];
        let (_, waker) = CountingWaker::new();
        let mut permits: Vec<(usize, OwnedPermit)> = Vec::new();
        let mut waiting: Vec<(usize, AdmitOwned)> = Vec::new();
        let mut offered = [0u64; 2];

        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Try { lane, tier } => {
                    let request = Request::new(Tier::ALL[tier]).key(n as u64);
                    offered[lane] += 1;
                    permits.extend(lanes[lane].try_admit_owned(&request).map(|permit| (lane, permit)));
                }
                Step::Wait { lane, tier, patience_us } => {
                    let mut request = Request::new(Tier::ALL[tier]).key(n as u64).bytes(10);
                    if let Some(us) = patience_us {
                        request = request.max_wait(Duration::from_micros(us.into()));
                    }
                    offered[lane] += 1;
                    let mut admit = lanes[lane].admit_owned(&request);
                    match admit.poll_admit(&waker) {
                        Poll::Ready(result) => permits.extend(result.map(|permit| (lane, permit))),
                        Poll::Pending => waiting.push((lane, admit)),
                    }
                }
                Step::Exempt { lane } => {
                    offered[lane] += 1;
                    let permit = lanes[lane].try_admit_owned(&Request::exempt());
                    permits.push((lane, permit.expect("exempt work is always admitted")));
                }
                Step::Nested { nth } if !permits.is_empty() => {
                    let (lane, parent) = &permits[nth % permits.len()];
                    let (lane, child) = (*lane, parent.nested());
                    offered[lane] += 1;
                    permits.push((lane, child));
                }
                Step::Poll { nth } if !waiting.is_empty() => {
                    let nth = nth % waiting.len();
                    let (lane, polled) = (waiting[nth].0, waiting[nth].1.poll_admit(&waker));
                    if let Poll::Ready(result) = polled {
                        drop(waiting.swap_remove(nth));
                        permits.extend(result.map(|permit| (lane, permit)));
                    }
                }
                Step::Cancel { nth } if !waiting.is_empty() => {
                    drop(waiting.swap_remove(nth % waiting.len()));
                }
                Step::Finish { nth, outcome, cost } if !permits.is_empty() => {
                    let outcomes = [Outcome::Success, Outcome::Failure, Outcome::Overloaded, Outcome::Ignored];
                    let (_, permit) = permits.swap_remove(nth % permits.len());
                    permit.finish(Completion::new(outcomes[outcome]).cost(cost));
                }
                Step::Drop { nth } if !permits.is_empty() => {
                    drop(permits.swap_remove(nth % permits.len()));
                }
                Step::Panic { nth } if !permits.is_empty() => {
                    let permit = permits.swap_remove(nth % permits.len());
                    let work = catch_unwind(AssertUnwindSafe(move || {
                        let _permit = permit;
                        std::panic::resume_unwind(Box::new("the work fails"));
                    }));
                    prop_assert!(work.is_err());
                }
                Step::Limit { lane, limit } => lanes[lane].set_limit(limit).unwrap(),
                Step::Mode { mode } => controller.set_mode(mode),
                Step::LaneMode { lane, mode } => lanes[lane].set_mode(mode),
                Step::Advance { us } => { clock.advance(Duration::from_micros(us.into())); }
                Step::BackInTime { us } => {
                    let back = clock.now().as_nanos().saturating_sub(u64::from(us) * 1_000);
                    clock.set(Instant::from_nanos(back));
                }
                Step::Tick => controller.tick(clock.now()),
                _ => {}
            }
            for (i, lane) in lanes.iter().enumerate() {
                let snapshot = lane.snapshot();
                assert_conserved(&snapshot);
                prop_assert_eq!(snapshot.offered, offered[i]);
                let held = permits.iter().filter(|(l, _)| *l == i).count() as u32;
                let unseen = waiting.iter().filter(|(l, _)| *l == i).count() as u32;
                let running = snapshot.in_use + snapshot.exempt_in_use + snapshot.open_in_use
                    - snapshot.shadow_in_use;
                let waits = snapshot.waiting - snapshot.shadow_waiting;
                // Every permit we hold runs; beyond these only waiters that have not looked yet.
                prop_assert!(held <= running && running + waits <= held + unseen);
            }
        }
        permits.clear();
        // What is left in a shadow ends with it.
        controller.set_mode(Mode::Enforce);
        lanes.iter().for_each(|lane| lane.set_mode(Mode::Enforce));
        for (_, mut admit) in waiting.drain(..) {
            // Every wait is bounded: by 60 s at the most, and the clock may have to catch up 5 s.
            let ended = (0..70).any(|_| {
                clock.advance(Duration::from_secs(1));
                controller.tick(clock.now());
                admit.poll_admit(&waker).is_ready()
            });
            prop_assert!(ended);
        }
        for lane in &lanes {
            assert_at_rest(&lane.snapshot());
        }
    }
}

/// Callers that wait, give up, panic and retry on eight threads, while an operator changes the limit
/// and at last closes: what the callers were told is what the lane counted, reason by reason.
#[test]
fn a_threaded_stress_with_cancellation_panics_and_close_conserves_everything() {
    const THREADS: u64 = 8;
    const OFFERS: u64 = 4_000;
    let seed = 0x5eed;
    let (controller, lane) = live(3);
    let told: [AtomicU64; 9] = Default::default();
    let (offered, admitted, cancelled) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (running, peak) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let count = |reason: Reason| told[reason as usize].fetch_add(1, Ordering::Relaxed);
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for worker in 0..THREADS {
            let (lane, count, offered) = (&lane, &count, &offered);
            let (admitted, cancelled, running, peak) = (&admitted, &cancelled, &running, &peak);
            let handle = scope.spawn(move || {
                let mut rng = Rng::new(seed + worker);
                let (_, waker) = CountingWaker::new();
                for n in 0..OFFERS {
                    let tier = Tier::ALL[(rng.bits() % 6) as usize];
                    let request = Request::new(tier)
                        .key(rng.bits())
                        .max_wait(Duration::from_micros(rng.bits() % 3_000));
                    offered.fetch_add(1, Ordering::Relaxed);
                    let result = match rng.bits() % 4 {
                        0 => lane.try_admit(&request),
                        1 | 2 => lane.admit_blocking(&request),
                        _ => {
                            let mut admit = lane.admit(&request);
                            let mut polled = admit.poll_admit(&waker);
                            for _ in 0..rng.bits() % 3 {
                                if polled.is_pending() {
                                    thread::yield_now();
                                    polled = admit.poll_admit(&waker);
                                }
                            }
                            match polled {
                                Poll::Ready(result) => result,
                                Poll::Pending => {
                                    drop(admit);
                                    cancelled.fetch_add(1, Ordering::Relaxed);
                                    continue;
                                }
                            }
                        }
                    };
                    match result {
                        Ok(permit) => {
                            admitted.fetch_add(1, Ordering::Relaxed);
                            peak.fetch_max(
                                running.fetch_add(1, Ordering::SeqCst) + 1,
                                Ordering::SeqCst,
                            );
                            let fails = rng.bits().is_multiple_of(8);
                            let work = catch_unwind(AssertUnwindSafe(|| {
                                running.fetch_sub(1, Ordering::SeqCst);
                                if fails {
                                    let _permit = permit;
                                    std::panic::resume_unwind(Box::new("the work fails"));
                                }
                                permit.finish(Completion::success());
                            }));
                            assert_eq!(work.is_err(), fails, "seed {seed}, offer {n}");
                        }
                        Err(rejected) => {
                            count(rejected.reason());
                        }
                    }
                }
            });
            workers.push(handle);
        }
        {
            let mut rng = Rng::new(seed);
            for _ in 0..2_000 {
                lane.set_limit(1 + (rng.bits() % 5) as u32).unwrap();
                assert_conserved(&lane.snapshot());
                thread::yield_now();
            }
            // Close in the middle of things.
            let working = || workers.iter().any(|worker| !worker.is_finished());
            while working() && offered.load(Ordering::Relaxed) < THREADS * OFFERS * 3 / 4 {
                thread::yield_now();
            }
            controller.close();
        }
    });
    let snapshot = lane.snapshot();
    assert_at_rest(&snapshot);
    assert_eq!(
        snapshot.offered,
        offered.load(Ordering::Relaxed),
        "seed {seed}"
    );
    assert!(
        peak.load(Ordering::SeqCst) <= 5,
        "{peak:?} ran at once, the limit was never above 5"
    );
    // These are told on the spot; nobody can miss them.
    for reason in [Reason::Shed, Reason::Busy, Reason::Hopeless] {
        let counted = snapshot.verdicts.total(Verdict::Refuse(reason));
        let told = told[reason as usize].load(Ordering::Relaxed);
        assert_eq!(counted, told, "seed {seed}, {reason}");
    }
    // A caller that gave up may have had its verdict without having looked.
    let told_refused: u64 = told.iter().map(|n| n.load(Ordering::Relaxed)).sum();
    let unseen = cancelled.load(Ordering::Relaxed) - snapshot.verdicts.total(Verdict::Cancel);
    let counted = snapshot.verdicts.admitted() + snapshot.verdicts.refused();
    assert_eq!(
        counted,
        admitted.load(Ordering::Relaxed) + told_refused + unseen,
        "seed {seed}"
    );
    assert!(snapshot.verdicts.total(Verdict::Admit(AdmitKind::Slot)) > 0);
}
