//! A real controller behind the simulated workload: what its control thread would do is done at the right
//! virtual time, and so is what an operator does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use cinnamon_core::simulation::{Answer, Done, Offer, Policy};
use cinnamon_core::{
    AdmitOwned, BuildError, Completion, Config, ConfigError, Controller, Dynamics, Instant, Lane,
    ManualClock, Override, OwnedPermit, Reading, Rejected, Signal, Target, View,
};

use super::record::{Exporter, Recording, SCRAPE_S};
use super::scenario::{LANE, SIGNAL, Script, Step};

/// Between two control steps: what the control thread does up to 10,000 completions a second.
const TICK: Duration = Duration::from_millis(20);

/// The controller, the scraper and the operator of a scenario.
pub(super) struct Live {
    script: &'static Script,
    clock: ManualClock,
    controller: Controller,
    lane: Lane,
    exporter: Exporter,
    recording: Recording,
    waiting: HashMap<u32, AdmitOwned>,
    running: HashMap<u32, OwnedPermit>,
    /// Whom the controller woke.
    woken: Arc<Mutex<Vec<u32>>>,
    /// `None` while the control thread stands still.
    tick: Option<Duration>,
    next_tick: Instant,
    next_scrape: Instant,
    /// How many of the script's steps were taken.
    taken: usize,
    /// A step that cannot be taken.
    refused: Option<ConfigError>,
}

impl Live {
    pub(super) fn new(script: &'static Script) -> Result<Self, BuildError> {
        let clock = ManualClock::new();
        let config = Config::new(script.settings())?;
        let controller = Controller::builder(config)
            .signal(Gauge(script.says))
            .build_manual(clock.shared())?;
        let lane = controller.lane(LANE).map_err(std::io::Error::other)?;
        Ok(Self {
            script,
            clock,
            controller,
            lane,
            exporter: Exporter::default(),
            recording: Recording::default(),
            waiting: HashMap::new(),
            running: HashMap::new(),
            woken: Arc::default(),
            tick: Some(TICK),
            next_tick: Instant::ZERO.after(TICK),
            next_scrape: Instant::ZERO,
            taken: 0,
            refused: None,
        })
    }

    /// Runs the scenario, with all that is emitted meanwhile going to the scraper.
    pub(super) fn run(&mut self) -> Result<(), ConfigError> {
        let exporter = self.exporter.clone();
        let scenario = self.script.scenario();
        metrics::with_local_recorder(&exporter, || scenario.run(self, &mut ()))?;
        self.refused.take().map_or(Ok(()), Err)
    }

    pub(super) fn into_recording(mut self) -> Recording {
        for (series, value) in self.script.pretend {
            self.recording.pretend(series, *value);
        }
        self.recording
    }

    fn woken(&self) -> Vec<u32> {
        std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn waker(&self, token: u32) -> Waker {
        Waker::from(Arc::new(Note {
            token,
            woken: Arc::clone(&self.woken),
        }))
    }

    fn answer(&mut self, token: u32, result: Result<OwnedPermit, Rejected>) -> Answer {
        match result {
            Ok(permit) => {
                self.running.insert(token, permit);
                Answer::Run
            }
            Err(rejected) => Answer::Refuse(rejected.reason()),
        }
    }

    fn next_step(&self) -> Option<&'static (f64, Step)> {
        self.script.steps.get(self.taken)
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Mode(mode) => self.controller.set_mode(mode),
            Step::Override(action, ttl) => {
                let what = Override::new(Target::Controller, action, ttl);
                self.refused = self.controller.set_override(what).err();
            }
            Step::TickEvery(tick) => self.tick = Some(tick),
            Step::StopTicking => self.tick = None,
            Step::BreakEngine => {
                // A report of it among the results would look like one of ours.
                let hook = std::panic::take_hook();
                std::panic::set_hook(Box::new(|_| {}));
                self.lane.break_engine();
                std::panic::set_hook(hook);
            }
        }
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live")
            .field("script", &self.script.name)
            .field("controller", &self.controller)
            .finish_non_exhaustive()
    }
}

impl Policy for Live {
    fn offer(&mut self, now: Instant, offer: &Offer) -> Answer {
        self.clock.set(now);
        let mut admit = self.lane.admit_owned(&offer.request);
        match admit.poll_admit(&self.waker(offer.token)) {
            Poll::Ready(result) => self.answer(offer.token, result),
            Poll::Pending => {
                self.waiting.insert(offer.token, admit);
                Answer::Wait
            }
        }
    }

    fn cancel(&mut self, now: Instant, token: u32) -> bool {
        self.clock.set(now);
        self.waiting.remove(&token).is_some()
    }

    fn finish(&mut self, now: Instant, token: u32, done: Done) {
        self.clock.set(now);
        if let Some(permit) = self.running.remove(&token) {
            let told = Completion::success();
            permit.finish(done.cost.map_or(told, |cost| told.cost(cost)));
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let step = self.next_step().map(|(at_s, _)| seconds(*at_s));
        let tick = self.tick.map(|_| self.next_tick);
        let all = [step, tick, Some(self.next_scrape)];
        all.into_iter().flatten().min()
    }

    fn wake(&mut self, now: Instant) {
        self.clock.set(now);
        while let Some((at_s, step)) = self.next_step()
            && seconds(*at_s) <= now
        {
            self.taken += 1;
            self.take(*step);
        }
        if let Some(tick) = self.tick
            && self.next_tick <= now
        {
            self.controller.tick(now);
            self.next_tick = now.after(tick);
        }
        if self.next_scrape <= now {
            self.recording.scrape(&self.exporter);
            self.next_scrape = now.after(Duration::from_secs(SCRAPE_S));
        }
    }

    fn take_answers(&mut self, out: &mut Vec<(u32, Answer)>) {
        for token in self.woken() {
            let waker = self.waker(token);
            let Some(admit) = self.waiting.get_mut(&token) else {
                continue;
            };
            if let Poll::Ready(result) = admit.poll_admit(&waker) {
                self.waiting.remove(&token);
                out.push((token, self.answer(token, result)));
            }
        }
    }
}

fn seconds(seconds: f64) -> Instant {
    Instant::ZERO.after(Duration::from_secs_f64(seconds))
}

/// Writes down who was woken.
struct Note {
    token: u32,
    woken: Arc<Mutex<Vec<u32>>>,
}

impl Wake for Note {
    fn wake(self: Arc<Self>) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        woken.push(self.token);
    }
}

/// Says what the script has it say.
struct Gauge(&'static [(f64, Option<f64>)]);

impl Signal for Gauge {
    fn name(&self) -> &str {
        SIGNAL
    }

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(Duration::from_secs(2))
    }

    fn sample(&mut self, now: Instant, _view: &View) -> Reading {
        let said = self.0.iter().rfind(|(from_s, _)| seconds(*from_s) <= now);
        match said.and_then(|(_, pressure)| *pressure) {
            Some(pressure) => Reading::pressure(pressure),
            None => Reading::unavailable("the gauge is gone"),
        }
    }
}
