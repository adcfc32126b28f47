//! The signal that sheds before RocksDB stalls.

mod scale;
mod triggers;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cinnamon_core::{Authority, ConfigError, Dynamics, Instant, Reading, Scope, Signal, View};
use rocksdb::DB;
use rocksdb::properties::{self, PropName};

use crate::options::DEFAULT_FAMILY;

use scale::{Means, Scale};
pub use scale::{StallGauges, StallLevel, StallPart};
pub use triggers::{
    DEFAULT_HARD_PENDING_COMPACTION_BYTES, DEFAULT_L0_COMPACTION_TRIGGER,
    DEFAULT_L0_SLOWDOWN_TRIGGER, DEFAULT_L0_STOP_TRIGGER, DEFAULT_SOFT_PENDING_COMPACTION_BYTES,
    DEFAULT_WRITE_BUFFERS_MAX, StallTriggers,
};

/// Name of the signal in reasons, snapshots and metrics.
pub const WRITE_STALL: &str = "write-stall";

/// L0 files, and RocksDB's delays, are averaged over this share of their time. Compactions of L0 make their
/// number a sawtooth, and a budget that follows it lets in most when L0 is about to fill up. (`lab stall`, of
/// 8 s: read as they are, the threshold moved by 200 levels within a second; over half their time, RocksDB
/// delayed for 3.5 s, and 73 % of the writes of t0 and t1 were answered in time; over all of it RocksDB never
/// delayed in three runs of four, and 100 % of them were; in the fourth it delayed for 1.2 s, and 97 % were.)
const MEAN_SHARE: f64 = 1.0;
/// Between two samples. Each asks for two properties and four more of each column family, and each of them takes
/// the database's mutex, which writes take too, so it should not be more often than it must: memtables of
/// RocksDB's size take seconds to fill.
const PERIOD: Duration = Duration::from_millis(100);
/// What was sampled is told to others for so long, as a store's report counts for its callers: the signal may be off.
const STORAGE_VALID: Duration = cinnamon_signals::SLO_REPORT_VALID;

/// How near RocksDB is to delaying and stopping writes: a signal.
///
/// RocksDB holds writes back by itself when flushes and compactions fall behind: it delays all writers alike,
/// and then takes none. This reports a pressure of 1.0 well before that, so that low tiers are shed while the
/// important ones do not notice. It is the greatest of
///
/// | part | soft, 1.0 | hard, 2.0 |
/// |---|---|---|
/// | files in L0, their mean over a compaction, or two thirds of what there are now | a little over half of the way from the compaction trigger to the slowdown | the slowdown trigger |
/// | full memtables, the fill of the active one added | 2; with two memtables 1.8 | where RocksDB delays, or stops if it knows no delay |
/// | compaction debt, on a logarithmic scale | a quarter of RocksDB's soft limit | RocksDB's soft limit |
/// | RocksDB delays writes, share of the time | half | all of it |
/// | RocksDB takes no writes | | 3.0 |
///
/// and goes on rising beyond. [`StallWatch::level`] names the part.
///
/// *Scope.* [`Store`](crate::Store) lets it bear on the lane of the writes: only they fill L0, and shedding reads
/// for it would shed for nothing. (`lab demo`, writes of t3 to t5 beyond what can be compacted, reads from memory:
/// with one threshold over both lanes, of which the reads are nine tenths of the cost, 74 % of t2 were answered and
/// 388 requests a second, without any signal 598.) If compactions make reads slow, the reads' own backlog sheds,
/// and that does bear on both lanes. Where reads wait for the disk from the start,
/// [`StoreOptions::write_stall_sheds_reads`](crate::StoreOptions::write_stall_sheds_reads) has one threshold for
/// both. `docs/decisions/0020-write-stall-sheds-writes.md`.
///
/// *Column families.* RocksDB holds back the writes to all of them when one is behind, so the worst one rules:
/// its pressure is the signal's, and [`StallLevel::family`] names it. [`WriteStall::family`] adds one;
/// [`Store`](crate::Store) has them all watched.
///
/// *When it lies.* RocksDB estimates the debt from the sizes of its levels; deleting a range or a change of
/// its base level moves it without any work behind. A column family that was not added is not seen, but for the
/// delay and the stop, which are the whole database's.
pub struct WriteStall {
    families: Vec<Watched>,
    scope: Scope,
    source: Arc<Source>,
    averaged_at: Option<Instant>,
}

/// A column family, its scales, and what is averaged of it.
#[derive(Debug)]
struct Watched {
    name: Arc<str>,
    scale: Scale,
    means: Means,
}

/// What the signal said last, for whoever wants to know. A cheap handle; clones are one.
#[derive(Clone)]
pub struct StallWatch {
    source: Arc<Source>,
}

/// Where the signal reads, and what it read.
struct Source {
    /// Held while RocksDB is read, so that [`StallWatch::detach`] can wait for that.
    db: Mutex<Weak<DB>>,
    level: Mutex<Option<StallLevel>>,
    storage: Mutex<Storage>,
}

/// How far each column family was on its way to a stall, in the order in which they are watched.
#[derive(Debug, Default)]
struct Storage {
    sampled_at: Option<Instant>,
    /// 0..=1; nothing of one that could not be judged.
    shares: Vec<Option<f64>>,
}

impl WriteStall {
    /// A signal of this database, whose column family `default` was opened with these triggers and memtables of
    /// `write_buffer_bytes`. It does not keep the database open, but for the moment of a sample.
    ///
    /// # Errors
    ///
    /// When a trigger is out of bounds.
    pub fn new(
        db: &Arc<DB>,
        triggers: &StallTriggers,
        write_buffer_bytes: u64,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            families: vec![Watched::new(DEFAULT_FAMILY, triggers, write_buffer_bytes)?],
            scope: Scope::All,
            source: Arc::new(Source {
                db: Mutex::new(Arc::downgrade(db)),
                level: Mutex::new(None),
                storage: Mutex::default(),
            }),
            averaged_at: None,
        })
    }

    /// Watches this column family too. One that the database has not is *unavailable*.
    ///
    /// # Errors
    ///
    /// When a trigger is out of bounds.
    pub fn family(
        mut self,
        name: &str,
        triggers: &StallTriggers,
        write_buffer_bytes: u64,
    ) -> Result<Self, ConfigError> {
        let family = Watched::new(name, triggers, write_buffer_bytes)?;
        self.families.push(family);
        Ok(self)
    }

    /// The same for these lanes. Default: all.
    #[must_use]
    pub fn bearing_on(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// A handle that stays when the signal goes to the controller.
    #[must_use]
    pub fn watch(&self) -> StallWatch {
        StallWatch {
            source: Arc::clone(&self.source),
        }
    }
}

impl StallWatch {
    /// What the signal said last: `None` before its first sample, and while RocksDB does not answer.
    #[must_use]
    pub fn level(&self) -> Option<StallLevel> {
        lock(&self.source.level).clone()
    }

    /// How far this family, by its place among those that are watched, was on its way to a stall at the last sample:
    /// 0.5 at its soft limit, 1 where RocksDB delays or stops writes. Nothing where that is not known, or not of late.
    pub(crate) fn storage(&self, family: usize, now: Instant) -> Option<f64> {
        let storage = lock(&self.source.storage);
        let late = now.since(storage.sampled_at?) > STORAGE_VALID;
        storage.shares.get(family).copied()?.filter(|_| !late)
    }

    /// Ends all reading, after a sample under way. From then on the signal holds nothing of the database, so
    /// that it is closed when its owner drops it, and not a moment later.
    pub fn detach(&self) {
        *lock(&self.source.db) = Weak::new();
    }
}

impl Signal for WriteStall {
    fn name(&self) -> &str {
        WRITE_STALL
    }

    fn dynamics(&self) -> Dynamics {
        // More files in L0 make its compactions faster, so at any rate of writes that can be had at all it settles.
        // (Declared as integrating, the law held it where it first came down to, at 7 files of 17, and wrote
        // 0.85 to 0.96 of what can be sustained.) A mean is late by the time over which it is taken; declared as
        // 0.6 of that, the gain is higher by two thirds, and the budget follows the sawtooth again.
        // Of several column families the slowest one's: too short a time is the costly error.
        let times = self.families.iter().map(|family| family.scale.time_s());
        let time_s = times.fold(0.0, f64::max);
        Dynamics::settling(Duration::from_secs_f64(time_s))
            .delayed(Duration::from_secs_f64(MEAN_SHARE * time_s))
    }

    fn scope(&self) -> Scope {
        self.scope.clone()
    }

    fn authority(&self) -> Authority {
        Authority::Measuring
    }

    fn period(&self) -> Duration {
        PERIOD
    }

    fn sample(&mut self, now: Instant, _view: &View) -> Reading {
        let source = Arc::clone(&self.source);
        // Held until RocksDB is read and let go again.
        let open = lock(&source.db);
        let level = match open.upgrade() {
            Some(db) => self.level(now, &db),
            None => Err("the store is closed"),
        };
        drop(open);
        *lock(&source.level) = level.as_ref().ok().cloned();
        match level {
            Ok(level) => Reading::pressure(level.pressure).note(level.note()),
            Err(why) => Reading::unavailable(why),
        }
    }
}

impl WriteStall {
    /// The level of the column family that is worst off. One that cannot be read could only add to another that
    /// is at its target; without such a one nothing can be said.
    fn level(&mut self, now: Instant, db: &DB) -> Result<StallLevel, &'static str> {
        let last = self.averaged_at.replace(now);
        let dt_s = last.map_or(0.0, |last| now.nanos_since(last) as f64 * 1e-9);
        let of_database = StallGauges::of_database(db);
        let (mut worst, mut missing) = (None, None);
        let mut shares = Vec::with_capacity(self.families.len());
        for family in &mut self.families {
            let gauges = of_database.with_family(db, &family.name);
            let level = family.level(dt_s, &gauges);
            shares.push(level.as_ref().ok().map(StallLevel::share));
            match level {
                Ok(level) => {
                    if worst.as_ref().is_none_or(|worst| level.exceeds(worst)) {
                        worst = Some(level);
                    }
                }
                Err(why) => missing = missing.or(Some(why)),
            }
        }
        *lock(&self.source.storage) = Storage {
            sampled_at: Some(now),
            shares,
        };
        match (worst, missing) {
            (Some(worst), None) => Ok(worst),
            (Some(worst), Some(_)) if worst.pressure >= 1.0 => Ok(worst),
            (_, why) => Err(why.unwrap_or("no column family is watched")),
        }
    }
}

impl Watched {
    fn new(
        name: &str,
        triggers: &StallTriggers,
        write_buffer_bytes: u64,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            name: name.into(),
            scale: Scale::new(triggers, write_buffer_bytes)?,
            means: Means::default(),
        })
    }

    fn level(&mut self, dt_s: f64, gauges: &StallGauges) -> Result<StallLevel, &'static str> {
        let gain = 1.0 - (-dt_s / (MEAN_SHARE * self.scale.time_s())).exp();
        self.means = self.means.towards(Means::of(gauges), gain);
        self.scale.level(&self.name, gauges, &self.means)
    }
}

/// Asks RocksDB of one column family.
pub(crate) fn gauges(db: &DB, family: &str) -> StallGauges {
    StallGauges::of_database(db).with_family(db, family)
}

impl StallGauges {
    /// What is the whole database's. Each property takes the database's mutex.
    fn of_database(db: &DB) -> Self {
        let number = |name: &PropName| db.property_int_value(name).ok().flatten();
        Self {
            delayed_write_bytes_per_s: number(properties::ACTUAL_DELAYED_WRITE_RATE),
            write_stopped: number(properties::IS_WRITE_STOPPED),
            ..Self::default()
        }
    }

    /// The same with what is this column family's; what was known of another is replaced. Each property takes
    /// the database's mutex.
    fn with_family(self, db: &DB, family: &str) -> Self {
        // A database that was opened without a word of column families gives no handle of the one it has.
        let (named, plain) = (db.cf_handle(family), family == DEFAULT_FAMILY);
        let number = |name: &PropName| match named {
            Some(family) => db.property_int_value_cf(family, name).ok()?,
            None if plain => db.property_int_value(name).ok()?,
            None => None,
        };
        // This one is a text.
        let name = properties::num_files_at_level(0);
        let l0_files = match named {
            Some(family) => db.property_value_cf(family, name).ok().flatten(),
            None if plain => db.property_value(name).ok().flatten(),
            None => None,
        };
        let l0_files = l0_files.and_then(|text| text.trim().parse().ok());
        Self {
            l0_files,
            immutable_memtables: number(properties::NUM_IMMUTABLE_MEM_TABLE),
            active_memtable_bytes: number(properties::CUR_SIZE_ACTIVE_MEM_TABLE),
            pending_compaction_bytes: number(properties::ESTIMATE_PENDING_COMPACTION_BYTES),
            ..self
        }
    }
}

impl fmt::Debug for WriteStall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteStall")
            .field("families", &self.families)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for StallWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StallWatch").field(&self.level()).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
