//! What the lane can serve, in cost per second.
//!
//! Learned where it can be seen: in stretches in which nearly every slot was taken nearly all the
//! time. A stretch that was not busy shows only a lower bound. Every slot that is given back counts,
//! however the work ended: the budget is one of admissions, and what must be known is how fast the
//! slots turn over.

use crate::rate::{Rate, Window};

/// Memory while nothing changes. Goodput is flat between 1 and 3 s.
const MEMORY_S: f64 = 1.0;
/// A window closes at this many completions …
const WINDOW_EVENTS: f64 = 20.0;
/// … or after this time.
const WINDOW_MAX_S: f64 = 5.0;
/// Share of time without a free slot above which a window shows the capacity.
const BUSY_SHARE: f64 = 0.7;
/// Memory of windows that were not busy: the estimate goes over from the last incident's number to
/// what slots and service time promise.
const CALM_MEMORY_S: f64 = 5.0;

/// A capacity that falls must stay down for this long: stores pause, for compaction, for their disk, for
/// the hypervisor, and a pause is no capacity. (Believed at once, a pause of 50 ms a minute at 0.7x cost
/// thirty requests in a million.)
const FALL_S: f64 = 0.1;
/// While all slots are taken, a time in which so many completions were due and none came is a stall.
const STALL_COMPLETIONS: f64 = 20.0;
/// … if it is also this many service times.
const STALL_SERVICES: f64 = 1.5;
/// No more is believed than this many times what slots and service time promise.
const PROMISED_MAX: f64 = 2.0;

#[derive(Debug)]
pub(crate) struct Capacity {
    rate: Rate,
    window: Window,
    window_busy_s: f64,
    /// Mean cost of a completed request.
    mean_cost: f64,
}

impl Capacity {
    pub(crate) const fn new() -> Self {
        Self {
            rate: Rate::slow_to_fall(MEMORY_S, FALL_S),
            window: Window::EMPTY,
            window_busy_s: 0.0,
            mean_cost: 1.0,
        }
    }

    /// Cost per second; 0 while nothing is known.
    pub(crate) const fn rate(&self) -> f64 {
        self.rate.get()
    }

    /// Mean cost of a completed request, work units.
    pub(crate) const fn mean_cost(&self) -> f64 {
        self.mean_cost
    }

    /// While all slots are taken and nothing comes back for longer than this, the store stands still,
    /// seconds; for ever while nothing is known. What exceeds it says nothing of the capacity before and
    /// after: a pause of 400 ms at 0.7x made the capacity look so small that 5 % of t1 was refused.
    ///
    /// A gap of a service time is none: where work comes back together, as from a group commit, nothing
    /// comes back for as long as the work takes. (Left out all the same, such gaps made 64 slots look 35
    /// times as fast as they were, and the gate never closed.)
    pub(crate) fn stall_s(&self, service_s: f64) -> f64 {
        let due_s = STALL_COMPLETIONS * self.rate.grain() / self.rate.get();
        due_s.max(STALL_SERVICES * service_s)
    }

    /// Called when the gate engages: what follows is measured afresh, so that the last incident's
    /// number cannot decide this one.
    pub(crate) fn relearn(&mut self) {
        self.rate.relearn(WINDOW_EVENTS);
        self.window = Window::default();
        self.window_busy_s = 0.0;
    }

    /// Takes in the completions of one tick, in which no slot was free for `busy_s` seconds.
    ///
    /// `promised` is the cost per second that the slots could turn over at the present service time
    /// (Little's law). It keeps a lane that is not busy from being judged by the little that was
    /// asked of it, or let in.
    ///
    /// `scatter` is the variance of the service time over its squared mean: completions of a busy lane
    /// scatter as much.
    ///
    /// Returns whether what was known turned out to be no longer true.
    pub(crate) fn tick(
        &mut self,
        completed: &Window,
        busy_s: f64,
        promised: f64,
        scatter: f64,
    ) -> bool {
        self.rate.set_scatter(scatter);
        self.window.add(completed);
        self.window_busy_s += busy_s;
        let wanted = WINDOW_EVENTS * self.rate.scatter();
        if self.window.events < wanted && self.window.seconds < WINDOW_MAX_S {
            return false;
        }
        let window = std::mem::take(&mut self.window);
        let busy_s = std::mem::take(&mut self.window_busy_s);
        if window.events == 0.0 {
            // Idle, or stalled: nothing was seen of what the lane can do. A stall of some seconds
            // taken for a capacity of zero kept the gate shut long after it was over.
            return false;
        }
        self.mean_cost = window.cost / window.events;
        if busy_s > BUSY_SHARE * window.seconds {
            let changed = self.rate.observe(&window);
            if promised.is_finite() && self.rate.get() > PROMISED_MAX * promised {
                self.rate.set(PROMISED_MAX * promised, WINDOW_EVENTS);
            }
            return changed;
        }
        let mut rate = self.rate.get();
        if promised.is_finite() && promised > 0.0 {
            let gain = 1.0 - (-window.seconds / CALM_MEMORY_S).exp();
            rate += if rate == 0.0 { 1.0 } else { gain } * (promised - rate);
        }
        self.rate.set(rate.max(window.rate()), WINDOW_EVENTS);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(seconds: f64, events: f64) -> Window {
        Window {
            seconds,
            events,
            cost: events,
            cost_squared: events,
        }
    }

    /// No service time known: nothing is promised.
    const NOTHING: f64 = f64::INFINITY;

    #[test]
    fn a_stall_says_nothing_of_the_capacity() {
        let mut capacity = Capacity::new();
        for _ in 0..100 {
            capacity.tick(&completed(0.02, 20.0), 0.02, NOTHING, 1.0);
        }
        for _ in 0..600 {
            capacity.tick(&completed(0.02, 0.0), 0.02, 1_000.0, 1.0);
        }
        assert_eq!(capacity.rate(), 1_000.0);
    }

    #[test]
    fn busy_windows_teach_the_capacity_and_its_fall() {
        let mut capacity = Capacity::new();
        for _ in 0..100 {
            capacity.tick(&completed(0.02, 20.0), 0.02, NOTHING, 1.0);
        }
        assert_eq!(capacity.rate(), 1_000.0);
        for _ in 0..10 {
            capacity.tick(&completed(0.05, 20.0), 0.05, NOTHING, 1.0);
        }
        assert!(
            (capacity.rate() - 400.0).abs() < 20.0,
            "{}",
            capacity.rate()
        );
    }

    #[test]
    fn idle_windows_only_raise_it() {
        let mut capacity = Capacity::new();
        capacity.tick(&completed(0.02, 20.0), 0.02, NOTHING, 1.0);
        for _ in 0..1_000 {
            capacity.tick(&completed(1.0, 20.0), 0.0, NOTHING, 1.0);
        }
        assert_eq!(capacity.rate(), 1_000.0);
        capacity.tick(&completed(0.01, 20.0), 0.0, NOTHING, 1.0);
        assert_eq!(capacity.rate(), 2_000.0);
    }

    #[test]
    fn a_calm_lane_is_judged_by_its_slots_not_by_its_demand() {
        let mut capacity = Capacity::new();
        // 20 slots of 20 ms promise 1,000 per second; one request a second is all that is asked.
        for _ in 0..60 {
            capacity.tick(&completed(5.0, 5.0), 0.0, 1_000.0, 1.0);
        }
        assert!(
            (capacity.rate() - 1_000.0).abs() < 1.0,
            "{}",
            capacity.rate()
        );
    }

    #[test]
    fn a_new_incident_is_measured_afresh() {
        let mut capacity = Capacity::new();
        for _ in 0..100 {
            capacity.tick(&completed(0.02, 20.0), 0.02, NOTHING, 1.0);
        }
        capacity.relearn();
        // Five per cent lower: chance by the old estimate, the truth by the new one.
        capacity.tick(&completed(0.02, 19.0 + 1.0), 0.02, NOTHING, 1.0);
        capacity.tick(&completed(0.0211, 20.0), 0.0211, NOTHING, 1.0);
        assert!(capacity.rate() < 985.0, "{}", capacity.rate());
    }

    #[test]
    fn a_gap_of_a_service_time_is_no_stall_and_nothing_is_believed_beyond_what_slots_promise() {
        let mut capacity = Capacity::new();
        for _ in 0..100 {
            capacity.tick(&completed(0.01, 64.0), 0.01, 6_400.0, 1.0);
        }
        // 64 slots of 10 ms that all come back together: 20 completions are due in 3 ms.
        assert_eq!(capacity.stall_s(0.01), 0.015);
        assert!(capacity.stall_s(0.000_1) < 0.004);
        for _ in 0..100 {
            capacity.tick(&completed(0.001, 64.0), 0.001, 6_400.0, 1.0);
        }
        assert_eq!(capacity.rate(), 12_800.0);
    }
}
