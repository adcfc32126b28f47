//! From a gauge to a pressure.

use std::fmt;

/// A scale from a gauge to a pressure by two limits: 1.0 at the *soft* one, where the controller is to hold
/// the gauge, and 2.0 at the *hard* one, where its answer is at its greatest. Straight between zero and soft,
/// between soft and hard, and on beyond.
///
/// ```
/// use cinnamon_signals::Ramp;
///
/// # fn main() -> Result<(), cinnamon_signals::RampError> {
/// let ramp = Ramp::new(6e9, 8e9)?;
/// assert_eq!([3e9, 6e9, 7e9, 8e9].map(|bytes| ramp.pressure(bytes)), [0.5, 1.0, 1.5, 2.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    soft: f64,
    hard: f64,
}

/// The same on a logarithmic scale, for what grows by factors, such as compaction debt: 1.0 at the soft
/// limit, 2.0 at the hard one, and 0 as far below the soft one as the hard one lies above it.
///
/// ```
/// use cinnamon_signals::LogRamp;
///
/// # fn main() -> Result<(), cinnamon_signals::RampError> {
/// let ramp = LogRamp::new(16.0, 64.0)?;
/// assert_eq!([4.0, 8.0, 16.0, 32.0, 64.0].map(|debt| ramp.pressure(debt)), [0.0, 0.5, 1.0, 1.5, 2.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogRamp {
    soft: f64,
    hard: f64,
}

/// Limits that make no scale.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RampError {
    /// The soft limit given.
    pub soft: f64,
    /// The hard limit given.
    pub hard: f64,
}

impl fmt::Display for RampError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the soft limit is {} and the hard one {}, but they must be finite, the soft one above 0 and the hard one above the soft one",
            self.soft, self.hard
        )
    }
}

impl std::error::Error for RampError {}

fn check(soft: f64, hard: f64) -> Result<(), RampError> {
    if soft > 0.0 && hard > soft && hard.is_finite() {
        Ok(())
    } else {
        Err(RampError { soft, hard })
    }
}

impl Ramp {
    /// A scale with these limits, in the unit of the gauge.
    ///
    /// # Errors
    ///
    /// Unless 0 < `soft` < `hard`, both finite.
    pub fn new(soft: f64, hard: f64) -> Result<Self, RampError> {
        check(soft, hard)?;
        Ok(Self { soft, hard })
    }

    /// The pressure at this value. Below zero it is 0; what is not a number stays none.
    #[must_use]
    pub fn pressure(&self, value: f64) -> f64 {
        if value <= self.soft {
            (value / self.soft).max(0.0)
        } else {
            1.0 + (value - self.soft) / (self.hard - self.soft)
        }
    }
}

impl LogRamp {
    /// A scale with these limits, in the unit of the gauge.
    ///
    /// # Errors
    ///
    /// Unless 0 < `soft` < `hard`, both finite.
    pub fn new(soft: f64, hard: f64) -> Result<Self, RampError> {
        check(soft, hard)?;
        Ok(Self { soft, hard })
    }

    /// The pressure at this value. At zero and below it is 0; what is not a number stays none.
    #[must_use]
    pub fn pressure(&self, value: f64) -> f64 {
        if value <= 0.0 {
            return 0.0;
        }
        let pressure = 1.0 + (value / self.soft).log2() / (self.hard / self.soft).log2();
        if pressure < 0.0 { 0.0 } else { pressure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_make_no_scale_are_refused_by_name() {
        for (soft, hard) in [
            (0.0, 1.0),
            (2.0, 1.0),
            (1.0, 1.0),
            (f64::NAN, 1.0),
            (1.0, f64::INFINITY),
        ] {
            let error = Ramp::new(soft, hard).unwrap_err();
            assert!(LogRamp::new(soft, hard).is_err());
            assert!(error.to_string().contains(&format!("soft limit is {soft}")));
        }
    }

    #[test]
    fn scales_never_fall_and_never_hide_what_is_no_number() {
        let (ramp, log) = (
            Ramp::new(10.0, 30.0).unwrap(),
            LogRamp::new(10.0, 30.0).unwrap(),
        );
        let values: Vec<f64> = (-10..100).map(f64::from).collect();
        for pair in values.windows(2) {
            assert!(ramp.pressure(pair[0]) <= ramp.pressure(pair[1]));
            assert!(log.pressure(pair[0]) <= log.pressure(pair[1]));
        }
        assert!(ramp.pressure(f64::NAN).is_nan() && log.pressure(f64::NAN).is_nan());
    }
}
