//! A mean over time: [`Smoothed`].

use std::time::Duration;

use cinnamon_core::{Dynamics, Instant, Reading, Signal, View};

use super::inner_answers;
use crate::setting::{SettingError, time_within};

/// Least time constant of a [`Smoothed`]: below it there is nothing to smooth between two samples.
pub const SMOOTHING_MIN: Duration = Duration::from_millis(10);
/// Greatest one: what is an hour late steers nothing.
pub const SMOOTHING_MAX: Duration = Duration::from_secs(3_600);

/// After so many time constants without a pressure the old mean says nothing of the new one.
const FORGET: u32 = 3;

/// The exponential mean of a pressure, for gauges that are noisy: 63 % of a step shows after its time constant.
///
/// It makes readings late by that time, and adds it to the delay that the signal declares; so take the shortest that
/// will do. The first reading, and the first after a long silence, counts as it is. What is no number, or is
/// unavailable, passes as it is and is not learned from. What it says beside
/// the pressure is not smoothed, and stays as it is.
///
/// ```
/// use cinnamon_core::Dynamics;
/// use cinnamon_signals::{Push, Smoothed};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), cinnamon_signals::SettingError> {
/// let (gauge, handle) = Push::new("gauge", Dynamics::settling(Duration::from_secs(5)));
/// let smooth = Smoothed::new(gauge, Duration::from_millis(500))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct Smoothed<S> {
    inner: S,
    tau: Duration,
    mean: Option<(Instant, f64)>,
}

impl<S: Signal> Smoothed<S> {
    /// The mean of `signal` with the time constant `tau`.
    ///
    /// # Errors
    ///
    /// Unless `tau` is from [`SMOOTHING_MIN`] to [`SMOOTHING_MAX`].
    pub fn new(signal: S, tau: Duration) -> Result<Self, SettingError> {
        let bounds = SMOOTHING_MIN..=SMOOTHING_MAX;
        Ok(Self {
            inner: signal,
            tau: time_within("smoothed.tau", tau, bounds, "from 0.01 to 3600 seconds")?,
            mean: None,
        })
    }
}

impl<S: Signal> Signal for Smoothed<S> {
    inner_answers!();

    fn dynamics(&self) -> Dynamics {
        let inner = self.inner.dynamics();
        inner.delayed(inner.delay().saturating_add(self.tau))
    }

    fn sample(&mut self, now: Instant, view: &View) -> Reading {
        let reading = self.inner.sample(now, view);
        let Some(pressure) = reading.value().filter(|pressure| pressure.is_finite()) else {
            return reading;
        };
        let mean = match self.mean {
            Some((at, mean)) if now >= at && now.since(at) <= self.tau * FORGET => {
                let dt_s = now.since(at).as_secs_f64();
                let gain = 1.0 - (-dt_s / self.tau.as_secs_f64()).exp();
                mean + gain * (pressure - mean)
            }
            _ => pressure,
        };
        self.mean = Some((now, mean));
        reading.map_pressure(|_| mean)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{
        Script, answers_as_script, at, full, only_the_pressure_differs, run,
    };
    use super::*;

    #[test]
    fn a_step_shows_by_63_percent_after_the_time_constant() {
        let steps = std::iter::repeat_n(0.0, 5).chain(std::iter::repeat_n(2.0, 40));
        let mut smooth = Smoothed::new(Script::pressures(steps), Duration::from_secs(1)).unwrap();
        let seen = run(&mut smooth, 0, 45);
        assert_eq!(seen[4], Some(0.0));
        assert!((seen[14].unwrap() - 2.0 * 0.632).abs() < 0.01, "{seen:?}");
        assert!(seen[44].unwrap() > 1.9);
    }

    #[test]
    fn what_is_not_known_passes_and_after_a_silence_it_begins_anew() {
        let said = [
            Reading::pressure(2.0),
            Reading::pressure(f64::NAN),
            Reading::unavailable("lost"),
            Reading::pressure(2.0),
        ];
        let mut smooth = Smoothed::new(Script::of(said), Duration::from_millis(100)).unwrap();
        let seen = run(&mut smooth, 0, 4);
        assert_eq!((seen[0], seen[2], seen[3]), (Some(2.0), None, Some(2.0)));
        assert!(seen[1].unwrap().is_nan());
        smooth.inner.says.push_back(Reading::pressure(0.0));
        assert_eq!(run(&mut smooth, 60_000, 1), [Some(0.0)], "a minute later");
        smooth.inner.says.push_back(Reading::pressure(1.0));
        assert_eq!(
            run(&mut smooth, 50, 1),
            [Some(1.0)],
            "the clock was set back"
        );
    }

    #[test]
    fn it_changes_the_pressure_alone() {
        let script = Script::of([full(1.0), full(3.0)]);
        let mut smooth = Smoothed::new(script, Duration::from_secs(1)).unwrap();
        let _ = smooth.sample(at(0), &View::default());
        let said = smooth.sample(at(1_000), &View::default());
        only_the_pressure_differs(&said, said.value().unwrap(), "");
        assert!((said.value().unwrap() - 2.264).abs() < 1e-3, "{said:?}");
    }

    #[test]
    fn its_time_adds_to_the_delay_and_the_rest_stays() {
        let smooth = Smoothed::new(Script::of([]), Duration::from_secs(1)).unwrap();
        answers_as_script(&smooth);
        assert_eq!(smooth.dynamics().delay(), Duration::from_millis(1_500));
        let error = Smoothed::new(Script::of([]), Duration::ZERO).err();
        assert_eq!(
            error.map(|error| error.to_string()).as_deref(),
            Some("`smoothed.tau` is 0 but must be from 0.01 to 3600 seconds")
        );
    }
}
