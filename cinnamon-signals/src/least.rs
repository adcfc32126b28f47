//! The least of a gauge over a sliding window: what stands, and not what comes and goes.

use std::collections::VecDeque;
use std::time::Duration;

use cinnamon_core::Instant;

/// After so many windows without a value what lies between is not known.
const GAP: u32 = 4;
/// Values kept, at most; of more the least of two neighbours counts.
const VALUES_MAX: usize = 256;

/// The least value of the last `span`.
#[derive(Clone, Debug)]
pub(crate) struct Least {
    span: Duration,
    values: VecDeque<(Instant, f64)>,
}

impl Least {
    pub(crate) const fn new(span: Duration) -> Self {
        Self {
            span,
            values: VecDeque::new(),
        }
    }

    /// The value is this now. Nothing until it was watched for a whole window, and again after the clock was set
    /// back or nobody looked for several windows.
    pub(crate) fn push(&mut self, at: Instant, value: f64) -> Option<f64> {
        let breaks = |(last, _): &(Instant, f64)| at < *last || at.since(*last) > self.span * GAP;
        if self.values.back().is_some_and(breaks) {
            self.values.clear();
        }
        match self.values.back_mut() {
            Some((last, least)) if at.since(*last) < self.span / VALUES_MAX as u32 => {
                *least = least.min(value);
            }
            _ => self.values.push_back((at, value)),
        }
        let old = |(then, _): &(Instant, f64)| at.since(*then) >= self.span;
        while self.values.get(1).is_some_and(old) {
            self.values.pop_front();
        }
        let covered = self.values.front().is_some_and(old);
        let least = self.values.iter().map(|(_, value)| *value);
        covered.then(|| least.fold(f64::INFINITY, f64::min))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_stands_for_a_whole_window() {
        let mut least = Least::new(Duration::from_secs(1));
        let at = |ms| Instant::ZERO.after(Duration::from_millis(ms));
        let values = [9.0, 7.0, 8.0, 7.5, 9.0, 0.0, 5.0, 5.0, 6.0, 5.5, 6.0];
        let mut push = |i: u64| least.push(at(250 * i), values[i as usize]);
        let seen: Vec<_> = (0..11).map(&mut push).collect();
        assert_eq!(seen[..4], [None; 4]);
        assert_eq!(seen[4], Some(7.0));
        assert_eq!(seen[5..10], [Some(0.0); 5]);
        assert_eq!(seen[10], Some(5.0));
        assert_eq!(push(3), None, "the clock was set back");
        for us in 0..100_000 {
            least.push(at(90_000).after(Duration::from_micros(100 * us)), 1.0);
            assert!(least.values.len() <= VALUES_MAX + 2);
        }
    }
}
