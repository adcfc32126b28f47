//! Who decides: the generations of overload control.

use std::sync::Arc;

use cinnamon_core::simulation::{Policy, Scenario, Service};
use cinnamon_core::{Builder, ConfigError, Law, Mode};
use cinnamon_lab::sim::arms;
use cinnamon_rocks::StoreOptions;
use cinnamon_signals::HotKeys;

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// Nobody: a pool of threads and an endless line.
    NoControl,
    /// So many at once, a bounded line, first come first served.
    FixedFifo,
    /// CoDel with adaptive LIFO, blind to priority.
    CodelLifo,
    /// Uber's published law of 2023 on our queue: priorities, no signals.
    FlowLaw,
    Cinnamon,
}

impl Arm {
    pub(crate) const ALL: [Self; 5] = [
        Self::NoControl,
        Self::FixedFifo,
        Self::CodelLifo,
        Self::FlowLaw,
        Self::Cinnamon,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NoControl => "no control",
            Self::FixedFifo => "fixed limit, FIFO",
            Self::CodelLifo => "CoDel, LIFO",
            Self::FlowLaw => "flow law",
            Self::Cinnamon => "Cinnamon",
        }
    }

    /// Whether the store's controller decides.
    pub(crate) const fn is_controlled(self) -> bool {
        matches!(self, Self::FlowLaw | Self::Cinnamon)
    }

    pub(crate) const fn mode(self) -> Mode {
        if self.is_controlled() {
            Mode::Enforce
        } else {
            Mode::Off
        }
    }

    /// What the store of this arm has that others have not.
    pub(crate) fn set(self, options: &mut StoreOptions) {
        options.write_stall = self == Self::Cinnamon;
        if self == Self::FlowLaw {
            options.control.law = Law::Flow;
        }
    }

    /// What the controller of this arm is given by hand: with Cinnamon in every failure, for an embedder does not know
    /// which one comes.
    pub(crate) fn add(self, builder: Builder) -> Builder {
        if self != Self::Cinnamon {
            return builder;
        }
        let (hot_keys, handle) = HotKeys::new();
        builder.signal(hot_keys).observer(Arc::new(handle))
    }

    /// The policy that decides where the store does not, for so many slots that are held for so long.
    pub(crate) fn policy(
        self,
        slots: u32,
        service_s: f64,
    ) -> Result<Option<Box<dyn Policy>>, ConfigError> {
        let name = match self {
            Self::FixedFifo => "fixed",
            Self::CodelLifo => "codel",
            _ => return Ok(None),
        };
        let scenario = Scenario {
            service: Service::new(slots, service_s),
            ..Scenario::default()
        };
        arms::arm(name)
            .map(|arm| (arm.build)(&scenario))
            .transpose()
    }
}
