//! Cinnamon as it is shipped, with its defaults.

use cinnamon_core::simulation::VirtualController;
use cinnamon_core::{LaneSettings, Settings};

use super::{Arm, Kind};

pub(super) const ARM: Arm = Arm {
    name: "cinnamon",
    about: "Cinnamon with its defaults",
    kind: Kind::Product,
    build: |scenario| {
        let settings = settings(scenario);
        Ok(Box::new(VirtualController::new(settings)?))
    },
};

/// The defaults, with as many slots as the store has room for and a class for each kind of work.
pub(super) fn settings(scenario: &cinnamon_core::simulation::Scenario) -> Settings {
    let slots = scenario.service.parallelism;
    let mut settings = match &scenario.writes {
        Some(writes) => VirtualController::two_lanes(slots, writes.parallelism),
        None => Settings::default().lane(LaneSettings::new("read", slots)),
    };
    settings
        .classes
        .resize_with(scenario.service.work.len().max(1), Default::default);
    settings
}
