//! The controller: its lanes, its scopes, and the step that moves their gates.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::time::Duration;

use crate::clock::{Clock, Instant, MonotonicClock, read};
use crate::config::Config;
use crate::driver::{self, Kick};
use crate::engine::Engine;
use crate::lane::{Lane, LaneCore, wake_all};
use crate::metrics::Snapshot;
use crate::priority::Rank;
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
    config: Config,
    lanes: Box<[LaneCore]>,
    /// Serialises ticks. Lock order: this, then one lane's.
    control: Mutex<Control>,
    ticks: AtomicU64,
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
    /// The thresholds of the last tick, one per lane; reused.
    thresholds: Vec<Rank>,
    next_tick: Instant,
    /// The last tick found nothing to do, and the next is far away.
    idle: bool,
}

/// Builds a [`Controller`] from a checked [`Config`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    config: Config,
    clock: Option<Arc<dyn Clock>>,
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

/// The control thread could not be started.
#[derive(Debug, thiserror::Error)]
#[error("the control thread could not be started")]
pub struct BuildError {
    #[from]
    source: std::io::Error,
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
    /// with [`Builder::build_manual`] you do. Steps closer than a millisecond apart, or back in
    /// time, do no harm.
    ///
    /// Who is woken by it is woken before it returns, on this thread, with no lock held.
    pub fn tick(&self, now: Instant) {
        self.shared.guarded_tick(now);
    }

    /// The controller at this moment. Each lane is consistent in itself.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            lanes: self.shared.lanes.iter().map(LaneCore::snapshot).collect(),
            ticks: self.shared.ticks.load(Ordering::Relaxed),
            failed: self.shared.failed.load(Ordering::Acquire)
                || self.shared.lanes.iter().any(LaneCore::failed),
            closed: self.shared.closed.load(Ordering::Acquire),
        }
    }

    /// The configuration it was built with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The clock that deadlines are compared with.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// Switches decisions off, or on again. While off every offer that is not closed is admitted at
    /// once without a slot, and whoever waited is let in.
    pub fn set_off(&self, off: bool) {
        self.each_lane(|engine, now| engine.set_off(now, off));
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

    fn each_lane(&self, mut act: impl FnMut(&mut Engine, Instant)) {
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

impl Builder {
    /// Uses this clock instead of the machine's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Builds the controller and starts its control thread.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started.
    pub fn build(self) -> Result<Controller, BuildError> {
        let clock = self.clock.unwrap_or_else(|| MonotonicClock::new().shared());
        let shared = Shared::new(self.config, clock);
        driver::start(&shared)?;
        Ok(Controller { shared })
    }

    /// Builds a controller that starts nothing: time is what `clock` says, and
    /// [`Controller::tick`] drives it.
    #[must_use]
    pub fn build_manual(self, clock: Arc<dyn Clock>) -> Controller {
        Controller {
            shared: Shared::new(self.config, clock),
        }
    }
}

impl Shared {
    fn new(config: Config, clock: Arc<dyn Clock>) -> Arc<Self> {
        let now = read(&*clock).unwrap_or_default();
        let origin = catch_unwind(AssertUnwindSafe(|| clock.origin_unix_nanos()));
        let lane = |i: usize| {
            let engine = Engine::new(&config, i, now);
            LaneCore::new(&config.lanes[i].name, Arc::clone(&clock), engine)
        };
        let lanes: Box<[LaneCore]> = (0..config.lanes.len()).map(lane).collect();
        Arc::new(Self {
            clock,
            origin_unix_ns: origin.unwrap_or(0),
            control: Mutex::new(Control {
                thresholds: vec![Rank::OPEN; lanes.len()],
                next_tick: now,
                idle: true,
            }),
            config,
            lanes,
            ticks: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            drain_lock: Mutex::new(()),
            freed: Condvar::new(),
            kick: Arc::new(Kick::new()),
        })
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
        self.kick
            .no_later_than(soon, Duration::from_millis(self.config.tick_max_ms));
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
                lane.with(None, |engine, _, now| engine.set_off(now, true));
            }
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let (next_tick, idle) = {
            let control = lock(&self.control);
            (control.next_tick, control.idle)
        };
        let longest_ns = IDLE_TICK_NS.max(self.config.tick_max_ms * 1_000_000);
        // No tick is planned further ahead than that: the clock was set back.
        let set_back = next_tick.nanos_since(now) > longest_ns;
        let busy = |lane: &LaneCore| {
            lane.with(Some(now), |engine, _, _| !engine.is_idle())
                .unwrap_or(false)
        };
        next_tick <= now || set_back || (idle && self.lanes.iter().any(busy))
    }

    /// A tick that cannot take the caller down: should it panic, every lane admits everything.
    fn guarded_tick(&self, now: Instant) {
        if self.failed.load(Ordering::Acquire) {
            return;
        }
        let mut wakers = Vec::new();
        let ticked = catch_unwind(AssertUnwindSafe(|| self.tick(now, &mut wakers)));
        wake_all(wakers);
        if ticked.is_err() {
            self.fail("the control step panicked");
        }
    }

    fn tick(&self, now: Instant, wakers: &mut Vec<Waker>) {
        let mut control = lock(&self.control);
        self.ticks.fetch_add(1, Ordering::Relaxed);
        let mut idle = true;
        let mut completions_per_s = 0f64;
        for (lane, threshold) in self.lanes.iter().zip(&mut control.thresholds) {
            let ticked = lane.with_wakers(Some(now), wakers, |engine, _, now| {
                idle &= engine.is_idle();
                let threshold = engine.tick(now);
                completions_per_s = completions_per_s.max(engine.completions_per_s());
                threshold
            });
            *threshold = ticked.unwrap_or(Rank::OPEN);
        }
        let epoch_ns = self.config.cohort_epoch_ms.saturating_mul(1_000_000);
        let epoch = self.origin_unix_ns.saturating_add(now.as_nanos()) / epoch_ns;
        for (i, lane) in self.lanes.iter().enumerate() {
            let (threshold, binding) = self.scope_gate(i, &control.thresholds);
            lane.with_wakers(Some(now), wakers, |engine, _, now| {
                engine.set_gate(now, threshold, binding, epoch);
            });
        }
        control.idle = idle;
        control.next_tick =
            now.after_nanos(tick_interval_ns(&self.config, completions_per_s, idle));
    }

    /// The lowest threshold that a lane of this lane's scope needs, and whose it is.
    fn scope_gate(&self, lane: usize, thresholds: &[Rank]) -> (Rank, Binding) {
        let scope = &self.config.lanes[lane].scope;
        let in_scope = (0..thresholds.len()).filter(|&i| self.config.lanes[i].scope == *scope);
        let binding = in_scope
            .min_by_key(|&i| (thresholds[i], i != lane))
            .unwrap_or(lane);
        (
            thresholds[binding],
            Binding::Backlog {
                lane: binding as u8,
            },
        )
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
        let controller = Controller::builder(config).build_manual(clock.shared());
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
