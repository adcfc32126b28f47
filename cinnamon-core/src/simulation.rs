//! Overload in virtual time: a seeded workload against a simulated store, behind the real engine or
//! any other [`Policy`].
//!
//! A day of traffic takes seconds, and one seed gives one trace, event for event, so that a change
//! of the law can be judged by figures and a failure can be replayed. Events at equal times are
//! taken in this order: the store's speed, completions, the policy's wake-ups, clients, arrivals.
//!
//! ```
//! use cinnamon_core::{ConfigError, Settings, simulation::{Phase, Scenario, VirtualController}};
//!
//! # fn main() -> Result<(), ConfigError> {
//! let scenario = Scenario {
//!     phases: vec![Phase::new("calm", 5.0, 0.7), Phase::new("overload", 5.0, 2.0)],
//!     ..Scenario::default()
//! };
//! let mut lane = VirtualController::new(Settings::one_lane("main", 20))?;
//! let report = scenario.run(&mut lane, &mut ())?;
//! assert!(report.phases[1].goodput > 0.9);
//! # Ok(())
//! # }
//! ```

mod controller;
mod plant;
mod policy;
mod report;
mod rng;
mod scenario;
mod store;
mod workload;
mod world;

pub use controller::{Defect, VirtualController};
pub use plant::{Plant, PlantKind, PlantSignal, Trouble, TroubleKind};
pub use policy::{Answer, Done, Offer, Policy, View};
pub use report::{End, Fate, PhaseReport, Report, Witness};
pub use rng::Rng;
pub use scenario::{
    Arrivals, Burst, Clients, Deadline, Ends, Heed, KeySpace, Keys, Pauses, Phase, Scenario,
    Service, Shape, Slowness, Tell, TenantLoad, Work, Writes,
};
pub use store::Speed;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::priority::Tier;

    fn run(scenario: &Scenario) -> (Report, Vec<Fate>) {
        #[derive(Default)]
        struct Fates(Vec<Fate>);
        impl Witness for Fates {
            fn ended(&mut self, fate: &Fate) {
                self.0.push(*fate);
            }
        }
        let slots = scenario.service.parallelism;
        let mut lane = VirtualController::new(Settings::one_lane("main", slots)).unwrap();
        let mut fates = Fates::default();
        let report = scenario.run(&mut lane, &mut fates).unwrap();
        let snapshot = lane.snapshot();
        assert_eq!(
            (snapshot.in_use, snapshot.waiting),
            (0, 0),
            "everybody is answered"
        );
        assert_eq!(snapshot.offered, fates.0.len() as u64);
        (report, fates.0)
    }

    fn phases() -> Vec<Phase> {
        vec![
            Phase::new("calm", 1.0, 0.7),
            Phase::new("overload", 1.0, 3.0),
        ]
    }

    #[test]
    fn one_seed_one_trace() {
        let short = |seed| {
            let phases = phases();
            run(&Scenario {
                seed,
                phases,
                ..Scenario::default()
            })
        };
        assert_eq!(short(5), short(5));
        assert_ne!(short(5).0.trace, short(6).0.trace);
    }

    #[test]
    fn figures_that_cannot_be_are_refused_and_a_phase_may_be_empty() {
        let after = Phase::new("after", 1.0, 0.5);
        let scenario = |phase| Scenario {
            phases: vec![phase, after.clone()],
            ..Scenario::default()
        };
        let stopped = scenario(Phase::new("stopped", 1.0, 0.5).capacity(0.0));
        assert_eq!(
            stopped.check().unwrap_err().to_string(),
            "`phases[0].capacity` is 0 but must be between 0.000001 and 1000000"
        );
        assert!(scenario(Phase::new("nan", 1.0, f64::NAN)).check().is_err());
        for wrong in [f64::NAN, -1.0, f64::INFINITY] {
            let hot = scenario(Phase::new("hot", 1.0, 0.5).hot(wrong)).check();
            let hot = hot.unwrap_err().to_string();
            assert!(hot.starts_with("`phases[0].hot` is"), "{hot}");
            let tenants = scenario(Phase::new("tenants", 1.0, 0.5).tenants(&[1.0, wrong]));
            let tenants = tenants.check().unwrap_err().to_string();
            assert!(
                tenants.starts_with("`phases[0].tenants[1]` is"),
                "{tenants}"
            );
        }
        // As many classes as an index can tell apart, and one more.
        let mut many = scenario(Phase::new("many", 1.0, 0.5));
        let class = Work {
            share: 1.0,
            times: 1.0,
            tell: Tell::Nothing,
            ends: Ends::Success,
        };
        many.service.work = vec![class; 1 << 16];
        many.bursts = vec![Burst {
            at_s: 0.0,
            requests: 1,
            within_s: 0.0,
            class: Some(u16::MAX),
        }];
        assert_eq!(many.check(), Ok(()));
        let (report, _) = run(&scenario(Phase::new("silence", 5.0, 0.0)));
        assert_eq!(report.phases[0].offers(), 0);
        let after = report.phases[1].offers();
        assert!((400..600).contains(&after), "{after}");
    }

    #[test]
    fn no_phases_no_events() {
        let (report, fates) = run(&Scenario::default());
        assert_eq!((report.trace, fates.len()), (0, 0));
    }

    #[test]
    fn every_kind_of_arrival_brings_the_load_it_says() {
        let kinds = [
            Arrivals::Poisson,
            Arrivals::Batches { size: 30 },
            Arrivals::OnOff {
                on_s: 0.01,
                off_s: 0.03,
            },
            Arrivals::Closed { think_s: 0.1 },
        ];
        for arrivals in kinds {
            let scenario = Scenario {
                arrivals,
                phases: vec![Phase::new("half", 60.0, 0.5)],
                ..Scenario::default()
            };
            let per_s = run(&scenario).0.phases[0].offers() as f64 / 60.0;
            assert!((per_s - 500.0).abs() < 30.0, "{arrivals:?}: {per_s}");
        }
    }

    #[test]
    fn work_has_the_mean_it_says_whatever_its_shape() {
        let dear = |tell| {
            vec![
                Work {
                    ends: Ends::Success,
                    share: 0.98,
                    times: 1.0,
                    tell,
                },
                Work {
                    ends: Ends::Success,
                    share: 0.02,
                    times: 450.0,
                    tell,
                },
            ]
        };
        let shapes = [
            (Shape::Constant, vec![]),
            (Shape::Lognormal { cv: 3.0 }, vec![]),
            (
                Shape::Bimodal {
                    share: 0.1,
                    times: 50.0,
                },
                vec![],
            ),
            (Shape::Exponential, dear(Tell::Class)),
        ];
        for (shape, work) in shapes {
            let scenario = Scenario {
                service: Service {
                    shape,
                    work,
                    ..Service::new(20, 0.02)
                },
                phases: vec![Phase::new("calm", 200.0, 0.5)],
                ..Scenario::default()
            };
            let fates = run(&scenario).1;
            let mean_s = fates.iter().map(|fate| fate.work_s).sum::<f64>() / fates.len() as f64;
            assert!((mean_s - 0.02).abs() < 0.002, "{shape:?}: {mean_s}");
        }
    }

    #[test]
    fn refused_requests_come_back_and_count_once() {
        let scenario = Scenario {
            phases: vec![Phase::new("overload", 5.0, 2.0)],
            clients: Clients {
                retries: 2,
                retry_after_s: 0.001,
                ..Clients::default()
            },
            ..Scenario::default()
        };
        let (report, fates) = run(&scenario);
        let first = fates.iter().filter(|fate| fate.attempt == 0).count() as u64;
        assert_eq!(report.phases[0].offers(), first);
        assert!(fates.iter().any(|fate| fate.attempt == 2));
        assert!(fates.iter().all(|fate| fate.attempt <= 2));
    }

    #[test]
    fn impatient_clients_give_up_and_say_so() {
        let scenario = Scenario {
            bursts: vec![Burst {
                class: None,
                at_s: 1.0,
                requests: 95,
                within_s: 0.001,
            }],
            clients: Clients {
                patience_s: Some(0.02),
                ..Clients::default()
            },
            phases: vec![Phase::new("calm", 3.0, 0.5)],
            ..Scenario::default()
        };
        let (_, fates) = run(&scenario);
        let gave_up = fates.iter().filter(|fate| fate.end == End::GaveUp);
        assert!(gave_up.clone().count() > 10);
        for fate in gave_up {
            assert_eq!(fate.ended_at.nanos_since(fate.arrived_at), 20_000_000);
        }
    }

    #[test]
    fn untagged_work_and_single_levels_keep_their_worth() {
        for (keys, offered_at) in [
            (Keys::Untagged, None),
            (Keys::OneLevel { priority: 300 }, Some(300)),
        ] {
            let scenario = Scenario {
                keys,
                phases: phases(),
                ..Scenario::default()
            };
            let (report, fates) = run(&scenario);
            assert!(report.phases[0].offered[Tier::T1.index()] > 100);
            for fate in fates {
                match offered_at {
                    Some(priority) => assert_eq!(fate.priority.number(), priority),
                    None => assert_eq!(fate.priority.tier(), Tier::T3),
                }
            }
        }
    }
}
