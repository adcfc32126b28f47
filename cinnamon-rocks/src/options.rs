//! What can be set for a store.

use std::thread::available_parallelism;

use cinnamon_core::{ClassSettings, Config, ConfigError, LaneSettings, Settings};

use crate::store::Operation;

/// Block cache: enough for indexes, filters and a hot set of a small store. RocksDB's own default is
/// 32 MiB.
pub const DEFAULT_BLOCK_CACHE_BYTES: u64 = 64 << 20;
/// Memtable size: RocksDB's own default.
pub const DEFAULT_WRITE_BUFFER_BYTES: u64 = 64 << 20;
/// Read slots per core. A read from the block or the page cache keeps a core busy from end to end:
/// more readers than cores add waiting inside the slot, where no priority counts.
const READ_SLOTS_PER_CORE: u32 = 2;
/// Write slots, whatever the machine: RocksDB writes its log with one leader at a time; a second
/// writer queues up while the first is at it, more only wait where no priority counts.
const WRITE_SLOTS: u32 = 2;

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
            create_if_missing: true,
            control: Settings::default(),
        }
    }
}

impl StoreOptions {
    /// Checks them and makes the controller's configuration: two lanes of one scope.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        let mut settings = self.control.clone();
        settings.lanes = vec![
            LaneSettings::new("read", self.read_limit).scope("store"),
            LaneSettings::new("write", self.write_limit).scope("store"),
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
        options
    }
}
