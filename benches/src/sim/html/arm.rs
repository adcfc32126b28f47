//! One arm in one scenario: a column of the comparison.

use std::fmt::Write as _;

use cinnamon_core::{CodelState, TIERS};

use super::colour::{
    CAPACITY, GOOD, NEWEST_FIRST, OFFERED, ORACLE, PRESSURE, STANDING, THRESHOLD, TIER, heat,
    heat_gradient, hex,
};
use super::plot::DrawError;
use super::series::{LOAD_CUT, Scales, has_limit, has_threshold};
use super::text::{count, escape, figure, key, percent, share};
use super::{HtmlError, charts};
use crate::sim::arms;
use crate::sim::outcome::{Bin, Chart};

/// The column.
pub(super) fn column(out: &mut String, chart: &Chart, scales: &Scales) -> Result<(), HtmlError> {
    out.push_str("<article>");
    let about = arms::arm(chart.arm).map_or("", |arm| arm.about);
    let _ = write!(
        out,
        "<header><h3>{}</h3><p class=note>{}</p></header>",
        escape(chart.arm),
        escape(about)
    );
    who_it_drops(out, chart);
    if chart.bins.is_empty() {
        out.push_str("<p class=note>Nothing was recorded over time.</p>");
    } else {
        pictures(out, chart, scales).map_err(|cause| HtmlError::Draw {
            scenario: chart.scenario.clone(),
            arm: chart.arm,
            cause: cause.to_string(),
        })?;
    }
    endings(out, chart);
    out.push_str("</article>");
    Ok(())
}

/// Phases down, tiers across: the share answered in time, and the oracle's.
fn who_it_drops(out: &mut String, chart: &Chart) {
    let _ = write!(
        out,
        "<table class=drops><caption><b>Who it drops</b>: share answered in time, by phase and tier. Small: \
         the oracle, bold where it is more than {:.0} points ahead.</caption><thead><tr><th>",
        100.0 * GAP
    );
    for (tier, colour) in TIER.iter().enumerate() {
        let _ = write!(
            out,
            "<th><i style=\"background:{}\"></i>t{tier}",
            hex(*colour)
        );
    }
    out.push_str("</thead><tbody>");
    for (phase, (name, _, _)) in chart.phases.iter().enumerate() {
        let _ = write!(
            out,
            "<tr><th scope=row><small>{}</small> {}",
            phase + 1,
            escape(name)
        );
        let tiers = chart.tiers.get(phase).copied().unwrap_or_default();
        let oracle = chart.oracle.get(phase).copied().unwrap_or_default();
        for tier in 0..TIERS {
            drops_cell(out, tiers[tier], oracle[tier]);
        }
    }
    out.push_str("</tbody></table>");
}

fn drops_cell(out: &mut String, (requests, good): (u64, u64), oracle: u64) {
    if requests == 0 {
        out.push_str("<td class=none>–");
        return;
    }
    let (here, there) = (share(good, requests), share(oracle, requests));
    let class = if there - here > GAP { " class=gap" } else { "" };
    let _ = write!(
        out,
        "<td style=\"background:{}\">{}<small{class}>{}</small>",
        hex(heat(here)),
        percent(here),
        percent(there)
    );
}

fn pictures(out: &mut String, chart: &Chart, scales: &Scales) -> Result<(), DrawError> {
    open_figure(out, "load", "Load and goodput", ", requests/s by arrival");
    key(out, &hex(OFFERED), "offered");
    key(out, &hex(GOOD), "answered in time");
    key(out, &hex(ORACLE), "by the oracle");
    key(out, &hex(CAPACITY), "capacity");
    if let Some(peak) = charts::cut_load(chart, scales) {
        let _ = write!(
            out,
            "<em>Offered load is cut off at {LOAD_CUT} × capacity; it peaks at {} ×.</em>",
            figure(peak)
        );
    }
    close_figure(out, &charts::load(chart, scales)?);

    let threshold = has_threshold(chart);
    if threshold {
        open_figure(out, "threshold", "Threshold", ": what lies below is let in");
        key(out, &hex(THRESHOLD), "middle and range");
        queue_state_keys(out, chart);
        close_figure(out, &charts::threshold(chart)?);
    } else {
        out.push_str(
            "<p class=\"note threshold\">No threshold: the gate stayed open to every tier.</p>",
        );
    }

    if has_limit(chart) {
        open_figure(
            out,
            "limit",
            "Slots",
            ": the limit, beside the threshold above",
        );
        key(out, &hex(THRESHOLD), "settled on, and trials");
        close_figure(out, &charts::limit(chart)?);
    }

    open_figure(
        out,
        "success",
        "Success per tier",
        ", share answered in time",
    );
    let _ = write!(
        out,
        "<span class=key>0\u{202f}%<i class=scale style=\"background:{}\"></i>100\u{202f}%</span>",
        heat_gradient()
    );
    close_figure(out, &charts::success(chart)?);

    if !chart.plants.is_empty() {
        open_figure(out, "pressure", "Pressure", ", 1 at its target");
        for (name, colour) in chart.plants.iter().zip(PRESSURE) {
            key(out, &hex(colour), name);
        }
        close_figure(out, &charts::pressure(chart)?);
    }

    if charts::wait_lines(chart).next().is_some() {
        open_figure(out, "wait", "Wait in the queue", ", ms, log scale");
        for line in charts::wait_lines(chart).rev() {
            key(out, &hex(line.colour), line.name);
        }
        if !threshold {
            queue_state_keys(out, chart);
        }
        close_figure(out, &charts::wait(chart, scales, !threshold)?);
    } else {
        out.push_str("<p class=\"note wait\">Nothing waited in a queue.</p>");
    }
    Ok(())
}

/// What stands behind the lines, if it ever does.
fn queue_state_keys(out: &mut String, chart: &Chart) {
    if bins_where(chart, is_standing) > 0 {
        key(out, &hex(STANDING), "CoDel: queue stands");
    }
    if bins_where(chart, |bin| bin.newest_first) > 0 {
        key(out, &hex(NEWEST_FIRST), "newest first");
    }
}

fn open_figure(out: &mut String, class: &str, title: &str, unit: &str) {
    let _ = write!(
        out,
        "<figure class={class}><figcaption><span class=what><b>{title}</b>{unit}</span> "
    );
}

fn close_figure(out: &mut String, svg: &str) {
    let _ = write!(out, "</figcaption>{svg}</figure>");
}

/// How offers ended, and what held the threshold.
fn endings(out: &mut String, chart: &Chart) {
    out.push_str("<dl class=endings>");
    let all: u64 = chart.verdicts.iter().map(|(_, n)| n).sum();
    if all > 0 {
        out.push_str("<dt>Verdicts<dd>");
        list(out, &chart.verdicts, |out, word, n| {
            let _ = write!(
                out,
                "<b>{word}</b> {} ({})",
                count(n),
                percent(share(n, all))
            );
        });
    }
    let bins = chart.bins.len() as u64;
    if bins > 0 {
        if has_threshold(chart) {
            out.push_str("<dt>Held by<dd>");
            list(out, &bindings(&chart.bins), |out, word, n| {
                let _ = write!(out, "<b>{word}</b> {}", percent(share(n, bins)));
            });
            out.push_str(" of the time");
        }
        let standing = bins_where(chart, is_standing);
        let newest_first = bins_where(chart, |bin| bin.newest_first);
        if standing + newest_first > 0 {
            let _ = write!(
                out,
                "<dt>Queue<dd><b>stands</b> {} · <b>newest first</b> {} of the time",
                percent(share(standing, bins)),
                percent(share(newest_first, bins))
            );
        }
    }
    out.push_str("</dl>");
}

fn list(out: &mut String, words: &[(&str, u64)], item: impl Fn(&mut String, &str, u64)) {
    for (i, (word, n)) in words.iter().enumerate() {
        if i > 0 {
            out.push_str(" · ");
        }
        item(out, &escape(word), *n);
    }
}

fn is_standing(bin: &Bin) -> bool {
    bin.codel == CodelState::Standing
}

fn bins_where(chart: &Chart, holds: impl Fn(&Bin) -> bool) -> u64 {
    chart.bins.iter().filter(|bin| holds(bin)).count() as u64
}

/// What bound the threshold and in how many bins, most frequent first.
fn bindings(bins: &[Bin]) -> Vec<(&'static str, u64)> {
    let mut counts: Vec<(&'static str, u64)> = Vec::new();
    for bin in bins.iter().filter(|bin| !bin.binding.is_empty()) {
        match counts.iter_mut().find(|(word, _)| *word == bin.binding) {
            Some((_, n)) => *n += 1,
            None => counts.push((bin.binding, 1)),
        }
    }
    counts.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
    counts
}

/// How far behind the oracle a share must be to be marked: a tenth of the tier's requests.
const GAP: f64 = 0.1;
