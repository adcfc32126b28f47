//! What a plugin author implements: [`Signal`], and what it says, [`Reading`].
//!
//! A signal measures one symptom of overload and reports it as a *pressure*: 1.0 is "at its target",
//! whatever the unit underneath. It never sheds by itself. The controller turns each pressure into a
//! budget of admitted work, takes the least of all budgets, and says with every refusal whose it was.

pub(crate) mod binary;
pub(crate) mod law;
pub(crate) mod precise;
pub(crate) mod response;
pub(crate) mod selector;
pub(crate) mod supervised;
mod view;

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Instant;
use crate::priority::Priority;
use crate::request::Tenant;

pub use view::{Finished, LaneView, View};

/// Greatest pressure believed unless a signal says otherwise: a thousand times its target.
pub const DEFAULT_PRESSURE_MAX: f64 = 1e3;
/// Between two samples unless a signal says otherwise: a tenth of the shortest time in which a storage
/// engine's symptoms move (a second), and 0.01 % of a core for a sample of ten microseconds.
pub const DEFAULT_PERIOD: Duration = Duration::from_millis(100);
/// Most signals of a controller.
pub const SIGNALS_MAX: usize = 64;

/// One symptom of overload, measured. Implement it for what only your system knows.
///
/// It is sampled on a thread of its own, beside the control thread and off the path of any request;
/// a sample that blocks or panics delays nobody, and after a while is no longer waited for. All but
/// [`sample`](Signal::sample) are asked once, when the controller is built.
///
/// ```
/// use cinnamon_core::{Dynamics, Instant, Reading, Signal, View};
/// use std::time::Duration;
///
/// /// Seconds of work in a queue that is not ours, against half a second.
/// struct CompactionQueue;
///
/// impl Signal for CompactionQueue {
///     fn name(&self) -> &str {
///         "compaction-queue"
///     }
///
///     fn dynamics(&self) -> Dynamics {
///         Dynamics::integrating(Duration::from_millis(500))
///     }
///
///     fn sample(&mut self, _now: Instant, _view: &View) -> Reading {
///         # let queue_length_s = || Some(0.3);
///         match queue_length_s() {
///             Some(seconds) => Reading::pressure(seconds / 0.5),
///             None => Reading::unavailable("the compactor did not answer"),
///         }
///     }
/// }
/// ```
pub trait Signal: Send {
    /// Its name in reasons, snapshots and metrics; one of a kind in a controller, 1..=64 bytes.
    fn name(&self) -> &str;

    /// How its pressure answers to the load that is let in, and how late.
    fn dynamics(&self) -> Dynamics;

    /// Pressures that can be. One outside is taken for a fault of the gauge, not for an emergency: the
    /// reading counts as unavailable. Default 0 to [`DEFAULT_PRESSURE_MAX`].
    fn range(&self) -> RangeInclusive<f64> {
        0.0..=DEFAULT_PRESSURE_MAX
    }

    /// The lanes whose load it measures. Default: all.
    fn scope(&self) -> Scope {
        Scope::All
    }

    /// How much it may take by itself. Default: [`Authority::Inferring`].
    fn authority(&self) -> Authority {
        Authority::Inferring
    }

    /// The symptom that it is, if that is one of those that confirm signals which infer: it does not confirm
    /// itself. Default: none of them.
    fn symptom(&self) -> Symptom {
        Symptom::Other
    }

    /// What is to be done about its pressure. Default [`Remedy::PreciseFirst`].
    fn remedy(&self) -> Remedy {
        Remedy::PreciseFirst
    }

    /// Time between two samples. Default [`DEFAULT_PERIOD`].
    fn period(&self) -> Duration {
        DEFAULT_PERIOD
    }

    /// Takes one sample. `now` is the controller's clock, `view` how its lanes stand. When unsure,
    /// return [`Reading::unavailable`]: what is not known never sheds.
    fn sample(&mut self, now: Instant, view: &View) -> Reading;
}

/// How a pressure answers to the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Dynamics {
    /// It adds up what is let in beyond what can be carried off: lag, debt, a queue.
    Integrating {
        /// The value of the gauge at pressure 1.0, in seconds of work: how long the excess of twice the
        /// sustainable load takes to get there from nothing. When unsure, say a longer time: too short a
        /// one is the costly error.
        target: Duration,
        /// How late a reading is.
        delay: Duration,
    },
    /// It follows the load and settles: memory, utilisation.
    Settling {
        /// The time constant: 63 % of a change shows after it.
        tau: Duration,
        /// How late a reading is.
        delay: Duration,
    },
    /// It fires (1.0 or more) or it does not: a heartbeat, a stall.
    Binary {
        /// How long to wait for the effect of a change before the next one.
        hold: Duration,
    },
}

impl Dynamics {
    /// [`Dynamics::Integrating`] without delay.
    #[must_use]
    pub const fn integrating(target: Duration) -> Self {
        Self::Integrating {
            target,
            delay: Duration::ZERO,
        }
    }

    /// [`Dynamics::Settling`] without delay.
    #[must_use]
    pub const fn settling(tau: Duration) -> Self {
        Self::Settling {
            tau,
            delay: Duration::ZERO,
        }
    }

    /// [`Dynamics::Binary`].
    #[must_use]
    pub const fn binary(hold: Duration) -> Self {
        Self::Binary { hold }
    }

    /// The same with readings that are late by `delay`. A binary detector has none to declare: its
    /// `hold` covers it.
    #[must_use]
    pub const fn delayed(self, delay: Duration) -> Self {
        match self {
            Self::Integrating { target, .. } => Self::Integrating { target, delay },
            Self::Settling { tau, .. } => Self::Settling { tau, delay },
            Self::Binary { hold } => Self::Binary { hold },
        }
    }

    /// `T`: the target, the time constant or the hold.
    #[must_use]
    pub const fn time(self) -> Duration {
        match self {
            Self::Integrating { target, .. } => target,
            Self::Settling { tau, .. } => tau,
            Self::Binary { hold } => hold,
        }
    }

    /// How late readings are.
    #[must_use]
    pub const fn delay(self) -> Duration {
        match self {
            Self::Integrating { delay, .. } | Self::Settling { delay, .. } => delay,
            Self::Binary { .. } => Duration::ZERO,
        }
    }
}

/// What is done about a pressure of 1.0 or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Remedy {
    /// Broad: its budget moves the threshold, whoever the culprits are.
    Broad,
    /// Precise: the culprits that it names are throttled, and nobody else ever. What it names nobody for is only shown.
    Precise,
    /// The culprits first, if it names any; the threshold when the pressure is still there three settling times
    /// later, or when it names nobody.
    #[default]
    PreciseFirst,
}

/// How much of the capacity a signal may take by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Authority {
    /// It infers overload from a symptom that has other causes too (heartbeat, stall, errors): half of
    /// the capacity, and more only while the lanes' own waits, service times or errors confirm it.
    #[default]
    Inferring,
    /// It measures the resource itself (lag, memory, write debt): all but the floor. A healthy leader
    /// with a lagging follower has nothing that could confirm it.
    Measuring,
}

/// What confirms signals that infer, for signals that are made of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Symptom {
    /// None of these.
    #[default]
    Other,
    /// The time that requests wait in the lanes' queues.
    Waits,
    /// How long requests run.
    ServiceTimes,
    /// Requests that end as [`Outcome::Overloaded`](crate::Outcome::Overloaded).
    Errors,
}

/// The lanes a signal bears on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Scope {
    /// Every lane.
    #[default]
    All,
    /// The lanes of this scope, by [`LaneSettings::scope`](crate::LaneSettings::scope). One threshold
    /// moves for all of them, over all that is offered to them.
    Scope(String),
    /// One lane.
    Lane(String),
}

impl Scope {
    /// Whether this lane is one of them.
    #[must_use]
    pub fn covers(&self, lane: &LaneView) -> bool {
        match self {
            Self::All => true,
            Self::Scope(name) => lane.scope == *name,
            Self::Lane(name) => lane.name == *name,
        }
    }
}

/// One answer of a signal.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a reading says nothing until it is returned"]
pub struct Reading {
    pub(crate) pressure: Result<f64, Cow<'static, str>>,
    pub(crate) culprits: Vec<Culprit>,
    pub(crate) cut: Option<Priority>,
    pub(crate) taken_at: Option<Instant>,
    pub(crate) note: Cow<'static, str>,
}

impl Reading {
    /// This pressure: 0 nothing, 1.0 at target.
    pub const fn pressure(pressure: f64) -> Self {
        Self {
            pressure: Ok(pressure),
            culprits: Vec::new(),
            cut: None,
            taken_at: None,
            note: Cow::Borrowed(""),
        }
    }

    /// Nothing is known, and why. Its grip on the gate, if it has one, fades; it never sheds.
    pub fn unavailable(why: impl Into<Cow<'static, str>>) -> Self {
        Self {
            pressure: Err(why.into()),
            culprits: Vec::new(),
            cut: None,
            taken_at: None,
            note: Cow::Borrowed(""),
        }
    }

    /// Who causes it, worst first, as far as the signal can tell. From pressure 1.0 on they are throttled, unless its
    /// [`remedy`](Signal::remedy) is broad; shown beside the reason in any case.
    pub fn culprits(mut self, culprits: Vec<Culprit>) -> Self {
        self.culprits = culprits;
        self
    }

    /// For cascades: whatever the pressure, nothing from this priority on should be let in.
    pub const fn cut(mut self, from: Priority) -> Self {
        self.cut = Some(from);
        self
    }

    /// When the value was true, if that is not now: a value that was pushed or cached. The same time
    /// again is the same reading, and teaches nothing.
    pub const fn taken_at(mut self, at: Instant) -> Self {
        self.taken_at = Some(at);
        self
    }

    /// What an operator should know of it: which of several gauges is meant, what is missing. Shown in
    /// [`SignalSnapshot::note`].
    pub fn note(mut self, note: impl Into<Cow<'static, str>>) -> Self {
        self.note = note.into();
        self
    }

    /// What a signal made of this one changes: the pressure, if there is one. All else of the reading stays.
    pub fn map_pressure(mut self, change: impl FnOnce(f64) -> f64) -> Self {
        self.pressure = self.pressure.map(change);
        self
    }

    /// The same without its [`cut`](Self::cut).
    pub const fn without_cut(mut self) -> Self {
        self.cut = None;
        self
    }

    /// Why nothing is known, if nothing is.
    #[must_use]
    pub fn why_unavailable(&self) -> Option<&str> {
        self.pressure.as_ref().err().map(|why| &**why)
    }

    /// Who was said to cause it, worst first.
    #[must_use]
    pub fn get_culprits(&self) -> &[Culprit] {
        &self.culprits
    }

    /// From which priority on nothing should be let in.
    #[must_use]
    pub const fn get_cut(&self) -> Option<Priority> {
        self.cut
    }

    /// When it was true, if that was said.
    #[must_use]
    pub const fn get_taken_at(&self) -> Option<Instant> {
        self.taken_at
    }

    /// What an operator should know of it.
    #[must_use]
    pub fn get_note(&self) -> &str {
        &self.note
    }

    /// The pressure, if there is one.
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        self.pressure.as_ref().ok().copied()
    }
}

/// Who causes a pressure, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Culprit {
    /// Who.
    pub who: Who,
    /// Its share of the load that the signal sees, 0..=1.
    pub share: f64,
}

/// A tenant or a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Who {
    /// All of a tenant's work.
    Tenant(Tenant),
    /// All work on the key with this hash, as given to [`Request::key`](crate::Request::key).
    Key(u64),
}

/// What decisions count for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Nothing is decided: everything is let in at once, and nothing is learned. A signal that is off
    /// is not sampled.
    Off,
    /// Every verdict is computed and counted, and everything is let in without added wait. A signal
    /// that is only monitored has a pressure and a budget, but no say. On a live store the verdicts are an
    /// estimate, for what would have been refused runs. Who still waits in the shadow when this ends is
    /// counted as `cancel`.
    Monitor,
    /// Decisions count.
    #[default]
    Enforce,
}

impl Mode {
    /// The word used in settings, logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Monitor => "monitor",
            Self::Enforce => "enforce",
        }
    }
}

/// How a signal stands with its supervisor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SignalState {
    /// No reading yet.
    #[default]
    Waiting,
    /// Good readings, and no grip on the gate.
    Calm,
    /// Good readings, and a budget.
    Engaged,
    /// No good reading: its grip fades.
    Fading,
    /// No good reading for so long that it has no say.
    Ignored,
    /// Switched off.
    Off,
}

/// What is wrong with a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SignalFault {
    /// It said so itself.
    Unavailable,
    /// Its pressure was not a number, or outside the range that it declared.
    OutOfRange,
    /// Its last good reading is too old.
    Stale,
    /// A sample of it has not come back.
    Slow,
    /// Its sample panicked.
    Panicked,
}

impl SignalFault {
    pub(crate) const COUNT: usize = 5;

    /// The word used in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::OutOfRange => "out-of-range",
            Self::Stale => "stale",
            Self::Slow => "slow",
            Self::Panicked => "panicked",
        }
    }
}

/// One signal at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SignalSnapshot {
    /// Its name.
    pub name: String,
    /// The lanes that it bears on, by name.
    pub lanes: Vec<String>,
    /// Whether its budget counts.
    pub mode: Mode,
    /// How it stands with its supervisor.
    pub state: SignalState,
    /// What is wrong with it now.
    pub fault: Option<SignalFault>,
    /// What it said, or what is known, of that fault.
    pub fault_detail: String,
    /// What it said beside its last good pressure.
    pub note: String,
    /// Its last good pressure.
    pub pressure: Option<f64>,
    /// Age of that, seconds.
    pub age_s: f64,
    /// Admitted cost per second that it allows its lanes; `None` while it has no grip.
    pub budget_per_s: Option<f64>,
    /// The threshold that comes to, on the scale 0 to 768 (open).
    pub threshold_levels: f64,
    /// Share of the capacity that it may take now, 0..=1.
    pub authority: f64,
    /// The load was cut and its pressure did not move: it is not about this load.
    pub unresponsive: bool,
    /// Whether it holds the gate of some lane now.
    pub binding: bool,
    /// For how long it has ever held one, seconds.
    pub bound_s: f64,
    /// Cost refused so far while it held a gate, work units.
    pub shed_cost: u64,
    /// Good readings so far.
    pub readings: u64,
    /// Faults so far: unavailable, out of range, stale, slow, panicked.
    pub faults: [u64; SignalFault::COUNT],
    /// Whom it named last.
    pub culprits: Vec<Culprit>,
}
