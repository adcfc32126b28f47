//! What can be set for a store.

mod check;
mod family;
mod slo;

use std::thread::available_parallelism;

use cinnamon_core::{Limit, Settings};
use serde::{Deserialize, Serialize};

use crate::error::OptionsError;
use crate::write_stall::StallTriggers;

pub use family::{DEFAULT_FAMILY, FAMILIES_MAX, FamilyOptions};
pub use slo::{DEFAULT_SLO_MAX_US, DEFAULT_SLO_TARGET_US, SloOptions};

/// Block cache: enough for indexes, filters and a hot set of a small store. RocksDB's own default is
/// 32 MiB.
pub const DEFAULT_BLOCK_CACHE_BYTES: u64 = 64 << 20;
/// Memtable size: RocksDB's own default.
pub const DEFAULT_WRITE_BUFFER_BYTES: u64 = 64 << 20;
/// Background threads: RocksDB's own default. A quarter of them, at least one, flush.
pub const DEFAULT_BACKGROUND_JOBS_MAX: u32 = 2;
/// Every so often RocksDB hands out what flushes and compactions may write: its own default, microseconds.
const BACKGROUND_REFILL_US: i64 = 100_000;
/// Flushes go before compactions but once in so many times: RocksDB's own default.
const BACKGROUND_FAIRNESS: i32 = 10;
/// Read slots per core, at least. A read from the block or the page cache keeps a core busy from end to end, but a slot
/// is also taken while its owner is being woken, twice for a call of an asynchronous store: with two slots per core
/// reads came to 0.83 to 0.95 of the best on two cores, with eight to 0.90 to 1.00, with 16 to 0.99 or more (six runs of `lab slots`). Each step
/// of that is too small for the limit to find by its trials. More would serve little more, and keep work waiting inside, where no priority counts.
const READ_SLOTS_PER_CORE: u32 = 16;
/// Write slots, at least, whatever the machine: RocksDB writes its log with one leader at a time, who takes along who
/// waits behind it. Two slots came to 0.77 and 0.86 of what 32 served, 16 to 0.84 and 1.00 (two runs of `lab slots`).
const WRITE_SLOTS: u32 = 32;

/// Most slots that a lane of a store finds by itself: a slot of a synchronous store is a thread of the caller's, of
/// an asynchronous one a thread of ours, and a disk has no use for more.
pub const FOUND_LIMIT_MAX: u32 = 256;
/// The least that is found, on the greatest machine: half of the most.
const FOUND_LIMIT_MIN_MAX: u32 = FOUND_LIMIT_MAX / 2;

/// Threads that flush and compact, at least: one of each.
const BACKGROUND_JOBS_MIN: u32 = 2;
/// Bounds of a memtable: outside of them RocksDB silently takes the bound, and what is reckoned from the
/// setting would be wrong.
const WRITE_BUFFER_BYTES_MIN: u64 = 64 << 10;
const WRITE_BUFFER_BYTES_MAX: u64 = 64 << 30;

/// The scope of both lanes.
pub(crate) const SCOPE: &str = "store";
/// The lane of everything that reads.
pub(crate) const READ: &str = "read";
/// The lane of everything that writes.
pub(crate) const WRITE: &str = "write";

/// Options of a [`Store`](crate::Store): from code, or from a file with [`StoreOptions::from_toml`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct StoreOptions {
    /// Slots of the lane `read`: a number, or how it is found. Default: found, from 16 per core (but no more than 128)
    /// up to [`FOUND_LIMIT_MAX`].
    pub read_limit: Limit,
    /// Slots of the lane `write`. Default: found, from 32 up to [`FOUND_LIMIT_MAX`]. With `sync_writes` more of them share
    /// one synchronisation of the log.
    pub write_limit: Limit,
    /// Bytes of block cache, for all column families. Default [`DEFAULT_BLOCK_CACHE_BYTES`].
    pub block_cache_bytes: u64,
    /// Bytes of one memtable, 64 KiB to 64 GiB. Default [`DEFAULT_WRITE_BUFFER_BYTES`].
    pub write_buffer_bytes: u64,
    /// What block cache and memtables may come to, all column families together. It bounds nothing while
    /// the store runs: settings that could exceed it are refused. Default (`None`): not checked.
    pub memory_bytes_max: Option<u64>,
    /// Whether a write waits until its log record is on the disk. The log itself is always written.
    /// Default `false`: a crash of the machine, not of the process, may lose the last writes.
    pub sync_writes: bool,
    /// Threads that flush and compact, at least 2, for all column families. Default
    /// [`DEFAULT_BACKGROUND_JOBS_MAX`].
    pub background_jobs_max: u32,
    /// Bytes a second that flushes and compactions may write, at least 1. Default (`None`): as many as the
    /// disk takes.
    pub background_bytes_per_s: Option<u64>,
    /// Whether RocksDB counts what [`Store::background_bytes`](crate::Store::background_bytes) tells: some additions for
    /// each call. Default `false`.
    pub count_background_bytes: bool,
    /// Whether RocksDB refuses a write that it would have to delay, rather than keep the caller and its slot
    /// waiting. The call fails with [`StoreError::Rocks`](crate::StoreError::Rocks), and counts as overload.
    /// It takes `write_stall`. Default `false`.
    pub no_slowdown: bool,
    /// Whether [`WriteStall`](crate::WriteStall) sheds low tiers before RocksDB delays writes. Default `true`.
    pub write_stall: bool,
    /// Whether it sheds reads too, by one threshold for both lanes. Worth it where reads wait for the disk that
    /// compactions keep busy; where they are served from memory it refuses them for nothing. It takes
    /// `write_stall`. Default `false`.
    pub write_stall_sheds_reads: bool,
    /// Whether to create the store when the folder holds none. Default `true`.
    pub create_if_missing: bool,
    /// Whether column families that the folder has and `families` does not name are opened, with the store's
    /// settings. Default `false`: they are an error, for who forgets one forgets its settings.
    pub open_unknown_families: bool,
    /// Where RocksDB delays and stops writes. The levels of the store keep RocksDB's proportions to the
    /// memtables: as many bytes in L1 as in the L0 files that are compacted into it. Default: RocksDB's own.
    pub triggers: StallTriggers,
    /// What reads are promised: point reads, multi-gets, and each chunk of a scan. The store measures it and
    /// [tells](crate::Store::utilisation) callers upstream; it sheds nothing. Default (`None`): nothing, and nothing is
    /// measured.
    pub read_slo: Option<SloOptions>,
    /// What writes are promised: puts, deletes, and batches. Default (`None`): nothing.
    pub write_slo: Option<SloOptions>,
    /// Column families beside `default`; those that the folder lacks are created. Default: none.
    pub families: Vec<FamilyOptions>,
    /// The controller's settings. Its lanes are `read` and `write`, its classes the names of
    /// [`Operation`](crate::Operation)s: settings of them are taken by name, others are refused. The limit of a
    /// lane that is set here must be that of `read_limit` or `write_limit`, or be left out.
    pub control: Settings,
}

/// A limit that is found from here on upward.
fn found(least: u32) -> Limit {
    let least = least.min(FOUND_LIMIT_MIN_MAX);
    Limit::auto()
        .initial(least)
        .at_least(least)
        .at_most(FOUND_LIMIT_MAX)
}

impl Default for StoreOptions {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, |cores| cores.get() as u32);
        Self {
            read_limit: found(cores.saturating_mul(READ_SLOTS_PER_CORE)),
            write_limit: found(WRITE_SLOTS),
            block_cache_bytes: DEFAULT_BLOCK_CACHE_BYTES,
            write_buffer_bytes: DEFAULT_WRITE_BUFFER_BYTES,
            memory_bytes_max: None,
            sync_writes: false,
            background_jobs_max: DEFAULT_BACKGROUND_JOBS_MAX,
            background_bytes_per_s: None,
            count_background_bytes: false,
            no_slowdown: false,
            write_stall: true,
            write_stall_sheds_reads: false,
            create_if_missing: true,
            open_unknown_families: false,
            triggers: StallTriggers::default(),
            read_slo: None,
            write_slo: None,
            families: Vec::new(),
            control: Settings::default(),
        }
    }
}

impl StoreOptions {
    /// Reads and checks a configuration file; what it leaves out stands at its default. The package's
    /// `examples/store.toml` has every setting.
    ///
    /// # Errors
    ///
    /// When it is no TOML or has a setting that does not exist, with its place; when a setting is out of its
    /// bounds or does not go with another, with the names of both.
    ///
    /// # Examples
    ///
    /// ```
    /// use cinnamon_rocks::StoreOptions;
    ///
    /// let options = StoreOptions::from_toml("read_limit = 8\n[control]\nuntagged_tier = \"t4\"").unwrap();
    /// assert_eq!(options.read_limit, cinnamon_core::Limit::fixed(8));
    /// let error = StoreOptions::from_toml("write_limit = 0").unwrap_err();
    /// assert_eq!(error.to_string(), "`write_limit` is 0 but must be between 1 and 1048576");
    /// ```
    pub fn from_toml(text: &str) -> Result<Self, OptionsError> {
        let options: Self = toml::from_str(text)?;
        options.config()?;
        Ok(options)
    }

    /// RocksDB's options of the database.
    pub(crate) fn rocksdb(&self) -> rocksdb::Options {
        let mut options = rocksdb::Options::default();
        options.create_if_missing(self.create_if_missing);
        options.create_missing_column_families(true);
        options.set_max_background_jobs(self.background_jobs_max as i32);
        if let Some(bytes_per_s) = self.background_bytes_per_s {
            options.set_ratelimiter(
                bytes_per_s as i64,
                BACKGROUND_REFILL_US,
                BACKGROUND_FAIRNESS,
            );
        }
        options
    }

    /// The block cache that all column families share.
    pub(crate) fn block_cache(&self) -> rocksdb::Cache {
        rocksdb::Cache::new_lru_cache(self.block_cache_bytes as usize)
    }

    /// RocksDB's options of a column family.
    pub(crate) fn rocksdb_family(
        &self,
        cache: &rocksdb::Cache,
        triggers: &StallTriggers,
        write_buffer_bytes: u64,
    ) -> rocksdb::Options {
        let mut table = rocksdb::BlockBasedOptions::default();
        table.set_block_cache(cache);
        // Ten bits: one lookup in a hundred reads a block in vain.
        table.set_bloom_filter(10.0, false);
        let mut options = rocksdb::Options::default();
        options.set_block_based_table_factory(&table);
        options.set_compression_type(rocksdb::DBCompressionType::Lz4);
        options.set_write_buffer_size(write_buffer_bytes as usize);
        options.set_target_file_size_base(write_buffer_bytes);
        let level_bytes = u64::from(triggers.l0_compaction).saturating_mul(write_buffer_bytes);
        options.set_max_bytes_for_level_base(level_bytes);
        options.set_level_zero_file_num_compaction_trigger(triggers.l0_compaction as i32);
        options.set_level_zero_slowdown_writes_trigger(triggers.l0_slowdown as i32);
        options.set_level_zero_stop_writes_trigger(triggers.l0_stop as i32);
        options.set_soft_pending_compaction_bytes_limit(
            triggers.soft_pending_compaction_bytes as usize,
        );
        options.set_hard_pending_compaction_bytes_limit(
            triggers.hard_pending_compaction_bytes as usize,
        );
        options.set_max_write_buffer_number(triggers.write_buffers_max as i32);
        options
    }
}
