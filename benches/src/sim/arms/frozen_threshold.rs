//! The control whose gate closes once and stays where it was: right for one load only.

use cinnamon_core::simulation::{Defect, VirtualController};

use super::{Arm, Kind, cinnamon};

pub(super) const ARM: Arm = Arm {
    name: "frozen-threshold",
    about: "control: Cinnamon with the threshold left where it was when the gate first closed",
    kind: Kind::Control,
    build: |scenario| {
        let settings = cinnamon::settings(scenario);
        let lane = VirtualController::defective(settings, Defect::FrozenThreshold)?;
        Ok(Box::new(lane))
    },
};
