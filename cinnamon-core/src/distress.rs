//! What confirms a signal that only infers: the lane's own waits, service times and errors.
//!
//! LinkedIn's Hodor lets a heartbeat or a stall detector fire only when a fast mean of the latency has
//! crossed a slow one by a factor, for micro-pauses fire it without harm to anybody.

use crate::permit::Outcome;
use crate::signal::{Finished, Symptom};

/// The slow mean of the service time.
const SLOW_MEMORY_S: f64 = 30.0;
/// Until it is made of this much, it is no yardstick: the first few requests of a process are not like the
/// others.
const SLOW_LEAST_S: f64 = 5.0;
/// Service times are longer than usual when they are so many times the slow mean.
const SLOW_FACTOR: f64 = 1.5;
/// Overload-type outcomes are remembered over this many completions …
const ERROR_MEMORY: f64 = 200.0;
/// … and confirm an overload from this share on: below it are the timeouts of a normal day.
const ERROR_SHARE: f64 = 0.05;

/// Symptoms of overload that a lane, or several, show by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    waits: bool,
    slow: bool,
    errors: bool,
}

impl Shown {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            waits: self.waits || other.waits,
            slow: self.slow || other.slow,
            errors: self.errors || other.errors,
        }
    }

    /// Whether they confirm a signal that is itself this symptom.
    pub(crate) fn confirm(self, symptom: Symptom) -> bool {
        (self.waits && symptom != Symptom::Waits)
            || (self.slow && symptom != Symptom::ServiceTimes)
            || (self.errors && symptom != Symptom::Errors)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Distress {
    finished: Finished,
    /// `finished` at the last tick.
    seen: Finished,
    error_share: f64,
    slow_mean_s: f64,
    slow_age_s: f64,
    waits: bool,
    slow: bool,
}

impl Distress {
    /// So many requests finished so; `None` when their permits were dropped.
    pub(crate) fn finished(&mut self, outcome: Option<Outcome>, requests: u64) {
        let count = match outcome {
            Some(Outcome::Success) => &mut self.finished.success,
            Some(Outcome::Failure) => &mut self.finished.failure,
            Some(Outcome::Overloaded) => &mut self.finished.overloaded,
            Some(Outcome::Ignored) | None => &mut self.finished.ignored,
        };
        *count += requests;
    }

    pub(crate) const fn counts(&self) -> Finished {
        self.finished
    }

    /// One step. `waits`: the backlog is over its target.
    pub(crate) fn tick(&mut self, dt_s: f64, service_mean_s: f64, waits: bool) {
        self.waits = waits;
        let before = std::mem::replace(&mut self.seen, self.finished);
        let total = (self.seen.total() - before.total()) as f64;
        if total > 0.0 {
            let share = (self.seen.overloaded - before.overloaded) as f64 / total;
            self.error_share += (1.0 - (-total / ERROR_MEMORY).exp()) * (share - self.error_share);
        }
        self.slow =
            self.slow_age_s >= SLOW_LEAST_S && service_mean_s > SLOW_FACTOR * self.slow_mean_s;
        if service_mean_s > 0.0 {
            self.slow_age_s = (self.slow_age_s + dt_s).min(SLOW_MEMORY_S);
            // The plain mean while it is young.
            let gain = (dt_s / self.slow_age_s).min(1.0);
            self.slow_mean_s += gain * (service_mean_s - self.slow_mean_s);
        }
    }

    /// How the lane itself shows that it is overloaded.
    pub(crate) fn shows(&self) -> Shown {
        Shown {
            waits: self.waits,
            slow: self.slow,
            errors: self.error_share > ERROR_SHARE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn confirms(distress: &Distress) -> bool {
        distress.shows().confirm(Symptom::Other)
    }

    #[test]
    fn waits_slow_service_and_errors_confirm_and_a_quiet_day_does_not() {
        let mut distress = Distress::default();
        for _ in 0..1_000 {
            (0..99).for_each(|_| distress.finished(Some(Outcome::Success), 1));
            distress.finished(Some(Outcome::Overloaded), 1);
            distress.tick(0.02, 0.01, false);
            assert!(!confirms(&distress));
        }
        distress.tick(0.02, 0.01, true);
        assert!(confirms(&distress), "it waits");
        distress.tick(0.02, 0.016, false);
        assert!(confirms(&distress), "it is slow");
        let mut young = Distress::default();
        young.tick(0.02, 0.01, false);
        young.tick(0.02, 0.1, false);
        assert!(!confirms(&young), "two samples are no yardstick");
        distress.tick(0.02, 0.01, false);
        assert!(!confirms(&distress));
        (0..20).for_each(|_| distress.finished(Some(Outcome::Overloaded), 1));
        distress.tick(0.02, 0.01, false);
        assert!(confirms(&distress), "it fails");
        let shown = distress.shows();
        assert!(!shown.confirm(Symptom::Errors), "nobody confirms himself");
        assert!(shown.confirm(Symptom::Waits));
        assert_eq!(distress.counts().total(), 100_020);
    }

    #[test]
    fn a_service_that_stays_slow_is_the_usual_one_in_the_end() {
        let mut distress = Distress::default();
        (0..2_000).for_each(|_| distress.tick(0.02, 0.01, false));
        let ticks = (0..10_000).take_while(|_| {
            distress.tick(0.02, 0.02, false);
            confirms(&distress)
        });
        let seconds = ticks.count() as f64 * 0.02;
        assert!((10.0..60.0).contains(&seconds), "{seconds}");
    }
}
