//! What became of the offers, per phase.

use std::collections::BTreeMap;
use std::time::Duration;

use cinnamon_core::{Reason, TIERS, Tier};
use hdrhistogram::Histogram;

use super::load::Arrival;
use crate::task::histogram;

/// An answer later than this after the request was due is worthless.
pub(crate) const DEADLINE: Duration = Duration::from_secs(1);
/// After an overload the gate may take this long to open.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// One phase, as one thread saw it; threads are added up at the end. Every offer is credited to the
/// phase in which it was due.
#[derive(Clone, Debug)]
pub(crate) struct PhaseStats {
    pub(crate) offered: [u64; TIERS],
    /// Answered within the deadline.
    pub(crate) good: [u64; TIERS],
    /// Answered too late.
    pub(crate) late: u64,
    pub(crate) failed: u64,
    pub(crate) refused: BTreeMap<&'static str, u64>,
    /// Refused while the phase still lasted. (Who was due at its end may have to go when the next one
    /// begins.)
    pub(crate) refused_within: u64,
    /// Of these, due more than [`GRACE`] into the phase.
    pub(crate) refused_after_grace: u64,
    /// From due to done, microseconds, of all that were admitted and done.
    pub(crate) latency_us: Histogram<u64>,
    pub(crate) waiting_peak: u64,
    pub(crate) memory_peak_bytes: u64,
    /// Rows that scans asked for, and the CPU time that these scans took: how fast the machine is.
    pub(crate) rows: u64,
    pub(crate) rows_cpu: Duration,
    /// CPU time of the whole process, the generator included.
    pub(crate) cpu: Duration,
    /// Most that it used in half a second after [`GRACE`], as a share of the machine.
    pub(crate) cpu_share_peak: f64,
}

impl PhaseStats {
    pub(crate) fn new() -> Self {
        Self {
            offered: [0; TIERS],
            good: [0; TIERS],
            late: 0,
            failed: 0,
            refused: BTreeMap::new(),
            refused_within: 0,
            refused_after_grace: 0,
            latency_us: histogram(),
            waiting_peak: 0,
            memory_peak_bytes: 0,
            rows: 0,
            rows_cpu: Duration::ZERO,
            cpu: Duration::ZERO,
            cpu_share_peak: 0.0,
        }
    }

    pub(crate) fn done(&mut self, tier: Tier, latency: Duration) {
        self.latency_us
            .saturating_record(latency.as_micros() as u64);
        if latency <= DEADLINE {
            self.good[tier.index()] += 1;
        } else {
            self.late += 1;
        }
    }

    /// Counts a refusal that came `after` the request was due.
    pub(crate) fn refuse(&mut self, reason: Reason, arrival: &Arrival, after: Duration) {
        *self.refused.entry(reason.as_str()).or_default() += 1;
        if after <= arrival.phase_left {
            self.refused_within += 1;
            self.refused_after_grace += u64::from(arrival.into_phase > GRACE);
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for tier in 0..TIERS {
            self.offered[tier] += other.offered[tier];
            self.good[tier] += other.good[tier];
        }
        self.late += other.late;
        self.failed += other.failed;
        for (reason, count) in &other.refused {
            *self.refused.entry(reason).or_default() += count;
        }
        self.refused_within += other.refused_within;
        self.refused_after_grace += other.refused_after_grace;
        self.latency_us += &other.latency_us;
        self.waiting_peak = self.waiting_peak.max(other.waiting_peak);
        self.memory_peak_bytes = self.memory_peak_bytes.max(other.memory_peak_bytes);
        self.rows += other.rows;
        self.rows_cpu += other.rows_cpu;
        self.cpu += other.cpu;
        self.cpu_share_peak = self.cpu_share_peak.max(other.cpu_share_peak);
    }

    /// Rows scanned in a second of CPU time; `None` when nothing was.
    pub(crate) fn rows_per_cpu_s(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.rows as f64 / self.rows_cpu.as_secs_f64())
    }

    pub(crate) fn offers(&self) -> u64 {
        self.offered.iter().sum()
    }

    pub(crate) fn goods(&self) -> u64 {
        self.good.iter().sum()
    }

    pub(crate) fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }

    /// Offers that got no answer at all before the end.
    pub(crate) fn unanswered(&self) -> u64 {
        let answered = self.goods() + self.late + self.failed + self.refusals();
        self.offers().saturating_sub(answered)
    }

    /// Share of these tiers' offers that were answered in time; 1 when there were none.
    pub(crate) fn success(&self, tiers: &[Tier]) -> f64 {
        let sum = |of: &[u64; TIERS]| tiers.iter().map(|tier| of[tier.index()]).sum::<u64>();
        match sum(&self.offered) {
            0 => 1.0,
            offered => sum(&self.good) as f64 / offered as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surge::load::Action;

    #[test]
    fn each_offer_is_in_one_place() {
        let mut worker = PhaseStats::new();
        worker.done(Tier::T1, Duration::from_millis(5));
        worker.done(Tier::T1, Duration::from_millis(1_500));
        let mut generator = PhaseStats::new();
        generator.offered[Tier::T1.index()] = 6;
        let arrival = |into_s: u64| Arrival {
            at: Duration::from_secs(into_s),
            phase: 0,
            into_phase: Duration::from_secs(into_s),
            phase_left: Duration::from_secs(4 - into_s),
            tier: Tier::T1,
            caller: 0,
            action: Action::Put { key: 0 },
        };
        generator.refuse(Reason::Shed, &arrival(1), Duration::ZERO);
        generator.refuse(Reason::Shed, &arrival(3), Duration::from_millis(999));
        generator.refuse(Reason::Evicted, &arrival(3), Duration::from_millis(1_001));
        generator.add(&worker);
        assert_eq!(
            (generator.goods(), generator.late, generator.refusals()),
            (1, 1, 3)
        );
        assert_eq!(
            (
                generator.unanswered(),
                generator.refused_within,
                generator.refused_after_grace
            ),
            (1, 2, 1)
        );
        assert_eq!(generator.success(&[Tier::T1]), 1.0 / 6.0);
        assert_eq!(generator.success(&[Tier::T0]), 1.0);
    }
}
