//! Counters that only rise, over a sliding window.

use std::collections::VecDeque;
use std::time::Duration;

use cinnamon_core::Instant;

/// Marks are kept so many to a window.
const MARKS: u32 = 20;
/// After so many windows without a mark what lies between is not one window any more.
const GAP: u32 = 4;

/// What `N` counters gained over the last `span`.
#[derive(Clone, Debug)]
pub(crate) struct Window<const N: usize> {
    span: Duration,
    marks: VecDeque<Mark<N>>,
}

#[derive(Clone, Copy, Debug)]
struct Mark<const N: usize> {
    at: Instant,
    counts: [u64; N],
}

/// What they gained, and in what time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gain<const N: usize> {
    pub(crate) seconds: f64,
    pub(crate) counts: [u64; N],
}

impl<const N: usize> Window<N> {
    pub(crate) const fn new(span: Duration) -> Self {
        Self {
            span,
            marks: VecDeque::new(),
        }
    }

    /// The counters stand so now. Nothing until they were watched for a whole window, and again after a counter
    /// fell (its source began anew), the clock was set back, or nobody looked for several windows: what cannot be
    /// told is not guessed from less.
    pub(crate) fn push(&mut self, at: Instant, counts: [u64; N]) -> Option<Gain<N>> {
        let here = Mark { at, counts };
        if self
            .marks
            .back()
            .is_some_and(|last| !self.follows(last, &here))
        {
            self.marks.clear();
        }
        let far = self.marks.iter().rev();
        let mut far = far.skip_while(|mark| at.since(mark.at) < self.span);
        let gain = far.next().map(|far| Gain {
            seconds: at.since(far.at).as_secs_f64(),
            counts: std::array::from_fn(|i| counts[i] - far.counts[i]),
        });
        let spacing = self.span / MARKS;
        let early = |last: &Mark<N>| at.since(last.at) < spacing;
        if !self.marks.back().is_some_and(early) {
            self.marks.push_back(here);
        }
        // The youngest that is a window old is the far end of the next ones.
        let old = |mark: &Mark<N>| at.since(mark.at) >= self.span;
        while self.marks.get(1).is_some_and(old) {
            self.marks.pop_front();
        }
        gain
    }

    /// Forgets what it saw.
    pub(crate) fn clear(&mut self) {
        self.marks.clear();
    }

    fn follows(&self, last: &Mark<N>, here: &Mark<N>) -> bool {
        here.at >= last.at
            && here.at.since(last.at) <= self.span * GAP
            && (0..N).all(|i| here.counts[i] >= last.counts[i])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(ms))
    }

    #[test]
    fn it_says_what_was_gained_in_the_last_window_and_nothing_before_that() {
        let mut window = Window::<1>::new(Duration::from_secs(1));
        for ms in (0..1_000).step_by(100) {
            assert_eq!(window.push(at(ms), [ms]), None);
        }
        for ms in (1_000..60_000).step_by(100) {
            let gain = window.push(at(ms), [ms]).unwrap();
            assert_eq!((gain.counts, gain.seconds), ([1_000], 1.0));
            assert!(window.marks.len() <= MARKS as usize + 2);
        }
    }

    #[test]
    fn a_counter_that_fell_a_clock_set_back_and_a_gap_begin_anew() {
        let mut window = Window::<2>::new(Duration::from_secs(1));
        let full = |window: &mut Window<2>| {
            window.clear();
            window.push(at(10_000), [5, 5]);
            assert!(window.push(at(11_000), [6, 6]).is_some());
        };
        for (ms, counts) in [(11_100, [7, 0]), (10_500, [7, 7]), (15_100, [9, 9])] {
            full(&mut window);
            assert_eq!(window.push(at(ms), counts), None, "{ms}");
            assert_eq!(window.push(at(ms + 500), counts), None, "{ms}");
            let gain = window.push(at(ms + 1_000), counts).unwrap();
            assert_eq!(gain.counts, [0, 0], "{ms}");
        }
        window.push(at(0), [0, 0]);
        assert_eq!(window.push(Instant::FAR_FUTURE, [u64::MAX, 0]), None);
    }
}
