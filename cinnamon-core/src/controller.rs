//! The controller: its lanes, its scopes, and the step that moves their gates.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::time::Duration;

use crate::admission::Admission;
use crate::attach::{Attached, attach, check_names};
use crate::clock::{Clock, Instant, MonotonicClock, read};
use crate::config::{Config, ConfigError, LaneSettings, check_change};
use crate::driver::{self, Kick};
use crate::event::{self, Event};
use crate::lane::{Lane, LaneCore, wake_all};
use crate::metrics::{LaneSnapshot, Snapshot};
use crate::observer::{Observer, Observers};
use crate::priority::Rank;
use crate::sampler::{self, Sampling};
use crate::signal::selector::{LaneFlow, Selector};
use crate::signal::{LaneView, Mode, Signal, SignalFault, SignalSnapshot, View};
use crate::sync::{Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering, lock};
use crate::verdict::Binding;

/// A tick should see about this many completions: fewer are noise, more are late.
const TICK_COMPLETIONS: f64 = 200.0;
/// Between ticks while nothing happens: 4 wake-ups a second cost about 0.01 % of a core.
pub(crate) const IDLE_TICK_NS: u64 = 250_000_000;

/// Admission control for one store: lanes, scopes and the loop that moves their gates. A cheap
/// handle; clones share everything, and so do the [`Lane`]s it gives out.
///
/// The control thread runs as long as any handle, lane or owned permit lives.
#[derive(Clone)]
pub struct Controller {
    shared: Arc<Shared>,
}

/// What all handles share.
#[derive(Debug)]
pub(crate) struct Shared {
    clock: Arc<dyn Clock>,
    /// Read once: a clock has one origin.
    origin_unix_ns: u64,
    /// In force.
    config: Mutex<Arc<Config>>,
    /// To be in force from the next tick on.
    next_config: Mutex<Option<Config>>,
    /// As in the configuration, for the path of a waiter.
    tick_max_ms: AtomicU64,
    lanes: Box<[LaneCore]>,
    sampling: Sampling,
    observers: Observers,
    /// Serialises ticks. Lock order: this, then one lane's.
    control: Mutex<Control>,
    ticks: AtomicU64,
    ticks_late: AtomicU64,
    /// The control step panicked, or the clock is dead; every lane was switched off.
    failed: AtomicBool,
    closed: AtomicBool,
    /// Somebody waits in `drain` for `freed`.
    draining: AtomicBool,
    drain_lock: Mutex<()>,
    freed: Condvar,
    kick: Arc<Kick>,
}

#[derive(Debug)]
struct Control {
    config: Arc<Config>,
    mode: Mode,
    /// The lanes' own modes.
    modes: Vec<Mode>,
    selector: Selector,
    /// Of the last tick, one per lane; reused.
    thresholds: Vec<Rank>,
    flows: Vec<LaneFlow>,
    bound: Vec<Binding>,
    last_tick: Instant,
    next_tick: Instant,
    /// The last tick found nothing to do, and the next is far away.
    idle: bool,
}

/// Builds a [`Controller`] from a checked [`Config`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    config: Config,
    clock: Option<Arc<dyn Clock>>,
    signals: Vec<Box<dyn Signal>>,
    observers: Vec<Arc<dyn Observer>>,
}

/// No lane has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no lane is named {name:?}; there are {known:?}")]
pub struct UnknownLane {
    /// The name asked for.
    pub name: String,
    /// The names there are.
    pub known: Vec<String>,
}

/// No signal has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no signal is named {name:?}; there are {known:?}")]
pub struct UnknownSignal {
    /// The name asked for.
    pub name: String,
    /// The names there are.
    pub known: Vec<String>,
}

/// The controller could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A signal is not what it must be, or a setting names one that is not there.
    #[error(transparent)]
    Signal(#[from] ConfigError),
    /// The control thread, or the one that samples signals, could not be started.
    #[error("the control thread could not be started")]
    Thread(#[from] std::io::Error),
}

/// Work was still running when the time to drain was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{running} requests were still running when the time to drain was over; {refused} that waited were refused"
)]
pub struct DrainTimeout {
    /// Requests still running.
    pub running: u32,
    /// Requests that waited and were now refused as closed.
    pub refused: u32,
}

impl Controller {
    /// Starts from a checked configuration.
    pub const fn builder(config: Config) -> Builder {
        Builder {
            config,
            clock: None,
            signals: Vec::new(),
            observers: Vec::new(),
        }
    }

    /// The lane of this name. Ask once and keep it.
    ///
    /// # Errors
    ///
    /// When no lane has this name.
    pub fn lane(&self, name: &str) -> Result<Lane, UnknownLane> {
        let index = self
            .shared
            .lanes
            .iter()
            .position(|lane| lane.name() == name);
        match index {
            Some(index) => Ok(Lane::new(Arc::clone(&self.shared), index)),
            None => Err(UnknownLane {
                name: name.to_owned(),
                known: self
                    .shared
                    .lanes
                    .iter()
                    .map(|lane| lane.name().to_owned())
                    .collect(),
            }),
        }
    }

    /// One control step at `now`: expires, measures, moves the gates. The control thread calls it;
    /// with [`Builder::build_manual`] you do, and signals that are due are sampled first, on this
    /// thread. Steps closer than a millisecond apart, or back in time, do no harm.
    ///
    /// Who is woken by it is woken before it returns, on this thread, with no lock held.
    pub fn tick(&self, now: Instant) {
        self.shared.guarded_tick(now);
    }

    /// The controller at this moment. Each lane is consistent in itself.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let now = self.shared.read_clock();
        let (signals, mode) = {
            let control = lock(&self.shared.control);
            let now = now.unwrap_or(control.last_tick);
            (control.selector.snapshots(now), control.mode)
        };
        let lane = |i| self.shared.lane_snapshot_with(i, &signals);
        Snapshot {
            lanes: (0..self.shared.lanes.len()).map(lane).collect(),
            signals,
            mode,
            ticks: self.shared.ticks.load(Ordering::Relaxed),
            ticks_late: self.shared.ticks_late.load(Ordering::Relaxed),
            failed: self.shared.failed.load(Ordering::Acquire)
                || self.shared.lanes.iter().any(LaneCore::failed),
            closed: self.shared.closed.load(Ordering::Acquire),
        }
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&lock(&self.shared.config))
    }

    /// Puts another configuration in force, whole, at the edge of the next tick. What was learned stays.
    /// Limits and modes that were changed by hand stay too, unless the new configuration says other than
    /// the old one.
    ///
    /// # Errors
    ///
    /// When it has other lanes or scopes, fewer classes, or names a signal that is not there; then nothing
    /// changes.
    pub fn reconfigure(&self, config: Config) -> Result<(), ConfigError> {
        let names = {
            let control = lock(&self.shared.control);
            check_change(&control.config, &config)?;
            control.selector.names()
        };
        check_names(&config, &names)?;
        *lock(&self.shared.next_config) = Some(config);
        if let Some(now) = self.shared.read_clock() {
            self.shared.kick.no_later_than(now, Duration::ZERO);
        }
        Ok(())
    }

    /// The clock that deadlines are compared with.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// Changes whether decisions count, for all lanes; the lesser of this and a lane's own mode holds.
    /// Who waits is let in when they no longer do. A controller that has failed stays off.
    pub fn set_mode(&self, mode: Mode) {
        let mut wakers = Vec::new();
        let mut control = lock(&self.shared.control);
        let was = std::mem::replace(&mut control.mode, mode);
        self.shared.apply_modes(&control, &mut wakers);
        drop(control);
        wake_all(wakers);
        if was != mode {
            tracing::info!(mode = mode.as_str(), "the controller's mode was changed");
        }
    }

    /// Changes whether this signal's budget counts. Off, it is not sampled either, and what it knew is
    /// forgotten.
    ///
    /// # Errors
    ///
    /// When no signal has this name.
    pub fn set_signal_mode(&self, name: &str, mode: Mode) -> Result<(), UnknownSignal> {
        let mut control = lock(&self.shared.control);
        let names = control.selector.names();
        let Some(index) = names.iter().position(|known| known == name) else {
            return Err(UnknownSignal {
                name: name.to_owned(),
                known: names,
            });
        };
        self.shared.set_signal_mode(&mut control, index, mode);
        drop(control);
        tracing::info!(
            signal = name,
            mode = mode.as_str(),
            "a signal's mode was changed"
        );
        Ok(())
    }

    /// What `binding` names, in words: `signal follower-lag`, `backlog of lane write`, `nothing`.
    #[must_use]
    pub fn binding_name(&self, binding: Binding) -> String {
        let signals = lock(&self.shared.control).selector.names();
        self.shared.name_of(binding, &signals)
    }

    /// Takes no more work: offers are refused as closed, and so is, at once, everybody who waits.
    /// Permits out stay valid. Closing twice is closing once.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        self.each_lane(|engine, now| engine.close(now));
        self.shared.slot_freed();
    }

    /// Takes no more offers, lets whoever waits have its turn, and blocks until everything is done
    /// or `timeout` is over. Then it is closed.
    ///
    /// # Errors
    ///
    /// When work was still running at the end of `timeout`.
    pub fn drain(&self, timeout: Duration) -> Result<(), DrainTimeout> {
        self.shared.closed.store(true, Ordering::Release);
        self.each_lane(|engine, now| engine.drain(now));
        let busy = || {
            let mut count = (0, 0);
            self.each_lane(|engine, _| {
                count.0 += engine.running();
                count.1 += engine.waiting();
            });
            count.0 += self.shared.lanes.iter().map(LaneCore::outside).sum::<u32>();
            count
        };
        self.shared.draining.store(true, Ordering::SeqCst);
        let guard = lock(&self.shared.drain_lock);
        let waited = self
            .shared
            .freed
            .wait_timeout_while(guard, timeout, |()| busy() != (0, 0));
        drop(waited);
        let (running, refused) = busy();
        self.close();
        if (running, refused) == (0, 0) {
            return Ok(());
        }
        Err(DrainTimeout { running, refused })
    }

    fn each_lane(&self, mut act: impl FnMut(&mut Admission, Instant)) {
        let now = self.shared.read_clock();
        for lane in &self.shared.lanes {
            lane.with(now, |engine, _, now| act(engine, now));
        }
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.shared.lanes.iter().map(LaneCore::name).collect();
        f.debug_struct("Controller")
            .field("lanes", &names)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signals: Vec<&str> = self.signals.iter().map(|signal| signal.name()).collect();
        f.debug_struct("Builder")
            .field("config", &self.config)
            .field("signals", &signals)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Uses this clock instead of the machine's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Adds a signal. It is sampled on a thread of its own, or with [`Builder::build_manual`] by the tick.
    pub fn signal(self, signal: impl Signal + 'static) -> Self {
        self.boxed_signal(Box::new(signal))
    }

    /// The same, for a signal whose type is known only at run time.
    pub fn boxed_signal(mut self, signal: Box<dyn Signal>) -> Self {
        self.signals.push(signal);
        self
    }

    /// Adds an observer of every request.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Builds the controller, starts its control thread and, if it has signals, the one that samples them.
    ///
    /// # Errors
    ///
    /// When a signal is not what it must be (its name, its times, its range, its scope), or a thread cannot
    /// be started.
    pub fn build(mut self) -> Result<Controller, BuildError> {
        let clock = self.clock.take();
        let clock = clock.unwrap_or_else(|| MonotonicClock::new().shared());
        let shared = Shared::new(self, clock, false)?;
        driver::start(&shared)?;
        sampler::start(&shared)?;
        Ok(Controller { shared })
    }

    /// Builds a controller that starts nothing: time is what `clock` says, and
    /// [`Controller::tick`] drives it.
    ///
    /// # Errors
    ///
    /// When a signal is not what it must be.
    pub fn build_manual(self, clock: Arc<dyn Clock>) -> Result<Controller, BuildError> {
        let shared = Shared::new(self, clock, true)?;
        Ok(Controller { shared })
    }
}

impl Shared {
    fn new(
        builder: Builder,
        clock: Arc<dyn Clock>,
        manual: bool,
    ) -> Result<Arc<Self>, ConfigError> {
        let now = read(&*clock).unwrap_or_default();
        let origin = catch_unwind(AssertUnwindSafe(|| clock.origin_unix_nanos()));
        let config = Arc::new(builder.config);
        let Attached { supervised, slots } = attach(builder.signals, &config, now)?;
        let lane = |i: usize| {
            let mut admission = Admission::new(&config, i, now);
            admission.set_mode(now, config.mode.min(config.lanes[i].mode));
            LaneCore::new(&config.lanes[i].name, Arc::clone(&clock), admission)
        };
        let lanes: Box<[LaneCore]> = (0..config.lanes.len()).map(lane).collect();
        Ok(Arc::new(Self {
            clock,
            origin_unix_ns: origin.unwrap_or(0),
            control: Mutex::new(Control {
                mode: config.mode,
                modes: config.lanes.iter().map(|lane| lane.mode).collect(),
                selector: Selector::new(supervised, lanes.len()),
                thresholds: vec![Rank::OPEN; lanes.len()],
                flows: vec![LaneFlow::default(); lanes.len()],
                bound: vec![Binding::Nothing; lanes.len()],
                last_tick: now,
                next_tick: now,
                idle: true,
                config: Arc::clone(&config),
            }),
            tick_max_ms: AtomicU64::new(config.tick_max_ms),
            config: Mutex::new(config),
            next_config: Mutex::new(None),
            sampling: Sampling::new(slots, manual),
            observers: Observers::new(builder.observers),
            lanes,
            ticks: AtomicU64::new(0),
            ticks_late: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            drain_lock: Mutex::new(()),
            freed: Condvar::new(),
            kick: Arc::new(Kick::new()),
        }))
    }

    pub(crate) const fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    pub(crate) const fn observers(&self) -> &Observers {
        &self.observers
    }

    /// How the lanes stand, for signals.
    pub(crate) fn view(&self) -> View {
        let config = Arc::clone(&lock(&self.config));
        let lane = |(lane, settings): (&LaneCore, &LaneSettings)| {
            let mut view = LaneView {
                name: settings.name.clone(),
                scope: settings.scope.clone(),
                ..LaneView::default()
            };
            // Of a lane that has failed nothing is known.
            lane.with(None, |engine, _, _| engine.show(&mut view));
            view
        };
        View {
            lanes: self.lanes.iter().zip(&config.lanes).map(lane).collect(),
        }
    }

    pub(crate) fn set_lane_mode(&self, lane: usize, mode: Mode) {
        let mut wakers = Vec::new();
        let mut control = lock(&self.control);
        control.modes[lane] = mode;
        self.apply_modes(&control, &mut wakers);
        drop(control);
        wake_all(wakers);
        tracing::info!(
            lane = self.lanes[lane].name(),
            mode = mode.as_str(),
            "a lane's mode was changed"
        );
    }

    fn apply_modes(&self, control: &Control, wakers: &mut Vec<Waker>) {
        if self.failed.load(Ordering::Acquire) {
            return;
        }
        let now = self.read_clock();
        for (lane, &mode) in self.lanes.iter().zip(&control.modes) {
            let mode = mode.min(control.mode);
            lane.with_wakers(now, wakers, |engine, _, now| engine.set_mode(now, mode));
        }
    }

    fn set_signal_mode(&self, control: &mut Control, index: usize, mode: Mode) {
        if let Some(signal) = control.selector.signal_mut(index) {
            signal.set_mode(mode);
            self.sampling.slots[index].set_mode(mode);
        }
    }

    pub(crate) fn lane_snapshot(&self, lane: usize) -> LaneSnapshot {
        let names = lock(&self.control).selector.names();
        let mut snapshot = self.lanes[lane].snapshot();
        snapshot.bound_by = self.name_of(snapshot.binding, &names);
        snapshot
    }

    fn lane_snapshot_with(&self, lane: usize, signals: &[SignalSnapshot]) -> LaneSnapshot {
        let mut snapshot = self.lanes[lane].snapshot();
        let names: Vec<String> = signals.iter().map(|signal| signal.name.clone()).collect();
        snapshot.bound_by = self.name_of(snapshot.binding, &names);
        snapshot
    }

    fn name_of(&self, binding: Binding, signals: &[String]) -> String {
        match binding {
            Binding::Nothing => "nothing".to_owned(),
            Binding::Backlog { lane } => match self.lanes.get(usize::from(lane)) {
                Some(lane) => format!("backlog of lane {}", lane.name()),
                None => binding.to_string(),
            },
            Binding::Signal { index } => match signals.get(usize::from(index)) {
                Some(name) => format!("signal {name}"),
                None => binding.to_string(),
            },
        }
    }

    pub(crate) fn lane_core(&self, index: usize) -> &LaneCore {
        &self.lanes[index]
    }

    pub(crate) fn kick(&self) -> &Arc<Kick> {
        &self.kick
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The time, or `None` when the clock panicked.
    pub(crate) fn read_clock(&self) -> Option<Instant> {
        read(&*self.clock)
    }

    /// A waiter came whose lane next needs attention at `wakeup`.
    pub(crate) fn waiter_came(&self, wakeup: Option<Instant>) {
        let soon = wakeup.unwrap_or(Instant::FAR_FUTURE);
        let tick_ms = self.tick_max_ms.load(Ordering::Relaxed);
        self.kick
            .no_later_than(soon, Duration::from_millis(tick_ms));
    }

    /// Something stopped running or waiting: tells `drain`, if anybody drains.
    pub(crate) fn slot_freed(&self) {
        if self.draining.load(Ordering::SeqCst) {
            drop(lock(&self.drain_lock));
            self.freed.notify_all();
        }
    }

    /// What the control thread does when it wakes: a tick when one is due, else only expiry. Returns
    /// when to wake next.
    pub(crate) fn drive(&self, now: Instant) -> Instant {
        if self.is_due(now) {
            self.guarded_tick(now);
        } else {
            for lane in &self.lanes {
                lane.with(Some(now), |engine, _, now| engine.expire(now));
            }
        }
        let mut next = if self.failed.load(Ordering::Acquire) {
            now.after_nanos(IDLE_TICK_NS)
        } else {
            lock(&self.control).next_tick
        };
        for lane in &self.lanes {
            let wakeup = lane.with(Some(now), |engine, _, _| engine.next_wakeup());
            next = wakeup.flatten().map_or(next, |at| next.min(at));
        }
        next
    }

    /// Gives up on decisions, loudly: every lane admits everything, and whoever waits is let in.
    pub(crate) fn fail(&self, why: &'static str) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            tracing::error!(why, "admission decisions are switched off");
            for lane in &self.lanes {
                lane.with(None, |engine, _, now| engine.set_mode(now, Mode::Off));
            }
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let (next_tick, idle) = {
            let control = lock(&self.control);
            (control.next_tick, control.idle)
        };
        let longest_ns = IDLE_TICK_NS.max(self.tick_max_ms.load(Ordering::Relaxed) * 1_000_000);
        // No tick is planned further ahead than that: the clock was set back.
        let set_back = next_tick.nanos_since(now) > longest_ns;
        let busy = |lane: &LaneCore| {
            lane.with(Some(now), |engine, _, _| !engine.is_idle())
                .unwrap_or(false)
        };
        let changed = lock(&self.next_config).is_some();
        next_tick <= now || changed || set_back || (idle && self.lanes.iter().any(busy))
    }

    /// A tick that cannot take the caller down: should it panic, every lane admits everything.
    fn guarded_tick(&self, now: Instant) {
        if self.failed.load(Ordering::Acquire) {
            return;
        }
        self.sampling.sample_if_manual(now, || self.view());
        let mut wakers = Vec::new();
        let mut events = Vec::new();
        let ticked = catch_unwind(AssertUnwindSafe(|| {
            self.tick(now, &mut wakers, &mut events);
        }));
        wake_all(wakers);
        if ticked.is_err() {
            self.fail("the control step panicked");
        }
        if !events.is_empty() {
            let signals = lock(&self.control).selector.names();
            event::log(&events, |binding| self.name_of(binding, &signals));
        }
    }

    fn tick(&self, now: Instant, wakers: &mut Vec<Waker>, events: &mut Vec<Event>) {
        let mut control = lock(&self.control);
        let control = &mut *control;
        self.ticks.fetch_add(1, Ordering::Relaxed);
        let period_ns = control.next_tick.nanos_since(control.last_tick);
        if now.nanos_since(control.next_tick) > period_ns && !control.idle {
            self.ticks_late.fetch_add(1, Ordering::Relaxed);
        }
        let dt_s = now.nanos_since(control.last_tick) as f64 * 1e-9;
        control.last_tick = control.last_tick.max(now);
        if let Some(config) = lock(&self.next_config).take() {
            self.put_in_force(control, config, now, wakers);
        }
        for (index, slot) in self.sampling.slots.iter().enumerate() {
            if let Some((at, mail)) = slot.take_mail() {
                control.selector.read(index, now, at, mail);
            }
            if self.sampling.has_become_slow(index, now) {
                control
                    .selector
                    .read(index, now, now, Err(SignalFault::Slow));
            }
        }
        let mut idle = true;
        let mut completions_per_s = 0f64;
        let steps = control.thresholds.iter_mut().zip(&mut control.flows);
        for (lane, (threshold, flow)) in self.lanes.iter().zip(steps) {
            let ticked = lane.with_wakers(Some(now), wakers, |engine, _, now| {
                idle &= engine.is_idle();
                let threshold = engine.tick(now);
                completions_per_s = completions_per_s.max(engine.completions_per_s());
                (threshold, engine.flow())
            });
            (*threshold, *flow) = ticked.unwrap_or((Rank::OPEN, LaneFlow::default()));
        }
        control.selector.tick(now, &control.flows, |lane, levels| {
            self.lanes[lane].with_wakers(Some(now), wakers, |engine, _, _| {
                engine.add_levels(levels);
            });
        });
        idle &= control.selector.is_idle();
        let config = &control.config;
        let epoch_ns = config.cohort_epoch_ms.saturating_mul(1_000_000);
        let epoch = self.origin_unix_ns.saturating_add(now.as_nanos()) / epoch_ns;
        for (i, lane) in self.lanes.iter().enumerate() {
            let scope = &config.lanes[i].scope;
            let (threshold, binding) = control.selector.gate(i, &control.thresholds, |other| {
                config.lanes[other].scope == *scope
            });
            if binding != control.bound[i] {
                events.push(Event::bound(lane.name(), binding, threshold));
            }
            control.bound[i] = binding;
            lane.with_wakers(Some(now), wakers, |engine, _, now| {
                engine.set_gate(now, threshold, binding, epoch);
            });
        }
        control.selector.bind(&control.bound, dt_s);
        control.selector.take_changes(|name, change| {
            events.push(Event::signal(name, change));
        });
        control.idle = idle;
        control.next_tick = now.after_nanos(tick_interval_ns(config, completions_per_s, idle));
    }

    fn put_in_force(
        &self,
        control: &mut Control,
        config: Config,
        now: Instant,
        wakers: &mut Vec<Waker>,
    ) {
        let new = Arc::new(config);
        let old = std::mem::replace(&mut control.config, Arc::clone(&new));
        self.tick_max_ms.store(new.tick_max_ms, Ordering::Relaxed);
        if new.mode != old.mode {
            control.mode = new.mode;
        }
        for (i, lane) in self.lanes.iter().enumerate() {
            if new.lanes[i].mode != old.lanes[i].mode {
                control.modes[i] = new.lanes[i].mode;
            }
            lane.with_wakers(Some(now), wakers, |engine, _, now| {
                engine.reconfigure(now, &old, &new);
            });
        }
        self.apply_modes(control, wakers);
        for index in 0..self.sampling.slots.len() {
            if let Some(signal) = control.selector.signal_mut(index) {
                let mode = signal.reconfigure(&old, &new);
                self.sampling.slots[index].set_period_ns(signal.profile().period_ns());
                if let Some(mode) = mode {
                    self.set_signal_mode(control, index, mode);
                }
            }
        }
        *lock(&self.config) = new;
    }
}

/// How long after a tick the next one should come: a quarter of a second while idle, about 200
/// completions, within the configured bounds, under load.
pub(crate) fn tick_interval_ns(config: &Config, completions_per_s: f64, idle: bool) -> u64 {
    if idle {
        return IDLE_TICK_NS;
    }
    let (least, most) = (
        config.tick_min_ms as f64 * 1e6,
        config.tick_max_ms as f64 * 1e6,
    );
    let wanted = TICK_COMPLETIONS / completions_per_s * 1e9;
    // Nothing known yet: 200 / 0 is infinite, and clamps to the longest.
    wanted.clamp(least, most) as u64
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.kick.stop();
        self.sampling.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::config::Settings;
    use crate::priority::Tier;
    use crate::request::Request;

    fn controller() -> (Controller, ManualClock) {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(9));
        let config = Config::new(Settings::one_lane("main", 1)).unwrap();
        let controller = Controller::builder(config)
            .build_manual(clock.shared())
            .unwrap();
        (controller, clock)
    }

    #[test]
    fn a_waiter_ends_the_long_sleep_of_an_idle_controller() {
        let (controller, clock) = controller();
        let shared = &controller.shared;
        shared.drive(clock.now());
        let now = clock.advance(Duration::from_millis(3));
        assert!(!shared.is_due(now));
        let lane = controller.lane("main").unwrap();
        let _held = lane.try_admit(&Request::new(Tier::T1)).unwrap();
        assert!(
            shared.is_due(now),
            "the first load after idling is measured from the start"
        );
        let next = shared.drive(now);
        assert!(
            next.nanos_since(now) <= 20_000_000,
            "and ticks come as under load"
        );
        assert!(!shared.is_due(now));
    }

    #[test]
    fn a_failed_control_step_lets_everybody_in_and_does_not_spin() {
        let (controller, clock) = controller();
        let lane = controller.lane("main").unwrap();
        let _held = lane.try_admit(&Request::new(Tier::T1)).unwrap();
        controller.shared.fail("for this test");
        assert!(lane.try_admit(&Request::new(Tier::T5)).is_ok());
        assert!(controller.snapshot().failed);
        for _ in 0..3 {
            let now = clock.advance(Duration::from_secs(5));
            let next = controller.shared.drive(now);
            assert_eq!(next.nanos_since(now), IDLE_TICK_NS);
        }
    }
}
