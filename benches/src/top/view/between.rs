//! What happened between two scrapes: [`Between`].

use super::Times;
use crate::top::text::Scrape;

/// How a controller is, and how it was some time before.
#[derive(Clone, Copy, Debug)]
pub(in crate::top) struct Between<'a> {
    now: &'a Scrape,
    before: Option<(&'a Scrape, f64)>,
}

impl<'a> Between<'a> {
    /// `before` comes with the seconds since; without it there are no rates.
    pub(in crate::top) fn new(now: &'a Scrape, before: Option<(&'a Scrape, f64)>) -> Self {
        let before = before.filter(|(_, elapsed_s)| *elapsed_s > 0.0);
        Self { now, before }
    }

    pub(super) const fn now(&self) -> &'a Scrape {
        self.now
    }

    pub(super) fn elapsed_s(&self) -> Option<f64> {
        self.before.map(|(_, elapsed_s)| elapsed_s)
    }

    /// A gauge, unless it is infinite or no number.
    pub(super) fn gauge(&self, metric: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.now
            .get(metric, labels)
            .filter(|value| value.is_finite())
    }

    /// So much a counter grew per second.
    pub(super) fn per_s(&self, metric: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let (_, elapsed_s) = self.before?;
        Some(self.grown(metric, labels)? / elapsed_s)
    }

    /// So much a counter grew. One that was not there before was 0: verdicts appear with their first request.
    /// One that fell began anew.
    fn grown(&self, metric: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let (before, _) = self.before?;
        let now = self.gauge(metric, labels)?;
        let before = before.get(metric, labels).unwrap_or(0.0);
        Some(if before <= now { now - before } else { now })
    }

    /// Quantiles of what fell into a histogram's buckets; `None` if nothing did.
    pub(super) fn times(&self, metric: &str, lane: &[(&str, &str); 1]) -> Option<Times> {
        let grown = |(le, _): (&str, f64)| {
            let grown = self.grown(metric, &[lane[0], ("le", le)])?;
            Some((le.parse().ok()?, grown))
        };
        let buckets = self.now.by(metric, lane, "le");
        let mut buckets: Vec<(f64, f64)> = buckets.filter_map(grown).collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (_, all) = *buckets.last()?;
        let mut bounds = buckets.iter().map(|(bound_s, _)| *bound_s);
        let bound_max_s = bounds.rfind(|bound_s| bound_s.is_finite())?;
        let quantile = |share: f64| {
            let reaches = |(_, below): &&(f64, f64)| *below >= share * all;
            buckets.iter().find(reaches).map(|(bound_s, _)| *bound_s)
        };
        if all <= 0.0 {
            return None;
        }
        Some(Times {
            p50_s: quantile(0.5)?,
            p99_s: quantile(0.99)?,
            bound_max_s,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::text::parse;

    fn scrape(text: &str) -> Scrape {
        parse(text).unwrap().pop_first().unwrap().1
    }

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let before = scrape("cinnamon_a_total 10\ncinnamon_c_total 50");
        let now = scrape("cinnamon_a_total 30\ncinnamon_b_total 4\ncinnamon_c_total 6");
        let between = Between::new(&now, Some((&before, 2.0)));
        assert_eq!(between.per_s("cinnamon_a_total", &[]), Some(10.0));
        // It came with its first request.
        assert_eq!(between.per_s("cinnamon_b_total", &[]), Some(2.0));
        // It began anew.
        assert_eq!(between.per_s("cinnamon_c_total", &[]), Some(3.0));
        assert_eq!(between.per_s("cinnamon_d_total", &[]), None);
        let alone = Between::new(&now, None);
        assert_eq!(alone.per_s("cinnamon_a_total", &[]), None);
        let at_once = Between::new(&now, Some((&before, 0.0)));
        assert_eq!(at_once.per_s("cinnamon_a_total", &[]), None);
    }

    #[test]
    fn a_gauge_that_is_no_number_or_infinite_says_nothing() {
        let now = scrape("cinnamon_a NaN\ncinnamon_b +Inf\ncinnamon_c 0");
        let between = Between::new(&now, None);
        assert_eq!(between.gauge("cinnamon_a", &[]), None);
        assert_eq!(between.gauge("cinnamon_b", &[]), None);
        assert_eq!(between.gauge("cinnamon_c", &[]), Some(0.0));
    }

    #[test]
    fn quantiles_are_of_what_came_between() {
        let bucket = |le: &str, count: u64| {
            format!("cinnamon_w_bucket{{lane=\"read\",le=\"{le}\"}} {count}\n")
        };
        let text = |counts: [u64; 4]| {
            let all = ["+Inf", "0.001", "0.002", "0.004"].iter().zip(counts);
            all.map(|(le, count)| bucket(le, count)).collect::<String>()
        };
        let before = scrape(&text([1_000, 1_000, 1_000, 1_000]));
        let times = |counts| {
            let now = scrape(&text(counts));
            Between::new(&now, Some((&before, 1.0))).times("cinnamon_w_bucket", &[("lane", "read")])
        };
        let quantiles = |times: Option<Times>| times.map(|of| (of.p50_s, of.p99_s, of.bound_max_s));
        let quick = times([1_100, 1_050, 1_098, 1_100]);
        assert_eq!(quantiles(quick), Some((0.001, 0.004, 0.004)));
        let endless = times([1_100, 1_000, 1_000, 1_000]);
        assert_eq!(
            quantiles(endless),
            Some((f64::INFINITY, f64::INFINITY, 0.004))
        );
        assert_eq!(times([1_000, 1_000, 1_000, 1_000]), None);
    }
}
