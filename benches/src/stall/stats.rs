//! What became of the offers, per kind and tier.

use std::collections::BTreeMap;
use std::time::Duration;

use cinnamon_core::{Reason, TIERS, Tier};
use hdrhistogram::Histogram;

use super::load::Kind;
use crate::task::histogram;

/// An answer later than this after the request was due is worthless.
pub(crate) const DEADLINE: Duration = Duration::from_secs(1);

/// One kind and tier, as one thread saw it; threads are added up at the end.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) offered: u64,
    /// Answered within the deadline.
    pub(crate) good: u64,
    pub(crate) late: u64,
    pub(crate) failed: u64,
    pub(crate) refused: u64,
    /// From due to done, microseconds, of all that were admitted and done.
    pub(crate) latency_us: Histogram<u64>,
}

/// What one thread saw.
#[derive(Clone, Debug)]
pub(crate) struct Stats {
    cells: [[Cell; TIERS]; 2],
    /// Refusals by their reason.
    pub(crate) reasons: BTreeMap<&'static str, u64>,
    /// When the first request of t4 or t5 was refused, since the start of the arm.
    pub(crate) first_low_refusal: Option<Duration>,
}

impl Stats {
    pub(crate) fn new() -> Self {
        let cell = || Cell {
            offered: 0,
            good: 0,
            late: 0,
            failed: 0,
            refused: 0,
            latency_us: histogram(),
        };
        Self {
            cells: std::array::from_fn(|_| std::array::from_fn(|_| cell())),
            reasons: BTreeMap::new(),
            first_low_refusal: None,
        }
    }

    pub(crate) const fn cell(&self, kind: Kind, tier: Tier) -> &Cell {
        &self.cells[kind as usize][tier.index()]
    }

    pub(crate) const fn cell_mut(&mut self, kind: Kind, tier: Tier) -> &mut Cell {
        &mut self.cells[kind as usize][tier.index()]
    }

    pub(crate) fn done(&mut self, kind: Kind, tier: Tier, latency: Duration) {
        let cell = self.cell_mut(kind, tier);
        cell.latency_us
            .saturating_record(latency.as_micros() as u64);
        if latency <= DEADLINE {
            cell.good += 1;
        } else {
            cell.late += 1;
        }
    }

    pub(crate) fn refuse(&mut self, kind: Kind, tier: Tier, reason: Reason) {
        self.cell_mut(kind, tier).refused += 1;
        *self.reasons.entry(reason.as_str()).or_default() += 1;
    }

    /// Notes when a request was refused, measured or not.
    pub(crate) fn note_refusal(&mut self, tier: Tier, at: Duration) {
        if tier >= Tier::T4 {
            let first = self.first_low_refusal.unwrap_or(at);
            self.first_low_refusal = Some(first.min(at));
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self
            .cells
            .iter_mut()
            .flatten()
            .zip(other.cells.iter().flatten())
        {
            mine.offered += theirs.offered;
            mine.good += theirs.good;
            mine.late += theirs.late;
            mine.failed += theirs.failed;
            mine.refused += theirs.refused;
            mine.latency_us += &theirs.latency_us;
        }
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
        if let Some(at) = other.first_low_refusal {
            self.note_refusal(Tier::T5, at);
        }
    }

    /// Share of these tiers' offers that were answered in time; 1 when there were none.
    pub(crate) fn success(&self, kind: Kind, tiers: &[Tier]) -> f64 {
        let sum = |of: fn(&Cell) -> u64| -> u64 {
            tiers.iter().map(|&tier| of(self.cell(kind, tier))).sum()
        };
        match sum(|cell| cell.offered) {
            0 => 1.0,
            offered => sum(|cell| cell.good) as f64 / offered as f64,
        }
    }

    /// Answered in time, all tiers.
    pub(crate) fn good(&self, kind: Kind) -> u64 {
        self.cells[kind as usize].iter().map(|cell| cell.good).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_is_in_one_place_and_the_first_refusal_is_the_earliest() {
        let (write, read) = (Kind::Write, Kind::Read);
        let mut worker = Stats::new();
        worker.done(write, Tier::T1, Duration::from_millis(5));
        worker.done(write, Tier::T1, Duration::from_millis(1_500));
        worker.note_refusal(Tier::T3, Duration::from_secs(1));
        worker.note_refusal(Tier::T4, Duration::from_secs(3));
        let mut generator = Stats::new();
        generator.cell_mut(write, Tier::T1).offered = 4;
        generator.refuse(read, Tier::T5, Reason::Shed);
        generator.note_refusal(Tier::T5, Duration::from_secs(2));
        generator.add(&worker);
        let cell = generator.cell(write, Tier::T1);
        assert_eq!((cell.good, cell.late, cell.refused), (1, 1, 0));
        assert_eq!(generator.cell(read, Tier::T5).refused, 1);
        assert_eq!(generator.success(write, &[Tier::T0, Tier::T1]), 0.25);
        assert_eq!(generator.success(read, &[Tier::T0]), 1.0);
        assert_eq!(generator.first_low_refusal, Some(Duration::from_secs(2)));
        assert_eq!((generator.good(write), generator.good(read)), (1, 0));
    }
}
