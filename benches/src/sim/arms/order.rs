//! Cinnamon with a fixed order among waiters of one tier: what the adaptive order is worth.

use cinnamon_core::simulation::{Policy, Scenario, VirtualController};
use cinnamon_core::{ConfigError, Order};

use super::{Arm, Kind, cinnamon};

pub(super) const FIFO: Arm = Arm {
    name: "fifo",
    about: "Cinnamon with the oldest of a tier always first",
    kind: Kind::Variant,
    build: |scenario| ordered(scenario, Order::Fifo),
};

pub(super) const LIFO: Arm = Arm {
    name: "lifo",
    about: "Cinnamon with the newest of a tier always first",
    kind: Kind::Variant,
    build: |scenario| ordered(scenario, Order::Lifo),
};

fn ordered(scenario: &Scenario, order: Order) -> Result<Box<dyn Policy>, ConfigError> {
    let mut settings = cinnamon::settings(scenario);
    for lane in &mut settings.lanes {
        lane.order = order;
    }
    Ok(Box::new(VirtualController::new(settings)?))
}
