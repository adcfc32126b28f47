//! Bars and curves made of characters.

use cinnamon_core::TIERS;

use crate::top::view::OPEN_LEVELS;

/// Characters for each tier in the bar of a threshold. With its name and a blank that makes 60 for all.
const TIER_WIDTH: usize = 6;
/// Characters on each side of the target in the bar of a pressure.
const PRESSURE_WIDTH: usize = 10;
/// Heights of a curve, from nothing to all.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 9] = [' ', '_', '.', '-', ':', '=', '+', '*', '#'];

/// The tiers with what is admitted of each: `t0 ###### t1 ###...`.
pub(super) fn threshold(levels: f64) -> String {
    let per_tier = OPEN_LEVELS / TIERS as f64;
    let tier = |tier: usize| {
        let share = (levels / per_tier - tier as f64).clamp(0.0, 1.0);
        let cells = share * TIER_WIDTH as f64;
        // A tier of which a little is refused is not shown as whole, nor one of which a little runs as refused.
        let cells = match share {
            0.0 | 1.0 => cells,
            _ => cells.round().clamp(1.0, TIER_WIDTH as f64 - 1.0),
        };
        let admitted = "#".repeat(cells as usize);
        format!("t{tier} {admitted:.<TIER_WIDTH$}")
    };
    let tiers: Vec<String> = (0..TIERS).map(tier).collect();
    tiers.join(" ")
}

/// From 0 to twice the target, which is the bar in the middle. What is beyond ends with `>`.
pub(super) fn pressure(pressure: Option<f64>) -> String {
    let cells = pressure.unwrap_or(0.0).max(0.0) * PRESSURE_WIDTH as f64;
    let cell = |index: usize| {
        if (index as f64) < cells.round() {
            '#'
        } else {
            ' '
        }
    };
    let side = |from: usize| (from..from + PRESSURE_WIDTH).map(cell).collect::<String>();
    let end = if cells > 2.0 * PRESSURE_WIDTH as f64 {
        '>'
    } else {
        ']'
    };
    format!("[{}|{}{end}", side(0), side(PRESSURE_WIDTH))
}

/// A curve of values from 0 to `most`; where there is none, a blank.
pub(super) fn curve(values: &[Option<f64>], most: f64, ascii: bool) -> String {
    let heights = if ascii { ASCII } else { BLOCKS };
    let steps = heights.len() - 1;
    let height = |value: &Option<f64>| match value {
        None => ' ',
        // Nothing is not the same as not known.
        Some(value) if most > 0.0 => {
            let step = (value / most * steps as f64).round() as usize;
            heights[step.clamp(1, steps)]
        }
        Some(_) => heights[1],
    };
    values.iter().map(height).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_of_a_threshold_shows_each_tier() {
        assert_eq!(
            threshold(448.0),
            "t0 ###### t1 ###### t2 ###### t3 ###... t4 ...... t5 ......"
        );
        assert_eq!(
            threshold(0.0),
            "t0 ...... t1 ...... t2 ...... t3 ...... t4 ...... t5 ......"
        );
        assert!(!threshold(768.0).contains('.'));
        // Hardly anything of t5 is refused, hardly anything of t3 runs.
        assert!(threshold(767.5).ends_with("t5 #####."));
        assert!(threshold(384.5).contains("t3 #....."));
        assert_eq!(threshold(448.0).len(), 59);
    }

    #[test]
    fn the_bar_of_a_pressure_has_its_target_in_the_middle() {
        assert_eq!(pressure(None), "[          |          ]");
        assert_eq!(pressure(Some(0.5)), "[#####     |          ]");
        assert_eq!(pressure(Some(1.0)), "[##########|          ]");
        assert_eq!(pressure(Some(1.3)), "[##########|###       ]");
        assert_eq!(pressure(Some(9.0)), "[##########|##########>");
        assert_eq!(pressure(Some(-1.0)), pressure(None));
        assert_eq!(pressure(Some(f64::INFINITY)), pressure(Some(9.0)));
    }

    #[test]
    fn a_curve_has_blanks_where_nothing_is_known() {
        let values = [None, Some(0.0), Some(50.0), Some(100.0)];
        assert_eq!(curve(&values, 100.0, false), " ▁▄█");
        assert_eq!(curve(&values, 100.0, true), " _:#");
        assert_eq!(curve(&values, 0.0, true), " ___");
    }
}
