//! The arms of a comparison: what can stand between the clients and the store.

mod always_admit;
mod auto;
mod bucket;
mod cinnamon;
mod codel;
mod fixed;
mod flow;
mod frozen_threshold;
mod mutants;
mod no_signals;
mod none;
mod order;
mod random_shed;
mod slots;

use cinnamon_core::ConfigError;
use cinnamon_core::simulation::{Policy, Scenario};

/// What an arm is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What the bars are for.
    Product,
    /// A system it replaces.
    Baseline,
    /// Cinnamon with other settings, for comparison.
    Variant,
    /// It must fail: a bar that it passes is no bar.
    Control,
    /// Cinnamon with a fault in its law; it must fail too.
    Mutant,
}

/// One arm.
#[derive(Clone, Copy, Debug)]
pub struct Arm {
    /// Its name on the command line, lower case.
    pub name: &'static str,
    /// One line that says what it does and whose constants it has.
    pub about: &'static str,
    /// What it is there for.
    pub kind: Kind,
    /// Builds the policy for a scenario. Slots are the store's parallelism.
    pub build: fn(&Scenario) -> Result<Box<dyn Policy>, ConfigError>,
}

/// All arms: the product, then baselines, controls and mutants.
pub const ARMS: &[Arm] = &[
    cinnamon::ARM,
    none::ARM,
    fixed::ARM,
    bucket::ARM,
    codel::ARM,
    flow::ARM,
    order::FIFO,
    order::LIFO,
    auto::RIGHT,
    auto::HALF,
    auto::FOUR_TIMES,
    no_signals::ARM,
    always_admit::ARM,
    random_shed::ARM,
    frozen_threshold::ARM,
    mutants::NO_FRACTION,
    mutants::NO_ANTI_WINDUP,
    mutants::ADMITTED_HISTOGRAM,
    mutants::NO_SWEEP,
    mutants::TEN_TIMES_GAIN,
    mutants::TEN_TIMES_SLOTS,
];

/// The arm of this name.
#[must_use]
pub fn arm(name: &str) -> Option<&'static Arm> {
    ARMS.iter().find(|arm| arm.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnamon_core::simulation::{
        Burst, Clients, Fate, Offer, Pauses, Phase, Report, Service, Witness,
    };
    use cinnamon_core::{KeyHash, Request, Tier};

    /// One phase of so many seconds at this load, on 1,000 requests a second.
    pub(super) fn overload(load: f64, seconds: f64) -> Scenario {
        Scenario {
            phases: vec![Phase::new("overload", seconds, load)],
            ..Scenario::default()
        }
    }

    /// Some offer with this token.
    pub(super) fn offer(token: u32) -> Offer {
        Offer {
            token,
            request: Request::new(Tier::T2),
            priority: KeyHash::new(0, 0)
                .rank(Tier::T2, u64::from(token))
                .priority(),
            lane: 0,
        }
    }

    pub(super) fn run(arm: &Arm, scenario: &Scenario) -> (Report, Vec<Fate>) {
        #[derive(Default)]
        struct Fates(Vec<Fate>);
        impl Witness for Fates {
            fn ended(&mut self, fate: &Fate) {
                self.0.push(*fate);
            }
        }
        let mut fates = Fates::default();
        let mut policy = (arm.build)(scenario).unwrap();
        let report = scenario.run(policy.as_mut(), &mut fates).unwrap();
        (report, fates.0)
    }

    /// Everything that can happen to a queue: pauses, bursts, people who give up, people who come
    /// again, an empty phase.
    fn trouble() -> Scenario {
        Scenario {
            service: Service {
                pauses: Some(Pauses {
                    every_s: 0.5,
                    length_s: 0.1,
                }),
                ..Service::new(20, 0.02)
            },
            phases: vec![
                Phase::new("overload", 2.0, 3.0),
                Phase::new("silence", 1.0, 0.0),
                Phase::new("slow", 1.0, 0.7).capacity(0.4),
            ],
            bursts: vec![Burst {
                class: None,
                at_s: 2.5,
                requests: 2_000,
                within_s: 0.0,
            }],
            clients: Clients {
                patience_s: Some(0.3),
                retries: 1,
                retry_after_s: 0.05,
                ..Clients::default()
            },
            ..Scenario::default()
        }
    }

    #[test]
    fn every_arm_answers_everybody_and_the_same_again() {
        for arm in ARMS {
            let (report, fates) = run(arm, &trouble());
            let requests: u64 = report.phases.iter().map(|phase| phase.offers()).sum();
            let first = fates.iter().filter(|fate| fate.attempt == 0).count() as u64;
            assert_eq!(first, requests, "{}", arm.name);
            assert_eq!(run(arm, &trouble()).0.trace, report.trace, "{}", arm.name);
        }
    }

    #[test]
    fn names_are_distinct_and_the_product_comes_first() {
        assert_eq!(ARMS[0].kind, Kind::Product);
        let order = ARMS.iter().map(|arm| arm.kind as u8);
        assert!(order.is_sorted());
        for (i, arm) in ARMS.iter().enumerate() {
            assert_eq!(
                super::arm(arm.name).map(|found| found.about),
                Some(arm.about)
            );
            assert!(ARMS[..i].iter().all(|other| other.name != arm.name));
        }
    }
}
