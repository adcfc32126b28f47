//! The store: admit, run, finish.

mod read;
mod write;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use cinnamon_core::{
    BuildError, Builder, Completion, Controller, Lane, Outcome, Request, Scope, Snapshot,
};
use rocksdb::{ColumnFamily, ColumnFamilyDescriptor, DB, ErrorKind, WriteOptions};

use crate::background::{BackgroundBytes, BackgroundWatch, Counters, Source};
use crate::cost::{
    BATCH_OPERATIONS_PER_UNIT, Experience, SYNCED_OPERATIONS_PER_UNIT, scan_cost, write_cost,
};
use crate::error::{OpenError, StoreError, UnknownFamily};
use crate::operation::Operation;
use crate::options::{DEFAULT_FAMILY, READ, SCOPE, StoreOptions, WRITE};
use crate::permit::{Admission, StorePermit};
use crate::scan::{Scan, ScanOptions};
use crate::utilisation::{Ledger, Served, Touched};
use crate::write_stall::{StallGauges, StallLevel, StallWatch, WriteStall, gauges};

pub use write::Batch;

/// A key and its value.
pub type Row = (Box<[u8]>, Box<[u8]>);

/// A RocksDB database whose every call passes admission first. A cheap handle; clones are one store.
///
/// A handle is on one column family, at first on `default`; [`Store::family`] gives one on another. All
/// share the lanes, the controller, the block cache and the log (WAL), which is always on.
///
/// A call blocks while it waits for admission and while RocksDB works, nothing else.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
    /// Index into the families of the store.
    family: usize,
}

/// What all handles share.
pub(crate) struct Inner {
    db: Arc<DB>,
    families: Vec<Family>,
    /// Of them, in their order.
    ledger: Arc<Ledger>,
    stall: Option<StallWatch>,
    background: Arc<Source>,
    controller: Controller,
    read: Lane,
    write: Lane,
    write_options: WriteOptions,
    /// Operations of a batch for the cost of one.
    operations_per_unit: u32,
}

/// A column family, and what reading it was found to cost.
struct Family {
    name: String,
    points: Experience,
    scans: Experience,
}

impl Store {
    /// Opens the store in this folder and starts its controller. Column families that the options name and
    /// the folder lacks are created.
    ///
    /// # Errors
    ///
    /// When an option is out of bounds or two of them do not go together, or when the folder has column
    /// families that the options do not name (nothing was touched then); when the control thread cannot be
    /// started, or RocksDB cannot open the folder.
    pub fn open(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self, OpenError> {
        Self::open_on(path.as_ref(), options, Builder::build)
    }

    /// The same, and `add` puts into the controller's builder what only the embedder knows: signals and observers of
    /// its own, such as a follower's lag or hot keys.
    ///
    /// ```
    /// use cinnamon_rocks::{Store, StoreOptions};
    /// use cinnamon_signals::HotKeys;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let (hot_keys, seen) = HotKeys::new();
    /// let add = |builder: cinnamon_core::Builder| builder.signal(hot_keys);
    /// let store = Store::open_with(folder.path(), StoreOptions::default(), add)?;
    /// seen.key(4711);
    /// # store.close();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Store::open`]; and when a signal is not what it must be.
    pub fn open_with(
        path: impl AsRef<Path>,
        options: StoreOptions,
        add: impl FnOnce(Builder) -> Builder,
    ) -> Result<Self, OpenError> {
        Self::open_on(path.as_ref(), options, |builder| add(builder).build())
    }

    /// The same with a controller that is built so: with another clock, or without threads.
    pub(crate) fn open_on(
        path: &Path,
        mut options: StoreOptions,
        build: impl FnOnce(Builder) -> Result<Controller, BuildError>,
    ) -> Result<Self, OpenError> {
        let config = options.config()?;
        options.adopt_families(path)?;
        let (db, counters) = open_database(path, &options)?;
        let background = Arc::new(Source::new(&db, counters));
        let mut builder = Controller::builder(config);
        let mut stall = None;
        if options.write_stall {
            let scope = if options.write_stall_sheds_reads {
                Scope::Scope(SCOPE.to_owned())
            } else {
                Scope::Lane(WRITE.to_owned())
            };
            let mut signal = WriteStall::new(&db, &options.triggers, options.write_buffer_bytes)?
                .bearing_on(scope);
            for family in &options.families {
                let (triggers, write_buffer_bytes) = options.of_family(family);
                signal = signal.family(&family.name, triggers, write_buffer_bytes)?;
            }
            stall = Some(signal.watch());
            builder = builder.signal(signal);
        }
        let controller = build(builder)?;
        let (read, write) = (controller.lane(READ)?, controller.lane(WRITE)?);
        let mut write_options = WriteOptions::default();
        write_options.set_sync(options.sync_writes);
        write_options.set_no_slowdown(options.no_slowdown);
        let ledger = Ledger::new(controller.clock(), options.slos().map(|(_, slos)| slos));
        let families = options.slos().map(|(name, _)| Family::new(name));
        let families = families.collect();
        Ok(Self {
            inner: Arc::new(Inner {
                db,
                families,
                ledger: Arc::new(ledger),
                stall,
                background,
                controller,
                read,
                write,
                write_options,
                operations_per_unit: if options.sync_writes {
                    SYNCED_OPERATIONS_PER_UNIT
                } else {
                    BATCH_OPERATIONS_PER_UNIT
                },
            }),
            family: 0,
        })
    }

    /// A handle on this column family. Get it once and keep it.
    ///
    /// # Errors
    ///
    /// When the store has none of that name.
    pub fn family(&self, name: &str) -> Result<Self, UnknownFamily> {
        let families = &self.inner.families;
        match families.iter().position(|family| family.name == name) {
            Some(family) => Ok(Self {
                inner: Arc::clone(&self.inner),
                family,
            }),
            None => Err(UnknownFamily {
                name: name.to_owned(),
                known: families.iter().map(|family| family.name.clone()).collect(),
            }),
        }
    }

    /// The name of the column family that this handle is on.
    #[must_use]
    pub fn family_name(&self) -> &str {
        &self.of_family().name
    }

    /// Asks for admission without blocking a thread: await it, or drive it with
    /// [`Admission::poll_admit`]; then spend the permit with the `…_with` method of the operation,
    /// on whatever thread. [`Store::weigh`] gives the request the cost that is to be expected. A refusal counts in
    /// [`Store::utilisation`] of this handle's column family.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue, as with [`Lane::admit`].
    pub fn admit(&self, operation: Operation, request: &Request) -> Admission {
        self.admit_touching(operation, self.touched(), request)
    }

    /// The same for a call that touches these column families.
    pub(crate) fn admit_touching(
        &self,
        operation: Operation,
        touched: Touched,
        request: &Request,
    ) -> Admission {
        Admission::new(self, operation, touched, request)
    }

    /// `request` at the cost that such an operation is to be expected to have in this column family. `size`
    /// is the rows that a scan asks for, the keys of a multi-get, the bytes of a put, and has no meaning
    /// for the others: a batch knows its own, [`Batch::weigh`].
    ///
    /// What scans and reads come to is learned: one that steps over a thousand tombstones for each row it
    /// returns is offered at what the last such ones were charged.
    pub fn weigh(&self, operation: Operation, size: u32, request: &Request) -> Request {
        let family = self.of_family();
        match operation {
            Operation::Scan => request.cost(family.scans.expect_scan(scan_cost(size))),
            Operation::Get => request.cost(family.points.expect_each(1)),
            Operation::MultiGet => request.cost(family.points.expect_each(size)),
            Operation::Put => request.cost(write_cost(size as usize)),
            Operation::Delete | Operation::Batch => *request,
        }
    }

    /// `request` at the cost of a scan that examines `limit` rows. [`Store::weigh`] knows better.
    pub const fn scan_request(request: &Request, limit: u32) -> Request {
        request.cost(scan_cost(limit))
    }

    /// A long scan, which is read in chunks: each takes a permit of its own, and between them more
    /// important work passes. Nothing is read before the first chunk is.
    ///
    /// [`Request::time_left`] of the request counts from now, over the whole scan; [`Request::max_wait`]
    /// is each chunk's. Give the request a [`Request::key`]: without one each chunk has another cohort.
    pub fn open_scan(&self, request: &Request, options: ScanOptions) -> Scan {
        Scan::new(self.clone(), request, options)
    }

    /// Writes a consistent copy of the store to `path`, which must not exist; files are hard-linked
    /// where the file system can. Not admitted: it is the operator's.
    ///
    /// # Errors
    ///
    /// When RocksDB failed.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<(), StoreError> {
        rocksdb::checkpoint::Checkpoint::new(&*self.inner.db)?.create_checkpoint(path)?;
        Ok(())
    }

    /// The controller, to observe and to steer.
    #[must_use]
    pub fn controller(&self) -> &Controller {
        &self.inner.controller
    }

    /// The controller at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.inner.controller.snapshot()
    }

    /// How near RocksDB was to delaying writes at the last sample of [`WriteStall`], in the column family
    /// that was worst off: `None` without that signal, before its first sample, and while RocksDB does not
    /// answer.
    #[must_use]
    pub fn stall_level(&self) -> Option<StallLevel> {
        self.inner.stall.as_ref().and_then(StallWatch::level)
    }

    /// What RocksDB says of a write stall at this moment in the column family of this handle. It takes the
    /// database's mutex for that, which writes take too: not for the path of a request.
    #[must_use]
    pub fn stall_gauges(&self) -> StallGauges {
        gauges(&self.inner.db, self.family_name())
    }

    /// What flushes and compactions have written since the store was opened: `None` without
    /// [`StoreOptions::count_background_bytes`]. It takes no lock.
    #[must_use]
    pub fn background_bytes(&self) -> Option<BackgroundBytes> {
        self.inner.background.bytes()
    }

    /// A watch of that, and of what RocksDB says of a write stall in the column family of this handle, for a signal that
    /// must not keep the store open.
    #[must_use]
    pub fn background(&self) -> BackgroundWatch {
        BackgroundWatch::new(
            Arc::clone(&self.inner.background),
            self.family_name().into(),
        )
    }

    /// Takes no more calls; who waits is refused as closed at once, who runs may finish. RocksDB
    /// itself is closed when the last handle is dropped, the last scan, the last batch, and the work of an
    /// [`AsyncStore`](crate::AsyncStore) that is still under way.
    pub fn close(&self) {
        self.inner.controller.close();
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(crate) fn lane(&self, operation: Operation) -> &Lane {
        if operation.reads() {
            &self.inner.read
        } else {
            &self.inner.write
        }
    }

    /// Waits for admission of a call that touches these column families.
    pub(crate) fn wait(
        &self,
        operation: Operation,
        touched: Touched,
        request: &Request,
    ) -> Result<StorePermit, StoreError> {
        let request = request.class(operation.class());
        let (ledger, reads) = (&self.inner.ledger, operation.reads());
        let offered_at = ledger.offered_at(touched, reads);
        match self.lane(operation).admit_blocking_owned(&request) {
            Ok(permit) => Ok(StorePermit::new(permit, offered_at)),
            Err(rejected) => {
                ledger.refused(touched, reads, rejected.reason());
                Err(rejected.into())
            }
        }
    }

    /// The column family of this handle.
    pub(crate) fn touched(&self) -> Touched {
        Touched::one(self.family)
    }

    /// RocksDB's handle of the column family.
    fn handle(&self) -> Result<&ColumnFamily, StoreError> {
        self.inner.handle(self.family)
    }

    pub(crate) const fn family_index(&self) -> usize {
        self.family
    }

    fn of_family(&self) -> &Family {
        &self.inner.families[self.family]
    }

    /// A scan that would have cost `asked` was charged `charged`.
    pub(crate) fn learn_scan(&self, asked: u32, charged: u32) {
        self.of_family().scans.learn(asked, charged);
    }

    /// Reading keys that would have cost `asked` was charged `charged`.
    fn learn_points(&self, asked: u32, charged: u32) {
        self.of_family().points.learn(asked, charged);
    }
}

impl Family {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            points: Experience::default(),
            scans: Experience::default(),
        }
    }
}

impl Inner {
    pub(crate) fn db(&self) -> &DB {
        &self.db
    }

    pub(crate) const fn stall(&self) -> Option<&StallWatch> {
        self.stall.as_ref()
    }

    pub(crate) const fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    pub(crate) fn name_of(&self, family: usize) -> &str {
        &self.families[family].name
    }

    /// Gives the permit back with what the work came to, and counts the call for those families.
    pub(crate) fn finish<T>(
        &self,
        touched: Touched,
        reads: bool,
        permit: StorePermit,
        done: Result<(T, u32), rocksdb::Error>,
    ) -> Result<T, StoreError> {
        let offered_at = permit.offered_at();
        let (completion, served) = match &done {
            Ok((_, cost)) => (Completion::success().cost(*cost), Served::Done),
            Err(error) => {
                let outcome = outcome(error);
                let served = match outcome {
                    Outcome::Overloaded => Served::Overloaded,
                    _ => Served::Failed,
                };
                (Completion::new(outcome), served)
            }
        };
        permit.finish(completion);
        self.ledger.ended(touched, reads, offered_at, served);
        Ok(done?.0)
    }

    /// RocksDB's handle of a column family.
    pub(crate) fn handle(&self, family: usize) -> Result<&ColumnFamily, StoreError> {
        let name = &self.families[family].name;
        // None is ever dropped while the store is open.
        self.db.cf_handle(name).ok_or_else(|| {
            StoreError::UnknownFamily(UnknownFamily {
                name: name.clone(),
                known: Vec::new(),
            })
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A sample under way would keep RocksDB open, and its folder locked, a moment longer than us.
        if let Some(stall) = &self.stall {
            stall.detach();
        }
        self.background.detach();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("path", &self.inner.db.path())
            .field("family", &self.family_name())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("path", &self.db.path())
            .finish_non_exhaustive()
    }
}

fn open_database(
    path: &Path,
    options: &StoreOptions,
) -> Result<(Arc<DB>, Option<Counters>), OpenError> {
    let cache = options.block_cache();
    let default = (
        DEFAULT_FAMILY,
        (&options.triggers, options.write_buffer_bytes),
    );
    let named = options
        .families
        .iter()
        .map(|family| (family.name.as_str(), options.of_family(family)));
    let descriptors = std::iter::once(default)
        .chain(named)
        .map(|(name, (triggers, bytes))| {
            ColumnFamilyDescriptor::new(name, options.rocksdb_family(&cache, triggers, bytes))
        });
    let mut of_database = options.rocksdb();
    let counted = options.count_background_bytes;
    let counters = counted.then(|| Counters::enable(&mut of_database));
    let db = DB::open_cf_descriptors(&of_database, path, descriptors)?;
    Ok((Arc::new(db), counters))
}

/// What a failure says of load. RocksDB reports a write that it would have to stall as `Incomplete`,
/// and contention as `Busy`, `TimedOut` and `TryAgain`.
fn outcome(error: &rocksdb::Error) -> Outcome {
    match error.kind() {
        ErrorKind::Incomplete | ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain => {
            Outcome::Overloaded
        }
        _ => Outcome::Failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_rocksdb_would_have_to_hold_back_is_an_overload() {
        // facebook/rocksdb#6625: a write stall came out as a plain failure.
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            write_buffer_bytes: 64 << 10,
            background_bytes_per_s: Some(40 << 10),
            no_slowdown: true,
            ..StoreOptions::default()
        };
        let store = Store::open(dir.path(), options).unwrap();
        let inner = &store.inner;
        let mut rng = cinnamon_core::simulation::Rng::new(1);
        let error = (0..500u64).find_map(|_| {
            // Noise, or next to nothing would have to be flushed.
            let value: Vec<u8> = (0..1_024).flat_map(|_| rng.bits().to_le_bytes()).collect();
            let key = rng.bits().to_le_bytes();
            inner.db.put_opt(key, value, &inner.write_options).err()
        });
        let error = error.expect("flushes are slower than writes");
        assert_eq!(error.kind(), ErrorKind::Incomplete);
        assert_eq!(outcome(&error), Outcome::Overloaded);
    }
}
