//! A discrete PID controller with its own time step, bounds and anti-windup.
//!
//! Owned rather than taken from the `pid` crate, see `docs/decisions/0001-own-pid.md`.

use std::ops::RangeInclusive;

/// Parallel-form PID: `kp*e + ki*integral(e) + kd*de/dt`.
#[derive(Clone, Debug)]
pub(crate) struct Pid {
    kp: f64,
    ki_per_s: f64,
    kd_s: f64,
    /// Where the integral term is held: conditional integration by clamping.
    bounds: (f64, f64),
    integral: f64,
    previous: Option<f64>,
}

/// The three terms of one update.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Terms {
    pub(crate) p: f64,
    pub(crate) i: f64,
    pub(crate) d: f64,
}

impl Terms {
    pub(crate) fn sum(self) -> f64 {
        self.p + self.i + self.d
    }
}

impl Pid {
    pub(crate) fn new(kp: f64, ki_per_s: f64, kd_s: f64, integral: RangeInclusive<f64>) -> Self {
        Self {
            kp,
            ki_per_s,
            kd_s,
            bounds: (*integral.start(), *integral.end()),
            integral: 0.0,
            previous: None,
        }
    }

    pub(crate) fn set_gains(&mut self, kp: f64, ki_per_s: f64, kd_s: f64) {
        (self.kp, self.ki_per_s, self.kd_s) = (kp, ki_per_s, kd_s);
    }

    /// `kp` and `ki` per second.
    pub(crate) const fn gains(&self) -> (f64, f64) {
        (self.kp, self.ki_per_s)
    }

    /// Whether the integral term stands at one of its bounds.
    pub(crate) fn at_bound(&self) -> bool {
        self.integral <= self.bounds.0 || self.integral >= self.bounds.1
    }

    /// Takes the bounds off the integral term.
    #[cfg(feature = "test-util")]
    pub(crate) fn unbound(&mut self) {
        self.bounds = (f64::MIN, f64::MAX);
    }

    /// Forgets everything learned.
    pub(crate) fn reset(&mut self) {
        self.integral = 0.0;
        self.previous = None;
    }

    /// One step of `dt_s` seconds, of which the integral learns for `learn_s`. A non-finite error, or a step that is not positive, changes
    /// nothing and yields the terms as they stand: one bad sample must not poison the integral.
    pub(crate) fn update(&mut self, error: f64, dt_s: f64, learn_s: f64) -> Terms {
        let mut terms = Terms {
            i: self.integral,
            ..Terms::default()
        };
        if !error.is_finite() || !dt_s.is_finite() || dt_s <= 0.0 {
            return terms;
        }
        self.integral =
            (self.integral + self.ki_per_s * error * learn_s).clamp(self.bounds.0, self.bounds.1);
        terms.p = self.kp * error;
        terms.i = self.integral;
        terms.d = self.kd_s * (error - self.previous.unwrap_or(error)) / dt_s;
        self.previous = Some(error);
        terms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_the_textbook_ones() {
        let mut pid = Pid::new(0.5, 2.0, 0.1, -1.0..=1.0);
        let first = pid.update(0.2, 0.1, 0.1);
        assert!(
            (first.p - 0.1).abs() < 1e-12 && (first.i - 0.04).abs() < 1e-12,
            "{first:?}"
        );
        assert_eq!(first.d, 0.0);
        let next = pid.update(0.4, 0.1, 0.1);
        assert!(
            (next.i - 0.12).abs() < 1e-12 && (next.d - 0.2).abs() < 1e-12,
            "{next:?}"
        );
    }

    #[test]
    fn the_integral_stays_in_its_bounds_and_comes_back_at_once() {
        let mut pid = Pid::new(0.3, 0.3, 0.0, -0.25..=0.5);
        for _ in 0..100_000 {
            pid.update(1.0, 0.02, 0.02);
        }
        assert_eq!(pid.update(0.0, 0.02, 0.02).i, 0.5);
        let steps = (0..)
            .find(|_| pid.update(-1.0, 0.02, 0.02).i <= 0.0)
            .unwrap();
        assert!(steps as f64 * 0.02 < 2.0, "{steps} ticks to unwind");
    }

    #[test]
    fn bad_samples_and_standing_time_change_nothing() {
        let mut pid = Pid::new(0.3, 0.3, 0.1, -0.25..=0.5);
        let before = pid.update(0.5, 0.02, 0.02).i;
        for (error, dt) in [
            (f64::NAN, 0.02),
            (f64::INFINITY, 0.02),
            (0.5, 0.0),
            (0.5, -1.0),
            (0.5, f64::NAN),
        ] {
            assert_eq!(
                pid.update(error, dt, dt),
                Terms {
                    p: 0.0,
                    i: before,
                    d: 0.0
                }
            );
        }
        assert!(pid.update(0.5, 0.02, 0.02).sum().is_finite());
    }
}
