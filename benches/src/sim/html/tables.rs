//! The judged figures: the product's, the others', all of them.

use std::fmt::Write as _;

use super::text::{count, escape, figure, figure_beside, first_two};
use crate::sim::arms::{self, Kind};
use crate::sim::outcome::Row;

/// The arm that the bars are for.
pub(super) const PRODUCT: &str = "cinnamon";

/// Bars held and missed by the product, and the missed ones.
pub(super) fn summary(out: &mut String, rows: &[Row]) {
    let _ = write!(out, "<section><h2>Does {PRODUCT} hold its bars?</h2>");
    let (judged, missed) = judged_by(rows, PRODUCT);
    if judged == 0 {
        let _ = write!(out, "<p>No bar was judged for {PRODUCT}.</p></section>");
        return;
    }
    let held = judged - missed.len();
    let _ = write!(
        out,
        "<div class=score><div class=good><b>{}</b>{} held</div><div{}><b>{}</b>{} missed</div></div>",
        count(held as u64),
        bars(held),
        if missed.is_empty() { "" } else { " class=bad" },
        count(missed.len() as u64),
        bars(missed.len())
    );
    if missed.is_empty() {
        out.push_str("<p class=good>All held.</p></section>");
        return;
    }
    out.push_str("<div class=wide><table class=list><thead><tr><th>Scenario<th>Service<th>Phase<th>Bar\
         <th class=number>Value<th class=number>Bound<th class=number>Least · median · greatest run</thead><tbody>");
    for row in missed {
        let (value, bound) = value_and_bound(row);
        let _ = write!(
            out,
            "<tr><td>{}<td>{}<td>{}<td>{}<td class=\"number bad\">{value}<td class=number>{bound}<td class=number>{} · {} · {}",
            escape(&row.scenario),
            escape(row.service),
            escape(&row.phase),
            escape(row.bar),
            figure(row.min),
            figure(row.median),
            figure(row.max)
        );
    }
    out.push_str("</tbody></table></div></section>");
}

/// For each other arm: how many bars it missed, and the first two.
pub(super) fn who_fails_what(out: &mut String, rows: &[Row]) {
    let mut others: Vec<&'static str> = Vec::new();
    for row in rows
        .iter()
        .filter(|row| row.pass.is_some() && row.arm != PRODUCT)
    {
        if !others.contains(&row.arm) {
            others.push(row.arm);
        }
    }
    if others.is_empty() {
        return;
    }
    out.push_str("<section><h2>Who fails what</h2><p class=note>The same bars, put to the other arms.</p>\
         <div class=wide><table class=list><thead><tr><th>Arm<th class=number>Bars missed<th>Which<th>What it is</thead><tbody>");
    for arm in others {
        let (judged, missed) = judged_by(rows, arm);
        let names: Vec<String> = missed.iter().map(|row| name(row)).collect();
        let known = arms::arm(arm);
        let must_fail = known.is_some_and(|arm| matches!(arm.kind, Kind::Control | Kind::Mutant));
        let which = match (names.is_empty(), must_fail) {
            (false, _) => escape(&first_two(&names)),
            (true, false) => "none".to_owned(),
            (true, true) => "<span class=bad>none, though it must fail</span>".to_owned(),
        };
        let _ = write!(
            out,
            "<tr><td>{}<td class=number>{} of {}<td>{which}<td>{}",
            escape(arm),
            count(missed.len() as u64),
            count(judged as u64),
            escape(known.map_or("", |arm| arm.about))
        );
    }
    out.push_str("</tbody></table></div></section>");
}

/// Every judged figure, folded away.
pub(super) fn all_judged(out: &mut String, rows: &[Row]) {
    let judged = || rows.iter().filter(|row| row.pass.is_some());
    let _ = write!(
        out,
        "<section><details><summary>All {} judged figures</summary><div class=wide><table class=list><thead><tr>\
         <th>Scenario<th>Service<th>Arm<th>Phase<th>Bar<th class=number>Value<th class=number>Bound<th>Verdict</thead><tbody>",
        count(judged().count() as u64)
    );
    for row in judged() {
        let (value, bound) = value_and_bound(row);
        let verdict = match row.pass {
            Some(true) => "<td>held",
            _ => "<td class=bad>missed",
        };
        let _ = writeln!(
            out,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td class=number>{value}<td class=number>{bound}{verdict}",
            escape(&row.scenario),
            escape(row.service),
            escape(row.arm),
            escape(&row.phase),
            escape(row.bar)
        );
    }
    out.push_str("</tbody></table></div></details></section>");
}

/// How many bars the arm was held to, and those it missed.
fn judged_by<'a>(rows: &'a [Row], arm: &str) -> (usize, Vec<&'a Row>) {
    let judged = || {
        rows.iter()
            .filter(|row| row.arm == arm && row.pass.is_some())
    };
    let missed = judged().filter(|row| row.pass == Some(false)).collect();
    (judged().count(), missed)
}

fn name(row: &Row) -> String {
    let Row {
        scenario,
        service,
        phase,
        bar,
        ..
    } = row;
    format!("{bar} ({scenario}, {service}, {phase})")
}

fn bars(n: usize) -> &'static str {
    if n == 1 { "bar" } else { "bars" }
}

/// The figure, and its bound with the side on which it has to be. The row says whether the bar held, not
/// which way it goes; the two together do.
fn value_and_bound(row: &Row) -> (String, String) {
    let Some(bound) = row.bound else {
        return (figure(row.value), "–".to_owned());
    };
    let (value_text, bound_text) = figure_beside(row.value, bound);
    let sign = match (row.pass, row.value > bound, row.value < bound) {
        (Some(true), true, _) | (Some(false), _, true) => "≥ ",
        (Some(true), _, true) | (Some(false), true, _) => "≤ ",
        _ => "",
    };
    (value_text, format!("{sign}{bound_text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(value: f64, bound: f64, pass: bool) -> (String, String) {
        value_and_bound(&Row {
            scenario: String::new(),
            service: "10rps",
            arm: PRODUCT,
            phase: String::new(),
            bar: "goodput",
            value,
            bound: Some(bound),
            pass: Some(pass),
            seeds: 1,
            min: value,
            median: value,
            max: value,
        })
    }

    #[test]
    fn html_says_which_side_of_a_bound_is_good() {
        assert_eq!("≥ 0.990", judged(0.995, 0.99, true).1);
        assert_eq!("≥ 0.990", judged(0.2, 0.99, false).1);
        assert_eq!("≤ 3", judged(2.0, 3.0, true).1);
        assert_eq!("≤ 3", judged(4.0, 3.0, false).1);
        assert_eq!("3", judged(3.0, 3.0, true).1);
    }
}
