//! Whether a signal answers to the load at all.
//!
//! Memory that somebody else holds, or a gauge that is stuck, stays where it is whatever is let in; to cut
//! further is harm without use. So a signal whose cuts do not show loses what it may take, in two steps.

/// A signal does not respond when the load was halved (a little scatter allowed), or cut by all that the
/// signal may take …
const HALVED: f64 = 0.55;
const SPENT: f64 = 1.05;
/// … and for so many `T` and delays its pressure stayed within this much …
const RESPONSE_TIMES: f64 = 5.0;
const FLAT: f64 = 0.05;
/// … away from the target: one that is held at its target stands still, too. (As a share of the pressure,
/// and without the delay, a follower six targets behind whose time was declared five times too short was
/// taken for stuck while it caught up.)
const OFF_TARGET: f64 = 0.02;
/// … although its budget was moved by this factor in the meantime, or there is no more to take. (One that is
/// nearly at its target is hardly asked for anything.)
const ASKED: f64 = 0.1;
/// Once it was found not to respond, it must move by this much to be believed again.
const MOVED: f64 = 0.15;
/// What a signal may take that was found out once …
const AUTHORITY_DOUBTED: f64 = 0.5;
/// … and twice.
const AUTHORITY_UNRESPONSIVE: f64 = 0.1;

/// Watches whether the pressure answers to the load.
#[derive(Debug, Default)]
pub(crate) struct Response {
    /// Least and greatest pressure since it began to stand still.
    band: Option<(f64, f64)>,
    flat_s: f64,
    /// The budget at the time.
    budget: Option<f64>,
    /// 0 responds, 1 half of its authority is gone, 2 nearly all.
    lost: u8,
    /// Where it stood still.
    level: f64,
}

impl Response {
    /// A new reading; `binary` when it is that of a detector, which has no target to stand at.
    pub(crate) fn read(&mut self, pressure: f64, binary: bool) {
        let held = !binary && (pressure - 1.0).abs() <= OFF_TARGET;
        let moved = (pressure - self.level).abs() > MOVED;
        if self.lost > 0 && moved {
            *self = Self::default();
        }
        let (least, most) = self.band.unwrap_or((pressure, pressure));
        let (least, most) = (least.min(pressure), most.max(pressure));
        let flat = most - least <= FLAT && !held;
        if flat {
            self.band = Some((least, most));
        } else {
            self.band = Some((pressure, pressure));
            self.flat_s = 0.0;
            self.budget = None;
        }
    }

    /// One step; whether it has just been found out.
    pub(crate) fn tick(&mut self, cut: &Cut, own: f64) -> bool {
        let halved = cut.admitted <= HALVED * cut.reference;
        let spent = cut.budget <= SPENT * cut.least;
        // Once it was found out, what it is given back is no cut, and it need not be cut again.
        let shows = halved || (cut.binding && spent) || self.lost > 0;
        if !shows {
            return false;
        }
        self.flat_s += cut.dt_s;
        let since = self.budget.get_or_insert(cut.budget);
        let asked = self.lost > 0 || spent || (cut.budget / *since).ln().abs() >= ASKED;
        if self.flat_s < RESPONSE_TIMES * cut.time_s || self.lost == 2 || !asked {
            return false;
        }
        self.lost = if own <= AUTHORITY_DOUBTED {
            2
        } else {
            self.lost + 1
        };
        self.flat_s = 0.0;
        self.budget = None;
        self.level = self.band.map_or(0.0, |(least, most)| (least + most) / 2.0);
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
    /// `T` and the delay.
    pub(crate) time_s: f64,
}
