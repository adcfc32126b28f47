//! What is offered: phases, and from a seed the arrivals in them.
//!
//! The load is open-loop. Arrivals are scheduled by the clock, whether or not earlier ones were
//! answered, and latency counts from the scheduled time: a store that stalls cannot hide its queue.

use std::time::Duration;

use cinnamon_core::Tier;
use cinnamon_core::simulation::Rng;

/// Share of offers per tier where all tiers are alike.
const MIX: [f64; 6] = [0.02, 0.28, 0.20, 0.20, 0.15, 0.15];
/// One request in ten writes.
const WRITE_SHARE: f64 = 0.1;
/// Rows a scan asks for, from and to: with rows of 256 bytes some three milliseconds of one core. Offering
/// twelve times as many requests as fit then takes the generator a small part of the machine, and a
/// shared machine that is half as fast for a tenth of a second is no overload.
const SCAN_ROWS: (u32, u32) = (2_000, 9_000);
/// Distinct callers.
const CALLERS: u64 = 100_000;

/// A stretch of constant load.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) seconds: f64,
    /// Offers of t0 to t2, as a multiple of what they would be at capacity.
    high: f64,
    /// Offers of t3 to t5, likewise.
    low: f64,
}

impl Phase {
    /// Offered load as a multiple of the capacity.
    pub(crate) fn load(&self) -> f64 {
        let of = |range: std::ops::Range<usize>| MIX[range].iter().sum::<f64>();
        self.high * of(0..3) + self.low * of(3..6)
    }

    fn weight(&self, tier: usize) -> f64 {
        MIX[tier] * if tier < 3 { self.high } else { self.low }
    }
}

/// The sequence of the experiment; its last phase follows an overload.
pub(crate) fn phases(scale: f64) -> Vec<Phase> {
    let phase = |name, seconds: f64, high, low| Phase {
        name,
        seconds: seconds * scale,
        high,
        low,
    };
    // 12x in all while t0 to t2 keep their 0.7x: 0.7 * 0.5 + low * 0.5 = 12.
    let surge = (12.0 - 0.7 * 0.5) / 0.5;
    vec![
        phase("0.7x", 7.0, 0.7, 0.7),
        phase("3x", 8.0, 3.0, 3.0),
        phase("12x surge", 8.0, 0.7, surge),
        phase("0.7x again", 9.0, 0.7, 0.7),
    ]
}

/// One phase at this load, to see what a saturated server gets done.
pub(crate) fn saturation(seconds: f64, load: f64) -> Vec<Phase> {
    vec![Phase {
        name: "saturation",
        seconds,
        high: load,
        low: load,
    }]
}

/// What a request does to the store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    Scan { from: u64, rows: u32 },
    Put { key: u64 },
}

/// One request of the schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Arrival {
    /// Since the start of the first phase.
    pub(crate) at: Duration,
    pub(crate) phase: usize,
    /// Since the start of its phase.
    pub(crate) into_phase: Duration,
    /// Until the end of its phase.
    pub(crate) phase_left: Duration,
    pub(crate) tier: Tier,
    pub(crate) caller: u64,
    pub(crate) action: Action,
}

/// Draws what one request does.
pub(crate) fn action(rng: &mut Rng, rows_in_store: u64) -> Action {
    let key = rng.bits() % rows_in_store;
    if rng.unit() < WRITE_SHARE {
        return Action::Put { key };
    }
    let (least, most) = SCAN_ROWS;
    let rows = least + (rng.unit() * f64::from(most - least)) as u32;
    Action::Scan { from: key, rows }
}

/// Poisson arrivals through all phases.
#[derive(Debug)]
pub(crate) struct Schedule {
    phases: Vec<Phase>,
    capacity_per_s: f64,
    rows_in_store: u64,
    rng: Rng,
    at_s: f64,
    phase: usize,
    phase_started_s: f64,
}

impl Schedule {
    pub(crate) fn new(
        phases: Vec<Phase>,
        capacity_per_s: f64,
        rows_in_store: u64,
        seed: u64,
    ) -> Self {
        Self {
            phases,
            capacity_per_s,
            rows_in_store,
            rng: Rng::new(seed),
            at_s: 0.0,
            phase: 0,
            phase_started_s: 0.0,
        }
    }

    fn tier(&mut self) -> Tier {
        let phase = &self.phases[self.phase];
        let mut left = self.rng.unit() * phase.load();
        for tier in Tier::ALL {
            left -= phase.weight(tier.index());
            if left < 0.0 {
                return tier;
            }
        }
        Tier::T5
    }
}

impl Iterator for Schedule {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        loop {
            let phase = self.phases.get(self.phase)?;
            let gap_s = self
                .rng
                .exponential(1.0 / (phase.load() * self.capacity_per_s));
            let end_s = self.phase_started_s + phase.seconds;
            if self.at_s + gap_s < end_s {
                self.at_s += gap_s;
                break;
            }
            // Poisson arrivals have no memory: the next phase draws its first gap afresh.
            self.at_s = end_s;
            self.phase_started_s = end_s;
            self.phase += 1;
        }
        let into_phase_s = self.at_s - self.phase_started_s;
        let phase_s = self.phases[self.phase].seconds;
        Some(Arrival {
            at: Duration::from_secs_f64(self.at_s),
            phase: self.phase,
            into_phase: Duration::from_secs_f64(into_phase_s),
            phase_left: Duration::try_from_secs_f64(phase_s - into_phase_s).unwrap_or_default(),
            tier: self.tier(),
            caller: self.rng.bits() % CALLERS,
            action: action(&mut self.rng, self.rows_in_store),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(seed: u64) -> Vec<Arrival> {
        Schedule::new(phases(0.2), 1_000.0, 50_000, seed).collect()
    }

    #[test]
    fn one_seed_one_schedule() {
        assert_eq!(schedule(1), schedule(1));
        assert_ne!(schedule(1), schedule(2));
    }

    #[test]
    fn each_phase_offers_what_it_says_and_the_surge_leaves_the_upper_tiers_alone() {
        let (arrivals, phases) = (schedule(3), phases(0.2));
        let offered = |phase: usize, keep: fn(Tier) -> bool| {
            let of_phase = arrivals.iter().filter(|a| a.phase == phase && keep(a.tier));
            of_phase.count() as f64 / phases[phase].seconds / 1_000.0
        };
        for (phase, load) in [(0, 0.7), (1, 3.0), (2, 12.0), (3, 0.7)] {
            let measured = offered(phase, |_| true);
            assert!(
                (measured / load - 1.0).abs() < 0.1,
                "seed 3, phase {phase}: {measured}"
            );
            assert!((phases[phase].load() - load).abs() < 1e-9);
        }
        let upper = offered(2, |tier| tier <= Tier::T2);
        assert!((upper / 0.35 - 1.0).abs() < 0.15, "seed 3: {upper}");
        assert!(arrivals.windows(2).all(|pair| pair[0].at <= pair[1].at));
    }
}
