//! `lab signals`: each ready-made signal alone.
//!
//! What a signal says of itself (its dynamics, delay, period and authority) is given to a plant of that kind, which for a
//! while carries less than is asked for. Is the pressure held at its target, is as much let in as that allows, and is
//! nothing refused before, and nothing after?

use std::process::ExitCode;
use std::time::Duration;

use cinnamon_core::simulation::{
    End, Fate, Phase, Plant, PlantKind, Scenario, VirtualController, Witness,
};
use cinnamon_core::{Class, ConfigError, Dynamics, Instant, Remedy, Settings, Signal};
use cinnamon_signals::{
    AcceptQueue, Cpu, Errors, FollowerLag, Heartbeat, InflightBudget, LaneLatency, LatencySlo,
    Memory, Pressure, QueueWait, SettingError, Slo, StallTime, StealTime, WriteBytes,
};
use clap::Args;

/// Offered, as a share of the capacity …
const LOAD: f64 = 0.8;
/// … and carried while there is too little room: within what a signal that infers may take by itself.
const CARRIED: f64 = 0.6;
/// Calm before, seconds.
const CALM_S: f64 = 20.0;
/// For so long there is too little room, in the signal's own times; the last third is judged.
const TROUBLE_TIMES: f64 = 30.0;
const TROUBLE_MIN_S: f64 = 60.0;
/// Nothing is refused later than this after there is room again, or two of the signal's own times.
const RELEASE_S: f64 = 2.0;
/// A detector's law is out with a wrong detector within five holds, and that is how long it takes to settle; twice as much is
/// what it has to find its way back.
const RELEASE_BINARY_TIMES: f64 = 10.0;
/// How far the pressure may be from its target.
const OFF_TARGET: f64 = 0.1;
/// And how much of what is carried must be let in.
const SERVED: f64 = 0.9;

/// How often.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Seeds 1, 2, … so many; the worst counts.
    #[arg(long, default_value_t = 3)]
    pub seeds: u64,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EachError {
    /// A signal cannot be built here.
    #[error("a signal cannot be built: {0}")]
    Signal(#[from] SettingError),
    /// A figure of the simulation is out of bounds.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// What came of one signal: the worst seed of each figure.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its `T`, and how late it reads, seconds.
    pub time_s: f64,
    /// See [`Row::time_s`].
    pub delay_s: f64,
    /// Whether it only fires or does not.
    pub binary: bool,
    /// Mean pressure once it has settled; farthest from 1.
    pub pressure: f64,
    /// Let in, over what is carried; least.
    pub served: f64,
    /// Share refused in calm, and after two of its times; most.
    pub refused_calm: f64,
    /// See [`Row::refused_calm`].
    pub refused_after: f64,
}

impl Row {
    /// Whether all of it is as it must be.
    #[must_use]
    pub fn held(&self) -> bool {
        let on_target = self.binary || (self.pressure - 1.0).abs() <= OFF_TARGET;
        on_target && self.served >= SERVED && self.refused_calm == 0.0 && self.refused_after == 0.0
    }
}

/// Runs, prints and judges. 0 when every bar held, 1 when not, 2 when there is no outcome.
#[must_use]
pub fn main(options: &Options) -> ExitCode {
    match measure(options.seeds) {
        Ok(rows) => {
            print(&rows);
            if rows.iter().all(Row::held) {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(1)
            }
        }
        Err(error) => {
            eprintln!("lab signals: {error}");
            ExitCode::from(2)
        }
    }
}

fn print(rows: &[Row]) {
    println!(
        "{:<16} {:>7} {:>7} {:>9} {:>7} {:>8} {:>8}",
        "", "T, s", "late, s", "pressure", "served", "calm", "after"
    );
    for row in rows {
        let pressure = if row.binary {
            "fires".to_owned()
        } else {
            format!("{:.3}", row.pressure)
        };
        println!(
            "{:<16} {:>7.2} {:>7.2} {pressure:>9} {:>7.3} {:>8.4} {:>8.4}{}",
            row.name,
            row.time_s,
            row.delay_s,
            row.served,
            row.refused_calm,
            row.refused_after,
            if row.held() { "" } else { "  missed" }
        );
    }
    println!(
        "bars: pressure within {OFF_TARGET} of 1, served at least {SERVED} of what is carried, nothing refused in calm, nor {RELEASE_S} s or two T after there is room again ({RELEASE_BINARY_TIMES} T for \
         those that only fire)"
    );
}

/// All ready-made signals whose remedy is the threshold, as their makers leave them.
fn signals() -> Result<Vec<Box<dyn Signal>>, EachError> {
    let slo = Slo::new(
        Class(0),
        Duration::from_millis(10),
        Duration::from_millis(500),
    )?;
    let all: Vec<Box<dyn Signal>> = vec![
        Box::new(InflightBudget::new(1_000)?.signal()),
        Box::new(QueueWait::new().0),
        Box::new(WriteBytes::new(1e8)?.0),
        Box::new(Memory::process(1 << 30, 2 << 30)?),
        Box::new(FollowerLag::new().0),
        Box::new(Errors::new()),
        Box::new(LatencySlo::of(&[slo])?.0),
        Box::new(Heartbeat::new(LaneLatency::new())),
        Box::new(StallTime::new(LaneLatency::new()).0),
        Box::new(Cpu::new()),
        Box::new(Pressure::cpu()),
        Box::new(Pressure::io()),
        Box::new(Pressure::memory()),
        Box::new(StealTime::new()),
        Box::new(AcceptQueue::new(1, 128)?),
    ];
    debug_assert!(all.iter().all(|signal| signal.remedy() != Remedy::Precise));
    Ok(all)
}

/// Every signal over seeds 1 to `seeds`.
///
/// # Errors
///
/// When a signal cannot be built, or what it says of itself is out of bounds.
pub fn measure(seeds: u64) -> Result<Vec<Row>, EachError> {
    let signals = signals()?;
    let signals = signals.iter().map(AsRef::as_ref);
    signals.map(|signal| one(signal, seeds.max(1))).collect()
}

fn one(signal: &dyn Signal, seeds: u64) -> Result<Row, EachError> {
    let dynamics = signal.dynamics();
    let kind = match dynamics {
        Dynamics::Integrating { .. } => PlantKind::Follower,
        Dynamics::Settling { .. } => PlantKind::Level,
        _ => PlantKind::Detector,
    };
    let time_s = dynamics.time().as_secs_f64();
    let delay_s = dynamics.delay().as_secs_f64();
    let own_s = time_s + delay_s;
    let trouble_s = (TROUBLE_TIMES * own_s).max(TROUBLE_MIN_S);
    let room_s = CALM_S + trouble_s;
    let release_s = match kind {
        PlantKind::Detector => RELEASE_BINARY_TIMES * own_s,
        _ => RELEASE_S.max(2.0 * own_s),
    };
    let plant = Plant {
        name: signal.name().to_owned(),
        kind,
        carries: vec![(0.0, 2.0), (CALM_S, CARRIED), (room_s, 2.0)],
        time_s,
        declared_s: None,
        delay_s,
        period_s: signal.period().as_secs_f64(),
        authority: signal.authority(),
        lane: None,
        troubles: Vec::new(),
    };
    let mut row = Row {
        name: signal.name().to_owned(),
        time_s,
        delay_s,
        binary: kind == PlantKind::Detector,
        pressure: 1.0,
        served: f64::INFINITY,
        refused_calm: 0.0,
        refused_after: 0.0,
    };
    for seed in 1..=seeds {
        let scenario = Scenario {
            seed,
            phases: vec![Phase::new("all", room_s + release_s + 20.0, LOAD)],
            plants: vec![plant.clone()],
            ..Scenario::default()
        };
        let settings = Settings::one_lane("main", scenario.service.parallelism);
        let mut look = Look {
            settled: (CALM_S + trouble_s * 2.0 / 3.0, room_s),
            after_s: room_s + release_s,
            ..Look::default()
        };
        scenario.run(&mut VirtualController::new(settings)?, &mut look)?;
        let carried_per_s = CARRIED * scenario.service.capacity_per_s();
        let pressure = look.pressure_sum / look.pressures.max(1) as f64;
        if (pressure - 1.0).abs() > (row.pressure - 1.0).abs() {
            row.pressure = pressure;
        }
        let served = look.began as f64 / (look.settled.1 - look.settled.0) / carried_per_s;
        row.served = row.served.min(served);
        let share = |(refused, all): (u64, u64)| refused as f64 / all.max(1) as f64;
        row.refused_calm = row.refused_calm.max(share(look.calm));
        row.refused_after = row.refused_after.max(share(look.after));
    }
    Ok(row)
}

#[derive(Default)]
struct Look {
    /// From when to when it has settled, seconds.
    settled: (f64, f64),
    after_s: f64,
    pressure_sum: f64,
    pressures: u64,
    began: u64,
    /// Refused, and all.
    calm: (u64, u64),
    after: (u64, u64),
}

impl Witness for Look {
    fn ended(&mut self, fate: &Fate) {
        let at_s = fate.offered_at.as_nanos() as f64 * 1e-9;
        let refused = u64::from(matches!(fate.end, End::Refused(_) | End::Lost(_)));
        if at_s < CALM_S {
            self.calm = (self.calm.0 + refused, self.calm.1 + 1);
        } else if at_s >= self.after_s {
            self.after = (self.after.0 + refused, self.after.1 + 1);
        } else if fate.started_at.is_some() && (self.settled.0..self.settled.1).contains(&at_s) {
            self.began += 1;
        }
    }

    fn measured(&mut self, now: Instant, _plant: usize, pressure: f64) {
        let at_s = now.as_nanos() as f64 * 1e-9;
        if (self.settled.0..self.settled.1).contains(&at_s) {
            self.pressure_sum += pressure;
            self.pressures += 1;
        }
    }
}
