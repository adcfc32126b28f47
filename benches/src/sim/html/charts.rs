//! The pictures over time.

use std::iter::once;
use std::ops::Range;

use cinnamon_core::{CodelState, TIERS};
use plotters::element::Polygon;
use plotters::series::AreaSeries;
use plotters::style::{Color, RGBColor};

use super::colour::{
    BACKLOG, CAPACITY, GOOD, LABEL, MEDIAN, NEWEST_FIRST, OFFERED, ORACLE, P99, PRESSURE, STANDING,
    TARGET, THRESHOLD, TIER, heat,
};
use super::plot::{Axis, DrawError, Plane, block, line, svg};
use super::series::{
    MOST_POINTS, MS, OPEN, Scales, Stretch, peak_offered_per_s, points, runs, stretches,
};
use super::text::finite;
use crate::sim::outcome::{Bin, Chart};

/// Offered, served in time, and what could have been; requests per second.
pub(super) fn load(chart: &Chart, scales: &Scales) -> Result<String, DrawError> {
    let stretches = stretches(chart, MOST_POINTS);
    let top = scales.load_top;
    let curve = |of: &dyn Fn(&Stretch) -> f64| {
        points(&stretches, |stretch| finite(of(stretch)).clamp(0.0, top))
    };
    let capacity_per_s = finite(chart.capacity_per_s);
    let capacity = curve(&|stretch| capacity_per_s * stretch.bin.speed);
    let offered = curve(&Stretch::offered_per_s);
    let good = curve(&|stretch| stretch.rate(stretch.bin.good.iter().sum()));
    let oracle = curve(&|stretch| stretch.rate(stretch.bin.oracle));
    let axis = Axis::linear(LOAD_HEIGHT, top);
    svg(chart, &axis, "Load and goodput over time", |plane| {
        plane.draw_series(AreaSeries::new(good.iter().copied(), 0.0, GOOD.mix(FAINT)))?;
        line(plane, &capacity, CAPACITY.stroke_width(BROAD))?;
        line(plane, &offered, OFFERED.stroke_width(THIN))?;
        line(plane, &oracle, ORACLE.stroke_width(BROAD))?;
        line(plane, &good, GOOD.stroke_width(BROAD))
    })
}

/// The threshold, with CoDel's state behind it and the order of the queue beneath.
pub(super) fn threshold(chart: &Chart) -> Result<String, DrawError> {
    let stretches = stretches(chart, MOST_POINTS);
    let level = |of: &dyn Fn(&Stretch) -> f64| {
        points(&stretches, |stretch| finite(of(stretch)).clamp(0.0, OPEN))
    };
    let least = level(&|stretch| stretch.bin.threshold[0]);
    let most = level(&|stretch| stretch.bin.threshold[1]);
    let middle = level(&|stretch| (stretch.bin.threshold[0] + stretch.bin.threshold[1]) / 2.0);
    svg(chart, &threshold_axis(), "Threshold over time", |plane| {
        queue_state(plane, &stretches, &(-ORDER_LEVELS..THRESHOLD_TOP))?;
        let band: Vec<_> = least.iter().chain(most.iter().rev()).copied().collect();
        plane.draw_series(once(Polygon::new(band, THRESHOLD.mix(BAND_OPACITY))))?;
        line(plane, &middle, THRESHOLD.stroke_width(THIN))
    })
}

/// The slots that were settled on, and how far trials went from there.
pub(super) fn limit(chart: &Chart) -> Result<String, DrawError> {
    let stretches = stretches(chart, MOST_POINTS);
    let most = chart.bins.iter().map(|bin| bin.limit[2]).max().unwrap_or(0);
    let of = |which: usize| points(&stretches, |stretch| f64::from(stretch.bin.limit[which]));
    let axis = Axis::linear(LIMIT_HEIGHT, (f64::from(most) * LIMIT_TOP).max(1.0));
    svg(chart, &axis, "Slots over time", |plane| {
        let band: Vec<_> = of(1).into_iter().chain(of(2).into_iter().rev()).collect();
        plane.draw_series(once(Polygon::new(band, THRESHOLD.mix(BAND_OPACITY))))?;
        line(plane, &of(0), THRESHOLD.stroke_width(BROAD))
    })
}

/// A tier's name stands in the middle of its levels; the lines are the borders between tiers.
fn threshold_axis() -> Axis {
    let cohorts = OPEN / TIERS as f64;
    let tiers = TIER.iter().enumerate().map(|(tier, colour)| {
        let middle = (tier as f64 + 0.5) * cohorts;
        (middle, format!("t{tier}"), *colour)
    });
    Axis {
        height: THRESHOLD_HEIGHT,
        y: -ORDER_LEVELS..THRESHOLD_TOP,
        grid: (0..=TIERS).map(|tier| tier as f64 * cohorts).collect(),
        labels: tiers
            .chain(once((OPEN + OPEN_LABEL_LEVELS, "open".to_owned(), LABEL)))
            .collect(),
    }
}

/// A tint where CoDel sees a standing queue, a bar along the bottom where the newest goes first.
fn queue_state(
    plane: &mut Plane<'_, '_>,
    stretches: &[Stretch],
    y: &Range<f64>,
) -> Result<(), DrawError> {
    for (from, to, standing) in runs(stretches, |s| s.bin.codel == CodelState::Standing) {
        if standing {
            block(plane, (from, to), (y.start, y.end), STANDING)?;
        }
    }
    let bar = y.start + (y.end - y.start) * ORDER_SHARE;
    for (from, to, newest_first) in runs(stretches, |s| s.bin.newest_first) {
        if newest_first {
            block(plane, (from, to), (y.start, bar), NEWEST_FIRST)?;
        }
    }
    Ok(())
}

/// One strip a tier, coloured by the share answered in time; empty where nothing was offered.
pub(super) fn success(chart: &Chart) -> Result<String, DrawError> {
    let stretches = stretches(chart, MOST_CELLS);
    let row = |tier: usize| (TIERS - 1 - tier) as f64;
    let axis = Axis {
        height: SUCCESS_HEIGHT,
        y: 0.0..TIERS as f64,
        grid: Vec::new(),
        labels: (0..TIERS)
            .map(|tier| (row(tier) + 0.5, format!("t{tier}"), TIER[tier]))
            .collect(),
    };
    svg(chart, &axis, "Success per tier over time", |plane| {
        for tier in 0..TIERS {
            let strip = (row(tier) + STRIP_GAP, row(tier) + 1.0 - STRIP_GAP);
            for (from, to, shade) in runs(&stretches, |stretch| shade(stretch, tier)) {
                if let Some(colour) = shade {
                    block(plane, (from, to), strip, colour)?;
                }
            }
        }
        Ok(())
    })
}

/// In steps, so that neighbours that look alike are one rectangle.
fn shade(stretch: &Stretch, tier: usize) -> Option<RGBColor> {
    let offered = stretch.bin.offered[tier];
    (offered > 0).then(|| {
        let share = stretch.bin.good[tier] as f64 / offered as f64;
        heat((share * SHADES).round() / SHADES)
    })
}

/// A line of the picture of waits.
pub(super) struct WaitLine {
    pub(super) name: &'static str,
    pub(super) colour: RGBColor,
    width: u32,
    of: fn(&Bin) -> f64,
}

/// The lines that have something to show. An arm without such a figure has no line rather than one along
/// the bottom.
pub(super) fn wait_lines(chart: &Chart) -> impl DoubleEndedIterator<Item = &'static WaitLine> {
    WAIT_LINES
        .iter()
        .filter(|line| chart.bins.iter().any(|bin| finite((line.of)(bin)) > 0.0))
}

/// Time in the queue and the backlog, milliseconds, powers of ten. Behind them the queue's state when no
/// other picture shows it.
pub(super) fn wait(
    chart: &Chart,
    scales: &Scales,
    with_queue_state: bool,
) -> Result<String, DrawError> {
    let stretches = stretches(chart, MOST_POINTS);
    let exponents = &scales.wait_exponents;
    let axis = Axis::powers_of_ten(WAIT_HEIGHT, exponents.clone());
    let (least, most) = (f64::from(exponents.start), f64::from(exponents.end));
    let exponent = |wait_s: f64| {
        let wait_ms = finite(wait_s) * MS;
        if wait_ms > 0.0 {
            wait_ms.log10().clamp(least, most)
        } else {
            least
        }
    };
    svg(chart, &axis, "Wait and backlog over time", |plane| {
        if with_queue_state {
            queue_state(plane, &stretches, &axis.y)?;
        }
        for WaitLine {
            colour, width, of, ..
        } in wait_lines(chart)
        {
            let curve = points(&stretches, |stretch| exponent(of(&stretch.bin)));
            line(plane, &curve, colour.stroke_width(*width))?;
        }
        Ok(())
    })
}

/// The pressures of the plants that signals measure; 1.0 is where each is to be held.
pub(super) fn pressure(chart: &Chart) -> Result<String, DrawError> {
    let stretches = stretches(chart, MOST_POINTS);
    let of = |plant: usize| {
        points(&stretches, |stretch| {
            finite(stretch.bin.pressure[plant]).clamp(0.0, PRESSURE_TOP)
        })
    };
    let axis = Axis::linear(PRESSURE_HEIGHT, PRESSURE_TOP);
    svg(chart, &axis, "Pressure over time", |plane| {
        let end_s = points(&stretches, |_| 1.0);
        line(plane, &end_s, TARGET.stroke_width(THIN))?;
        for (plant, colour) in PRESSURE.iter().enumerate().take(chart.plants.len()) {
            line(plane, &of(plant), colour.stroke_width(BROAD))?;
        }
        Ok(())
    })
}

/// How far the offered load goes beyond the picture, as a multiple of the capacity.
pub(super) fn cut_load(chart: &Chart, scales: &Scales) -> Option<f64> {
    let peak = peak_offered_per_s(chart);
    let capacity = finite(chart.capacity_per_s);
    let cut = capacity > 0.0 && peak > scales.load_top;
    cut.then(|| peak / capacity)
}

/// The last is on top.
const WAIT_LINES: [WaitLine; 4] = [
    WaitLine {
        name: "target W*",
        colour: TARGET,
        width: THIN,
        of: |bin| bin.backlog_s[1],
    },
    WaitLine {
        name: "backlog W",
        colour: BACKLOG,
        width: THIN,
        of: |bin| bin.backlog_s[0],
    },
    WaitLine {
        name: "p99",
        colour: P99,
        width: BROAD,
        of: |bin| bin.wait_s[1],
    },
    WaitLine {
        name: "median",
        colour: MEDIAN,
        width: BROAD,
        of: |bin| bin.wait_s[0],
    },
];
const LOAD_HEIGHT: u32 = 160;
const THRESHOLD_HEIGHT: u32 = 164;
const SUCCESS_HEIGHT: u32 = 112;
const WAIT_HEIGHT: u32 = 156;
const LIMIT_HEIGHT: u32 = 112;
/// Room above the most slots.
const LIMIT_TOP: f64 = 1.1;
const PRESSURE_HEIGHT: u32 = 130;
/// Higher pressures are cut off.
const PRESSURE_TOP: f64 = 3.0;
const THIN: u32 = 1;
const BROAD: u32 = 2;
const FAINT: f64 = 0.12;
const BAND_OPACITY: f64 = 0.35;
/// Room beneath level 0 for the bar of the order, and above the open threshold for its line and name.
const ORDER_LEVELS: f64 = 40.0;
const THRESHOLD_TOP: f64 = OPEN + 60.0;
/// Keeps `open` clear of `t5`.
const OPEN_LABEL_LEVELS: f64 = 20.0;
/// Height of the bar of the order.
const ORDER_SHARE: f64 = 0.04;
/// Cells of a strip: three to four pixels wide.
const MOST_CELLS: usize = 110;
const SHADES: f64 = 10.0;
const STRIP_GAP: f64 = 0.05;
