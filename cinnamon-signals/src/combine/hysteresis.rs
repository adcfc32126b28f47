//! A level as a detector: [`Hysteresis`].

use std::time::Duration;

use cinnamon_core::{Dynamics, Instant, Reading, Signal, View};

use super::{inner_answers, noted};
use crate::setting::{SettingError, time_within, within};

/// Greatest time of a [`Hysteresis`]: a detector that takes longer is of use to nobody.
pub const DWELL_MAX: Duration = Duration::from_secs(600);

/// Limits of enter and leave: pressures that a law tells apart.
const LEVELS: std::ops::RangeInclusive<f64> = 0.01..=100.0;

/// A level made a detector that fires or does not: it fires once the pressure has been at `enter` or over for its time,
/// and is silent again once it has been under `leave` for its own.
///
/// For gauges of which nobody can say how they answer to the load, and for health checks that must not flap. A level that
/// can be held is better left a level: a detector is cut and probed, never held at a value. It says 1.0 while it
/// fires and 0.0 while it does not; the pressure itself is in the note. Its dynamics are binary, and the hold is the
/// `T` and the delay of the signal. What is not known passes, and breaks no run.
///
/// ```
/// use cinnamon_core::Dynamics;
/// use cinnamon_signals::{Hysteresis, Push};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), cinnamon_signals::SettingError> {
/// let (headroom, handle) = Push::new("headroom", Dynamics::settling(Duration::from_secs(5)));
/// let fires = Hysteresis::new(headroom, 1.0, 0.7)?
///     .enter_after(Duration::from_secs(2))?
///     .leave_after(Duration::from_secs(6))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct Hysteresis<S> {
    inner: S,
    enter: f64,
    leave: f64,
    enter_after: Duration,
    leave_after: Duration,
    fires: bool,
    /// Since when it has been past the level that would change it.
    since: Option<Instant>,
}

impl<S: Signal> Hysteresis<S> {
    /// Fires from the pressure `enter` on, and is silent again under `leave`; at once, unless told otherwise.
    ///
    /// # Errors
    ///
    /// Unless both are from 0.01 to 100, and `leave` is no more than `enter`.
    pub fn new(signal: S, enter: f64, leave: f64) -> Result<Self, SettingError> {
        let enter = within("hysteresis.enter", enter, LEVELS, "from 0.01 to 100")?;
        let bound = "from 0.01 up to `enter`";
        let leave = within("hysteresis.leave", leave, *LEVELS.start()..=enter, bound)?;
        Ok(Self {
            inner: signal,
            enter,
            leave,
            enter_after: Duration::ZERO,
            leave_after: Duration::ZERO,
            fires: false,
            since: None,
        })
    }

    /// How long it must have been at `enter` or over. Default: not at all. Too short a time fires in every pause.
    ///
    /// # Errors
    ///
    /// When it is longer than [`DWELL_MAX`].
    pub fn enter_after(mut self, time: Duration) -> Result<Self, SettingError> {
        self.enter_after = dwell("hysteresis.enter_after", time)?;
        Ok(self)
    }

    /// How long it must have been under `leave`. Default: not at all. Too long a time goes on refusing.
    ///
    /// # Errors
    ///
    /// When it is longer than [`DWELL_MAX`].
    pub fn leave_after(mut self, time: Duration) -> Result<Self, SettingError> {
        self.leave_after = dwell("hysteresis.leave_after", time)?;
        Ok(self)
    }
}

fn dwell(setting: &'static str, time: Duration) -> Result<Duration, SettingError> {
    time_within(
        setting,
        time,
        Duration::ZERO..=DWELL_MAX,
        "at most 600 seconds",
    )
}

impl<S: Signal> Signal for Hysteresis<S> {
    inner_answers!();

    fn dynamics(&self) -> Dynamics {
        let inner = self.inner.dynamics();
        Dynamics::binary(inner.time().saturating_add(inner.delay()))
    }

    fn sample(&mut self, now: Instant, view: &View) -> Reading {
        let reading = self.inner.sample(now, view);
        let Some(pressure) = reading.value() else {
            return reading;
        };
        if !self.range().contains(&pressure) {
            // No number, or none that can be: the supervisor says so.
            return reading;
        }
        let (past, after) = if self.fires {
            (pressure < self.leave, self.leave_after)
        } else {
            (pressure >= self.enter, self.enter_after)
        };
        if past {
            let since = self.since.filter(|since| *since <= now).unwrap_or(now);
            self.since = Some(since);
            if now.since(since) >= after {
                self.fires = !self.fires;
                self.since = None;
            }
        } else {
            self.since = None;
        }
        let said = if self.fires { 1.0 } else { 0.0 };
        noted(reading.map_pressure(|_| said), format!("{pressure:.2}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{
        Script, answers_as_script, at, full, only_the_pressure_differs, run,
    };
    use super::*;

    fn hysteresis(pressures: &[f64]) -> Hysteresis<Script> {
        let script = Script::pressures(pressures.iter().copied());
        Hysteresis::new(script, 1.0, 0.5).unwrap()
    }

    fn fired(signal: &mut impl Signal, samples: u64) -> Vec<u8> {
        let seen = run(signal, 0, samples).into_iter();
        seen.map(|pressure| pressure.map_or(9, |p| p as u8))
            .collect()
    }

    #[test]
    fn it_changes_the_pressure_alone() {
        let mut signal = hysteresis(&[]);
        signal.inner.says = vec![full(1.5), full(0.2)].into();
        let said = [0, 100].map(|ms| signal.sample(at(ms), &View::default()));
        only_the_pressure_differs(&said[0], 1.0, "1.50");
        only_the_pressure_differs(&said[1], 0.0, "0.20");
    }

    #[test]
    fn between_the_levels_it_stays_as_it_is() {
        let mut signal = hysteresis(&[0.7, 1.0, 0.7, 0.5, 0.49, 0.7, 0.99]);
        assert_eq!(fired(&mut signal, 7), [0, 1, 1, 1, 0, 0, 0]);
    }

    #[test]
    fn each_way_takes_its_own_time_without_a_break() {
        let times = [
            1.2, 1.2, 0.9, 1.2, 1.2, 1.2, 0.4, 0.4, 0.6, 0.4, 0.4, 0.4, 0.4,
        ];
        let mut signal = hysteresis(&times)
            .enter_after(Duration::from_millis(200))
            .and_then(|signal| signal.leave_after(Duration::from_millis(300)))
            .unwrap();
        let expected = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0];
        assert_eq!(fired(&mut signal, 13), expected);
    }

    #[test]
    fn what_cannot_be_passes_and_changes_nothing() {
        let mut signal = hysteresis(&[f64::NAN, 5.0, 1.0]);
        let seen = run(&mut signal, 0, 4);
        assert!(seen[0].unwrap().is_nan());
        assert_eq!(seen[1..], [Some(5.0), Some(1.0), None]);
    }

    #[test]
    fn it_is_binary_and_settings_that_cannot_be_are_refused() {
        let signal = hysteresis(&[]);
        answers_as_script(&signal);
        let hold = Duration::from_millis(3_500);
        assert_eq!(signal.dynamics(), Dynamics::binary(hold));
        assert!(signal.enter_after(Duration::from_secs(601)).is_err());
        for (enter, leave) in [(0.5, 1.0), (f64::NAN, 0.5), (1.0, f64::NAN), (0.0, 0.0)] {
            assert!(Hysteresis::new(Script::of([]), enter, leave).is_err());
        }
    }
}
