//! A gauge that stands still: [`StaleAfter`].

use std::time::Duration;

use cinnamon_core::{Dynamics, Instant, Reading, Signal, View};

use super::inner_answers;
use crate::setting::{SettingError, time_within};

/// Least age of a [`StaleAfter`]: a few samples, at least.
pub const STALE_AFTER_MIN: Duration = Duration::from_millis(100);
/// Greatest one: what has not moved for a day has not been watched.
pub const STALE_AFTER_MAX: Duration = Duration::from_secs(86_400);

/// A signal that is taken for lost once it has said the very same thing for too long: a cached value that nobody
/// renews, a gauge whose exporter hangs, a file that is not written any more.
///
/// A supervisor knows the age of a reading only if the reading tells it
/// ([`Reading::taken_at`]); this is for gauges that do not. Noise is life: a true measurement hardly ever repeats
/// itself to the last digit. A pressure of 0 is the exception, and is never stale: it is what a calm gauge says all
/// night, and it sheds nothing. Do not put it round a signal that says 1.0 for as long as it fires.
#[derive(Clone, Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct StaleAfter<S> {
    inner: S,
    age: Duration,
    /// What it said last, and when that was first said.
    last: Option<(Instant, Reading)>,
}

impl<S: Signal> StaleAfter<S> {
    /// `signal`, unless it has not changed for `age`.
    ///
    /// # Errors
    ///
    /// Unless `age` is from [`STALE_AFTER_MIN`] to [`STALE_AFTER_MAX`].
    pub fn new(signal: S, age: Duration) -> Result<Self, SettingError> {
        let bounds = STALE_AFTER_MIN..=STALE_AFTER_MAX;
        Ok(Self {
            inner: signal,
            age: time_within("stale_after.age", age, bounds, "from 0.1 to 86400 seconds")?,
            last: None,
        })
    }
}

impl<S: Signal> Signal for StaleAfter<S> {
    inner_answers!();

    fn dynamics(&self) -> Dynamics {
        self.inner.dynamics()
    }

    fn sample(&mut self, now: Instant, view: &View) -> Reading {
        let reading = self.inner.sample(now, view);
        if reading.value().is_none() || reading.value() == Some(0.0) {
            self.last = None;
            return reading;
        }
        match &mut self.last {
            // First said in the future: the clock was set back.
            Some((since, last)) if *last == reading && *since <= now => {
                let age = now.since(*since);
                if age >= self.age {
                    let age_s = age.as_secs_f64();
                    return Reading::unavailable(format!("it has not moved for {age_s:.1} s"));
                }
            }
            last => *last = Some((now, reading.clone())),
        }
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{
        Script, answers_as_script, at, full, only_the_pressure_differs, run,
    };
    use super::*;

    fn stale_after(pressures: &[f64]) -> StaleAfter<Script> {
        let script = Script::pressures(pressures.iter().copied());
        StaleAfter::new(script, Duration::from_millis(300)).unwrap()
    }

    #[test]
    fn what_stands_still_is_lost_until_it_moves() {
        let mut signal = stale_after(&[1.5, 1.5, 1.5, 1.5, 1.5, 1.6, 1.6]);
        let moved = Some(1.6);
        let seen = run(&mut signal, 0, 7);
        assert_eq!(seen[2..], [Some(1.5), None, None, moved, moved]);
        let mut moving = stale_after(&[1.5, 1.500_000_1, 1.5, 1.500_000_1, 1.5, 1.500_000_1]);
        assert!(run(&mut moving, 0, 6).iter().all(Option::is_some));
    }

    #[test]
    fn a_calm_gauge_is_not_stale_and_a_clock_set_back_not_either() {
        let mut calm = stale_after(&[0.0; 20]);
        assert!(run(&mut calm, 0, 20).iter().all(Option::is_some));
        let mut signal = stale_after(&[1.5; 6]);
        run(&mut signal, 5_000, 3);
        assert!(run(&mut signal, 0, 3).iter().all(Option::is_some));
    }

    #[test]
    fn a_reading_that_moves_passes_whole() {
        let mut signal = stale_after(&[]);
        signal.inner.says = vec![full(1.5), full(1.6)].into();
        only_the_pressure_differs(&signal.sample(at(0), &View::default()), 1.5, "");
        only_the_pressure_differs(&signal.sample(at(900), &View::default()), 1.6, "");
    }

    #[test]
    fn the_rest_stays_as_it_is() {
        let signal = stale_after(&[]);
        answers_as_script(&signal);
        assert_eq!(signal.dynamics(), Script::of([]).dynamics());
        assert!(StaleAfter::new(Script::of([]), Duration::ZERO).is_err());
    }
}
