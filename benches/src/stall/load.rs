//! What is offered: writes and reads of all tiers, open-loop, from a seed.

use std::time::Duration;

use cinnamon_core::Tier;
use cinnamon_core::simulation::Rng;

/// Rows in the store: 80 MB, so that compactions have levels to work on.
pub(crate) const ROWS: u64 = 20_000;
/// Bytes of a value. They are noise: compaction has to write them all.
pub(crate) const VALUE_BYTES: usize = 4_000;
/// Offered writes, as a multiple of what the writers that never rest get done.
pub(crate) const LOAD: f64 = 2.0;
/// What is offered in an arm's lead, as a multiple of the same.
const LEAD_LOAD: f64 = 0.5;
/// Reads a write. A read finds its row in the page cache and keeps no disk busy.
const READS: f64 = 1.0;
/// Share of offers per tier, as in `lab demo`: t0 and t1 are 0.6 of what the writers that never rest get done.
const MIX: [f64; 6] = [0.02, 0.28, 0.20, 0.20, 0.15, 0.15];
/// Distinct callers.
const CALLERS: u64 = 100_000;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Write, Self::Read];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
        }
    }
}

/// One request of the schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Arrival {
    /// Since the start of the arm.
    pub(crate) at: Duration,
    pub(crate) kind: Kind,
    pub(crate) tier: Tier,
    pub(crate) caller: u64,
    pub(crate) key: u64,
}

/// Poisson arrivals, for ever: at the rate that is said once the lead is over.
#[derive(Debug)]
pub(crate) struct Schedule {
    gap_mean_s: f64,
    rng: Rng,
    lead_s: f64,
    at_s: f64,
}

impl Schedule {
    /// `writes_per_s` writes a second, and reads in proportion.
    pub(crate) const fn new(writes_per_s: f64, lead: Duration, seed: u64) -> Self {
        Self {
            gap_mean_s: 1.0 / (writes_per_s * (1.0 + READS)),
            rng: Rng::new(seed),
            lead_s: lead.as_secs_f64(),
            at_s: 0.0,
        }
    }
}

impl Iterator for Schedule {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let in_lead = self.at_s < self.lead_s;
        let slower = if in_lead { LOAD / LEAD_LOAD } else { 1.0 };
        self.at_s += self.rng.exponential(self.gap_mean_s * slower);
        let reads = self.rng.unit() * (1.0 + READS) < READS;
        Some(Arrival {
            at: Duration::from_secs_f64(self.at_s),
            kind: if reads { Kind::Read } else { Kind::Write },
            tier: Tier::ALL[self.rng.weighted(&MIX)],
            caller: self.rng.bits() % CALLERS,
            key: self.rng.bits() % ROWS,
        })
    }
}

/// Fills `value` with noise of this seed.
pub(crate) fn fill(value: &mut [u8; VALUE_BYTES], seed: u64) {
    let mut rng = Rng::new(seed);
    for chunk in value.chunks_exact_mut(8) {
        chunk.copy_from_slice(&rng.bits().to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_one_schedule_of_the_rate_and_the_mix_it_says() {
        let lead = Duration::from_secs(3);
        let schedule = |seed| -> Vec<Arrival> {
            let schedule = Schedule::new(1_000.0, lead, seed);
            schedule.take(20_000).collect()
        };
        assert_eq!(schedule(1), schedule(1));
        assert_ne!(schedule(1), schedule(2));
        let arrivals = schedule(3);
        let lead_s = lead.as_secs_f64();
        let lead = arrivals.iter().filter(|a| a.at < lead).count() as f64;
        assert!((lead / lead_s / 500.0 - 1.0).abs() < 0.1, "{lead}");
        let rest_s = arrivals[arrivals.len() - 1].at.as_secs_f64() - lead_s;
        let per_s = (arrivals.len() as f64 - lead) / rest_s;
        let share = |keep: &dyn Fn(&Arrival) -> bool| {
            arrivals.iter().filter(|a| keep(a)).count() as f64 / arrivals.len() as f64
        };
        assert!((per_s / 2_000.0 - 1.0).abs() < 0.03, "{per_s}");
        assert!((share(&|a| a.kind == Kind::Write) - 0.5).abs() < 0.02);
        assert!((share(&|a| a.tier <= Tier::T1) - 0.3).abs() < 0.02);
        assert!(arrivals.windows(2).all(|pair| pair[0].at <= pair[1].at));
    }

    #[test]
    fn values_are_noise_and_depend_on_their_seed_alone() {
        let value = |seed| {
            let mut value = [0; VALUE_BYTES];
            fill(&mut value, seed);
            value
        };
        assert_eq!(value(1), value(1));
        assert_ne!(value(1), value(2));
        let zeros = value(1).iter().filter(|&&byte| byte == 0).count();
        assert!(zeros < VALUE_BYTES / 100, "{zeros}");
    }
}
