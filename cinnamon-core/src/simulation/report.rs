//! What became of the offers.

use crate::clock::Instant;
use crate::priority::{Priority, TIERS, Tier};
use crate::simulation::policy::View;
use crate::verdict::Reason;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Answered in time.
    Good,
    /// Answered, too late to be of use.
    Late,
    /// Refused when it came.
    Refused(Reason),
    /// Refused after it had waited.
    Lost(Reason),
    /// Its client gave up.
    GaveUp,
}

/// One offer, from its arrival to its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fate {
    /// Numbers requests in the order of their first arrival; retries keep their number.
    pub request: u64,
    /// How many attempts came before.
    pub attempt: u8,
    /// Index of the phase in which the request first arrived.
    pub phase: u16,
    /// What the request is worth.
    pub tier: Tier,
    /// The priority it was offered at.
    pub priority: Priority,
    /// The lane it was for, by index.
    pub lane: u8,
    /// Whose it was, by place in the scenario.
    pub tenant: Option<u16>,
    /// Its key.
    pub key: u64,
    /// Whether that is the one that comes on top of the others.
    pub hot: bool,
    /// When it first arrived.
    pub arrived_at: Instant,
    /// When this attempt was made.
    pub offered_at: Instant,
    /// Seconds of work at full speed.
    pub work_s: f64,
    /// When an answer is too late.
    pub deadline_at: Instant,
    /// When it began to run, if it did.
    pub started_at: Option<Instant>,
    /// When it ended.
    pub ended_at: Instant,
    /// How it ended.
    pub end: End,
}

/// Looks on while a scenario runs.
pub trait Witness {
    /// An offer has come to its end. Not in the order of arrival.
    fn ended(&mut self, _fate: &Fate) {}

    /// The policy was woken and now stands so.
    fn woken(&mut self, _now: Instant, _view: &View) {}

    /// Right after that, the true pressure of a plant, by its index in the scenario.
    fn measured(&mut self, _now: Instant, _plant: usize, _pressure: f64) {}
}

/// Does not look.
impl Witness for () {}

/// What became of the offers, credited to the phase in which each first arrived.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PhaseReport {
    /// The phase's name.
    pub name: String,
    /// Requests per tier, retries not counted.
    pub offered: [u64; TIERS],
    /// Requests per tier that were answered in time.
    pub good: [u64; TIERS],
    /// Requests answered too late.
    pub late: u64,
    /// Offers refused when they came, retries counted.
    pub refused_at_gate: u64,
    /// Offers lost after they had waited, retries counted.
    pub lost_in_queue: u64,
    /// Requests of the phase's first two seconds.
    pub offered_first_2s: u64,
    /// Offers of these requests that were refused or lost.
    pub refused_first_2s: u64,
    /// Answers in time over what the capacity allows, 1 when nothing was offered; noise can carry it
    /// past 1.
    pub goodput: f64,
    /// Mean move of the threshold per wake-up of the policy while engaged, in levels.
    pub threshold_step: f64,
}

impl PhaseReport {
    /// Share of the requests of these tiers that were answered in time; 1 when there were none.
    #[must_use]
    pub fn success(&self, tiers: &[Tier]) -> f64 {
        let sum = |of: &[u64; TIERS]| tiers.iter().map(|tier| of[tier.index()]).sum::<u64>();
        let offered = sum(&self.offered);
        if offered == 0 {
            return 1.0;
        }
        sum(&self.good) as f64 / offered as f64
    }

    /// Requests of all tiers.
    #[must_use]
    pub fn offers(&self) -> u64 {
        self.offered.iter().sum()
    }

    /// Share of the first two seconds' requests that were refused or lost.
    #[must_use]
    pub fn refused_share_first_2s(&self) -> f64 {
        self.refused_first_2s as f64 / self.offered_first_2s.max(1) as f64
    }
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// One per phase.
    pub phases: Vec<PhaseReport>,
    /// A digest of every event in order: equal traces, equal digests.
    pub trace: u64,
}

impl Report {
    /// The phase of this name; the first if there are several.
    #[must_use]
    pub fn phase(&self, name: &str) -> Option<&PhaseReport> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}
