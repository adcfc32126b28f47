//! Signals made of signals.
//!
//! Each wraps another and is a signal itself, so they nest: `Smoothed::new(Debounced::new(signal, ..)?, ..)?`. What
//! is not said to change stays as the wrapped signal has it: name, lanes, authority, symptom, remedy, period, range. Of a
//! reading they change the pressure alone: culprits, cut and time stay, and the note stands after their own.

use cinnamon_core::Reading;

mod confirmed;
mod debounced;
mod hysteresis;
mod max_of;
mod smoothed;
mod stale_after;

pub use confirmed::ConfirmedBy;
pub(crate) use debounced::Lasting;
pub use debounced::{DEBOUNCE_MAX, Debounced};
pub use hysteresis::{DWELL_MAX, Hysteresis};
pub use max_of::MaxOf;
pub use smoothed::{SMOOTHING_MAX, SMOOTHING_MIN, Smoothed};
pub use stale_after::{STALE_AFTER_MAX, STALE_AFTER_MIN, StaleAfter};

/// The most that is said of a pressure that does not count yet: under the target, and over the value at which a gate
/// is let go, so that what holds one does not lose it over a doubt.
pub(crate) const HELD_BACK: f64 = 0.95;
/// A gate is let go below this pressure.
pub(crate) const RELEASED: f64 = 0.9;

/// The reading with this said of it, before what it said itself.
pub(crate) fn noted(reading: Reading, own: String) -> Reading {
    let note = match reading.get_note() {
        "" => own,
        inner => format!("{own}; {inner}"),
    };
    reading.note(note)
}

/// The methods of `Signal` that the one in the field `inner` answers.
macro_rules! inner_answers {
    () => {
        fn name(&self) -> &str {
            self.inner.name()
        }

        fn range(&self) -> std::ops::RangeInclusive<f64> {
            self.inner.range()
        }

        fn scope(&self) -> cinnamon_core::Scope {
            self.inner.scope()
        }

        fn authority(&self) -> cinnamon_core::Authority {
            self.inner.authority()
        }

        fn symptom(&self) -> cinnamon_core::Symptom {
            self.inner.symptom()
        }

        fn remedy(&self) -> cinnamon_core::Remedy {
            self.inner.remedy()
        }

        fn period(&self) -> std::time::Duration {
            self.inner.period()
        }
    };
}

pub(crate) use inner_answers;

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::VecDeque;
    use std::ops::RangeInclusive;
    use std::time::Duration;

    use cinnamon_core::{
        Authority, Culprit, Dynamics, Instant, Priority, Reading, Remedy, Scope, Signal, Symptom,
        View, Who,
    };

    /// Says what it was given, then that it has nothing to say.
    pub(crate) struct Script {
        pub(crate) name: &'static str,
        pub(crate) says: VecDeque<Reading>,
    }

    impl Script {
        pub(crate) fn of(readings: impl IntoIterator<Item = Reading>) -> Self {
            Self {
                name: "script",
                says: readings.into_iter().collect(),
            }
        }

        pub(crate) fn pressures(pressures: impl IntoIterator<Item = f64>) -> Self {
            Self::of(pressures.into_iter().map(Reading::pressure))
        }
    }

    impl Signal for Script {
        fn name(&self) -> &str {
            self.name
        }
        fn dynamics(&self) -> Dynamics {
            Dynamics::settling(Duration::from_secs(3)).delayed(Duration::from_millis(500))
        }
        fn range(&self) -> RangeInclusive<f64> {
            0.0..=4.0
        }
        fn scope(&self) -> Scope {
            Scope::Lane("write".to_owned())
        }
        fn authority(&self) -> Authority {
            Authority::Measuring
        }
        fn symptom(&self) -> Symptom {
            Symptom::Waits
        }
        fn remedy(&self) -> Remedy {
            Remedy::Precise
        }
        fn period(&self) -> Duration {
            Duration::from_millis(200)
        }
        fn sample(&mut self, _now: Instant, _view: &View) -> Reading {
            let next = self.says.pop_front();
            next.unwrap_or_else(|| Reading::unavailable("the script is over"))
        }
    }

    pub(crate) fn at(ms: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(ms))
    }

    /// One sample each 100 ms from `from_ms` on: the pressures, and nothing where there was none.
    pub(crate) fn run(signal: &mut impl Signal, from_ms: u64, samples: u64) -> Vec<Option<f64>> {
        let sample = |i| {
            signal
                .sample(at(from_ms + 100 * i), &View::default())
                .value()
        };
        (0..samples).map(sample).collect()
    }

    /// It answers for the wrapped one in all but dynamics.
    pub(crate) fn answers_as_script(signal: &impl Signal) {
        let script = Script::of([]);
        assert_eq!(signal.name(), script.name());
        assert_eq!(signal.range(), script.range());
        assert_eq!(signal.scope(), script.scope());
        assert_eq!(signal.authority(), script.authority());
        assert_eq!(signal.symptom(), script.symptom());
        assert_eq!(signal.remedy(), script.remedy());
        assert_eq!(signal.period(), script.period());
    }

    /// This pressure, and all that a reading can say beside it.
    pub(crate) fn full(pressure: f64) -> Reading {
        let culprit = Culprit {
            who: Who::Key(7),
            share: 0.4,
        };
        Reading::pressure(pressure)
            .culprits(vec![culprit])
            .cut(Priority::from_number(4 * 128 + 5).unwrap())
            .taken_at(at(17))
            .note("inner")
    }

    /// It is that pressure, all else is as in [`full`], and `own` is what was noted before.
    pub(crate) fn only_the_pressure_differs(said: &Reading, pressure: f64, own: &str) {
        let note = match own {
            "" => "inner".to_owned(),
            own => format!("{own}; inner"),
        };
        assert_eq!(*said, full(pressure).note(note));
    }

    /// The same of a reading that was held back: its cut does not count either.
    pub(crate) fn only_pressure_and_cut_differ(said: &Reading, pressure: f64, own: &str) {
        let note = format!("{own}; inner");
        assert_eq!(*said, full(pressure).note(note).without_cut());
    }
}
