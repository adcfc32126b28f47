//! The frame that all charts over time share: same width, same margins, so that they line up.

use std::io;
use std::iter::once;
use std::ops::Range;

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{PathElement, Rectangle, Text};
use plotters::series::LineSeries;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle, TextStyle};

use super::colour::{AXIS, BAND, GRID, LABEL};
use super::series::end_s;
use super::text::{escape, short};
use crate::sim::outcome::Chart;

/// What the backend reports. It writes to memory, so this is a bug rather than a full disk.
pub(super) type DrawError = DrawingAreaErrorKind<io::Error>;

/// What a chart paints on: seconds to the right, its own unit upwards.
pub(super) type Plane<'a, 's> =
    ChartContext<'a, SVGBackend<'s>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The vertical axis.
pub(super) struct Axis {
    /// Of the picture, in pixels.
    pub(super) height: u32,
    pub(super) y: Range<f64>,
    pub(super) grid: Vec<f64>,
    pub(super) labels: Vec<(f64, String, RGBColor)>,
}

impl Axis {
    /// From 0 to `top`, marked at round numbers.
    pub(super) fn linear(height: u32, top: f64) -> Self {
        let grid = round_marks(top, MARKS_UP);
        let labels = grid.iter().map(|&at| (at, short(at), LABEL)).collect();
        Self {
            height,
            y: 0.0..top,
            grid,
            labels,
        }
    }

    /// Powers of ten; the axis itself is in exponents.
    pub(super) fn powers_of_ten(height: u32, exponents: Range<i32>) -> Self {
        let grid: Vec<f64> = (exponents.start..=exponents.end).map(f64::from).collect();
        let labels = grid
            .iter()
            .map(|&at| (at, short(10_f64.powf(at)), LABEL))
            .collect();
        Self {
            height,
            y: f64::from(exponents.start)..f64::from(exponents.end),
            grid,
            labels,
        }
    }
}

/// One picture: phases behind, then the grid, what `paint` draws, the axes.
pub(super) fn svg(
    chart: &Chart,
    axis: &Axis,
    alt: &str,
    paint: impl FnOnce(&mut Plane<'_, '_>) -> Result<(), DrawError>,
) -> Result<String, DrawError> {
    let mut out = String::new();
    {
        let root = SVGBackend::with_string(&mut out, (WIDTH, axis.height)).into_drawing_area();
        let mut plane = ChartBuilder::on(&root)
            .margin_top(TOP)
            .margin_right(RIGHT)
            .x_label_area_size(BOTTOM)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(0.0..end_s(chart), axis.y.clone())?;
        phase_bands(&mut plane, chart, &axis.y)?;
        for &at in &axis.grid {
            let line = [(0.0, at), (end_s(chart), at)];
            plane.draw_series(once(PathElement::new(line, GRID)))?;
        }
        paint(&mut plane)?;
        phase_names(&root, &plane, chart)?;
        axes(&root, &plane, chart, axis)?;
        root.present()?;
    }
    Ok(tidy(&out, alt))
}

/// A line; the points between equals are left out.
pub(super) fn line(
    plane: &mut Plane<'_, '_>,
    points: &[(f64, f64)],
    style: ShapeStyle,
) -> Result<(), DrawError> {
    plane.draw_series(LineSeries::new(thinned(points), style))?;
    Ok(())
}

/// Fills the height of the plane, or the part of it from `low` to `high`, from `from` to `to` seconds.
pub(super) fn block(
    plane: &mut Plane<'_, '_>,
    (from, to): (f64, f64),
    (low, high): (f64, f64),
    colour: RGBColor,
) -> Result<(), DrawError> {
    plane.draw_series(once(Rectangle::new(
        [(from, high), (to, low)],
        colour.filled(),
    )))?;
    Ok(())
}

/// Without the points whose neighbours both have the same height.
pub(super) fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let same_height = |a: usize, b: usize| points[a].1 == points[b].1;
    (0..points.len())
        .filter(|&i| {
            let within = i > 0 && i + 1 < points.len();
            !(within && same_height(i - 1, i) && same_height(i, i + 1))
        })
        .map(|i| points[i])
        .collect()
}

fn phase_bands(plane: &mut Plane<'_, '_>, chart: &Chart, y: &Range<f64>) -> Result<(), DrawError> {
    for (_, from, to) in chart.phases.iter().skip(1).step_by(2) {
        block(plane, (*from, *to), (y.start, y.end), BAND)?;
    }
    Ok(())
}

/// The name where it fits, else the number that the table of phases gives it, else nothing.
fn phase_names(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    plane: &Plane<'_, '_>,
    chart: &Chart,
) -> Result<(), DrawError> {
    for (i, (name, from, to)) in chart.phases.iter().enumerate() {
        let (left, _) = plane.backend_coord(&(*from, 0.0));
        let (right, _) = plane.backend_coord(&(*to, 0.0));
        let number = (i + 1).to_string();
        let fits = |text: &str| text.chars().count() as f64 * LETTER_PX < f64::from(right - left);
        let Some(text) = [name.as_str(), &number].into_iter().find(|text| fits(text)) else {
            continue;
        };
        let at = ((left + right) / 2, TOP - PHASE_NAME_GAP);
        let style = label_style(LABEL, HPos::Center, VPos::Bottom);
        root.draw(&Text::new(text.to_owned(), at, style))?;
    }
    Ok(())
}

fn axes(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    plane: &Plane<'_, '_>,
    chart: &Chart,
    axis: &Axis,
) -> Result<(), DrawError> {
    let end = end_s(chart);
    let (left, bottom) = plane.backend_coord(&(0.0, axis.y.start));
    let (right, top) = plane.backend_coord(&(end, axis.y.end));
    let corner = vec![(left, top), (left, bottom), (right, bottom)];
    root.draw(&PathElement::new(corner, AXIS))?;
    for (at, text, colour) in &axis.labels {
        let (_, y) = plane.backend_coord(&(0.0, *at));
        let style = label_style(*colour, HPos::Right, VPos::Center);
        root.draw(&Text::new(text.clone(), (left - LABEL_GAP, y), style))?;
    }
    for at in round_marks(end, MARKS_ACROSS) {
        let (x, _) = plane.backend_coord(&(at, axis.y.start));
        root.draw(&PathElement::new(
            vec![(x, bottom), (x, bottom + MARK)],
            AXIS,
        ))?;
        let style = label_style(LABEL, HPos::Center, VPos::Top);
        let text = format!("{} s", short(at));
        root.draw(&Text::new(text, (x, bottom + LABEL_GAP), style))?;
    }
    Ok(())
}

fn label_style(colour: RGBColor, across: HPos, up: VPos) -> TextStyle<'static> {
    ("sans-serif", LETTER_SIZE)
        .into_font()
        .color(&colour)
        .pos(Pos::new(across, up))
}

/// From 0 to `top` in steps of 1, 2 or 5 times a power of ten, at most `most` steps.
fn round_marks(top: f64, most: usize) -> Vec<f64> {
    if !top.is_finite() || top <= 0.0 {
        return vec![0.0];
    }
    let least = top / most as f64;
    let power = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|times| times * power)
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(least);
    let steps = (top / step + ROUNDING).floor() as usize;
    (0..=steps).map(|i| i as f64 * step).collect()
}

/// Takes out what the page says once for all pictures, and says what the picture is to those who cannot see.
fn tidy(svg: &str, alt: &str) -> String {
    let named = format!("<svg role=\"img\" aria-label=\"{}\" ", escape(alt));
    svg.replacen("<svg ", &named, 1)
        .replace(" opacity=\"1\"", "")
        .replace(" stroke=\"none\"", "")
        .replace(" font-family=\"sans-serif\"", "")
        .replace(" \"/>", "\"/>")
        .replace(">\n", ">")
}

/// Of all pictures, in pixels: what a column is wide at least.
pub(super) const WIDTH: u32 = 440;
const TOP: i32 = 16;
const RIGHT: i32 = 14;
const BOTTOM: i32 = 18;
const LEFT: i32 = 38;
const LABEL_GAP: i32 = 5;
const MARK: i32 = 3;
const PHASE_NAME_GAP: i32 = 2;
/// As plotters has it; the SVG has it divided by 1.24.
const LETTER_SIZE: f64 = 13.0;
/// Width of a letter of that size, on the safe side.
const LETTER_PX: f64 = 6.2;
const MARKS_UP: usize = 5;
const MARKS_ACROSS: usize = 7;
/// Lets the last mark be at the end of the axis when the division falls short of it by a hair.
const ROUNDING: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_marks_are_round() {
        assert_eq!(
            vec![0.0, 20.0, 40.0, 60.0, 80.0, 100.0],
            round_marks(110.0, 6)
        );
        assert_eq!(vec![0.0, 0.5, 1.0], round_marks(1.0, 3));
        assert_eq!(vec![0.0], round_marks(0.0, 3));
        assert_eq!(vec![0.0], round_marks(f64::NAN, 3));
    }

    #[test]
    fn html_flat_lines_need_two_points() {
        let flat: Vec<_> = (0..9).map(|i| (f64::from(i), 1.0)).collect();
        assert_eq!(vec![(0.0, 1.0), (8.0, 1.0)], thinned(&flat));
        assert_eq!(Vec::<(f64, f64)>::new(), thinned(&[]));
    }
}
