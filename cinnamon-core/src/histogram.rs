//! Times counted in buckets that double: cheap to add to, and a quantile of any window is a difference away.

use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

/// Buckets; the last has no upper bound. From 33 us to 17 s, which is what a store's waits and service times
/// span; below and beyond nobody needs to tell apart.
pub const HISTOGRAM_BUCKETS: usize = 21;
/// The first bucket's upper bound, ns, as a power of two.
const FIRST_LOG2_NS: u32 = 15;

/// How often something took how long, since the controller was built. The buckets' upper bounds double from
/// 2^15 ns on; a time equal to a bound is within it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; HISTOGRAM_BUCKETS],
    sum_ns: u64,
}

impl Histogram {
    pub(crate) fn record(&mut self, nanos: u64) {
        self.record_many(nanos, 1);
    }

    /// So many that took so long each.
    pub(crate) fn record_many(&mut self, nanos: u64, count: u64) {
        let log2 = u64::BITS - nanos.saturating_sub(1).leading_zeros();
        let bucket = log2.saturating_sub(FIRST_LOG2_NS) as usize;
        self.counts[bucket.min(HISTOGRAM_BUCKETS - 1)] += count;
        self.sum_ns = self.sum_ns.saturating_add(nanos.saturating_mul(count));
    }

    /// So many that took no time.
    pub(crate) const fn record_zeros(&mut self, count: u64) {
        self.counts[0] += count;
    }

    /// All that were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their times together, seconds.
    #[must_use]
    pub fn sum_s(&self) -> f64 {
        self.sum_ns as f64 * 1e-9
    }

    /// Each bucket's upper bound in seconds (the last is infinite), and how many lie in it.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bound_s = |index: usize| match index {
            _ if index == HISTOGRAM_BUCKETS - 1 => f64::INFINITY,
            _ => Duration::from_nanos(1 << (FIRST_LOG2_NS as usize + index)).as_secs_f64(),
        };
        let counts = self.counts.iter().enumerate();
        counts.map(move |(index, &count)| (bound_s(index), count))
    }

    /// What was counted since `before`, an earlier state of the same histogram.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less = |index: usize| self.counts[index].saturating_sub(before.counts[index]);
        Self {
            counts: std::array::from_fn(less),
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
        }
    }

    /// The upper bound of the bucket that this quantile (0 to 1) lies in, seconds; `None` when nothing was
    /// counted.
    #[must_use]
    pub fn quantile_s(&self, quantile: f64) -> Option<f64> {
        let rank = (quantile.clamp(0.0, 1.0) * self.count() as f64)
            .ceil()
            .max(1.0);
        let mut below = 0u64;
        self.buckets().find_map(|(bound_s, count)| {
            below += count;
            (below as f64 >= rank).then_some(bound_s)
        })
    }
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // JSON has no infinity: the last bound is left out.
        let bounds: Vec<f64> = self.buckets().map(|(bound_s, _)| bound_s).collect();
        let mut fields = serializer.serialize_struct("Histogram", 3)?;
        fields.serialize_field("bounds_s", &bounds[..HISTOGRAM_BUCKETS - 1])?;
        fields.serialize_field("counts", &self.counts[..])?;
        fields.serialize_field("sum_s", &self.sum_s())?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_lies_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        for nanos in [
            0,
            1,
            1 << 15,
            (1 << 15) + 1,
            1 << 20,
            (1 << 34) + 1,
            u64::MAX,
        ] {
            let mut histogram = Histogram::default();
            histogram.record(nanos);
            let seconds = nanos as f64 * 1e-9;
            let expected = histogram
                .buckets()
                .position(|(bound_s, _)| seconds <= bound_s);
            let found = histogram.buckets().position(|(_, count)| count == 1);
            assert_eq!(found, expected, "{nanos} ns");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_window() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_s(0.5), None);
        (0..1_000).for_each(|_| histogram.record(1_000_000_000));
        let before = histogram.clone();
        (0..90).for_each(|_| histogram.record(1_000_000));
        (0..10).for_each(|_| histogram.record(100_000_000));
        let window = histogram.since(&before);
        assert_eq!(window.count(), 100);
        assert!((window.sum_s() - 1.09).abs() < 1e-9);
        assert_eq!(window.quantile_s(0.9), Some(0.001_048_576));
        assert_eq!(window.quantile_s(0.91), Some(0.134_217_728));
        assert_eq!(window.quantile_s(1.0), window.quantile_s(0.99));
        let json = serde_json::to_value(&window).unwrap();
        assert_eq!(json["counts"][5], 90);
    }
}
