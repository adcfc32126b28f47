//! How a controller stands, as its signals see it.

use serde::Serialize;

/// How the controller's lanes stand, for signals that are made of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct View {
    /// The lanes, in the order of the settings.
    pub lanes: Vec<LaneView>,
}

impl View {
    /// A view of these lanes, for tests of a signal.
    #[must_use]
    pub const fn of(lanes: Vec<LaneView>) -> Self {
        Self { lanes }
    }

    /// The lane of this name.
    #[must_use]
    pub fn lane(&self, name: &str) -> Option<&LaneView> {
        self.lanes.iter().find(|lane| lane.name == name)
    }
}

/// How one lane stands. Counts are since the lane was built; diff them yourself.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LaneView {
    /// Its name.
    pub name: String,
    /// Its scope.
    pub scope: String,
    /// Slots.
    pub limit: u32,
    /// Requests that hold a slot.
    pub in_use: u32,
    /// Requests waiting.
    pub waiting: u32,
    /// Bytes that waiting requests hold, by their own account.
    pub waiting_bytes: u64,
    /// Requests offered.
    pub offered: u64,
    /// Of these, later attempts of requests that came before.
    pub retried: u64,
    /// Requests finished with each outcome: success, failure, overloaded, ignored or not said.
    pub finished: Finished,
    /// Cost per second offered.
    pub offered_per_s: f64,
    /// Cost per second that begins to run.
    pub admitted_per_s: f64,
    /// Cost per second that the lane can serve, 0 while unknown.
    pub capacity_per_s: f64,
    /// Time-averaged backlog, seconds of work.
    pub wait_s: f64,
    /// Mean service time, seconds.
    pub service_mean_s: f64,
}

impl LaneView {
    /// A lane of this name and scope with nothing in it, for tests of a signal; set the other fields.
    #[must_use]
    pub fn new(name: &str, scope: &str) -> Self {
        Self {
            name: name.to_owned(),
            scope: scope.to_owned(),
            ..Self::default()
        }
    }
}

/// Requests finished since the lane was built, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finished {
    /// [`Outcome::Success`](crate::Outcome::Success).
    pub success: u64,
    /// [`Outcome::Failure`](crate::Outcome::Failure).
    pub failure: u64,
    /// [`Outcome::Overloaded`](crate::Outcome::Overloaded).
    pub overloaded: u64,
    /// [`Outcome::Ignored`](crate::Outcome::Ignored), or the permit was dropped.
    pub ignored: u64,
}

impl Finished {
    /// Requests that finished.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.success + self.failure + self.overloaded + self.ignored
    }
}
