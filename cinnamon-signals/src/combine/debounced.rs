//! An excess that lasts: [`Debounced`].

use std::time::Duration;

use cinnamon_core::{Dynamics, Instant, Reading, Signal, View};

use super::{HELD_BACK, RELEASED, inner_answers, noted};
use crate::setting::{SettingError, time_within};

/// Greatest time of a [`Debounced`]: an overload of ten minutes is no bounce.
pub const DEBOUNCE_MAX: Duration = Duration::from_secs(600);

/// A pressure that counts only once it has stood at 1.0 or over for a time without a break, for what happens in short
/// pauses too: a collection, a flush, a snapshot.
///
/// Until then it is held under 1.0; culprits are shown and not throttled; a cut, which is asked for whatever the
/// pressure, passes. From then on it passes as it is, until it has been under 0.9 for as long; so a law that holds it
/// about its target does not lose it. What is not known passes, and breaks no run: a single lost sample is no sign of
/// health. It makes the first reading of an excess late by its time, which is added to the delay that the signal
/// declares.
///
/// Two samples make a run, at least: between them nobody looked.
#[derive(Clone, Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct Debounced<S> {
    inner: S,
    lasting: Lasting,
}

/// Whether an excess has lasted.
#[derive(Clone, Debug)]
pub(crate) struct Lasting {
    time: Duration,
    counts: bool,
    /// Since when it would have it otherwise.
    since: Option<Instant>,
}

impl Lasting {
    pub(crate) const fn new(time: Duration) -> Self {
        Self {
            time,
            counts: false,
            since: None,
        }
    }

    /// Whether this pressure counts.
    pub(crate) fn passes(&mut self, now: Instant, pressure: f64) -> bool {
        let otherwise = if self.counts {
            pressure < RELEASED
        } else {
            pressure >= 1.0
        };
        if otherwise {
            // A run that began in the future began before the clock was set back: nobody knows when.
            let since = self.since.filter(|since| *since <= now).unwrap_or(now);
            let first = self.since.is_none();
            self.since = Some(since);
            if !first && now.since(since) >= self.time {
                self.counts = !self.counts;
                self.since = None;
            }
        } else {
            self.since = None;
        }
        self.counts || pressure < 1.0
    }
}

impl<S: Signal> Debounced<S> {
    /// `signal`, once it has been over its target for `time`.
    ///
    /// # Errors
    ///
    /// When `time` is longer than [`DEBOUNCE_MAX`].
    pub fn new(signal: S, time: Duration) -> Result<Self, SettingError> {
        let bounds = Duration::ZERO..=DEBOUNCE_MAX;
        let time = time_within("debounced.time", time, bounds, "at most 600 seconds")?;
        Ok(Self {
            inner: signal,
            lasting: Lasting::new(time),
        })
    }
}

impl<S: Signal> Signal for Debounced<S> {
    inner_answers!();

    fn dynamics(&self) -> Dynamics {
        let inner = self.inner.dynamics();
        inner.delayed(inner.delay().saturating_add(self.lasting.time))
    }

    fn sample(&mut self, now: Instant, view: &View) -> Reading {
        let reading = self.inner.sample(now, view);
        let Some(pressure) = reading.value().filter(|pressure| !pressure.is_nan()) else {
            return reading;
        };
        if self.lasting.passes(now, pressure) {
            reading
        } else {
            let own = format!("{pressure:.2}, but not for long enough");
            noted(reading.map_pressure(|_| HELD_BACK).without_cut(), own)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{
        Script, answers_as_script, at, full, only_pressure_and_cut_differ,
        only_the_pressure_differs, run,
    };
    use super::*;

    fn debounced(pressures: &[f64]) -> Debounced<Script> {
        let script = Script::pressures(pressures.iter().copied());
        Debounced::new(script, Duration::from_millis(300)).unwrap()
    }

    #[test]
    fn a_short_excess_does_not_count_and_a_lasting_one_does() {
        let mut signal = debounced(&[2.0, 2.0, 2.0, 0.5, 2.0, 2.0, 2.0, 2.0, 2.0]);
        let seen: Vec<f64> = run(&mut signal, 0, 9).into_iter().flatten().collect();
        let held = HELD_BACK;
        assert_eq!(seen, [held, held, held, 0.5, held, held, held, 2.0, 2.0]);
    }

    #[test]
    fn once_it_counts_it_may_swing_about_its_target() {
        let mut signal = debounced(&[2.0, 2.0, 2.0, 2.0, 0.95, 1.1, 0.8, 0.8, 1.1]);
        let seen: Vec<f64> = run(&mut signal, 0, 9).into_iter().flatten().collect();
        assert_eq!(seen[3..], [2.0, 0.95, 1.1, 0.8, 0.8, 1.1]);
        let mut gone = debounced(&[2.0, 2.0, 2.0, 2.0, 0.1, 0.1, 0.1, 0.1, 1.5]);
        assert_eq!(run(&mut gone, 0, 9)[8], Some(HELD_BACK), "a new run");
    }

    #[test]
    fn a_lost_sample_breaks_no_run_and_a_clock_set_back_begins_one() {
        let mut said: Vec<Reading> = (0..4).map(|_| Reading::pressure(2.0)).collect();
        said[1] = Reading::unavailable("lost");
        let mut signal = debounced(&[]);
        signal.inner.says = said.into();
        let seen = run(&mut signal, 1_000, 4);
        assert_eq!((seen[1], seen[3]), (None, Some(2.0)));

        let mut signal = debounced(&[2.0; 8]);
        run(&mut signal, 5_000, 2);
        let seen = run(&mut signal, 0, 4);
        assert_eq!((seen[1], seen[3]), (Some(HELD_BACK), Some(2.0)));
    }

    #[test]
    fn it_changes_the_pressure_alone() {
        let mut signal = debounced(&[]);
        signal.inner.says = vec![full(2.0), full(0.5), full(2.0), full(2.0)].into();
        let said = [0, 100, 200, 600].map(|ms| signal.sample(at(ms), &View::default()));
        only_pressure_and_cut_differ(&said[0], HELD_BACK, "2.00, but not for long enough");
        only_the_pressure_differs(&said[1], 0.5, "");
        only_the_pressure_differs(&said[3], 2.0, "");
    }

    #[test]
    fn its_time_adds_to_the_delay_and_the_rest_stays() {
        let signal = debounced(&[]);
        answers_as_script(&signal);
        assert_eq!(signal.dynamics().delay(), Duration::from_millis(800));
        assert!(Debounced::new(Script::of([]), Duration::MAX).is_err());
    }
}
