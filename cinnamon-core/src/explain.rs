//! Decisions that explain themselves: what would happen to a request now, and what was decided in the last
//! ticks and why.

use std::fmt;

use serde::Serialize;

use crate::priority::Rank;
use crate::signal::Mode;
use crate::verdict::{Binding, Reason};

/// Ticks that are remembered: ten seconds of the slowest ones under load.
pub const DECISIONS_KEPT: usize = 512;

/// What would happen to a request if it were offered now. See [`Lane::explain`](crate::Lane::explain).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// What would become of it.
    pub answer: Expected,
    /// Its rank: tier, cohort and fraction.
    pub rank: Rank,
    /// Its cost, work units: its own, or what its class has taught.
    pub cost: u32,
    /// The gate's threshold: the first rank not admitted.
    pub threshold: Rank,
    /// What holds it there.
    pub binding: Binding,
    /// The same in words.
    pub bound_by: String,
    /// Free slots of the lane.
    pub free: u32,
    /// Requests that wait.
    pub waiting: u32,
    /// Whether the answer would count; under [`Mode::Monitor`] it would run all the same.
    pub mode: Mode,
}

/// What would become of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It would run at once.
    Runs,
    /// It would wait, behind whoever is more important and has waited longer; whoever would not wait would
    /// be refused as busy.
    Waits,
    /// It would be refused.
    Refused(Reason),
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let priority = self.rank.priority();
        match self.answer {
            Expected::Runs => write!(f, "{priority} would run at once"),
            Expected::Waits => write!(f, "{priority} would wait, with {} others", self.waiting),
            Expected::Refused(reason) => write!(f, "{priority} would be refused: {reason}"),
        }?;
        write!(
            f,
            "; the threshold is {} ({}), {} slots are free",
            self.threshold, self.bound_by, self.free
        )?;
        if self.mode != Mode::Enforce {
            write!(
                f,
                "; mode {}, so it would run all the same",
                self.mode.as_str()
            )?;
        }
        Ok(())
    }
}

/// What one tick decided, and from what. One line of JSON in [`Controller::decisions`](crate::Controller::decisions).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Decision {
    /// The tick's number.
    pub tick: u64,
    /// When, by the controller's clock, seconds.
    pub at_s: f64,
    /// Each lane.
    pub lanes: Vec<LaneDecision>,
    /// Each signal.
    pub signals: Vec<SignalDecision>,
}

/// What was decided for a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LaneDecision {
    /// Where the gate stands, 0 to 768 (open).
    pub threshold_levels: f64,
    /// What holds it there.
    pub binding: Binding,
    /// Where the lane's own law alone would have it.
    pub own_threshold_levels: f64,
    /// What that law lets in, cost per second; `None` when open.
    pub budget_per_s: Option<f64>,
    /// Cost per second that is offered.
    pub offered_per_s: f64,
    /// Cost per second that begins to run.
    pub admitted_per_s: f64,
    /// Cost per second that can be served.
    pub capacity_per_s: f64,
    /// The backlog, seconds of work.
    pub wait_s: f64,
    /// Its target.
    pub wait_target_s: f64,
}

/// What a signal had to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SignalDecision {
    /// Its last good pressure.
    pub pressure: Option<f64>,
    /// What it allows its lanes, cost per second; `None` while it has no grip.
    pub budget_per_s: Option<f64>,
    /// The threshold that comes to.
    pub threshold_levels: f64,
}

/// The decisions of the last ticks. Slots are used again: once it is full nothing is allocated.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    ring: Vec<Decision>,
    next: usize,
}

impl Decisions {
    /// A slot for the next one; what stands in it is to be replaced.
    pub(crate) fn next(&mut self) -> &mut Decision {
        if self.ring.len() < DECISIONS_KEPT {
            self.ring.push(Decision::default());
            self.next = self.ring.len() - 1;
        }
        let slot = self.next;
        self.next = (slot + 1) % DECISIONS_KEPT;
        &mut self.ring[slot]
    }

    /// Oldest first.
    pub(crate) fn all(&self) -> Vec<Decision> {
        let oldest = if self.ring.len() < DECISIONS_KEPT {
            0
        } else {
            self.next
        };
        let (newer, older) = self.ring.split_at(oldest);
        older.iter().chain(newer).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_decisions_are_kept_oldest_first() {
        let mut decisions = Decisions::default();
        assert_eq!(decisions.all(), []);
        for count in [3, DECISIONS_KEPT as u64 + 7] {
            let mut decisions = Decisions::default();
            for tick in 0..count {
                decisions.next().tick = tick;
            }
            let ticks: Vec<u64> = decisions.all().iter().map(|d| d.tick).collect();
            let first = count.saturating_sub(DECISIONS_KEPT as u64);
            assert_eq!(ticks, (first..count).collect::<Vec<u64>>());
        }
        decisions.next().tick = 9;
        assert_eq!(decisions.all()[0].tick, 9);
    }
}
