//! What is drawn, made from the bins: no longer than a line can show.

use std::ops::Range;

use cinnamon_core::{CodelState, Rank, TIERS};

use super::text::finite;
use crate::sim::outcome::{Bin, Chart};

/// A stretch of time that is drawn as one point.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    pub(super) bin: Bin,
}

impl Stretch {
    /// Per second.
    pub(super) fn rate(&self, count: u64) -> f64 {
        let length_s = self.to_s - self.from_s;
        if length_s > 0.0 {
            count as f64 / length_s
        } else {
            0.0
        }
    }

    pub(super) fn offered_per_s(&self) -> f64 {
        self.rate(self.bin.offered.iter().sum())
    }
}

/// The chart's bins, so many of them put together that at most `most` remain.
pub(super) fn stretches(chart: &Chart, most: usize) -> Vec<Stretch> {
    let together = chart.bins.len().div_ceil(most.max(1)).max(1);
    let bin_s = finite(chart.bin_s);
    chart
        .bins
        .chunks(together)
        .enumerate()
        .map(|(i, bins)| Stretch {
            from_s: (i * together) as f64 * bin_s,
            to_s: (i * together + bins.len()) as f64 * bin_s,
            bin: one_bin(bins),
        })
        .collect()
}

/// Sums of counts, means of levels, extremes of extremes, and the state at the end.
fn one_bin(bins: &[Bin]) -> Bin {
    let tiers = |of: fn(&Bin) -> &[u64; TIERS]| {
        let sum = |tier: usize| bins.iter().map(|bin| of(bin)[tier]).sum();
        std::array::from_fn(sum)
    };
    let mean = |of: fn(&Bin) -> f64| {
        bins.iter().map(|bin| finite(of(bin))).sum::<f64>() / bins.len().max(1) as f64
    };
    let greatest = |of: fn(&Bin) -> f64| bins.iter().map(|bin| finite(of(bin))).fold(0.0, f64::max);
    let least = |of: fn(&Bin) -> f64| bins.iter().map(of).fold(OPEN, f64::min);
    let last = bins.last();
    Bin {
        offered: tiers(|bin| &bin.offered),
        good: tiers(|bin| &bin.good),
        oracle: bins.iter().map(|bin| bin.oracle).sum(),
        speed: mean(|bin| bin.speed),
        wait_s: [mean(|bin| bin.wait_s[0]), greatest(|bin| bin.wait_s[1])],
        threshold: [
            least(|bin| bin.threshold[0]),
            greatest(|bin| bin.threshold[1]),
        ],
        limit: [
            last.map_or(0, |bin| bin.limit[0]),
            bins.iter().map(|bin| bin.limit[1]).min().unwrap_or(0),
            bins.iter().map(|bin| bin.limit[2]).max().unwrap_or(0),
        ],
        backlog_s: [mean(|bin| bin.backlog_s[0]), mean(|bin| bin.backlog_s[1])],
        codel: last.map_or_else(CodelState::default, |bin| bin.codel),
        newest_first: bins.iter().any(|bin| bin.newest_first),
        binding: last.map_or("", |bin| bin.binding),
        pressure: std::array::from_fn(|i| {
            bins.iter().map(|bin| finite(bin.pressure[i])).sum::<f64>() / bins.len().max(1) as f64
        }),
    }
}

/// A point in the middle of each stretch, and one at either end: a line from edge to edge.
pub(super) fn points(stretches: &[Stretch], y: impl Fn(&Stretch) -> f64) -> Vec<(f64, f64)> {
    let start = stretches.first().map(|first| (first.from_s, y(first)));
    let end = stretches.last().map(|last| (last.to_s, y(last)));
    let middle = stretches
        .iter()
        .map(|stretch| ((stretch.from_s + stretch.to_s) / 2.0, y(stretch)));
    start.into_iter().chain(middle).chain(end).collect()
}

/// Stretches on end with the same value, put together: from, to, value.
pub(super) fn runs<T: PartialEq>(
    stretches: &[Stretch],
    value: impl Fn(&Stretch) -> T,
) -> Vec<(f64, f64, T)> {
    let mut runs: Vec<(f64, f64, T)> = Vec::new();
    for stretch in stretches {
        let value = value(stretch);
        match runs.last_mut() {
            Some((_, to_s, before)) if *before == value => *to_s = stretch.to_s,
            _ => runs.push((stretch.from_s, stretch.to_s, value)),
        }
    }
    runs
}

/// When the picture ends; more than 0.
pub(super) fn end_s(chart: &Chart) -> f64 {
    let bins_end_s = chart.bins.len() as f64 * finite(chart.bin_s);
    let end_s = chart
        .phases
        .iter()
        .map(|(_, _, to_s)| finite(*to_s))
        .fold(bins_end_s, f64::max);
    if end_s > 0.0 { end_s } else { 1.0 }
}

/// Whether the threshold was ever below open.
pub(super) fn has_threshold(chart: &Chart) -> bool {
    chart.bins.iter().any(|bin| bin.threshold[0] < OPEN)
}

/// Whether the number of slots ever changed; before the first tick it is not known.
pub(super) fn has_limit(chart: &Chart) -> bool {
    let known = chart.bins.iter().filter(|bin| bin.limit[2] > 0);
    let mut bins = known.map(|bin| bin.limit);
    bins.next()
        .is_some_and(|first| first[1] != first[2] || bins.any(|limit| limit != first))
}

/// Vertical scales that all arms of a scenario share: side by side, equal heights are equal figures.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scales {
    /// Top of the load's axis, requests per second.
    pub(super) load_top: f64,
    /// Of the wait's axis: powers of ten of a millisecond.
    pub(super) wait_exponents: Range<i32>,
}

impl Scales {
    pub(super) fn of(charts: &[&Chart]) -> Self {
        let greatest =
            |of: fn(&Chart) -> f64| charts.iter().map(|chart| of(chart)).fold(0.0, f64::max);
        let capacity = greatest(|chart| finite(chart.capacity_per_s));
        let peak = greatest(peak_offered_per_s);
        let load_top = if capacity > 0.0 {
            (peak * HEADROOM).clamp(capacity * HEADROOM, capacity * LOAD_CUT)
        } else {
            peak * HEADROOM
        };
        Self {
            load_top: if load_top > 0.0 { load_top } else { 1.0 },
            wait_exponents: wait_exponents(charts),
        }
    }
}

/// The greatest load that is drawn, requests per second.
pub(super) fn peak_offered_per_s(chart: &Chart) -> f64 {
    stretches(chart, MOST_POINTS)
        .iter()
        .map(Stretch::offered_per_s)
        .fold(0.0, f64::max)
}

/// Up to the longest wait of all, and down to where the arm with the shortest waits is still seen: one that
/// collapses must not push the others below the axis.
fn wait_exponents(charts: &[&Chart]) -> Range<i32> {
    let longest_ms = |chart: &Chart| {
        let waits_s = chart.bins.iter().flat_map(|bin| {
            let [median, p99] = bin.wait_s;
            [median, p99, bin.backlog_s[0], bin.backlog_s[1]]
        });
        waits_s
            .map(|wait_s| finite(wait_s) * MS)
            .fold(0.0, f64::max)
    };
    let longest: Vec<f64> = charts
        .iter()
        .map(|chart| longest_ms(chart))
        .filter(|wait_ms| *wait_ms > LEAST_WAIT_MS)
        .collect();
    let most = longest.iter().copied().fold(0.0, f64::max);
    if most == 0.0 {
        return 0..1;
    }
    let least = longest.iter().copied().fold(most, f64::min);
    let end = most.log10().ceil() as i32;
    let start = least.log10().floor() as i32 - DECADES_BELOW;
    start.clamp(end - MOST_DECADES, end - 1)..end
}

/// The threshold that admits everything, in levels; a rank holds 65,536 fractions of each.
pub(super) const OPEN: f64 = Rank::OPEN.bits() as f64 / 65_536.0;
/// Points of a line: less than a pixel and a half apart.
pub(super) const MOST_POINTS: usize = 300;
/// Milliseconds a second.
pub(super) const MS: f64 = 1e3;
/// Load beyond so many times the capacity is cut off, so that what is served stays visible.
pub(super) const LOAD_CUT: f64 = 2.5;
const HEADROOM: f64 = 1.1;
/// A nanosecond: less was not measured.
const LEAST_WAIT_MS: f64 = 1e-6;
/// Shown below the longest wait of the arm whose longest wait is the shortest.
const DECADES_BELOW: i32 = 2;
/// What the height of the picture can label.
const MOST_DECADES: i32 = 8;

#[cfg(test)]
mod tests {
    use super::super::tests::chart;
    use super::*;

    #[test]
    fn html_lines_are_no_longer_than_a_picture_can_show() {
        let mut long = chart("cinnamon");
        long.bins = (0..1000).map(|_| long.bins[0].clone()).collect();
        let stretches = stretches(&long, MOST_POINTS);
        assert_eq!(250, stretches.len());
        assert_eq!(4 * long.bins[0].offered[1], stretches[0].bin.offered[1]);
        assert_eq!(long.bin_s * 1000.0, stretches[249].to_s);
    }

    #[test]
    fn html_scales_are_shared_and_cut() {
        let mut wild = chart("nothing");
        wild.bins[0].offered[5] = 1_000_000;
        wild.bins[0].wait_s[1] = 40.0;
        let tame = chart("cinnamon");
        let scales = Scales::of(&[&tame, &wild]);
        assert_eq!(LOAD_CUT * tame.capacity_per_s, scales.load_top);
        assert_eq!(-1..5, scales.wait_exponents);
    }

    #[test]
    fn html_runs_join_equals_only() {
        let mut three = chart("cinnamon");
        three.bins.truncate(3);
        three.bins[0].newest_first = true;
        three.bins[1].newest_first = true;
        three.bins[2].newest_first = false;
        let stretches = stretches(&three, MOST_POINTS);
        let runs = runs(&stretches, |stretch| stretch.bin.newest_first);
        let bin_s = three.bin_s;
        assert_eq!(
            vec![(0.0, 2.0 * bin_s, true), (2.0 * bin_s, 3.0 * bin_s, false)],
            runs
        );
    }
}
