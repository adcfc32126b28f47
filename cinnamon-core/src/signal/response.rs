//! Whether a signal answers to the load at all.
//!
//! Memory that somebody else holds, or a gauge that is stuck, stays where it is whatever is let in; to cut
//! further is harm without use. So a signal whose cuts do not show loses what it may take, in two steps.
//!
//! A signal is *asked* when its budget is moved, and *answers* when its pressure then goes the way it should:
//! down after a cut, up after a rise. What matters is the answer, not that the pressure moves: one that climbs
//! while the load is cut does not answer either, and one that has answered and stands at the end of its
//! authority is not asked again. Pressures are smoothed, so that noise is no answer.

/// The pressure answers when it has gone so far the right way.
const ANSWER: f64 = 0.05;
/// It is asked when its budget was moved by this factor (as an exponent) since it last answered …
const ASKED: f64 = 0.1;
/// … or by this one, while it stands at its target: held there it is asked for little.
const ASKED_AT_TARGET: f64 = 0.35;
const AT_TARGET: f64 = 0.02;
/// It does not respond when it was asked for so many times its own time (`T`, the delay and a period) …
const RESPONSE_TIMES: f64 = 5.0;
/// … and the load was halved (a little scatter allowed), or cut by all that the signal may take.
const HALVED: f64 = 0.55;
const SPENT: f64 = 1.05;
/// Once found out, it must move by this much to be believed again, either way: what it is given back shows,
/// if it was about this load …
const MOVED: f64 = 0.15;
/// … on top of so many times what it climbed by itself while it was cut.
const DRIFT: f64 = 1.5;
/// What a signal may take that was found out once …
const AUTHORITY_DOUBTED: f64 = 0.5;
/// … and twice.
const AUTHORITY_UNRESPONSIVE: f64 = 0.1;

/// Watches whether the pressure answers to the load.
#[derive(Debug, Default)]
pub(crate) struct Response {
    /// The pressure, smoothed over its own time; and its extremes since it last answered.
    smooth: Option<f64>,
    least: f64,
    most: f64,
    /// The budget from which it was moved since it last answered; what was possible before it took hold, as
    /// long as it has not.
    moved_from: Option<f64>,
    /// Its budget in the last step.
    budget: f64,
    unanswered_s: f64,
    /// Where it stood when it was asked.
    from: f64,
    /// 0 responds, 1 half of its authority is gone, 2 nearly all.
    lost: u8,
    /// Where it stood when it was found out, how fast it climbed then, per second, and how long ago that is.
    level: f64,
    drift_per_s: f64,
    lost_s: f64,
}

/// What a signal was given in a tick, cost per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) dt_s: f64,
    /// Its budget.
    pub(crate) budget: f64,
    /// What it must leave alone.
    pub(crate) least: f64,
    /// What its lanes let in now, and what was possible when it took hold.
    pub(crate) admitted: f64,
    pub(crate) reference: f64,
    /// It holds the gate of some lane.
    pub(crate) binding: bool,
    /// `T`, the delay and a period.
    pub(crate) time_s: f64,
}

impl Response {
    /// A new reading, `dt_s` after the one before. `silent` when it is that of a detector that does not fire:
    /// that is the answer.
    pub(crate) fn read(&mut self, pressure: f64, dt_s: f64, time_s: f64, silent: bool) {
        let smooth = match self.smooth {
            Some(smooth) => smooth + (1.0 - (-dt_s / time_s).exp()) * (pressure - smooth),
            None => {
                (self.least, self.most) = (pressure, pressure);
                pressure
            }
        };
        // Whoever crosses the target is held there.
        let crosses = self
            .smooth
            .is_some_and(|last| (last > 1.0) != (smooth > 1.0));
        self.smooth = Some(smooth);
        self.least = self.least.min(smooth);
        self.most = self.most.max(smooth);
        let moved = smooth - self.level;
        let by_itself = DRIFT * self.drift_per_s * self.lost_s;
        if self.lost > 0 && (silent || moved < -MOVED || moved > MOVED + by_itself) {
            self.lost = 0;
            self.answer(smooth);
        } else if silent || crosses {
            self.answer(smooth);
        }
    }

    fn answer(&mut self, smooth: f64) {
        self.moved_from = Some(self.budget);
        self.unanswered_s = 0.0;
        (self.least, self.most) = (smooth, smooth);
    }

    /// One step; whether it has just been found out.
    pub(crate) fn tick(&mut self, cut: &Cut, own: f64) -> bool {
        let (Some(smooth), true) = (self.smooth, cut.binding || self.lost > 0) else {
            return false;
        };
        // Over its target it is asked by a cut, under it by a rise, from the most or the least that it had.
        self.budget = cut.budget;
        let since = self.moved_from.unwrap_or(cut.reference);
        let (since, answers) = if smooth > 1.0 {
            (since.max(cut.budget), smooth <= self.most - ANSWER)
        } else {
            (since.min(cut.budget), smooth >= self.least + ANSWER)
        };
        let asked = (cut.budget / since).ln().abs();
        self.moved_from = Some(since);
        if answers && self.lost == 0 {
            self.answer(smooth);
            return false;
        }
        let least_asked = if (smooth - 1.0).abs() <= AT_TARGET {
            ASKED_AT_TARGET
        } else {
            ASKED
        };
        if self.unanswered_s == 0.0 {
            self.from = smooth;
        }
        if self.lost > 0 {
            self.lost_s += cut.dt_s;
        }
        let halved = cut.admitted <= HALVED * cut.reference;
        let shows = halved || cut.budget <= SPENT * cut.least || self.lost > 0;
        if asked < least_asked && self.lost == 0 {
            self.unanswered_s = 0.0;
            return false;
        }
        if !shows {
            return false;
        }
        self.unanswered_s += cut.dt_s;
        if self.unanswered_s < RESPONSE_TIMES * cut.time_s || self.lost == 2 {
            return false;
        }
        if self.lost == 0 {
            self.level = smooth;
            self.drift_per_s = ((smooth - self.from) / self.unanswered_s).max(0.0);
            self.lost_s = 0.0;
        }
        self.lost = if own <= AUTHORITY_DOUBTED {
            2
        } else {
            self.lost + 1
        };
        self.unanswered_s = 0.0;
        true
    }

    /// What is left of this authority, a share of the capacity.
    pub(crate) fn authority(&self, own: f64) -> f64 {
        match self.lost {
            0 => own,
            1 => own.min(AUTHORITY_DOUBTED),
            _ => own.min(AUTHORITY_UNRESPONSIVE),
        }
    }

    /// Whether it was found out.
    pub(crate) const fn is_doubted(&self) -> bool {
        self.lost > 0
    }
}
