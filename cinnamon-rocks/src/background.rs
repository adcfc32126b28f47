//! What RocksDB's background work has done, for budgets that follow it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rocksdb::DB;
use rocksdb::statistics::{StatsLevel, Ticker};

use crate::write_stall::{StallGauges, gauges};

/// Bytes since the store was opened, over all of its column families. They only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackgroundBytes {
    /// Keys and values that callers wrote.
    pub written: u64,
    /// What flushes wrote to L0, compressed.
    pub flushed: u64,
    /// What compactions read of all levels.
    pub compaction_read: u64,
    /// What compactions wrote to all levels.
    pub compaction_written: u64,
}

/// A look at a store from the outside, for signals of the embedder's own. A cheap handle; clones are one.
///
/// It does not keep the store open, so a signal that has it may be the store's own:
///
/// ```
/// use std::sync::{Arc, OnceLock};
/// use cinnamon_core::{Clock, MonotonicClock};
/// use cinnamon_rocks::{BackgroundWatch, Store, StoreOptions};
/// use cinnamon_signals::{Sustained, WriteBytes};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let mut options = StoreOptions::default();
/// options.count_background_bytes = true;
/// // The store does not exist yet: until then the budget is not known.
/// let watch = Arc::new(OnceLock::<BackgroundWatch>::new());
/// let (seen, clock) = (Arc::clone(&watch), MonotonicClock::new());
/// let mut sustained = Sustained::new();
/// let (bytes, handle) = WriteBytes::following(move || {
///     let store = seen.get()?;
///     let behind = store.gauges()?.l0_files? >= 12;
///     sustained.look(clock.now(), store.bytes()?.flushed, behind)
/// });
/// let store = Store::open_with(folder.path(), options, |builder| builder.signal(bytes))?;
/// let _set_once = watch.set(store.background());
/// # drop(handle);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct BackgroundWatch {
    source: Arc<Source>,
    family: Arc<str>,
}

/// Where it reads.
pub(crate) struct Source {
    /// Held while RocksDB is read, so that [`Source::detach`] can wait for that.
    db: Mutex<Weak<DB>>,
    counters: Option<Counters>,
}

/// RocksDB's own counters. They are shared by all copies of the options that a database was opened with.
pub(crate) struct Counters(rocksdb::Options);

impl Counters {
    /// Lets a database that is opened with these options count. No time is taken and no histogram kept: what is left
    /// are additions to memory of the core that a call runs on.
    pub(crate) fn enable(options: &mut rocksdb::Options) -> Self {
        options.enable_statistics();
        options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        Self(options.clone())
    }

    fn bytes(&self) -> BackgroundBytes {
        BackgroundBytes {
            written: self.0.get_ticker_count(Ticker::BytesWritten),
            flushed: self.0.get_ticker_count(Ticker::FlushWriteBytes),
            compaction_read: self.0.get_ticker_count(Ticker::CompactReadBytes),
            compaction_written: self.0.get_ticker_count(Ticker::CompactWriteBytes),
        }
    }
}

impl Source {
    pub(crate) fn new(db: &Arc<DB>, counters: Option<Counters>) -> Self {
        Self {
            db: Mutex::new(Arc::downgrade(db)),
            counters,
        }
    }

    pub(crate) fn bytes(&self) -> Option<BackgroundBytes> {
        self.counters.as_ref().map(Counters::bytes)
    }

    /// Ends all reading of the database, after one under way, so that it is closed when its owner drops it.
    pub(crate) fn detach(&self) {
        *lock(&self.db) = Weak::new();
    }
}

impl BackgroundWatch {
    pub(crate) const fn new(source: Arc<Source>, family: Arc<str>) -> Self {
        Self { source, family }
    }

    /// As [`Store::background_bytes`](crate::Store::background_bytes).
    #[must_use]
    pub fn bytes(&self) -> Option<BackgroundBytes> {
        self.source.bytes()
    }

    /// As [`Store::stall_gauges`](crate::Store::stall_gauges) of the handle that gave this watch: `None` once the store is
    /// closed for good. It takes the database's mutex: not for the path of a request.
    #[must_use]
    pub fn gauges(&self) -> Option<StallGauges> {
        // Held until RocksDB is read and let go again.
        let open = lock(&self.source.db);
        let db = open.upgrade()?;
        Some(gauges(&db, &self.family))
    }
}

impl fmt::Debug for BackgroundWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundWatch")
            .field("family", &self.family)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
