//! Overload in virtual time: a seeded workload against a simulated store behind the real engine.
//!
//! A day of traffic takes seconds, and one seed gives one trace, event for event, so that a change
//! of the law can be judged by figures and a failure can be replayed. Events at equal times are
//! taken in this order: completions, ticks (with their expiries), arrivals.
//!
//! ```
//! use std::time::Duration;
//! use cinnamon_core::{Settings, simulation::{Phase, Scenario, Service}};
//!
//! # fn main() -> Result<(), cinnamon_core::ConfigError> {
//! let report = Scenario {
//!     settings: Settings::one_lane("main", 20),
//!     service: Service { parallelism: 20, mean: Duration::from_millis(20) },
//!     phases: vec![Phase::new("calm", 5.0, 0.7), Phase::new("overload", 5.0, 2.0)],
//!     ..Scenario::default()
//! }
//! .run()?;
//! assert!(report.phases[1].goodput > 0.9);
//! # Ok(())
//! # }
//! ```

mod world;

use std::time::Duration;

use crate::config::{Config, ConfigError, Settings, within};
use crate::metrics::LaneSnapshot;
use crate::priority::{TIERS, Tier, mix64};
use world::World;

/// A store with exponential service times.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// Requests it works on at once at full speed; more slow each other down.
    pub parallelism: u32,
    /// Mean service time at full speed.
    pub mean: Duration,
}

/// A stretch of constant load.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Its name in reports.
    pub name: String,
    /// Its length in seconds.
    pub seconds: f64,
    /// Offered load as a multiple of the full capacity, before `low_tiers` is applied.
    pub load: f64,
    /// The store's speed as a share of its full capacity.
    pub capacity: f64,
    /// Multiple of the offers of t3 to t5.
    pub low_tiers: f64,
}

impl Phase {
    /// A phase of `load` times the capacity.
    #[must_use]
    pub fn new(name: &str, seconds: f64, load: f64) -> Self {
        Self {
            name: name.to_owned(),
            seconds,
            load,
            capacity: 1.0,
            low_tiers: 1.0,
        }
    }

    /// The same while the store is slower or faster.
    #[must_use]
    pub const fn capacity(mut self, capacity: f64) -> Self {
        self.capacity = capacity;
        self
    }

    /// The same with this many times the offers of t3 to t5.
    #[must_use]
    pub const fn low_tiers(mut self, low_tiers: f64) -> Self {
        self.low_tiers = low_tiers;
        self
    }
}

/// One lane, one store, a sequence of phases. Poisson arrivals with random keys.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Everything random follows from it.
    pub seed: u64,
    /// The controller's settings; the first lane is used.
    pub settings: Settings,
    /// The store.
    pub service: Service,
    /// What happens, in order.
    pub phases: Vec<Phase>,
    /// Share of offers per tier at `low_tiers` 1.
    pub mix: [f64; TIERS],
    /// An answer later than this after arrival is worthless. Not told to the engine unless
    /// `tell_deadline`.
    pub deadline: Duration,
    /// Whether requests carry the deadline.
    pub tell_deadline: bool,
}

impl Default for Scenario {
    /// 1,000 requests a second on 20 slots, no phases, the mix 2/28/20/20/15/15 %.
    fn default() -> Self {
        Self {
            seed: 1,
            settings: Settings::one_lane("main", 20),
            service: Service {
                parallelism: 20,
                mean: Duration::from_millis(20),
            },
            phases: Vec::new(),
            mix: [0.02, 0.28, 0.2, 0.2, 0.15, 0.15],
            deadline: Duration::from_secs(1),
            tell_deadline: false,
        }
    }
}

/// What became of the offers, credited to the phase in which each arrived.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PhaseReport {
    /// The phase's name.
    pub name: String,
    /// Offers per tier.
    pub offered: [u64; TIERS],
    /// Offers per tier that were answered in time.
    pub good: [u64; TIERS],
    /// Offers answered too late.
    pub late: u64,
    /// Offers refused at the gate.
    pub refused_at_gate: u64,
    /// Offers lost after they had waited.
    pub lost_in_queue: u64,
    /// Offers of the phase's first two seconds.
    pub offered_first_2s: u64,
    /// Of these, those refused or lost.
    pub refused_first_2s: u64,
    /// Answers in time over what the capacity allows, 1 when nothing was offered; noise can carry it
    /// past 1.
    pub goodput: f64,
    /// Mean move of the threshold per tick while engaged, in levels.
    pub threshold_step: f64,
}

impl PhaseReport {
    /// Share of the offers of these tiers that were answered in time; 1 when there were none.
    #[must_use]
    pub fn success(&self, tiers: &[Tier]) -> f64 {
        let sum = |of: &[u64; TIERS]| tiers.iter().map(|tier| of[tier.index()]).sum::<u64>();
        let offered = sum(&self.offered);
        if offered == 0 {
            return 1.0;
        }
        sum(&self.good) as f64 / offered as f64
    }

    /// Offers of all tiers.
    #[must_use]
    pub fn offers(&self) -> u64 {
        self.offered.iter().sum()
    }

    /// Share of the first two seconds' offers that were refused or lost.
    #[must_use]
    pub fn refused_share_first_2s(&self) -> f64 {
        self.refused_first_2s as f64 / self.offered_first_2s.max(1) as f64
    }
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// One per phase.
    pub phases: Vec<PhaseReport>,
    /// The lane at the end.
    pub lane: LaneSnapshot,
    /// A digest of every event in order: equal traces, equal digests.
    pub trace: u64,
}

impl Report {
    /// The phase of this name; the first if there are several.
    #[must_use]
    pub fn phase(&self, name: &str) -> Option<&PhaseReport> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}

impl Scenario {
    /// Runs it to the end of the last phase, and on until everybody who came has been answered.
    ///
    /// # Errors
    ///
    /// When a setting, or a figure of the scenario, is out of bounds.
    pub fn run(&self) -> Result<Report, ConfigError> {
        let config = Config::new(self.settings.clone())?;
        self.check()?;
        Ok(World::new(self, &config).run())
    }

    fn check(&self) -> Result<(), ConfigError> {
        let positive = f64::MIN_POSITIVE;
        within("service.parallelism", self.service.parallelism, 1, u32::MAX)?;
        within("service.mean_s", self.service.mean.as_secs_f64(), 1e-9, 1e6)?;
        for (tier, &share) in self.mix.iter().enumerate() {
            within(&format!("mix[{tier}]"), share, 0.0, 1e9)?;
        }
        within("mix.sum", self.mix.iter().sum(), positive, 1e9)?;
        for (i, phase) in self.phases.iter().enumerate() {
            within(&format!("phases[{i}].seconds"), phase.seconds, 0.0, 1e9)?;
            within(&format!("phases[{i}].load"), phase.load, 0.0, 1e6)?;
            within(&format!("phases[{i}].capacity"), phase.capacity, 1e-6, 1e6)?;
            within(&format!("phases[{i}].low_tiers"), phase.low_tiers, 0.0, 1e6)?;
        }
        Ok(())
    }
}

/// A small seeded generator (SplitMix64), for workloads that must be the same on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that depends on `seed` alone.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(mix64(seed ^ 0x6369_6e6e_616d_6f6e))
    }

    /// 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix64(self.0)
    }

    /// Uniform in the open interval (0, 1).
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Exponential with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(seed: u64) -> Report {
        let scenario = Scenario {
            seed,
            phases: vec![
                Phase::new("calm", 1.0, 0.7),
                Phase::new("overload", 1.0, 3.0),
            ],
            ..Scenario::default()
        };
        scenario.run().unwrap()
    }

    #[test]
    fn one_seed_one_trace() {
        assert_eq!(short(5), short(5));
        assert_ne!(short(5).trace, short(6).trace);
    }

    #[test]
    fn figures_that_cannot_be_are_refused_and_a_phase_may_be_empty() {
        let run = |phase| {
            let phases = vec![phase, Phase::new("after", 1.0, 0.5)];
            Scenario {
                phases,
                ..Scenario::default()
            }
            .run()
        };
        let error = run(Phase::new("stopped", 1.0, 0.5).capacity(0.0)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`phases[0].capacity` is 0 but must be between 0.000001 and 1000000"
        );
        assert!(run(Phase::new("nan", 1.0, f64::NAN)).is_err());
        let report = run(Phase::new("silence", 5.0, 0.0)).unwrap();
        assert_eq!(report.phases[0].offers(), 0);
        let after = report.phases[1].offers();
        assert!((400..600).contains(&after), "{after}");
    }

    #[test]
    fn no_phases_no_events() {
        let report = Scenario::default().run().unwrap();
        assert_eq!((report.trace, report.lane.offered), (0, 0));
    }
}
