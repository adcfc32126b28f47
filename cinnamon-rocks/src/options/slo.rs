//! What the calls of a column family are promised.

use cinnamon_core::ConfigError;
use serde::{Deserialize, Serialize};

/// What a call should take at most, waiting included: Netflix's figure for its stores.
pub const DEFAULT_SLO_TARGET_US: u64 = 10_000;
/// What it may take at the very most: Netflix's figure too, about where callers give up.
pub const DEFAULT_SLO_MAX_US: u64 = 500_000;

/// Below a microsecond lies no call, and the clock's own error.
const TARGET_US_MIN: u64 = 1;
/// An hour: nobody waits longer, and what is reckoned from it stays far from its bounds.
const MAX_US_MAX: u64 = 3_600_000_000;

/// What calls of one kind, reads or writes, are promised. It sheds nothing: the store
/// [publishes](crate::Store::utilisation) how much of what is asked misses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SloOptions {
    /// Microseconds that a call should take at most, from its offer until it is done: 1 to less than `max_us`. Too
    /// low, and usual tails look like an overload to callers upstream; too high, and they see it when it is late.
    /// Default [`DEFAULT_SLO_TARGET_US`].
    pub target_us: u64,
    /// Microseconds that it may take at the very most: above `target_us`, up to an hour. It is where a call is lost
    /// to its caller. Default [`DEFAULT_SLO_MAX_US`].
    pub max_us: u64,
}

impl Default for SloOptions {
    fn default() -> Self {
        Self {
            target_us: DEFAULT_SLO_TARGET_US,
            max_us: DEFAULT_SLO_MAX_US,
        }
    }
}

impl SloOptions {
    /// Checks both times, those of the setting at this path.
    pub(super) fn check(&self, path: &str) -> Result<(), ConfigError> {
        let (target, max) = (self.target_us, self.max_us);
        let most = MAX_US_MAX - 1;
        ConfigError::within(&format!("{path}.target_us"), target, TARGET_US_MIN, most)?;
        ConfigError::within(&format!("{path}.max_us"), max, target + 1, MAX_US_MAX)
    }
}
