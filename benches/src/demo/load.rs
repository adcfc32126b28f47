//! What is offered: an ordinary load throughout, and for a while a failure on top of it.
//!
//! The load is open-loop: arrivals are scheduled by the clock, whether or not earlier ones were answered, and
//! latency counts from the scheduled time. A store that stalls cannot hide its queue.

use std::time::Duration;

use cinnamon_core::Tier;
use cinnamon_core::simulation::Rng;

/// Rows in the store; 256 bytes each make 77 MB, five times the block cache.
pub(crate) const ROWS: u64 = 300_000;
/// The ordinary load, as a multiple of the capacity.
pub(crate) const BASE_LOAD: f64 = 0.7;
/// Share of ordinary offers per tier.
const BASE_MIX: [f64; 6] = [0.02, 0.28, 0.20, 0.20, 0.15, 0.15];
/// One ordinary request in ten writes a row.
const WRITE_SHARE: f64 = 0.1;
/// Rows an ordinary scan asks for, from and to: with rows of 256 bytes some three milliseconds of one core.
const SCAN_ROWS: (u32, u32) = (2_000, 9_000);
/// Mean of that, writes counted as none.
const BASE_ROWS: f64 = (1.0 - WRITE_SHARE) * 5_500.0;
/// Rows that a scan of the storm asks for: a seventh of the store each, some 25 ms of one core.
const STORM_ROWS: u32 = 40_000;
/// Bytes of a row, ordinary, and in the failure that writes.
pub(crate) const ROW_BYTES: usize = 256;
pub(crate) const FAT_ROW_BYTES: usize = 4_000;
/// Fat rows a second that are offered to a store that can compact a third of them.
const FAT_ROWS_PER_S: f64 = 4_500.0;
/// Distinct callers.
const CALLERS: u64 = 100_000;
/// Before a failure …
pub(crate) const CALM_S: f64 = 1.5;
/// … for so long it lasts …
pub(crate) const FAILURE_S: f64 = 6.0;
/// … and after it.
pub(crate) const AFTER_S: f64 = 1.0;
/// The failure has settled so long after it began, whatever the scale: a hot key is named within a second (0.7 s until
/// lanes count as busy, and a sample), and then who waits for it must go.
pub(crate) const SETTLE_S: f64 = 1.5;

/// When a request is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before the failure.
    Calm,
    /// The first [`SETTLE_S`] of it.
    Settling,
    /// The rest of it.
    Settled,
    After,
}

impl Phase {
    /// Whether the failure lasts.
    pub(crate) const fn fails(self) -> bool {
        matches!(self, Self::Settling | Self::Settled)
    }
}

/// A way to break a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Twelve times as many requests of t3 to t5 as fit.
    Surge,
    /// Batch jobs that scan a seventh of the store at a time.
    ScanStorm,
    /// Fat rows, three times as many as the store can compact.
    WriteStall,
    /// One key that everybody wants.
    HotKey,
}

impl Way {
    pub(crate) const ALL: [Self; 4] =
        [Self::Surge, Self::ScanStorm, Self::WriteStall, Self::HotKey];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Surge => "surge",
            Self::ScanStorm => "scan-storm",
            Self::WriteStall => "write-stall",
            Self::HotKey => "hot-key",
        }
    }

    /// What happens, in one line.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Surge => "t3 to t5 rise until 12 times what fits is offered; t0 to t2 stay",
            Self::ScanStorm => {
                "batch jobs of t4 and t5 scan a seventh of the store at a time, twice what fits"
            }
            Self::WriteStall => {
                "t3 to t5 write rows of 4 kB, three times as many as the store can compact"
            }
            Self::HotKey => {
                "one key of t2 to t5 is wanted four times as often as all there is room for"
            }
        }
    }

    /// Offers a second of the failure, on a node that serves so many ordinary requests a second.
    fn per_s(self, capacity_per_s: f64) -> f64 {
        match self {
            Self::Surge => (12.0 - BASE_LOAD) * capacity_per_s,
            Self::ScanStorm => 2.0 * capacity_per_s * BASE_ROWS / f64::from(STORM_ROWS),
            Self::WriteStall => FAT_ROWS_PER_S,
            Self::HotKey => 4.0 * capacity_per_s,
        }
    }

    /// Share of these per tier.
    const fn mix(self) -> [f64; 6] {
        match self {
            Self::Surge => [0.0, 0.0, 0.0, 0.4, 0.3, 0.3],
            Self::ScanStorm => [0.0, 0.0, 0.0, 0.0, 0.3, 0.7],
            Self::WriteStall => [0.0, 0.0, 0.0, 0.2, 0.4, 0.4],
            Self::HotKey => [0.0, 0.0, 0.2, 0.4, 0.2, 0.2],
        }
    }

    fn action(self, rng: &mut Rng) -> Action {
        match self {
            Self::Surge => ordinary(rng),
            Self::ScanStorm => Action::Scan {
                from: rng.bits() % (ROWS - u64::from(STORM_ROWS)),
                rows: STORM_ROWS,
            },
            Self::WriteStall => Action::Put {
                key: rng.bits() % ROWS,
                bytes: FAT_ROW_BYTES,
            },
            Self::HotKey => Action::Scan {
                from: ROWS / 3,
                rows: SCAN_ROWS.0 + (SCAN_ROWS.1 - SCAN_ROWS.0) / 2,
            },
        }
    }

    /// Who asks: the hot key is one key, the others are many callers.
    fn caller(self, rng: &mut Rng) -> u64 {
        match self {
            Self::HotKey => CALLERS,
            _ => rng.bits() % CALLERS,
        }
    }
}

/// What a request does to the store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    Scan { from: u64, rows: u32 },
    Put { key: u64, bytes: usize },
}

/// An ordinary request.
pub(crate) fn ordinary(rng: &mut Rng) -> Action {
    let key = rng.bits() % ROWS;
    if rng.unit() < WRITE_SHARE {
        return Action::Put {
            key,
            bytes: ROW_BYTES,
        };
    }
    let (least, most) = SCAN_ROWS;
    Action::Scan {
        from: key,
        rows: least + (rng.unit() * f64::from(most - least)) as u32,
    }
}

/// One request of the schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Arrival {
    /// Since the start of the run.
    pub(crate) at: Duration,
    /// Whether it is part of the failure, not of the ordinary load.
    pub(crate) fails: bool,
    pub(crate) phase: Phase,
    pub(crate) tier: Tier,
    pub(crate) caller: u64,
    pub(crate) action: Action,
}

/// Poisson arrivals of a run.
#[derive(Debug)]
pub(crate) struct Schedule {
    way: Option<Way>,
    base_per_s: f64,
    failure_per_s: f64,
    failure: std::ops::Range<f64>,
    end_s: f64,
    rng: Rng,
    at_s: f64,
}

impl Schedule {
    /// A node that serves `capacity_per_s` ordinary requests, broken this way.
    pub(crate) fn new(way: Way, capacity_per_s: f64, scale: f64, seed: u64) -> Self {
        let calm_s = CALM_S * scale;
        let failure = calm_s..calm_s + FAILURE_S * scale;
        Self {
            way: Some(way),
            base_per_s: BASE_LOAD * capacity_per_s,
            failure_per_s: way.per_s(capacity_per_s),
            end_s: failure.end + AFTER_S * scale,
            failure,
            rng: Rng::new(seed ^ (way as u64) << 48),
            at_s: 0.0,
        }
    }

    /// Ordinary requests only, so many a second.
    pub(crate) fn steady(per_s: f64, seconds: f64, seed: u64) -> Self {
        Self {
            way: None,
            base_per_s: per_s,
            failure_per_s: 0.0,
            failure: 0.0..seconds,
            end_s: seconds,
            rng: Rng::new(seed),
            at_s: 0.0,
        }
    }

    fn phase(&self) -> Phase {
        let failure = &self.failure;
        match self.at_s {
            at_s if at_s < failure.start => Phase::Calm,
            at_s if at_s >= failure.end => Phase::After,
            at_s if at_s < failure.start + SETTLE_S => Phase::Settling,
            _ => Phase::Settled,
        }
    }

    fn tier(&mut self, mix: [f64; 6]) -> Tier {
        Tier::ALL[self.rng.weighted(&mix)]
    }
}

impl Iterator for Schedule {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let failing_per_s = loop {
            let fails = self.failure.contains(&self.at_s);
            let failing_per_s = if fails { self.failure_per_s } else { 0.0 };
            let per_s = self.base_per_s + failing_per_s;
            let gap_s = self.rng.exponential(1.0 / per_s);
            let edges = [self.failure.start, self.failure.end, self.end_s];
            let edge = edges.into_iter().find(|&edge| edge > self.at_s)?;
            if self.at_s + gap_s < edge {
                self.at_s += gap_s;
                break failing_per_s;
            }
            // Poisson arrivals have no memory: after an edge the first gap is drawn afresh.
            self.at_s = edge;
        };
        let fails = self.rng.unit() * (self.base_per_s + failing_per_s) < failing_per_s;
        let (tier, caller, action) = match self.way.filter(|_| fails) {
            Some(way) => {
                let tier = self.tier(way.mix());
                (tier, way.caller(&mut self.rng), way.action(&mut self.rng))
            }
            None => {
                let tier = self.tier(BASE_MIX);
                let caller = self.rng.bits() % CALLERS;
                (tier, caller, ordinary(&mut self.rng))
            }
        };
        Some(Arrival {
            at: Duration::from_secs_f64(self.at_s),
            fails,
            phase: self.phase(),
            tier,
            caller,
            action,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_one_schedule_and_another_for_another_way() {
        let schedule = |way, seed| Schedule::new(way, 500.0, 0.5, seed).collect::<Vec<_>>();
        assert_eq!(schedule(Way::Surge, 1), schedule(Way::Surge, 1));
        assert_ne!(schedule(Way::Surge, 1), schedule(Way::Surge, 2));
    }

    #[test]
    fn protected_tiers_are_as_ever_and_the_failure_lasts_as_long_as_it_says() {
        for way in Way::ALL {
            let arrivals: Vec<_> = Schedule::new(way, 2_000.0, 1.0, 3).collect();
            let failing: Vec<_> = arrivals.iter().filter(|arrival| arrival.fails).collect();
            let name = way.name();
            assert!(
                failing
                    .iter()
                    .all(|a| a.phase.fails() && a.tier >= Tier::T2),
                "{name}"
            );
            let measured = failing.len() as f64 / FAILURE_S;
            let wanted = way.per_s(2_000.0);
            assert!(
                (measured / wanted - 1.0).abs() < 0.1,
                "{name}: {measured} of {wanted}, seed 3"
            );
            let protected = arrivals.iter().filter(|a| a.tier <= Tier::T1).count() as f64;
            let seconds = CALM_S + FAILURE_S + AFTER_S;
            let load = protected / seconds / 2_000.0;
            assert!(
                (load / (0.3 * BASE_LOAD) - 1.0).abs() < 0.1,
                "{name}: {load}, seed 3"
            );
            assert!(arrivals.is_sorted_by_key(|arrival| arrival.at), "{name}");
        }
    }
}
