//! Signals and observers as an embedder writes them: attached, sampled, blocked, broken.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use cinnamon_core::{
    Binding, BuildError, Class, Clock, Completion, Config, ConfigError, Controller, Dynamics,
    FinishEvent, ManualClock, Mode, Observer, OfferAnswer, OfferEvent, Outcome, Priority, Reading,
    Request, Scope, Settings, SignalFault, SignalSettings, SignalState, StartEvent, Tenant, Tier,
    View,
};
use support::plugins::*;
use support::*;

#[test]
fn bug_64_one_signal_that_hangs_holds_up_neither_the_ticks_nor_the_other_signals() {
    let (release, held): (Sender<()>, Receiver<()>) = channel();
    let (hung, others) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (counts_hung, counts_others) = (Arc::clone(&hung), Arc::clone(&others));
    let hangs = Made::new("hangs", move |_, _| {
        counts_hung.fetch_add(1, Ordering::SeqCst);
        // Until it is let go, or the test is over.
        let _ = held.recv();
        Reading::pressure(0.3)
    });
    let other = Made::new("other", move |_, _| {
        counts_others.fetch_add(1, Ordering::SeqCst);
        Reading::pressure(0.4)
    });
    let builder = Controller::builder(config()).signal(hangs).signal(other);
    let controller = builder.build().unwrap();
    let lane = controller.lane("main").unwrap();
    let _running = lane.try_admit(&T1).unwrap();
    until("the sample that hangs", || hung.load(Ordering::SeqCst) == 1);
    let ticks = controller.snapshot().ticks;
    until("ticks meanwhile", || {
        controller.snapshot().ticks > ticks + 3
    });
    until("it is found slow", || {
        controller.snapshot().signals[0].fault == Some(SignalFault::Slow)
    });
    let seen = others.load(Ordering::SeqCst);
    until("the other goes on", || {
        others.load(Ordering::SeqCst) > seen + 10
    });
    assert_eq!(
        hung.load(Ordering::SeqCst),
        1,
        "it is not asked twice at once"
    );
    drop(release);
    until("it is back", || {
        let signal = &controller.snapshot().signals[0];
        signal.state == SignalState::Calm && signal.pressure == Some(0.3)
    });
}

#[test]
fn a_controller_ends_although_a_signal_hangs() {
    let (release, held): (Sender<()>, Receiver<()>) = channel();
    let began = Arc::new(AtomicBool::new(false));
    let hangs = {
        let began = Arc::clone(&began);
        Made::new("hangs", move |_, _| {
            began.store(true, Ordering::SeqCst);
            let _ = held.recv();
            Reading::pressure(0.3)
        })
    };
    /// Dropped with the controller.
    struct Alive(Arc<AtomicBool>);
    impl Observer for Alive {}
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.store(false, Ordering::SeqCst);
        }
    }
    let alive = Arc::new(AtomicBool::new(true));
    let builder = Controller::builder(config()).signal(hangs);
    let controller = builder
        .observer(Arc::new(Alive(Arc::clone(&alive))))
        .build()
        .unwrap();
    until("the sample", || began.load(Ordering::SeqCst));
    drop(controller);
    until("the end", || !alive.load(Ordering::SeqCst));
    drop(release);
}

#[test]
fn a_signal_that_panics_is_asked_ever_more_seldom_and_never_sheds() {
    let asked = Arc::new(AtomicU32::new(0));
    let panics = {
        let asked = Arc::clone(&asked);
        Made::new("panics", move |_, _| {
            asked.fetch_add(1, Ordering::SeqCst);
            std::panic::resume_unwind(Box::new("a bug in a plugin"))
        })
    };
    let clock = ManualClock::new();
    let controller = Controller::builder(config()).signal(panics);
    let controller = controller.build_manual(clock.shared()).unwrap();
    let (_, refused) = serve(&controller, &clock, 5, Tier::T5);
    let signal = &controller.snapshot().signals[0];
    // After 2, 4, 8 … milliseconds, but the ticks are ten apart.
    let asked = asked.load(Ordering::SeqCst);
    assert!(
        (8..16).contains(&asked) && refused == 0,
        "{asked} {refused}"
    );
    assert_eq!(signal.fault, Some(SignalFault::Panicked));
    assert_eq!(signal.state, SignalState::Ignored);
    assert!(!controller.snapshot().failed);
}

#[test]
fn a_pressure_over_target_refuses_and_names_itself() {
    let pressure = Arc::new(Mutex::new(0.5));
    let says = {
        let pressure = Arc::clone(&pressure);
        Made::new("debt", move |_, _| {
            Reading::pressure(*pressure.lock().unwrap())
        })
    };
    let clock = ManualClock::new();
    let controller = Controller::builder(config()).signal(says);
    let controller = controller.build_manual(clock.shared()).unwrap();
    assert_eq!(serve(&controller, &clock, 5, Tier::T5).1, 0);
    *pressure.lock().unwrap() = 1.6;
    let (_, refused) = serve(&controller, &clock, 2, Tier::T5);
    assert!(refused > 50, "{refused}");
    let snapshot = controller.snapshot();
    assert_eq!(snapshot.signals[0].state, SignalState::Engaged);
    assert_eq!(snapshot.lanes[0].bound_by, "signal debt");
    let lane = controller.lane("main").unwrap();
    let rejected = (0..1_000)
        .find_map(|key| lane.try_admit(&Request::new(Tier::T5).key(key)).err())
        .unwrap();
    assert_eq!(rejected.binding(), Binding::Signal { index: 0 });
    assert_eq!(controller.binding_name(rejected.binding()), "signal debt");
    *pressure.lock().unwrap() = 0.2;
    serve(&controller, &clock, 5, Tier::T5);
    assert_eq!(serve(&controller, &clock, 2, Tier::T5).1, 0);
}

#[test]
fn a_cut_level_is_a_level_and_culprits_are_shown() {
    let cut = Made::new("cascade", |_, _| {
        Reading::pressure(0.7)
            .cut(Priority::from_number(5 * 128).unwrap())
            .culprits(vec![cinnamon_core::Culprit {
                who: cinnamon_core::Who::Key(7),
                share: 0.4,
            }])
    });
    let clock = ManualClock::new();
    let controller = Controller::builder(config()).signal(cut);
    let controller = controller.build_manual(clock.shared()).unwrap();
    let lane = controller.lane("main").unwrap();
    let mut refused = [0, 0];
    for n in 0..2_000u64 {
        let tier = [Tier::T2, Tier::T5][(n % 2) as usize];
        let permit = lane.try_admit(&Request::new(tier).key(n));
        clock.advance(Duration::from_millis(5));
        match permit {
            Ok(permit) => permit.finish(Completion::success()),
            Err(_) if n >= 1_000 => refused[(n % 2) as usize] += 1,
            Err(_) => {}
        }
        controller.tick(clock.now());
    }
    assert_eq!(refused, [0, 500], "all of t5 and nothing else");
    assert_eq!(controller.snapshot().signals[0].culprits[0].share, 0.4);
}

#[test]
fn signals_see_the_lanes() {
    let seen: Arc<Mutex<View>> = Arc::default();
    let looks = {
        let seen = Arc::clone(&seen);
        Made::new("looks", move |_, view| {
            *seen.lock().unwrap() = view.clone();
            Reading::pressure(0.0)
        })
    };
    let clock = ManualClock::new();
    let controller = Controller::builder(config()).signal(looks);
    let controller = controller.build_manual(clock.shared()).unwrap();
    serve(&controller, &clock, 3, Tier::T3);
    let lane = controller.lane("main").unwrap();
    let permit = lane.try_admit(&T1).unwrap();
    permit.finish(Completion::new(Outcome::Overloaded));
    let _running = lane.try_admit(&T1).unwrap();
    clock.advance(Duration::from_millis(10));
    controller.tick(clock.now());
    let view = seen.lock().unwrap().clone();
    let main = view.lane("main").unwrap();
    assert_eq!(
        (main.limit, main.in_use, main.scope.as_str()),
        (4, 1, "default")
    );
    assert_eq!((main.finished.success, main.finished.overloaded), (300, 1));
    assert!((main.admitted_per_s - 100.0).abs() < 5.0, "{main:?}");
    assert!((main.service_mean_s - 0.01).abs() < 0.001, "{main:?}");
}

#[test]
fn a_signal_that_cannot_be_is_refused_by_name_value_and_bound() {
    let build = |signals: Vec<Made>| {
        let builder = Controller::builder(config());
        let builder = signals
            .into_iter()
            .fold(builder, |b, signal| b.signal(signal));
        match builder.build_manual(ManualClock::new().shared()) {
            Err(BuildError::Signal(error)) => error.to_string(),
            other => unreachable!("{other:?}"),
        }
    };
    let made = |change: &dyn Fn(&mut Made)| {
        let mut made = Made::new("mine", |_, _| Reading::pressure(0.0));
        change(&mut made);
        made
    };
    let zero = Dynamics::settling(Duration::ZERO);
    for (signals, expected) in [
        (
            vec![made(&|made| made.dynamics = zero)],
            "`signal \"mine\".dynamics.tau_s` is 0 but must be between 0.000001 and 86400",
        ),
        (
            vec![made(&|made| made.range = (0.0, 0.5))],
            "`signal \"mine\".range.end` is 0.5 but must be between 1 and",
        ),
        (
            vec![made(&|made| made.range = (f64::NAN, 2.0))],
            "`signal \"mine\".range.start` is NaN but",
        ),
        (
            vec![made(&|made| made.period = Duration::ZERO)],
            "`signal \"mine\".period_s` is 0 but must be between 0.001 and 3600",
        ),
        (
            vec![made(&|made| made.name = String::new())],
            "`signal \"\".name.len` is 0 but must be between 1 and 64",
        ),
        (
            vec![made(&|made| made.scope = Scope::Lane("other".to_owned()))],
            "`signal \"mine\".scope` is \"other\" but there are only [\"main\"]",
        ),
        (
            vec![made(&|_| {}), made(&|_| {})],
            "`signal \"mine\".name` is \"mine\" but an earlier one has that name",
        ),
    ] {
        let error = build(signals);
        assert!(error.starts_with(expected), "{error}");
    }
    let settings = Settings::one_lane("main", 1).signal(SignalSettings::new("ghost"));
    let config = Config::new(settings).unwrap();
    let built = Controller::builder(config).build_manual(ManualClock::new().shared());
    assert_eq!(
        built.unwrap_err().to_string(),
        "`signals[0].name` is \"ghost\" but there are only []"
    );
}

#[derive(Default)]
struct Counts {
    runs: AtomicU64,
    waits: AtomicU64,
    refused: AtomicU64,
    cost: AtomicU64,
    dropped: AtomicU64,
    service_ns: AtomicU64,
    breaks: AtomicBool,
}

impl Observer for Counts {
    fn on_offer(&self, offer: &OfferEvent<'_>) {
        if self.breaks.load(Ordering::SeqCst) {
            std::panic::resume_unwind(Box::new("a bug in a plugin"));
        }
        match offer.answer {
            OfferAnswer::Runs => &self.runs,
            OfferAnswer::Waits => &self.waits,
            OfferAnswer::Refused(_) => &self.refused,
        }
        .fetch_add(1, Ordering::SeqCst);
    }

    fn on_finish(&self, finish: &FinishEvent) {
        if finish.outcome.is_none() {
            self.dropped.fetch_add(1, Ordering::SeqCst);
        }
        let cost = u64::from(finish.cost.unwrap_or(finish.estimated_cost));
        self.cost.fetch_add(cost, Ordering::SeqCst);
        self.service_ns
            .fetch_add(finish.service_time.as_nanos() as u64, Ordering::SeqCst);
    }
}

/// Key, tenant and how long it waited.
type Start = (Option<u64>, Option<Tenant>, Duration);

/// Keeps what it is told of starts and ends.
#[derive(Default)]
struct Diary {
    starts: Mutex<Vec<Start>>,
    ends: Mutex<Vec<FinishEvent>>,
}

impl Observer for Diary {
    fn on_start(&self, start: &StartEvent<'_>) {
        let request = start.request;
        let of = (request.get_key(), request.get_tenant(), start.waited);
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        starts.push(of);
    }

    fn on_finish(&self, finish: &FinishEvent) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.push(*finish);
    }
}

#[test]
fn an_observer_learns_who_began_after_waiting_and_who_it_was_that_ended() {
    let diary = Arc::new(Diary::default());
    let clock = ManualClock::new();
    let config = Config::new(Settings::one_lane("main", 1)).unwrap();
    let builder = Controller::builder(config).observer(Arc::clone(&diary) as Arc<dyn Observer>);
    let controller = builder.build_manual(clock.shared()).unwrap();
    let lane = controller.lane("main").unwrap();
    let (_, waker) = CountingWaker::new();
    let first = lane.try_admit(&T1.key(1)).unwrap();
    let second = T1.key(2).tenant(Tenant(7)).bytes(300).class(Class(0));
    let mut waits = lane.admit(&second);
    assert!(waits.poll_admit(&waker).is_pending());
    clock.advance(Duration::from_millis(4));
    drop(first);
    let Poll::Ready(Ok(permit)) = waits.poll_admit(&waker) else {
        panic!("its turn has come");
    };
    let waited = Duration::from_millis(4);
    assert_eq!(
        *diary.starts.lock().unwrap(),
        [(Some(2), Some(Tenant(7)), waited)],
        "who ran at once was told at the offer"
    );
    permit.finish(Completion::success());
    let ends = diary.ends.lock().unwrap();
    assert_eq!((ends[0].key, ends[0].tenant), (Some(1), None));
    assert_eq!((ends[1].key, ends[1].tenant), (Some(2), Some(Tenant(7))));
    assert_eq!((ends[1].bytes, ends[1].waited), (300, waited));
}

#[test]
fn observers_see_every_offer_and_every_end_and_their_faults_stay_theirs() {
    let counts = Arc::new(Counts::default());
    let clock = ManualClock::new();
    let config = Config::new(Settings::one_lane("main", 1)).unwrap();
    let builder = Controller::builder(config).observer(Arc::clone(&counts) as Arc<dyn Observer>);
    let controller = builder.build_manual(clock.shared()).unwrap();
    let lane = controller.lane("main").unwrap();
    let (_, waker) = CountingWaker::new();
    let first = lane.try_admit(&T1.cost(3)).unwrap();
    assert!(lane.try_admit(&T1).is_err());
    let mut waits = lane.admit(&T1);
    assert!(waits.poll_admit(&waker).is_pending());
    clock.advance(Duration::from_millis(7));
    first.finish(Completion::success().cost(5));
    drop(waits);
    let get = |count: &AtomicU64| count.load(Ordering::SeqCst);
    assert_eq!(
        [&counts.runs, &counts.waits, &counts.refused].map(get),
        [1, 1, 1]
    );
    assert_eq!((get(&counts.cost), get(&counts.service_ns)), (5, 7_000_000));
    drop(lane.try_admit(&T1).unwrap());
    assert_eq!(get(&counts.dropped), 1);
    counts.breaks.store(true, Ordering::SeqCst);
    let admitted = catch_unwind(AssertUnwindSafe(|| lane.try_admit(&T1).is_ok()));
    assert!(admitted.unwrap());
    counts.breaks.store(false, Ordering::SeqCst);
    assert!(lane.try_admit(&T1).is_ok());
    assert_eq!(get(&counts.runs), 2, "it is not called again");
}

#[test]
fn another_configuration_is_in_force_from_the_next_tick_and_a_bad_one_never() {
    let says = Made::new("debt", |_, _| Reading::pressure(0.5));
    let clock = ManualClock::new();
    let controller = Controller::builder(config()).signal(says);
    let controller = controller.build_manual(clock.shared()).unwrap();
    serve(&controller, &clock, 2, Tier::T3);
    let learned = controller.snapshot().lanes[0].service_mean_s;

    let refused = |settings: Settings| {
        let before = controller.config();
        let config = Config::new(settings).unwrap();
        let error = controller.reconfigure(config).unwrap_err();
        controller.tick(clock.advance(Duration::from_millis(10)));
        assert_eq!(*controller.config(), *before);
        error
    };
    assert_eq!(
        refused(Settings::one_lane("other", 4)).to_string(),
        "`lanes[0].name` is other but was main when the controller was built, and cannot change"
    );
    let mut scope = Settings::one_lane("main", 4);
    scope.lanes[0].scope = "elsewhere".to_owned();
    assert!(matches!(refused(scope), ConfigError::Fixed { .. }));
    let ghost = Settings::one_lane("main", 4).signal(SignalSettings::new("ghost"));
    assert!(matches!(refused(ghost), ConfigError::Unknown { .. }));
    let mut classes = Settings::one_lane("main", 4);
    classes.classes.clear();
    assert!(
        Config::new(classes).is_err(),
        "what is out of bounds never gets so far"
    );

    let mut signal = SignalSettings::new("debt");
    signal.mode = Mode::Monitor;
    let mut settings = Settings::one_lane("main", 1).signal(signal);
    settings.kp = 0.5;
    settings.lanes[0].mode = Mode::Enforce;
    let config = Config::new(settings.clone()).unwrap();
    controller.reconfigure(config).unwrap();
    assert_eq!(
        controller.snapshot().lanes[0].limit,
        4,
        "not before the tick"
    );
    controller.tick(clock.advance(Duration::from_millis(10)));
    let snapshot = controller.snapshot();
    assert_eq!((snapshot.lanes[0].limit, controller.config().kp), (1, 0.5));
    assert_eq!(snapshot.signals[0].mode, Mode::Monitor);
    let mean_s = snapshot.lanes[0].service_mean_s;
    assert!((mean_s - learned).abs() < 1e-9, "what was learned stays");

    // What an operator set by hand stays, unless the new configuration says otherwise than the old.
    controller.lane("main").unwrap().set_limit(9).unwrap();
    controller.set_mode(Mode::Monitor);
    settings.ki_per_s = 0.4;
    controller
        .reconfigure(Config::new(settings.clone()).unwrap())
        .unwrap();
    controller.tick(clock.advance(Duration::from_millis(10)));
    let snapshot = controller.snapshot();
    assert_eq!((snapshot.lanes[0].limit, snapshot.mode), (9, Mode::Monitor));
    settings.mode = Mode::Off;
    controller
        .reconfigure(Config::new(settings).unwrap())
        .unwrap();
    controller.tick(clock.advance(Duration::from_millis(10)));
    assert_eq!(controller.snapshot().lanes[0].mode, Mode::Off);
}

#[test]
fn a_running_controller_takes_over_a_configuration_without_load() {
    let (controller, lane) = live(4);
    let config = Config::new(Settings::one_lane("main", 7)).unwrap();
    controller.reconfigure(config).unwrap();
    until("the new limit", || lane.snapshot().limit == 7);
}

#[test]
fn a_signals_mode_changes_live_and_by_name() {
    let asked = Arc::new(AtomicU32::new(0));
    let says = {
        let asked = Arc::clone(&asked);
        Made::new("debt", move |_, _| {
            asked.fetch_add(1, Ordering::SeqCst);
            Reading::pressure(1.6)
        })
    };
    let clock = ManualClock::new();
    let controller = Controller::builder(config()).signal(says);
    let controller = controller.build_manual(clock.shared()).unwrap();
    serve(&controller, &clock, 2, Tier::T5);
    assert!(serve(&controller, &clock, 1, Tier::T5).1 > 10);
    controller.set_signal_mode("debt", Mode::Monitor).unwrap();
    controller.tick(clock.advance(Duration::from_millis(10)));
    assert_eq!(serve(&controller, &clock, 1, Tier::T5).1, 0);
    assert_eq!(controller.snapshot().signals[0].state, SignalState::Engaged);
    controller.set_signal_mode("debt", Mode::Off).unwrap();
    let before = asked.load(Ordering::SeqCst);
    serve(&controller, &clock, 1, Tier::T5);
    assert_eq!(asked.load(Ordering::SeqCst), before, "off, it is not asked");
    let unknown = controller.set_signal_mode("ghost", Mode::Off).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "no signal is named \"ghost\"; there are [\"debt\"]"
    );
}
