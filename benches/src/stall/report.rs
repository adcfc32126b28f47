//! What the experiment prints: a table per arm, the bars, and what they came to.

use std::process::ExitCode;

use cinnamon_core::Tier;
use serde::Serialize;

use super::load::{Kind, LOAD};
use super::server::Arm;
use super::stats::DEADLINE;
use super::watch::Seen;
use super::{ArmRun, LATENESS_P99_MAX, Outcome, WARM_UP};

/// Bars of the arms with a signal.
const SUSTAINED_MIN: f64 = 0.90;
const PROTECTED_SUCCESS_MIN: f64 = 0.99;

/// Something promised, and what was measured of it.
#[derive(Debug, Serialize)]
struct Bar {
    text: String,
    figure: String,
    held: bool,
}

/// Prints everything and says how the process should end.
pub(super) fn print(outcome: &Outcome) -> ExitCode {
    for run in &outcome.closed {
        println!(
            "{} writers that never rest: {:.0} writes/s; {}",
            run.writers,
            run.writes_per_s,
            stalls(&run.seen)
        );
    }
    for run in &outcome.steady {
        println!(
            "{:.0} writes/s, constant, {:.3} of that: {}; {:.2} % in time, p99 {:.1} ms; {}",
            run.asked_per_s,
            run.share,
            if run.holds() {
                "sustained"
            } else {
                "held back"
            },
            100.0 * run.in_time,
            run.p99_ms,
            stalls(&run.seen)
        );
    }
    println!(
        "best sustained: {:.0} writes/s; offered {:.0}, {LOAD} times what the writers that never rest got done, and as many \
         reads; {} s a run; of an arm the lead and {} s do not count; an answer counts within {} s; seed {}",
        outcome.best_per_s,
        LOAD * outcome.closed_per_s(),
        outcome.seconds,
        WARM_UP.as_secs(),
        DEADLINE.as_secs(),
        outcome.seed
    );
    for run in &outcome.runs {
        println!();
        print_arm(run, outcome);
    }
    println!();
    for bar in bars(outcome) {
        let word = if bar.held { "held  " } else { "MISSED" };
        println!("{word}  {}: {}", bar.text, bar.figure);
    }
    if !is_valid(outcome) {
        println!("NOT VALID: the generator was late; nothing follows from this run.");
    }
    code(outcome)
}

/// The same for a program.
pub(super) fn print_json(outcome: &Outcome) -> ExitCode {
    #[derive(Serialize)]
    struct Closed<'a> {
        writers: u64,
        writes_per_s: f64,
        seen: &'a Seen,
    }
    #[derive(Serialize)]
    struct Constant<'a> {
        share_of_closed: f64,
        asked_per_s: f64,
        writes_per_s: f64,
        sustained: bool,
        in_time: f64,
        p99_ms: f64,
        held_back: f64,
        seen: &'a Seen,
    }
    #[derive(Serialize)]
    struct Cell {
        kind: &'static str,
        tier: Tier,
        offered: u64,
        good: u64,
        late: u64,
        failed: u64,
        refused: u64,
        p50_ms: f64,
        p99_ms: f64,
    }
    #[derive(Serialize)]
    struct Run<'a> {
        arm: &'static str,
        writes_per_s: f64,
        of_best: f64,
        of_closed: f64,
        first_low_refusal_s: Option<f64>,
        lateness_p99_ms: f64,
        cells: Vec<Cell>,
        reasons: &'a std::collections::BTreeMap<&'static str, u64>,
        seen: &'a Seen,
    }
    #[derive(Serialize)]
    struct Document<'a> {
        seed: u64,
        seconds: f64,
        best_sustained_per_s: f64,
        valid: bool,
        bars: Vec<Bar>,
        closed: Vec<Closed<'a>>,
        steady: Vec<Constant<'a>>,
        arms: Vec<Run<'a>>,
    }
    let cells = |run: &ArmRun| -> Vec<Cell> {
        let each = Kind::ALL
            .into_iter()
            .flat_map(|kind| Tier::ALL.map(|tier| (kind, tier)));
        each.map(|(kind, tier)| {
            let cell = run.stats.cell(kind, tier);
            Cell {
                kind: kind.name(),
                tier,
                offered: cell.offered,
                good: cell.good,
                late: cell.late,
                failed: cell.failed,
                refused: cell.refused,
                p50_ms: cell.latency_us.value_at_quantile(0.5) as f64 / 1e3,
                p99_ms: cell.latency_us.value_at_quantile(0.99) as f64 / 1e3,
            }
        })
        .collect()
    };
    let document = Document {
        seed: outcome.seed,
        seconds: outcome.seconds,
        best_sustained_per_s: outcome.best_per_s,
        valid: is_valid(outcome),
        bars: bars(outcome),
        closed: outcome
            .closed
            .iter()
            .map(|run| Closed {
                writers: run.writers,
                writes_per_s: run.writes_per_s,
                seen: &run.seen,
            })
            .collect(),
        steady: outcome
            .steady
            .iter()
            .map(|run| Constant {
                share_of_closed: run.share,
                asked_per_s: run.asked_per_s,
                writes_per_s: run.writes_per_s,
                sustained: run.holds(),
                in_time: run.in_time,
                p99_ms: run.p99_ms,
                held_back: run.held_back,
                seen: &run.seen,
            })
            .collect(),
        arms: outcome
            .runs
            .iter()
            .map(|run| Run {
                arm: run.arm.name(),
                writes_per_s: run.writes_per_s,
                of_best: run.writes_per_s / outcome.best_per_s,
                of_closed: run.writes_per_s / outcome.closed_per_s(),
                first_low_refusal_s: run.stats.first_low_refusal.map(|at| at.as_secs_f64()),
                lateness_p99_ms: run.lateness_us.value_at_quantile(0.99) as f64 / 1e3,
                cells: cells(run),
                reasons: &run.stats.reasons,
                seen: &run.seen,
            })
            .collect(),
    };
    match serde_json::to_string_pretty(&document) {
        Ok(text) => {
            println!("{text}");
            code(outcome)
        }
        Err(error) => {
            eprintln!("the figures could not be written: {error}");
            ExitCode::from(2)
        }
    }
}

fn code(outcome: &Outcome) -> ExitCode {
    if !is_valid(outcome) {
        ExitCode::from(3)
    } else if bars(outcome).iter().all(|bar| bar.held) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn is_valid(outcome: &Outcome) -> bool {
    outcome.runs.iter().all(ArmRun::is_valid)
}

fn stalls(seen: &Seen) -> String {
    let (from, to) = seen.debt_mib.unwrap_or((0, 0));
    format!(
        "RocksDB delayed {:.1} s and stopped {:.1} s; L0 {:.1} files, at most {}; debt {} to {} MiB",
        seen.delayed_s,
        seen.stopped_s,
        seen.l0_files_mean(),
        seen.l0_files_max,
        from,
        to
    )
}

fn print_arm(run: &ArmRun, outcome: &Outcome) {
    let seconds = outcome.seconds;
    println!(
        "{}: {:.0} writes/s, {:.1} % of the best sustained, {:.1} % of the writers that never rest; {:.0} writes/s and {:.0} \
         reads/s in time",
        run.arm.name(),
        run.writes_per_s,
        100.0 * run.writes_per_s / outcome.best_per_s,
        100.0 * run.writes_per_s / outcome.closed_per_s(),
        run.stats.good(Kind::Write) as f64 / seconds,
        run.stats.good(Kind::Read) as f64 / seconds,
    );
    println!("  {}", stalls(&run.seen));
    println!(
        "  first refusal of t4 or t5 {}, first delay {}, first stop {}",
        at(run.stats.first_low_refusal.map(|at| at.as_secs_f64())),
        at(run.seen.first_delay_s),
        at(run.seen.first_stop_s)
    );
    println!(
        "  {:<7} {:^35}  {:^47}  {:^47}",
        "", "success % t0 to t5", "p50 ms t0 to t5", "p99 ms t0 to t5"
    );
    for kind in Kind::ALL {
        let row = |of: &dyn Fn(Tier) -> String| Tier::ALL.map(of).join(" ");
        let quantile = |tier, q| {
            let latency = &run.stats.cell(kind, tier).latency_us;
            format!("{:>7.1}", latency.value_at_quantile(q) as f64 / 1e3)
        };
        println!(
            "  {:<7} {}  {}  {}",
            kind.name(),
            row(&|tier| format!("{:>5.1}", 100.0 * run.stats.success(kind, &[tier]))),
            row(&|tier| quantile(tier, 0.5)),
            row(&|tier| quantile(tier, 0.99)),
        );
    }
    let listed = |pairs: Vec<String>| {
        if pairs.is_empty() {
            "nothing".to_owned()
        } else {
            pairs.join(", ")
        }
    };
    let seconds = |(what, seconds): (&str, &f64)| format!("{what} {seconds:.1} s");
    println!(
        "  gate held by {}; at target or over: {}; refused: {}",
        listed(
            run.seen
                .bound_s
                .iter()
                .map(|(what, s)| seconds((what, s)))
                .collect()
        ),
        listed(
            run.seen
                .parts_s
                .iter()
                .map(|(what, s)| seconds((what, s)))
                .collect()
        ),
        listed(
            run.stats
                .reasons
                .iter()
                .map(|(why, n)| format!("{n} {why}"))
                .collect()
        ),
    );
    println!(
        "  generator late by {:.2} ms at p99 (at most {})",
        run.lateness_us.value_at_quantile(0.99) as f64 / 1e3,
        LATENESS_P99_MAX.as_millis()
    );
}

fn at(seconds: Option<f64>) -> String {
    seconds.map_or("never".to_owned(), |seconds| format!("at {seconds:.2} s"))
}

/// The bars of both arms with a signal.
fn bars(outcome: &Outcome) -> Vec<Bar> {
    let judged = [Arm::WriteStall, Arm::WriteBytes];
    let runs = judged.iter().filter_map(|arm| {
        let mut runs = outcome.runs.iter();
        runs.find(|run| run.arm == *arm)
    });
    runs.flat_map(|run| bars_of(run, outcome)).collect()
}

fn bars_of(run: &ArmRun, outcome: &Outcome) -> [Bar; 3] {
    let arm = run.arm.name();
    let share = run.writes_per_s / outcome.best_per_s;
    let of_closed = run.writes_per_s / outcome.closed_per_s();
    let refusal_s = run.stats.first_low_refusal.map(|at| at.as_secs_f64());
    let before = match (refusal_s, run.seen.first_stop_s) {
        (_, None) => true,
        (Some(refusal_s), Some(stop_s)) => refusal_s < stop_s,
        (None, Some(_)) => false,
    };
    let protected = run.stats.success(Kind::Write, &[Tier::T0, Tier::T1]);
    [
        Bar {
            text: format!("{arm}: writes/s at least {SUSTAINED_MIN:.2} of the best sustained"),
            figure: format!("{share:.3} ({of_closed:.3} of the writers that never rest)"),
            held: share >= SUSTAINED_MIN,
        },
        Bar {
            text: format!("{arm}: t4 and t5 were shed before RocksDB first stopped"),
            figure: format!(
                "shed {}, stopped {}",
                at(refusal_s),
                at(run.seen.first_stop_s)
            ),
            held: before,
        },
        Bar {
            text: format!(
                "{arm}: writes of t0 and t1 answered in time, at least {:.0} %",
                100.0 * PROTECTED_SUCCESS_MIN
            ),
            figure: format!("{:.2} %", 100.0 * protected),
            held: protected >= PROTECTED_SUCCESS_MIN,
        },
    ]
}
