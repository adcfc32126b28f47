//! Cinnamon with a limit that is found, from a good beginning and from two bad ones.

use cinnamon_core::simulation::{Policy, Scenario, VirtualController};
use cinnamon_core::{ConfigError, Limit};

use super::{Arm, Kind, cinnamon};

/// From the store's room.
pub(super) const RIGHT: Arm = Arm {
    name: "auto",
    about: "Cinnamon, its limit found from the right beginning",
    kind: Kind::Variant,
    build: |scenario| found(scenario, 1.0),
};

/// From half of it.
pub(super) const HALF: Arm = Arm {
    name: "auto-half",
    about: "Cinnamon, its limit found from half the slots",
    kind: Kind::Variant,
    build: |scenario| found(scenario, 0.5),
};

/// From four times as many.
pub(super) const FOUR_TIMES: Arm = Arm {
    name: "auto-x4",
    about: "Cinnamon, its limit found from four times the slots",
    kind: Kind::Variant,
    build: |scenario| found(scenario, 4.0),
};

fn found(scenario: &Scenario, wrong_by: f64) -> Result<Box<dyn Policy>, ConfigError> {
    let mut settings = cinnamon::settings(scenario);
    for lane in &mut settings.lanes {
        let start = (f64::from(lane.limit.start()) * wrong_by).round().max(1.0);
        lane.limit = Limit::auto().initial(start as u32);
    }
    Ok(Box::new(VirtualController::new(settings)?))
}
