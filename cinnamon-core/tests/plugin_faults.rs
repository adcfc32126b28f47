//! Faults that a review found in controllers with signals, observers and modes: each says what was measured then.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of tests may end the test that calls it"
)]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use cinnamon_core::{
    Clock, Cohort, Completion, Config, Controller, Dynamics, FinishEvent, Instant, Lane, Law,
    ManualClock, Mode, MonotonicClock, Observer, OfferAnswer, OfferEvent, OwnedPermit, Priority,
    Reading, Reason, Request, Settings, SignalFault, SignalSettings, SignalSnapshot, SignalState,
    Tier, Verdict,
};
use support::plugins::*;
use support::*;

const STEP: Duration = Duration::from_millis(10);

/// A manual clock that is `seconds` old.
fn clock_at(seconds: u64) -> ManualClock {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(seconds));
    clock
}

/// A controller on this clock with this signal.
fn with_signal(clock: &ManualClock, signal: Made) -> Controller {
    let builder = Controller::builder(config()).signal(signal);
    builder.build_manual(clock.shared()).unwrap()
}

fn signal(controller: &Controller) -> SignalSnapshot {
    controller.snapshot().signals[0].clone()
}

fn faults(controller: &Controller) -> u64 {
    signal(controller).faults.iter().sum()
}

/// One whose pressure stands still, and that cuts from t4 on once it `cuts`.
fn cascade(pressure: f64, cuts: &Arc<AtomicBool>) -> Made {
    let cuts = Arc::clone(cuts);
    let from = Priority::new(Tier::T4, Cohort::new(0).unwrap());
    Made::new("cascade", move |_, _| {
        let reading = Reading::pressure(pressure);
        if cuts.load(Ordering::SeqCst) {
            reading.cut(from)
        } else {
            reading
        }
    })
}

/// Offers `each` requests of t2 every 10 ms, which take as long, until `done`; returns whether it came to that.
fn crowd(
    (controller, lane, clock): (&Controller, &Lane, &ManualClock),
    each: u64,
    steps: u64,
    mut done: impl FnMut() -> bool,
) -> bool {
    let (_, waker) = CountingWaker::new();
    let (mut running, mut waiting) = (Vec::<OwnedPermit>::new(), Vec::new());
    for step in 0..steps {
        for n in 0..each {
            waiting.push(lane.admit_owned(&Request::new(Tier::T2).key(step * each + n)));
        }
        let mut poll = |running: &mut Vec<OwnedPermit>| {
            waiting.retain_mut(|waiter| match waiter.poll_admit(&waker) {
                Poll::Ready(admitted) => {
                    running.extend(admitted);
                    false
                }
                Poll::Pending => true,
            });
        };
        poll(&mut running);
        clock.advance(STEP);
        for permit in running.drain(..) {
            permit.finish(Completion::success());
        }
        poll(&mut running);
        controller.tick(clock.now());
        if done() {
            return true;
        }
    }
    false
}

/// Real time; counts how often the sampler and the control thread ask for it.
#[derive(Debug)]
struct Counting {
    clock: MonotonicClock,
    sampler: AtomicU64,
    driver: AtomicU64,
}

impl Clock for Counting {
    fn now(&self) -> Instant {
        match std::thread::current().name() {
            Some("cinnamon-sampler") => self.sampler.fetch_add(1, Ordering::SeqCst),
            Some("cinnamon-driver") => self.driver.fetch_add(1, Ordering::SeqCst),
            _ => 0,
        };
        self.clock.now()
    }
}

/// Its plan stood still in the past, so the sampler never slept: 4.2 million readings of the clock in half a second.
#[test]
fn a_signal_that_is_off_lets_its_sampler_sleep() {
    let clock = Arc::new(Counting {
        clock: MonotonicClock::new(),
        sampler: AtomicU64::new(0),
        driver: AtomicU64::new(0),
    });
    let mut off = SignalSettings::new("debt");
    off.mode = Mode::Off;
    let config = Config::new(Settings::one_lane("main", 4).signal(off)).unwrap();
    let controller = Controller::builder(config)
        .clock(Arc::clone(&clock) as Arc<dyn Clock>)
        .signal(Made::new("debt", |_, _| Reading::pressure(0.1)))
        .build()
        .unwrap();
    until("a few ticks of an idle controller", || {
        clock.driver.load(Ordering::SeqCst) > 6
    });
    let reads = clock.sampler.load(Ordering::SeqCst);
    assert!(reads < 100, "{reads} readings");
    drop(controller);
}

/// It was "slow" after three of its own periods, three minutes: the other was sampled 0 times in 2 s.
#[test]
fn a_signal_of_a_long_period_that_hangs_does_not_silence_the_others() {
    let (release, held) = channel::<()>();
    let others = Arc::new(AtomicU32::new(0));
    let mut hangs = Made::new("scan", move |_, _| {
        let _ = held.recv();
        Reading::pressure(0.1)
    });
    hangs.period = Duration::from_secs(60);
    let counts = Arc::clone(&others);
    let other = Made::new("lag", move |_, _| {
        counts.fetch_add(1, Ordering::SeqCst);
        Reading::pressure(0.4)
    });
    let builder = Controller::builder(config()).signal(hangs).signal(other);
    let controller = builder.build().unwrap();
    let lane = controller.lane("main").unwrap();
    let _running = lane.try_admit(&T1).unwrap();
    until("the other is sampled", || {
        others.load(Ordering::SeqCst) > 10
    });
    let scan = signal(&controller);
    assert_eq!(scan.fault, None, "three periods are not over");
    drop(release);
}

/// Its sample was taken to have begun when the round did: found slow three times in 3 s.
#[test]
fn a_signal_is_not_blamed_for_who_was_sampled_before_it() {
    let clock = clock_at(1);
    let (release, held) = channel::<()>();
    let began = Arc::new(AtomicBool::new(false));
    let takes = clock.clone();
    let mut scan = Made::new("scan", move |_, _| {
        takes.advance(Duration::from_millis(400));
        Reading::pressure(0.1)
    });
    scan.period = Duration::from_secs(3_600);
    let begins = Arc::clone(&began);
    let lag = Made::new("lag", move |_, _| {
        begins.store(true, Ordering::SeqCst);
        let _ = held.recv();
        Reading::pressure(0.4)
    });
    let builder = Controller::builder(config()).signal(scan).signal(lag);
    let controller = builder.clock(clock.shared()).build().unwrap();
    until("its sample", || began.load(Ordering::SeqCst));
    controller.tick(clock.advance(Duration::from_millis(30)));
    let lag = &controller.snapshot().signals[1];
    assert_eq!(lag.faults[SignalFault::Slow as usize], 0, "{lag:?}");
    drop(release);
}

/// Nothing was sampled any more, and nobody said so: the sample under way had begun in the future.
#[test]
fn a_clock_set_back_while_a_sample_hangs_silences_no_other() {
    let clock = clock_at(7_200);
    let (release, held) = channel::<()>();
    let hung = Arc::new(AtomicBool::new(false));
    let others = Arc::new(AtomicU32::new(0));
    let begins = Arc::clone(&hung);
    let hangs = Made::new("hangs", move |_, _| {
        begins.store(true, Ordering::SeqCst);
        let _ = held.recv();
        Reading::pressure(0.1)
    });
    let counts = Arc::clone(&others);
    let other = Made::new("other", move |_, _| {
        counts.fetch_add(1, Ordering::SeqCst);
        Reading::pressure(0.4)
    });
    let builder = Controller::builder(config()).signal(other).signal(hangs);
    let controller = builder.clock(clock.shared()).build().unwrap();
    let lane = controller.lane("main").unwrap();
    let _running = lane.try_admit(&T1).unwrap();
    until("the sample that hangs", || hung.load(Ordering::SeqCst));
    clock.set(Instant::from_nanos(1_000_000_000));
    let before = others.load(Ordering::SeqCst);
    until("the other goes on", || {
        clock.advance(Duration::from_millis(1));
        others.load(Ordering::SeqCst) > before
    });
    drop(release);
}

/// Silence was told by the clock, which then had hours to catch up: after ten horizons it still held the gate.
#[test]
fn a_clock_set_back_does_not_keep_the_grip_of_a_signal_that_fell_silent() {
    let clock = clock_at(7_200);
    // What is pushed into a cache; nothing, once whoever pushes has died.
    let pushed_at = Arc::new(AtomicU64::new(u64::MAX));
    let cache = Arc::clone(&pushed_at);
    let cached = Made::new("cached", move |now, _| {
        let at = Instant::from_nanos(cache.load(Ordering::SeqCst));
        let live = at == Instant::FAR_FUTURE;
        Reading::pressure(1.8).taken_at(if live { now } else { at })
    });
    let controller = with_signal(&clock, cached);
    serve(&controller, &clock, 3, Tier::T2);
    assert_eq!(signal(&controller).state, SignalState::Engaged);
    pushed_at.store(clock.now().as_nanos(), Ordering::SeqCst);
    clock.set(Instant::from_nanos(3_600_000_000_000));
    serve(&controller, &clock, 10, Tier::T2);
    let cached = signal(&controller);
    assert_eq!(cached.state, SignalState::Ignored, "{cached:?}");
}

/// It was removed after the third until the process was started again, and said that it was waiting.
#[test]
fn a_signal_that_panicked_for_a_moment_comes_back() {
    let asked = Arc::new(AtomicU32::new(0));
    let counts = Arc::clone(&asked);
    let away = Made::new("replica", move |_, _| {
        if counts.fetch_add(1, Ordering::SeqCst) < 3 {
            resume_unwind(Box::new("the replica is away"));
        }
        Reading::pressure(0.4)
    });
    let clock = clock_at(1);
    let controller = with_signal(&clock, away);
    serve(&controller, &clock, 2, Tier::T2);
    let replica = signal(&controller);
    assert_eq!(replica.state, SignalState::Calm, "{replica:?}");
    assert_eq!(replica.faults[SignalFault::Panicked as usize], 3);
}

/// Switched off and on it was waiting for ever, without a fault.
#[test]
fn a_signal_that_always_panics_says_so_again_after_off_and_on() {
    let clock = clock_at(1);
    let broken = Made::new("broken", |_, _| resume_unwind(Box::new("always")));
    let controller = with_signal(&clock, broken);
    for _ in 0..2 {
        serve(&controller, &clock, 2, Tier::T2);
        assert_eq!(signal(&controller).fault, Some(SignalFault::Panicked));
        controller.set_signal_mode("broken", Mode::Off).unwrap();
        controller.tick(clock.advance(STEP));
        controller.set_signal_mode("broken", Mode::Enforce).unwrap();
    }
}

/// Its value was taken for the one that it knew before it was off, so there was none: no pressure any more.
#[test]
fn off_and_on_again_loses_no_cached_value() {
    let clock = clock_at(10);
    let taken_at = clock.now();
    let mut cached = Made::new("cached", move |_, _| {
        Reading::pressure(0.4).taken_at(taken_at)
    });
    cached.dynamics = Dynamics::settling(Duration::from_secs(600));
    let controller = with_signal(&clock, cached);
    for _ in 0..2 {
        serve(&controller, &clock, 1, Tier::T1);
        assert_eq!(signal(&controller).pressure, Some(0.4));
        controller.set_signal_mode("cached", Mode::Off).unwrap();
        controller.tick(clock.advance(STEP * 10));
        controller.set_signal_mode("cached", Mode::Enforce).unwrap();
    }
    assert_eq!(faults(&controller), 0);
}

/// 500 values of 2 s ago from a signal that is 2 s late: none was read, all were stale.
#[test]
fn a_gauge_that_is_honest_about_its_delay_is_not_stale() {
    let clock = clock_at(100);
    let delay = Duration::from_secs(2);
    let mut late = Made::new("lag", move |now, _| {
        Reading::pressure(0.5).taken_at(Instant::from_nanos(
            now.nanos_since(Instant::ZERO) - 2_000_000_000,
        ))
    });
    late.dynamics = Dynamics::settling(Duration::from_secs(1)).delayed(delay);
    let controller = with_signal(&clock, late);
    serve(&controller, &clock, 5, Tier::T1);
    let late = signal(&controller);
    assert_eq!((late.readings, faults(&controller)), (500, 0));
    assert_eq!(late.state, SignalState::Calm);
}

/// One in five readings was there to be had; between them a healthy signal was stale.
#[test]
fn a_horizon_shorter_than_the_period_does_not_make_a_signal_stale() {
    let mut settings = SignalSettings::new("slow");
    (settings.horizon_ms, settings.period_ms) = (Some(50), Some(1_000));
    let config = Config::new(Settings::one_lane("main", 4).signal(settings)).unwrap();
    let clock = clock_at(1);
    let controller = Controller::builder(config)
        .signal(Made::new("slow", |_, _| Reading::pressure(0.4)))
        .build_manual(clock.shared())
        .unwrap();
    serve(&controller, &clock, 10, Tier::T1);
    let slow = signal(&controller);
    assert_eq!((slow.readings, faults(&controller)), (10, 0));
}

/// Before anything was known of the load the cut was a budget of nothing: 17 of 600 of t0 were refused.
#[test]
fn a_cut_level_sheds_nothing_above_it_at_start_up_or_after_idling() {
    let clock = clock_at(1);
    let controller = with_signal(&clock, cascade(0.2, &Arc::new(AtomicBool::new(true))));
    for _ in 0..10 {
        controller.tick(clock.advance(STEP));
    }
    assert_eq!(serve(&controller, &clock, 6, Tier::T0), (600, 0));
    for _ in 0..400 {
        controller.tick(clock.advance(STEP * 25));
    }
    assert_eq!(serve(&controller, &clock, 3, Tier::T0), (300, 0));
}

/// Its pressure did not move with the cut, so it lost its say: 2,100 of 2,100 of t4 were let in.
#[test]
fn a_signal_that_only_cuts_a_level_is_not_unresponsive() {
    let clock = clock_at(1);
    let cuts = Arc::new(AtomicBool::new(false));
    let controller = with_signal(&clock, cascade(0.5, &cuts));
    let lane = controller.lane("main").unwrap();
    let (mut let_in, mut offered) = (0, 0);
    for n in 0..6_000_u64 {
        cuts.store(n > 1_000, Ordering::SeqCst);
        // A little more, and a little less, of t1 every five seconds.
        let important = if n / 500 % 2 == 0 { 4 } else { 2 };
        let tier = if n % 10 < important {
            Tier::T1
        } else {
            Tier::T4
        };
        let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let permit = lane.try_admit(&Request::new(tier).key(key));
        if n > 3_000 && tier == Tier::T4 {
            offered += 1;
            let_in += u32::from(permit.is_ok());
        }
        clock.advance(STEP);
        drop(permit);
        controller.tick(clock.now());
    }
    let cascade = signal(&controller);
    assert!(!cascade.unresponsive, "{cascade:?}");
    assert!(let_in * 20 < offered, "{let_in} of {offered} of t4");
}

/// What the incident had left stood there for good: a wait of 25 ms after ten calm seconds.
#[test]
fn after_the_law_is_switched_the_wait_of_the_incident_ends() {
    let (controller, lane, clock) = manual(4);
    let of = (&controller, &lane, &clock);
    assert!(!crowd(of, 3, 200, || false));
    let waits = || {
        let lane = lane.snapshot();
        lane.engaged && lane.wait_s > lane.wait_target_s
    };
    assert!(crowd(of, 12, 400, waits), "{:?}", lane.snapshot());
    let mut settings: Settings = (**controller.config()).clone();
    settings.law = Law::Flow;
    controller
        .reconfigure(Config::new(settings).unwrap())
        .unwrap();
    serve(&controller, &clock, 10, Tier::T1);
    let wait_s = lane.snapshot().wait_s;
    assert!(wait_s < 0.001, "{wait_s}");
}

/// Under the law of flows the wait was 0 whatever waited.
#[test]
fn signals_see_the_wait_under_either_law() {
    for law in [Law::Budget, Law::Flow] {
        let seen = Arc::new(Mutex::new(0_f64));
        let most = Arc::clone(&seen);
        let looks = Made::new("looks", move |_, view| {
            let mut most = most.lock().unwrap();
            *most = most.max(view.lanes[0].wait_s);
            Reading::pressure(0.1)
        });
        let mut settings = Settings::one_lane("main", 2);
        settings.law = law;
        let clock = clock_at(1);
        let controller = Controller::builder(Config::new(settings).unwrap())
            .signal(looks)
            .build_manual(clock.shared())
            .unwrap();
        let lane = controller.lane("main").unwrap();
        crowd((&controller, &lane, &clock), 3, 1_000, || false);
        let seen = *seen.lock().unwrap();
        assert!(seen > 0.005, "{law:?}: {seen}");
    }
}

/// Shadows ended by a clock that was hours behind the engine's, so never: 198 of 200 were refused as busy.
#[test]
fn monitor_goes_on_as_enforce_does_when_the_clock_is_set_back() {
    let run = |mode: Mode, back: bool| {
        let (controller, lane, clock) = manual(2);
        clock.advance(Duration::from_secs(7_200));
        controller.tick(clock.now());
        controller.set_mode(mode);
        if back {
            clock.set(Instant::from_nanos(3_600_000_000_000));
        }
        for _ in 0..200 {
            let permit = lane.try_admit(&T1);
            clock.advance(STEP / 2);
            if let Ok(permit) = permit {
                permit.finish(Completion::success());
            }
            clock.advance(STEP / 2);
            controller.tick(clock.now());
        }
        let lane = lane.snapshot();
        let busy = lane.verdicts.total(Verdict::Refuse(Reason::Busy));
        (busy, lane.in_use, lane.shadow_in_use, lane.service_mean_s)
    };
    let enforced = run(Mode::Enforce, true);
    assert_eq!(enforced.0, 0);
    assert_eq!(run(Mode::Monitor, false), enforced);
    assert_eq!(run(Mode::Monitor, true), enforced);
}

/// What an observer makes of what it is told.
#[derive(Debug, Default)]
struct InFlight {
    running: AtomicI64,
    service_ns: AtomicU64,
}

impl Observer for InFlight {
    fn on_offer(&self, offer: &OfferEvent<'_>) {
        let runs = i64::from(offer.answer == OfferAnswer::Runs);
        self.running.fetch_add(runs, Ordering::SeqCst);
    }

    fn on_finish(&self, finish: &FinishEvent) {
        self.running.fetch_sub(1, Ordering::SeqCst);
        let service_ns = finish.service_time.as_nanos() as u64;
        self.service_ns.store(service_ns, Ordering::SeqCst);
    }
}

fn observed(clock: &ManualClock) -> (Lane, Arc<InFlight>) {
    let in_flight = Arc::new(InFlight::default());
    let controller = Controller::builder(config())
        .observer(Arc::clone(&in_flight) as Arc<dyn Observer>)
        .build_manual(clock.shared())
        .unwrap();
    (controller.lane("main").unwrap(), in_flight)
}

/// Nested work was never offered and yet told as finished: a request in flight, and a gauge of 0, then -1.
#[test]
fn what_an_observer_counts_is_balanced_with_nested_work_too() {
    let (lane, in_flight) = observed(&ManualClock::new());
    let running = || in_flight.running.load(Ordering::SeqCst);
    let permit = lane.try_admit(&T1).unwrap();
    drop(permit.nested());
    assert_eq!(running(), 1);
    let nested = permit.nested();
    drop(permit);
    drop(nested);
    assert_eq!(running(), 0);
}

/// It was measured from the engine's time to the clock's: 0 after an hour back.
#[test]
fn an_observer_is_told_the_service_time_after_a_clock_set_back() {
    let clock = clock_at(7_200);
    let (lane, in_flight) = observed(&clock);
    drop(lane.try_admit(&T1).unwrap());
    clock.set(Instant::from_nanos(1_000_000_000));
    drop(lane.try_admit(&T1).unwrap());
    let permit = lane.try_admit(&T1).unwrap();
    clock.advance(STEP * 5);
    drop(permit);
    assert_eq!(in_flight.service_ns.load(Ordering::SeqCst), 50_000_000);
}

/// The panic reached whoever dropped the controller.
#[test]
fn a_signal_whose_drop_panics_does_not_hurt_whoever_drops_the_controller() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                resume_unwind(Box::new("a bug in a plugin"));
            }
        }
    }
    let bomb = Bomb;
    let armed = Made::new("armed", move |_, _| {
        let _ = &bomb;
        Reading::pressure(0.1)
    });
    let controller = with_signal(&clock_at(1), armed);
    let dropped = catch_unwind(AssertUnwindSafe(move || drop(controller)));
    assert!(dropped.is_ok());
}
