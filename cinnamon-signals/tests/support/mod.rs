//! A controller on a manual clock, with one signal and a steady stream of requests.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test crate uses its part, and what fails here fails the test"
)]

use std::collections::VecDeque;
use std::time::Duration;

use cinnamon_core::{
    Completion, Config, Controller, Instant, Lane, ManualClock, Outcome, OwnedPermit, Rejected,
    Request, Settings, Signal, SignalSnapshot, Tier,
};

/// What each request takes.
const SERVICE: Duration = Duration::from_millis(5);

/// A lane of 25 slots that is asked for 4,000 requests a second, a quarter each of t1 to t4: four fifths of what it
/// can do.
pub struct Bench {
    pub clock: ManualClock,
    pub controller: Controller,
    lane: Lane,
    running: VecDeque<(Instant, OwnedPermit)>,
    requests: u64,
    /// Of every hundred that finish, so many do as overloaded.
    pub overloaded_of_100: u64,
    /// In the last run.
    pub offered: u64,
    pub refused: Vec<(Tier, Rejected)>,
}

impl Bench {
    pub fn new(signal: impl Signal + 'static) -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1));
        let config = Config::new(Settings::one_lane("main", 25)).unwrap();
        let controller = Controller::builder(config)
            .signal(signal)
            .build_manual(clock.shared())
            .unwrap();
        Self {
            lane: controller.lane("main").unwrap(),
            clock,
            controller,
            running: VecDeque::new(),
            requests: 0,
            overloaded_of_100: 0,
            offered: 0,
            refused: Vec::new(),
        }
    }

    pub fn run(&mut self, ms: u64) {
        self.offered = 0;
        self.refused.clear();
        for _ in 0..ms {
            self.step();
        }
    }

    /// A millisecond; what was offered and refused is that of it alone.
    pub fn run_one_ms(&mut self) {
        self.run(1);
    }

    fn step(&mut self) {
        let now = self.clock.advance(Duration::from_millis(1));
        let done = |(until, _): &(Instant, OwnedPermit)| *until <= now;
        while self.running.front().is_some_and(done)
            && let Some((_, permit)) = self.running.pop_front()
        {
            self.requests += 1;
            let outcome = if self.requests % 100 < self.overloaded_of_100 {
                Outcome::Overloaded
            } else {
                Outcome::Success
            };
            permit.finish(Completion::new(outcome));
        }
        for tier in [Tier::T1, Tier::T2, Tier::T3, Tier::T4] {
            self.offered += 1;
            match self.lane.try_admit_owned(&Request::new(tier)) {
                Ok(permit) => self.running.push_back((now.after(SERVICE), permit)),
                Err(rejected) => self.refused.push((tier, rejected)),
            }
        }
        if now.as_nanos() / 1_000_000 % 10 == 1 {
            self.controller.tick(now);
        }
    }

    /// The only signal there is.
    pub fn signal(&self) -> SignalSnapshot {
        self.controller.snapshot().signals.remove(0)
    }

    pub fn refused_share(&self) -> f64 {
        self.refused.len() as f64 / self.offered as f64
    }
}
