//! Who goes first: [`Tier`], [`Cohort`], [`Priority`], and the [`Rank`] that joins them with a
//! stable fraction.
//!
//! A *priority* is `tier * 128 + cohort`, 0..=767, 0 the most important (Uber's Cinnamon, 2023). A
//! threshold over whole priorities cannot cut inside one: with all traffic in one priority it sheds
//! everything or nothing. So every request also has a *fraction* within its priority, and the two
//! together are its *rank*, one integer. The fraction is a hash of the caller's key and not a coin,
//! so that the same caller keeps the same fate while the threshold stands.
//!
//! # From key to rank
//!
//! `mix64(key ^ seed)` (the SplitMix64 finaliser, Stafford's variant 13) gives 64 bits; the upper 32
//! are a position on a ring, turned by `epoch * 2^18`. The upper 7 bits of the turned position are
//! the cohort, the next 16 the fraction. One epoch step turns the ring by 1/128 of a cohort, so
//! 1/128 of all keys move to the neighbouring cohort per step and bad luck is passed on slowly. Equal
//! key, seed and epoch give equal rank on every node.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Number of tiers.
pub const TIERS: usize = 6;
/// Cohorts in a tier.
pub(crate) const COHORTS: usize = 128;
/// Number of priorities: `TIERS * COHORTS`.
pub(crate) const PRIORITIES: usize = TIERS * COHORTS;

/// Bits of a rank below the priority.
const FRACTION_BITS: u32 = 16;
/// Ring positions in one cohort: 2^32 / 128.
const COHORT_SPAN_BITS: u32 = 25;
/// What one epoch step turns the ring by: 1/128 of a cohort.
const EPOCH_STEP: u32 = 1 << (COHORT_SPAN_BITS - 7);

/// How much a kind of work matters. `T0` is shed last, essentially never; `T5` first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Infrastructure that must not fail: few services, little traffic.
    T0,
    /// The most important online traffic.
    T1,
    /// Important online traffic.
    T2,
    /// Ordinary traffic.
    T3,
    /// Work that may come later.
    T4,
    /// Best effort: batch, prefetch, tests.
    T5,
}

impl Tier {
    /// All tiers, the most important first.
    pub const ALL: [Self; TIERS] = [Self::T0, Self::T1, Self::T2, Self::T3, Self::T4, Self::T5];

    /// The tier's number, 0..=5.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// `t0` to `t5`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        ["t0", "t1", "t2", "t3", "t4", "t5"][self as usize]
    }

    /// The tier with this number, `None` above 5.
    #[must_use]
    pub const fn from_index(index: usize) -> Option<Self> {
        if index < TIERS {
            Some(Self::ALL[index])
        } else {
            None
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A part of a tier, 0..=127, 0 the most important.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cohort(u8);

impl Cohort {
    /// The cohort with this number, `None` above 127.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < COHORTS {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The cohort's number, 0..=127.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// `tier * 128 + cohort`: 0..=767, 0 the most important.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u16);

impl Priority {
    /// The priority of this tier and cohort.
    #[must_use]
    pub const fn new(tier: Tier, cohort: Cohort) -> Self {
        Self(tier as u16 * COHORTS as u16 + cohort.0 as u16)
    }

    /// The priority with this number, as it came over the wire; `None` above 767.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        if (number as usize) < PRIORITIES {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The priority's number, 0..=767.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The tier it lies in.
    #[must_use]
    pub const fn tier(self) -> Tier {
        Tier::ALL[self.0 as usize / COHORTS]
    }

    /// The cohort within its tier.
    #[must_use]
    pub const fn cohort(self) -> Cohort {
        Cohort((self.0 as usize % COHORTS) as u8)
    }

    pub(crate) const fn level(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.tier(), self.cohort().get())
    }
}

/// Priority and stable fraction in one integer: what is compared with the threshold.
///
/// A threshold is a rank too: the first one that is *not* admitted. [`Rank::OPEN`] lies above every
/// request's rank and admits all. Written `t3.64`, or `t3.64+0.25` with a fraction, or `open`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(u32);

impl Rank {
    /// As a threshold: everything is admitted.
    pub const OPEN: Self = Self((PRIORITIES as u32) << FRACTION_BITS);

    /// The rank of a request of this priority at this fraction (of 65,536) within it.
    #[must_use]
    pub const fn new(priority: Priority, fraction: u16) -> Self {
        Self(((priority.0 as u32) << FRACTION_BITS) | fraction as u32)
    }

    /// The threshold that admits every level below `level` and the share `fraction` of `level`.
    pub(crate) fn threshold(level: usize, fraction: f64) -> Self {
        let whole = (level.min(PRIORITIES) as u32) << FRACTION_BITS;
        let part = (fraction.clamp(0.0, 1.0) * f64::from(1u32 << FRACTION_BITS)) as u32;
        Self((whole + part).min(Self::OPEN.0))
    }

    /// Whether, as a threshold, it admits everything.
    #[must_use]
    pub const fn is_open(self) -> bool {
        self.0 >= Self::OPEN.0
    }

    /// The priority; the last one for [`Rank::OPEN`].
    #[must_use]
    pub const fn priority(self) -> Priority {
        let level = self.0 >> FRACTION_BITS;
        if level as usize >= PRIORITIES {
            Priority(PRIORITIES as u16 - 1)
        } else {
            Priority(level as u16)
        }
    }

    /// The fraction within the priority, 0.0 to just below 1.0.
    #[must_use]
    pub fn fraction(self) -> f64 {
        f64::from(self.0 & ((1 << FRACTION_BITS) - 1)) / f64::from(1u32 << FRACTION_BITS)
    }

    /// Position on the scale 0.0 (nothing admitted) to 768.0 (open), in levels.
    #[must_use]
    pub fn levels(self) -> f64 {
        f64::from(self.0) / f64::from(1u32 << FRACTION_BITS)
    }

    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The rank's integer: priority * 65,536 + fraction.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_open() {
            return f.write_str("open");
        }
        write!(f, "{}", self.priority())?;
        if self.fraction() > 0.0 {
            write!(f, "+{:.2}", self.fraction())?;
        }
        Ok(())
    }
}

/// Turns keys into ranks: one seed and one epoch, the same on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash {
    seed: u64,
    turn: u32,
}

impl KeyHash {
    /// The hash with this seed in this epoch: Unix time divided by
    /// [`Settings::cohort_epoch_ms`](crate::Settings::cohort_epoch_ms), if it is to agree with the
    /// controllers of a fleet.
    #[must_use]
    pub const fn new(seed: u64, epoch: u64) -> Self {
        Self {
            seed,
            turn: (epoch as u32).wrapping_mul(EPOCH_STEP),
        }
    }

    /// The rank of `key` within `tier`.
    #[must_use]
    pub const fn rank(self, tier: Tier, key: u64) -> Rank {
        ring_rank(tier, self.position(key))
    }

    /// The rank of `key` at a priority that was decided elsewhere: only the fraction is hashed.
    #[must_use]
    pub const fn rank_at(self, priority: Priority, key: u64) -> Rank {
        Rank::new(priority, (self.position(key) >> 9) as u16)
    }

    /// Seed and turn, to be kept apart.
    pub(crate) const fn parts(self) -> (u64, u32) {
        (self.seed, self.turn)
    }

    pub(crate) const fn of_parts(seed: u64, turn: u32) -> Self {
        Self { seed, turn }
    }

    const fn position(self, key: u64) -> u32 {
        ((mix64(key ^ self.seed) >> 32) as u32).wrapping_add(self.turn)
    }
}

/// The rank at `position` on the ring of 2^32 within `tier`.
pub(crate) const fn ring_rank(tier: Tier, position: u32) -> Rank {
    let cohort = Cohort((position >> COHORT_SPAN_BITS) as u8);
    let fraction = (position >> (COHORT_SPAN_BITS - FRACTION_BITS)) as u16;
    Rank::new(Priority::new(tier, cohort), fraction)
}

/// A position for the `n`-th request without a key: the golden-ratio sequence, which fills the ring
/// evenly, so that any threshold splits keyless work in the right proportion without a coin.
pub(crate) const fn keyless_position(n: u64) -> u32 {
    (n as u32).wrapping_mul(0x9E37_79B9)
}

/// SplitMix64's finaliser (Stafford's variant 13): every input bit reaches every output bit.
pub(crate) const fn mix64(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused_not_indexed() {
        assert_eq!(Tier::from_index(6), None);
        assert_eq!(Cohort::new(128), None);
        assert_eq!(Priority::from_number(768), None);
        let last = Priority::from_number(767).unwrap();
        assert_eq!((last.tier(), last.cohort().get()), (Tier::T5, 127));
    }

    #[test]
    fn written_as_tier_and_cohort() {
        let priority = Priority::new(Tier::T3, Cohort::new(64).unwrap());
        assert_eq!(priority.to_string(), "t3.64");
        assert_eq!(
            Rank::threshold(3 * 128 + 64, 0.25).to_string(),
            "t3.64+0.25"
        );
        assert_eq!(Rank::threshold(768, 0.0).to_string(), "open");
        assert_eq!(Rank::threshold(767, 1.0), Rank::OPEN);
    }

    #[test]
    fn the_same_key_keeps_its_rank_within_an_epoch() {
        let hash = KeyHash::new(7, 3);
        let first = hash.rank(Tier::T2, 42);
        assert!((0..100).all(|_| hash.rank(Tier::T2, 42) == first));
    }

    #[test]
    fn known_ranks_do_not_change_between_releases() {
        // Nodes of different releases must agree on who is shed: these are part of the contract.
        let hash = KeyHash::new(0, 0);
        assert_eq!(hash.rank(Tier::T0, 1).bits(), 0x002b_490b);
        assert_eq!(KeyHash::new(0, 9).rank(Tier::T5, 0).bits(), 0x0280_1200);
    }

    #[test]
    #[cfg_attr(miri, ignore = "counts a hundred thousand keys")]
    fn an_epoch_step_moves_one_key_in_128_to_the_neighbour_cohort() {
        let (before, after) = (KeyHash::new(1, 10), KeyHash::new(1, 11));
        let keys = 100_000;
        let mut moved = 0;
        for key in 0..keys {
            let old = before.rank(Tier::T3, key).priority().cohort().get();
            let new = after.rank(Tier::T3, key).priority().cohort().get();
            if old != new {
                assert_eq!((old + 1) % 128, new);
                moved += 1;
            }
        }
        let share = f64::from(moved) * 128.0 / keys as f64;
        assert!(
            (0.9..1.1).contains(&share),
            "moved {share} of the promised share"
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "counts a hundred thousand keys")]
    fn cohorts_are_even_for_keys_and_for_keyless_work() {
        let hash = KeyHash::new(99, 0);
        let mut keyed = [0u32; COHORTS];
        let mut keyless = [0u32; COHORTS];
        for n in 0..128_000u64 {
            keyed[hash.rank(Tier::T1, n).priority().cohort().get() as usize] += 1;
            let rank = ring_rank(Tier::T1, keyless_position(n));
            keyless[rank.priority().cohort().get() as usize] += 1;
        }
        // 1,000 expected in each; a hash scatters (sd 32), the sequence does not.
        assert!(keyed.iter().all(|&n| (850..1150).contains(&n)), "{keyed:?}");
        assert!(
            keyless.iter().all(|&n| (990..1010).contains(&n)),
            "{keyless:?}"
        );
    }
}
