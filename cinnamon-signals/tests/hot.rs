//! Culprits in a controller that throttles whom [`HotKeys`] and [`HotTenants`] name, on a lane that can do 1,000 requests a
//! second.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what fails here fails the test, and its figures are for people"
)]

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cinnamon_core::simulation::Rng;
use cinnamon_core::{
    Completion, Config, Controller, Instant, Lane, ManualClock, Observer, OwnedPermit, Rejected,
    Request, Settings, Signal, SignalSnapshot, Tenant, Tier, Who,
};
use cinnamon_signals::{HotKeys, HotTenants};

const LIMIT: u32 = 10;
const SERVICE: Duration = Duration::from_millis(10);
const KEYS: usize = 1_000_000;
/// None of the other keys.
const HOT: u64 = u64::MAX;

type Waiting = Pin<Box<dyn Future<Output = Result<OwnedPermit, Rejected>>>>;

/// Offered and refused.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    offered: u64,
    refused: u64,
}

impl Counts {
    fn share(self) -> f64 {
        self.refused as f64 / self.offered.max(1) as f64
    }
}

/// A lane on a manual clock; whoever finds no slot waits. Requests come at random, whether it is the culprit's or not.
struct Rig {
    clock: ManualClock,
    controller: Controller,
    lane: Lane,
    rng: Rng,
    waiting: VecDeque<(bool, Waiting)>,
    running: VecDeque<(Instant, OwnedPermit)>,
    served: u64,
    culprit: Counts,
    others: Counts,
}

impl Rig {
    fn new(signal: impl Signal + 'static, observer: impl Observer + 'static, seed: u64) -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1));
        let config = Config::new(Settings::one_lane("main", LIMIT)).unwrap();
        let controller = Controller::builder(config)
            .signal(signal)
            .observer(Arc::new(observer))
            .build_manual(clock.shared())
            .unwrap();
        Self {
            lane: controller.lane("main").unwrap(),
            clock,
            controller,
            rng: Rng::new(seed),
            waiting: VecDeque::new(),
            running: VecDeque::new(),
            served: 0,
            culprit: Counts::default(),
            others: Counts::default(),
        }
    }

    /// So long, with so many requests a second of the culprit and of the others.
    fn run(
        &mut self,
        ms: u64,
        (culprit, others): (f64, f64),
        mut request: impl FnMut(&mut Rng, bool) -> Request,
    ) {
        (self.served, self.culprit, self.others) = Default::default();
        for _ in 0..ms {
            let now = self.clock.advance(Duration::from_millis(1));
            let done = |(until, _): &(Instant, OwnedPermit)| *until <= now;
            while self.running.front().is_some_and(done)
                && let Some((_, permit)) = self.running.pop_front()
            {
                permit.finish(Completion::success());
                self.served += 1;
            }
            // About Poisson: twenty chances a millisecond.
            for _ in 0..20 {
                let at = self.rng.unit() * 20_000.0;
                if at < culprit + others {
                    let is_culprit = at < culprit;
                    let request = request(&mut self.rng, is_culprit);
                    let admission = Box::pin(self.lane.admit_owned(&request));
                    self.count(is_culprit).offered += 1;
                    self.waiting.push_back((is_culprit, admission));
                }
            }
            self.poll(now);
            if now.as_nanos() / 1_000_000 % 10 == 1 {
                self.controller.tick(now);
                self.poll(now);
            }
        }
    }

    fn poll(&mut self, now: Instant) {
        for _ in 0..self.waiting.len() {
            let Some((is_culprit, mut admission)) = self.waiting.pop_front() else {
                break;
            };
            match admission
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
            {
                Poll::Ready(Ok(permit)) => self.running.push_back((now.after(SERVICE), permit)),
                Poll::Ready(Err(_)) => self.count(is_culprit).refused += 1,
                Poll::Pending => self.waiting.push_back((is_culprit, admission)),
            }
        }
    }

    const fn count(&mut self, culprit: bool) -> &mut Counts {
        if culprit {
            &mut self.culprit
        } else {
            &mut self.others
        }
    }

    /// The only signal there is.
    fn signal(&self) -> SignalSnapshot {
        self.controller.snapshot().signals.remove(0)
    }

    fn names(&self) -> Vec<Who> {
        let signal = self.signal();
        signal.culprits.iter().map(|one| one.who).collect()
    }
}

/// Any tier but t0, which is refused by nobody.
fn tier(rng: &mut Rng) -> Tier {
    [Tier::T1, Tier::T2, Tier::T3, Tier::T4][(rng.bits() % 4) as usize]
}

/// Keys 0, 1, 2, … with weights 1, 2^-0.8, 3^-0.8, …
fn zipf() -> Vec<f64> {
    let mut sum = 0.0;
    let add = |rank: usize| {
        sum += (rank as f64).powf(-0.8);
        sum
    };
    (1..=KEYS).map(add).collect()
}

/// Runs an overload by one culprit beside others, from a calm start, and then without the others. `who` is the culprit.
fn named_throttled_and_let_go(
    mut rig: Rig,
    who: Who,
    (culprit, others): (f64, f64),
    mut request: impl FnMut(&mut Rng, bool) -> Request,
) {
    rig.run(10_000, (0.0, others), &mut request);
    assert_eq!((rig.others.refused, rig.names()), (0, vec![]), "calm");
    let (mut named_ms, mut throttled_ms) = (None, None);
    for tenths in 1..=10 {
        rig.run(100, (culprit, others), &mut request);
        assert!(
            rig.names().iter().all(|one| *one == who),
            "{:?}",
            rig.names()
        );
        if rig.names() == [who] {
            named_ms.get_or_insert(100 * tenths);
        }
        if !rig.controller.snapshot().throttles.is_empty() {
            throttled_ms.get_or_insert(100 * tenths);
        }
    }
    assert!(
        named_ms.is_some() && throttled_ms.is_some(),
        "{named_ms:?} {throttled_ms:?}"
    );
    rig.run(30_000, (culprit, others), &mut request);
    let (refused, theirs) = (rig.culprit.share(), rig.others.share());
    let used = rig.served as f64 / 30.0 / 1_000.0;
    let threshold = rig.signal().threshold_levels;
    println!(
        "{who:?}: named after {named_ms:?} ms, throttled after {throttled_ms:?}; then {refused:.3} of it refused, {theirs:.5} \
         of the others; {used:.2} of the lane used"
    );
    assert!(theirs <= 0.001, "{theirs}");
    assert!(refused > 0.5, "{refused}");
    assert!(used > 0.65, "{used}");
    assert_eq!(threshold, 768.0, "it never moves the threshold");

    rig.run(2_000, (culprit, 0.0), &mut request);
    let late = rig.culprit;
    rig.run(10_000, (culprit, 0.0), &mut request);
    println!(
        "  refused in the two seconds after the others went {late:?}; in the ten after that {:?}",
        rig.culprit
    );
    assert_eq!(rig.culprit.refused, 0);
    assert!(rig.controller.snapshot().throttles.is_empty());
}

#[test]
fn a_hot_key_is_throttled_nobody_else_is_refused_and_it_is_let_go() {
    let zipf = zipf();
    let total = zipf[KEYS - 1];
    // A hundred times as often as the first of the others; with them 1,402 a second.
    let (hot, others) = (100.0 / total * 600.0, 600.0);
    for seed in 1..=20 {
        let (signal, handle) = HotKeys::with_seed(seed);
        let request = |rng: &mut Rng, culprit: bool| {
            let tier = tier(rng);
            let at = rng.unit() * total;
            let key = || Rng::new(zipf.partition_point(|sum| *sum <= at) as u64).bits();
            Request::new(tier).key(if culprit { HOT } else { key() })
        };
        println!("seed {seed}");
        let rig = Rig::new(signal, handle, seed);
        named_throttled_and_let_go(rig, Who::Key(HOT), (hot, others), request);
    }
}

#[test]
fn a_tenant_at_ten_times_its_share_is_throttled_nobody_else_is_refused_and_it_is_let_go() {
    for seed in 1..=20 {
        let (signal, handle) = HotTenants::new();
        let request = |rng: &mut Rng, culprit: bool| {
            let tier = tier(rng);
            let tenant = if culprit { 99 } else { rng.bits() % 20 };
            let key = rng.bits();
            Request::new(tier).key(key).tenant(Tenant(tenant as u32))
        };
        println!("seed {seed}");
        let rig = Rig::new(signal, handle, seed);
        // Twenty with 40 a second each, and one with 400.
        let who = Who::Tenant(Tenant(99));
        named_throttled_and_let_go(rig, who, (400.0, 800.0), request);
    }
}

#[test]
fn overload_by_equal_tenants_and_by_one_alone_throttles_nobody() {
    for tenants in [1, 5, 20] {
        let (signal, handle) = HotTenants::new();
        let mut rig = Rig::new(signal, handle, 7);
        let request = |rng: &mut Rng, _: bool| {
            let tier = tier(rng);
            let tenant = Tenant((rng.bits() % tenants) as u32);
            Request::new(tier).key(rng.bits()).tenant(tenant)
        };
        for _ in 0..100 {
            rig.run(100, (0.0, 1_500.0), request);
            assert!(rig.names().is_empty() && rig.controller.snapshot().throttles.is_empty());
        }
        assert!(
            rig.others.refused > 0,
            "the lane's own gate is what is left"
        );
    }
}
