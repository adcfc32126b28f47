//! What all handles of a controller share, and the control step: measure, let the signals speak, move the
//! gates.

mod overriding;
mod rest;
mod show;

use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::time::Duration;

use crate::admission::Admission;
use crate::attach::{Attached, attach, named_limiters};
use crate::clock::{Clock, Instant, read};
use crate::config::{Config, ConfigError};
use crate::controller::Builder;
use crate::driver::Kick;
use crate::event::{self, Event, Journal, Names};
use crate::explain::{Decisions, LaneDecision};
use crate::export;
use crate::health::{Nurse, Refusals};
use crate::lane::{LaneCore, wake_all};
use crate::observer::Observers;
use crate::overrides::{Active, Overrides, Target};
use crate::priority::Rank;
use crate::sampler::Sampling;
use crate::signal::selector::{LaneFlow, Selector};
use crate::signal::supervised::Supervised;
use crate::signal::{Mode, SignalFault};
use crate::switch::Switches;
use crate::sync::{Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering, lock};
use crate::tenants;
use crate::verdict::Binding;

pub(crate) use rest::REST_NS;
use rest::Rest;

/// A tick should see about this many completions: fewer are noise, more are late.
const TICK_COMPLETIONS: f64 = 200.0;
/// Between ticks while nothing has to be decided. When nobody asks anything either, see [`rest`].
pub(crate) const IDLE_TICK_NS: u64 = 250_000_000;
/// Switches are looked at this often; a signal handler cannot wake anybody. What is thrown is in force well
/// within a tenth of a second. (50 wake-ups a second, only while somebody holds a switch.)
const SWITCH_PERIOD: Duration = Duration::from_millis(20);
/// Metrics are emitted at most so often: scrapers come every few seconds, and a snapshot costs some tens of
/// microseconds.
const EMIT_NS: u64 = 1_000_000_000;

/// What all handles share. Who clones and drops handles writes to the counts before it: they have a line of their own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    /// Read once: a clock has one origin.
    pub(crate) origin_unix_ns: u64,
    /// In force.
    pub(crate) config: Mutex<Arc<Config>>,
    /// To be in force from the next tick on.
    pub(crate) next_config: Mutex<Option<Config>>,
    /// As in the configuration, for the path of a waiter.
    pub(crate) tick_max_ms: AtomicU64,
    pub(crate) lanes: Box<[LaneCore]>,
    pub(crate) sampling: Sampling,
    pub(crate) observers: Observers,
    /// Serialises ticks. Lock order: this, then one lane's.
    pub(crate) control: Mutex<Control>,
    pub(crate) ticks: AtomicU64,
    pub(crate) ticks_late: AtomicU64,
    /// When metrics were last emitted, ns.
    pub(crate) emitted_ns: AtomicU64,
    /// What is kept from one emission to the next.
    pub(crate) emission: Mutex<export::Emission>,
    /// The control step panicked, or the clock is dead; every lane was switched off.
    pub(crate) failed: AtomicBool,
    pub(crate) closed: AtomicBool,
    /// Somebody waits in `drain` for `freed`.
    pub(crate) draining: AtomicBool,
    pub(crate) drain_lock: Mutex<()>,
    pub(crate) freed: Condvar,
    pub(crate) kick: Arc<Kick>,
    /// Nobody has asked anything for a while, and the control thread rests until somebody does.
    pub(crate) rests: AtomicBool,
    pub(crate) switches: Switches,
    /// Of the thread that watches the override file.
    pub(crate) sentinel: Arc<Kick>,
    /// Tenants that were given a number for their name.
    pub(crate) tenants: tenants::Names,
}

#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) config: Arc<Config>,
    pub(crate) mode: Mode,
    /// The lanes' own modes.
    pub(crate) modes: Vec<Mode>,
    /// What comes of these, of the controller's and of overrides.
    modes_in_force: Vec<Mode>,
    /// The signals' own modes.
    pub(crate) signal_modes: Vec<Mode>,
    /// What is forced upon all of it for a time …
    pub(crate) overrides: Overrides,
    /// … of which these are over and not yet logged, …
    pub(crate) ended: Vec<Active>,
    /// … the first rank that no request of each lane may have, …
    pub(crate) caps: Vec<Rank>,
    /// … and what is wrong with the file of them.
    pub(crate) override_file_error: Option<String>,
    pub(crate) selector: Selector,
    pub(crate) journal: Journal,
    pub(crate) decisions: Decisions,
    pub(crate) nurse: Nurse,
    /// What each lane had counted at the last tick, and of all of it what was refused in truth.
    refusals_seen: Vec<Refusals>,
    refusals: Refusals,
    /// Of the last tick, one per lane; reused.
    pub(crate) thresholds: Vec<Rank>,
    pub(crate) flows: Vec<LaneFlow>,
    pub(crate) bound: Vec<Binding>,
    pub(crate) last_tick: Instant,
    pub(crate) next_tick: Instant,
    /// The last tick found nothing to do, and the next is far away.
    pub(crate) idle: bool,
    rest: Rest,
}

impl Shared {
    pub(crate) fn new(
        builder: Builder,
        clock: Arc<dyn Clock>,
        manual: bool,
    ) -> Result<Arc<Self>, ConfigError> {
        let now = read(&*clock).unwrap_or_default();
        let origin = catch_unwind(AssertUnwindSafe(|| clock.origin_unix_nanos()));
        let config = Arc::new(builder.config);
        let Attached { supervised, slots } = attach(builder.signals, &config, now)?;
        let mut limiters = named_limiters(builder.limiters, &config)?;
        let tenants = tenants::Names::default();
        let cards = tenants.cards(&config.tenants);
        let lane = |i: usize| {
            let mut admission = Admission::new(&config, i, now);
            admission.set_tenant_cards(&cards);
            admission.set_mode(now, config.mode.min(config.lanes[i].mode));
            match limiters.iter().position(|(of, _)| *of == i) {
                Some(own) => admission.set_limiter(limiters.swap_remove(own).1),
                // Real nodes must not look for their limits in step.
                None if !manual => admission.jitter_limiter(RandomState::new().hash_one(i)),
                None => {}
            }
            LaneCore::new(&config.lanes[i].name, Arc::clone(&clock), admission)
        };
        let lanes: Box<[LaneCore]> = (0..config.lanes.len()).map(lane).collect();
        Ok(Arc::new(Self {
            clock,
            origin_unix_ns: origin.unwrap_or(0),
            control: Mutex::new(Control {
                mode: config.mode,
                modes: config.lanes.iter().map(|lane| lane.mode).collect(),
                modes_in_force: {
                    let lanes = config.lanes.iter();
                    lanes.map(|lane| lane.mode.min(config.mode)).collect()
                },
                signal_modes: supervised.iter().map(Supervised::mode).collect(),
                overrides: Overrides::new(now),
                ended: Vec::new(),
                caps: vec![Rank::OPEN; lanes.len()],
                override_file_error: None,
                decisions: Decisions::default(),
                nurse: Nurse::default(),
                refusals_seen: vec![Refusals::default(); lanes.len()],
                refusals: Refusals::default(),
                journal: Journal::new(lanes.len(), supervised.len()),
                selector: Selector::new(supervised, lanes.len()),
                thresholds: vec![Rank::OPEN; lanes.len()],
                flows: vec![LaneFlow::default(); lanes.len()],
                bound: vec![Binding::Nothing; lanes.len()],
                last_tick: now,
                next_tick: now,
                idle: true,
                rest: Rest::default(),
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
            emitted_ns: AtomicU64::new(0),
            emission: Mutex::default(),
            failed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            drain_lock: Mutex::new(()),
            freed: Condvar::new(),
            kick: Arc::new(Kick::new()),
            rests: AtomicBool::new(false),
            switches: Switches::default(),
            sentinel: Arc::new(Kick::new()),
            tenants,
        }))
    }

    pub(crate) const fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    #[inline]
    pub(crate) const fn observers(&self) -> &Observers {
        &self.observers
    }

    pub(crate) fn set_lane_mode(&self, lane: usize, mode: Mode) {
        let mut wakers = Vec::new();
        let mut control = lock(&self.control);
        control.modes[lane] = mode;
        self.apply_modes(&mut control, &mut wakers);
        drop(control);
        wake_all(wakers);
        tracing::info!(
            lane = self.lanes[lane].name(),
            mode = mode.as_str(),
            "a lane's mode was changed"
        );
    }

    pub(crate) fn apply_modes(&self, control: &mut Control, wakers: &mut Vec<Waker>) {
        for lane in 0..self.lanes.len() {
            control.modes_in_force[lane] = self.mode_of(control, lane);
        }
        if self.failed.load(Ordering::Acquire) {
            return;
        }
        let now = self.read_clock();
        for (lane, &mode) in self.lanes.iter().zip(&control.modes_in_force) {
            lane.with_counts(now, wakers, |engine, _, now| engine.set_mode(now, mode));
        }
    }

    /// The mode of this lane: the lesser of its own and the controller's, each as an override may have it.
    fn mode_of(&self, control: &Control, lane: usize) -> Mode {
        let own = control.modes[lane];
        let forced = if control.overrides.is_empty() {
            None
        } else {
            let target = Target::Lane(self.lanes[lane].name().to_owned());
            control.overrides.mode(&target)
        };
        forced.unwrap_or(own).min(control.mode_in_force())
    }

    pub(crate) fn set_signal_mode(&self, control: &mut Control, index: usize, mode: Mode) {
        control.signal_modes[index] = mode;
        self.apply_signal_mode(control, index);
    }

    #[inline]
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
        self.poll_switches();
        self.end_rest(now);
        if self.is_due(now) {
            self.guarded_tick(now);
            self.begin_rest(now);
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
        if self.has_switches() {
            next = next.min(now.after(SWITCH_PERIOD));
        }
        for lane in &self.lanes {
            let wakeup = lane.with(Some(now), |engine, _, _| engine.next_wakeup());
            next = wakeup.flatten().map_or(next, |at| next.min(at));
        }
        next
    }

    /// Gives up on decisions, loudly: every lane admits everything, and whoever waits is let in.
    pub(crate) fn fail(&self, why: &'static str) {
        // Whoever is about to set modes is done before, or sees that it has failed.
        let control = lock(&self.control);
        let mut wakers = Vec::new();
        let is_first = !self.failed.swap(true, Ordering::AcqRel);
        for lane in self.lanes.iter().filter(|_| is_first) {
            lane.with_wakers(None, &mut wakers, |engine, _, now| {
                engine.set_mode(now, Mode::Off);
            });
        }
        drop(control);
        wake_all(wakers);
        if is_first {
            tracing::error!(why, "admission decisions are switched off");
        }
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let (next_tick, idle) = {
            let control = lock(&self.control);
            (control.next_tick, control.idle)
        };
        let longest_ns = REST_NS.max(self.tick_max_ms.load(Ordering::Relaxed) * 1_000_000);
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
    pub(crate) fn guarded_tick(&self, now: Instant) {
        if self.failed.load(Ordering::Acquire) {
            // That it has failed must be seen, and what was forced upon it ends all the same.
            self.expire_after_failure(now);
            self.emit_if_due(now);
            return;
        }
        self.sampling.sample_if_manual(now, || self.view());
        self.poll_switches();
        let mut wakers = Vec::new();
        let mut events = Vec::new();
        let ticked = catch_unwind(AssertUnwindSafe(|| {
            self.tick(now, &mut wakers, &mut events);
        }));
        wake_all(wakers);
        if ticked.is_err() {
            self.fail("the control step panicked");
        }
        self.lanes.iter().for_each(LaneCore::log_failure);
        self.log_ended();
        if !events.is_empty() {
            let signals = lock(&self.control).selector.names();
            let names = Names {
                lane: &|lane| self.lanes[lane].name(),
                signals: &signals,
                binding: &|binding| self.name_of(binding, &signals),
            };
            event::log(&events, &names);
        }
        self.emit_if_due(now);
    }

    fn emit_if_due(&self, now: Instant) {
        let emitted = Instant::from_nanos(self.emitted_ns.load(Ordering::Relaxed));
        let set_back = emitted.nanos_since(now) > EMIT_NS;
        if set_back || now.nanos_since(emitted) >= self.emit_period_ns() {
            self.emitted_ns.store(now.as_nanos(), Ordering::Relaxed);
            self.emit();
        }
    }

    /// Emits metrics, whatever has failed.
    pub(crate) fn emit(&self) {
        // A recorder is the embedder's code.
        let emitted = catch_unwind(AssertUnwindSafe(|| {
            let snapshot = self.snapshot();
            let mut kept = std::mem::take(&mut *lock(&self.emission));
            export::emit(&snapshot, &mut kept);
            *lock(&self.emission) = kept;
        }));
        if emitted.is_err() {
            tracing::error!("the recorder of metrics panicked");
        }
    }

    fn tick(&self, now: Instant, wakers: &mut Vec<Waker>, events: &mut Vec<(Event, u32)>) {
        let mut control = lock(&self.control);
        let control = &mut *control;
        self.ticks.fetch_add(1, Ordering::Relaxed);
        let period_ns = control.next_tick.nanos_since(control.last_tick);
        if now.nanos_since(control.next_tick) > period_ns && !control.idle {
            self.ticks_late.fetch_add(1, Ordering::Relaxed);
        }
        let dt_s = now.nanos_since(control.last_tick) as f64 * 1e-9;
        control.last_tick = now;
        if let Some(config) = lock(&self.next_config).take() {
            self.put_in_force(control, config, now, wakers);
        }
        self.expire_overrides(control, now, wakers);
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
        let decision = control.decisions.next();
        decision.tick = self.ticks.load(Ordering::Relaxed);
        decision.at_s = now.as_nanos() as f64 * 1e-9;
        decision.lanes.clear();
        let mut idle = true;
        let mut completions_per_s = 0f64;
        let steps = control.thresholds.iter_mut().zip(&mut control.flows);
        let steps = steps.zip(&mut control.refusals_seen);
        let refusals = &mut control.refusals;
        for (index, (lane, ((threshold, flow), seen))) in self.lanes.iter().zip(steps).enumerate() {
            let ticked = lane.with_counts(Some(now), wakers, |engine, _, now| {
                idle &= engine.is_idle();
                let threshold = engine.tick(now);
                completions_per_s = completions_per_s.max(engine.completions_per_s());
                seen.take(engine.verdicts(), engine.mode() == Mode::Enforce, refusals);
                if let Some(moved) = engine.take_limit_moved() {
                    control.journal.note(Event::Limit { lane: index, moved });
                }
                (threshold, engine.flow(), engine.decision())
            });
            // Of a lane that has failed nothing is known, and nothing holds it back.
            let open = (Rank::OPEN, LaneFlow::default(), LaneDecision::default());
            let of_lane;
            (*threshold, *flow, of_lane) = ticked.unwrap_or(open);
            decision.lanes.push(of_lane);
        }
        control.selector.tick(dt_s, &control.flows, |lane, levels| {
            self.lanes[lane].with_wakers(Some(now), wakers, |engine, _, _| {
                engine.add_levels(levels);
            });
        });
        idle &= control.selector.is_idle();
        if let Some(throttles) = control.selector.take_throttles() {
            for lane in &self.lanes {
                lane.with_counts(Some(now), wakers, |engine, _, _| {
                    engine.set_throttles(&throttles);
                });
            }
            let worst = throttles
                .first()
                .map(|throttle| (throttle.who(), throttle.per_s()));
            let count = throttles.len();
            control.journal.note(Event::Throttled { count, worst });
        }
        let config = &control.config;
        let epoch_ns = config.cohort_epoch_ms.saturating_mul(1_000_000);
        let epoch = self.origin_unix_ns.saturating_add(now.as_nanos()) / epoch_ns;
        for (i, lane) in self.lanes.iter().enumerate() {
            let mode = |lane: usize| control.modes_in_force[lane];
            let in_scope = |other: usize| {
                // What a lane that only monitors would need, nobody else is to suffer for.
                let counts = mode(other) == Mode::Enforce || mode(i) != Mode::Enforce;
                counts && config.lanes[other].scope == config.lanes[i].scope
            };
            let mut gate = control.selector.gate(i, &control.thresholds, in_scope);
            if control.caps[i] < gate.0 {
                gate = (control.caps[i], Binding::Override);
            }
            let (threshold, binding) = gate;
            if binding != control.bound[i] {
                control.journal.note(Event::Bound {
                    lane: i,
                    binding,
                    threshold,
                    flow: control.flows[i],
                });
            }
            control.bound[i] = binding;
            if let Some(of) = decision.lanes.get_mut(i) {
                of.threshold_levels = threshold.levels();
                of.binding = binding;
            }
            lane.with_wakers(Some(now), wakers, |engine, _, now| {
                engine.set_gate(now, threshold, binding, epoch);
            });
        }
        control.selector.bind(&control.bound, dt_s);
        control.selector.decide(&mut decision.signals);
        let was = control.nurse.health().state;
        control.nurse.tick(
            dt_s,
            control.refusals,
            &control.flows,
            control.selector.pressures(),
        );
        if control.nurse.health().state != was {
            let health = control.nurse.health();
            control.journal.note(Event::Health { health });
        }
        control.selector.take_changes(|signal, change| {
            control.journal.note(Event::Signal { signal, change });
        });
        control.journal.take_due(now, events);
        control.idle = idle;
        let next = now.after_nanos(tick_interval_ns(config, completions_per_s, idle));
        let ends = control.overrides.next_end().unwrap_or(next);
        control.next_tick = next.min(ends);
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
        let cards = self.tenants.cards(&new.tenants);
        for (i, lane) in self.lanes.iter().enumerate() {
            if new.lanes[i].mode != old.lanes[i].mode {
                control.modes[i] = new.lanes[i].mode;
            }
            lane.with_counts(Some(now), wakers, |engine, _, now| {
                engine.reconfigure(now, &old, &new);
                engine.set_tenant_cards(&cards);
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
        self.sentinel.stop();
    }
}

#[cfg(test)]
mod tests;
