//! How long work holds its slot: mean, median and P90 of recent completions. Why no kept sketch does:
//! `docs/decisions/0028-service-times-decay.md`.

/// Memory of the distribution: long enough for a P90, short enough to follow a store whose capacity
/// just fell.
const MEMORY_S: f64 = 1.0;
/// At low rates the memory is stretched to about this many completions.
const MEMORY_SAMPLES: f64 = 100.0;
/// Sub-buckets per doubling, as a power of two: each is 14 to 25 % wide, and a quantile is off by less than that, most where all
/// work takes as long. (Of an even spread, by less than 5 %.)
const SUB_BITS: u32 = 2;
/// Doublings covered: 2^4 ns to 2^44 ns (16 ns to 4.9 h).
const BUCKETS: usize = 40 << SUB_BITS;
const LOWEST_BITS: u32 = 4;

/// A decaying log-scale histogram of service times.
#[derive(Debug)]
pub(crate) struct ServiceTimes {
    weights: Box<[f64; BUCKETS]>,
    samples: f64,
    sum_ns: f64,
    sum_ns_squared: f64,
    fresh: f64,
    /// Slots that came back without teaching, and how long they were held, for when nothing else is
    /// known. (Slots that are still out say nothing yet: counted in, one stuck request would stretch
    /// every timeout for ever.)
    untaught: f64,
    untaught_ns: f64,
    untaught_fresh: f64,
}

/// Service times in seconds; zero until the first completion.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ServiceSummary {
    pub(crate) mean_s: f64,
    pub(crate) p50_s: f64,
    pub(crate) p90_s: f64,
    /// Variance over squared mean: 1 for exponential service.
    pub(crate) scatter: f64,
}

impl ServiceTimes {
    pub(crate) fn new() -> Self {
        Self {
            weights: Box::new([0.0; BUCKETS]),
            samples: 0.0,
            sum_ns: 0.0,
            sum_ns_squared: 0.0,
            fresh: 0.0,
            untaught: 0.0,
            untaught_ns: 0.0,
            untaught_fresh: 0.0,
        }
    }

    /// Work took so long, and so did others that were not timed: `stands_for` in all. (Each counted once, a crowded lane, in
    /// which all are timed, would outvote a calm one, in which one in sixteen is.)
    pub(crate) fn record(&mut self, nanos: u64, stands_for: u64) {
        let weight = stands_for as f64;
        self.weights[bucket(nanos)] += weight;
        self.samples += weight;
        self.sum_ns += weight * nanos as f64;
        self.sum_ns_squared += weight * (nanos as f64).powi(2);
        self.fresh += 1.0;
    }

    /// A slot came back that teaches nothing: its work failed, or was abandoned.
    pub(crate) fn record_untaught(&mut self, nanos: u64, stands_for: u64) {
        let weight = stands_for as f64;
        self.untaught += weight;
        self.untaught_ns += weight * nanos as f64;
        self.untaught_fresh += 1.0;
    }

    /// Sums up what is known, and ages it by `dt_s` seconds.
    pub(crate) fn roll(&mut self, dt_s: f64) -> ServiceSummary {
        let summary = self.summary();
        // Nothing new, nothing to forget: an idle hour must not erase the service time.
        if self.fresh > 0.0 {
            let keep = keep(dt_s, self.fresh);
            self.weights.iter_mut().for_each(|weight| *weight *= keep);
            self.samples *= keep;
            self.sum_ns *= keep;
            self.sum_ns_squared *= keep;
            self.fresh = 0.0;
        }
        if self.untaught_fresh > 0.0 {
            let keep = keep(dt_s, self.untaught_fresh);
            self.untaught *= keep;
            self.untaught_ns *= keep;
            self.untaught_fresh = 0.0;
        }
        summary
    }

    fn summary(&self) -> ServiceSummary {
        if self.samples > 0.0 {
            return ServiceSummary {
                mean_s: self.sum_ns / self.samples * 1e-9,
                scatter: self.samples * self.sum_ns_squared / self.sum_ns.powi(2) - 1.0,
                p50_s: self.quantile_s(0.5),
                p90_s: self.quantile_s(0.9),
            };
        }
        if self.untaught <= 0.0 {
            return ServiceSummary::default();
        }
        // Callers that only drop their permits teach no service time, but the law needs a scale:
        // with none at all a pool of 5 x 500 ms lost 8 % of calm traffic at 0.7x. The quantiles are
        // those of an exponential.
        let mean_s = self.untaught_ns / self.untaught * 1e-9;
        ServiceSummary {
            mean_s,
            p50_s: mean_s * 0.69,
            p90_s: mean_s * 2.3,
            scatter: 1.0,
        }
    }

    fn quantile_s(&self, q: f64) -> f64 {
        let mut left = q * self.weights.iter().sum::<f64>();
        for (i, &weight) in self.weights.iter().enumerate() {
            if weight > 0.0 && left <= weight {
                let (low, high) = (lower_bound(i), lower_bound(i + 1));
                return (low + (high - low) * (left / weight)) * 1e-9;
            }
            left -= weight;
        }
        lower_bound(BUCKETS) * 1e-9
    }
}

/// What is kept of the past after `dt_s` seconds that brought `events`.
fn keep(dt_s: f64, events: f64) -> f64 {
    let memory_s = MEMORY_S.max(MEMORY_SAMPLES * dt_s / events);
    (-dt_s / memory_s).exp()
}

fn bucket(nanos: u64) -> usize {
    let nanos = nanos.max(1 << LOWEST_BITS);
    let exponent = nanos.ilog2();
    let sub = (nanos >> (exponent - SUB_BITS)) as usize & ((1 << SUB_BITS) - 1);
    ((((exponent - LOWEST_BITS) as usize) << SUB_BITS) + sub).min(BUCKETS - 1)
}

/// Nanoseconds at which bucket `i` begins.
fn lower_bound(i: usize) -> f64 {
    let exponent = (i >> SUB_BITS) as u32 + LOWEST_BITS;
    let sub = (i & ((1 << SUB_BITS) - 1)) as f64;
    // Not `powi`, whose last bits are the platform's affair: a time would lie outside of its own bucket.
    (1u64 << exponent) as f64 * (1.0 + sub / f64::from(1 << SUB_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_contain_what_is_put_into_them() {
        for nanos in [0, 1, 16, 17, 1_000, 20_000_000, 1 << 43] {
            let i = bucket(nanos);
            let clamped = nanos.max(16) as f64;
            assert!(
                lower_bound(i) <= clamped && clamped < lower_bound(i + 1),
                "{nanos}"
            );
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_of_an_even_spread() {
        let mut times = ServiceTimes::new();
        (1..=1_000u64).for_each(|i| times.record(i * 1_000, 1));
        let summary = times.roll(0.02);
        assert!((summary.mean_s - 500.5e-6).abs() < 1e-9, "{summary:?}");
        assert!((summary.p50_s / 500e-6 - 1.0).abs() < 0.05, "{summary:?}");
        assert!((summary.p90_s / 900e-6 - 1.0).abs() < 0.05, "{summary:?}");
    }

    #[test]
    fn follows_a_slower_store_within_a_second_or_two_and_survives_idling() {
        let mut times = ServiceTimes::new();
        let mut second = |nanos: u64| {
            for _ in 0..50 {
                (0..20).for_each(|_| times.record(nanos, 1));
                times.roll(0.02);
            }
            times.roll(3_600.0)
        };
        second(20_000_000);
        assert!((second(20_000_000).mean_s - 0.02).abs() < 1e-6);
        second(50_000_000);
        assert!(second(50_000_000).mean_s > 0.044);
    }

    #[test]
    fn slots_that_come_back_unfinished_give_a_scale_until_one_is_finished() {
        let mut times = ServiceTimes::new();
        for _ in 0..100 {
            (0..20).for_each(|_| times.record_untaught(20_000_000, 1));
            times.roll(0.02);
        }
        let summary = times.roll(0.02);
        assert!((summary.mean_s - 0.02).abs() < 1e-9, "{summary:?}");
        times.record(5_000_000, 1);
        assert!((times.roll(0.02).mean_s - 0.005).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_known_before_the_first_completion() {
        assert_eq!(ServiceTimes::new().roll(1.0), ServiceSummary::default());
    }
}
