use cinnamon_core::LaneView;

use super::*;
use crate::combine::HELD_BACK;
use crate::hot::rings::{Came, SLOTS};

const KEYS: usize = 1_000_000;
const PER_S: usize = 50_000;
/// The hot one: none of the Zipf keys.
const HOT: u64 = u64::MAX;

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Keys 0, 1, 2, … with weights 1, 2^-s, 3^-s, …
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(exponent: f64) -> Self {
        let mut sum = 0.0;
        let weight = |rank: usize| (rank as f64).powf(-exponent);
        let mut add = |rank| {
            sum += weight(rank);
            sum
        };
        Self((1..=KEYS).map(&mut add).collect())
    }

    fn total(&self) -> f64 {
        self.0.last().copied().unwrap()
    }

    /// A key, scattered over all numbers.
    fn draw(&self, rng: &mut Rng) -> u64 {
        let at = rng.unit() * self.total();
        Rng(self.0.partition_point(|sum| *sum <= at) as u64).next()
    }
}

struct Bench {
    signal: HotKeys,
    handle: HotKeysHandle,
    view: View,
    tenths: u64,
}

impl Bench {
    fn new(seed: u64, busy: bool) -> Self {
        let (signal, handle) = HotKeys::with_seed(seed);
        let mut lane = LaneView::new("main", "main");
        lane.limit = 16;
        lane.in_use = if busy { 16 } else { 3 };
        let mut bench = Self {
            signal,
            handle,
            view: View::of(vec![lane]),
            tenths: 0,
        };
        // Busy for a while, or not.
        for _ in 0..50 {
            assert_eq!(bench.sample().value(), Some(0.0));
        }
        bench
    }

    fn sample(&mut self) -> Reading {
        self.tenths += 1;
        let now = Instant::ZERO.after(Duration::from_millis(100 * self.tenths));
        self.signal.sample(now, &self.view)
    }

    /// A tenth of a second of these keys.
    fn tenth(&mut self, keys: impl FnMut() -> u64) -> (Vec<u64>, f64) {
        let keys: Vec<u64> = std::iter::repeat_with(keys).take(PER_S / 10).collect();
        // As many threads as keep each ring from overflowing would; here one reads in between.
        for part in keys.chunks(SLOTS) {
            part.iter().for_each(|key| self.handle.key(*key));
            let sketch = &mut self.signal.sketch;
            let rings = &self.signal.told.rings;
            let came = rings.drain(&mut self.signal.cursor, |key| sketch.add(key));
            self.signal.sketch.came(came);
        }
        let reading = self.sample();
        let named = culprits(&reading);
        (named, reading.value().unwrap())
    }
}

/// The keys that a reading names.
fn culprits(reading: &Reading) -> Vec<u64> {
    let keys = reading.get_culprits().iter().map(|one| match one.who {
        Who::Key(key) => key,
        other => panic!("{other:?}"),
    });
    keys.collect()
}

#[test]
fn a_key_of_a_hundred_times_its_peers_is_named_within_a_second_and_nobody_else() {
    for exponent in [0.5, 0.8, 0.99] {
        let zipf = Zipf::new(exponent);
        for seed in 1..=4 {
            let mut rng = Rng(seed);
            let mut bench = Bench::new(seed, true);
            for _ in 0..30 {
                let (named, pressure) = bench.tenth(|| zipf.draw(&mut rng));
                assert_eq!(
                    (named, pressure),
                    (vec![], 0.0),
                    "s {exponent}, seed {seed}"
                );
            }
            // As often as the first key of the others, times a hundred.
            let share = 100.0 / (100.0 + zipf.total());
            let mut named_after = None;
            for tenth in 1..=30 {
                let draw = || {
                    if rng.unit() < share {
                        HOT
                    } else {
                        zipf.draw(&mut rng)
                    }
                };
                let (named, pressure) = bench.tenth(draw);
                assert!(
                    named.iter().all(|key| *key == HOT),
                    "s {exponent}, seed {seed}: {named:?}"
                );
                if !named.is_empty() {
                    named_after.get_or_insert(tenth);
                }
                if tenth >= 10 {
                    let expected = share / DEFAULT_HOT_KEY_SHARE;
                    let near = (0.8 * expected..=expected * 1.05).contains(&pressure);
                    assert!(
                        near,
                        "s {exponent}, seed {seed}: {pressure}, not {expected}"
                    );
                }
            }
            let after = named_after.unwrap();
            assert!(after <= 10, "s {exponent}, seed {seed}: {after} tenths");
        }
    }
}

#[test]
fn a_flood_of_keys_takes_no_memory_and_names_nobody() {
    let (mut bench, mut rng) = (Bench::new(9, true), Rng(9));
    for _ in 0..30 {
        let (named, pressure) = bench.tenth(|| rng.next());
        assert_eq!((named, pressure), (vec![], 0.0));
        assert!(bench.signal.sketch.top(Instant::ZERO).keys.len() <= sketch::KEPT);
    }
}

#[test]
fn a_key_that_cools_is_forgotten_within_a_second() {
    let (mut bench, mut rng) = (Bench::new(3, true), Rng(3));
    for _ in 0..10 {
        bench.tenth(|| if rng.unit() < 0.3 { HOT } else { rng.next() });
    }
    let mut last = f64::NAN;
    for _ in 0..11 {
        last = bench.tenth(|| rng.next()).1;
    }
    assert_eq!(last, 0.0);
}

#[test]
fn one_key_of_a_load_that_is_no_load_does_not_count_but_is_named() {
    let (mut bench, mut rng) = (Bench::new(1, false), Rng(1));
    let mut mixed = || if rng.unit() < 0.9 { HOT } else { rng.next() };
    for _ in 0..30 {
        bench.tenth(&mut mixed);
    }
    assert_eq!(bench.tenth(&mut mixed), (vec![HOT], HELD_BACK));
    bench.view.lanes[0].in_use = 16;
    for _ in 0..10 {
        bench.tenth(&mut mixed);
    }
    let pressure = bench.tenth(&mut mixed).1;
    assert!((8.9..9.0).contains(&pressure), "{pressure}");
}

#[test]
fn one_key_alone_keeps_nobody_out() {
    let mut bench = Bench::new(1, true);
    for _ in 0..30 {
        bench.tenth(|| HOT);
    }
    let _ = bench.tenth(|| HOT);
    let reading = bench.sample();
    let expected = Reading::pressure(HELD_BACK).note("nobody else comes");
    assert_eq!(reading.value(), expected.value());
    assert_eq!(reading.get_note(), expected.get_note());
    assert_eq!(culprits(&reading), [HOT]);
}

#[test]
fn what_comes_without_a_key_is_load_too() {
    let (mut bench, mut rng) = (Bench::new(4, true), Rng(4));
    let mut last = (vec![], 0.0);
    for _ in 0..20 {
        // Three of four requests have none.
        bench.handle.told.rings.push_nameless(3 * PER_S as u64 / 10);
        last = bench.tenth(|| if rng.unit() < 0.8 { HOT } else { rng.next() });
    }
    assert_eq!(last.0, [HOT]);
    assert!((1.95..2.05).contains(&last.1), "a fifth of all: {last:?}");
}

#[test]
fn a_rate_that_a_key_can_bear_counts_whether_busy_or_not() {
    let (mut bench, mut rng) = (Bench::new(5, false), Rng(5));
    let with_rate = |signal: HotKeys| signal.rate_max(10_000.0).unwrap();
    let (other, _) = HotKeys::new();
    bench.signal = with_rate(std::mem::replace(&mut bench.signal, other));
    let mut last = (vec![], 0.0);
    for _ in 0..20 {
        last = bench.tenth(|| if rng.unit() < 0.5 { HOT } else { rng.next() });
    }
    assert_eq!(last.0, [HOT]);
    assert!((2.4..2.55).contains(&last.1), "{last:?}");
    // Half as many from the same rings: rates are of all keys that came, seen or not.
    bench.signal.sketch.came(Came {
        all: 1 << 40,
        nameless: 0,
    });
    assert!(
        bench.sample().value().unwrap() > 1e3,
        "taken for a fault of the gauge"
    );
}

#[test]
fn few_keys_gaps_and_clocks_set_back_say_nothing() {
    let mut bench = Bench::new(2, true);
    for _ in 0..100 {
        (0..40).for_each(|_| bench.handle.key(HOT));
        assert_eq!(bench.sample(), Reading::pressure(0.0), "400 a second");
    }
    (0..1_000).for_each(|_| bench.handle.key(HOT));
    bench.tenths = 0;
    assert_eq!(
        bench.sample(),
        Reading::pressure(0.0),
        "the clock was set back"
    );
    assert_eq!(bench.sample().value(), Some(0.0));
    bench.tenths += 10_000;
    assert_eq!(bench.sample(), Reading::pressure(0.0));
}

#[test]
fn peers_are_the_others() {
    let keys = |counts: &[u64]| -> Vec<(u64, u64)> {
        let pairs = counts.iter().enumerate();
        pairs.map(|(key, count)| (key as u64, *count)).collect()
    };
    assert_eq!(peers(&keys(&[9]), 0), 1.0);
    assert_eq!(peers(&keys(&[9, 4]), 0), 4.0);
    assert_eq!(peers(&keys(&[9, 8, 0]), 0), 1.0);
}

#[test]
fn settings_that_cannot_be_are_refused_by_name() {
    let error = HotKeys::new()
        .0
        .target_share(0.001)
        .unwrap_err()
        .to_string();
    let text = "`hot_keys.target_share` is 0.001 but must be from 0.01 to 1";
    assert_eq!(error, text);
    assert!(HotKeys::new().0.rate_max(f64::INFINITY).is_err());
    assert!(HotKeys::new().0.rate_max(f64::NAN).is_err());
}
