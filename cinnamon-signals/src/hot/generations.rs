//! Counts of the last half to whole second: [`Generations`].

use std::time::Duration;

use cinnamon_core::Instant;

/// Two generations of so long: what is said is of the last half to whole second.
pub(crate) const GENERATION: Duration = Duration::from_millis(500);

/// Counts of the present and of the last generation, in turn.
#[derive(Debug)]
pub(crate) struct Generations<C> {
    now: Generation<C>,
    before: Option<Generation<C>>,
}

/// What came in one of them.
#[derive(Debug)]
pub(crate) struct Generation<C> {
    began: Option<Instant>,
    pub(crate) counts: C,
    pub(crate) sums: Sums,
}

/// How many came.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sums {
    /// That were counted.
    pub(crate) seen: u64,
    /// That came, with those that were not counted.
    pub(crate) all: u64,
    /// What came without a name, by its weight.
    pub(crate) nameless: u64,
}

impl<C> Generation<C> {
    fn new(began: Option<Instant>, counts: C) -> Self {
        Self {
            began,
            counts,
            sums: Sums::default(),
        }
    }
}

impl<C> Generations<C> {
    pub(crate) fn new(empty: C) -> Self {
        Self {
            now: Generation::new(None, empty),
            before: None,
        }
    }

    /// The present one, to be counted into.
    pub(crate) fn present(&mut self) -> &mut Generation<C> {
        &mut self.now
    }

    /// Both.
    pub(crate) fn both(&self) -> impl Iterator<Item = &Generation<C>> {
        self.before.iter().chain(std::iter::once(&self.now))
    }

    pub(crate) fn sums(&self) -> Sums {
        self.both().fold(Sums::default(), |sums, one| Sums {
            seen: sums.seen.saturating_add(one.sums.seen),
            all: sums.all.saturating_add(one.sums.all),
            nameless: sums.nameless.saturating_add(one.sums.nameless),
        })
    }

    /// How long both have taken.
    pub(crate) fn seconds(&self, now: Instant) -> f64 {
        let since = self.before.as_ref().map_or(self.now.began, |one| one.began);
        since.map_or(0.0, |since| now.since(since).as_secs_f64())
    }

    /// Begins a new one when it is time. What came before anybody knew since when, while nobody looked, or before the clock
    /// was set back, is forgotten.
    pub(crate) fn turn(&mut self, now: Instant, empty: impl FnOnce() -> C) {
        let age = self.now.began.filter(|began| *began <= now);
        match age.map(|began| now.since(began)) {
            Some(age) if age < GENERATION => {}
            Some(age) if age <= 4 * GENERATION => {
                let next = Generation::new(Some(now), empty());
                self.before = Some(std::mem::replace(&mut self.now, next));
            }
            _ => {
                self.now = Generation::new(Some(now), empty());
                self.before = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_and_a_clock_set_back_begin_anew() {
        let at = |ms| Instant::ZERO.after(Duration::from_millis(ms));
        let mut generations = Generations::new(0);
        let mut known = Vec::new();
        for ms in [60_000, 60_500, 60_900, 61_000, 90_000, 50] {
            generations.present().counts += 1;
            generations.present().sums.seen += 1;
            generations.turn(at(ms), || 0);
            let counts: u64 = generations.both().map(|one| one.counts).sum();
            assert_eq!(generations.sums().seen, counts);
            known.push((counts, generations.seconds(at(ms))));
        }
        let expected = [(0, 0.0), (1, 0.5), (2, 0.9), (2, 0.5), (0, 0.0), (0, 0.0)];
        assert_eq!(known, expected);
    }
}
