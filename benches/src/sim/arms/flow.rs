//! The flow law: the published shape of Uber's law of 2023, in Cinnamon's engine.

use cinnamon_core::Law;
use cinnamon_core::simulation::VirtualController;

use super::{Arm, Kind, cinnamon};

pub(super) const ARM: Arm = Arm {
    name: "flow",
    about: "Cinnamon with the flow law: the shape of Uber's of 2023, constants at second hand",
    kind: Kind::Baseline,
    build: |scenario| {
        let mut settings = cinnamon::settings(scenario);
        settings.law = Law::Flow;
        Ok(Box::new(VirtualController::new(settings)?))
    },
};
