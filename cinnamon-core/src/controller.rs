//! The handle to everything, [`Controller`], and its [`Builder`].

use std::fmt;
use std::time::Duration;

use crate::admission::Admission;
use crate::attach::check_names;
use crate::clock::{Clock, Instant, MonotonicClock};
use crate::config::{Config, ConfigError, check_change};
use crate::control::Shared;
use crate::driver;
use crate::explain::Decision;
use crate::health::Health;
use crate::lane::{Lane, LaneCore, wake_all};
use crate::limiter::Limiter;
use crate::metrics::{Snapshot, TenantSnapshot};
use crate::observer::Observer;
use crate::overrides::{Override, OverrideSource, Target};
use crate::request::Tenant;
use crate::sampler;
use crate::sentinel;
use crate::signal::{Mode, Signal};
use crate::switch::KillSwitch;
use crate::sync::{Arc, Ordering, lock, wait_while};
use crate::tenants::own_rule_of;
use crate::verdict::Binding;

/// Admission control for one store: lanes, scopes and the loop that moves their gates. A cheap
/// handle; clones share everything, and so do the [`Lane`]s it gives out.
///
/// The control thread runs as long as any handle, lane or owned permit lives.
#[derive(Clone)]
pub struct Controller {
    pub(crate) shared: Arc<Shared>,
}

/// Builds a [`Controller`] from a checked [`Config`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    pub(crate) config: Config,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) signals: Vec<Box<dyn Signal>>,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
    pub(crate) limiters: Vec<(String, Box<dyn Limiter>)>,
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
    #[error("a thread of the controller's could not be started")]
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
            limiters: Vec::new(),
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

    /// The tenant of this name: the same number each time, and with it the rule of
    /// [`Settings::tenants`](crate::Settings::tenants) that matches the name. Ask once for each connection, not for each
    /// request: it hashes a string. Of names, [`TENANT_NAMES_MAX`](crate::TENANT_NAMES_MAX) are kept; further ones are one
    /// tenant for each rule.
    #[must_use]
    pub fn tenant(&self, name: &str) -> Tenant {
        if let Some(tenant) = self.shared.tenants.known(name) {
            return tenant;
        }
        // No other rules come into force while it gets the one that holds now.
        let mut wakers = Vec::new();
        let control = lock(&self.shared.control);
        let rules = &control.config.tenants;
        let tenant = self.shared.tenants.tenant(name, rules);
        if let Some(rule) = own_rule_of(name, rules) {
            let now = self.shared.read_clock();
            for lane in &self.shared.lanes {
                lane.with_wakers(now, &mut wakers, |engine, _, _| {
                    engine.set_tenant_cards(&[(tenant, rule as u16)]);
                });
            }
        }
        drop(control);
        wake_all(wakers);
        tenant
    }

    /// Forgets the name of a tenant that is gone. What it has running or waiting stays counted, and its number is not
    /// given to another.
    pub fn forget_tenant(&self, tenant: Tenant) {
        let mut wakers = Vec::new();
        let control = lock(&self.shared.control);
        self.shared.tenants.forget(tenant);
        for lane in &self.shared.lanes {
            lane.with_wakers(None, &mut wakers, |engine, _, _| {
                engine.drop_tenant_card(tenant);
            });
        }
        drop(control);
        wake_all(wakers);
    }

    /// What each tenant claimed of each lane, and what became of it; in no order. Kept from when there are rules for
    /// tenants; one that changes nothing, for `*`, is enough.
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantSnapshot> {
        self.shared.tenant_snapshots()
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
        self.shared.snapshot()
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
        self.shared.apply_modes(&mut control, &mut wakers);
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

    /// Forces something upon the controller for a time: in force when this returns, over by itself. It takes the
    /// place of an earlier one of the same target and kind that was set by a call; of those of different sources the
    /// newest holds, and the others come back when it is over. It stands in snapshots, metrics and the log until it
    /// ends. Of a tenant it bears on offers from now on, not on who waits already.
    ///
    /// # Errors
    ///
    /// When no lane or signal has the target's name, the action is none for such a target, the time is out of
    /// bounds, or there are [`OVERRIDES_MAX`](crate::OVERRIDES_MAX) of tenants; then nothing changes.
    pub fn set_override(&self, what: Override) -> Result<(), ConfigError> {
        self.shared.set_override(what, OverrideSource::Call, 0)
    }

    /// Ends all overrides of `target`, whoever set them; how many there were. Those of the override file are
    /// back when it is written again, with other text.
    pub fn clear_overrides(&self, target: &Target) -> usize {
        self.shared
            .end_overrides(|active| active.what.target == *target)
    }

    /// A switch that puts `what` in force when it is thrown, even from a signal handler. Hold it: it works as long
    /// as it lives.
    ///
    /// # Errors
    ///
    /// As [`Controller::set_override`].
    pub fn kill_switch(&self, what: Override) -> Result<KillSwitch, ConfigError> {
        self.shared.find(&what.target)?;
        let switch = self.shared.switches.add(what)?;
        // The control thread may be in the long sleep of an idle controller.
        if let Some(now) = self.shared.read_clock() {
            self.shared.kick.no_later_than(now, Duration::ZERO);
        }
        Ok(switch)
    }

    /// What the last [`DECISIONS_KEPT`](crate::DECISIONS_KEPT) ticks decided and from what, oldest first; for
    /// whoever asks afterwards why somebody was refused. Each is a line of JSON once serialised.
    #[must_use]
    pub fn decisions(&self) -> Vec<Decision> {
        lock(&self.shared.control).decisions.all()
    }

    /// Whether protected tiers are served, as of the last tick.
    #[must_use]
    pub fn health(&self) -> Health {
        lock(&self.shared.control).nurse.health()
    }

    /// Says whether a canary worked: a request of the embedder's own, through its whole stack, every few seconds.
    /// While it does not the node is saturated, whatever the lanes look like.
    pub fn report_canary(&self, works: bool) {
        lock(&self.shared.control).nurse.canary(works);
    }

    /// What `binding` names, in words: `signal follower-lag`, `backlog of lane write`, `nothing`.
    #[must_use]
    pub fn binding_name(&self, binding: Binding) -> String {
        self.shared.binding_name(binding)
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
        drop(wait_while(&self.shared.freed, guard, timeout, |()| {
            busy() != (0, 0)
        }));
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

    /// Lets `limiter` find the slots of this lane, in place of the rule in its settings, whose bounds hold; those of
    /// a fixed limit are 1 and [`DEFAULT_FOUND_LIMIT_MAX`](crate::DEFAULT_FOUND_LIMIT_MAX). A later configuration
    /// with another [`Limit`](crate::Limit) for the lane takes its place.
    pub fn limiter(mut self, lane: &str, limiter: impl Limiter + 'static) -> Self {
        self.limiters.push((lane.to_owned(), Box::new(limiter)));
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
    /// When a signal is not what it must be (its name, its times, its range, its scope), a limiter is for no lane,
    /// or a thread cannot be started.
    pub fn build(mut self) -> Result<Controller, BuildError> {
        let clock = self.clock.take();
        let clock = clock.unwrap_or_else(|| MonotonicClock::new().shared());
        let shared = Shared::new(self, clock, false)?;
        driver::start(&shared)?;
        sentinel::start(&shared)?;
        sampler::start(&shared)?;
        Ok(Controller { shared })
    }

    /// Builds a controller that starts nothing: time is what `clock` says, and
    /// [`Controller::tick`] drives it.
    ///
    /// # Errors
    ///
    /// When a signal is not what it must be, or a limiter is for no lane.
    pub fn build_manual(self, clock: Arc<dyn Clock>) -> Result<Controller, BuildError> {
        let shared = Shared::new(self, clock, true)?;
        Ok(Controller { shared })
    }
}
