//! A firing that requests feel: [`ConfirmedBy`].

use std::fmt;

use cinnamon_core::{Dynamics, Instant, Reading, Signal, View};

use super::{HELD_BACK, inner_answers, noted};
use crate::latency::{Confirmation, Latency};
use crate::setting::SettingError;

/// A signal that counts only while requests feel it: a fast mean of the latency must be so many times a slow one.
///
/// LinkedIn found that micro-pauses fired its detectors and harmed nobody; since then a detector there counts only once
/// latency confirms it. Unconfirmed, a pressure is held under 1.0; culprits are shown and not throttled; a cut, which is asked
/// for whatever the pressure, passes. The fast mean has [`CONFIRM_FAST`](crate::CONFIRM_FAST), the slow one
/// [`CONFIRM_SLOW`](crate::CONFIRM_SLOW); the slow one learns ten
/// times more slowly while latency is raised, so that a long incident does not become the yardstick. For the first ten
/// seconds, and where the latency is not known, nothing is confirmed.
///
/// [`Heartbeat`](crate::Heartbeat) and [`StallTime`](crate::StallTime) have it built in.
///
/// ```
/// use cinnamon_core::Dynamics;
/// use cinnamon_signals::{ConfirmedBy, LaneLatency, Push};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), cinnamon_signals::SettingError> {
/// let (watchdog, handle) = Push::new("watchdog", Dynamics::binary(Duration::from_secs(2)));
/// let confirmed = ConfirmedBy::new(watchdog, LaneLatency::new()).factor(2.0)?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a signal does nothing until a controller has it"]
pub struct ConfirmedBy<S, L> {
    inner: S,
    latency: L,
    confirmation: Confirmation,
}

impl<S: fmt::Debug, L> fmt::Debug for ConfirmedBy<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfirmedBy")
            .field("inner", &self.inner)
            .field("confirmation", &self.confirmation)
            .finish_non_exhaustive()
    }
}

impl<S: Signal, L: Latency> ConfirmedBy<S, L> {
    /// `signal`, while `latency` confirms it.
    pub const fn new(signal: S, latency: L) -> Self {
        Self {
            inner: signal,
            latency,
            confirmation: Confirmation::new(),
        }
    }

    /// How many times the slow mean the fast one must be. Default
    /// [`DEFAULT_CONFIRM_FACTOR`](crate::DEFAULT_CONFIRM_FACTOR). A lower one confirms by chance; a higher one waits until
    /// callers have suffered.
    ///
    /// # Errors
    ///
    /// Unless it is from 1.05 to 100.
    pub fn factor(mut self, factor: f64) -> Result<Self, SettingError> {
        self.confirmation.set_factor(factor)?;
        Ok(self)
    }
}

impl<S: Signal, L: Latency> Signal for ConfirmedBy<S, L> {
    inner_answers!();

    fn dynamics(&self) -> Dynamics {
        self.inner.dynamics()
    }

    fn sample(&mut self, now: Instant, view: &View) -> Reading {
        let reading = self.inner.sample(now, view);
        let latency_s = self.latency.latency_s(now, view);
        let confirmed = self.confirmation.look(now, latency_s);
        match reading.value() {
            Some(pressure) if pressure >= 1.0 && !confirmed => {
                let text = self.confirmation.text();
                let own = format!("{pressure:.2}, not confirmed: {text}");
                noted(reading.map_pressure(|_| HELD_BACK).without_cut(), own)
            }
            _ => reading,
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

    #[test]
    fn it_counts_only_while_requests_feel_it() {
        let latency_s = std::sync::Arc::new(std::sync::Mutex::new(Some(0.010)));
        let source = std::sync::Arc::clone(&latency_s);
        let script = Script::pressures(std::iter::repeat_n(1.0, 1_500));
        let mut signal = ConfirmedBy::new(script, move || *source.lock().unwrap());
        answers_as_script(&signal);
        let firing = |seen: Vec<Option<f64>>| {
            let fires = |pressure: &Option<f64>| pressure.is_some_and(|p| p >= 1.0);
            seen.iter().filter(|pressure| fires(pressure)).count()
        };
        assert_eq!(firing(run(&mut signal, 0, 600)), 0);
        *latency_s.lock().unwrap() = Some(0.030);
        assert!(firing(run(&mut signal, 60_000, 100)) > 90);
        *latency_s.lock().unwrap() = Some(0.010);
        run(&mut signal, 70_000, 100);
        assert_eq!(firing(run(&mut signal, 80_000, 100)), 0);
        *latency_s.lock().unwrap() = None;
        assert_eq!(firing(run(&mut signal, 90_000, 100)), 0);
        let said = signal.sample(at(100_000), &View::default());
        let note = "1.00, not confirmed: latency ";
        assert!(format!("{said:?}").contains(note), "{said:?}");
    }

    #[test]
    fn it_changes_the_pressure_alone() {
        let mut signal = ConfirmedBy::new(Script::of([full(1.5), full(0.7)]), || None::<f64>);
        let said = signal.sample(at(0), &View::default());
        let own = said.get_note().strip_suffix("; inner").unwrap();
        only_pressure_and_cut_differ(&said, HELD_BACK, own);
        assert!(own.starts_with("1.50, not confirmed: "), "{own}");
        let said = signal.sample(at(200), &View::default());
        only_the_pressure_differs(&said, 0.7, "");
    }

    #[test]
    fn a_pressure_below_its_target_passes_and_bad_factors_are_refused() {
        let script = Script::pressures([0.99, 0.2, f64::NAN]);
        let mut signal = ConfirmedBy::new(script, || None::<f64>);
        let seen = run(&mut signal, 0, 4);
        assert_eq!((seen[0], seen[1], seen[3]), (Some(0.99), Some(0.2), None));
        assert!(seen[2].unwrap().is_nan());
        for factor in [1.0, f64::NAN, 101.0] {
            assert!(
                ConfirmedBy::new(Script::of([]), || None)
                    .factor(factor)
                    .is_err()
            );
        }
    }
}
