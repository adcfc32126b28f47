//! What an embedder gives a controller on its way in: signals, asked once for all they say of themselves, and limiters; both
//! checked.

use std::time::Duration;

use crate::clock::Instant;
use crate::config::{Config, ConfigError, LaneSettings, SignalSettings, check_name, within};
use crate::limiter::Limiter;
use crate::sampler::Slot;
use crate::signal::supervised::{Profile, Supervised};
use crate::signal::{Dynamics, Mode, SIGNALS_MAX, Scope, Signal};

/// Shortest and longest `T`: a microsecond, a day. A delay is no longer than that either.
const TIME_S: (f64, f64) = (1e-6, 86_400.0);
/// Shortest and longest time between two samples, seconds.
const PERIOD_S: (f64, f64) = (1e-3, 3_600.0);

/// What a controller keeps of its signals.
pub(crate) struct Attached {
    pub(crate) supervised: Vec<Supervised>,
    pub(crate) slots: Vec<Slot>,
}

/// Takes the signals in.
pub(crate) fn attach(
    signals: Vec<Box<dyn Signal>>,
    config: &Config,
    now: Instant,
) -> Result<Attached, ConfigError> {
    within("signals.len", signals.len(), 0, SIGNALS_MAX)?;
    let mut attached = Attached {
        supervised: Vec::new(),
        slots: Vec::new(),
    };
    let mut names: Vec<String> = Vec::new();
    for signal in signals {
        let supervised = supervise(&*signal, &names, config)?;
        names.push(supervised.profile().name.clone());
        let slot = Slot::new(signal, supervised.profile().period_ns(), now);
        slot.set_mode(supervised.mode());
        attached.slots.push(slot);
        attached.supervised.push(supervised);
    }
    check_names(config, &names)?;
    Ok(attached)
}

/// The same for signals that live elsewhere.
#[cfg(feature = "test-util")]
pub(crate) fn supervise_all<'a>(
    signals: impl Iterator<Item = &'a dyn Signal>,
    config: &Config,
) -> Result<Vec<Supervised>, ConfigError> {
    let mut names: Vec<String> = Vec::new();
    let mut all = Vec::new();
    for signal in signals {
        let supervised = supervise(signal, &names, config)?;
        names.push(supervised.profile().name.clone());
        all.push(supervised);
    }
    check_names(config, &names)?;
    Ok(all)
}

fn supervise(
    signal: &dyn Signal,
    names: &[String],
    config: &Config,
) -> Result<Supervised, ConfigError> {
    let mut supervised = Supervised::new(Profile::of(signal, names, config)?);
    let name = &supervised.profile().name;
    let settings = config.signals.iter().find(|s| s.name == *name);
    let mode = settings.map_or(Mode::Enforce, |settings| settings.mode);
    supervised.set_mode(mode);
    Ok(supervised)
}

/// Checks that every signal that `config` names is there.
pub(crate) fn check_names(config: &Config, names: &[String]) -> Result<(), ConfigError> {
    for (i, settings) in config.signals.iter().enumerate() {
        if !names.contains(&settings.name) {
            return Err(unknown(
                format!("signals[{i}].name"),
                &settings.name,
                names.iter().cloned(),
            ));
        }
    }
    Ok(())
}

/// The embedder's own limiters, by the index of the lane.
pub(crate) type Limiters = Vec<(usize, Box<dyn Limiter>)>;

/// Checks for which lanes they are.
pub(crate) fn named_limiters(
    limiters: Vec<(String, Box<dyn Limiter>)>,
    config: &Config,
) -> Result<Limiters, ConfigError> {
    let known = |name: &str| config.lanes.iter().position(|lane| lane.name == name);
    let mut named = Limiters::new();
    for (name, limiter) in limiters {
        let wrong = |bound: String| ConfigError::OutOfBounds {
            setting: format!("limiter {:?}", limiter.name()),
            value: format!("for lane {name:?}"),
            bound,
        };
        let Some(lane) = known(&name) else {
            let names: Vec<&str> = config.lanes.iter().map(|l| l.name.as_str()).collect();
            return Err(wrong(format!("for one of the lanes {}", names.join(", "))));
        };
        if named.iter().any(|(other, _)| *other == lane) {
            return Err(wrong("the only one for its lane".to_owned()));
        }
        named.push((lane, limiter));
    }
    Ok(named)
}

fn unknown(setting: String, value: &str, known: impl Iterator<Item = String>) -> ConfigError {
    ConfigError::Unknown {
        setting,
        value: value.to_owned(),
        known: known.collect(),
    }
}

impl Profile {
    fn of(signal: &dyn Signal, names: &[String], config: &Config) -> Result<Self, ConfigError> {
        let name = signal.name().to_owned();
        let path = format!("signal {name:?}");
        check_name(&path, &name)?;
        // In metrics these are causes beside the signals' names.
        if ["nothing", "backlog", "override"].contains(&name.as_str()) {
            return Err(ConfigError::OutOfBounds {
                setting: format!("{path}.name"),
                value: format!("{name:?}"),
                bound: "none of `nothing`, `backlog` and `override`, which mean something else"
                    .to_owned(),
            });
        }
        if names.contains(&name) {
            return Err(ConfigError::Duplicate {
                setting: format!("{path}.name"),
                value: name,
            });
        }
        let dynamics = signal.dynamics();
        let word = match dynamics {
            Dynamics::Integrating { .. } => "target",
            Dynamics::Settling { .. } => "tau",
            Dynamics::Binary { .. } => "hold",
        };
        seconds(&format!("{path}.dynamics.{word}"), dynamics.time(), TIME_S)?;
        let most = Duration::from_secs_f64(TIME_S.1);
        within(
            &format!("{path}.dynamics.delay_s"),
            dynamics.delay().as_secs_f64(),
            0.0,
            most.as_secs_f64(),
        )?;
        seconds(&format!("{path}.period"), signal.period(), PERIOD_S)?;
        let range = signal.range();
        let (least, most) = (*range.start(), *range.end());
        within(&format!("{path}.range.start"), least, f64::MIN, 1.0)?;
        // A range that ends at 1.0 could never engage; a binary detector says exactly that.
        within(&format!("{path}.range.end"), most, 1.0, f64::MAX)?;
        let lanes = mask(&path, &signal.scope(), config)?;
        let period_s = signal.period().as_secs_f64();
        let mut profile = Self {
            name,
            dynamics,
            least,
            most,
            lanes,
            authority: signal.authority(),
            symptom: signal.symptom(),
            remedy: signal.remedy(),
            period_s,
            horizon_s: Self::default_horizon_s(dynamics, period_s),
            said: (signal.authority(), period_s),
        };
        if let Some(settings) = config.signals.iter().find(|s| s.name == profile.name) {
            profile.configure(settings);
        }
        Ok(profile)
    }

    /// What it says of itself, but for what the settings say.
    pub(crate) fn configure(&mut self, settings: &SignalSettings) {
        let (authority, period_s) = self.said;
        self.authority = settings.authority.unwrap_or(authority);
        self.period_s = settings.period_ms.map_or(period_s, |ms| ms as f64 * 1e-3);
        // A reading that is not yet due is not missing.
        let least_s = 2.0 * self.period_s;
        self.horizon_s = settings.horizon_ms.map_or(
            Self::default_horizon_s(self.dynamics, self.period_s),
            |ms| (ms as f64 * 1e-3).max(least_s),
        );
    }

    pub(crate) fn period_ns(&self) -> u64 {
        (self.period_s * 1e9) as u64
    }
}

fn seconds(setting: &str, value: Duration, (least, most): (f64, f64)) -> Result<(), ConfigError> {
    within(&format!("{setting}_s"), value.as_secs_f64(), least, most)
}

/// A bit for each lane of the scope.
fn mask(path: &str, scope: &Scope, config: &Config) -> Result<u64, ConfigError> {
    let of = |is: &dyn Fn(&LaneSettings) -> bool| {
        let lanes = config.lanes.iter().enumerate();
        lanes
            .filter(|(_, lane)| is(lane))
            .fold(0, |mask, (i, _)| mask | 1 << i)
    };
    let setting = || format!("{path}.scope");
    let lanes = config.lanes.iter();
    let (mask, error) = match scope {
        Scope::All => return Ok(of(&|_| true)),
        Scope::Scope(name) => (
            of(&|lane| lane.scope == *name),
            unknown(setting(), name, lanes.map(|lane| lane.scope.clone())),
        ),
        Scope::Lane(name) => (
            of(&|lane| lane.name == *name),
            unknown(setting(), name, lanes.map(|lane| lane.name.clone())),
        ),
    };
    if mask == 0 { Err(error) } else { Ok(mask) }
}
