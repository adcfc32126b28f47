//! The literal flow-error law of 2023, for reference and comparison (`law = "flow"`).
//!
//! Every 500 ms `e = (in - out - free) / out`, a PI with constants from a public re-implementation
//! (the originals were not published), `1 - exp(-x)` as the bound, and the threshold as the quantile
//! of the last 1,000 ranks offered. Once the slots are full the error is the derivative of the
//! backlog, so it holds a standing queue, winds up and releases slowly; that is what makes it a
//! useful arm of a comparison and a poor default.

use std::collections::VecDeque;

use crate::priority::Rank;

const PERIOD_S: f64 = 0.5;
const KP: f64 = 0.1;
const KI: f64 = 1.4;
/// 60 s of samples.
const HISTORY: usize = 120;
const RANKS: usize = 1_000;

/// Counts over one tick.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flow {
    /// Requests that passed the gate.
    pub(crate) entered: u32,
    /// Requests that began to run.
    pub(crate) left: u32,
    pub(crate) free: u32,
    pub(crate) limit: u32,
}

#[derive(Debug)]
pub(crate) struct FlowLaw {
    since_s: f64,
    entered: u32,
    left: u32,
    errors: VecDeque<f64>,
    ranks: VecDeque<Rank>,
    pub(crate) error: f64,
    pub(crate) refused_share: f64,
    threshold: Rank,
}

impl FlowLaw {
    pub(crate) const fn new() -> Self {
        Self {
            since_s: 0.0,
            entered: 0,
            left: 0,
            errors: VecDeque::new(),
            ranks: VecDeque::new(),
            error: 0.0,
            refused_share: 0.0,
            threshold: Rank::OPEN,
        }
    }

    pub(crate) fn offer(&mut self, rank: Rank) {
        self.ranks.push_back(rank);
        if self.ranks.len() > RANKS {
            self.ranks.pop_front();
        }
    }

    /// Adds a tick's counts and, twice a second, moves the threshold.
    pub(crate) fn tick(&mut self, flow: &Flow, dt_s: f64) -> Rank {
        self.since_s += dt_s;
        self.entered += flow.entered;
        self.left += flow.left;
        if self.since_s < PERIOD_S {
            return self.threshold;
        }
        self.since_s = 0.0;
        let (entered, left) = (f64::from(self.entered), f64::from(self.left));
        let out = if left > 0.0 {
            left
        } else {
            f64::from(flow.limit)
        };
        self.entered = 0;
        self.left = 0;
        self.error = (entered - left - f64::from(flow.free)) / out;
        self.errors.push_back(self.error);
        if self.errors.len() > HISTORY {
            self.errors.pop_front();
        }
        let sum: f64 = self.errors.iter().sum();
        if sum < 0.0 {
            self.errors.clear();
        }
        let x = (KP * self.error + KI * sum).max(0.0);
        self.refused_share = 1.0 - (-x).exp();
        self.threshold = self.quantile(1.0 - self.refused_share);
        self.threshold
    }

    fn quantile(&self, admitted_share: f64) -> Rank {
        if admitted_share >= 1.0 || self.ranks.is_empty() {
            return Rank::OPEN;
        }
        let mut sorted: Vec<Rank> = self.ranks.iter().copied().collect();
        sorted.sort_unstable();
        let nth = (admitted_share * sorted.len() as f64) as usize;
        sorted[nth.min(sorted.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::priority::{Tier, keyless_position, ring_rank};

    #[test]
    fn twice_the_load_closes_the_gate_and_idle_slots_open_it() {
        let mut law = FlowLaw::new();
        (0..1_000).for_each(|n| law.offer(ring_rank(Tier::T3, keyless_position(n))));
        let overload = Flow {
            entered: 200,
            left: 100,
            free: 0,
            limit: 20,
        };
        let closed = (0..10).map(|_| law.tick(&overload, 0.5)).last().unwrap();
        assert!(!closed.is_open() && law.refused_share > 0.9, "{law:?}");
        let calm = Flow {
            entered: 70,
            left: 70,
            free: 20,
            limit: 20,
        };
        let opened = (0..200).any(|_| law.tick(&calm, 0.5).is_open());
        assert!(opened);
    }

    #[test]
    fn it_acts_twice_a_second_however_often_it_is_ticked() {
        let mut law = FlowLaw::new();
        (0..10).for_each(|n| law.offer(ring_rank(Tier::T3, n)));
        let overload = Flow {
            entered: 20,
            left: 1,
            free: 0,
            limit: 20,
        };
        let moves = (0..100).filter(|_| {
            let before = law.errors.len();
            law.tick(&overload, 0.01);
            law.errors.len() > before
        });
        assert_eq!(moves.count(), 2);
    }
}
