//! What a run leaves behind: its requests, small enough to keep millions of them, and how the policy
//! stood over time.

use cinnamon_core::simulation::{End, Fate, View, Witness};
use cinnamon_core::{Instant, Priority, Reason, Tier};

/// One attempt of a request.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// When the request first arrived, seconds.
    pub arrived_s: f64,
    /// When it ended, seconds.
    pub ended_s: f64,
    /// Seconds of work at full speed.
    pub work_s: f32,
    /// An answer later than this after arrival is too late, seconds.
    pub allowed_s: f32,
    /// Time in the queue, seconds; not a number if it never began to run.
    pub waited_s: f32,
    /// Numbers requests in the order of arrival.
    pub request: u32,
    /// The priority it was offered at.
    pub level: u16,
    /// Index of the phase it arrived in.
    pub phase: u8,
    /// The lane it was for, by index.
    pub lane: u8,
    /// Attempts before this one.
    pub attempt: u8,
    /// How it ended.
    pub end: End,
}

impl Trial {
    /// The tier it was offered at.
    #[must_use]
    pub fn tier(&self) -> Tier {
        Priority::from_number(self.level).map_or(Tier::T5, Priority::tier)
    }

    /// Whether it was answered in time.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.end == End::Good
    }

    /// Whether it never got an answer.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        matches!(self.end, End::Refused(_) | End::Lost(_) | End::GaveUp)
    }

    /// Whether it was refused after it had waited.
    #[must_use]
    pub const fn is_lost_in_queue(&self) -> bool {
        matches!(self.end, End::Lost(_) | End::GaveUp)
    }

    /// Whether the gate refused it.
    #[must_use]
    pub const fn is_shed(&self) -> bool {
        matches!(self.end, End::Refused(Reason::Shed))
    }

    /// The verdict's word.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self.end {
            End::Good => "admit",
            End::Late => "admit, too late",
            End::Refused(reason) | End::Lost(reason) => reason.as_str(),
            End::GaveUp => "cancel",
        }
    }
}

/// How the policy stood after a wake-up.
#[derive(Clone, Copy, Debug)]
pub struct Stand {
    /// When, seconds.
    pub at_s: f64,
    /// How.
    pub view: View,
}

/// A run.
#[derive(Debug, Default)]
pub struct Record {
    /// Every attempt, in the order of first arrival and attempt once [`Record::finish`] was called.
    pub trials: Vec<Trial>,
    /// The policy over time.
    pub stands: Vec<Stand>,
    /// The plants' true pressures over time.
    pub pressures: Vec<Pressure>,
}

/// The pressure of a plant when the policy was woken.
#[derive(Clone, Copy, Debug)]
pub struct Pressure {
    /// When, seconds.
    pub at_s: f64,
    /// Which, by its index in the scenario.
    pub plant: u8,
    /// 1.0 at its target.
    pub pressure: f32,
}

impl Record {
    /// Puts everything in order.
    pub fn finish(&mut self) {
        self.trials
            .sort_unstable_by_key(|trial| (trial.request, trial.attempt));
    }
}

impl Witness for Record {
    fn ended(&mut self, fate: &Fate) {
        let waited_s = fate
            .started_at
            .map_or(f32::NAN, |at| span_s(fate.offered_at, at) as f32);
        self.trials.push(Trial {
            arrived_s: seconds(fate.arrived_at),
            ended_s: seconds(fate.ended_at),
            work_s: fate.work_s as f32,
            allowed_s: span_s(fate.arrived_at, fate.deadline_at) as f32,
            waited_s,
            request: fate.request as u32,
            level: fate.priority.number(),
            phase: fate.phase as u8,
            lane: fate.lane,
            attempt: fate.attempt,
            end: fate.end,
        });
    }

    fn woken(&mut self, now: Instant, view: &View) {
        let stand = Stand {
            at_s: seconds(now),
            view: *view,
        };
        self.stands.push(stand);
    }

    fn measured(&mut self, now: Instant, plant: usize, pressure: f64) {
        self.pressures.push(Pressure {
            at_s: seconds(now),
            plant: plant as u8,
            pressure: pressure as f32,
        });
    }
}

fn seconds(at: Instant) -> f64 {
    at.as_nanos() as f64 * 1e-9
}

fn span_s(from: Instant, to: Instant) -> f64 {
    to.nanos_since(from) as f64 * 1e-9
}
