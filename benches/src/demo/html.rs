//! The page: for each failure, who gets dropped by whom, and how it went over time.
//!
//! It stands alone: no script, and nothing to fetch.

use std::fmt::Write as _;

use cinnamon_core::Tier;
use plotters::prelude::{
    AreaSeries, ChartBuilder, Color, IntoDrawingArea, LineSeries, PathElement, RGBColor, SVGBackend,
};

use super::load::{CALM_S, FAILURE_S};
use super::screen::{
    GROUPS, PROTECTED_SUCCESS_MIN, lost, percent, served_per_s, told, told_of, ways,
};
use super::stats::{SLICE, Stats};
use super::{Outcome, Result, Run};

/// Pictures are this wide and high, pixels.
const SIZE: (u32, u32) = (300, 150);
/// Colours of t0+t1, t2, t3, t4+t5: dark is important.
const COLOURS: [RGBColor; 4] = [
    RGBColor(11, 60, 93),
    RGBColor(50, 140, 193),
    RGBColor(217, 179, 16),
    RGBColor(190, 190, 190),
];
const OFFERED: RGBColor = RGBColor(190, 40, 40);
const CSS: &str = "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:100rem;padding:0 1rem;color:#222}\
h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2.2rem 0 .2rem}p{margin:.2rem 0 .8rem}.note{color:#666}\
table{border-collapse:collapse;margin:.6rem 0}td,th{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #e4e4e4}\
th:first-child,td:first-child,td.l,th.l{text-align:left}.good{color:#0a6b2d;font-weight:600}.bad{color:#a11;font-weight:600}\
.arms{display:flex;flex-wrap:wrap;gap:.8rem}.arms figure{margin:0}figcaption{font-size:.85rem}\
.key span{display:inline-block;margin-right:1.1rem}.key i{display:inline-block;width:.8rem;height:.8rem;margin-right:.35rem;vertical-align:-1px}";

/// The page as one text.
pub(super) fn page(outcome: &Outcome) -> Result<String> {
    let mut out = String::new();
    write!(
        out,
        "<!doctype html><html lang=en><head><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width,initial-scale=1\"><title>Break one node four ways</title>\
         <style>{CSS}</style></head><body><h1>Break one node four ways: who gets dropped?</h1>\
         <p class=note>A RocksDB store that can serve {:.0} ordinary requests a second, at 0.7 of that; then the failure, for \
         {} s. An answer counts within a second. Bystanders are t2 to t5 of the ordinary load. Seed {}.</p>",
        outcome.capacity_per_s,
        FAILURE_S * outcome.scale,
        outcome.seed,
    )?;
    key(&mut out)?;
    for way in ways(outcome) {
        write!(out, "<h2>{}</h2><p>{}</p>", way.name(), way.about())?;
        let runs: Vec<&Run> = told(outcome).filter(|run| run.way == way).collect();
        table(&mut out, outcome, &runs)?;
        for run in &runs {
            for throttled in &run.stats.throttled {
                let (arm, told) = (run.arm.name(), told_of(throttled));
                write!(out, "<p class=note>{arm}: {told}</p>")?;
            }
        }
        let top = runs
            .iter()
            .map(|run| top_per_s(&run.stats))
            .fold(0.0, f64::max);
        out.push_str("<div class=arms>");
        for run in runs {
            let picture = picture(outcome, &run.stats, top)?;
            write!(
                out,
                "<figure>{picture}<figcaption>{}</figcaption></figure>",
                run.arm.name()
            )?;
        }
        out.push_str("</div>");
    }
    out.push_str("</body></html>\n");
    Ok(out)
}

fn key(out: &mut String) -> Result<()> {
    out.push_str("<p class=key>Answered in time, per second: ");
    for ((name, _), colour) in GROUPS.iter().zip(COLOURS) {
        let RGBColor(r, g, b) = colour;
        write!(
            out,
            "<span><i style=\"background:rgb({r},{g},{b})\"></i>{name}</span>"
        )?;
    }
    let RGBColor(r, g, b) = OFFERED;
    write!(
        out,
        "<span><i style=\"background:rgb({r},{g},{b});height:2px;vertical-align:4px\"></i>t0+t1 offered</span></p>"
    )?;
    Ok(())
}

fn table(out: &mut String, outcome: &Outcome, runs: &[&Run]) -> Result<()> {
    out.push_str("<table><tr><th class=l>answered in time, %</th>");
    for (name, _) in GROUPS {
        write!(out, "<th>{name}</th>")?;
    }
    out.push_str("<th>bystanders</th><th>served/s</th><th>p99 of t0+t1, ms</th><th>waited at most</th><th class=l>the others</th></tr>");
    for run in runs {
        write!(out, "<tr><td>{}</td>", run.arm.name())?;
        for (index, (_, tiers)) in GROUPS.iter().enumerate() {
            let success = run.stats.success(tiers);
            let class = match success {
                Some(share) if index == 0 && share >= PROTECTED_SUCCESS_MIN => " class=good",
                Some(_) if index == 0 => " class=bad",
                _ => "",
            };
            write!(out, "<td{class}>{}</td>", percent(success))?;
        }
        write!(
            out,
            "<td>{}</td><td>{:.0}</td><td>{:.1}</td><td>{}</td><td class=l>{}</td></tr>",
            percent(run.stats.bystanders_success()),
            served_per_s(outcome, &run.stats),
            run.stats.latency_us.value_at_quantile(0.99) as f64 / 1e3,
            run.stats.waiting_peak,
            lost(&run.stats)
        )?;
    }
    out.push_str("</table>");
    Ok(())
}

/// Most that was answered in one slice, or offered of t0 and t1, per second.
fn top_per_s(stats: &Stats) -> f64 {
    let good = points(stats, &Tier::ALL, false);
    let offered = points(stats, GROUPS[0].1, true);
    let all = good.into_iter().chain(offered);
    all.map(|(_, per_s)| per_s).fold(1.0, f64::max)
}

/// Offered, or answered in time, per second of these tiers, at the middle of each slice.
fn points(stats: &Stats, tiers: &[Tier], offered: bool) -> Vec<(f64, f64)> {
    let slice_s = SLICE.as_secs_f64();
    let slices = stats.slices.iter().enumerate();
    slices
        .map(|(index, slice)| {
            let counts = tiers.iter().map(|tier| &slice[tier.index()]);
            let sum: u64 = counts
                .map(|count| if offered { count.offered } else { count.good })
                .sum();
            ((index as f64 + 0.5) * slice_s, sum as f64 / slice_s)
        })
        .collect()
}

/// Answers in time over time, the important tiers at the bottom; the failure between two lines.
fn picture(outcome: &Outcome, stats: &Stats, top: f64) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let end_s = stats.slices.len() as f64 * SLICE.as_secs_f64();
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .x_label_area_size(18)
            .y_label_area_size(38)
            .build_cartesian_2d(0.0..end_s.max(0.1), 0.0..top * 1.05)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(RGBColor(240, 240, 240))
            .x_labels(5)
            .y_labels(4)
            .y_label_formatter(&|value| format!("{value:.0}"))
            .x_label_formatter(&|value| format!("{value:.0} s"))
            .draw()?;
        // From the back: all tiers, then ever fewer, so that each area ends where the next begins.
        for shown in (1..=GROUPS.len()).rev() {
            let tiers: Vec<Tier> = GROUPS[..shown]
                .iter()
                .flat_map(|(_, tiers)| tiers.iter().copied())
                .collect();
            let good = points(stats, &tiers, false);
            chart.draw_series(AreaSeries::new(good, 0.0, COLOURS[shown - 1]))?;
        }
        let offered = points(stats, GROUPS[0].1, true);
        chart.draw_series(LineSeries::new(offered, OFFERED.stroke_width(1)))?;
        for at_s in [CALM_S, CALM_S + FAILURE_S].map(|at_s| at_s * outcome.scale) {
            let line = vec![(at_s, 0.0), (at_s, top * 1.05)];
            chart.draw_series([PathElement::new(line, RGBColor(120, 120, 120))])?;
        }
        root.present()?;
    }
    Ok(svg)
}
