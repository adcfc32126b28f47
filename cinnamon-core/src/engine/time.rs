//! The engine's own time: what the clock reads, and never back.

use super::Engine;
use crate::clock::Instant;

/// A clock that steps back further than this was set; less is two threads racing for the lock.
const STEP_BACK_NS: u64 = 1_000_000_000;
/// Nobody has looked at the clock for longer than this, not even the control thread: the process was stopped, or the
/// clock was set. What passed beyond it says nothing of the store, nor does the service time of what ran meanwhile.
/// (Believed, a jump of an hour made a lane look so slow that calm traffic was shed for half a minute.)
const GAP_NS: u64 = super::GATE_STALE_NS;

impl Engine {
    /// The clock's reading at the last call, for when the clock cannot be read.
    pub(crate) const fn last_reading(&self) -> Instant {
        Instant::from_nanos(self.now.as_nanos().saturating_sub(self.skew_ns))
    }

    /// The engine's time at this reading of the clock, which is not accounted for yet.
    pub(crate) fn time_at(&self, reading: Instant) -> Instant {
        if self.steps_back(reading) {
            return self.now;
        }
        reading.after_nanos(self.skew_ns).max(self.now)
    }

    /// The engine's time as of its last step.
    pub(crate) const fn time(&self) -> Instant {
        self.now
    }

    /// What the clock read, or would have, when the engine's time was this.
    pub(crate) const fn reading_of(&self, at: Instant) -> Instant {
        Instant::from_nanos(at.as_nanos().saturating_sub(self.skew_ns))
    }

    /// Whether this reading lies so far before an earlier one that the clock must have been set, or
    /// the reading be an old one.
    pub(crate) const fn steps_back(&self, reading: Instant) -> bool {
        self.now.nanos_since(reading.after_nanos(self.skew_ns)) > STEP_BACK_NS
    }

    /// Brings engine time up to the clock's reading and accounts for the time between.
    pub(super) fn advance(&mut self, clock: Instant) -> Instant {
        let mut now = clock.after_nanos(self.skew_ns);
        if self.steps_back(clock) {
            // The clock was set. (A smaller step is two threads racing for the lock.)
            self.skew_ns = self.skew_ns.saturating_add(self.now.nanos_since(now));
        }
        now = now.max(self.now);
        let mut dt_ns = now.nanos_since(self.now);
        self.now = now;
        if dt_ns > GAP_NS {
            dt_ns = GAP_NS;
            self.gap_ends = now;
        }
        if dt_ns > 0 {
            let dt_s = dt_ns as f64 * 1e-9;
            match self.in_use_before.take() {
                None => self.passed(dt_s),
                // What they were in between is not known; that some were free is.
                Some(before) => {
                    let after = std::mem::replace(&mut self.in_use, before);
                    self.passed(0.5 * dt_s);
                    self.in_use = after;
                    self.passed(0.5 * dt_s);
                }
            }
        }
        now
    }

    fn passed(&mut self, dt_s: f64) {
        let slots = self.slots();
        let stalled_s = self.steering.passed(dt_s, self.queue.cost(), slots);
        let waiting = self.queue.len();
        self.slotting
            .passed(dt_s, slots.in_use, slots.limit, waiting, stalled_s);
    }
}
