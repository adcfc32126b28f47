//! The store: admit, run, finish.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use cinnamon_core::{
    AdmitOwned, Class, Completion, Controller, Lane, Outcome, OwnedPermit, Request, Scope, Snapshot,
};
use rocksdb::{DB, Direction, ErrorKind, IteratorMode, WriteOptions};

use crate::error::{OpenError, StoreError};
use crate::options::{SCOPE, StoreOptions};
use crate::write_stall::{StallGauges, StallLevel, StallWatch, WriteStall, gauges};

/// A key and its value.
pub type Row = (Box<[u8]>, Box<[u8]>);

/// Rows a scan examines for the cost of one point read. Measured on cached blocks: a point read takes
/// about as long as stepping over this many rows.
const SCAN_ROWS_PER_UNIT: u32 = 16;
/// Bytes a write carries for the cost of one: what fits a block.
const WRITE_BYTES_PER_UNIT: u32 = 4_096;

/// A RocksDB database whose every call passes admission first. A cheap handle; clones are one store.
///
/// A call blocks while it waits for admission and while RocksDB works, nothing else. The log (WAL) is
/// always on.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    db: Arc<DB>,
    stall: Option<StallWatch>,
    controller: Controller,
    read: Lane,
    write: Lane,
    write_options: WriteOptions,
}

/// What a call does. Each kind is a class of its own to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Read one key.
    Get,
    /// Read rows in order.
    Scan,
    /// Write one key.
    Put,
    /// Remove one key.
    Delete,
}

impl Operation {
    pub(crate) const ALL: [Self; 4] = [Self::Get, Self::Scan, Self::Put, Self::Delete];

    /// Its class to the controller.
    #[must_use]
    pub const fn class(self) -> Class {
        Class(self as u16)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Scan => "scan",
            Self::Put => "put",
            Self::Delete => "delete",
        }
    }
}

impl Store {
    /// Opens the store in this folder and starts its controller.
    ///
    /// # Errors
    ///
    /// When an option is out of bounds (nothing was touched then), the control thread cannot be
    /// started, or RocksDB cannot open the folder.
    pub fn open(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self, OpenError> {
        let config = options.config()?;
        let db = Arc::new(DB::open(&options.rocksdb(), path)?);
        let mut builder = Controller::builder(config);
        let mut stall = None;
        if options.write_stall {
            let signal = WriteStall::new(&db, &options.triggers, options.write_buffer_bytes)?
                .bearing_on(Scope::Scope(SCOPE.to_owned()));
            stall = Some(signal.watch());
            builder = builder.signal(signal);
        }
        let controller = builder.build()?;
        let (read, write) = (controller.lane("read")?, controller.lane("write")?);
        let mut write_options = WriteOptions::default();
        write_options.set_sync(options.sync_writes);
        write_options.set_no_slowdown(options.no_slowdown);
        Ok(Self {
            inner: Arc::new(Inner {
                db,
                stall,
                controller,
                read,
                write,
                write_options,
            }),
        })
    }

    /// The value of `key`.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed.
    pub fn get(&self, request: &Request, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let permit = self.wait(Operation::Get, request)?;
        self.get_with(permit, key)
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed.
    pub fn put(&self, request: &Request, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let permit = self.wait(Operation::Put, &request.cost(write_cost(key, value)))?;
        self.put_with(permit, key, value)
    }

    /// Removes `key`. Removing what is not there is no error.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed.
    pub fn delete(&self, request: &Request, key: &[u8]) -> Result<(), StoreError> {
        let permit = self.wait(Operation::Delete, request)?;
        self.delete_with(permit, key)
    }

    /// At most `limit` rows in the order of their keys, from the first key not below `from`.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed.
    pub fn scan(&self, request: &Request, from: &[u8], limit: u32) -> Result<Vec<Row>, StoreError> {
        let permit = self.wait(Operation::Scan, &request.cost(scan_cost(limit)))?;
        self.scan_with(permit, from, limit)
    }

    /// Asks for admission without blocking a thread: await it, or drive it with
    /// [`AdmitOwned::poll_admit`]; then spend the permit with the `…_with` method of the operation,
    /// on whatever thread. A scan should be given its [`Request::cost`] by [`Store::scan_request`].
    pub fn admit(&self, operation: Operation, request: &Request) -> AdmitOwned {
        let lane = match operation {
            Operation::Get | Operation::Scan => &self.inner.read,
            Operation::Put | Operation::Delete => &self.inner.write,
        };
        lane.admit_owned(&request.class(operation.class()))
    }

    /// `request` at the cost of a scan of `limit` rows.
    pub const fn scan_request(request: &Request, limit: u32) -> Request {
        request.cost(scan_cost(limit))
    }

    /// [`Store::get`] with a permit from [`Store::admit`].
    ///
    /// # Errors
    ///
    /// When RocksDB failed.
    pub fn get_with(&self, permit: OwnedPermit, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        finish(permit, self.inner.db.get(key).map(|value| (value, 1)))
    }

    /// [`Store::put`] with a permit from [`Store::admit`].
    ///
    /// # Errors
    ///
    /// When RocksDB failed.
    pub fn put_with(
        &self,
        permit: OwnedPermit,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StoreError> {
        let put = self.inner.db.put_opt(key, value, &self.inner.write_options);
        finish(permit, put.map(|()| ((), write_cost(key, value))))
    }

    /// [`Store::delete`] with a permit from [`Store::admit`].
    ///
    /// # Errors
    ///
    /// When RocksDB failed.
    pub fn delete_with(&self, permit: OwnedPermit, key: &[u8]) -> Result<(), StoreError> {
        let delete = self.inner.db.delete_opt(key, &self.inner.write_options);
        finish(permit, delete.map(|()| ((), 1)))
    }

    /// [`Store::scan`] with a permit from [`Store::admit`].
    ///
    /// # Errors
    ///
    /// When RocksDB failed.
    pub fn scan_with(
        &self,
        permit: OwnedPermit,
        from: &[u8],
        limit: u32,
    ) -> Result<Vec<Row>, StoreError> {
        let rows = self
            .inner
            .db
            .iterator(IteratorMode::From(from, Direction::Forward));
        let rows: Result<Vec<Row>, _> = rows.take(limit as usize).collect();
        // Charged by what it examined, not by what it was allowed to.
        finish(
            permit,
            rows.map(|rows| {
                let cost = scan_cost(rows.len() as u32);
                (rows, cost)
            }),
        )
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

    /// How near RocksDB was to delaying writes at the last sample of [`WriteStall`]: `None` without that
    /// signal, before its first sample, and while RocksDB does not answer.
    #[must_use]
    pub fn stall_level(&self) -> Option<StallLevel> {
        self.inner.stall.as_ref().and_then(StallWatch::level)
    }

    /// What RocksDB says of a write stall at this moment. It takes the database's mutex for that, which
    /// writes take too: not for the path of a request.
    #[must_use]
    pub fn stall_gauges(&self) -> StallGauges {
        gauges(&self.inner.db)
    }

    /// Takes no more calls; who waits is refused as closed at once, who runs may finish. RocksDB
    /// itself is closed when the last handle is dropped.
    pub fn close(&self) {
        self.inner.controller.close();
    }

    fn wait(&self, operation: Operation, request: &Request) -> Result<OwnedPermit, StoreError> {
        let lane = match operation {
            Operation::Get | Operation::Scan => &self.inner.read,
            Operation::Put | Operation::Delete => &self.inner.write,
        };
        Ok(lane.admit_blocking_owned(&request.class(operation.class()))?)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A sample under way would keep RocksDB open, and its folder locked, a moment longer than us.
        if let Some(stall) = &self.stall {
            stall.detach();
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("path", &self.inner.db.path())
            .finish_non_exhaustive()
    }
}

const fn scan_cost(rows: u32) -> u32 {
    1 + rows / SCAN_ROWS_PER_UNIT
}

fn write_cost(key: &[u8], value: &[u8]) -> u32 {
    let bytes = u32::try_from(key.len() + value.len()).unwrap_or(u32::MAX);
    1 + bytes / WRITE_BYTES_PER_UNIT
}

/// Gives the permit back with what the work came to.
fn finish<T>(permit: OwnedPermit, done: Result<(T, u32), rocksdb::Error>) -> Result<T, StoreError> {
    match done {
        Ok((value, cost)) => {
            permit.finish(Completion::success().cost(cost));
            Ok(value)
        }
        Err(error) => {
            permit.finish(Completion::new(outcome(&error)));
            Err(StoreError::Rocks(error))
        }
    }
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
