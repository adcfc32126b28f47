//! The most frequent keys of the last second, in bounded memory: [`Sketch`].

use std::collections::HashMap;
use std::fmt;

use cinnamon_core::Instant;
use heavykeeper::TopK;

use crate::hot::generations::{Generations, Sums};
use crate::hot::rings::Came;

/// Keys whose counts are kept.
pub(super) const KEPT: usize = 64;
/// Buckets in a row of the sketch, and rows: 64 KiB. A key with a hundredth of a second's keys at 50,000 a second has a count
/// of 500 in its bucket, and what shares that with it comes 25 times.
const WIDTH: usize = 2_048;
const DEPTH: usize = 2;
/// A colliding key lowers a count of `c` with the probability of this to the `c`: the one of the algorithm's paper.
const DECAY: f64 = 0.925;

/// Two sketches in turn, of the present and of the last generation.
pub(super) struct Sketch {
    empty: TopK<u64>,
    generations: Generations<TopK<u64>>,
}

/// What came in the last half to whole second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Top {
    /// The most frequent keys and their counts, most frequent first.
    pub(super) keys: Vec<(u64, u64)>,
    pub(super) sums: Sums,
    /// In so many seconds.
    pub(super) seconds: f64,
}

impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sketch")
            .field("sums", &self.generations.sums())
            .finish_non_exhaustive()
    }
}

impl Sketch {
    /// Keys are hashed with this seed: whoever knows it could choose keys that collide.
    pub(super) fn new(seed: u64) -> Self {
        let empty = TopK::with_seed(KEPT, WIDTH, DEPTH, DECAY, seed);
        Self {
            generations: Generations::new(empty.clone()),
            empty,
        }
    }

    pub(super) fn add(&mut self, key: u64) {
        let present = self.generations.present();
        present.sums.seen += 1;
        present.counts.add(&key, 1);
    }

    /// So many have come, with those that were not added.
    pub(super) fn came(&mut self, came: Came) {
        let sums = &mut self.generations.present().sums;
        sums.all = sums.all.saturating_add(came.all);
        sums.nameless = sums.nameless.saturating_add(came.nameless);
    }

    /// Begins a new generation when it is time.
    pub(super) fn turn(&mut self, now: Instant) {
        self.generations.turn(now, || self.empty.clone());
    }

    pub(super) fn top(&self, now: Instant) -> Top {
        let mut counts: HashMap<u64, u64> = HashMap::with_capacity(2 * KEPT);
        for generation in self.generations.both() {
            for node in generation.counts.list() {
                *counts.entry(node.item).or_default() += node.count;
            }
        }
        let mut keys: Vec<_> = counts.into_iter().collect();
        keys.sort_unstable_by_key(|&(key, count)| (std::cmp::Reverse(count), key));
        keys.truncate(KEPT);
        Top {
            keys,
            sums: self.generations.sums(),
            seconds: self.generations.seconds(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_most_frequent_of_the_last_second_are_counted() {
        let at = |ms| Instant::ZERO.after(Duration::from_millis(ms));
        let mut sketch = Sketch::new(7);
        sketch.turn(at(0));
        for ms in (100..=2_000).step_by(100) {
            for i in 0..1_000 {
                // Half of them one key, which changes after a second.
                let hot = if ms <= 1_000 { 1 } else { 2 };
                sketch.add(if i % 2 == 0 { hot } else { 1_000 + i });
            }
            sketch.came(Came {
                all: 2_000,
                nameless: 10,
            });
            sketch.turn(at(ms));
        }
        let top = sketch.top(at(2_000));
        let sums = Sums {
            seen: 5_000,
            all: 10_000,
            nameless: 50,
        };
        assert_eq!((top.sums, top.seconds), (sums, 0.5));
        assert_eq!(top.keys[0], (2, 2_500));
        assert!(top.keys.iter().all(|(key, _)| *key != 1), "forgotten");
        assert!(top.keys.len() <= KEPT);
    }
}
