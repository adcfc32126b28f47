//! The numbers to reach, and the judgement.

use cinnamon_core::{TIERS, Tier};

use super::measures::{Figures, QUIET_PER_S};
use super::outcome::Row;
use super::scenario::{Case, Role};

/// Over the seeds, which figure is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The median.
    Median,
    /// The worst.
    Worst,
    /// The mean: where a run may have one such request or none, it is the share over all runs.
    Mean,
}

/// Which way is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    /// The more the better.
    AtLeast,
    /// The less the better.
    AtMost,
}

/// One bar.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    /// Its name.
    pub name: &'static str,
    /// What is measured, with its unit.
    pub about: &'static str,
    /// Median, worst or mean.
    pub over: Over,
    /// At least or at most.
    pub sense: Sense,
    /// The figure of one run; not a number if it has none.
    measure: fn(&Figures) -> f64,
    /// Phases it is held to.
    roles: &'static [Role],
    /// The bound, with the one for the 10 rps service; nothing means that it is only reported there.
    bound: [Option<f64>; 2],
}

const LOADED: &[Role] = &[Role::Overload, Role::Steady, Role::Step];
const ALL: &[Role] = &[
    Role::Calm,
    Role::Overload,
    Role::Steady,
    Role::Step,
    Role::After,
];

/// Every bar and every figure that is reported.
pub const BARS: &[Bar] = &[
    Bar {
        name: "goodput-median",
        about: "work answered in time over the oracle's",
        over: Over::Median,
        sense: Sense::AtLeast,
        measure: |f| f.goodput,
        roles: ALL,
        bound: [Some(0.97), Some(0.90)],
    },
    Bar {
        name: "goodput-worst",
        about: "the same, worst run",
        over: Over::Worst,
        sense: Sense::AtLeast,
        measure: |f| f.goodput,
        roles: ALL,
        bound: [Some(0.95), Some(0.80)],
    },
    Bar {
        name: "t0-shed",
        about: "t0 requests refused by the gate while t0 fits",
        over: Over::Worst,
        sense: Sense::AtMost,
        measure: |f| {
            if f.t0_fits && f.offered[0] > 0 {
                f.t0_shed as f64
            } else {
                f64::NAN
            }
        },
        roles: ALL,
        bound: [Some(0.0), Some(0.0)],
    },
    Bar {
        name: "t0-t1-median",
        about: "t0 and t1 answered in time, of as many as the oracle answers; where they fit in 0.9 C",
        over: Over::Median,
        sense: Sense::AtLeast,
        measure: |f| {
            if f.protected_fit {
                f.protected
            } else {
                f64::NAN
            }
        },
        roles: ALL,
        bound: [Some(0.999), Some(0.98)],
    },
    Bar {
        name: "t0-t1-worst",
        about: "the same, worst run",
        over: Over::Worst,
        sense: Sense::AtLeast,
        measure: |f| {
            if f.protected_fit {
                f.protected
            } else {
                f64::NAN
            }
        },
        roles: ALL,
        bound: [Some(0.995), Some(0.98)],
    },
    Bar {
        name: "inversions",
        about: "work of higher tiers lost while lower tiers were served, share of capacity",
        over: Over::Median,
        sense: Sense::AtMost,
        measure: |f| f.inversions,
        roles: LOADED,
        bound: [Some(0.02), None],
    },
    Bar {
        name: "lost-queued",
        about: "share of the refused who had waited first",
        over: Over::Median,
        sense: Sense::AtMost,
        measure: |f| f.lost_in_queue as f64 / f.refused as f64,
        roles: LOADED,
        // What is swept at engagement is a heap of a second or two, and on the quiet service there are
        // only some hundred refused in all.
        bound: [Some(0.12), Some(0.75)],
    },
    Bar {
        name: "lost-in-calm",
        about: "share of the requests refused in calm",
        over: Over::Mean,
        sense: Sense::AtMost,
        measure: |f| {
            let requests: u64 = f.offered.iter().sum();
            f.refused_within as f64 / requests.max(1) as f64
        },
        roles: &[Role::Calm],
        bound: [Some(0.0), Some(0.005)],
    },
    Bar {
        name: "step",
        about: "mean move of the threshold per tick in a steady overload, levels",
        over: Over::Median,
        sense: Sense::AtMost,
        measure: |f| f.step,
        roles: &[Role::Steady],
        bound: [Some(10.0), Some(10.0)],
    },
    Bar {
        name: "ticks-to-target",
        about: "ticks from engagement until the backlog is back at its target",
        over: Over::Median,
        sense: Sense::AtMost,
        measure: |f| f.converge_ticks,
        roles: &[Role::Step],
        bound: [Some(2.0), Some(2.0)],
    },
    Bar {
        name: "refused-soon",
        about: "share of the requests of the first 2 s after an overload that were refused",
        over: Over::Median,
        sense: Sense::AtMost,
        measure: |f| f.refused_soon,
        roles: &[Role::After],
        bound: [Some(0.05), None],
    },
    Bar {
        name: "refused-later",
        about: "requests refused later than 2 s (10 rps: 5 s) after an overload",
        over: Over::Median,
        sense: Sense::AtMost,
        measure: |f| f.refused_later as f64,
        roles: &[Role::After],
        bound: [Some(0.0), Some(0.0)],
    },
    figure(
        "protected",
        "t0 and t1 answered in time, of as many as the oracle answers, fit or not",
        |f| f.protected,
    ),
    worst(
        "off-target",
        "mean pressure of the plant, off its target of 1.0",
        |f| f.off_target,
    ),
    worst("peak-pressure", "greatest pressure of the plant", |f| {
        f.peak_pressure
    }),
    worst(
        "signal-shed",
        "offers refused by the gate while a signal held it",
        |f| f.signal_shed as f64,
    ),
    worst(
        "signal-shed-later",
        "the same, later than 2 s into the phase",
        |f| f.signal_shed_later as f64,
    ),
    worst(
        "crossed",
        "t3-t5 reads let in while t1 writes were shed",
        |f| f.crossed as f64,
    ),
    Bar {
        over: Over::Worst,
        ..share(
            "served",
            "answers in time over what the store can do at full speed",
            |f| f.served,
        )
    },
    figure(
        "flipping",
        "share of keys whose verdict flips more than once in 10 s",
        |f| f.flipping,
    ),
    figure(
        "engage-s",
        "from the start of the phase until the gate closes, s",
        |f| f.engage_s,
    ),
    figure(
        "converge-s",
        "from then until the backlog is at its target, s",
        |f| f.converge_s,
    ),
    figure(
        "release-s",
        "from the start of the phase until the gate is open for good, s",
        |f| f.release_s,
    ),
    figure(
        "wait-p50-s",
        "median time in the queue of those that ran, s",
        |f| f.wait_s[0],
    ),
    figure("wait-p99-s", "its 99th percentile, s", |f| f.wait_s[1]),
    figure("wait-max-s", "its maximum, s", |f| f.wait_s[2]),
    figure(
        "saturated",
        "share of engaged ticks with the trim at a bound",
        |f| f.saturated,
    ),
    figure("amplification", "attempts per request", |f| f.amplification),
    figure("excess", "work beyond the oracle's, share", |f| f.excess),
    figure("share-shed", "attempts refused by the gate, share", |f| {
        f.share("shed")
    }),
    figure(
        "share-busy",
        "attempts refused for want of a free slot, share",
        |f| f.share("busy"),
    ),
    figure(
        "share-evict",
        "attempts refused to make room, or swept, share",
        |f| f.share("evict"),
    ),
    figure(
        "share-expire",
        "attempts refused after too long a wait, share",
        |f| f.share("expire"),
    ),
    figure(
        "share-cancel",
        "attempts refused given up by the client, share",
        |f| f.share("cancel"),
    ),
    figure("share-late", "attempts answered too late, share", |f| {
        f.share("admit, too late")
    }),
    figure(
        "regret-t0",
        "work of t0 that only the oracle answers, share of capacity",
        |f| f.regret[0],
    ),
    figure("regret-t1", "the same for t1", |f| f.regret[1]),
    figure("regret-t2", "the same for t2", |f| f.regret[2]),
    figure("regret-t3", "the same for t3", |f| f.regret[3]),
    figure("regret-t4", "the same for t4", |f| f.regret[4]),
    figure("regret-t5", "the same for t5", |f| f.regret[5]),
    figure(
        "instead-t1",
        "work of t1 served while a higher tier lost as much, share of capacity",
        |f| f.served_instead[1],
    ),
    figure(
        "instead-t2",
        "work of t2 served while a higher tier lost as much, share of capacity",
        |f| f.served_instead[2],
    ),
    figure(
        "instead-t3",
        "work of t3 served while a higher tier lost as much, share of capacity",
        |f| f.served_instead[3],
    ),
    figure(
        "instead-t4",
        "work of t4 served while a higher tier lost as much, share of capacity",
        |f| f.served_instead[4],
    ),
    figure(
        "instead-t5",
        "work of t5 served while a higher tier lost as much, share of capacity",
        |f| f.served_instead[5],
    ),
    share("success-t0", "share of t0 answered in time", |f| {
        f.success(Tier::ALL[0])
    }),
    share("success-t1", "share of t1 answered in time", |f| {
        f.success(Tier::ALL[1])
    }),
    share("success-t2", "share of t2 answered in time", |f| {
        f.success(Tier::ALL[2])
    }),
    share("success-t3", "share of t3 answered in time", |f| {
        f.success(Tier::ALL[3])
    }),
    share("success-t4", "share of t4 answered in time", |f| {
        f.success(Tier::ALL[4])
    }),
    share("success-t5", "share of t5 answered in time", |f| {
        f.success(Tier::ALL[5])
    }),
];

const _: () = assert!(TIERS == 6, "one line per tier above");

/// A figure without a bound of which more is better.
const fn share(name: &'static str, about: &'static str, measure: fn(&Figures) -> f64) -> Bar {
    Bar {
        sense: Sense::AtLeast,
        ..figure(name, about, measure)
    }
}

/// A figure that only a file bounds, and then its worst run.
const fn worst(name: &'static str, about: &'static str, measure: fn(&Figures) -> f64) -> Bar {
    Bar {
        over: Over::Worst,
        ..figure(name, about, measure)
    }
}

/// A figure without a bound.
const fn figure(name: &'static str, about: &'static str, measure: fn(&Figures) -> f64) -> Bar {
    Bar {
        name,
        about,
        over: Over::Median,
        sense: Sense::AtMost,
        measure,
        roles: &[],
        bound: [None, None],
    }
}

/// The rows of one arm in one case: `runs` has the figures of each phase, per seed.
#[must_use]
pub fn judge(case: &Case, arm: &'static str, runs: &[Vec<Figures>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (phase, role) in case.roles.iter().enumerate() {
        for bar in BARS {
            let of_phase = runs.iter().map(|run| (bar.measure)(&run[phase]));
            let mut figures: Vec<f64> = of_phase.filter(|figure| figure.is_finite()).collect();
            figures.sort_by(f64::total_cmp);
            let (Some(&min), Some(&max)) = (figures.first(), figures.last()) else {
                continue;
            };
            let middle = figures.len() / 2;
            let median = 0.5 * (figures[(figures.len() - 1) / 2] + figures[middle]);
            let value = match (bar.over, bar.sense) {
                (Over::Median, _) => median,
                (Over::Mean, _) => figures.iter().sum::<f64>() / figures.len() as f64,
                (Over::Worst, Sense::AtLeast) => min,
                (Over::Worst, Sense::AtMost) => max,
            };
            let bound = bound(case, phase, *role, bar);
            rows.push(Row {
                scenario: case.scenario.clone(),
                service: case.service,
                arm,
                phase: case.run.phases[phase].name.clone(),
                bar: bar.name,
                value,
                bound,
                pass: bound.map(|bound| match bar.sense {
                    Sense::AtLeast => value >= bound,
                    Sense::AtMost => value <= bound,
                }),
                seeds: figures.len(),
                min,
                median,
                max,
            });
        }
    }
    rows
}

/// What this phase is held to: the file's word if it has one, else the usual.
fn bound(case: &Case, phase: usize, role: Role, bar: &Bar) -> Option<f64> {
    let exception = case.exceptions[phase]
        .iter()
        .find(|exception| exception.bars.iter().any(|name| name == bar.name));
    if let Some(exception) = exception {
        return exception.bound;
    }
    if !bar.roles.contains(&role) {
        return None;
    }
    let quiet = case.run.service.capacity_per_s() < QUIET_PER_S;
    bar.bound[usize::from(quiet)]
}

#[cfg(test)]
mod tests {
    use super::super::scenario::Named;
    use super::*;

    fn case(bounds: &str) -> Case {
        let text = format!(
            "about = \"a test\"\nservices = [\"1000rps\"]\n[[phases]]\nname = \"2x\"\nrole = \"steady\"\n\
             seconds = 10\nload = 2.0\n{bounds}"
        );
        Named::parse("test", &text)
            .unwrap()
            .cases()
            .unwrap()
            .remove(0)
    }

    fn runs() -> Vec<Vec<Figures>> {
        let run = |goodput, step| {
            let figures = Figures {
                goodput,
                step,
                engage_s: f64::NAN,
                ..Figures::default()
            };
            vec![figures]
        };
        vec![run(0.99, 4.0), run(0.94, 30.0), run(0.98, 5.0)]
    }

    fn row(rows: &[Row], bar: &str) -> Row {
        rows.iter().find(|row| row.bar == bar).unwrap().clone()
    }

    #[test]
    fn medians_and_worsts_are_judged_as_they_should() {
        let rows = judge(&case(""), "cinnamon", &runs());
        let median = row(&rows, "goodput-median");
        assert_eq!(
            (median.value, median.bound, median.pass),
            (0.98, Some(0.97), Some(true))
        );
        let worst = row(&rows, "goodput-worst");
        assert_eq!((worst.value, worst.pass), (0.94, Some(false)));
        assert_eq!(row(&rows, "step").pass, Some(true));
        assert_eq!(
            row(&rows, "refused-soon").pass,
            None,
            "not a phase after an overload"
        );
        assert!(
            rows.iter().all(|row| row.bar != "engage-s"),
            "there is no such figure"
        );
    }

    #[test]
    fn a_file_may_set_a_bound_or_take_it_away_but_only_of_a_bar_that_exists() {
        let bounds = "[[phases.bounds]]\nbars = [\"step\"]\nbound = 3.0\nbecause = \"a test\"\n\
                      [[phases.bounds]]\nbars = [\"goodput-worst\"]\nbecause = \"a test\"\n";
        let rows = judge(&case(bounds), "cinnamon", &runs());
        assert_eq!(row(&rows, "step").pass, Some(false));
        assert_eq!(row(&rows, "goodput-worst").pass, None);
        let unknown = "about = \"a\"\nservices = [\"10rps\"]\n[[phases]]\nname = \"a\"\nrole = \"calm\"\nseconds = 1\n\
                       load = 1.0\n[[phases.bounds]]\nbars = [\"stp\"]\nbecause = \"a\"\n";
        let error = Named::parse("test", unknown).unwrap_err().to_string();
        assert!(
            error.contains("bar \"stp\" is unknown; known are goodput-median"),
            "{error}"
        );
    }
}
