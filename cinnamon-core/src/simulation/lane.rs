//! The real engine as a policy.

use crate::clock::Instant;
use crate::config::{Config, ConfigError, Settings};
use crate::controller::tick_interval_ns;
use crate::effects::{Effect, Offered, Ticket};
use crate::engine::Engine;
use crate::metrics::LaneSnapshot;
use crate::permit::Completion;
use crate::priority::Rank;
use crate::queue::WaiterId;
use crate::simulation::policy::{Answer, Offer, Policy, View};
use crate::steering::Parts;
use crate::verdict::Binding;

/// A fault to put into the law on purpose: what a measuring stick must be able to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Defect {
    /// The threshold stays where it was when the gate first closed.
    FrozenThreshold,
    /// The boundary level is admitted whole or not at all.
    NoFraction,
    /// The integral term has no bounds, and learns also while the store stands still and while the gate
    /// holds nobody back.
    NoAntiWindup,
    /// The distribution is learned from what was admitted instead of what was offered.
    AdmittedHistogram,
    /// The queue is not swept.
    NoSweep,
}

/// The engine of one lane, with its own ticks, as a controller would drive it.
#[derive(Debug)]
pub struct VirtualLane {
    config: Config,
    engine: Engine,
    defect: Option<Defect>,
    next_tick: Instant,
    idle: bool,
    frozen: Option<Rank>,
    tickets: Vec<Option<Ticket>>,
    waiters: Vec<Option<WaiterId>>,
    effects: Vec<Effect>,
}

impl VirtualLane {
    /// The first lane of these settings.
    ///
    /// # Errors
    ///
    /// When a setting is out of bounds.
    pub fn new(settings: Settings) -> Result<Self, ConfigError> {
        Self::build(settings, None)
    }

    /// The same with a fault in its law.
    ///
    /// # Errors
    ///
    /// When a setting is out of bounds.
    pub fn defective(settings: Settings, defect: Defect) -> Result<Self, ConfigError> {
        Self::build(settings, Some(defect))
    }

    fn build(settings: Settings, defect: Option<Defect>) -> Result<Self, ConfigError> {
        let config = Config::new(settings)?;
        let mut engine = Engine::new(&config, 0, Instant::ZERO);
        let mut parts = Parts::ALL;
        match defect {
            Some(Defect::NoFraction) => parts.fraction = false,
            Some(Defect::NoAntiWindup) => engine.let_wind_up(),
            Some(Defect::AdmittedHistogram) => parts.offered = false,
            Some(Defect::NoSweep) => parts.sweep = false,
            Some(Defect::FrozenThreshold) | None => {}
        }
        engine.set_parts(parts);
        Ok(Self {
            config,
            engine,
            defect,
            next_tick: Instant::ZERO,
            idle: true,
            frozen: None,
            tickets: Vec::new(),
            waiters: Vec::new(),
            effects: Vec::new(),
        })
    }

    /// What can be seen of the lane.
    #[must_use]
    pub fn snapshot(&self) -> LaneSnapshot {
        self.engine.snapshot(&self.config.lanes[0].name)
    }

    fn entry<T: Clone>(of: &mut Vec<Option<T>>, token: u32) -> &mut Option<T> {
        let index = token as usize;
        if of.len() <= index {
            of.resize(index + 1, None);
        }
        &mut of[index]
    }
}

impl Policy for VirtualLane {
    fn offer(&mut self, now: Instant, offer: &Offer) -> Answer {
        match self.engine.offer(now, &offer.request, Some(offer.token)) {
            Offered::Admitted(ticket) => {
                *Self::entry(&mut self.tickets, offer.token) = Some(ticket);
                Answer::Run
            }
            Offered::Waiting(id) => {
                *Self::entry(&mut self.waiters, offer.token) = Some(id);
                if self.idle {
                    // As a waiter kicks the control thread out of its long sleep.
                    self.next_tick = now;
                    self.idle = false;
                }
                Answer::Wait
            }
            Offered::Rejected(rejected) => Answer::Refuse(rejected.reason()),
        }
    }

    fn cancel(&mut self, now: Instant, token: u32) -> bool {
        let id = Self::entry(&mut self.waiters, token).take();
        id.is_some_and(|id| self.engine.cancel(now, id))
    }

    fn finish(&mut self, now: Instant, token: u32, cost: Option<u32>) {
        if let Some(ticket) = Self::entry(&mut self.tickets, token).take() {
            let done = Completion::success();
            let done = cost.map_or(done, |cost| done.cost(cost));
            self.engine.finish(now, &ticket, Some(done));
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        Some(self.next_tick)
    }

    fn wake(&mut self, now: Instant) {
        self.idle = self.engine.is_idle();
        let mut threshold = self.engine.tick(now);
        if self.defect == Some(Defect::FrozenThreshold) {
            if self.frozen.is_none() && !threshold.is_open() {
                self.frozen = Some(threshold);
            }
            threshold = self.frozen.unwrap_or(threshold);
        }
        self.engine
            .set_gate(now, threshold, Binding::Backlog { lane: 0 }, 0);
        let per_s = self.engine.completions_per_s();
        let interval = tick_interval_ns(&self.config, per_s, self.idle);
        self.next_tick = now.after_nanos(interval);
    }

    fn take_answers(&mut self, out: &mut Vec<(u32, Answer)>) {
        self.engine.take_effects(&mut self.effects);
        for effect in self.effects.drain(..) {
            out.push((
                effect.token,
                match effect.result {
                    Ok(ticket) => {
                        *Self::entry(&mut self.tickets, effect.token) = Some(ticket);
                        Answer::Run
                    }
                    Err(rejected) => Answer::Refuse(rejected.reason()),
                },
            ));
        }
    }

    fn view(&self) -> View {
        self.engine.view()
    }
}
