//! From what RocksDB says of itself to a pressure. Pure arithmetic.

use cinnamon_core::ConfigError;
use cinnamon_signals::{LogRamp, Ramp};

/// L0 files from which RocksDB compacts them: RocksDB's own default.
pub const DEFAULT_L0_COMPACTION_TRIGGER: u32 = 4;
/// L0 files from which RocksDB delays writes: RocksDB's own default.
pub const DEFAULT_L0_SLOWDOWN_TRIGGER: u32 = 20;
/// L0 files from which RocksDB stops writes: RocksDB's own default.
pub const DEFAULT_L0_STOP_TRIGGER: u32 = 36;
/// Compaction debt from which RocksDB delays writes: RocksDB's own default.
pub const DEFAULT_SOFT_PENDING_COMPACTION_BYTES: u64 = 64 << 30;
/// Compaction debt from which RocksDB stops writes: RocksDB's own default.
pub const DEFAULT_HARD_PENDING_COMPACTION_BYTES: u64 = 256 << 30;
/// Memtables: RocksDB's own default. With two of them RocksDB knows no delay: it goes from full speed to a
/// stop.
pub const DEFAULT_WRITE_BUFFERS_MAX: u32 = 2;

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

/// Where RocksDB delays and stops writes. The soft limits of [`WriteStall`](crate::WriteStall) follow from
/// it: they lie below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StallTriggers {
    /// L0 files from which they are compacted, at least 1. Default [`DEFAULT_L0_COMPACTION_TRIGGER`].
    pub l0_compaction: u32,
    /// L0 files from which writes are delayed, above `l0_compaction`. Default
    /// [`DEFAULT_L0_SLOWDOWN_TRIGGER`].
    pub l0_slowdown: u32,
    /// L0 files from which no write is taken, at least `l0_slowdown`. Default [`DEFAULT_L0_STOP_TRIGGER`].
    pub l0_stop: u32,
    /// Bytes of compaction debt from which writes are delayed, at least 1. Default
    /// [`DEFAULT_SOFT_PENDING_COMPACTION_BYTES`].
    pub soft_pending_compaction_bytes: u64,
    /// Bytes of compaction debt from which no write is taken, at least the soft limit. Default
    /// [`DEFAULT_HARD_PENDING_COMPACTION_BYTES`].
    pub hard_pending_compaction_bytes: u64,
    /// Memtables, the one that is written to included, at least 2. Default [`DEFAULT_WRITE_BUFFERS_MAX`].
    pub write_buffers_max: u32,
}

impl Default for StallTriggers {
    fn default() -> Self {
        Self {
            l0_compaction: DEFAULT_L0_COMPACTION_TRIGGER,
            l0_slowdown: DEFAULT_L0_SLOWDOWN_TRIGGER,
            l0_stop: DEFAULT_L0_STOP_TRIGGER,
            soft_pending_compaction_bytes: DEFAULT_SOFT_PENDING_COMPACTION_BYTES,
            hard_pending_compaction_bytes: DEFAULT_HARD_PENDING_COMPACTION_BYTES,
            write_buffers_max: DEFAULT_WRITE_BUFFERS_MAX,
        }
    }
}

impl StallTriggers {
    /// Most of anything that is counted: what RocksDB takes is an `int`.
    const COUNT_MAX: u32 = i32::MAX as u32;

    /// Checks them against each other.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let most = Self::COUNT_MAX;
        ConfigError::within("triggers.l0_compaction", self.l0_compaction, 1, most)?;
        let least = self.l0_compaction.saturating_add(1);
        ConfigError::within("triggers.l0_slowdown", self.l0_slowdown, least, most)?;
        ConfigError::within("triggers.l0_stop", self.l0_stop, self.l0_slowdown, most)?;
        let soft = self.soft_pending_compaction_bytes;
        let hard = self.hard_pending_compaction_bytes;
        let most = i64::MAX as u64;
        ConfigError::within("triggers.soft_pending_compaction_bytes", soft, 1, most)?;
        ConfigError::within("triggers.hard_pending_compaction_bytes", hard, soft, most)?;
        let most = Self::COUNT_MAX;
        ConfigError::within(
            "triggers.write_buffers_max",
            self.write_buffers_max,
            2,
            most,
        )
    }
}

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
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct StallLevel {
    /// The greatest of all parts' pressures: 1.0 at a soft limit, 2.0 where RocksDB delays writes, beyond
    /// that until it stops them.
    pub pressure: f64,
    /// Whose it is.
    pub part: StallPart,
    /// The mean number of files in L0 that was judged.
    pub l0_files_mean: f64,
    /// What RocksDB said.
    pub gauges: StallGauges,
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
        gauges: &StallGauges,
        means: &Means,
    ) -> Result<StallLevel, &'static str> {
        let memtables = gauges.immutable_memtables.zip(gauges.active_memtable_bytes);
        let full = |(immutable, active): (u64, u64)| {
            immutable as f64 + (active as f64 / self.write_buffer_bytes).min(1.0)
        };
        let stop = |stopped: u64| if stopped > 0 { STOPPED } else { 0.0 };
        let parts = [
            (
                StallPart::L0Files,
                means.l0_files.map(|files| self.l0_files.pressure(files)),
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
            l0_files_mean: means.l0_files.unwrap_or(0.0),
            gauges: *gauges,
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
            .level(gauges, &Means::of(gauges))
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
        assert_eq!(scale.level(&gauges, &means).unwrap().pressure, 0.5);
        gauges.write_stopped = Some(1);
        assert_eq!(scale.level(&gauges, &means).unwrap().pressure, 3.0);
        // What was unknown begins with what is known; what has become unknown is forgotten.
        assert_eq!(Means::default().towards(calm, 0.1), calm);
        assert_eq!(calm.towards(Means::default(), 0.1), Means::default());
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
        let why = scale.level(&gauges, &Means::of(&gauges)).unwrap_err();
        assert_eq!(why, "RocksDB does not say how much it has to compact");
        gauges.l0_files = Some(20);
        assert_eq!(
            scale.level(&gauges, &Means::of(&gauges)).unwrap().pressure,
            2.0
        );
        assert!(
            scale
                .level(&StallGauges::default(), &Means::default())
                .is_err()
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
    fn the_defaults_pass_their_own_checks_and_others_are_refused_by_name_and_bound() {
        StallTriggers::default().check().unwrap();
        type Change = fn(&mut StallTriggers);
        let refused: [(Change, &str); 5] = [
            (
                |t| t.l0_compaction = 0,
                "`triggers.l0_compaction` is 0 but must be between 1 and 2147483647",
            ),
            (
                |t| t.l0_slowdown = 4,
                "`triggers.l0_slowdown` is 4 but must be between 5 and 2147483647",
            ),
            (
                |t| t.l0_stop = 19,
                "`triggers.l0_stop` is 19 but must be between 20 and 2147483647",
            ),
            (
                |t| t.hard_pending_compaction_bytes = 1,
                "`triggers.hard_pending_compaction_bytes` is 1 but must be between 68719476736 and 9223372036854775807",
            ),
            (
                |t| t.write_buffers_max = 1,
                "`triggers.write_buffers_max` is 1 but must be between 2 and 2147483647",
            ),
        ];
        for (change, text) in refused {
            let mut triggers = StallTriggers::default();
            change(&mut triggers);
            assert_eq!(triggers.check().unwrap_err().to_string(), text);
            assert!(Scale::new(&triggers, MIB).is_err());
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
