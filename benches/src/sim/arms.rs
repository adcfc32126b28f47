//! The arms of a comparison: what can stand between the clients and the store.

mod cinnamon;

use cinnamon_core::ConfigError;
use cinnamon_core::simulation::{Policy, Scenario};

/// What an arm is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What the bars are for.
    Product,
    /// A system it replaces.
    Baseline,
    /// It must fail: a bar that it passes is no bar.
    Control,
    /// Cinnamon with a fault in its law; it must fail too.
    Mutant,
}

/// One arm.
#[derive(Clone, Copy, Debug)]
pub struct Arm {
    /// Its name on the command line, lower case.
    pub name: &'static str,
    /// One line that says what it does and whose constants it has.
    pub about: &'static str,
    /// What it is there for.
    pub kind: Kind,
    /// Builds the policy for a scenario. Slots are the store's parallelism.
    pub build: fn(&Scenario) -> Result<Box<dyn Policy>, ConfigError>,
}

/// All arms, the product first.
pub const ARMS: &[Arm] = &[cinnamon::ARM];

/// The arm of this name.
#[must_use]
pub fn arm(name: &str) -> Option<&'static Arm> {
    ARMS.iter().find(|arm| arm.name == name)
}
