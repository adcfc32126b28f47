//! What can be set for a store.

use std::thread::available_parallelism;

use cinnamon_core::{ClassSettings, Config, ConfigError, LaneSettings, Settings};

use crate::store::Operation;
use crate::write_stall::StallTriggers;

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
/// Read slots per core. A read from the block or the page cache keeps a core busy from end to end:
/// more readers than cores add waiting inside the slot, where no priority counts.
const READ_SLOTS_PER_CORE: u32 = 2;
/// Write slots, whatever the machine: RocksDB writes its log with one leader at a time; a second
/// writer queues up while the first is at it, more only wait where no priority counts.
const WRITE_SLOTS: u32 = 2;

/// The scope of both lanes.
pub(crate) const SCOPE: &str = "store";

/// Options of a [`Store`](crate::Store).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreOptions {
    /// Slots of the lane `read`. Default: one per core.
    pub read_limit: u32,
    /// Slots of the lane `write`. Default 2.
    pub write_limit: u32,
    /// Bytes of block cache. Default [`DEFAULT_BLOCK_CACHE_BYTES`].
    pub block_cache_bytes: u64,
    /// Bytes of one memtable. Default [`DEFAULT_WRITE_BUFFER_BYTES`].
    pub write_buffer_bytes: u64,
    /// Whether a write waits until its log record is on the disk. The log itself is always written.
    /// Default `false`: a crash of the machine, not of the process, may lose the last writes.
    pub sync_writes: bool,
    /// Where RocksDB delays and stops writes. The levels of the store keep RocksDB's proportions to the
    /// memtables: as many bytes in L1 as in the L0 files that are compacted into it. Default: RocksDB's own.
    pub triggers: StallTriggers,
    /// Threads that flush and compact, at least 2. Default [`DEFAULT_BACKGROUND_JOBS_MAX`].
    pub background_jobs_max: u32,
    /// Bytes a second that flushes and compactions may write, at least 1. Default (`None`): as many as the
    /// disk takes.
    pub background_bytes_per_s: Option<u64>,
    /// Whether RocksDB refuses a write that it would have to delay, rather than keep the caller and its slot
    /// waiting. The call fails with [`StoreError::Rocks`](crate::StoreError::Rocks), and counts as overload.
    /// Default `false`.
    pub no_slowdown: bool,
    /// Whether [`WriteStall`](crate::WriteStall) sheds low tiers before RocksDB delays writes. Default `true`.
    pub write_stall: bool,
    /// Whether to create the store when the folder holds none. Default `true`.
    pub create_if_missing: bool,
    /// The controller's settings. Its lanes and classes are the store's; what is set here of them is
    /// replaced.
    pub control: Settings,
}

impl Default for StoreOptions {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, |cores| cores.get() as u32);
        Self {
            read_limit: cores * READ_SLOTS_PER_CORE,
            write_limit: WRITE_SLOTS,
            block_cache_bytes: DEFAULT_BLOCK_CACHE_BYTES,
            write_buffer_bytes: DEFAULT_WRITE_BUFFER_BYTES,
            sync_writes: false,
            triggers: StallTriggers::default(),
            background_jobs_max: DEFAULT_BACKGROUND_JOBS_MAX,
            background_bytes_per_s: None,
            no_slowdown: false,
            write_stall: true,
            create_if_missing: true,
            control: Settings::default(),
        }
    }
}

impl StoreOptions {
    /// Checks them and makes the controller's configuration: two lanes of one scope.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        self.triggers.check()?;
        let most = i32::MAX as u32;
        ConfigError::within("background_jobs_max", self.background_jobs_max, 2, most)?;
        if let Some(bytes_per_s) = self.background_bytes_per_s {
            ConfigError::within("background_bytes_per_s", bytes_per_s, 1, i64::MAX as u64)?;
        }
        let mut settings = self.control.clone();
        settings.lanes = vec![
            LaneSettings::new("read", self.read_limit).scope(SCOPE),
            LaneSettings::new("write", self.write_limit).scope(SCOPE),
        ];
        let class = |operation: Operation| {
            let mut class = ClassSettings::default();
            operation.name().clone_into(&mut class.name);
            class
        };
        settings.classes = Operation::ALL.map(class).to_vec();
        Config::new(settings)
    }

    /// RocksDB's own options.
    pub(crate) fn rocksdb(&self) -> rocksdb::Options {
        let mut table = rocksdb::BlockBasedOptions::default();
        let cache = rocksdb::Cache::new_lru_cache(self.block_cache_bytes as usize);
        table.set_block_cache(&cache);
        // Ten bits: one lookup in a hundred reads a block in vain.
        table.set_bloom_filter(10.0, false);
        let mut options = rocksdb::Options::default();
        options.create_if_missing(self.create_if_missing);
        options.set_block_based_table_factory(&table);
        options.set_compression_type(rocksdb::DBCompressionType::Lz4);
        options.set_write_buffer_size(self.write_buffer_bytes as usize);
        options.set_target_file_size_base(self.write_buffer_bytes);
        let triggers = &self.triggers;
        let level_bytes = u64::from(triggers.l0_compaction).saturating_mul(self.write_buffer_bytes);
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
}
