//! What became of the offers of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use cinnamon_core::{TIERS, ThrottleSnapshot, Tier};
use hdrhistogram::Histogram;

use super::load::{Arrival, Phase};
use crate::task::histogram;

/// An answer later than this after the request was due is worthless.
pub(crate) const DEADLINE: Duration = Duration::from_secs(1);
/// Width of a point of the pictures.
pub(crate) const SLICE: Duration = Duration::from_millis(250);

/// Offers of one tier, and those answered in time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) offered: u64,
    pub(crate) good: u64,
}

impl Count {
    fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.good += other.good;
    }

    /// Share that was answered in time; `None` when there were no offers.
    pub(crate) fn success(&self) -> Option<f64> {
        (self.offered > 0).then(|| self.good as f64 / self.offered as f64)
    }
}

/// The tiers whose ordinary load a failure pushes aside, unless it is told from them.
pub(crate) const BYSTANDERS: [Tier; 4] = [Tier::T2, Tier::T3, Tier::T4, Tier::T5];

/// Somebody who was throttled.
#[derive(Clone, Debug)]
pub(crate) struct Throttled {
    /// When that was first seen, since the start of the run.
    pub(crate) since: Duration,
    /// Least rate that was let in, cost per second.
    pub(crate) rate_least_per_s: f64,
    /// As it was seen last.
    pub(crate) last: ThrottleSnapshot,
}

/// A run as one thread saw it; threads are added up at the end. Every offer is credited to the time at which it
/// was due.
#[derive(Clone, Debug)]
pub(crate) struct Stats {
    /// While the failure lasts: the ordinary load, and the failure's own.
    pub(crate) tiers: [[Count; TIERS]; 2],
    /// The ordinary load of [`BYSTANDERS`]: in the calm before the failure, and once that has settled.
    pub(crate) bystanders: [Count; 2],
    /// Who was throttled at any time.
    pub(crate) throttled: Vec<Throttled>,
    /// By slices of time, both together.
    pub(crate) slices: Vec<[Count; TIERS]>,
    /// What became of those who were not answered in time, while the failure lasts.
    pub(crate) lost: BTreeMap<&'static str, u64>,
    /// All refusals of the whole run, by their word.
    pub(crate) refused: BTreeMap<&'static str, u64>,
    /// From due to done, microseconds, of t0 and t1 while the failure lasts.
    pub(crate) latency_us: Histogram<u64>,
    /// Cost served in time while the failure lasts, rows.
    pub(crate) rows: u64,
    pub(crate) waiting_peak: u64,
    pub(crate) memory_peak_bytes: u64,
}

impl Stats {
    pub(crate) fn new() -> Self {
        Self {
            tiers: Default::default(),
            bystanders: Default::default(),
            throttled: Vec::new(),
            slices: Vec::new(),
            lost: BTreeMap::new(),
            refused: BTreeMap::new(),
            latency_us: histogram(),
            rows: 0,
            waiting_peak: 0,
            memory_peak_bytes: 0,
        }
    }

    pub(crate) fn offer(&mut self, arrival: &Arrival) {
        self.slice(arrival).offered += 1;
        if arrival.phase.fails() {
            self.cell(arrival).offered += 1;
        }
        if let Some(count) = self.bystander(arrival) {
            count.offered += 1;
        }
    }

    pub(crate) fn done(&mut self, arrival: &Arrival, latency: Duration, rows: u64) {
        let us = latency.as_micros() as u64;
        if arrival.phase.fails() && arrival.tier <= Tier::T1 {
            self.latency_us.saturating_record(us);
        }
        if latency > DEADLINE {
            self.lose(arrival, "late");
            return;
        }
        self.slice(arrival).good += 1;
        if arrival.phase.fails() {
            self.cell(arrival).good += 1;
            self.rows += rows;
        }
        if let Some(count) = self.bystander(arrival) {
            count.good += 1;
        }
    }

    pub(crate) fn refuse(&mut self, arrival: &Arrival, why: &'static str) {
        *self.refused.entry(why).or_default() += 1;
        self.lose(arrival, why);
    }

    pub(crate) fn lose(&mut self, arrival: &Arrival, why: &'static str) {
        if arrival.phase.fails() {
            *self.lost.entry(why).or_default() += 1;
        }
    }

    fn cell(&mut self, arrival: &Arrival) -> &mut Count {
        &mut self.tiers[usize::from(arrival.fails)][arrival.tier.index()]
    }

    fn bystander(&mut self, arrival: &Arrival) -> Option<&mut Count> {
        let is_one = !arrival.fails && BYSTANDERS.contains(&arrival.tier);
        match arrival.phase {
            Phase::Calm if is_one => Some(&mut self.bystanders[0]),
            Phase::Settled if is_one => Some(&mut self.bystanders[1]),
            _ => None,
        }
    }

    /// These were throttled at this time after the start.
    pub(crate) fn throttle(&mut self, at: Duration, throttles: &[ThrottleSnapshot]) {
        for seen in throttles {
            let known = self.throttled.iter_mut();
            let mut same =
                known.filter(|known| (known.last.who, &known.last.by) == (seen.who, &seen.by));
            if let Some(known) = same.next() {
                known.rate_least_per_s = known.rate_least_per_s.min(seen.rate_per_s);
                known.last = seen.clone();
            } else {
                self.throttled.push(Throttled {
                    since: at,
                    rate_least_per_s: seen.rate_per_s,
                    last: seen.clone(),
                });
            }
        }
    }

    fn slice(&mut self, arrival: &Arrival) -> &mut Count {
        let index = (arrival.at.as_nanos() / SLICE.as_nanos()) as usize;
        if self.slices.len() <= index {
            self.slices.resize(index + 1, Default::default());
        }
        &mut self.slices[index][arrival.tier.index()]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let add = |mine: &mut [Count; TIERS], theirs: &[Count; TIERS]| {
            let both = mine.iter_mut().zip(theirs);
            both.for_each(|(mine, theirs)| mine.add(theirs));
        };
        let both = self.tiers.iter_mut().zip(&other.tiers);
        both.for_each(|(mine, theirs)| add(mine, theirs));
        let bystanders = self.bystanders.iter_mut().zip(&other.bystanders);
        bystanders.for_each(|(mine, theirs)| mine.add(theirs));
        // One thread watches for all.
        self.throttled.extend_from_slice(&other.throttled);
        if self.slices.len() < other.slices.len() {
            self.slices.resize(other.slices.len(), Default::default());
        }
        let slices = self.slices.iter_mut().zip(&other.slices);
        slices.for_each(|(mine, theirs)| add(mine, theirs));
        for (why, count) in &other.lost {
            *self.lost.entry(why).or_default() += count;
        }
        for (why, count) in &other.refused {
            *self.refused.entry(why).or_default() += count;
        }
        self.latency_us += &other.latency_us;
        self.rows += other.rows;
        self.waiting_peak = self.waiting_peak.max(other.waiting_peak);
        self.memory_peak_bytes = self.memory_peak_bytes.max(other.memory_peak_bytes);
    }

    fn sum(&self, tiers: &[Tier], of: fn(&Count) -> u64) -> u64 {
        let both = self.tiers.iter();
        both.flat_map(|row| tiers.iter().map(|tier| of(&row[tier.index()])))
            .sum()
    }

    /// Share of these tiers' offers that were answered in time while the failure lasted; `None` when there were
    /// none.
    pub(crate) fn success(&self, tiers: &[Tier]) -> Option<f64> {
        let offered = self.sum(tiers, |count| count.offered);
        let good = self.sum(tiers, |count| count.good);
        Count { offered, good }.success()
    }

    /// Share of the ordinary load of [`BYSTANDERS`] that was answered in time while the failure lasted.
    pub(crate) fn bystanders_success(&self) -> Option<f64> {
        let mut count = Count::default();
        BYSTANDERS
            .iter()
            .for_each(|tier| count.add(&self.tiers[0][tier.index()]));
        count.success()
    }

    /// Offers while the failure lasted, and those answered in time.
    pub(crate) fn offered_and_good(&self) -> (u64, u64) {
        let of = |of| self.sum(&Tier::ALL, of);
        (of(|count| count.offered), of(|count| count.good))
    }

    /// Offers while the failure lasted that got no answer at all.
    pub(crate) fn unanswered(&self) -> u64 {
        let (offered, good) = self.offered_and_good();
        let lost: u64 = self.lost.values().sum();
        offered.saturating_sub(good + lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::load::Action;

    #[test]
    fn each_offer_is_in_one_place() {
        let arrival = |at_ms: u64, tier, fails, phase| Arrival {
            at: Duration::from_millis(at_ms),
            fails,
            phase,
            tier,
            caller: 0,
            action: Action::Put { key: 0, bytes: 1 },
        };
        let mut stats = Stats::new();
        let all = [
            arrival(10, Tier::T1, false, Phase::Calm),
            arrival(600, Tier::T1, false, Phase::Settling),
            arrival(700, Tier::T1, false, Phase::Settled),
            arrival(800, Tier::T4, true, Phase::Settled),
            arrival(900, Tier::T4, true, Phase::Settled),
        ];
        all.iter().for_each(|arrival| stats.offer(arrival));
        stats.done(&all[0], Duration::from_millis(3), 7);
        stats.done(&all[1], Duration::from_millis(3), 7);
        let mut worker = Stats::new();
        worker.done(&all[2], Duration::from_millis(1_001), 7);
        worker.refuse(&all[3], "shed");
        stats.add(&worker);
        assert_eq!(stats.success(&[Tier::T0]), None);
        assert_eq!(stats.success(&[Tier::T0, Tier::T1]), Some(0.5));
        assert_eq!(stats.success(&[Tier::T4]), Some(0.0));
        assert_eq!(stats.offered_and_good(), (4, 1));
        assert_eq!(stats.unanswered(), 1);
        assert_eq!((stats.rows, stats.slices.len()), (7, 4));
        assert_eq!(stats.lost, [("late", 1), ("shed", 1)].into());
    }

    #[test]
    fn bystanders_are_the_ordinary_load_of_low_tiers_in_calm_and_once_it_has_settled() {
        let arrival = |tier, fails, phase| Arrival {
            at: Duration::ZERO,
            fails,
            phase,
            tier,
            caller: 0,
            action: Action::Put { key: 0, bytes: 1 },
        };
        let all = [
            (Tier::T2, false, Phase::Calm),
            (Tier::T1, false, Phase::Settled),
            (Tier::T5, false, Phase::Settling),
            (Tier::T2, false, Phase::Settled),
            (Tier::T5, false, Phase::Settled),
            (Tier::T5, true, Phase::Settled),
            (Tier::T5, false, Phase::After),
        ];
        let all = all.map(|(tier, fails, phase)| arrival(tier, fails, phase));
        let mut stats = Stats::new();
        all.iter().for_each(|arrival| stats.offer(arrival));
        stats.done(&all[0], Duration::ZERO, 0);
        stats.done(&all[3], Duration::ZERO, 0);
        let mut sum = Stats::new();
        sum.add(&stats);
        let success = sum.bystanders.map(|count| count.success());
        assert_eq!(success, [Some(1.0), Some(0.5)]);
        assert_eq!(sum.bystanders_success(), Some(1.0 / 3.0));
        assert_eq!(Stats::new().bystanders[0].success(), None);
    }
}
