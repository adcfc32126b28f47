//! What a signal's settings may not be.

use std::ops::RangeInclusive;
use std::time::Duration;

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

/// `value`, if it lies in `range`; `bound` says so in words.
pub(crate) fn within(
    setting: &'static str,
    value: f64,
    range: RangeInclusive<f64>,
    bound: &'static str,
) -> Result<f64, SettingError> {
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(SettingError::OutOfBounds {
            setting,
            value,
            bound,
        })
    }
}

/// The same of a time, in seconds.
pub(crate) fn time_within(
    setting: &'static str,
    value: Duration,
    range: RangeInclusive<Duration>,
    bound: &'static str,
) -> Result<Duration, SettingError> {
    let seconds = range.start().as_secs_f64()..=range.end().as_secs_f64();
    within(setting, value.as_secs_f64(), seconds, bound).map(|_| value)
}
