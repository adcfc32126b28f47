//! Controllers in the states that are measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cinnamon_core::config::DEFAULT_TICK_MAX_MS;
use cinnamon_core::{
    Action, BuildError, Builder, Clock, Completion, Config, ConfigError, Controller, Culprit,
    Dynamics, Instant, Lane, LaneSettings, ManualClock, Override, Priority, Reading, Remedy,
    Request, Settings, Signal, Target, Tier, UnknownLane, View, Who,
};

/// Slots of a lane that is never full here.
pub const SLOTS: u32 = 64;
/// Waiters in a sweep: as many as a lane of 50 slots lets wait by default.
pub const WAITERS: u32 = 1_000;
/// Signals of a controller whose ticks are measured, as the design has it.
pub const SIGNALS: usize = 8;
/// Virtual time between two ticks: the longest under load.
pub const TICK: Duration = Duration::from_millis(DEFAULT_TICK_MAX_MS);
/// The gate of a fixture stays shut for longer than any run.
const SHUT_FOR: Duration = Duration::from_secs(24 * 3_600);
/// The least important priority there is.
const LAST_PRIORITY: u16 = 6 * 128 - 1;
/// What the lane of the fixtures is called.
const LANE: &str = "main";

/// A fixture could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings are out of bounds.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The controller could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// It has no such lane.
    #[error(transparent)]
    Lane(#[from] UnknownLane),
}

/// A controller and its lane. The controller is to be kept: without it nobody ticks.
pub type Fixture = (Controller, Lane);

/// A controller as an embedder builds it, with its control thread, and one lane of `slots`.
///
/// # Errors
///
/// When it cannot be built.
pub fn running(slots: u32) -> Result<Fixture, Error> {
    let config = Config::new(Settings::one_lane(LANE, slots))?;
    let controller = Controller::builder(config).build()?;
    let lane = controller.lane(LANE)?;
    Ok((controller, lane))
}

/// The same without a thread, on a clock that goes on by the same step at each reading: what is done is the same
/// in every run, to the instruction.
///
/// # Errors
///
/// When it cannot be built.
pub fn steady(slots: u32) -> Result<Fixture, Error> {
    let config = Config::new(Settings::one_lane(LANE, slots))?;
    let clock: Arc<dyn Clock> = Arc::new(SteadyClock::default());
    let controller = Controller::builder(config).build_manual(clock)?;
    let lane = controller.lane(LANE)?;
    Ok((controller, lane))
}

/// Shuts the gate to t4 and t5.
///
/// By an override, which holds without a load that would have to be kept up. The next tick makes it the lane's gate,
/// like a threshold of the law, and an offer passes through the same code.
///
/// # Errors
///
/// Never, in practice: the override is within its bounds.
pub fn shut(controller: &Controller) -> Result<(), Error> {
    let shed = Override::new(Target::Controller, Action::Shed(Tier::T4), SHUT_FOR);
    controller.set_override(shed)?;
    controller.tick(controller.clock().now());
    Ok(())
}

/// What such a gate refuses, its rank given: nothing is hashed.
pub fn refused() -> Request {
    Priority::from_number(LAST_PRIORITY).map_or(Request::new(Tier::T5), Request::at)
}

/// A controller with a queue that holds [`WAITERS`], and one slot.
///
/// # Errors
///
/// When it cannot be built.
pub fn queue() -> Result<Fixture, Error> {
    let mut lane = LaneSettings::new(LANE, 1);
    lane.queue_len_max = Some(WAITERS);
    let config = Config::new(Settings::default().lane(lane))?;
    let clock: Arc<dyn Clock> = Arc::new(SteadyClock::default());
    let controller = Controller::builder(config).build_manual(clock)?;
    let lane = controller.lane(LANE)?;
    Ok((controller, lane))
}

/// Two lanes and `signals` signals that are sampled at every tick, on a clock that the caller moves.
///
/// # Errors
///
/// When it cannot be built.
pub fn store(signals: usize, clock: &ManualClock) -> Result<(Controller, [Lane; 2]), Error> {
    let settings = Settings::default()
        .lane(LaneSettings::new("read", SLOTS))
        .lane(LaneSettings::new("write", SLOTS));
    let builder = with_gauges(Controller::builder(Config::new(settings)?), signals, TICK);
    let controller = builder.build_manual(clock.shared())?;
    let lanes = [controller.lane("read")?, controller.lane("write")?];
    Ok((controller, lanes))
}

/// Adds `number` gauges at half their target, sampled every `period`.
pub fn with_gauges(builder: Builder, number: usize, period: Duration) -> Builder {
    (0..number).fold(builder, |builder, n| {
        let name = format!("gauge-{n}");
        builder.signal(Half { name, period })
    })
}

/// A gauge at half its target.
struct Half {
    name: String,
    period: Duration,
}

impl Signal for Half {
    fn name(&self) -> &str {
        &self.name
    }

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(Duration::from_secs(5))
    }

    fn period(&self) -> Duration {
        self.period
    }

    fn sample(&mut self, _now: Instant, _view: &View) -> Reading {
        Reading::pressure(0.5)
    }
}

/// Keys that a signal may have throttled at once.
pub const CULPRITS: u64 = 16;

/// A controller whose signal names so many keys, 0 and up, and the lane in which these are throttled. Nobody ticks any more, and its
/// clock stands still: they stay throttled.
///
/// # Errors
///
/// When it cannot be built.
pub fn throttling(culprits: u64) -> Result<Fixture, Error> {
    let clock = ManualClock::new();
    let config = Config::new(Settings::one_lane(LANE, SLOTS))?;
    let builder = Controller::builder(config).signal(Accuser { culprits });
    let controller = builder.build_manual(clock.shared())?;
    let lane = controller.lane(LANE)?;
    // Ten seconds, a thousand requests a second, all from those.
    for step in 0..10_000u64 {
        let key = step % culprits.max(1);
        let permit = lane.try_admit(&Request::new(Tier::T3).key(key));
        let now = clock.advance(Duration::from_millis(1));
        if let Ok(permit) = permit {
            permit.finish(Completion::success());
        }
        if step % 20 == 0 {
            controller.tick(now);
        }
    }
    Ok((controller, lane))
}

/// A gauge far over its target that knows who it is.
struct Accuser {
    culprits: u64,
}

impl Signal for Accuser {
    fn name(&self) -> &'static str {
        "accuser"
    }

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(Duration::from_secs(1))
    }

    fn remedy(&self) -> Remedy {
        Remedy::Precise
    }

    fn sample(&mut self, _now: Instant, _view: &View) -> Reading {
        let share = 1.0 / self.culprits.max(1) as f64;
        let named = (0..self.culprits).map(|key| Culprit {
            who: Who::Key(key),
            share,
        });
        Reading::pressure(2.0).culprits(named.collect())
    }
}

/// A clock that goes on by 50 ns at each reading, some part of what an admission takes. (A clock that stands
/// still would leave out the accounting for the time between two calls.)
#[derive(Debug, Default)]
pub struct SteadyClock(AtomicU64);

impl SteadyClock {
    const STEP_NS: u64 = 50;
}

impl Clock for SteadyClock {
    fn now(&self) -> Instant {
        // Not `fetch_add`: it would be counted among the controller's own. Readings lost to another thread are no
        // harm, and there is none.
        let now = self.0.load(Ordering::Relaxed) + Self::STEP_NS;
        self.0.store(now, Ordering::Relaxed);
        Instant::from_nanos(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnamon_core::{Binding, Reason};

    #[test]
    fn who_is_named_is_throttled_and_nobody_else() {
        for culprits in [0, CULPRITS] {
            let (controller, lane) = throttling(culprits).unwrap();
            let held = controller.snapshot().throttles.len() as u64;
            assert_eq!(held, culprits);
            let other = Request::new(Tier::T1).key(CULPRITS + 1);
            assert!(lane.try_admit(&other).is_ok());
        }
    }

    #[test]
    fn the_gate_is_shut_to_what_it_is_to_refuse_and_to_nothing_else() {
        let (controller, lane) = steady(SLOTS).unwrap();
        shut(&controller).unwrap();
        let rejected = lane.try_admit(&refused()).unwrap_err();
        assert_eq!(rejected.reason(), Reason::Shed);
        assert_eq!(rejected.binding(), Binding::Override);
        assert!(lane.try_admit(&Request::new(Tier::T3)).is_ok());
        // It is the gate itself, not only the cap of the override.
        let threshold = lane.snapshot().threshold_levels;
        assert!((511.0..=513.0).contains(&threshold), "{threshold}");
    }

    #[test]
    fn the_store_samples_its_signals_at_every_tick() {
        let clock = ManualClock::new();
        let (controller, _lanes) = store(SIGNALS, &clock).unwrap();
        controller.tick(clock.advance(TICK));
        let read = |snapshot: &cinnamon_core::Snapshot| {
            let known = |s: &&cinnamon_core::SignalSnapshot| s.pressure.is_some();
            snapshot.signals.iter().filter(known).count()
        };
        assert_eq!(read(&controller.snapshot()), SIGNALS);
    }
}
