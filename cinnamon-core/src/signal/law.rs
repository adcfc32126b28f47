//! The law of one measured signal: a PI controller on the pressure, in the log domain.
//!
//! A pressure of 1.0 is the target. The budget is the rate that was admitted when the pressure first
//! passed it, times an exponential of the PI's output: cuts and rises are shares of what there is, so one
//! set of gains serves every rate. Gains follow from what the signal declares of itself: `T` and the delay.
//!
//! For signals that integrate, the slope of the pressure says what the load can be: `dp/dt = (a/r - 1)/T`,
//! with `a` the rate admitted a delay ago and `r` the sustainable one. It bounds the budget where the PI
//! alone would be late: far over the target, and far under it. `docs/decisions/0015-sustained-rate.md`
//! has the figures.

use std::collections::VecDeque;

/// Proportional gain, at most; with a delay, [`DELAY_GAIN`] times `T` over the delay.
const KP_MAX: f64 = 1.5;
const DELAY_GAIN: f64 = 0.5;
/// Damping of the closed loop on an integrating signal: `ki = kp²/(4 z² T)`.
const DAMPING: f64 = 0.9;
/// A signal that settles by itself needs the integral to bring it to its target: as fast as its time and its
/// lateness allow. (With the gain for one that integrates, a level of 0.2 s that is read 2 s late was still 76 %
/// over its target half a minute later.)
const SETTLING_GAIN: f64 = 0.5;
/// When the pressure has been under its target for so many times `T`, its delay and a period without a break, it
/// is taken to rest there (one that is held there crosses it now and then) …
const REST_TIMES: f64 = 3.0;
/// … and the integral learns from this much more. (A gauge that came down to 0.99 after an incident, and
/// no further whatever was let in, held back three quarters of the load for minutes.)
const REST: f64 = 0.1;
/// A pressure that would rise by no more than this within `T`, its delay and a period has settled.
const SETTLED: f64 = 0.05;
/// The gate is let go when the pressure has been below this, and nothing was held back, for one `T`.
const RELEASE_PRESSURE: f64 = 0.9;
/// While it does not bind, and is over its target or another one does, no more is allowed than this many
/// times what is really admitted: no wind-up, and no jump when the other lets go.
const TRACK: f64 = 1.1;
/// Most that a budget is worth, in capacities: more only takes longer to come down from.
const BUDGET_MAX: f64 = 1.25;
/// Least reference, as a share of the capacity.
const REFERENCE_MIN: f64 = 0.05;
/// Below this share of the capacity there is no load to speak of: a quiet night.
const LOAD_MIN: f64 = 0.05;
/// Least rate that is taken for having been admitted, as a share of the capacity.
const ADMITTED_MIN: f64 = 0.02;
/// Over this pressure no more is allowed than can be sustained, …
const SUSTAIN_OVER: f64 = 1.5;
/// … and under this one no less.
const SUSTAIN_UNDER: f64 = 0.5;
/// Slopes are taken over the delay, or this share of `T`, whichever is longer …
const SLOPE_SHARE: f64 = 0.25;
/// … and over so many readings.
const SLOPE_READINGS: f64 = 3.0;
/// More than this many times what was admitted is not inferred from a falling pressure.
const SUSTAINED_MAX: f64 = 5.0;
/// Readings, and marks of what was admitted, that are kept.
const MARKS: usize = 64;

/// The load that a signal bears on, cost per second over all its lanes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flow {
    /// Began to run, averaged over half a second.
    pub(crate) admitted: f64,
    pub(crate) offered: f64,
    /// What can be served; 0 unknown.
    pub(crate) capacity: f64,
    /// The lanes' own waits, service times or errors say that they are overloaded.
    pub(crate) confirmed: bool,
    /// This signal's budget holds the gate.
    pub(crate) binds: bool,
    /// Another does.
    pub(crate) other_binds: bool,
}

impl Flow {
    /// Nothing can be said in rates before something was offered and served. (Taken for none, what had not
    /// been counted yet made a signal that was over its target at the start cut to a twentieth.)
    pub(crate) fn is_known(&self) -> bool {
        self.capacity > 0.0 && self.offered > 0.0
    }

    /// There is next to no load: nothing to cut, and nothing to learn from.
    pub(crate) fn is_quiet(&self) -> bool {
        self.offered < LOAD_MIN * self.capacity
    }

    /// What is let in when nothing holds it back.
    pub(crate) fn possible(&self) -> f64 {
        self.admitted.max(self.offered.min(self.capacity))
    }
}

/// A value at a time, seconds.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at_s: f64,
    value: f64,
}

/// The latest marks, at least `spacing_s` apart.
#[derive(Debug)]
struct Marks {
    marks: VecDeque<Mark>,
    spacing_s: f64,
}

impl Marks {
    fn new(span_s: f64) -> Self {
        Self {
            marks: VecDeque::with_capacity(MARKS),
            // Half of them, so that a mark at either end of the span is always there.
            spacing_s: span_s / (MARKS / 2) as f64,
        }
    }

    fn push(&mut self, at_s: f64, value: f64) {
        let early = |last: &Mark| at_s - last.at_s < self.spacing_s;
        if self.marks.back().is_some_and(early) {
            return;
        }
        if self.marks.len() == MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back(Mark { at_s, value });
    }

    fn since(&self, from_s: f64) -> impl Iterator<Item = &Mark> + Clone {
        self.marks.iter().filter(move |mark| mark.at_s >= from_s)
    }

    /// The value at this time: between two marks on the line between them.
    fn at(&self, at_s: f64) -> Option<f64> {
        let after = self.marks.partition_point(|mark| mark.at_s <= at_s);
        let next = self.marks.get(after);
        let Some(&before) = after.checked_sub(1).and_then(|i| self.marks.get(i)) else {
            return next.map(|mark| mark.value);
        };
        let Some(next) = next else {
            return Some(before.value);
        };
        let share = (at_s - before.at_s) / (next.at_s - before.at_s);
        Some(before.value + share * (next.value - before.value))
    }
}

/// The pressure over the last readings.
#[derive(Clone, Copy, Debug)]
struct Trend {
    mean: f64,
    slope_per_s: f64,
    span_s: f64,
}

/// The law's state.
#[derive(Debug)]
pub(crate) struct PressureLaw {
    kp: f64,
    ki_per_s: f64,
    time_s: f64,
    delay_s: f64,
    integrates: bool,
    now_s: f64,
    pressure: f64,
    /// For how long it has been under its target, seconds.
    under_s: f64,
    /// `T`, the delay and a period: after that an answer is to be seen.
    rest_s: f64,
    integral: f64,
    /// `M_ref`: the rate let in when the pressure passed 1; nothing while not engaged.
    reference: Option<f64>,
    unbound_s: f64,
    readings: Marks,
    read_at_s: f64,
    /// All cost that was ever admitted.
    admitted: Marks,
    admitted_sum: f64,
    /// What seems sustainable, cost per second.
    sustained: Option<f64>,
}

impl PressureLaw {
    /// `time_s` is the target or the time constant, `period_s` the time between two readings: what is read once
    /// in two seconds is two seconds late before it is news.
    pub(crate) fn new(time_s: f64, delay_s: f64, period_s: f64, integrates: bool) -> Self {
        let late_s = delay_s + period_s;
        // What adds up between two readings can only be steered as slowly as it is read; too long a time is the
        // cheaper error.
        let time_s = if integrates {
            time_s.max(period_s)
        } else {
            time_s
        };
        // A reading a nanosecond old is as good as none.
        let kp = KP_MAX.min(DELAY_GAIN * time_s / late_s.max(1e-9));
        let slope_s = delay_s.max(SLOPE_SHARE * time_s);
        let damped = kp * kp / (4.0 * DAMPING * DAMPING * time_s);
        let ki_per_s = if integrates {
            damped
        } else {
            damped.max(SETTLING_GAIN / (time_s + 2.0 * late_s))
        };
        Self {
            kp,
            ki_per_s,
            time_s,
            delay_s,
            integrates,
            now_s: 0.0,
            pressure: 0.0,
            under_s: 0.0,
            rest_s: time_s + late_s,
            integral: 0.0,
            reference: None,
            unbound_s: 0.0,
            readings: Marks::new(slope_s),
            read_at_s: f64::NEG_INFINITY,
            admitted: Marks::new(delay_s + slope_s),
            admitted_sum: 0.0,
            sustained: None,
        }
    }

    pub(crate) const fn engaged(&self) -> bool {
        self.reference.is_some()
    }

    /// A new reading, `dt_s` after the one before.
    pub(crate) fn read(&mut self, pressure: f64, dt_s: f64) {
        self.pressure = pressure;
        self.under_s = if pressure < 1.0 {
            self.under_s + dt_s
        } else {
            0.0
        };
        if self.engaged() {
            let rest = if self.under_s > REST_TIMES * self.rest_s {
                REST
            } else {
                0.0
            };
            let error = (self.error() - rest).max(-1.0);
            self.integral += self.ki_per_s * error * dt_s;
        }
        self.readings.push(self.now_s, pressure);
        if self.integrates {
            self.sustained = self.sustainable(dt_s).or(self.sustained);
        } else if self.engaged()
            && self.under_s > self.rest_s
            && let Some(trend) = self.trend(dt_s)
            && trend.mean < RELEASE_PRESSURE
            && trend.slope_per_s * self.rest_s <= SETTLED
        {
            // One that has settled under its target says how much more there is room for. (Without it L0 of a
            // store stood at 7 files of 17 for as long as it was watched, and 0.85 of what could be written was.)
            let room = (1.0 / trend.mean.max(f64::MIN_POSITIVE)).ln().min(1.0);
            self.integral -= room * dt_s / (REST_TIMES * self.rest_s);
        }
        self.read_at_s = self.now_s;
    }

    /// One step of `dt_s` seconds: the budget, or nothing while it has no grip.
    /// It is not to be less than `least`.
    pub(crate) fn tick(&mut self, dt_s: f64, flow: &Flow, least: f64) -> Option<f64> {
        self.now_s += dt_s;
        self.admitted_sum += flow.admitted * dt_s;
        if self.integrates {
            self.admitted.push(self.now_s, self.admitted_sum);
        }
        if flow.is_quiet() {
            // With next to no load there is nothing to cut, and nothing to start from: a pressure just over its
            // target in a quiet night would leave a budget of nothing for the morning.
            self.release();
            return None;
        }
        if self.reference.is_none() {
            if self.pressure <= 1.0 || !flow.is_known() {
                return None;
            }
            self.reference = Some(flow.possible().max(REFERENCE_MIN * flow.capacity));
            self.integral = 0.0;
            self.unbound_s = 0.0;
        }
        let most = BUDGET_MAX * flow.capacity.max(flow.admitted);
        let mut budget = self.output();
        // A budget that binds is what is admitted, but for the scatter of the one and the other; cut to that
        // all the same, it crept down, and a follower was held 2.5 % under its target.
        if (self.pressure >= 1.0 && !flow.binds) || flow.other_binds {
            let admitted = flow.admitted.max(ADMITTED_MIN * flow.capacity);
            budget = self.hold(budget.min(TRACK * admitted));
        }
        if let Some(sustained) = self.sustained {
            if self.pressure > SUSTAIN_OVER {
                budget = self.hold(budget.min(sustained.max(REFERENCE_MIN * flow.capacity)));
            } else if self.pressure < SUSTAIN_UNDER && !flow.other_binds {
                budget = self.hold(budget.max(sustained.min(most)));
            }
        }
        budget = self.hold(budget.min(most).max(least));

        let binds = !flow.other_binds && budget < flow.offered.min(flow.capacity);
        self.unbound_s = if self.pressure < RELEASE_PRESSURE && !binds {
            self.unbound_s + dt_s
        } else {
            0.0
        };
        if self.unbound_s >= self.time_s {
            self.release();
            return None;
        }
        Some(budget)
    }

    /// Lets the gate go and forgets the episode.
    pub(crate) fn release(&mut self) {
        self.reference = None;
        self.integral = 0.0;
        self.unbound_s = 0.0;
    }

    /// Forgets the readings too: what comes next has nothing to do with them.
    pub(crate) fn forget(&mut self) {
        self.release();
        self.pressure = 0.0;
        self.sustained = None;
        self.readings.marks.clear();
    }

    fn error(&self) -> f64 {
        (self.pressure - 1.0).clamp(-1.0, 1.0)
    }

    fn output(&self) -> f64 {
        self.reference.unwrap_or(0.0) * (-(self.kp * self.error() + self.integral)).exp()
    }

    /// Sets the integral so that the output is `budget`: no wind-up, and no jump from it.
    fn hold(&mut self, budget: f64) -> f64 {
        if let Some(reference) = self.reference
            && budget > 0.0
            && budget != self.output()
        {
            self.integral = -(budget / reference).ln() - self.kp * self.error();
        }
        budget
    }

    /// How the pressure went over the delay, a quarter of `T` or three readings, whichever is longest.
    fn trend(&self, period_s: f64) -> Option<Trend> {
        let window_s = self
            .delay_s
            .max(SLOPE_SHARE * self.time_s)
            .max(SLOPE_READINGS * period_s);
        let recent = self.readings.since(self.now_s - window_s);
        let count = recent.clone().count() as f64;
        let mean = |of: fn(&Mark) -> f64| recent.clone().map(of).sum::<f64>() / count;
        let (mean_s, mean_p) = (mean(|mark| mark.at_s), mean(|mark| mark.value));
        let spread: f64 = recent
            .clone()
            .map(|mark| (mark.at_s - mean_s).powi(2))
            .sum();
        let first = recent.clone().next()?;
        let span_s = self.now_s - first.at_s;
        if count < 2.0 || spread <= 0.0 {
            return None;
        }
        let slope = recent.map(|mark| (mark.at_s - mean_s) * (mark.value - mean_p));
        Some(Trend {
            mean: mean_p,
            slope_per_s: slope.sum::<f64>() / spread,
            span_s,
        })
    }

    /// The rate that would hold the pressure where it is, from its slope and from what was admitted when
    /// the readings were true.
    fn sustainable(&self, period_s: f64) -> Option<f64> {
        let Trend {
            slope_per_s: slope,
            span_s,
            ..
        } = self.trend(period_s)?;
        let true_at_s = self.now_s - self.delay_s;
        let admitted =
            (self.admitted.at(true_at_s)? - self.admitted.at(true_at_s - span_s)?) / span_s;
        let excess = (1.0 + self.time_s * slope).max(1.0 / SUSTAINED_MAX);
        (admitted > 0.0).then_some(admitted / excess)
    }
}

#[cfg(test)]
mod tests;
