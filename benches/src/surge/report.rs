//! What is printed: a table per arm, the promises, and who got dropped in plain words.

use std::process::ExitCode;
use std::thread;

use cinnamon_core::Tier;

use super::load::Phase;
use super::server::Arm;
use super::stats::{DEADLINE, GRACE, PhaseStats};
use super::{ArmRun, Capacity, GENERATOR_CPU_MAX, LATENESS_P99_MAX, Saturated};

/// Promises of the surge phase.
const PROTECTED_SUCCESS_MIN: f64 = 0.99;
const GOODPUT_MIN: f64 = 0.90;
/// A phase at 0.7x keeps about 0.75 of the CPU busy, the generator included. Half a second above this
/// share was not calm, whatever the phase is called: the machine had become slower.
const CALM_CPU_MAX: f64 = 0.95;

/// The phases that the promises speak of.
const SURGE: usize = 2;
const BEFORE: usize = 0;
const AFTER: usize = 3;

/// Prints everything and says how the process should end.
pub(super) fn print(capacity: &Capacity, phases: &[Phase], runs: &[ArmRun], seed: u64) -> ExitCode {
    let measured = |of: fn(&Saturated) -> String| -> String {
        let figures: Vec<String> = capacity.measured.iter().map(of).collect();
        figures.join(", ")
    };
    println!(
        "capacity C: {} requests/s before, between and after the arms (the server saturated, no control, {} threads; \
         mean service {:.0} us)",
        measured(|m| format!("{:.0}", m.per_s)),
        capacity.threads,
        capacity.service_mean_us(),
    );
    println!(
        "the machine's speed meanwhile: {} million rows scanned in a second of CPU time",
        measured(|m| format!("{:.2}", m.rows_per_cpu_s / 1e6)),
    );
    println!(
        "an arm's load is a multiple of the least C so far, its share of C of the mean around it at the phase's speed; an answer counts within {} s; seed {seed}",
        DEADLINE.as_secs()
    );
    for (n, run) in told(runs) {
        println!();
        print_arm(|stats| capacity.in_phase(n, stats), phases, run);
    }
    println!();
    for (n, run) in told(runs) {
        println!(
            "{}",
            who_got_dropped(capacity.in_phase(n, &run.phases[SURGE]), phases, run)
        );
        println!();
    }
    told(runs).for_each(|(_, run)| print_generator(run));
    if !runs.iter().all(|run| run.generator.is_valid()) {
        println!(
            "NOT VALID: the generator was late or took too much of the machine; nothing follows from this run."
        );
        return ExitCode::from(3);
    }
    let promises = promises(capacity, phases, runs);
    for promise in &promises {
        let word = match promise.kept {
            Some(true) => "kept      ",
            Some(false) => "MISSED    ",
            None => "not judged",
        };
        println!("{word}  {}: {}", promise.text, promise.figure);
    }
    let any = |kept| promises.iter().any(|promise| promise.kept == kept);
    if any(Some(false)) {
        ExitCode::FAILURE
    } else if any(None) {
        ExitCode::from(3)
    } else {
        ExitCode::SUCCESS
    }
}

/// The runs with their numbers, in the order in which they are told: what happens without control, then
/// with it.
fn told(runs: &[ArmRun]) -> impl Iterator<Item = (usize, &ArmRun)> {
    runs.iter().enumerate().rev()
}

/// Something promised, and what was measured of it.
struct Promise {
    text: String,
    figure: String,
    /// `None` when the conditions of the promise were not met.
    kept: Option<bool>,
}

/// Share of the machine's CPU time that the process used in this phase.
fn cpu_share(phase: &Phase, stats: &PhaseStats) -> f64 {
    let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
    stats.cpu.as_secs_f64() / phase.seconds / cores
}

fn print_arm(capacity: impl Fn(&PhaseStats) -> f64, phases: &[Phase], run: &ArmRun) {
    println!("{}", run.arm.name());
    println!(
        "  {:<11} {:>9} {:>9} {:>6}   {:^29}  {:>8} {:>8} {:>8} {:>5} {:>5}",
        "phase",
        "offered/s",
        "good/s",
        "of C",
        "success % t0 t1 t2 t3 t4 t5",
        "p50 ms",
        "p99 ms",
        "waiting",
        "MiB",
        "CPU"
    );
    for (phase, stats) in phases.iter().zip(&run.phases) {
        let good = stats.goods() as f64 / phase.seconds;
        let tiers: Vec<String> = Tier::ALL
            .iter()
            .map(|&tier| format!("{:>4.0}", 100.0 * stats.success(&[tier])))
            .collect();
        println!(
            "  {:<11} {:>9.0} {:>9.0} {:>5.0}%   {:<29}  {:>8.1} {:>8.1} {:>8} {:>5} {:>4.0}%",
            phase.name,
            stats.offers() as f64 / phase.seconds,
            good,
            100.0 * good / capacity(stats),
            tiers.join(" "),
            stats.latency_us.value_at_quantile(0.5) as f64 / 1e3,
            stats.latency_us.value_at_quantile(0.99) as f64 / 1e3,
            stats.waiting_peak,
            stats.memory_peak_bytes >> 20,
            100.0 * cpu_share(phase, stats),
        );
    }
    for (phase, stats) in phases.iter().zip(&run.phases) {
        println!("  {:<11} {}", phase.name, verdicts(stats));
    }
}

/// Every offer of the phase, by what became of it.
fn verdicts(stats: &PhaseStats) -> String {
    let mut parts = vec![format!("{} in time", stats.goods())];
    let refused = stats
        .refused
        .iter()
        .map(|(reason, count)| (*reason, *count));
    let rest = [
        ("late", stats.late),
        ("failed", stats.failed),
        ("never answered", stats.unanswered()),
    ];
    let all = refused.chain(rest).filter(|(_, count)| *count > 0);
    parts.extend(all.map(|(what, count)| format!("{count} {what}")));
    parts.join(", ")
}

fn who_got_dropped(capacity: f64, phases: &[Phase], run: &ArmRun) -> String {
    let (phase, stats) = (&phases[SURGE], &run.phases[SURGE]);
    let percent = |tiers: &[Tier]| 100.0 * stats.success(tiers);
    let good = stats.goods() as f64 / phase.seconds;
    let after = 100.0 * run.phases[AFTER].success(&Tier::ALL);
    match run.arm {
        Arm::NoControl => format!(
            "Without control everybody waits in one line. In the surge {:.1} % of t0 and t1 were answered in time and \
             {:.1} % of t3 to t5: who gets dropped is whoever comes. {:.0} requests a second were worth something, \
             {:.0} % of what the store can do; {} waited at the worst. Back at 0.7x, {after:.1} % were answered in \
             time, for the line of the dead came first.",
            percent(&[Tier::T0, Tier::T1]),
            percent(&[Tier::T3, Tier::T4, Tier::T5]),
            good,
            100.0 * good / capacity,
            stats.waiting_peak,
        ),
        Arm::Cinnamon => format!(
            "With Cinnamon the surge is dropped, and it alone: {:.2} % of t0 and t1, {:.1} % of t2, {:.1} % of t3 and \
             {:.1} % of t4 and t5 were answered in time. {:.0} requests a second were worth something, {:.0} % of \
             what the store can do; {} waited at the worst. Back at 0.7x, {after:.1} % were answered in time.",
            percent(&[Tier::T0, Tier::T1]),
            percent(&[Tier::T2]),
            percent(&[Tier::T3]),
            percent(&[Tier::T4, Tier::T5]),
            good,
            100.0 * good / capacity,
            stats.waiting_peak,
        ),
    }
}

fn print_generator(run: &ArmRun) {
    let generator = &run.generator;
    let lateness_ms = |q| generator.lateness_us.value_at_quantile(q) as f64 / 1e3;
    println!(
        "generator, {}: {:.1} % of the machine's CPU (at most {:.0} %), late by {:.2} ms at p50, {:.2} ms at p99 \
         (at most {} ms), {:.2} ms at most",
        run.arm.name(),
        100.0 * generator.cpu_share,
        100.0 * GENERATOR_CPU_MAX,
        lateness_ms(0.5),
        lateness_ms(0.99),
        LATENESS_P99_MAX.as_millis(),
        lateness_ms(1.0),
    );
}

fn promises(capacity: &Capacity, phases: &[Phase], runs: &[ArmRun]) -> Vec<Promise> {
    let mut promises = Vec::new();
    for (n, run) in told(runs) {
        let surge = &run.phases[SURGE];
        let protected = surge.success(&[Tier::T0, Tier::T1]);
        let goodput = surge.goods() as f64 / phases[SURGE].seconds / capacity.in_phase(n, surge);
        let survives = protected >= PROTECTED_SUCCESS_MIN && goodput >= GOODPUT_MIN;
        let figure = format!(
            "{:.2} %, goodput {goodput:.3} of capacity",
            100.0 * protected
        );
        let name = run.arm.name();
        if run.arm == Arm::NoControl {
            promises.push(Promise {
                text: format!("surge, {name}: t0+t1 or goodput collapses"),
                figure,
                kept: Some(!survives),
            });
            continue;
        }
        promises.push(Promise {
            text: format!("surge, {name}: t0+t1 at least 99 %, goodput at least 0.90"),
            figure,
            kept: Some(survives),
        });
        let before = &run.phases[BEFORE];
        promises.push(calm_promise(
            format!("calm before, {name}: nobody refused"),
            before.cpu_share_peak,
            before.refused_within,
        ));
        let after = &run.phases[AFTER];
        promises.push(calm_promise(
            format!(
                "calm after, {name}: nobody refused from {} s on",
                GRACE.as_secs()
            ),
            after.cpu_share_peak,
            after.refused_after_grace,
        ));
    }
    promises
}

/// A promise for calm weather, judged only if it was calm: 0.7x of a capacity that has fallen since it
/// was measured is no longer 0.7x, and the CPU shows it.
fn calm_promise(text: String, cpu_share_peak: f64, refused: u64) -> Promise {
    Promise {
        text,
        figure: format!(
            "{refused} refused; at most {:.0} % of the CPU in use in half a second",
            100.0 * cpu_share_peak
        ),
        kept: (refused == 0 || cpu_share_peak <= CALM_CPU_MAX).then_some(refused == 0),
    }
}
