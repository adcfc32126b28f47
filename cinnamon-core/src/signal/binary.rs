//! The law of a detector that fires or does not. A PI on such a signal limit-cycles; it is handled as
//! LinkedIn's Hodor does: cut to what was served before the overload, hold, probe upward, roll back and
//! back off exponentially. Where to probe is CUBIC's idea (RFC 9438): halfway to the budget at which it last fired while
//! that is far, a little beyond it when it is near, and in growing steps once it is passed. What is let in is then at most a
//! [`PROBE`] below what can be carried, and room that has come back is found within six holds for a third more, within eleven for three times as much; before it took up to twenty.
//! The last incident's numbers are forgotten when the gate is let go.
//!
//! | phase | the detector | for | then |
//! |---|---|---|---|
//! | calm | fires | | hold, at what was served before and no more than 0.9 of now |
//! | hold | fires on | a hold | hold, at half of it |
//! | hold | is silent | an interval | probe, higher; or calm, once the budget holds nobody back |
//! | probe | is silent | an interval | probe, higher, the interval a hold again; or calm, once the budget holds nobody back |
//! | probe | fires | | hold, at the last good budget; the interval doubles |
//!
//! | the budget at which it last fired | the next probe |
//! |---|---|
//! | more than 1.05 of the good one | the geometric mean of the two |
//! | within 1.05 | 1.05 of the good one |
//! | passed, or none | a step above: 1.05, and the square of the step before after each that succeeds, up to 2 |

use super::law::Flow;

/// Memory of what was served while all was well: longer than what led to the overload.
const BEFORE_S: f64 = 10.0;
/// The first cut, at least.
const FIRST_CUT: f64 = 0.9;
/// A further one: whoever still fires after the first is to be found out, or to be right, within five holds.
const CUT: f64 = 0.5;
/// A probe beyond what is known to be good. It overloads whatever the detector watches by so much until it fires.
const PROBE: f64 = 1.05;
/// Steps beyond grow up to this: each is a hold, and whoever doubles twice has passed all that may have been lost.
const STEP_MAX: f64 = 2.0;
/// The interval between probes grows to so many holds. In an overload that lasts, every fifth hold then has a probe that
/// fails; with 8 it is every ninth, and room that came back was found four holds later.
const INTERVAL_MAX: f64 = 4.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Calm,
    Hold,
    Probe,
}

/// The law's state.
#[derive(Debug)]
pub(crate) struct BinaryLaw {
    hold_s: f64,
    phase: Phase,
    firing: bool,
    /// Served per second while all was well, and for how long that was watched, seconds.
    before: f64,
    learned_s: f64,
    budget: f64,
    /// The last budget at which the detector was silent for an interval.
    good: f64,
    /// The least budget at which it fired since; infinite once that was passed.
    bad: f64,
    /// The next step beyond.
    step: f64,
    interval_s: f64,
    /// In this phase, and silent or firing without a break, for so long.
    for_s: f64,
}

impl BinaryLaw {
    pub(crate) const fn new(hold_s: f64) -> Self {
        Self {
            hold_s,
            phase: Phase::Calm,
            firing: false,
            before: 0.0,
            learned_s: 0.0,
            budget: f64::INFINITY,
            good: 0.0,
            bad: f64::INFINITY,
            step: PROBE,
            interval_s: hold_s,
            for_s: 0.0,
        }
    }

    /// A new reading: it fires at 1.0 or more.
    pub(crate) fn read(&mut self, pressure: f64) {
        let firing = pressure >= 1.0;
        if firing != self.firing && self.phase == Phase::Hold {
            self.for_s = 0.0;
        }
        self.firing = firing;
    }

    /// One step of `dt_s` seconds: the budget, or nothing while it has no grip.
    /// It is not to be less than `least`.
    pub(crate) fn tick(&mut self, dt_s: f64, flow: &Flow, least: f64) -> Option<f64> {
        self.for_s += dt_s;
        match (self.phase, self.firing) {
            (Phase::Calm, false) => {
                // A quiet night says nothing of what can be served.
                if flow.is_known() && !flow.is_quiet() {
                    self.learned_s = (self.learned_s + dt_s).min(BEFORE_S);
                    // The plain mean while it is young.
                    let gain = (dt_s / self.learned_s).min(1.0);
                    self.before += gain * (flow.admitted - self.before);
                }
                return None;
            }
            (Phase::Calm, true) => {
                if !flow.is_known() {
                    return None;
                }
                let most = FIRST_CUT * flow.possible();
                let before = if self.learned_s >= BEFORE_S {
                    self.before
                } else {
                    most
                };
                self.bad = flow.possible();
                self.enter(Phase::Hold, before.min(most));
                self.good = self.budget;
            }
            (Phase::Hold, true) => {
                if self.for_s >= self.hold_s {
                    self.bad = self.bad.min(self.budget);
                    self.enter(Phase::Hold, CUT * self.budget);
                    self.good = self.budget;
                }
            }
            (Phase::Probe, true) => {
                self.interval_s = (2.0 * self.interval_s).min(INTERVAL_MAX * self.hold_s);
                self.bad = self.bad.min(self.budget);
                self.step = PROBE;
                self.enter(Phase::Hold, self.good);
            }
            (_, false) => {
                if self.for_s >= self.interval_s {
                    self.good = self.budget;
                    if self.budget >= flow.offered.min(flow.capacity) {
                        self.release();
                        return None;
                    }
                    if self.phase == Phase::Probe {
                        // There is room again: no reason to wait any longer than its effect takes to show.
                        self.interval_s = self.hold_s;
                        if self.budget >= self.bad || self.bad == f64::INFINITY {
                            self.bad = f64::INFINITY;
                            self.step = (self.step * self.step).min(STEP_MAX);
                        }
                    }
                    self.enter(Phase::Probe, self.higher());
                }
            }
        }
        // Not only what is given out: what was never tried is nothing to come back from.
        self.budget = self.budget.max(least);
        Some(self.budget)
    }

    /// Lets the gate go and forgets the episode.
    pub(crate) fn release(&mut self) {
        self.enter(Phase::Calm, f64::INFINITY);
        self.bad = f64::INFINITY;
        self.step = PROBE;
        self.interval_s = self.hold_s;
    }

    /// The next probe, see the table above.
    fn higher(&self) -> f64 {
        if self.bad < f64::INFINITY && self.bad > PROBE * self.budget {
            (self.budget * self.bad).sqrt()
        } else {
            self.step * self.budget
        }
    }

    /// Takes it for silent: nothing is known of it.
    pub(crate) fn forget(&mut self) {
        self.release();
        self.firing = false;
    }

    fn enter(&mut self, phase: Phase, budget: f64) {
        self.phase = phase;
        self.budget = budget;
        self.for_s = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DT_S: f64 = 0.02;

    fn flow(admitted: f64) -> Flow {
        Flow {
            admitted,
            offered: 2_000.0,
            capacity: 1_000.0,
            confirmed: false,
            binds: false,
            other_binds: false,
        }
    }

    /// Runs a detector that fires while more than `sustainable` was admitted; the budgets over time.
    fn run(law: &mut BinaryLaw, sustainable: impl Fn(f64) -> f64, seconds: f64) -> Vec<f64> {
        let mut admitted = 1_000.0;
        (0..(seconds / DT_S) as usize)
            .map(|k| {
                law.read(if admitted > sustainable(k as f64 * DT_S) {
                    1.0
                } else {
                    0.0
                });
                let budget = law
                    .tick(DT_S, &flow(admitted), 20.0)
                    .unwrap_or(f64::INFINITY);
                admitted = budget.min(1_000.0);
                budget
            })
            .collect()
    }

    #[test]
    fn cut_to_what_was_served_before_then_probe_and_roll_back() {
        let mut law = BinaryLaw::new(1.0);
        for _ in 0..2_000 {
            law.read(0.0);
            assert_eq!(law.tick(DT_S, &flow(600.0), 20.0), None);
        }
        let budgets = run(&mut law, |_| 700.0, 120.0);
        assert!((budgets[0] - 600.0).abs() < 1.0, "{}", budgets[0]);
        // From below and from above to within a probe of what can be carried, and then a look beyond, ever more seldom.
        let late = &budgets[budgets.len() / 2..];
        let good = late.iter().filter(|&&b| b <= 700.0).count() as f64 / late.len() as f64;
        assert!(good > 0.95, "{good}");
        let around = 700.0 / PROBE / PROBE..700.0 * PROBE * PROBE;
        let outside = late.iter().find(|b| !around.contains(b));
        assert_eq!(outside, None);
        let probes = late.windows(2).filter(|b| b[1] > b[0]).count();
        // Four holds of rest to each, and the first half minute is over.
        assert!((60 / 6..=60 / 4 + 1).contains(&probes), "{probes}");
    }

    #[test]
    fn while_it_fires_on_it_is_cut_further_and_when_it_is_over_let_go() {
        let mut law = BinaryLaw::new(1.0);
        law.read(0.0);
        law.tick(DT_S, &flow(1_000.0), 20.0);
        let budgets = run(&mut law, |s| if s < 20.0 { 300.0 } else { 2_000.0 }, 80.0);
        assert_eq!(budgets[0], 900.0, "nothing was served before but this");
        let held = budgets[(19.0 / DT_S) as usize];
        assert!((200.0..=340.0).contains(&held), "{held}");
        assert!(budgets[budgets.len() - 1].is_infinite());
        assert_eq!(law.phase, Phase::Calm);
    }

    #[test]
    fn room_that_came_back_is_found_within_eleven_holds() {
        // Three times as much, whenever it comes: between two probes, or right after one that failed.
        for tenths in 0..100 {
            let mut law = BinaryLaw::new(1.0);
            law.read(0.0);
            law.tick(DT_S, &flow(1_000.0), 20.0);
            let back_s = 60.0 + 0.1 * f64::from(tenths);
            let budgets = run(&mut law, |s| if s < back_s { 300.0 } else { 2_000.0 }, 90.0);
            let enough = budgets.iter().skip((back_s / DT_S) as usize);
            let after_s = DT_S * enough.take_while(|&&b| b < 1_000.0).count() as f64;
            assert!(after_s <= 11.0, "{after_s} s after {back_s} s");
        }
    }

    #[test]
    fn the_last_incident_is_forgotten() {
        let mut law = BinaryLaw::new(1.0);
        run(&mut law, |s| if s < 20.0 { 300.0 } else { 2_000.0 }, 80.0);
        for _ in 0..10_000 {
            law.read(0.0);
            law.tick(DT_S, &flow(950.0), 20.0);
        }
        law.read(1.0);
        let budget = law.tick(DT_S, &flow(950.0), 20.0).unwrap();
        assert!(budget > 850.0, "{budget}");
    }
}
