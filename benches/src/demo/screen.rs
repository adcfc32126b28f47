//! What the demo prints: first, who gets dropped.

use std::process::ExitCode;

use cinnamon_core::{Reason, Snapshot, Tier, Verdict, Who};

use super::arm::Arm;
use super::load::{BASE_LOAD, FAILURE_S, SETTLE_S, Way};
use super::stats::{DEADLINE, Stats, Throttled};
use super::{LATENESS_P99_MAX, Outcome, Run};

/// What Cinnamon promises of t0 and t1, in each failure.
pub(super) const PROTECTED_SUCCESS_MIN: f64 = 0.99;
/// With a hot key that is throttled, of what calm gives bystanders they must get at least so much: their load is 0.7 of what
/// fits, so that one request in a hundred is all that the search for the key's rate may cost.
const BYSTANDERS_OF_CALM_MIN: f64 = 0.99;
/// An override must be in force within this.
const OVERRIDE_MS_MAX: u128 = 100;
/// The groups of tiers that are told apart.
pub(super) const GROUPS: [(&str, &[Tier]); 4] = [
    ("t0+t1", &[Tier::T0, Tier::T1]),
    ("t2", &[Tier::T2]),
    ("t3", &[Tier::T3]),
    ("t4+t5", &[Tier::T4, Tier::T5]),
];

/// Prints everything and says how the process should end.
pub(super) fn print(outcome: &Outcome) -> ExitCode {
    println!(
        "Break one node four ways: who gets dropped? Answers within {} s while the failure lasts ({} s), % of offers; \
         ordinary load {BASE_LOAD} of C = {:.0} requests/s; bystanders: t2 to t5 of the ordinary load; seed {}",
        DEADLINE.as_secs(),
        FAILURE_S * outcome.scale,
        outcome.capacity_per_s,
        outcome.seed
    );
    for way in ways(outcome) {
        print_way(outcome, way);
    }
    println!("\nwhat the controllers counted, as in the metrics at the end of each run");
    for run in told(outcome) {
        if let Some(snapshot) = &run.snapshot {
            print_counts(snapshot);
        }
    }
    println!();
    judge(outcome)
}

/// The failures that were run.
pub(super) fn ways(outcome: &Outcome) -> Vec<Way> {
    let ran = |way: &Way| outcome.runs.iter().any(|run| run.way == *way);
    Way::ALL.into_iter().filter(ran).collect()
}

/// The runs in the order in which they are told.
pub(super) fn told(outcome: &Outcome) -> impl Iterator<Item = &Run> {
    let of = move |way: Way| {
        let arms = Arm::ALL.into_iter();
        arms.filter_map(move |arm| {
            outcome
                .runs
                .iter()
                .find(|run| (run.way, run.arm) == (way, arm))
        })
    };
    Way::ALL.into_iter().flat_map(of)
}

fn print_way(outcome: &Outcome, way: Way) {
    println!("\n{}: {}", way.name(), way.about());
    println!(
        "  {:<18} {:>6} {:>6} {:>6} {:>6} {:>10}   {:>9} {:>8} {:>8} {:>5}   the others",
        "", "t0+t1", "t2", "t3", "t4+t5", "bystanders", "served/s", "p99 ms", "waiting", "MiB"
    );
    for run in told(outcome).filter(|run| run.way == way) {
        let stats = &run.stats;
        let groups = GROUPS.map(|(_, tiers)| percent(stats.success(tiers)));
        println!(
            "  {:<18} {:>6} {:>6} {:>6} {:>6} {:>10}   {:>9.0} {:>8.1} {:>8} {:>5}   {}",
            run.arm.name(),
            groups[0],
            groups[1],
            groups[2],
            groups[3],
            percent(stats.bystanders_success()),
            served_per_s(outcome, stats),
            stats.latency_us.value_at_quantile(0.99) as f64 / 1e3,
            stats.waiting_peak,
            stats.memory_peak_bytes >> 20,
            lost(stats),
        );
        for throttled in &stats.throttled {
            println!("  {:<18} {}", "", told_of(throttled));
        }
    }
}

/// Who was throttled, and how, in a line.
pub(super) fn told_of(throttled: &Throttled) -> String {
    let last = &throttled.last;
    let who = match last.who {
        Who::Key(key) => format!("key {key}"),
        who => format!("{who:?}"),
    };
    format!(
        "throttled: {who}, named by {} with {:.0} % of the load, from {:.2} s on; let in {:.0} cost/s at the least, {:.0} at \
         the end, of {:.0} that came",
        last.by,
        100.0 * last.share,
        throttled.since.as_secs_f64(),
        throttled.rate_least_per_s,
        last.rate_per_s,
        last.offered_per_s,
    )
}

/// Answers in time per second.
pub(super) fn served_per_s(outcome: &Outcome, stats: &Stats) -> f64 {
    stats.offered_and_good().1 as f64 / (FAILURE_S * outcome.scale)
}

pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| {
        format!("{:.1}", floor(100.0 * share))
    })
}

/// To a tenth, never up: 99.96 is not 100.
fn floor(percent: f64) -> f64 {
    (percent * 10.0).floor() / 10.0
}

/// What became of those who were not answered in time.
pub(super) fn lost(stats: &Stats) -> String {
    let parts = stats.lost.iter().map(|(why, count)| (*why, *count));
    let parts = parts.chain([("never answered", stats.unanswered())]);
    let parts = parts.filter(|(_, count)| *count > 0);
    let parts: Vec<String> = parts.map(|(why, count)| format!("{count} {why}")).collect();
    parts.join(", ")
}

fn print_counts(snapshot: &Snapshot) {
    for lane in &snapshot.lanes {
        let refusals = Reason::ALL.iter().map(|&reason| {
            let count = lane.verdicts.total(Verdict::Refuse(reason));
            (reason.as_str(), count)
        });
        let refusals = refusals.filter(|(_, count)| *count > 0);
        let refusals: Vec<String> = refusals.map(|(word, n)| format!("{n} {word}")).collect();
        println!(
            "  controller {:<24} lane {:<6} {:>8} offered, {:>7} admitted, {}",
            format!("{:?}", snapshot.name),
            lane.name,
            lane.offered,
            lane.verdicts.admitted(),
            refusals.join(", ")
        );
    }
}

fn judge(outcome: &Outcome) -> ExitCode {
    let late = |run: &&Run| !run.is_valid();
    if let Some(run) = told(outcome).find(late) {
        println!(
            "NOT VALID: in {} with {} the generator was late by {:.1} ms at p99 (at most {} ms); nothing follows from \
             this run.",
            run.way.name(),
            run.arm.name(),
            run.lateness_us.value_at_quantile(0.99) as f64 / 1e3,
            LATENESS_P99_MAX.as_millis()
        );
        return ExitCode::from(3);
    }
    let mut kept = true;
    for run in told(outcome).filter(|run| run.arm == Arm::Cinnamon) {
        let success = run.stats.success(GROUPS[0].1).unwrap_or(1.0);
        kept &= promise(
            success >= PROTECTED_SUCCESS_MIN,
            &format!(
                "{}, Cinnamon: at least 99 % of t0 and t1 answered in time",
                run.way.name()
            ),
            &format!("{} %", percent(Some(success))),
        );
    }
    for run in told(outcome).filter(|run| run.arm == Arm::Cinnamon) {
        kept &= judge_throttles(run);
    }
    for (how, reached) in [
        ("switch", outcome.switch.by_switch),
        ("file", outcome.switch.by_file),
    ] {
        let in_time = reached.is_some_and(|time| time.as_millis() <= OVERRIDE_MS_MAX);
        let figure = reached.map_or("not at all".to_owned(), |time| {
            format!("after {:.1} ms", time.as_secs_f64() * 1e3)
        });
        let text = format!("surge, an override by {how} is in force within {OVERRIDE_MS_MAX} ms");
        kept &= promise(in_time, &text, &figure);
    }
    if kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A hot key makes room for all others; where no key is hot nobody is taken for one.
fn judge_throttles(run: &Run) -> bool {
    let (stats, way) = (&run.stats, run.way.name());
    if run.way != Way::HotKey {
        let whom: Vec<String> = stats.throttled.iter().map(told_of).collect();
        let text = format!("{way}, Cinnamon: nobody is throttled");
        let figure = if whom.is_empty() {
            "nobody".to_owned()
        } else {
            whom.join("; ")
        };
        return promise(whom.is_empty(), &text, &figure);
    }
    let text = format!(
        "{way}, Cinnamon: of what calm gives them, bystanders get at least {:.0} % from {SETTLE_S} s into the failure on",
        100.0 * BYSTANDERS_OF_CALM_MIN
    );
    let [calm, settled] = stats.bystanders.map(|count| count.success());
    let (Some(calm), Some(settled)) = (calm, settled) else {
        println!("none    {text}: it was over before");
        return true;
    };
    let figure = format!("{} % of {} %", percent(Some(settled)), percent(Some(calm)));
    promise(settled >= BYSTANDERS_OF_CALM_MIN * calm, &text, &figure)
}

fn promise(kept: bool, text: &str, figure: &str) -> bool {
    println!(
        "{}  {text}: {figure}",
        if kept { "kept  " } else { "MISSED" }
    );
    kept
}
