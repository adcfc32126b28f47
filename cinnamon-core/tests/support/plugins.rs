//! Signals as an embedder writes them, and a lane to try them on.

use std::time::Duration;

use cinnamon_core::{
    Authority, Clock, Completion, Config, Controller, Dynamics, Instant, ManualClock, Reading,
    Reason, Request, Scope, Settings, Signal, Tier, View,
};

type Sample = Box<dyn FnMut(Instant, &View) -> Reading + Send>;

/// A signal made of parts.
pub struct Made {
    pub name: String,
    pub dynamics: Dynamics,
    pub scope: Scope,
    pub range: (f64, f64),
    pub period: Duration,
    sample: Sample,
}

impl Made {
    pub fn new(name: &str, sample: impl FnMut(Instant, &View) -> Reading + Send + 'static) -> Self {
        Self {
            name: name.to_owned(),
            dynamics: Dynamics::settling(Duration::from_secs(1)),
            scope: Scope::All,
            range: (0.0, 10.0),
            period: Duration::from_millis(1),
            sample: Box::new(sample),
        }
    }
}

impl Signal for Made {
    fn name(&self) -> &str {
        &self.name
    }

    fn dynamics(&self) -> Dynamics {
        self.dynamics
    }

    fn range(&self) -> std::ops::RangeInclusive<f64> {
        self.range.0..=self.range.1
    }

    fn scope(&self) -> Scope {
        self.scope.clone()
    }

    fn authority(&self) -> Authority {
        Authority::Measuring
    }

    fn period(&self) -> Duration {
        self.period
    }

    fn sample(&mut self, now: Instant, view: &View) -> Reading {
        (self.sample)(now, view)
    }
}

pub fn config() -> Config {
    Config::new(Settings::one_lane("main", 4)).expect("in bounds")
}

/// Waits, without a bound on how long the machine may take, until `done`.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..1_000_000 {
        if done() {
            return;
        }
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_micros(50));
    }
    unreachable!("{what} never came true");
}

/// Serves `seconds` of the load at 100/s with 10 ms each, a request at a time, ticking every 10 ms.
pub fn serve(controller: &Controller, clock: &ManualClock, seconds: u32, tier: Tier) -> (u32, u32) {
    let lane = controller.lane("main").expect("it was configured");
    let (mut admitted, mut refused) = (0, 0);
    for n in 0..seconds * 100 {
        let permit = lane.try_admit(&Request::new(tier).key(u64::from(n)));
        clock.advance(Duration::from_millis(10));
        match permit {
            Ok(permit) => {
                permit.finish(Completion::success());
                admitted += 1;
            }
            Err(rejected) => {
                assert_eq!(rejected.reason(), Reason::Shed);
                refused += 1;
            }
        }
        controller.tick(clock.now());
    }
    (admitted, refused)
}
