//! Cinnamon with one fault each: what a measuring stick must notice.

use cinnamon_core::config::{DEFAULT_KI_PER_S, DEFAULT_KP};
use cinnamon_core::simulation::{Defect, Policy, Scenario, VirtualController};
use cinnamon_core::{ConfigError, Limit, Settings};

use super::{Arm, Kind, cinnamon};

pub(super) const NO_FRACTION: Arm = Arm {
    name: "no-fraction",
    about: "mutant: the boundary level is admitted whole or not at all",
    kind: Kind::Mutant,
    build: |scenario| defective(scenario, Defect::NoFraction),
};

pub(super) const NO_ANTI_WINDUP: Arm = Arm {
    name: "no-anti-windup",
    about: "mutant: the integral term has no bounds and learns from everything",
    kind: Kind::Mutant,
    build: |scenario| defective(scenario, Defect::NoAntiWindup),
};

pub(super) const ADMITTED_HISTOGRAM: Arm = Arm {
    name: "admitted-histogram",
    about: "mutant: the distribution is learned from what was admitted",
    kind: Kind::Mutant,
    build: |scenario| defective(scenario, Defect::AdmittedHistogram),
};

pub(super) const NO_SWEEP: Arm = Arm {
    name: "no-sweep",
    about: "mutant: who waits beyond the threshold is not swept out",
    kind: Kind::Mutant,
    build: |scenario| defective(scenario, Defect::NoSweep),
};

pub(super) const TEN_TIMES_GAIN: Arm = Arm {
    name: "ten-times-gain",
    about: "mutant: both gains ten times the defaults",
    kind: Kind::Mutant,
    build: |scenario| {
        altered(scenario, |settings| {
            settings.kp = TOO_MUCH * DEFAULT_KP;
            settings.ki_per_s = TOO_MUCH * DEFAULT_KI_PER_S;
        })
    },
};

pub(super) const TEN_TIMES_SLOTS: Arm = Arm {
    name: "ten-times-slots",
    about: "mutant: ten times the slots that the store has room for",
    kind: Kind::Mutant,
    build: |scenario| {
        altered(scenario, |settings| {
            for lane in &mut settings.lanes {
                lane.limit = Limit::fixed(lane.limit.start().saturating_mul(TOO_MUCH as u32));
            }
        })
    },
};

/// Goodput is flat up to two or three times the default gains; this is well beyond, and still
/// within what the settings allow. So many slots hide the queue in the store, where no order helps.
const TOO_MUCH: f64 = 10.0;

fn defective(scenario: &Scenario, defect: Defect) -> Result<Box<dyn Policy>, ConfigError> {
    let settings = cinnamon::settings(scenario);
    Ok(Box::new(VirtualController::defective(settings, defect)?))
}

fn altered(
    scenario: &Scenario,
    alter: impl FnOnce(&mut Settings),
) -> Result<Box<dyn Policy>, ConfigError> {
    let mut settings = cinnamon::settings(scenario);
    alter(&mut settings);
    Ok(Box::new(VirtualController::new(settings)?))
}
