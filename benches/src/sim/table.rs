//! The outcome for a terminal.

use std::fmt::Write as _;

use super::arms::{ARMS, Kind};
use super::bars::{BARS, Bar, Sense};
use super::outcome::Row;

/// Bars of one arm: judged, held, and the closest call.
#[derive(Debug, Default)]
struct Tally<'a> {
    judged: usize,
    held: usize,
    closest: Option<&'a Row>,
}

/// How far the figure is on the right side of its bound; negative beyond it.
fn margin(bar: &Bar, row: &Row) -> f64 {
    let bound = row.bound.unwrap_or(f64::INFINITY);
    match bar.sense {
        Sense::AtLeast => row.value - bound,
        Sense::AtMost => bound - row.value,
    }
}

/// Rows of this arm that were judged and missed.
pub fn missed<'a>(rows: &'a [Row], arm: &str) -> impl Iterator<Item = &'a Row> {
    rows.iter()
        .filter(move |row| row.arm == arm && row.pass == Some(false))
}

/// The tables: Cinnamon bar by bar, what it missed, and the arms side by side.
#[must_use]
pub fn render(rows: &[Row]) -> String {
    let mut text = String::new();
    let product = ARMS.iter().find(|arm| arm.kind == Kind::Product);
    if let Some(arm) = product.filter(|arm| rows.iter().any(|row| row.arm == arm.name)) {
        bars_of(&mut text, rows, arm.name);
    }
    arms(&mut text, rows);
    text
}

fn bars_of(text: &mut String, rows: &[Row], arm: &str) {
    let _ = writeln!(text, "{arm}, bar by bar");
    let _ = writeln!(
        text,
        "  {:<16} {:>7} {:>7}  {:>9} {:>9}  closest call",
        "bar", "judged", "held", "value", "bound"
    );
    for bar in BARS {
        let mut tally = Tally::default();
        let judged = rows
            .iter()
            .filter(|row| row.arm == arm && row.bar == bar.name);
        for row in judged.filter(|row| row.pass.is_some()) {
            tally.judged += 1;
            tally.held += usize::from(row.pass == Some(true));
            if tally
                .closest
                .is_none_or(|least| margin(bar, row) < margin(bar, least))
            {
                tally.closest = Some(row);
            }
        }
        let Some(row) = tally.closest else { continue };
        let sign = match bar.sense {
            Sense::AtLeast => ">=",
            Sense::AtMost => "<=",
        };
        let _ = writeln!(
            text,
            "  {:<16} {:>7} {:>7}  {:>9} {sign} {:>6}  {}",
            bar.name,
            tally.judged,
            tally.held,
            number(row.value),
            number(row.bound.unwrap_or(f64::NAN)),
            place(row),
        );
    }
    for row in missed(rows, arm) {
        let _ = writeln!(
            text,
            "  MISSED {}: {} (bound {}; min {}, median {}, max {} of {}) in {}",
            row.bar,
            number(row.value),
            number(row.bound.unwrap_or(f64::NAN)),
            number(row.min),
            number(row.median),
            number(row.max),
            row.seeds,
            place(row)
        );
    }
}

/// The arms side by side in the case that most of them run, phase by phase.
fn arms(text: &mut String, rows: &[Row]) {
    let mut cases: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (&*row.scenario, row.service))
        .collect();
    cases.dedup();
    let arms_of = |case: &(&str, &str)| {
        let of_case = |row: &&Row| (&*row.scenario, row.service) == *case;
        let mut names: Vec<&str> = rows.iter().filter(of_case).map(|row| row.arm).collect();
        names.dedup();
        names
    };
    // The first of those with the most.
    let Some(case) = cases.iter().rev().max_by_key(|case| arms_of(case).len()) else {
        return;
    };
    let of_case: Vec<&Row> = rows
        .iter()
        .filter(|row| (&*row.scenario, row.service) == *case && row.bar == "goodput-median")
        .collect();
    let mut phases: Vec<&str> = Vec::new();
    for row in &of_case {
        if !phases.contains(&&*row.phase) {
            phases.push(&row.phase);
        }
    }
    let _ = writeln!(
        text,
        "\n{} {}, phase by phase: goodput / t0 and t1 answered in time, per cent of the oracle's (medians)",
        case.0, case.1
    );
    let _ = write!(text, "  {:<18}", "arm");
    for phase in &phases {
        let _ = write!(text, " {:>width$}", phase, width = column(phase));
    }
    let _ = writeln!(text, "  missed");
    for arm in ARMS.iter().map(|arm| arm.name) {
        if !of_case.iter().any(|row| row.arm == arm) {
            continue;
        }
        let _ = write!(text, "  {arm:<18}");
        for phase in &phases {
            let of = |bar: &str| {
                let mut rows = rows
                    .iter()
                    .filter(|row| (&*row.scenario, row.service) == *case);
                rows.find(|row| row.arm == arm && row.phase == *phase && row.bar == bar)
                    .map_or_else(
                        || "-".to_owned(),
                        |row| format!("{:.0}", 100.0 * row.median),
                    )
            };
            let cell = format!("{}/{}", of("goodput-median"), of("protected"));
            let _ = write!(text, " {cell:>width$}", width = column(phase));
        }
        let judged = rows
            .iter()
            .filter(|row| row.arm == arm && row.pass.is_some())
            .count();
        let misses: Vec<&Row> = missed(rows, arm).collect();
        let mut names: Vec<&str> = misses.iter().map(|row| row.bar).collect();
        names.sort_unstable();
        names.dedup();
        names.truncate(3);
        let _ = write!(text, "  {} of {judged}", misses.len());
        let _ = match names.is_empty() {
            true => writeln!(text),
            false => writeln!(text, ": {}", names.join(", ")),
        };
    }
}

fn column(phase: &str) -> usize {
    phase.len().max("100/100".len())
}

fn place(row: &Row) -> String {
    format!("{} {} {:?}", row.scenario, row.service, row.phase)
}

fn number(value: f64) -> String {
    if value == 0.0 || value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(arm: &'static str, value: f64, pass: bool) -> Row {
        Row {
            scenario: "phases".to_owned(),
            service: "1000rps",
            arm,
            phase: "2x".to_owned(),
            bar: "goodput-median",
            value,
            bound: Some(0.97),
            pass: Some(pass),
            seeds: 20,
            min: value,
            median: value,
            max: value,
        }
    }

    #[test]
    fn a_miss_is_named_with_its_figures_and_its_place() {
        let text = render(&[row("cinnamon", 0.99, true), row("cinnamon", 0.9, false)]);
        assert!(text.contains("goodput-median         2       1"), "{text}");
        let miss = "MISSED goodput-median: 0.9000 (bound 0.9700; min 0.9000, median 0.9000, max 0.9000 of 20) in phases 1000rps \"2x\"";
        assert!(text.contains(miss), "{text}");
    }

    #[test]
    fn nothing_judged_is_nothing_said() {
        assert!(!render(&[]).contains("MISSED"));
    }
}
