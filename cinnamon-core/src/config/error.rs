//! What is wrong with a setting.

use std::fmt::Display;

/// A setting that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value lies outside its bounds.
    #[error("`{setting}` is {value} but must be {bound}")]
    OutOfBounds {
        /// Path of the setting, such as `lanes[0].limit`.
        setting: String,
        /// The value given.
        value: String,
        /// What it must be.
        bound: String,
    },
    /// Two lanes, or two signals, have one name.
    #[error("`{setting}` is {value:?} but an earlier one has that name")]
    Duplicate {
        /// Path of the second of them.
        setting: String,
        /// The name.
        value: String,
    },
    /// A name that does not exist.
    #[error("`{setting}` is {value:?} but there are only {known:?}")]
    Unknown {
        /// Path of the setting.
        setting: String,
        /// The name.
        value: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A setting that cannot change while the controller runs.
    #[error(
        "`{setting}` is {value} but was {built} when the controller was built, and cannot change"
    )]
    Fixed {
        /// Path of the setting.
        setting: String,
        /// The value given.
        value: String,
        /// The value in force.
        built: String,
    },
}

impl ConfigError {
    /// Refuses a value that is not `least..=most`, for settings of your own that are to speak as those of a
    /// controller do. NaN is in no bounds.
    ///
    /// # Errors
    ///
    /// [`ConfigError::OutOfBounds`] with the setting's name, its value and its bounds.
    pub fn within<T: PartialOrd + Display>(
        setting: &str,
        value: T,
        least: T,
        most: T,
    ) -> Result<(), Self> {
        if value >= least && value <= most {
            return Ok(());
        }
        Err(Self::OutOfBounds {
            setting: setting.to_owned(),
            value: value.to_string(),
            bound: format!("between {least} and {most}"),
        })
    }
}
