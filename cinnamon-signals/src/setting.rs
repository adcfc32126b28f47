//! What a signal's settings may not be.

use crate::ramp::RampError;

/// A setting of a signal that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// A value lies outside its bounds.
    #[error("`{setting}` is {value} but must be {bound}")]
    OutOfBounds {
        /// The setting.
        setting: &'static str,
        /// The value given.
        value: f64,
        /// What it must be.
        bound: &'static str,
    },
    /// Two limits make no scale.
    #[error("`{setting}`: {source}")]
    Limits {
        /// The setting.
        setting: &'static str,
        /// What is wrong with them.
        source: RampError,
    },
    /// A signal that would measure nothing.
    #[error("`{setting}` has nothing to measure: give it limits for {wanted}")]
    Nothing {
        /// The signal.
        setting: &'static str,
        /// What it could measure.
        wanted: &'static str,
    },
}
