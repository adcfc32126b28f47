//! What each tenant asked for in the last second: [`Tally`].

use std::collections::HashMap;

use cinnamon_core::Instant;

use crate::hot::generations::{Generations, Sums};
use crate::hot::rings::Came;

/// Tenants that are counted in a generation, at most; 200 KiB for both. A sketch would need no bound, but its errors would have
/// to be told from small tenants, of which the median is made.
pub(super) const TENANTS_MAX: usize = 4_096;

/// A tenant and its cost in one word, as it goes through the rings.
pub(super) const fn word(tenant: u32, cost: u32) -> u64 {
    (tenant as u64) << 32 | cost as u64
}

/// What one tenant asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    pub(super) sum: f64,
    squares: f64,
}

/// Counts by tenant of the present and of the last generation.
#[derive(Debug)]
pub(super) struct Tally {
    generations: Generations<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    of: HashMap<u32, Cost>,
    /// Cost that was counted, of tenants that have no place too.
    cost: f64,
}

/// What came in the last half to whole second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Top {
    /// Tenants that came, the greatest first.
    pub(super) tenants: Vec<(u32, Cost)>,
    /// Requests that came with a tenant.
    pub(super) offers: u64,
    /// Cost that came in all, in the unit of those above.
    cost: f64,
}

impl Cost {
    fn add(&mut self, other: Self) {
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// The standard error, of requests that come by chance: that of a compound Poisson process.
    pub(super) fn error(self) -> f64 {
        self.squares.sqrt()
    }
}

impl Top {
    /// So much of all.
    pub(super) fn share(&self, cost: f64) -> f64 {
        if self.cost > 0.0 {
            (cost / self.cost).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            generations: Generations::new(Counts::default()),
        }
    }

    pub(super) fn add(&mut self, word: u64) {
        let (tenant, sum) = ((word >> 32) as u32, f64::from(word as u32));
        let present = self.generations.present();
        present.sums.seen += 1;
        present.counts.cost += sum;
        let of = &mut present.counts.of;
        if of.len() < TENANTS_MAX || of.contains_key(&tenant) {
            let squares = sum * sum;
            of.entry(tenant).or_default().add(Cost { sum, squares });
        }
    }

    /// So much has come, with that which was not added.
    pub(super) fn came(&mut self, came: Came) {
        let sums = &mut self.generations.present().sums;
        sums.all = sums.all.saturating_add(came.all);
        sums.nameless = sums.nameless.saturating_add(came.nameless);
    }

    /// Begins a new generation when it is time.
    pub(super) fn turn(&mut self, now: Instant) {
        self.generations.turn(now, Counts::default);
    }

    pub(super) fn top(&self) -> Top {
        let mut merged: HashMap<u32, Cost> = HashMap::new();
        let mut cost = 0.0;
        for generation in self.generations.both() {
            cost += generation.counts.cost;
            for (tenant, of) in &generation.counts.of {
                merged.entry(*tenant).or_default().add(*of);
            }
        }
        let Sums {
            seen,
            all,
            nameless,
        } = self.generations.sums();
        let mut tenants: Vec<_> = merged.into_iter().collect();
        tenants
            .sort_unstable_by(|(a, one), (b, other)| other.sum.total_cmp(&one.sum).then(a.cmp(b)));
        // Where not all that came was seen, what was seen stands for so much the more.
        let seen_of_all = seen as f64 / all.max(1) as f64;
        Top {
            tenants,
            offers: all,
            cost: cost + nameless as f64 * seen_of_all,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn came(all: u64, nameless: u64) -> Came {
        Came { all, nameless }
    }

    #[test]
    fn what_each_asked_for_is_counted_exactly_and_by_cost() {
        let mut tally = Tally::new();
        let at = |ms| Instant::ZERO.after(Duration::from_millis(ms));
        tally.turn(at(0));
        for ms in [250, 500, 750] {
            (0..10).for_each(|_| tally.add(word(7, 3)));
            tally.add(word(u32::MAX, 10));
            tally.came(came(22, 60));
            tally.turn(at(ms));
        }
        let top = tally.top();
        let (tenants, errors): (Vec<_>, Vec<_>) =
            (top.tenants.iter().map(|(tenant, of)| (*tenant, of.sum)))
                .zip(top.tenants.iter().map(|(_, of)| of.error()))
                .unzip();
        assert_eq!(tenants, [(7, 90.0), (u32::MAX, 30.0)]);
        assert_eq!(errors, [270_f64.sqrt(), 300_f64.sqrt()]);
        // Half of all was seen: of each 180 without a tenant 90 stand beside 120.
        assert_eq!((top.offers, top.share(90.0)), (66, 90.0 / 210.0));
    }

    #[test]
    fn of_too_many_tenants_the_last_are_only_load() {
        let mut tally = Tally::new();
        tally.turn(Instant::ZERO);
        let many = 2 * TENANTS_MAX as u32;
        (0..many).for_each(|tenant| tally.add(word(tenant, 1)));
        (0..10).for_each(|_| tally.add(word(3, 1)));
        tally.came(came(u64::from(many) + 10, 0));
        let top = tally.top();
        assert_eq!(top.tenants.len(), TENANTS_MAX);
        assert_eq!((top.tenants[0].0, top.tenants[0].1.sum), (3, 11.0));
        assert_eq!(top.share(11.0), 11.0 / f64::from(many + 10));
    }
}
