//! What every ready-made signal can be told of itself.

use std::borrow::Cow;
use std::time::Duration;

use cinnamon_core::{Authority, DEFAULT_PERIOD, Scope};

/// Name, lanes, authority and period.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(crate) name: Cow<'static, str>,
    pub(crate) scope: Scope,
    pub(crate) authority: Authority,
    pub(crate) period: Duration,
}

impl Common {
    pub(crate) const fn new(name: &'static str, authority: Authority) -> Self {
        Self {
            name: Cow::Borrowed(name),
            scope: Scope::All,
            authority,
            period: DEFAULT_PERIOD,
        }
    }

    pub(crate) const fn every(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }
}

/// The setters of a signal with a field `common`.
macro_rules! common_setters {
    () => {
        /// Its name, where a controller has several of its kind.
        pub fn name(mut self, name: &str) -> Self {
            self.common.name = std::borrow::Cow::Owned(name.to_owned());
            self
        }

        /// The lanes whose load it bears on. Default: all.
        pub fn scope(mut self, scope: cinnamon_core::Scope) -> Self {
            self.common.scope = scope;
            self
        }

        /// How much it may take by itself. Default: as said of the signal.
        pub const fn authority(mut self, authority: cinnamon_core::Authority) -> Self {
            self.common.authority = authority;
            self
        }

        /// Time between two samples. Default: as said of the signal, or else
        /// [`DEFAULT_PERIOD`](cinnamon_core::DEFAULT_PERIOD).
        pub const fn period(mut self, period: std::time::Duration) -> Self {
            self.common.period = period;
            self
        }
    };
}

/// Where a field `world` is read from.
macro_rules! world_setters {
    ($about:literal) => {
        #[cfg(test)]
        pub(crate) fn world(mut self, world: crate::world::World) -> Self {
            self.world = world;
            self
        }

        #[doc = $about]
        pub fn root(mut self, root: impl AsRef<std::path::Path>) -> Self {
            self.world = crate::world::World::at(root.as_ref());
            self
        }
    };
}

/// The methods of `Signal` that answer from a field `common`.
macro_rules! common_answers {
    () => {
        fn name(&self) -> &str {
            &self.common.name
        }

        fn scope(&self) -> cinnamon_core::Scope {
            self.common.scope.clone()
        }

        fn authority(&self) -> cinnamon_core::Authority {
            self.common.authority
        }

        fn period(&self) -> std::time::Duration {
            self.common.period
        }
    };
}

pub(crate) use {common_answers, common_setters, world_setters};
