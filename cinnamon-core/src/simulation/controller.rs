//! The real engine as a policy.

use std::fmt;

use crate::admission::Admission;
use crate::attach::supervise_all;
use crate::clock::Instant;
use crate::config::{Config, ConfigError, LaneSettings, Settings};
use crate::control::tick_interval_ns;
use crate::effects::{Effect, Offered, Ticket};
use crate::metrics::{LaneSnapshot, TenantSnapshot};
use crate::observer::{FinishEvent, Observer, Observers, OfferAnswer, OfferEvent};
use crate::permit::Completion;
use crate::priority::Rank;
use crate::queue::WaiterId;
use crate::retry::Retry;
use crate::sampler::{SLOW_MIN_NS, SLOW_PERIODS};
use crate::signal::selector::{LaneFlow, Selector};
use crate::signal::{
    LaneView, Mode, Reading, Signal, SignalFault, SignalSnapshot, View as SignalsView, Who,
};
use crate::simulation::plant::PlantSignal;
use crate::simulation::policy::{Answer, Done, Offer, Policy, View};
use crate::steering::Parts;
use crate::sync::Arc;
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

/// The engines of a controller's lanes and its signals, with their ticks, as the control thread would drive
/// them.
#[derive(Debug)]
pub struct VirtualController {
    config: Config,
    lanes: Vec<VirtualLane>,
    selector: Selector,
    samples: Vec<Sample>,
    own: Vec<Own>,
    observers: Observers,
    /// Of what was refused, by token.
    advice: Vec<Option<Retry>>,
    defect: Option<Defect>,
    next_tick: Instant,
    last_tick: Instant,
    idle: bool,
    frozen: Option<Rank>,
    effects: Vec<Effect>,
}

#[derive(Debug)]
struct VirtualLane {
    admission: Admission,
    tickets: Vec<Option<Ticket>>,
    waiters: Vec<Option<WaiterId>>,
    threshold: Rank,
    flow: LaneFlow,
    bound: Binding,
}

/// A signal as an embedder would give it, sampled with the ticks.
struct Own {
    signal: Box<dyn Signal>,
    period_ns: u64,
    due: Instant,
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.signal.name())
    }
}

/// A signal and the sample of it that is under way.
#[derive(Debug)]
struct Sample {
    signal: PlantSignal,
    period_ns: u64,
    due: Instant,
    /// Asked at, answered at, the answer, and whether it was found slow.
    pending: Option<(Instant, Instant, Result<Reading, SignalFault>, bool)>,
}

impl VirtualController {
    /// A controller with these settings.
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
        let lane = |i: usize| {
            let mut admission = Admission::new(&config, i, Instant::ZERO);
            admission.set_mode(Instant::ZERO, config.mode.min(config.lanes[i].mode));
            let engine = admission.engine_mut();
            let mut parts = Parts::ALL;
            match defect {
                Some(Defect::NoFraction) => parts.fraction = false,
                Some(Defect::NoAntiWindup) => engine.let_wind_up(),
                Some(Defect::AdmittedHistogram) => parts.offered = false,
                Some(Defect::NoSweep) => parts.sweep = false,
                Some(Defect::FrozenThreshold) | None => {}
            }
            engine.set_parts(parts);
            VirtualLane {
                admission,
                tickets: Vec::new(),
                waiters: Vec::new(),
                threshold: Rank::OPEN,
                flow: LaneFlow::default(),
                bound: Binding::Nothing,
            }
        };
        let lanes: Vec<VirtualLane> = (0..config.lanes.len()).map(lane).collect();
        Ok(Self {
            selector: Selector::new(Vec::new(), lanes.len()),
            lanes,
            config,
            samples: Vec::new(),
            own: Vec::new(),
            observers: Observers::default(),
            advice: Vec::new(),
            defect,
            next_tick: Instant::ZERO,
            last_tick: Instant::ZERO,
            idle: true,
            frozen: None,
            effects: Vec::new(),
        })
    }

    /// Gives it signals and observers as an embedder would, instead of the scenario's plants, which then lie.
    ///
    /// # Errors
    ///
    /// When a signal is not what it must be.
    pub fn watched_by(
        mut self,
        signals: Vec<Box<dyn Signal>>,
        observers: Vec<Arc<dyn Observer>>,
    ) -> Result<Self, ConfigError> {
        let supervised = supervise_all(signals.iter().map(|signal| &**signal), &self.config)?;
        let own = |(signal, period_ns)| Own {
            signal,
            period_ns,
            due: Instant::ZERO,
        };
        let periods = supervised.iter().map(|signal| signal.profile().period_ns());
        self.own = signals.into_iter().zip(periods).map(own).collect();
        self.selector = Selector::new(supervised, self.lanes.len());
        self.observers = Observers::new(observers);
        Ok(self)
    }

    /// Who is throttled: whom, the rate, and the signal's index.
    #[must_use]
    pub fn throttles(&self) -> Vec<(Who, f64, usize)> {
        let throttles = self.selector.throttles();
        throttles.map(|of| (of.who, of.per_s, of.signal)).collect()
    }

    /// What tenants claimed of a lane, by index.
    ///
    /// # Panics
    ///
    /// When there is no such lane.
    #[must_use]
    pub fn tenants(&self, lane: usize) -> Vec<TenantSnapshot> {
        self.lanes[lane]
            .admission
            .tenant_figures(&self.config.lanes[lane].name)
    }

    /// What can be seen of the first lane.
    #[must_use]
    pub fn snapshot(&self) -> LaneSnapshot {
        self.lane_snapshot(0)
    }

    /// What can be seen of a lane, by index.
    ///
    /// # Panics
    ///
    /// When there is no such lane.
    #[must_use]
    pub fn lane_snapshot(&self, lane: usize) -> LaneSnapshot {
        let admission = &self.lanes[lane].admission;
        admission.snapshot(&self.config.lanes[lane].name)
    }

    /// What can be seen of the signals.
    #[must_use]
    pub fn signals(&self) -> Vec<SignalSnapshot> {
        self.selector.snapshots(&[])
    }

    /// Changes whether decisions count.
    pub fn set_mode(&mut self, now: Instant, mode: Mode) {
        for lane in &mut self.lanes {
            lane.admission.set_mode(now, mode);
        }
    }

    /// Settings of two lanes, `read` and `write`, that share the scope `store`.
    #[must_use]
    pub fn two_lanes(read_slots: u32, write_slots: u32) -> Settings {
        Settings::default()
            .lane(LaneSettings::new("read", read_slots).scope("store"))
            .lane(LaneSettings::new("write", write_slots).scope("store"))
    }

    fn signals_view(&self) -> SignalsView {
        let lanes = self.lanes.iter().zip(&self.config.lanes);
        let view = |(lane, settings): (&VirtualLane, &LaneSettings)| {
            let mut view = LaneView::new(&settings.name, &settings.scope);
            lane.admission.show(&mut view);
            view
        };
        SignalsView::of(lanes.map(view).collect())
    }

    /// As a waiter kicks the control thread out of its long sleep.
    fn kick(&mut self, now: Instant) {
        if self.idle {
            self.next_tick = now;
            self.idle = false;
        }
    }

    fn sample(&mut self, now: Instant) {
        if self.own.iter().any(|own| own.due <= now) {
            let view = self.signals_view();
            for (index, own) in self
                .own
                .iter_mut()
                .enumerate()
                .filter(|(_, own)| own.due <= now)
            {
                own.due = now.after_nanos(own.period_ns);
                let reading = own.signal.sample(now, &view);
                self.selector.read(index, now, now, Ok(reading));
            }
        }
        for (index, sample) in self.samples.iter_mut().enumerate() {
            if sample.pending.is_none() && sample.due <= now {
                let (at, answer) = sample.signal.ask(now);
                sample.pending = Some((now, at, answer, false));
                sample.due = now.after_nanos(sample.period_ns);
            }
            match &mut sample.pending {
                Some((asked_at, at, _, _)) if *at <= now => {
                    let asked_at = *asked_at;
                    if let Some((_, _, answer, _)) = sample.pending.take() {
                        self.selector.read(index, now, asked_at, answer);
                    }
                }
                Some((asked_at, _, _, slow)) => {
                    let most_ns = (SLOW_PERIODS * sample.period_ns).max(SLOW_MIN_NS);
                    if !*slow && now.nanos_since(*asked_at) > most_ns {
                        *slow = true;
                        self.selector.read(index, now, now, Err(SignalFault::Slow));
                    }
                }
                None => {}
            }
        }
    }
}

impl VirtualLane {
    fn entry<T: Clone>(of: &mut Vec<Option<T>>, token: u32) -> &mut Option<T> {
        let index = token as usize;
        if of.len() <= index {
            of.resize(index + 1, None);
        }
        &mut of[index]
    }
}

impl Policy for VirtualController {
    fn offer(&mut self, now: Instant, offer: &Offer) -> Answer {
        let lane = &mut self.lanes[offer.lane];
        let offered = lane.admission.offer(now, &offer.request, Some(offer.token));
        if !self.observers.is_empty() {
            let event = OfferEvent {
                lane: offer.lane,
                request: &offer.request,
                answer: OfferAnswer::of(&offered),
            };
            self.observers.tell(|observer| observer.on_offer(&event));
        }
        match offered {
            Offered::Admitted(ticket) => {
                *VirtualLane::entry(&mut lane.tickets, offer.token) = Some(ticket);
                if lane.admission.waits_in_shadow() {
                    self.kick(now);
                }
                Answer::Run
            }
            Offered::Waiting(id) => {
                *VirtualLane::entry(&mut lane.waiters, offer.token) = Some(id);
                self.kick(now);
                Answer::Wait
            }
            Offered::Rejected(rejected) => {
                *VirtualLane::entry(&mut self.advice, offer.token) = Some(rejected.retry());
                Answer::Refuse(rejected.reason())
            }
        }
    }

    fn cancel(&mut self, now: Instant, token: u32) -> bool {
        self.lanes.iter_mut().any(|lane| {
            let id = VirtualLane::entry(&mut lane.waiters, token).take();
            id.is_some_and(|id| lane.admission.cancel(now, id))
        })
    }

    fn finish(&mut self, now: Instant, token: u32, done: Done) {
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            if let Some(ticket) = VirtualLane::entry(&mut lane.tickets, token).take() {
                let told = done.outcome.map(|outcome| {
                    let told = Completion::new(outcome);
                    done.cost.map_or(told, |cost| told.cost(cost))
                });
                lane.admission.finish(now, &ticket, told);
                if !self.observers.is_empty() {
                    let held = lane.admission.held(&ticket, now);
                    let event = FinishEvent::new(index, &ticket, told, held);
                    self.observers.tell(|observer| observer.on_finish(&event));
                }
            }
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        Some(self.next_tick)
    }

    fn wake(&mut self, now: Instant) {
        self.sample(now);
        let mut idle = true;
        let mut per_s = 0f64;
        for lane in &mut self.lanes {
            idle &= lane.admission.is_idle();
            lane.threshold = lane.admission.tick(now);
            lane.flow = lane.admission.flow();
            per_s = per_s.max(lane.admission.completions_per_s());
        }
        if self.defect == Some(Defect::FrozenThreshold) {
            let threshold = &mut self.lanes[0].threshold;
            if self.frozen.is_none() && !threshold.is_open() {
                self.frozen = Some(*threshold);
            }
            *threshold = self.frozen.unwrap_or(*threshold);
        }
        let flows: Vec<LaneFlow> = self.lanes.iter().map(|lane| lane.flow).collect();
        let lanes = &self.lanes;
        let dt_s = now.nanos_since(self.last_tick) as f64 * 1e-9;
        self.last_tick = now;
        self.selector.tick(dt_s, &flows, |lane, levels| {
            lanes[lane].admission.add_levels(levels);
        });
        let throttles = self.selector.take_throttles();
        let thresholds: Vec<Rank> = lanes.iter().map(|lane| lane.threshold).collect();
        let settings = &self.config.lanes;
        for i in 0..self.lanes.len() {
            let same_scope = |other: usize| settings[other].scope == settings[i].scope;
            let (threshold, binding) = self.selector.gate(i, &thresholds, same_scope);
            if let Some(throttles) = &throttles {
                self.lanes[i].admission.set_throttles(throttles);
            }
            self.lanes[i].admission.set_gate(now, threshold, binding, 0);
            self.lanes[i].bound = binding;
        }
        let bound: Vec<Binding> = self.lanes.iter().map(|lane| lane.bound).collect();
        self.selector.bind(&bound, dt_s);
        self.idle = idle && self.selector.is_idle();
        let interval = tick_interval_ns(&self.config, per_s, self.idle);
        self.next_tick = now.after_nanos(interval);
    }

    fn take_answers(&mut self, out: &mut Vec<(u32, Answer)>) {
        for lane in &mut self.lanes {
            lane.admission.take_effects(&mut self.effects);
            for effect in self.effects.drain(..) {
                out.push((
                    effect.token,
                    match effect.result {
                        Ok(ticket) => {
                            *VirtualLane::entry(&mut lane.tickets, effect.token) = Some(ticket);
                            Answer::Run
                        }
                        Err(rejected) => {
                            *VirtualLane::entry(&mut self.advice, effect.token) =
                                Some(rejected.retry());
                            Answer::Refuse(rejected.reason())
                        }
                    },
                ));
            }
        }
    }

    fn attach(&mut self, signals: Vec<PlantSignal>) -> Result<(), ConfigError> {
        if !self.own.is_empty() {
            return Ok(());
        }
        let supervised = supervise_all(
            signals.iter().map(|signal| signal as &dyn Signal),
            &self.config,
        )?;
        let sample = |(signal, period_ns)| Sample {
            signal,
            period_ns,
            due: Instant::ZERO,
            pending: None,
        };
        let periods = supervised.iter().map(|signal| signal.profile().period_ns());
        self.samples = signals.into_iter().zip(periods).map(sample).collect();
        self.selector = Selector::new(supervised, self.lanes.len());
        Ok(())
    }

    fn retry(&self, token: u32) -> Option<Retry> {
        self.advice.get(token as usize).copied().flatten()
    }

    fn view(&self) -> View {
        let lane = &self.lanes[0];
        View {
            signal: match lane.bound {
                Binding::Signal { index } => Some(index),
                _ => None,
            },
            throttled: self.selector.throttles().count(),
            ..lane.admission.view()
        }
    }
}
