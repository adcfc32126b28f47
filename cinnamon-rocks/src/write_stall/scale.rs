//! From what RocksDB says of itself to a pressure. Pure arithmetic.

use std::borrow::Cow;
use std::sync::Arc;

use cinnamon_core::ConfigError;
use cinnamon_signals::{LogRamp, Ramp};

use super::triggers::StallTriggers;
use crate::options::DEFAULT_FAMILY;

/// The soft limit of L0 files lies so far on the way from RocksDB's compaction trigger to its slowdown
/// trigger: 13 files of 4 and 20.
///
/// A compaction of L0 takes all of its files at once, and as many come in meanwhile: their number goes up and
/// down by half round its mean, and the crests should stay below the slowdown. A lower target costs
/// throughput, for the fewer files are compacted at once the more of what lies below is rewritten for each of
/// them. (`lab stall`, of what can be sustained, and of the writes of t0 and t1 in time: at a share of 0.8, L0 at 16
/// files with crests of 22, RocksDB delayed for 2.5 s of 8, 0.82 and 85 %; at 0.7, 15 files, 3.3 s of 20, 0.89 and
/// 98 %; at 0.55, 11 to 13 files, 0.4 s at most, 0.81 to 0.97 in five runs and 100 %.)
const L0_SOFT_SHARE: f64 = 0.55;
/// The crests of that number stand so many times as high as its mean. What stands higher is a rush that the mean, as late
/// as the time it is taken over, has not seen yet, and counts down from there: 20 files as 13.
///
/// (`lab stall`, one run in a dozen: flushing kept up, so that no memtable told of the rush; files filled L0 to the slowdown in
/// 0.7 s and to the stop in 1.8 s, and the first write was shed after the stop, at 1.83 s.)
const L0_CREST: f64 = 1.5;
/// Bytes a second that a disk takes in the long run, once compactions are paid for, for guessing how much
/// time there is in a number of L0 files. It need not be right: the disk of `lab stall` takes a sixth of it.
const NOMINAL_BYTES_PER_S: f64 = (32 << 20) as f64;
/// Bounds of that time, seconds. Too short a time is the costly error: the laws of cinnamon-core are stable
/// with one that is five times too long, not with one that is five times too short.
const TIME_MIN_S: f64 = 2.0;
const TIME_MAX_S: f64 = 120.0;
/// Full memtables up to which there is no pressure: one that is being flushed, and one that filled up
/// meanwhile. More than that, and flushing is slower than writing …
const MEMTABLES_SOFT: f64 = 2.0;
/// … but with two or three memtables this much below where RocksDB stops.
const MEMTABLES_SOFT_BELOW: f64 = 0.2;
/// RocksDB delays writes for their memtables only if there are more than so many.
const MEMTABLES_WITHOUT_DELAY: u32 = 3;
/// The soft limit of the debt, as a share of RocksDB's: from there on RocksDB hurries its compactions.
const PENDING_SOFT_SHARE: f64 = 0.25;
/// Pressure while RocksDB delays writes all the time, at least: a part at its hard limit. A delay that comes
/// and goes with the crests of L0 counts by its share of the time. (At full weight each of them cut the budget
/// to a third in `lab stall`, and of the writes of t1, for which there was room, 12 % were lost.)
const DELAYED: f64 = 2.0;
/// Pressure while RocksDB takes no writes, at least.
const STOPPED: f64 = 3.0;

/// What RocksDB says of itself; `None` where it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StallGauges {
    /// Files in L0.
    pub l0_files: Option<u64>,
    /// Memtables that are full and not flushed.
    pub immutable_memtables: Option<u64>,
    /// Bytes of the memtable that is written to.
    pub active_memtable_bytes: Option<u64>,
    /// Estimated bytes that compactions have to rewrite.
    pub pending_compaction_bytes: Option<u64>,
    /// Bytes a second that RocksDB lets writers have; 0 while it does not delay them.
    pub delayed_write_bytes_per_s: Option<u64>,
    /// 1 while RocksDB takes no writes.
    pub write_stopped: Option<u64>,
}

/// What a write stall comes from, or is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StallPart {
    /// Files in L0.
    L0Files,
    /// Memtables that wait to be flushed.
    Memtables,
    /// Compaction debt.
    PendingCompaction,
    /// RocksDB delays writes.
    Delayed,
    /// RocksDB takes no writes.
    Stopped,
}

impl StallPart {
    /// The word used in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::L0Files => "l0-files",
            Self::Memtables => "memtables",
            Self::PendingCompaction => "pending-compaction",
            Self::Delayed => "delayed",
            Self::Stopped => "stopped",
        }
    }
}

/// What is averaged before it is judged, over about a compaction of L0; `None` where RocksDB does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Means {
    pub(crate) l0_files: Option<f64>,
    /// Share of the time in which RocksDB delayed writes, 0..=1.
    pub(crate) delayed: Option<f64>,
}

impl Means {
    /// Those of one moment.
    pub(crate) fn of(gauges: &StallGauges) -> Self {
        let raised = |rate: u64| if rate > 0 { 1.0 } else { 0.0 };
        Self {
            l0_files: gauges.l0_files.map(|files| files as f64),
            delayed: gauges.delayed_write_bytes_per_s.map(raised),
        }
    }

    /// These, moved by this share of the way to `news`. What was not known before begins with what is.
    pub(crate) fn towards(self, news: Self, gain: f64) -> Self {
        let mean = |old: Option<f64>, new: Option<f64>| {
            new.map(|new| old.map_or(new, |old| old + gain * (new - old)))
        };
        Self {
            l0_files: mean(self.l0_files, news.l0_files),
            delayed: mean(self.delayed, news.delayed),
        }
    }
}

/// The pressure at one moment, and what it comes from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StallLevel {
    /// The greatest of all parts' pressures: 1.0 at a soft limit, 2.0 where RocksDB delays writes, beyond
    /// that until it stops them.
    pub pressure: f64,
    /// Whose it is.
    pub part: StallPart,
    /// The column family that is worst off: `default`, or another one's name.
    pub family: Arc<str>,
    /// The number of files in L0 that was judged: their mean, or more than that in a rush.
    pub l0_files_mean: f64,
    /// What RocksDB said of it.
    pub gauges: StallGauges,
    /// The greatest pressure of the parts that explain a stall, rather than being one. RocksDB delays and stops
    /// the writes of all column families when one of them is behind: this tells which.
    pub(crate) cause: f64,
}

impl StallLevel {
    /// In a few words, for snapshots: the part, and the column family unless it is the default one.
    pub(crate) fn note(&self) -> Cow<'static, str> {
        let part = self.part.as_str();
        if *self.family == *DEFAULT_FAMILY {
            Cow::Borrowed(part)
        } else {
            Cow::Owned(format!("{part} of {}", self.family))
        }
    }

    /// How far it is on the way to where RocksDB delays writes, 0..=1.
    pub(crate) fn share(&self) -> f64 {
        (self.pressure / DELAYED).clamp(0.0, 1.0)
    }

    /// Whether this one is worse off than `other`.
    pub(crate) fn exceeds(&self, other: &Self) -> bool {
        (self.pressure, self.cause) > (other.pressure, other.cause)
    }
}

/// The scales of one store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    time_s: f64,
    l0_files: Ramp,
    memtables: Ramp,
    pending: LogRamp,
    write_buffer_bytes: f64,
}

impl Scale {
    pub(crate) fn new(
        triggers: &StallTriggers,
        write_buffer_bytes: u64,
    ) -> Result<Self, ConfigError> {
        triggers.check()?;
        ConfigError::within("write_buffer_bytes", write_buffer_bytes, 1, i64::MAX as u64)?;
        let (compaction, slowdown) = (
            f64::from(triggers.l0_compaction),
            f64::from(triggers.l0_slowdown),
        );
        let buffers = f64::from(triggers.write_buffers_max);
        let memtables_hard = if triggers.write_buffers_max > MEMTABLES_WITHOUT_DELAY {
            buffers - 1.0
        } else {
            buffers
        };
        let memtables_soft = MEMTABLES_SOFT.min(memtables_hard - MEMTABLES_SOFT_BELOW);
        let l0_soft = compaction + L0_SOFT_SHARE * (slowdown - compaction);
        let time_s = l0_soft * write_buffer_bytes as f64 / NOMINAL_BYTES_PER_S;
        let debt = triggers.soft_pending_compaction_bytes as f64;
        let out_of_bounds = |setting: &str| ConfigError::OutOfBounds {
            setting: setting.to_owned(),
            value: format!("{triggers:?}"),
            bound: "such that its soft limit lies below its hard one".to_owned(),
        };
        Ok(Self {
            time_s: time_s.clamp(TIME_MIN_S, TIME_MAX_S),
            l0_files: Ramp::new(l0_soft, slowdown)
                .map_err(|_| out_of_bounds("triggers.l0_slowdown"))?,
            memtables: Ramp::new(memtables_soft, memtables_hard)
                .map_err(|_| out_of_bounds("triggers.write_buffers_max"))?,
            pending: LogRamp::new(PENDING_SOFT_SHARE * debt, debt)
                .map_err(|_| out_of_bounds("triggers.soft_pending_compaction_bytes"))?,
            write_buffer_bytes: write_buffer_bytes as f64,
        })
    }

    /// Seconds of work in L0 at its soft limit.
    pub(crate) const fn time_s(&self) -> f64 {
        self.time_s
    }

    /// The greatest pressure of all parts, and whose it is. What is not known could only add to one that is
    /// at its target; without such a one nothing can be said, and the property that is missing is named.
    pub(crate) fn level(
        &self,
        family: &Arc<str>,
        gauges: &StallGauges,
        means: &Means,
    ) -> Result<StallLevel, &'static str> {
        let memtables = gauges.immutable_memtables.zip(gauges.active_memtable_bytes);
        let full = |(immutable, active): (u64, u64)| {
            immutable as f64 + (active as f64 / self.write_buffer_bytes).min(1.0)
        };
        let stop = |stopped: u64| if stopped > 0 { STOPPED } else { 0.0 };
        // A mean is known only where a number is.
        let rush = gauges.l0_files.unwrap_or(0) as f64 / L0_CREST;
        let l0_files = means.l0_files.map(|mean| mean.max(rush));
        let parts = [
            (
                StallPart::L0Files,
                l0_files.map(|files| self.l0_files.pressure(files)),
                "RocksDB does not say how many files are in L0",
            ),
            (
                StallPart::Memtables,
                memtables.map(|both| self.memtables.pressure(full(both))),
                "RocksDB does not say how full its memtables are",
            ),
            (
                StallPart::PendingCompaction,
                gauges
                    .pending_compaction_bytes
                    .map(|bytes| self.pending.pressure(bytes as f64)),
                "RocksDB does not say how much it has to compact",
            ),
            (
                StallPart::Delayed,
                means.delayed.map(|share| share * DELAYED),
                "RocksDB does not say whether it delays writes",
            ),
            (
                StallPart::Stopped,
                gauges.write_stopped.map(stop),
                "RocksDB does not say whether it takes writes",
            ),
        ];
        let mut level = StallLevel {
            pressure: 0.0,
            part: StallPart::L0Files,
            family: Arc::clone(family),
            l0_files_mean: l0_files.unwrap_or(0.0),
            gauges: *gauges,
            cause: 0.0,
        };
        let mut missing = None;
        for (part, pressure, why) in parts {
            match pressure {
                // The first of equals is kept: a part that explains the stall rather than the stall.
                Some(pressure) if pressure > level.pressure => {
                    (level.pressure, level.part) = (pressure, part);
                }
                Some(_) => {}
                None => missing = missing.or(Some(why)),
            }
            if !matches!(part, StallPart::Delayed | StallPart::Stopped) {
                level.cause = level.cause.max(pressure.unwrap_or(0.0));
            }
        }
        match missing {
            Some(why) if level.pressure < 1.0 => Err(why),
            _ => Ok(level),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_stall::DEFAULT_L0_SLOWDOWN_TRIGGER;

    const MIB: u64 = 1 << 20;
    const CALM: StallGauges = StallGauges {
        l0_files: Some(2),
        immutable_memtables: Some(0),
        active_memtable_bytes: Some(0),
        pending_compaction_bytes: Some(0),
        delayed_write_bytes_per_s: Some(0),
        write_stopped: Some(0),
    };

    fn level_of(triggers: &StallTriggers, gauges: &StallGauges) -> (f64, StallPart) {
        let level = Scale::new(triggers, 64 * MIB)
            .unwrap()
            .level(&"default".into(), gauges, &Means::of(gauges))
            .unwrap();
        assert_eq!(level.gauges, *gauges);
        (level.pressure, level.part)
    }

    fn level(change: impl FnOnce(&mut StallGauges)) -> (f64, StallPart) {
        let mut gauges = CALM;
        change(&mut gauges);
        level_of(&StallTriggers::default(), &gauges)
    }

    #[test]
    fn an_idle_store_has_little_pressure() {
        assert!(level(|_| {}).0 < 0.2);
        assert_eq!(level(|gauges| gauges.l0_files = Some(0)).0, 0.0);
    }

    #[test]
    fn l0_files_are_at_target_below_the_slowdown_and_at_their_hard_limit_there() {
        for (files, pressure) in [(0, 0.0), (13, 1.0), (22, 2.0), (31, 3.0)] {
            let triggers = StallTriggers {
                l0_compaction: 2,
                l0_slowdown: 22,
                ..StallTriggers::default()
            };
            let gauges = StallGauges {
                l0_files: Some(files),
                ..CALM
            };
            let level = level_of(&triggers, &gauges);
            assert_eq!(level, (pressure, StallPart::L0Files), "{files} files");
        }
    }

    #[test]
    fn memtables_are_at_target_when_flushing_is_slower_than_writing() {
        let at = |buffers: u32, immutable: u64, active_mib: u64| {
            let triggers = StallTriggers {
                write_buffers_max: buffers,
                ..StallTriggers::default()
            };
            let gauges = StallGauges {
                immutable_memtables: Some(immutable),
                active_memtable_bytes: Some(active_mib * MIB),
                ..CALM
            };
            level_of(&triggers, &gauges)
        };
        let memtables = |pressure| (pressure, StallPart::Memtables);
        // Two: RocksDB stops when both are full.
        assert!(at(2, 1, 32).0 < 1.0);
        assert_eq!(at(2, 1, 64), memtables(2.0));
        // What the arena holds beyond the limit does not count.
        assert_eq!(at(2, 1, 70), memtables(2.0));
        // Three: no delay, either.
        assert_eq!(at(3, 2, 0), memtables(1.0));
        assert_eq!(at(3, 2, 64), memtables(2.0));
        // Five: RocksDB delays from the fourth full one on.
        assert_eq!(at(5, 2, 0), memtables(1.0));
        assert_eq!(at(5, 3, 0), memtables(1.5));
        assert_eq!(at(5, 4, 0), memtables(2.0));
    }

    #[test]
    fn debt_counts_by_factors() {
        let gib = 1u64 << 30;
        for (debt, pressure) in [(8, 0.5), (16, 1.0), (32, 1.5), (64, 2.0), (256, 3.0)] {
            let level = level(|gauges| gauges.pending_compaction_bytes = Some(debt * gib));
            assert_eq!(level, (pressure, StallPart::PendingCompaction), "{debt}");
        }
    }

    #[test]
    fn a_delay_and_a_stop_count_whatever_the_gauges_say() {
        let delayed = level(|gauges| gauges.delayed_write_bytes_per_s = Some(16_000));
        assert_eq!(delayed, (2.0, StallPart::Delayed));
        let stopped = level(|gauges| gauges.write_stopped = Some(1));
        assert_eq!(stopped, (3.0, StallPart::Stopped));
    }

    #[test]
    fn a_delay_counts_by_its_share_of_the_time_and_a_stop_at_once() {
        let scale = Scale::new(&StallTriggers::default(), 64 * MIB).unwrap();
        let mut gauges = CALM;
        let calm = Means::of(&gauges);
        gauges.delayed_write_bytes_per_s = Some(16_000);
        let means = calm.towards(Means::of(&gauges), 0.25);
        assert_eq!(
            scale
                .level(&"default".into(), &gauges, &means)
                .unwrap()
                .pressure,
            0.5
        );
        gauges.write_stopped = Some(1);
        assert_eq!(
            scale
                .level(&"default".into(), &gauges, &means)
                .unwrap()
                .pressure,
            3.0
        );
        // What was unknown begins with what is known; what has become unknown is forgotten.
        assert_eq!(Means::default().towards(calm, 0.1), calm);
        assert_eq!(calm.towards(Means::default(), 0.1), Means::default());
    }

    #[test]
    fn a_rush_into_l0_counts_before_its_mean_has_seen_it_and_a_crest_of_it_does_not() {
        let scale = Scale::new(&StallTriggers::default(), 64 * MIB).unwrap();
        let judged = |files, mean| {
            let gauges = StallGauges {
                l0_files: Some(files),
                ..CALM
            };
            let means = Means {
                l0_files: Some(mean),
                ..Means::of(&CALM)
            };
            let level = scale.level(&"default".into(), &gauges, &means).unwrap();
            (level.l0_files_mean, level.pressure)
        };
        let slowdown = u64::from(DEFAULT_L0_SLOWDOWN_TRIGGER);
        let (files, pressure) = judged(slowdown, 3.0);
        assert!(files > 13.0 && pressure > 1.0, "{files}: {pressure}");
        assert_eq!(judged(18, 12.5), judged(4, 12.5), "the crest of a sawtooth");
    }

    #[test]
    fn the_worst_part_is_named_and_the_cause_before_its_effect() {
        let both = level(|gauges| {
            gauges.l0_files = Some(20);
            gauges.delayed_write_bytes_per_s = Some(16_000);
            gauges.pending_compaction_bytes = Some(20 << 30);
        });
        assert_eq!(both, (2.0, StallPart::L0Files));
        let stopped_by_debt = level(|gauges| {
            gauges.pending_compaction_bytes = Some(256 << 30);
            gauges.write_stopped = Some(1);
        });
        assert_eq!(stopped_by_debt, (3.0, StallPart::PendingCompaction));
    }

    #[test]
    fn what_is_missing_is_named_unless_another_part_is_at_its_target() {
        let scale = Scale::new(&StallTriggers::default(), 64 * MIB).unwrap();
        let mut gauges = CALM;
        gauges.pending_compaction_bytes = None;
        let why = scale
            .level(&"default".into(), &gauges, &Means::of(&gauges))
            .unwrap_err();
        assert_eq!(why, "RocksDB does not say how much it has to compact");
        gauges.l0_files = Some(20);
        assert_eq!(
            scale
                .level(&"default".into(), &gauges, &Means::of(&gauges))
                .unwrap()
                .pressure,
            2.0
        );
        assert!(
            scale
                .level(
                    &"default".into(),
                    &StallGauges::default(),
                    &Means::default()
                )
                .is_err()
        );
    }

    #[test]
    fn of_two_families_in_one_stop_the_one_that_caused_it_is_worse_off() {
        let scale = Scale::new(&StallTriggers::default(), 64 * MIB).unwrap();
        let level_of = |name: &str, l0_files| {
            let mut gauges = CALM;
            gauges.write_stopped = Some(1);
            gauges.l0_files = Some(l0_files);
            scale
                .level(&name.into(), &gauges, &Means::of(&gauges))
                .unwrap()
        };
        let (calm, behind) = (level_of("default", 3), level_of("orders", 20));
        assert_eq!((calm.pressure, behind.pressure), (3.0, 3.0));
        assert!(behind.exceeds(&calm) && !calm.exceeds(&behind));
        assert_eq!(
            [calm.note(), behind.note()],
            ["stopped", "stopped of orders"]
        );
    }

    #[test]
    fn a_level_counts_not_its_trend() {
        // tikv/tikv#14392: a slow ramp past the limit was not seen.
        let mut last = 0.0;
        for files in 0..40 {
            let (pressure, _) = level(|gauges| gauges.l0_files = Some(files));
            assert!(pressure >= last);
            assert_eq!(pressure > 1.0, files > 12, "{files} files");
            last = pressure;
        }
    }

    #[test]
    fn the_time_follows_from_the_memtables_within_bounds() {
        let time_s = |bytes| {
            Scale::new(&StallTriggers::default(), bytes)
                .unwrap()
                .time_s()
        };
        assert_eq!([1, 1 << 40].map(time_s), [2.0, 120.0]);
        assert!((time_s(64 * MIB) - 25.6).abs() < 1e-9);
    }

    #[test]
    fn any_triggers_that_pass_make_a_scale() {
        for (l0_compaction, l0_slowdown) in [(1, 2), (4, 5), (1, 1_000_000)] {
            for write_buffers_max in 2..9 {
                let triggers = StallTriggers {
                    l0_compaction,
                    l0_slowdown,
                    l0_stop: l0_slowdown,
                    soft_pending_compaction_bytes: 1,
                    hard_pending_compaction_bytes: 1,
                    write_buffers_max,
                };
                Scale::new(&triggers, 1).unwrap();
            }
        }
    }
}
