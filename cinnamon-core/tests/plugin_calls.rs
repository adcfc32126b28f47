//! What plugins may do from inside a call of the controller, and everything at once: looked for, and held.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of tests may end the test that calls it"
)]

mod support;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use cinnamon_core::simulation::Rng;
use cinnamon_core::{
    Class, Completion, Config, Controller, FinishEvent, Instant, Law, ManualClock, Mode, Observer,
    OfferEvent, OwnedPermit, Reading, Request, Settings, Tier,
};
use support::plugins::*;
use support::*;

type Handle = Arc<Mutex<Option<Controller>>>;

/// Everything a handle can be used for.
fn call_back(controller: &Controller) {
    let _ = controller.snapshot();
    controller.set_mode(Mode::Off);
    controller.set_mode(Mode::Monitor);
    controller.set_mode(Mode::Enforce);
    controller
        .reconfigure((*controller.config()).clone())
        .unwrap();
    let lane = controller.lane("main").unwrap();
    lane.set_limit(4).unwrap();
    drop(lane.try_admit(&T1));
    controller.tick(controller.clock().now());
}

#[test]
fn a_signal_may_call_back_from_its_sample() {
    let (handle, calls) = (Handle::default(), Arc::new(AtomicU32::new(0)));
    let (own, counts) = (Arc::clone(&handle), Arc::clone(&calls));
    let signal = Made::new("calls", move |_, _| {
        let controller = own.lock().unwrap().clone();
        if let Some(controller) = controller {
            call_back(&controller);
            controller.set_signal_mode("calls", Mode::Enforce).unwrap();
            drop(controller.lane("main").unwrap().admit_blocking(&T1));
            counts.fetch_add(1, Ordering::SeqCst);
        }
        Reading::pressure(0.1)
    });
    let controller = Controller::builder(config())
        .signal(signal)
        .build()
        .unwrap();
    *handle.lock().unwrap() = Some(controller.clone());
    until("it has called back", || calls.load(Ordering::SeqCst) > 5);
    handle.lock().unwrap().take();
    assert!(!controller.snapshot().failed);
}

/// Calls back from what it is told, but not from what that leads to.
#[derive(Debug, Default)]
struct Calls {
    handle: Handle,
    inside: AtomicBool,
    calls: AtomicU32,
}

impl Calls {
    fn call(&self) {
        let controller = self.handle.lock().unwrap().clone();
        if let Some(controller) = controller
            && !self.inside.swap(true, Ordering::SeqCst)
        {
            call_back(&controller);
            self.calls.fetch_add(1, Ordering::SeqCst);
            self.inside.store(false, Ordering::SeqCst);
        }
    }
}

impl Observer for Calls {
    fn on_offer(&self, _: &OfferEvent<'_>) {
        self.call();
    }

    fn on_finish(&self, _: &FinishEvent) {
        self.call();
    }
}

#[test]
fn an_observer_may_call_back() {
    let calls = Arc::new(Calls::default());
    let controller = Controller::builder(config())
        .observer(Arc::clone(&calls) as Arc<dyn Observer>)
        .build_manual(ManualClock::new().shared())
        .unwrap();
    *calls.handle.lock().unwrap() = Some(controller.clone());
    let lane = controller.lane("main").unwrap();
    for _ in 0..10 {
        drop(lane.try_admit(&T1).unwrap());
    }
    calls.handle.lock().unwrap().take();
    assert_eq!(calls.calls.load(Ordering::SeqCst), 20);
    assert!(!controller.snapshot().failed);
    assert_at_rest(&lane.snapshot());
}

/// Drops the last handle but for the permit's.
#[derive(Debug, Default)]
struct Drops(Handle);

impl Observer for Drops {
    fn on_finish(&self, _: &FinishEvent) {
        drop(self.0.lock().unwrap().take());
    }
}

#[test]
fn the_last_handle_may_be_dropped_inside_an_observer_or_a_sample() {
    let drops = Arc::new(Drops::default());
    let controller = Controller::builder(config())
        .signal(Made::new("calm", |_, _| Reading::pressure(0.1)))
        .observer(Arc::clone(&drops) as Arc<dyn Observer>)
        .build()
        .unwrap();
    let permit = controller
        .lane("main")
        .unwrap()
        .try_admit_owned(&T1)
        .unwrap();
    *drops.0.lock().unwrap() = Some(controller);
    permit.finish(Completion::success());
    assert!(drops.0.lock().unwrap().is_none());

    let handle = Handle::default();
    let own = Arc::clone(&handle);
    let signal = Made::new("drops", move |_, _| {
        drop(own.lock().unwrap().take());
        Reading::pressure(0.1)
    });
    let controller = Controller::builder(config())
        .signal(signal)
        .build()
        .unwrap();
    *handle.lock().unwrap() = Some(controller);
    until("it is dropped", || handle.lock().unwrap().is_none());
}

/// One of the threads that do everything at once.
fn do_everything(controller: &Controller, seed: u64, steps: u32) {
    let lane = controller.lane("main").unwrap();
    let (_, waker) = CountingWaker::new();
    let mut rng = Rng::new(seed);
    let mut held: Vec<OwnedPermit> = Vec::new();
    for _ in 0..steps {
        let n = rng.bits() >> 33;
        let mut request = Request::new(Tier::ALL[(n % 6) as usize])
            .key(n)
            .class(Class((n % 5) as u16));
        if n.is_multiple_of(5) {
            request = request.max_wait(Duration::from_micros(n % 3_000));
        }
        match n % 13 {
            0..=3 => held.extend(lane.try_admit_owned(&request)),
            4..=6 => {
                // Dropped while it waits, if it does.
                let mut waiter = lane.admit_owned(&request);
                for _ in 0..3 {
                    if let Poll::Ready(admitted) = waiter.poll_admit(&waker) {
                        held.extend(admitted);
                        break;
                    }
                    std::thread::yield_now();
                }
            }
            7 => held.extend(held.last().map(OwnedPermit::nested)),
            8 => lane.set_limit(1 + (n / 13 % 5) as u32).unwrap(),
            9 => {
                let modes = [Mode::Off, Mode::Monitor, Mode::Enforce];
                match n / 13 % 8 {
                    0 | 1 => controller.set_mode(modes[(n / 104 % 3) as usize]),
                    2 => controller
                        .set_signal_mode("debt", modes[(n / 104 % 3) as usize])
                        .unwrap(),
                    3 => drop(controller.snapshot()),
                    4 => controller.tick(controller.clock().now()),
                    _ => {}
                }
            }
            10 if (n / 13).is_multiple_of(8) => {
                let mut settings: Settings = (**controller.config()).clone();
                settings.lanes[0].limit = (1 + (n / 104 % 8) as u32).into();
                settings.law = [Law::Flow, Law::Budget][(n / 104 % 2) as usize];
                controller
                    .reconfigure(Config::new(settings).unwrap())
                    .unwrap();
            }
            _ => {
                for permit in held.drain(held.len() / 2..) {
                    permit.finish(Completion::success().cost((n % 20) as u32 + 1));
                }
            }
        }
        if held.len() > 40 {
            held.clear();
        }
    }
}

#[test]
fn modes_limits_laws_cancels_and_nesting_at_once_lose_no_slot() {
    let debt = Made::new("debt", |now, _| {
        let fires = now.nanos_since(Instant::ZERO) / 50_000_000 % 2 == 0;
        Reading::pressure(if fires { 3.0 } else { 0.0 })
    });
    let controller = Controller::builder(config()).signal(debt).build().unwrap();
    std::thread::scope(|scope| {
        for seed in 1..=3 {
            let controller = &controller;
            scope.spawn(move || do_everything(controller, seed, 100_000));
        }
    });
    let lane = controller.lane("main").unwrap();
    assert!(!controller.snapshot().failed, "seeds 1 to 3");
    controller.set_mode(Mode::Enforce);
    lane.set_limit(3).unwrap();
    let lane = lane.snapshot();
    assert_eq!(lane.shadow_in_use, 0, "seeds 1 to 3: {lane:#?}");
    assert_at_rest(&lane);
}
