//! What signals measure, simulated: a follower that lags, memory that fills, a detector that fires, a gauge
//! that stands still. A plant is fed by what begins to run, and is read late and with the troubles that real
//! gauges have.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Instant;
use crate::config::{ConfigError, within};
use crate::signal::{Authority, Dynamics, Reading, Scope, Signal, SignalFault, View};

/// One plant and the signal that reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plant {
    /// The signal's name.
    pub name: String,
    /// What it is.
    pub kind: PlantKind,
    /// What it can carry from when on: (seconds, requests per second as a share of the first lane's full
    /// capacity), in order of time.
    #[serde(default)]
    pub carries: Vec<(f64, f64)>,
    /// Its time: the lag at pressure 1.0, or the time constant, or the hold, seconds.
    pub time_s: f64,
    /// That time as the signal declares it, if it is wrong.
    #[serde(default)]
    pub declared_s: Option<f64>,
    /// How late a reading is, seconds.
    #[serde(default)]
    pub delay_s: f64,
    /// Time between two samples, seconds.
    #[serde(default = "default_period_s")]
    pub period_s: f64,
    /// Whether the signal measures or infers.
    #[serde(default)]
    pub authority: Authority,
    /// The lane that it bears on, by index; all if absent.
    #[serde(default)]
    pub lane: Option<usize>,
    /// What goes wrong with the gauge.
    #[serde(default)]
    pub troubles: Vec<Trouble>,
}

/// What a plant is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlantKind {
    /// A follower that applies what it can carry; its lag is its backlog over that.
    Follower,
    /// A level that follows the admitted rate with its time constant; pressure 1.0 is what it can carry.
    Level,
    /// A detector that fires while more than it can carry was admitted over the last fifth of its hold: the ready-made ones
    /// watch a quarter of theirs.
    Detector,
    /// A gauge with a mind of its own: its pressure is what it "carries".
    Gauge,
}

/// What goes wrong with a gauge, and when.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trouble {
    /// From when, seconds.
    pub from_s: f64,
    /// Until when, seconds.
    pub to_s: f64,
    /// What.
    pub what: TroubleKind,
}

/// What can go wrong with a gauge.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TroubleKind {
    /// It says that it does not know.
    Lost,
    /// It says something that is no number.
    NotANumber,
    /// It says this, whatever is true.
    Says(f64),
    /// Its sample panics.
    Panics,
    /// Its sample does not come back before the trouble is over.
    Hangs,
}

const fn default_period_s() -> f64 {
    0.1
}

/// Memory of a detector, as a share of its hold.
const DETECTOR_SHARE: f64 = 0.2;
/// Pressures are kept so many to a delay.
const MARKS_PER_DELAY: f64 = 50.0;

impl Plant {
    pub(super) fn check(&self, path: &str) -> Result<(), ConfigError> {
        within(&format!("{path}.time_s"), self.time_s, 1e-3, 1e5)?;
        within(&format!("{path}.delay_s"), self.delay_s, 0.0, 1e5)?;
        within(&format!("{path}.period_s"), self.period_s, 1e-3, 1e5)?;
        if let Some(declared_s) = self.declared_s {
            within(&format!("{path}.declared_s"), declared_s, 1e-3, 1e5)?;
        }
        for (i, &(at_s, carries)) in self.carries.iter().enumerate() {
            within(&format!("{path}.carries[{i}].0"), at_s, 0.0, 1e9)?;
            within(&format!("{path}.carries[{i}].1"), carries, 1e-9, 1e12)?;
        }
        if let Some(lane) = self.lane {
            within(&format!("{path}.lane"), lane, 0, 1)?;
        }
        within(&format!("{path}.carries.len"), self.carries.len(), 1, 1_000)
    }

    fn carries_at(&self, at_s: f64) -> f64 {
        let after = self.carries.partition_point(|&(from_s, _)| from_s <= at_s);
        self.carries[after.saturating_sub(1)].1
    }

    fn trouble_at(&self, at_s: f64) -> Option<Trouble> {
        let in_force = |trouble: &&Trouble| (trouble.from_s..trouble.to_s).contains(&at_s);
        self.troubles.iter().find(in_force).copied()
    }
}

/// A plant at work.
#[derive(Debug)]
struct State {
    plant: Plant,
    /// Requests per second for "1" in `carries`.
    unit: f64,
    at: Instant,
    /// Requests that wait to be applied, or requests per second.
    level: f64,
    history: VecDeque<(Instant, f64)>,
}

impl State {
    fn advance(&mut self, now: Instant) {
        let dt_s = now.nanos_since(self.at) as f64 * 1e-9;
        let carries = self.plant.carries_at(seconds(self.at)) * self.unit;
        match self.plant.kind {
            PlantKind::Follower => self.level = (self.level - carries * dt_s).max(0.0),
            PlantKind::Level => self.level *= (-dt_s / self.plant.time_s).exp(),
            PlantKind::Detector => self.level *= (-dt_s / self.detector_s()).exp(),
            PlantKind::Gauge => {}
        }
        self.at = self.at.max(now);
        let spacing_s = self.plant.delay_s / MARKS_PER_DELAY;
        let early = self
            .history
            .back()
            .is_some_and(|(last, _)| (now.nanos_since(*last) as f64) < spacing_s * 1e9);
        if !early {
            let pressure = self.pressure();
            self.history.push_back((now, pressure));
            while self.history.len() > 2 * MARKS_PER_DELAY as usize + 2 {
                self.history.pop_front();
            }
        }
    }

    fn admit(&mut self, now: Instant) {
        self.advance(now);
        match self.plant.kind {
            PlantKind::Follower => self.level += 1.0,
            PlantKind::Level => self.level += 1.0 / self.plant.time_s,
            PlantKind::Detector => self.level += 1.0 / self.detector_s(),
            PlantKind::Gauge => {}
        }
    }

    fn pressure(&self) -> f64 {
        let carries = self.plant.carries_at(seconds(self.at));
        let share = self.level / (carries * self.unit);
        match self.plant.kind {
            PlantKind::Follower => share / self.plant.time_s,
            PlantKind::Level => share,
            PlantKind::Detector => f64::from(u8::from(share > 1.0)),
            PlantKind::Gauge => carries,
        }
    }

    fn detector_s(&self) -> f64 {
        DETECTOR_SHARE * self.plant.time_s
    }

    fn late_pressure(&self, now: Instant) -> f64 {
        let delay_ns = (self.plant.delay_s * 1e9) as u64;
        let known = |(at, _): &&(Instant, f64)| now.nanos_since(*at) >= delay_ns;
        self.history
            .iter()
            .rev()
            .find(known)
            .map_or(0.0, |&(_, pressure)| pressure)
    }
}

/// A handle to a plant at work; clones are one plant.
#[derive(Clone, Debug)]
pub(super) struct Works(Arc<Mutex<State>>);

impl Works {
    pub(super) fn new(plant: &Plant, unit: f64) -> Self {
        Self(Arc::new(Mutex::new(State {
            plant: plant.clone(),
            unit,
            at: Instant::ZERO,
            level: 0.0,
            history: VecDeque::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn admit(&self, now: Instant, lane: usize) {
        let mut state = self.state();
        if state.plant.lane.is_none_or(|only| only == lane) {
            state.admit(now);
        }
    }

    /// The pressure as it is now.
    pub(super) fn pressure(&self, now: Instant) -> f64 {
        let mut state = self.state();
        state.advance(now);
        state.pressure()
    }
}

/// The signal that reads a simulated plant.
#[derive(Debug)]
pub struct PlantSignal {
    name: String,
    works: Works,
    lanes: Vec<String>,
}

impl PlantSignal {
    pub(super) fn new(plant: &Plant, works: &Works) -> Self {
        Self {
            name: plant.name.clone(),
            works: works.clone(),
            lanes: ["read", "write"].map(str::to_owned).to_vec(),
        }
    }

    /// What a sampler that may be kept waiting gets to hear: what, and when.
    pub(super) fn ask(&mut self, now: Instant) -> (Instant, Result<Reading, SignalFault>) {
        let trouble = {
            let state = self.works.state();
            state.plant.trouble_at(seconds(now))
        };
        let reading = self.sample(now, &View::default());
        match trouble.map(|trouble| (trouble.what, trouble.to_s)) {
            Some((TroubleKind::Panics, _)) => (now, Err(SignalFault::Panicked)),
            Some((TroubleKind::Hangs, to_s)) => (
                Instant::ZERO.after(Duration::from_secs_f64(to_s)),
                Ok(reading),
            ),
            _ => (now, Ok(reading)),
        }
    }
}

impl Signal for PlantSignal {
    fn name(&self) -> &str {
        &self.name
    }

    fn dynamics(&self) -> Dynamics {
        let state = self.works.state();
        let plant = &state.plant;
        let time = Duration::from_secs_f64(plant.declared_s.unwrap_or(plant.time_s));
        let delay = Duration::from_secs_f64(plant.delay_s);
        match plant.kind {
            PlantKind::Follower => Dynamics::integrating(time).delayed(delay),
            PlantKind::Level | PlantKind::Gauge => Dynamics::settling(time).delayed(delay),
            PlantKind::Detector => Dynamics::binary(time),
        }
    }

    fn scope(&self) -> Scope {
        match self.works.state().plant.lane {
            Some(lane) => Scope::Lane(self.lanes[lane].clone()),
            None => Scope::All,
        }
    }

    fn authority(&self) -> Authority {
        self.works.state().plant.authority
    }

    fn period(&self) -> Duration {
        Duration::from_secs_f64(self.works.state().plant.period_s)
    }

    fn sample(&mut self, now: Instant, _view: &View) -> Reading {
        let mut state = self.works.state();
        state.advance(now);
        match state.plant.trouble_at(seconds(now)).map(|t| t.what) {
            Some(TroubleKind::Lost) => Reading::unavailable("the gauge is lost"),
            Some(TroubleKind::NotANumber) => Reading::pressure(f64::NAN),
            Some(TroubleKind::Says(pressure)) => Reading::pressure(pressure),
            _ => Reading::pressure(state.late_pressure(now)),
        }
    }
}

fn seconds(at: Instant) -> f64 {
    at.as_nanos() as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plant(kind: PlantKind) -> Plant {
        Plant {
            name: "plant".to_owned(),
            kind,
            carries: vec![(0.0, 0.5), (10.0, 1.0)],
            time_s: 2.0,
            declared_s: None,
            delay_s: 0.5,
            period_s: 0.1,
            authority: Authority::Measuring,
            lane: Some(0),
            troubles: Vec::new(),
        }
    }

    fn at(s: f64) -> Instant {
        Instant::ZERO.after(Duration::from_secs_f64(s))
    }

    #[test]
    fn a_follower_lags_by_its_backlog_over_its_speed() {
        let works = Works::new(&plant(PlantKind::Follower), 1_000.0);
        // 1,000/s for four seconds, 500/s applied: 2,000 behind, four seconds of work, twice the target.
        (0..4_000).for_each(|i| works.admit(at(f64::from(i) * 1e-3), 0));
        (0..1_000).for_each(|_| works.admit(at(3.999), 1));
        assert!((works.pressure(at(4.0)) - 2.0).abs() < 0.01);
        let mut signal = PlantSignal::new(&plant(PlantKind::Follower), &works);
        let late = signal.sample(at(4.0), &View::default()).value().unwrap();
        assert!((late - 1.75).abs() < 0.02, "half a second ago: {late}");
        assert!(works.pressure(at(8.01)) < 0.01);
    }

    #[test]
    fn a_level_settles_and_a_detector_fires_and_falls_silent() {
        let level = Works::new(&plant(PlantKind::Level), 1_000.0);
        let detector = Works::new(&plant(PlantKind::Detector), 1_000.0);
        for i in 0..8_000 {
            level.admit(at(f64::from(i) * 1e-3), 0);
            detector.admit(at(f64::from(i) * 1e-3), 0);
        }
        let settled = level.pressure(at(8.0));
        assert!((settled - 2.0).abs() < 0.06, "{settled}");
        assert_eq!(detector.pressure(at(8.0)), 1.0);
        assert_eq!(detector.pressure(at(8.5)), 0.0);
    }

    #[test]
    fn troubles_are_what_they_say() {
        let mut troubled = plant(PlantKind::Gauge);
        let trouble = |from_s: f64, what| Trouble {
            from_s,
            to_s: from_s + 1.0,
            what,
        };
        troubled.troubles = vec![
            trouble(1.0, TroubleKind::Lost),
            trouble(2.0, TroubleKind::NotANumber),
            trouble(3.0, TroubleKind::Says(1e9)),
            trouble(4.0, TroubleKind::Panics),
            trouble(5.0, TroubleKind::Hangs),
        ];
        troubled.delay_s = 0.0;
        let works = Works::new(&troubled, 1_000.0);
        let mut signal = PlantSignal::new(&troubled, &works);
        let mut ask = |s: f64| {
            let (answered_at, answer) = signal.ask(at(s));
            (seconds(answered_at), answer)
        };
        assert_eq!(ask(0.5).1.unwrap().value(), Some(0.5));
        assert_eq!(ask(1.5).1.unwrap().value(), None);
        assert!(ask(2.5).1.unwrap().value().unwrap().is_nan());
        assert_eq!(ask(3.5).1.unwrap().value(), Some(1e9));
        assert_eq!(ask(4.5).1, Err(SignalFault::Panicked));
        assert_eq!(ask(5.5).0, 6.0);
    }
}
