//! The share of events that are bad, over a window that says enough.

use std::collections::VecDeque;
use std::time::Duration;

use cinnamon_core::Instant;

/// How far back a share looks: long enough for a hundred events at a hundred a second, short enough to follow an
/// overload.
pub(crate) const WINDOW: Duration = Duration::from_secs(1);
/// How far back it looks at most, while events are few: what is older than a caller's patience is another
/// incident.
pub(crate) const WINDOW_MAX: Duration = Duration::from_secs(5);

/// A share over the target is believed but for so many standard errors of it: three are chance once in
/// seven hundred looks, and a signal looks ten times a second.
const SIGMAS: f64 = 3.0;
/// Counts are kept so many to a window.
const MARKS_PER_WINDOW: u64 = 20;

/// Counts of all events and of the bad ones, over the last [`WINDOW`] or as far back as the least number of events
/// reaches, up to [`WINDOW_MAX`].
#[derive(Clone, Debug, Default)]
pub(crate) struct ShareWindow {
    marks: VecDeque<Mark>,
}

/// What had happened at some time.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    total: u64,
    bad: u64,
}

impl ShareWindow {
    /// Nothing seen yet.
    pub(crate) const fn new() -> Self {
        Self {
            marks: VecDeque::new(),
        }
    }

    /// The counts stand so now: the share that is bad over the latest window that says enough. Events missing from
    /// `least` count as good ones. What chance explains is no excess: of a share over the target three standard
    /// errors are taken off, down to the target at most.
    pub(crate) fn share(
        &mut self,
        at: Instant,
        total: u64,
        bad: u64,
        least: u32,
        target: f64,
    ) -> f64 {
        let here = Mark { at, total, bad };
        // After a time in which it was off, or the clock was set back, it begins anew.
        if self.marks.back().is_some_and(|last| !here.follows(last)) {
            self.marks.clear();
        }
        let share = self.look(&here, f64::from(least), target);
        self.remember(here);
        share
    }

    fn look(&self, here: &Mark, least: f64, target: f64) -> f64 {
        let window_ns = WINDOW.as_nanos() as u64;
        let enough = |mark: &&Mark| {
            here.at.nanos_since(mark.at) >= window_ns && (here.total - mark.total) as f64 >= least
        };
        let since = self.marks.iter().rev().find(enough);
        let Some(since) = since.or(self.marks.front()) else {
            return 0.0;
        };
        let events = ((here.total - since.total) as f64).max(least);
        let share = (here.bad - since.bad) as f64 / events;
        if share <= target {
            return share;
        }
        let sigma = (target * (1.0 - target) / events).sqrt();
        (share - SIGMAS * sigma).max(target)
    }

    /// Keeps `here` for later, and no more marks than are of use.
    fn remember(&mut self, here: Mark) {
        let spacing_ns = WINDOW.as_nanos() as u64 / MARKS_PER_WINDOW;
        let early = |last: &Mark| here.at.nanos_since(last.at) < spacing_ns;
        if !self.marks.back().is_some_and(early) {
            self.marks.push_back(here);
        }
        // The youngest of those that are too old is the far end of the longest window.
        while self.marks.get(1).is_some_and(|mark| mark.is_old(here.at)) {
            self.marks.pop_front();
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.marks.len()
    }
}

impl Mark {
    fn is_old(&self, now: Instant) -> bool {
        now.since(self.at) >= WINDOW_MAX
    }

    /// Whether what lies between `last` and this can be told.
    fn follows(&self, last: &Self) -> bool {
        self.at >= last.at
            && !last.is_old(self.at)
            // Of a source that has failed nothing is known, and its counts read as zero.
            && self.total >= last.total
            && self.bad >= last.bad
    }
}
