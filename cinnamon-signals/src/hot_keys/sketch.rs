//! The most frequent keys of the last second, in bounded memory: [`Sketch`].

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use cinnamon_core::Instant;
use heavykeeper::TopK;

/// Keys whose counts are kept.
pub(super) const KEPT: usize = 64;
/// Buckets in a row of the sketch, and rows: 64 KiB. A key with a hundredth of a second's keys at 50,000 a second has a count
/// of 500 in its bucket, and what shares that with it comes 25 times.
const WIDTH: usize = 2_048;
const DEPTH: usize = 2;
/// A colliding key lowers a count of `c` with the probability of this to the `c`: the one of the algorithm's paper.
const DECAY: f64 = 0.925;
/// Two generations of so long: what is said is of the last half to whole second.
pub(super) const GENERATION: Duration = Duration::from_millis(500);

/// Two sketches in turn, of the present and of the last generation.
pub(super) struct Sketch {
    empty: TopK<u64>,
    now: Generation,
    before: Option<Generation>,
}

struct Generation {
    began: Option<Instant>,
    top: TopK<u64>,
    /// Keys that were put in, and keys that there were.
    seen: u64,
    all: u64,
}

/// What came in the last half to whole second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Top {
    /// The most frequent keys and their counts, most frequent first.
    pub(super) keys: Vec<(u64, u64)>,
    /// Keys that were counted.
    pub(super) seen: u64,
    /// Keys that came, with those that were not counted.
    pub(super) all: u64,
    /// In so many seconds.
    pub(super) seconds: f64,
}

impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sketch")
            .field("seen", &self.now.seen)
            .finish_non_exhaustive()
    }
}

impl Sketch {
    /// Keys are hashed with this seed: whoever knows it could choose keys that collide.
    pub(super) fn new(seed: u64) -> Self {
        let empty = TopK::with_seed(KEPT, WIDTH, DEPTH, DECAY, seed);
        Self {
            now: Generation::new(&empty),
            before: None,
            empty,
        }
    }

    pub(super) fn add(&mut self, key: u64) {
        self.now.seen += 1;
        self.now.top.add(&key, 1);
    }

    /// So many have come, with those that were not added.
    pub(super) fn came(&mut self, all: u64) {
        self.now.all = self.now.all.saturating_add(all);
    }

    /// Begins a new generation when it is time.
    pub(super) fn turn(&mut self, now: Instant) {
        let Some(began) = self.now.began else {
            // Nobody knows since when those came.
            self.forget();
            self.now.began = Some(now);
            return;
        };
        if now < began || now.since(began) > 4 * GENERATION {
            self.forget();
            self.now.began = Some(now);
        } else if now.since(began) >= GENERATION {
            let mut next = Generation::new(&self.empty);
            next.began = Some(now);
            self.before = Some(std::mem::replace(&mut self.now, next));
        }
    }

    pub(super) fn top(&self, now: Instant) -> Top {
        let generations = [self.before.as_ref(), Some(&self.now)];
        let mut counts: HashMap<u64, u64> = HashMap::with_capacity(2 * KEPT);
        let mut top = Top::default();
        for generation in generations.into_iter().flatten() {
            for node in generation.top.list() {
                *counts.entry(node.item).or_default() += node.count;
            }
            top.seen += generation.seen;
            top.all = top.all.saturating_add(generation.all);
        }
        let since = self.before.as_ref().map_or(self.now.began, |one| one.began);
        top.seconds = since.map_or(0.0, |since| now.since(since).as_secs_f64());
        top.keys = counts.into_iter().collect();
        top.keys
            .sort_unstable_by_key(|&(key, count)| (std::cmp::Reverse(count), key));
        top.keys.truncate(KEPT);
        top
    }

    fn forget(&mut self) {
        self.now = Generation::new(&self.empty);
        self.before = None;
    }
}

impl Generation {
    fn new(empty: &TopK<u64>) -> Self {
        Self {
            began: None,
            top: empty.clone(),
            seen: 0,
            all: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(ms))
    }

    #[test]
    fn the_most_frequent_of_the_last_second_are_counted() {
        let mut sketch = Sketch::new(7);
        sketch.turn(at(0));
        for ms in (100..=2_000).step_by(100) {
            for i in 0..1_000 {
                // Half of them one key, which changes after a second.
                let hot = if ms <= 1_000 { 1 } else { 2 };
                sketch.add(if i % 2 == 0 { hot } else { 1_000 + i });
            }
            sketch.came(2_000);
            sketch.turn(at(ms));
        }
        let top = sketch.top(at(2_000));
        assert_eq!((top.seen, top.all, top.seconds), (5_000, 10_000, 0.5));
        assert_eq!(top.keys[0], (2, 2_500));
        assert!(top.keys.iter().all(|(key, _)| *key != 1), "forgotten");
        assert!(top.keys.len() <= KEPT);
    }

    #[test]
    fn a_gap_and_a_clock_set_back_begin_anew() {
        let mut sketch = Sketch::new(7);
        for ms in [60_000, 60_500, 61_000, 90_000, 50] {
            (0..100).for_each(|_| sketch.add(1));
            sketch.came(100);
            sketch.turn(at(ms));
            let known = [60_500, 61_000].contains(&ms);
            assert_eq!(!sketch.top(at(ms)).keys.is_empty(), known, "{ms}");
        }
    }
}
