//! What an operator forces upon a running controller: in force at once, visible, and over by itself.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of tests may end the test that calls it"
)]

mod support;

use std::fs::File;
use std::io::Write as _;
use std::task::{Poll, Waker};
use std::time::{Duration, SystemTime};

use cinnamon_core::{
    AdmitKind, Authority, Binding, Config, Controller, Dynamics, Expected, Instant, Lane,
    LaneSettings, ManualClock, Mode, Override, OverrideSource, Reading, Reason, Request, Scope,
    Settings, Signal, Snapshot, Target, Tenant, Tier, Verdict, View,
};
use support::plugins::until;

/// Says all the time that twice too much is let in.
struct Mad;

impl Signal for Mad {
    fn name(&self) -> &str {
        "mad"
    }

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(Duration::from_secs(1))
    }

    fn scope(&self) -> Scope {
        Scope::Lane("read".to_owned())
    }

    fn authority(&self) -> Authority {
        Authority::Measuring
    }

    fn sample(&mut self, _now: Instant, _view: &View) -> Reading {
        Reading::pressure(2.0)
    }
}

const STEP: Duration = Duration::from_millis(20);

struct Bench {
    clock: ManualClock,
    controller: Controller,
    read: Lane,
    write: Lane,
}

impl Bench {
    fn new() -> Self {
        let clock = ManualClock::new();
        let settings = Settings::default()
            .lane(LaneSettings::new("read", 2))
            .lane(LaneSettings::new("write", 2).scope("disk"));
        let builder = Controller::builder(Config::new(settings).unwrap()).signal(Mad);
        let controller = builder.build_manual(clock.shared()).unwrap();
        controller.set_signal_mode("mad", Mode::Off).unwrap();
        let [read, write] = ["read", "write"].map(|name| controller.lane(name).unwrap());
        controller.tick(clock.advance(STEP));
        Self {
            clock,
            controller,
            read,
            write,
        }
    }

    fn force(&self, text: &str) {
        self.controller.set_override(text.parse().unwrap()).unwrap();
    }

    fn tick_for(&self, time: Duration) {
        for _ in 0..time.as_nanos() / STEP.as_nanos() {
            self.controller.tick(self.clock.advance(STEP));
        }
    }

    /// Why a request of this tier is refused by this lane; `None` when it runs.
    fn refusal(lane: &Lane, request: Request) -> Option<(Reason, Binding)> {
        let refused = lane.try_admit(&request).err()?;
        Some((refused.reason(), refused.binding()))
    }

    fn tiers_refused(lane: &Lane) -> Vec<Tier> {
        let refused = |tier: &Tier| Self::refusal(lane, Request::new(*tier)).is_some();
        Tier::ALL.into_iter().filter(refused).collect()
    }

    fn snapshot(&self) -> Snapshot {
        self.controller.snapshot()
    }
}

#[test]
fn shed_is_in_force_at_once_without_any_load_and_over_by_itself() {
    let bench = Bench::new();
    bench.force("shed t4 for 10s");
    let low = vec![Tier::T4, Tier::T5];
    assert_eq!(Bench::tiers_refused(&bench.read), low, "before any tick");
    assert_eq!(Bench::tiers_refused(&bench.write), low);
    bench.tick_for(Duration::from_secs(9));
    assert_eq!(
        Bench::refusal(&bench.read, Request::new(Tier::T4)),
        Some((Reason::Shed, Binding::Override))
    );
    let snapshot = bench.snapshot();
    let seen = &snapshot.overrides[0];
    assert_eq!((&*seen.target, &*seen.action), ("controller", "shed t4"));
    assert_eq!(seen.source, OverrideSource::Call);
    assert!((seen.left_s - 1.0).abs() < 0.03, "{}", seen.left_s);
    let lane = snapshot.lane("read").unwrap();
    assert_eq!((&*lane.threshold, &*lane.bound_by), ("t4.0", "override"));
    assert!(lane.shed.iter().any(|work| work.by == "override"));
    let explained = bench.read.explain(&Request::new(Tier::T5)).unwrap();
    assert_eq!(explained.answer, Expected::Refused(Reason::Shed));
    assert_eq!(explained.bound_by, "override");
    let decided = bench.controller.decisions();
    assert_eq!(decided.last().unwrap().lanes[0].binding, Binding::Override);
    bench.tick_for(Duration::from_secs(1));
    assert!(Bench::tiers_refused(&bench.read).is_empty());
    assert!(bench.snapshot().overrides.is_empty());
}

#[test]
fn who_waits_and_would_no_longer_be_let_in_is_evicted_at_once() {
    let bench = Bench::new();
    let _held = [(); 2].map(|()| bench.read.try_admit(&Request::new(Tier::T1)).unwrap());
    let waker = Waker::noop();
    let mut waiters = [Tier::T2, Tier::T3, Tier::T5].map(|tier| {
        let mut admit = bench.read.admit_owned(&Request::new(tier));
        assert!(admit.poll_admit(waker).is_pending());
        admit
    });
    bench.force("lane read shed t3 for 1m");
    let answers = waiters
        .each_mut()
        .map(|admit| match admit.poll_admit(waker) {
            Poll::Pending => None,
            Poll::Ready(answer) => Some(answer.unwrap_err().reason()),
        });
    let evicted = Some(Reason::Evicted);
    assert_eq!(answers, [None, evicted, evicted]);
    assert!(Bench::tiers_refused(&bench.write).is_empty());
}

#[test]
fn a_mode_is_forced_upon_controller_lane_and_signal_and_falls_back() {
    let bench = Bench::new();
    bench.controller.set_mode(Mode::Monitor);
    bench.force("lane write shed t0 for 1m");
    assert!(Bench::tiers_refused(&bench.write).is_empty(), "it monitors");
    bench.force("mode enforce for 10s");
    assert_eq!(bench.snapshot().mode, Mode::Enforce);
    assert_eq!(Bench::tiers_refused(&bench.write).len(), 6);
    bench.force("lane write mode off for 5s");
    let permit = bench.write.try_admit(&Request::new(Tier::T5)).unwrap();
    assert_eq!(bench.snapshot().lane("write").unwrap().open_in_use, 1);
    drop(permit);
    bench.tick_for(Duration::from_secs(5));
    assert_eq!(Bench::tiers_refused(&bench.write).len(), 6);
    bench.tick_for(Duration::from_secs(5));
    assert_eq!(bench.snapshot().mode, Mode::Monitor);
    // The signal was off by hand. What is changed by hand meanwhile holds when the override is over.
    bench.force("signal mad mode enforce for 5s");
    assert_eq!(bench.snapshot().signals[0].mode, Mode::Enforce);
    let controller = &bench.controller;
    controller.set_signal_mode("mad", Mode::Monitor).unwrap();
    assert_eq!(bench.snapshot().signals[0].mode, Mode::Enforce);
    bench.tick_for(Duration::from_secs(5));
    assert_eq!(bench.snapshot().signals[0].mode, Mode::Monitor);
}

#[test]
fn a_tenant_is_capped_or_let_through_and_nobody_else() {
    let bench = Bench::new();
    bench.force("tenant 7 shed t3 for 1m");
    bench.force("tenant 8 mode off for 1m");
    let of = |tier, tenant| Request::new(tier).tenant(Tenant(tenant));
    let capped = Some((Reason::Capped, Binding::Override));
    assert_eq!(Bench::refusal(&bench.read, of(Tier::T3, 7)), capped);
    assert_eq!(Bench::refusal(&bench.read, of(Tier::T2, 7)), None);
    assert_eq!(Bench::refusal(&bench.read, of(Tier::T5, 9)), None);
    assert_eq!(Bench::refusal(&bench.read, Request::new(Tier::T5)), None);
    let expected = bench.read.explain(&of(Tier::T4, 7)).unwrap();
    assert_eq!(expected.answer, Expected::Refused(Reason::Capped));
    assert_eq!(expected.bound_by, "override");
    // Full, and shed for everybody else.
    bench.force("shed t0 for 1m");
    let _one = bench.read.try_admit(&of(Tier::T5, 8)).unwrap();
    assert_eq!(
        bench.read.explain(&of(Tier::T5, 8)).unwrap().answer,
        Expected::Runs
    );
    let snapshot = bench.snapshot();
    let verdicts = &snapshot.lane("read").unwrap().verdicts;
    let open = Verdict::Admit(AdmitKind::Open);
    assert_eq!(verdicts.get(Tier::T5, open), 1);
    assert_eq!(verdicts.total(Verdict::Refuse(Reason::Capped)), 1);
    let tenant = Target::Tenant(Tenant(7));
    assert_eq!(bench.controller.clear_overrides(&tenant), 1);
    bench.controller.clear_overrides(&Target::Controller);
    bench.tick_for(STEP);
    assert_eq!(Bench::refusal(&bench.read, of(Tier::T3, 7)), None);
}

#[test]
fn the_lower_of_override_and_law_holds_and_either_stays_when_the_other_goes() {
    let bench = Bench::new();
    bench
        .controller
        .set_signal_mode("mad", Mode::Enforce)
        .unwrap();
    let load = || {
        for n in 0..600u64 {
            drop(
                bench
                    .read
                    .try_admit(&Request::new(Tier::ALL[n as usize % 6]).key(n)),
            );
            bench.clock.advance(Duration::from_millis(1));
            if n % 20 == 0 {
                bench.tick_for(STEP);
            }
        }
    };
    load();
    let held = |bench: &Bench| {
        let snapshot = bench.snapshot();
        let lane = snapshot.lane("read").unwrap();
        (lane.threshold_levels, lane.bound_by.clone())
    };
    let (levels, by) = held(&bench);
    assert_eq!(by, "signal mad");
    bench.force("shed t5 for 10m");
    bench.tick_for(STEP);
    assert_eq!(held(&bench).1, "signal mad", "it is the lower");
    bench.force("shed t0 for 10m");
    assert_eq!(held(&bench), (0.0, "override".to_owned()));
    bench.controller.clear_overrides(&Target::Controller);
    bench.tick_for(STEP);
    assert_eq!(held(&bench).1, "signal mad");
    assert!(levels < 768.0);
}

#[test]
fn what_does_not_exist_is_refused_by_name() {
    let bench = Bench::new();
    let refused = |text: &str| {
        let what: Override = text.parse().unwrap();
        let by_call = bench.controller.set_override(what.clone()).unwrap_err();
        assert_eq!(bench.controller.kill_switch(what).unwrap_err(), by_call);
        by_call.to_string()
    };
    assert_eq!(
        refused("lane scan shed t4 for 1m"),
        "`override's lane` is \"scan\" but there are only [\"read\", \"write\"]"
    );
    assert_eq!(
        refused("signal memory mode off for 1m"),
        "`override's signal` is \"memory\" but there are only [\"mad\"]"
    );
}

#[test]
fn a_switch_is_in_force_at_the_next_step_and_can_be_released_and_thrown_again() {
    let bench = Bench::new();
    let switch = |text: &str| {
        let what = text.parse().unwrap();
        bench.controller.kill_switch(what).unwrap()
    };
    let kill = switch("mode off for 1m");
    let shed = switch("shed t4 for 1m");
    bench.tick_for(STEP);
    assert!(bench.snapshot().overrides.is_empty());
    kill.throw();
    shed.clone().throw();
    bench.tick_for(STEP);
    let snapshot = bench.snapshot();
    assert_eq!(snapshot.mode, Mode::Off);
    let sources: Vec<_> = snapshot.overrides.iter().map(|o| o.source).collect();
    assert_eq!(sources, [OverrideSource::Switch; 2]);
    bench.tick_for(Duration::from_secs(30));
    kill.throw();
    bench.tick_for(Duration::from_secs(45));
    let snapshot = bench.snapshot();
    assert_eq!(snapshot.mode, Mode::Off, "thrown again, its time is whole");
    assert_eq!(snapshot.overrides.len(), 1);
    kill.release();
    bench.tick_for(STEP);
    assert_eq!(bench.snapshot().mode, Mode::Enforce);
    // A switch that is gone leaves what it has put in force.
    shed.throw();
    bench.tick_for(STEP);
    drop((kill, shed));
    bench.tick_for(STEP);
    assert_eq!(bench.snapshot().overrides.len(), 1);
}

#[test]
fn reconfiguring_changes_what_is_beneath_an_override() {
    let bench = Bench::new();
    bench.force("mode monitor for 1m");
    let mut settings = Settings::from((*bench.controller.config()).clone());
    settings.mode = Mode::Off;
    let config = Config::new(settings.clone()).unwrap();
    bench.controller.reconfigure(config).unwrap();
    bench.tick_for(STEP);
    assert_eq!(bench.snapshot().mode, Mode::Monitor);
    bench.tick_for(Duration::from_secs(60));
    assert_eq!(bench.snapshot().mode, Mode::Off);
    settings.override_file = Some("elsewhere".into());
    let error = bench.controller.reconfigure(Config::new(settings).unwrap());
    assert_eq!(
        error.unwrap_err().to_string(),
        "`override_file` is \"elsewhere\" but was \"\" when the controller was built, and cannot change"
    );
}

#[test]
fn the_file_is_heeded_by_a_thread_of_its_own_and_says_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cinnamon.override");
    let mut settings = Settings::one_lane("main", 4);
    settings.override_file = Some(path.clone());
    let controller = Controller::builder(Config::new(settings).unwrap());
    let controller = controller.build().unwrap();
    // Each change is waited for, however long it takes.
    let wait_until = |what: &str, is: &dyn Fn(&Snapshot) -> bool| {
        until(what, || is(&controller.snapshot()));
    };
    let write = |text: &str, age: Duration| {
        let temporary = dir.path().join("new");
        let mut file = File::create(&temporary).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        #[expect(
            clippy::disallowed_methods,
            reason = "the age of a file is that of the world"
        )]
        file.set_modified(SystemTime::now() - age).unwrap();
        std::fs::rename(temporary, &path).unwrap();
    };
    write(
        "shed t4 for 10m\nlane main mode monitor for 1h\n",
        Duration::ZERO,
    );
    wait_until("two lines", &|s| s.overrides.len() == 2);
    assert_eq!(
        controller.snapshot().overrides[0].source,
        OverrideSource::File
    );
    write(
        "shed t4 for 10m\nlane scan mode off for 1h\n",
        Duration::from_secs(240),
    );
    wait_until("the second line is wrong", &|s| {
        s.override_file_error.is_some()
    });
    let snapshot = controller.snapshot();
    assert_eq!(
        snapshot.override_file_error.as_deref(),
        Some("line 2: `override's lane` is \"scan\" but there are only [\"main\"]")
    );
    assert_eq!(snapshot.overrides.len(), 1);
    let left_s = snapshot.overrides[0].left_s;
    assert!(
        left_s <= 360.0,
        "it counts from when the file was written: {left_s}"
    );
    write("shed t4 for 10m\n", Duration::from_secs(601));
    wait_until("it was over before it was read", &|s| {
        s.overrides.is_empty() && s.override_file_error.is_none()
    });
    write("shed t4 for 10m\n", Duration::ZERO);
    wait_until("it is back", &|s| s.overrides.len() == 1);
    // A disk that fails, or a file that makes no sense any more, ends nothing.
    std::fs::rename(&path, dir.path().join("kept")).unwrap();
    std::fs::create_dir(&path).unwrap();
    wait_until("it cannot be read", &|s| s.override_file_error.is_some());
    assert_eq!(controller.snapshot().overrides.len(), 1);
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(dir.path().join("kept"), &path).unwrap();
    wait_until("it can be read again", &|s| s.override_file_error.is_none());
    assert_eq!(controller.snapshot().overrides.len(), 1);
    std::fs::remove_file(&path).unwrap();
    wait_until("it is gone", &|s| s.overrides.is_empty());
    write(&"#".repeat(70_000), Duration::ZERO);
    wait_until("it is too large", &|s| s.override_file_error.is_some());
}

#[test]
fn waiters_beyond_the_override_go_although_another_cause_holds_the_gate() {
    let bench = Bench::new();
    let _held = [(); 2].map(|()| bench.read.try_admit(&Request::new(Tier::T1)).unwrap());
    bench.force("lane read shed t5 for 1h");
    let waker = Waker::noop();
    let mut waiting = bench.read.admit_owned(&Request::new(Tier::T4));
    assert!(waiting.poll_admit(waker).is_pending());
    // The first holds the gate lower than the second asks for.
    bench.force("shed t3 for 1s");
    assert!(waiting.poll_admit(waker).is_ready());
    let mut waiting = bench.read.admit_owned(&Request::new(Tier::T2));
    assert!(waiting.poll_admit(waker).is_pending());
    bench.force("lane read shed t2 for 1h");
    assert!(waiting.poll_admit(waker).is_ready());
}

#[test]
fn it_ends_although_nobody_ticks_any_more() {
    let bench = Bench::new();
    bench.force("shed t0 for 500ms");
    bench.force("tenant 7 shed t0 for 500ms");
    let of_seven = Request::new(Tier::T1).tenant(Tenant(7));
    assert_eq!(Bench::tiers_refused(&bench.read).len(), 6);
    assert!(Bench::refusal(&bench.read, of_seven).is_some());
    bench.clock.advance(Duration::from_millis(501));
    // The gate itself is stale only after two seconds without a tick.
    bench.clock.advance(Duration::from_secs(2));
    assert!(Bench::tiers_refused(&bench.read).is_empty());
    assert_eq!(Bench::refusal(&bench.read, of_seven), None);
}

#[test]
fn a_tick_with_an_old_reading_ends_none() {
    let bench = Bench::new();
    bench.clock.advance(Duration::from_secs(10_000));
    bench.tick_for(STEP);
    bench.force("shed t4 for 60s");
    bench.controller.tick(Instant::ZERO);
    bench.tick_for(Duration::from_secs(50));
    assert_eq!(bench.snapshot().overrides.len(), 1);
    bench.tick_for(Duration::from_secs(10));
    assert!(bench.snapshot().overrides.is_empty());
}

#[test]
fn a_clock_that_is_set_back_does_not_prolong_one() {
    let bench = Bench::new();
    bench.clock.advance(Duration::from_secs(10_000));
    bench.tick_for(STEP);
    bench.force("shed t4 for 60s");
    bench.tick_for(Duration::from_secs(30));
    bench.clock.set(Instant::ZERO);
    bench.tick_for(Duration::from_secs(29));
    assert_eq!(bench.snapshot().overrides.len(), 1);
    bench.tick_for(Duration::from_secs(2));
    assert!(bench.snapshot().overrides.is_empty());
    assert!(Bench::tiers_refused(&bench.read).is_empty());
}

#[test]
fn a_short_one_ends_a_longer_one_of_another_source_only_for_its_time() {
    let bench = Bench::new();
    let what: Override = "mode off for 5s".parse().unwrap();
    bench.force("mode monitor for 1h");
    let switch = bench.controller.kill_switch(what.clone()).unwrap();
    let other = bench.controller.kill_switch(what).unwrap();
    switch.throw();
    bench.tick_for(STEP);
    assert_eq!(bench.snapshot().mode, Mode::Off);
    other.release();
    bench.tick_for(STEP);
    assert_eq!(
        bench.snapshot().mode,
        Mode::Off,
        "it was not the one thrown"
    );
    bench.tick_for(Duration::from_secs(5));
    assert_eq!(bench.snapshot().mode, Mode::Monitor);
    // Thrown and gone before anybody looked.
    let last = bench
        .controller
        .kill_switch("shed t5 for 1m".parse().unwrap());
    last.unwrap().throw();
    bench.tick_for(STEP);
    assert_eq!(bench.snapshot().overrides.len(), 2);
}

#[test]
fn what_was_refused_to_nobody_makes_nobody_ill_when_a_mode_ends() {
    let bench = Bench::new();
    bench.force("mode monitor for 10s");
    bench.force("lane read shed t0 for 9s");
    for n in 0..5_000u64 {
        drop(bench.read.try_admit(&Request::new(Tier::T1).key(n)));
        bench.clock.advance(Duration::from_millis(1));
        if n % 20 == 0 {
            bench.tick_for(STEP);
        }
    }
    bench.tick_for(Duration::from_secs(10));
    assert_eq!(bench.snapshot().mode, Mode::Enforce);
    let health = bench.controller.health();
    assert_eq!((health.weight, health.protected_refused), (100, 0.0));
}
