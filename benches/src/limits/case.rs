//! Where limits have gone wrong: beginnings, stores that change, clients that misbehave.

use cinnamon_core::simulation::{Burst, Ends, Phase, Scenario, Service, Shape, Tell, Work};

use super::rules::MOST;
use crate::sim::scenario::STANDARDS;

/// What is held in one phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// Nothing.
    Free,
    /// From this long after the phase began the limit is within 20 % of the store's room.
    Finds {
        /// Seconds.
        after_s: f64,
    },
    /// The limit is no higher at the end than it was at the beginning, and no lower than this share of it.
    Holds {
        /// Share.
        least: f64,
    },
    /// The limit stays below so many slots.
    Below {
        /// Slots.
        slots: u32,
    },
}

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// Slots in the beginning.
    pub start: u32,
    /// What happens.
    pub scenario: Scenario,
    /// What is held, by phase.
    pub bars: Vec<Bar>,
    /// Where the fault that it is about was seen.
    pub source: &'static str,
    /// The goodput is judged by the oracle, in this phase; else over what the store could have given.
    pub by_oracle: Option<usize>,
}

/// The deadline of a store of 1,000 a second and 20 ms. (The others': see [`deadline_s`].)
const DEADLINE_EVENTS: f64 = 4_000.0;
/// … and of a store that is slow rather than rare.
const DEADLINE_SERVICES: f64 = 60.0;
/// … and not faster than the ticks.
const DEADLINE_MIN_S: f64 = 1.5;

/// What is let into a store of some twenty slots by a limit of thousands takes so many times as long.
const BURIED: f64 = 4.0;
/// A limit that was right until the room changed is found again in so many times the time: it rests between looks.
const MOVES: f64 = 4.0;

/// The time in which a limit is to be found, seconds: that of 4,000 completions, of 60 service times, or a
/// second and a half, whichever is longest.
#[must_use]
pub fn deadline_s(capacity_per_s: f64, service_s: f64) -> f64 {
    (DEADLINE_EVENTS / capacity_per_s)
        .max(DEADLINE_SERVICES * service_s)
        .max(DEADLINE_MIN_S)
}

fn usual() -> Scenario {
    Scenario {
        service: Service::new(20, 0.02),
        ..Scenario::default()
    }
}

fn case(name: &str, start: u32, scenario: Scenario, bars: Vec<Bar>, source: &'static str) -> Case {
    Case {
        name: name.to_owned(),
        start,
        scenario,
        bars,
        source,
        by_oracle: None,
    }
}

/// All cases.
#[must_use]
pub fn cases() -> Vec<Case> {
    let mut all = beginnings();
    all.extend(changes());
    all.extend(clients());
    all
}

/// Calm, then twice what it can do, then calm, on stores from 10 to 100,000 requests a second and from 50 us to
/// 500 ms of service time, from half the right limit, from it, and from four times as many.
#[must_use]
pub fn grid() -> Vec<Case> {
    let mut all = Vec::new();
    for per_s in [10.0, 100.0, 1_000.0, 10_000.0, 100_000.0] {
        for service_s in [0.000_05, 0.001, 0.02, 0.5] {
            let room = (per_s * service_s * 1.0001f64).floor();
            if !(2.0..=2_000.0).contains(&room) {
                continue;
            }
            for (error, name) in [(0.5, "half"), (1.0, "right"), (4.0, "x4")] {
                // So many completions, or services, as say something.
                let seconds = (4_000.0 / per_s).max(60.0 * service_s).max(1.0);
                let mut scenario = usual();
                scenario.service = Service::new(room as u32, service_s);
                scenario.deadline.base_s = (6.0 * service_s).max(1.0);
                scenario.deadline.services = 3.0;
                scenario.phases = vec![
                    Phase::new("calm", seconds, 0.7),
                    Phase::new("2x", 2.0 * seconds, 2.0),
                    Phase::new("after", 0.5 * seconds, 0.7),
                ];
                let start = ((room * error).round() as u32).max(1);
                let name = format!("grid-{per_s}rps-{}us-{name}", service_s * 1e6);
                let bars = vec![Bar::Free; 3];
                let mut cell = case(&name, start, scenario, bars, "DESIGN.md");
                cell.by_oracle = Some(1);
                all.push(cell);
            }
        }
    }
    all
}

/// Every beginning on every service, at one and a half times what it can do.
fn beginnings() -> Vec<Case> {
    let mut all = Vec::new();
    for standard in &STANDARDS {
        let service = Service::new(standard.parallelism, standard.mean_s);
        let after_s = deadline_s(service.capacity_per_s(), service.mean_s);
        for start in [1, 2, 5, 20, 50, MOST] {
            // Thousands that were let in before anything was known have to end first.
            let after_s = if start == MOST {
                BURIED * after_s
            } else {
                after_s
            };
            let mut deadline = usual().deadline;
            deadline.base_s = (6.0 * service.mean_s).max(1.0);
            deadline.services = 3.0;
            let scenario = Scenario {
                deadline,
                service: service.clone(),
                phases: vec![Phase::new("overload", 2.0 * after_s, 1.5)],
                ..Scenario::default()
            };
            let name = format!("start-{start}-{}", standard.label);
            all.push(case(
                &name,
                start,
                scenario,
                vec![Bar::Finds { after_s }],
                "concurrency-limits#35",
            ));
        }
    }
    all
}

/// The store changes.
fn changes() -> Vec<Case> {
    let finds = Bar::Finds {
        after_s: deadline_s(1_000.0, 0.02),
    };
    // A tenth of the speed: a tenth of the completions to go by.
    let finds_slowly = Bar::Finds {
        after_s: deadline_s(100.0, 0.2),
    };
    let mut moving = usual();
    moving.phases = vec![
        Phase::new("healthy", 15.0, 1.5),
        Phase::new("half the room", 30.0, 0.75).parallelism(0.5),
        Phase::new("twice the room", 30.0, 3.0).parallelism(2.0),
        Phase::new("healthy again", 30.0, 1.5),
    ];
    let moves = Bar::Finds {
        after_s: MOVES * deadline_s(1_000.0, 0.02),
    };
    let mut degraded = usual();
    degraded.phases = vec![
        Phase::new("healthy", 15.0, 1.5),
        Phase::new("ten times slower", 600.0, 0.15).capacity(0.1),
        Phase::new("healthy again", 15.0, 1.5),
    ];
    let mut shifted = usual();
    shifted.phases = vec![
        Phase::new("healthy", 15.0, 1.5),
        Phase::new("five times slower", 300.0, 0.3).capacity(0.2),
    ];
    let mut stuck = usual();
    stuck.service = Service::new(20, 0.001);
    stuck.phases = vec![
        Phase::new("healthy", 5.0, 1.5),
        // Every call takes 5 s, however many there are.
        Phase::new("stuck", 600.0, 0.05)
            .capacity(0.000_2)
            .parallelism(10_000.0),
        Phase::new("healthy again", 10.0, 1.5),
    ];
    let mut heavy = usual();
    heavy.service.shape = Shape::Lognormal { cv: 3.0 };
    heavy.phases = vec![Phase::new("overload", 120.0, 1.5)];
    let mut phases = usual();
    phases.phases = vec![
        Phase::new("0.7x", 10.0, 0.7),
        Phase::new("2x", 20.0, 2.0),
        Phase::new("12x", 10.0, 12.0),
        Phase::new("back at 0.7x", 15.0, 0.7),
        Phase::new("capacity 0.4", 15.0, 0.7).capacity(0.4),
        Phase::new("capacity back", 15.0, 0.7),
    ];
    let kept = Bar::Holds { least: 0.8 };
    let mut quiet = phases.clone();
    quiet.service = Service::new(5, 0.5);
    quiet.deadline.base_s = 3.0;
    quiet.deadline.services = 3.0;
    for phase in &mut quiet.phases {
        phase.seconds *= 4.0;
    }
    let mut dear = phases.clone();
    dear.service.work = vec![
        Work {
            share: 0.98,
            times: 1.0,
            tell: Tell::Class,
            ends: Ends::Success,
        },
        Work {
            share: 0.02,
            times: 450.0,
            tell: Tell::Class,
            ends: Ends::Success,
        },
    ];
    dear.phases = vec![Phase::new("calm", 30.0, 0.7), Phase::new("2x", 30.0, 2.0)];
    vec![
        case(
            "phases",
            20,
            phases,
            vec![kept, kept, kept, kept, kept, kept],
            "CONTROL.md",
        ),
        case(
            "phases-10rps",
            5,
            quiet,
            vec![kept, kept, kept, kept, kept, kept],
            "CONTROL.md",
        ),
        case("dear", 20, dear, vec![kept, kept], "ALGORITHMS 12"),
        case(
            "moving-optimum",
            20,
            moving,
            vec![finds, moves, moves, moves],
            "ALGORITHMS 12.13",
        ),
        case(
            "degraded-10x",
            20,
            degraded,
            vec![finds, finds_slowly, finds],
            "concurrency-limits#165, failsafe-go#127",
        ),
        case(
            "shifted-5x",
            20,
            shifted,
            vec![finds, finds_slowly],
            "concurrency-limits#37",
        ),
        case(
            "stable-timeout",
            20,
            stuck,
            vec![finds, Bar::Below { slots: 40 }, Bar::Finds { after_s: 5.0 }],
            "concurrency-limits#137",
        ),
        case(
            "heavy-tail",
            5,
            heavy,
            vec![Bar::Finds { after_s: 60.0 }],
            "envoy#9038",
        ),
    ]
}

/// The clients do not ask as expected.
fn clients() -> Vec<Case> {
    let finds = Bar::Finds {
        after_s: deadline_s(1_000.0, 0.02),
    };
    let holds = Bar::Holds { least: 0.8 };
    let mut limited = usual();
    limited.phases = vec![
        Phase::new("one at a time", 600.0, 0.05),
        Phase::new("a burst", 5.0, 0.05),
    ];
    limited.bursts = vec![Burst {
        at_s: 600.0,
        requests: 5_000,
        within_s: 0.0,
        class: None,
    }];
    let mut idle = usual();
    idle.phases = vec![
        Phase::new("overload", 15.0, 1.5),
        Phase::new("an hour of nothing", 3_600.0, 0.0001),
        Phase::new("calm", 15.0, 0.7),
        Phase::new("overload again", 15.0, 1.5),
    ];
    let mut mild = usual();
    mild.service = Service::new(10, 0.2);
    mild.phases = vec![Phase::new("60 on 50", 600.0, 1.2)];
    let mild_after_s = deadline_s(50.0, 0.2);
    let class = |share: f64, times: f64, ends: Ends| Work {
        share,
        times,
        tell: Tell::Nothing,
        ends,
    };
    let with = |ends: Ends, share: f64, times: f64| {
        let mut scenario = usual();
        scenario.service.work = vec![class(1.0, 1.0, Ends::Success), class(share, times, ends)];
        scenario.phases = vec![Phase::new("overload", 20.0, 1.5)];
        scenario
    };
    let mut storm = with(Ends::Abandoned, 1e-9, 0.05);
    storm.phases = vec![
        Phase::new("overload", 15.0, 1.5),
        Phase::new("calm", 20.0, 0.5),
        Phase::new("overload again", 15.0, 1.5),
    ];
    storm.bursts = vec![Burst {
        at_s: 25.0,
        requests: 1_000,
        within_s: 1.0,
        class: Some(1),
    }];
    let mut outlier = with(Ends::Success, 1e-9, 1e-4);
    outlier.bursts = vec![Burst {
        at_s: 10.0,
        requests: 1,
        within_s: 0.0,
        class: Some(1),
    }];
    vec![
        case(
            "application-limited",
            20,
            limited,
            vec![holds, Bar::Below { slots: 4 * 20 + 1 }],
            "concurrency-limits#53",
        ),
        case(
            "idle-hour",
            5,
            idle,
            vec![finds, holds, holds, finds],
            "cockroach#115373, #109361",
        ),
        case(
            "mild-overload",
            20,
            mild,
            vec![Bar::Finds {
                after_s: mild_after_s,
            }],
            "concurrency-limits#134",
        ),
        case(
            "disconnect-storm",
            5,
            storm,
            vec![finds, holds, finds],
            "throttle-net: drop is failure",
        ),
        case(
            "one-outlier",
            5,
            outlier,
            vec![finds],
            "concurrency-limits#37",
        ),
        case(
            "fast-failures",
            5,
            with(Ends::Failure, 0.05, 1e-4),
            vec![finds],
            "concurrency-limits#176",
        ),
        case(
            "fast-cancels",
            5,
            with(Ends::Abandoned, 0.05, 1e-4),
            vec![finds],
            "rust-zero-core: one dropped permit",
        ),
    ]
}
