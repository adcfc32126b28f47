//! The store for asynchronous programs, on any runtime or none.

mod scan;

use std::sync::Arc;

use cinnamon_core::{ConfigError, LaneSnapshot, Request};
use cinnamon_signals::Utilisation;
use futures_channel::oneshot;

use crate::error::{PoolError, StoreError, UnknownFamily};
use crate::operation::Operation;
use crate::permit::StorePermit;
use crate::pool::{Pool, PoolClosed};
use crate::scan::ScanOptions;
use crate::store::{Batch, Row, Store};
use crate::utilisation::Touched;

pub use scan::AsyncScan;

/// Most threads of an [`AsyncStore`]: slots beyond that are more than any disk works on at once, and threads
/// that only wait for it.
pub const THREADS_MAX: u32 = 1_024;

/// A [`Store`] whose calls are futures: admission is awaited, and RocksDB works on threads of the store's own.
///
/// ```text
///   task ── request ──► lane ── permit ──► thread ──► RocksDB
///             waits here, by priority      never waits here
/// ```
///
/// **Nothing queues behind the queue.** The permit is taken before the hand-over, and there may be as many
/// threads as both lanes have slots, so who was admitted finds one. Threads are started as they are needed.
/// When a limit is raised while the store runs, the pool grows with it, up to [`THREADS_MAX`]; when one is lowered, the
/// threads that are too many idle. Only work without a slot can wait for a thread, or keep others waiting: exempt
/// work, what [`AsyncStore::run`] does after its permit is spent, and all of it under [`Mode::Monitor`](cinnamon_core::Mode) and [`Mode::Off`](cinnamon_core::Mode), where nothing is protected anyway.
///
/// **Any runtime.** The futures need no timer and no reactor. Two threads of the controller and those of the
/// pool wake them.
///
/// A cheap handle; clones share the store and its threads. When the last one is dropped, what was begun is
/// still done, and the database stays open until it is; the threads are not waited for ([`AsyncStore::shutdown`] waits). Whoever drops the last of all
/// handles closes RocksDB on that thread, which takes as long as RocksDB does.
///
/// # Cancel safety
///
/// A future that is dropped while it waits for admission leaves the queue, and nothing was done. One that is
/// dropped while RocksDB works loses the answer: the work is done to its end, and holds its slot until then,
/// for the thread and the disk are as busy as if somebody waited. So a write that was cancelled may have
/// happened.
///
/// # Examples
///
/// ```
/// use cinnamon_rocks::{AsyncStore, Request, Store, StoreOptions, Tier};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path();
/// let store = AsyncStore::new(Store::open(path, StoreOptions::default())?)?;
/// let request = Request::new(Tier::T1).key(4711);
/// store.put(&request, b"greeting", b"hello").await?;
/// assert_eq!(store.get(&request, b"greeting").await?, Some(b"hello".to_vec()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AsyncStore {
    store: Store,
    pool: Arc<Pool>,
}

impl AsyncStore {
    /// The same store, with threads. It starts one; the others follow when they are needed.
    ///
    /// # Errors
    ///
    /// When both lanes together have more than [`THREADS_MAX`] slots or may come to more by themselves, or no thread
    /// can be started.
    pub fn new(store: Store) -> Result<Self, PoolError> {
        let most = slots(&store, |lane| lane.limit_max);
        ConfigError::within("read_limit + write_limit", most, 2, THREADS_MAX)?;
        let slots = slots(&store, |lane| lane.limit);
        let pool = Pool::new(slots as usize).map_err(PoolError::Thread)?;
        Ok(Self {
            store,
            pool: Arc::new(pool),
        })
    }

    /// The store, for what is not here: its controller, snapshots, a checkpoint.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Ends it: takes no more calls, as [`Store::close`] does, and blocks until all that was begun is done and its threads
    /// have ended. From then on they hold nothing of the database, so that whoever drops the last handle closes RocksDB
    /// there and then; at the end of a program this is to be had before `main` returns. All clones are ended. Ending it twice
    /// is ending it once.
    ///
    /// It waits for as long as the slowest call takes; [`Controller::drain`](cinnamon_core::Controller::drain) beforehand lets
    /// who waits have their turn, and has a time limit. In asynchronous code call it where blocking is allowed. Called on one
    /// of its own threads, by [`AsyncStore::run`], it waits for all others.
    pub fn shutdown(&self) {
        self.store.close();
        self.pool.join();
    }

    /// A handle on this column family, with the same threads.
    ///
    /// # Errors
    ///
    /// When the store has none of that name.
    pub fn family(&self, name: &str) -> Result<Self, UnknownFamily> {
        Ok(Self {
            store: self.store.family(name)?,
            pool: Arc::clone(&self.pool),
        })
    }

    /// How each column family is served, for callers upstream; see [`Store::utilisation`]. It waits for nothing: it is
    /// quick enough for a task.
    ///
    /// A call whose future is dropped while RocksDB works counts when it is done. One that is dropped while it waits
    /// counts as slow once it has waited for longer than was promised.
    #[must_use]
    pub fn utilisation(&self) -> Vec<Utilisation> {
        self.store.utilisation()
    }

    /// [`AsyncStore::utilisation`] of the column family of this handle.
    #[must_use]
    pub fn family_utilisation(&self) -> Utilisation {
        self.store.family_utilisation()
    }

    /// The value of `key`.
    ///
    /// # Cancel safety
    ///
    /// As [`AsyncStore`] says.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed.
    pub async fn get(&self, request: &Request, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let request = self.store.weigh(Operation::Get, 1, request);
        let request = request.bytes_at_least(bytes([key]));
        let key = key.to_vec();
        let work = move |store: &Store, permit: StorePermit| store.get_with(permit, &key);
        self.run(Operation::Get, &request, work).await
    }

    /// The values of `keys`, in their order; see [`Store::multi_get`].
    ///
    /// # Cancel safety
    ///
    /// As [`AsyncStore`] says.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed for one of the keys; then none is returned.
    pub async fn multi_get(
        &self,
        request: &Request,
        keys: Vec<Vec<u8>>,
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let size = u32::try_from(keys.len()).unwrap_or(u32::MAX);
        let request = self.store.weigh(Operation::MultiGet, size, request);
        let request = request.bytes_at_least(bytes(keys.iter().map(Vec::as_slice)));
        let work = move |store: &Store, permit: StorePermit| store.multi_get_with(permit, &keys);
        self.run(Operation::MultiGet, &request, work).await
    }

    /// At most `limit` rows from the first key not below `from`; see [`Store::scan`].
    ///
    /// # Cancel safety
    ///
    /// As [`AsyncStore`] says.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed.
    pub async fn scan(
        &self,
        request: &Request,
        from: &[u8],
        limit: u32,
    ) -> Result<Vec<Row>, StoreError> {
        let request = self.store.weigh(Operation::Scan, limit, request);
        let request = request.bytes_at_least(bytes([from]));
        let from = from.to_vec();
        let work = move |store: &Store, permit: StorePermit| store.scan_with(permit, &from, limit);
        self.run(Operation::Scan, &request, work).await
    }

    /// A long scan, which is read in chunks; see [`Store::open_scan`].
    pub fn open_scan(&self, request: &Request, options: ScanOptions) -> AsyncScan {
        AsyncScan::new(self.clone(), self.store.open_scan(request, options))
    }

    /// Sets `key` to `value`.
    ///
    /// # Cancel safety
    ///
    /// As [`AsyncStore`] says.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed.
    pub async fn put(&self, request: &Request, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let size = bytes([key, value]);
        let request = self.store.weigh(Operation::Put, size, request);
        let request = request.bytes_at_least(size);
        let (key, value) = (key.to_vec(), value.to_vec());
        let work = move |store: &Store, permit: StorePermit| store.put_with(permit, &key, &value);
        self.run(Operation::Put, &request, work).await
    }

    /// Removes `key`. Removing what is not there is no error.
    ///
    /// # Cancel safety
    ///
    /// As [`AsyncStore`] says.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed.
    pub async fn delete(&self, request: &Request, key: &[u8]) -> Result<(), StoreError> {
        let request = request.bytes_at_least(bytes([key]));
        let key = key.to_vec();
        let work = move |store: &Store, permit: StorePermit| store.delete_with(permit, &key);
        self.run(Operation::Delete, &request, work).await
    }

    /// A batch for [`AsyncStore::write`], empty. It is filled with handles of the [`AsyncStore::store`].
    pub fn batch(&self) -> Batch {
        self.store.batch()
    }

    /// Writes the batch, all of it or nothing; see [`Store::write`].
    ///
    /// # Cancel safety
    ///
    /// As [`AsyncStore`] says.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed; or the batch names a column family of another store.
    pub async fn write(&self, request: &Request, batch: Batch) -> Result<(), StoreError> {
        let batch = self.store.checked(batch)?;
        let request = batch
            .weigh(request)
            .bytes_at_least(u32::try_from(batch.bytes()).unwrap_or(u32::MAX));
        let touched = batch.touched();
        let work = move |store: &Store, permit: StorePermit| store.write_with(permit, batch);
        self.run_touching(Operation::Batch, touched, &request, work)
            .await
    }

    /// Work of your own, under one permit of this operation's lane and on one of the store's threads. Spend the
    /// permit with a `…_with` method, or [`StorePermit::finish`] it; work inside it takes
    /// [`StorePermit::nested`] ones.
    ///
    /// Spend it last, and wait for no other admission in `work`, as [`Store::put`] does: without a slot and with a
    /// thread it would keep those who have a slot from their thread, and could wait for them in a circle until
    /// its admission expires. What needs both lanes is two calls, one after the other.
    ///
    /// # Cancel safety
    ///
    /// As [`AsyncStore`] says.
    ///
    /// # Errors
    ///
    /// Refused or closed; what `work` says; or it panicked, which frees its slot and costs no thread.
    pub async fn run<T, W>(
        &self,
        operation: Operation,
        request: &Request,
        work: W,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Store, StorePermit) -> Result<T, StoreError> + Send + 'static,
    {
        let touched = self.store.touched();
        self.run_touching(operation, touched, request, work).await
    }

    /// The same for a call that touches these column families.
    async fn run_touching<T, W>(
        &self,
        operation: Operation,
        touched: Touched,
        request: &Request,
        work: W,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Store, StorePermit) -> Result<T, StoreError> + Send + 'static,
    {
        let admission = self.store.admit_touching(operation, touched, request);
        let permit = admission.await?;
        let store = self.store.clone();
        let answer = self.hand_over(move || work(&store, permit))?;
        // Without an answer the work unwound.
        answer.await.unwrap_or(Err(StoreError::Panicked))
    }

    /// Begins the work on a thread; what it comes to can be fetched, or not.
    fn hand_over<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let job = move || {
            // Nobody need be there any more.
            drop(sender.send(work()));
        };
        let store = &self.store;
        let threads_max = || slots(store, |lane| lane.limit).min(THREADS_MAX) as usize;
        let taken = self.pool.submit(Box::new(job), threads_max);
        taken.map_err(|PoolClosed| StoreError::Closed)?;
        Ok(receiver)
    }
}

/// What a call holds while it waits: its own copies.
fn bytes<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let size = parts.into_iter().map(|part| part.len() as u64).sum::<u64>();
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// Slots of both lanes, as they stand now.
fn slots(store: &Store, of: fn(&LaneSnapshot) -> u32) -> u32 {
    [Operation::Get, Operation::Put]
        .map(|operation| of(&store.lane(operation).snapshot()))
        .into_iter()
        .fold(0, u32::saturating_add)
}
