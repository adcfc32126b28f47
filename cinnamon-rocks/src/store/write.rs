//! Writing: one key, or many at once.

use std::fmt;
use std::sync::Arc;

use cinnamon_core::Request;
use rocksdb::WriteBatch;

use super::{Inner, Store};
use crate::cost::{batch_cost, write_cost};
use crate::error::StoreError;
use crate::operation::Operation;
use crate::permit::StorePermit;
use crate::utilisation::Touched;

/// Writes that take place all or none, over any column families of one store. Made by [`Store::batch`].
#[must_use = "a batch does nothing until it is written"]
pub struct Batch {
    store: Arc<Inner>,
    writes: WriteBatch,
    operations: u32,
    bytes: usize,
    /// The column families that it writes to.
    touched: Touched,
    /// What was wrong with the first write that could not be taken.
    fault: Option<StoreError>,
}

impl Store {
    /// Sets `key` to `value`.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed.
    pub fn put(&self, request: &Request, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let permit = self.wait(
            Operation::Put,
            self.touched(),
            &request.cost(put_cost(key, value)),
        )?;
        self.put_with(permit, key, value)
    }

    /// Removes `key`. Removing what is not there is no error.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed.
    pub fn delete(&self, request: &Request, key: &[u8]) -> Result<(), StoreError> {
        let permit = self.wait(Operation::Delete, self.touched(), request)?;
        self.delete_with(permit, key)
    }

    /// A batch for [`Store::write`], empty.
    pub fn batch(&self) -> Batch {
        Batch {
            store: Arc::clone(&self.inner),
            writes: WriteBatch::default(),
            operations: 0,
            bytes: 0,
            touched: Touched::default(),
            fault: None,
        }
    }

    /// Writes the batch, all of it or nothing, under one permit. It costs what its bytes and the number of
    /// its operations come to.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed; or the batch names a column family of another store.
    pub fn write(&self, request: &Request, batch: Batch) -> Result<(), StoreError> {
        let batch = self.checked(batch)?;
        let permit = self.wait(Operation::Batch, batch.touched, &batch.weigh(request))?;
        self.write_with(permit, batch)
    }

    /// [`Store::put`] with a permit from [`Store::admit`].
    ///
    /// # Errors
    ///
    /// When RocksDB failed.
    pub fn put_with(
        &self,
        permit: impl Into<StorePermit>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StoreError> {
        let family = self.handle()?;
        let inner = &self.inner;
        let put = inner
            .db
            .put_cf_opt(family, key, value, &inner.write_options);
        self.finish_write(
            self.touched(),
            permit,
            put.map(|()| ((), put_cost(key, value))),
        )
    }

    /// [`Store::delete`] with a permit from [`Store::admit`].
    ///
    /// # Errors
    ///
    /// When RocksDB failed.
    pub fn delete_with(
        &self,
        permit: impl Into<StorePermit>,
        key: &[u8],
    ) -> Result<(), StoreError> {
        let family = self.handle()?;
        let inner = &self.inner;
        let delete = inner.db.delete_cf_opt(family, key, &inner.write_options);
        self.finish_write(self.touched(), permit, delete.map(|()| ((), 1)))
    }

    /// [`Store::write`] with a permit from [`Store::admit`], asked for with [`Operation::Batch`].
    ///
    /// # Errors
    ///
    /// When RocksDB failed, or the batch names a column family of another store.
    pub fn write_with(
        &self,
        permit: impl Into<StorePermit>,
        batch: Batch,
    ) -> Result<(), StoreError> {
        let batch = self.checked(batch)?;
        let (cost, touched) = (batch.cost(), batch.touched);
        let inner = &self.inner;
        let written = inner.db.write_opt(batch.writes, &inner.write_options);
        self.finish_write(touched, permit, written.map(|()| ((), cost)))
    }

    /// Gives the permit back with what the work came to.
    fn finish_write(
        &self,
        touched: Touched,
        permit: impl Into<StorePermit>,
        done: Result<((), u32), rocksdb::Error>,
    ) -> Result<(), StoreError> {
        self.inner.finish(touched, false, permit.into(), done)
    }

    pub(crate) fn checked(&self, mut batch: Batch) -> Result<Batch, StoreError> {
        if !Arc::ptr_eq(&self.inner, &batch.store) {
            return Err(StoreError::OtherStore);
        }
        batch.fault.take().map_or(Ok(batch), Err)
    }
}

impl Batch {
    /// Sets `key` to `value` in the column family of this handle. A handle on another store makes
    /// [`Store::write`] fail.
    pub fn put(&mut self, family: &Store, key: &[u8], value: &[u8]) -> &mut Self {
        self.take(family, key.len() + value.len(), |batch, handle| {
            batch.put_cf(handle, key, value);
        })
    }

    /// Removes `key` from the column family of this handle. A handle on another store makes
    /// [`Store::write`] fail.
    pub fn delete(&mut self, family: &Store, key: &[u8]) -> &mut Self {
        self.take(family, key.len(), |batch, handle| {
            batch.delete_cf(handle, key);
        })
    }

    /// How many writes it holds.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.operations
    }

    /// Whether it holds no write.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.operations == 0
    }

    /// Bytes of its keys and values.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// `request` at the cost of this batch, for [`Store::admit`].
    pub fn weigh(&self, request: &Request) -> Request {
        request.cost(self.cost())
    }

    pub(crate) const fn touched(&self) -> Touched {
        self.touched
    }

    fn cost(&self) -> u32 {
        batch_cost(self.operations, self.bytes, self.store.operations_per_unit)
    }

    fn take(
        &mut self,
        family: &Store,
        bytes: usize,
        write: impl FnOnce(&mut WriteBatch, &rocksdb::ColumnFamily),
    ) -> &mut Self {
        if !Arc::ptr_eq(&self.store, &family.inner) {
            self.fault.get_or_insert(StoreError::OtherStore);
            return self;
        }
        match self.store.handle(family.family) {
            Ok(handle) => {
                write(&mut self.writes, handle);
                self.touched.add(family.family);
                self.operations = self.operations.saturating_add(1);
                self.bytes = self.bytes.saturating_add(bytes);
            }
            Err(error) => {
                self.fault.get_or_insert(error);
            }
        }
        self
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("operations", &self.operations)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

fn put_cost(key: &[u8], value: &[u8]) -> u32 {
    write_cost(key.len() + value.len())
}
