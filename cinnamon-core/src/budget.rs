//! The control law: a budget of admitted cost per second, steered by the time-averaged backlog.
//!
//! The error is the backlog in seconds of work over its target, less the share of idle slots; a PID
//! on it trims the measured capacity to the budget. The backlog is averaged over the tick (Little's
//! law), so no order of service can fool it. The target has no absolute milliseconds in it: it is made
//! of the service time, the tick, and the scatter of the arrivals. Only what speaks of the patience of
//! callers, and of how long evidence must last, is in seconds.
//! `docs/src/control-law.md` has the derivation and the laws that failed.

use crate::pid::{Pid, Terms};

/// Budget bounds, as shares of the capacity: above it to refill idle slots, below it to drain.
const BUDGET_MIN: f64 = 0.1;
const BUDGET_MAX: f64 = 1.25;
/// Whatever happens, this share of the capacity is admitted, so that there is always evidence.
pub(crate) const BUDGET_FLOOR: f64 = 0.02;
/// Bounds of the integral term.
const INTEGRAL_MIN: f64 = -0.25;
const INTEGRAL_MAX: f64 = 0.5;
/// The integral's time is at least this many times the loop's.
const INTEGRAL_LOOPS: f64 = 3.0;
/// Engage when the backlog is worth more than this many ticks and this many service times. Random
/// bursts make a healthy small pool's queue stand, so it is the size that counts, not the time.
const ENGAGE_TICKS: f64 = 5.0;
const ENGAGE_SERVICES: f64 = 5.0;
/// … and more than this many requests: whatever the number of slots, at 0.8x a healthy queue is
/// longer than `q` with a probability of about 0.8^q, 2e-8 here. (Five service times alone are five
/// requests on a single slot: 5 % of calm traffic at 0.8x was lost.)
const ENGAGE_REQUESTS: f64 = 80.0;
/// … but no longer than this: callers have deadlines. (With one second, one slot of 100 ms lost 2.6 % of
/// calm traffic at 0.7x; with two, less than half a per cent.)
const ENGAGE_REQUESTS_MAX_S: f64 = 2.0;
/// … and more than this many backlog targets: what is wanted while engaged is no reason to engage.
const ENGAGE_TARGETS: f64 = 2.0;
/// Engage at once when so many times the capacity is offered beyond doubt …
const EVIDENT_LOAD: f64 = 1.1;
/// … for so long, and the backlog is over its target. A shorter burst is for the queue.
const EVIDENT_S: f64 = 0.1;
/// A backlog that the spare capacity will have worked off within this time is left alone: after a pause
/// of the store nobody need go. Callers have deadlines of about a second.
const DRAIN_S: f64 = 0.5;
/// Disengage when the computed threshold has admitted everything for this long.
const RELEASE_S: f64 = 1.0;
/// A late tick is not evidence of as much as it spans.
const DT_MAX_S: f64 = 0.1;

/// What one tick saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Observed {
    pub(crate) dt_s: f64,
    /// Mean queued cost over the tick.
    pub(crate) backlog_cost: f64,
    /// Share of slot-time without work.
    pub(crate) idle_share: f64,
    /// The queue was full and had to evict.
    pub(crate) evicted: bool,
    /// Mean service time.
    pub(crate) service_s: f64,
    /// Capacity, cost per second; 0 unknown.
    pub(crate) capacity: f64,
    /// Mean cost of a request.
    pub(crate) mean_cost: f64,
    /// Cost of the arrivals that could be independent, at least the mean cost.
    pub(crate) grain: f64,
    /// The store stands still.
    pub(crate) stalled: bool,
    /// Something else has held the gate below what this law asked for.
    pub(crate) held_below: bool,
    /// Offered cost per second, at least and at most.
    pub(crate) offered: (f64, f64),
    /// For how many seconds the load has been what it is.
    pub(crate) steady_s: f64,
}

/// The law's state.
#[derive(Debug)]
pub(crate) struct BudgetLaw {
    pid: Pid,
    engaged: bool,
    open_for_s: f64,
    /// Without anti-windup; only the laboratory wants that.
    winds_up: bool,
    budget: f64,
    figures: Figures,
}

/// The figures of the law's last step, for snapshots.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// `W`, seconds of work.
    pub(crate) wait_s: f64,
    /// `W*`.
    pub(crate) target_s: f64,
    pub(crate) error: f64,
    pub(crate) terms: Terms,
    /// A bound cut the trim short, or the integral stands at one.
    pub(crate) saturated: bool,
}

/// What changed in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The gate is open: every offer passes.
    Open,
    /// Contention was just found.
    Engaged,
    /// The gate goes by the budget.
    Steering,
}

impl BudgetLaw {
    pub(crate) fn new(kp: f64, ki_per_s: f64, kd_s: f64) -> Self {
        Self {
            pid: Pid::new(kp, ki_per_s, kd_s, INTEGRAL_MIN..=INTEGRAL_MAX),
            engaged: false,
            open_for_s: 0.0,
            winds_up: false,
            budget: f64::INFINITY,
            figures: Figures::default(),
        }
    }

    /// Other gains from now on; the integral stays.
    pub(crate) fn set_gains(&mut self, kp: f64, ki_per_s: f64, kd_s: f64) {
        self.pid.set_gains(kp, ki_per_s, kd_s);
    }

    pub(crate) const fn engaged(&self) -> bool {
        self.engaged
    }

    /// Admitted cost per second, infinite while the gate is open.
    pub(crate) const fn budget(&self) -> f64 {
        self.budget
    }

    /// `W*`, seconds of work; 0 before the first step.
    pub(crate) const fn target_s(&self) -> f64 {
        self.figures.target_s
    }

    pub(crate) const fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Takes the backlog and its target into the figures, whichever law steers.
    pub(crate) fn measure(&mut self, seen: &Observed) {
        let dt_s = seen.dt_s.min(DT_MAX_S);
        let capacity = seen.capacity;
        // Nothing can be said in seconds before the capacity is known.
        let per_capacity = |cost: f64| if capacity > 0.0 { cost / capacity } else { 0.0 };
        let per_grain_s = per_capacity(seen.grain.max(seen.mean_cost));
        self.figures.wait_s = per_capacity(seen.backlog_cost);
        self.figures.target_s = target_s(seen.service_s, per_grain_s, dt_s);
    }

    /// One step. [`BudgetLaw::budget`] holds the budget afterwards.
    pub(crate) fn step(&mut self, seen: &Observed) -> Step {
        self.measure(seen);
        let dt_s = seen.dt_s.min(DT_MAX_S);
        let capacity = seen.capacity;
        let per_capacity = |cost: f64| if capacity > 0.0 { cost / capacity } else { 0.0 };
        let per_request_s = per_capacity(seen.mean_cost);
        let (wait_s, target_s) = (self.figures.wait_s, self.figures.target_s);
        let tau_s = (5.0 * dt_s).max(2.0 * seen.service_s);
        let excess_s = wait_s - target_s;
        let spare = 1.0 - per_capacity(seen.offered.1);
        let mut error = (excess_s / tau_s - seen.idle_share).clamp(-1.0, 1.0);
        if error > 0.0 && excess_s < DRAIN_S * spare {
            error = 0.0;
        }
        self.figures.error = error;

        if !self.engaged {
            let standing = wait_s
                > engage_s(seen.service_s, per_request_s, dt_s).max(ENGAGE_TARGETS * target_s);
            let evident = seen.offered.0 > EVIDENT_LOAD * capacity
                && seen.steady_s >= EVIDENT_S
                && wait_s > target_s;
            if capacity <= 0.0 || !(standing || seen.evicted || evident) {
                return Step::Open;
            }
            self.engaged = true;
            self.open_for_s = 0.0;
            self.pid.reset();
            self.figures.terms = Terms::default();
            self.budget = capacity;
            return Step::Engaged;
        }
        // Nothing can be learned from a store that stands still, least of all to let in less afterwards:
        // ten seconds of it filled the integral, and a fifth of what was possible was let in after it.
        // Nor from a gate that holds nobody back that it should hold back still less: the integral ran to
        // its lower bound in each calm after an overload, and the next one began with a budget of 1.2 C.
        // Nor while an override, a signal or another lane holds the gate lower than this law would: idle slots
        // are their doing, and letting in more would change nothing.
        let idle_gate = (self.open_for_s > 0.0 || seen.held_below) && error < 0.0;
        let teaches = self.winds_up || !(seen.stalled || idle_gate);
        let learn_s = if teaches {
            dt_s * self.integral_share(tau_s)
        } else {
            0.0
        };
        self.figures.terms = self.pid.update(error, dt_s, learn_s);
        let wanted = 1.0 - self.figures.terms.sum();
        let share = wanted.clamp(BUDGET_MIN, BUDGET_MAX);
        self.figures.saturated = wanted != share || self.pid.at_bound();
        self.budget = capacity * share.max(BUDGET_FLOOR);
        Step::Steering
    }

    /// Lets the integral term wind up: no bounds, and it learns from everything.
    #[cfg(feature = "test-util")]
    pub(crate) fn let_wind_up(&mut self) {
        self.winds_up = true;
        self.pid.unbound();
    }

    /// The capacity is another than was thought: the trim made up for the difference, and now would count it
    /// twice. (A capacity that had fallen to 0.4 was believed after ten seconds at 4 a second; by then the
    /// integral was full, and t1 was cut for five more.)
    pub(crate) fn forget_trim(&mut self) {
        if !self.winds_up {
            self.pid.reset();
        }
    }

    /// By how much slower than `ki` the integral must be. The backlog integrates what was let in too much,
    /// so the proportional term alone takes `tau/kp` to pay it back; an integral that is faster than three of
    /// these swings. (At 4 a second and 1.25 s of service it filled within seconds, emptied as fast, and t1
    /// was cut on the way.)
    fn integral_share(&self, tau_s: f64) -> f64 {
        let (kp, ki_per_s) = self.pid.gains();
        let most_per_s = kp * kp / (INTEGRAL_LOOPS * tau_s);
        if ki_per_s > most_per_s {
            most_per_s / ki_per_s
        } else {
            1.0
        }
    }

    /// Tells the law what its budget came to. Once everything has been admitted for a second the
    /// gate is released.
    pub(crate) fn threshold_set(&mut self, open: bool, dt_s: f64) {
        self.open_for_s = if open { self.open_for_s + dt_s } else { 0.0 };
        if self.engaged && self.open_for_s >= RELEASE_S {
            self.release();
        }
    }

    /// Back to calm.
    pub(crate) fn release(&mut self) {
        self.engaged = false;
        self.pid.reset();
        self.figures.terms = Terms::default();
        self.figures.saturated = false;
        self.budget = f64::INFINITY;
    }
}

/// `W*`: one service time, two standard deviations of what arrives in a tick or a service time, and a
/// tenth of a tick. The longer of the two, since a gap must be bridged until the law acts, and until the
/// slots turn over. A smaller backlog would leave slots idle through random gaps (a tick's scatter
/// alone: goodput 0.84 instead of 0.89 on one slot of 100 ms at 3x); behind a priority queue only the
/// boundary level waits.
fn target_s(service_s: f64, per_grain_s: f64, dt_s: f64) -> f64 {
    service_s + 2.0 * (dt_s.max(service_s) * per_grain_s).sqrt() + 0.1 * dt_s
}

/// The backlog that only contention explains.
fn engage_s(service_s: f64, per_request_s: f64, dt_s: f64) -> f64 {
    let chance_s = (ENGAGE_REQUESTS * per_request_s).min(ENGAGE_REQUESTS_MAX_S);
    let by_service_s = ENGAGE_SERVICES * service_s;
    (ENGAGE_TICKS * dt_s).max(by_service_s).max(chance_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 1,000 rps service of 20 slots at 20 ms, in a tick of 10 ms.
    fn seen(backlog_cost: f64, idle_share: f64) -> Observed {
        Observed {
            dt_s: 0.01,
            backlog_cost,
            idle_share,
            evicted: false,
            service_s: 0.02,
            capacity: 1_000.0,
            mean_cost: 1.0,
            grain: 1.0,
            stalled: false,
            held_below: false,
            offered: (0.0, f64::INFINITY),
            steady_s: 0.0,
        }
    }

    fn law() -> BudgetLaw {
        BudgetLaw::new(0.3, 0.3, 0.0)
    }

    #[test]
    fn dormant_until_the_backlog_is_worth_five_services() {
        let mut law = law();
        for _ in 0..100 {
            assert_eq!(law.step(&seen(99.0, 0.0)), Step::Open);
        }
        assert!(law.budget().is_infinite());
        assert_eq!(law.step(&seen(101.0, 0.0)), Step::Engaged);
        assert_eq!(
            law.budget(),
            1_000.0,
            "bumpless: the first budget is the capacity"
        );
    }

    #[test]
    fn an_eviction_engages_but_not_before_the_capacity_is_known() {
        let mut law = law();
        let full = Observed {
            evicted: true,
            ..seen(0.0, 0.0)
        };
        assert_eq!(
            law.step(&Observed {
                capacity: 0.0,
                ..full
            }),
            Step::Open
        );
        assert_eq!(law.step(&full), Step::Engaged);
    }

    #[test]
    fn a_backlog_over_target_cuts_and_idle_slots_raise() {
        let mut law = law();
        law.step(&seen(101.0, 0.0));
        law.step(&seen(60.0, 0.0));
        assert!(law.budget() < 900.0, "{}", law.budget());
        (0..300).for_each(|_| {
            law.step(&seen(0.0, 0.5));
        });
        assert!(
            law.budget() > 1_200.0 && law.budget() <= 1_250.0,
            "{}",
            law.budget()
        );
    }

    #[test]
    fn something_always_gets_through() {
        let mut law = law();
        for _ in 0..10_000 {
            law.step(&seen(1e9, 0.0));
        }
        assert!(law.budget() >= BUDGET_FLOOR * 1_000.0, "{}", law.budget());
    }

    #[test]
    fn released_after_a_second_of_admitting_everything() {
        let mut law = law();
        law.step(&seen(101.0, 0.0));
        for _ in 0..99 {
            law.threshold_set(true, 0.01);
        }
        assert!(law.engaged());
        law.threshold_set(false, 0.01);
        for _ in 0..101 {
            law.threshold_set(true, 0.01);
        }
        assert!(!law.engaged() && law.budget().is_infinite());
    }

    #[test]
    fn a_tick_without_time_or_a_late_one_does_no_harm() {
        let mut law = law();
        law.step(&seen(101.0, 0.0));
        law.step(&Observed {
            dt_s: 0.0,
            ..seen(0.0, 0.0)
        });
        assert!(law.budget().is_finite());
        let before = law.figures().terms.i;
        law.step(&Observed {
            dt_s: 3_600.0,
            ..seen(0.0, 1.0)
        });
        assert!((before - law.figures().terms.i) <= 0.3 * DT_MAX_S + 1e-9);
    }

    #[test]
    fn evident_overload_engages_before_the_backlog_stands() {
        let over = Observed {
            offered: (1_200.0, 1_600.0),
            steady_s: 0.2,
            ..seen(60.0, 0.0)
        };
        assert_eq!(law().step(&over), Step::Engaged);
        let burst = Observed {
            steady_s: 0.02,
            ..over
        };
        assert_eq!(law().step(&burst), Step::Open, "too short to be a load");
        let doubtful = Observed {
            offered: (1_050.0, 2_000.0),
            ..over
        };
        assert_eq!(law().step(&doubtful), Step::Open);
        let short = Observed {
            backlog_cost: 10.0,
            ..over
        };
        assert_eq!(law().step(&short), Step::Open, "under target");
    }

    #[test]
    fn a_backlog_that_the_spare_capacity_works_off_by_itself_is_left_alone() {
        let mut law = law();
        law.step(&seen(150.0, 0.0));
        let after_a_pause = Observed {
            offered: (600.0, 700.0),
            ..seen(150.0, 0.0)
        };
        law.step(&after_a_pause);
        assert_eq!((law.figures().error, law.budget()), (0.0, 1_000.0));
        law.step(&Observed {
            backlog_cost: 300.0,
            ..after_a_pause
        });
        assert!(law.budget() < 1_000.0, "too much for half a second of it");
    }

    #[test]
    fn nothing_is_learned_from_a_stall_nor_while_the_gate_holds_nobody_back() {
        let mut law = law();
        law.step(&seen(101.0, 0.0));
        for _ in 0..1_000 {
            law.step(&Observed {
                stalled: true,
                ..seen(400.0, 0.0)
            });
        }
        assert_eq!(law.figures().terms.i, 0.0);
        for _ in 0..50 {
            law.threshold_set(true, 0.01);
            law.step(&seen(0.0, 0.3));
        }
        assert_eq!(law.figures().terms.i, 0.0);
        // Nor while somebody else holds it: slots are idle for his sake. But of a backlog all the same.
        let held_below = |backlog_cost, idle_share| Observed {
            held_below: true,
            ..seen(backlog_cost, idle_share)
        };
        let mut law = self::law();
        law.step(&seen(101.0, 0.0));
        for _ in 0..1_000 {
            law.threshold_set(false, 0.01);
            law.step(&held_below(0.0, 0.3));
        }
        assert_eq!(law.figures().terms.i, 0.0);
        law.step(&held_below(400.0, 0.0));
        assert!(law.figures().terms.i > 0.0);
    }

    #[test]
    fn clustered_arrivals_want_a_longer_backlog() {
        let mut law = law();
        law.step(&seen(0.0, 0.0));
        let plain = law.target_s();
        law.step(&Observed {
            grain: 30.0,
            ..seen(0.0, 0.0)
        });
        assert!(law.target_s() > 2.0 * plain, "{} {plain}", law.target_s());
    }

    #[test]
    fn the_integral_is_slower_where_the_loop_is() {
        let trim_after = |service_s: f64| {
            let mut law = law();
            let slow = Observed {
                service_s,
                ..seen(10_000.0, 0.0)
            };
            (0..100).for_each(|_| {
                law.step(&slow);
            });
            law.figures().terms.i
        };
        assert!(
            trim_after(0.02) > 20.0 * trim_after(1.25),
            "{}",
            trim_after(1.25)
        );
    }

    #[test]
    fn another_capacity_makes_the_trim_void() {
        let mut law = law();
        (0..100).for_each(|_| {
            law.step(&seen(200.0, 0.0));
        });
        assert!(law.figures().terms.i > 0.1);
        law.forget_trim();
        law.step(&seen(0.0, 0.0));
        assert!(law.figures().terms.i <= 0.0);
    }
}
