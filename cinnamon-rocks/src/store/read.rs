//! Reading: one key, many keys, some rows.

use cinnamon_core::Request;

use super::{Row, Store};
use crate::cost::{Meter, scan_cost};
use crate::error::StoreError;
use crate::operation::Operation;
use crate::permit::StorePermit;

impl Store {
    /// The value of `key`.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed.
    pub fn get(&self, request: &Request, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let request = self.weigh(Operation::Get, 1, request);
        let permit = self.wait(Operation::Get, self.touched(), &request)?;
        self.get_with(permit, key)
    }

    /// The values of `keys`, in their order, read at one moment: one permit for all of them, at the cost of
    /// as many reads. RocksDB looks them up together, which is quicker than one by one.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed for one of the keys; then none is returned.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        request: &Request,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let request = self.weigh(Operation::MultiGet, number(keys.len()), request);
        let permit = self.wait(Operation::MultiGet, self.touched(), &request)?;
        self.multi_get_with(permit, keys)
    }

    /// At most `limit` rows in the order of their keys, from the first key not below `from`, under one
    /// permit. For many rows take [`Store::open_scan`], which gives way in between.
    ///
    /// It is charged by what it examined, tombstones and blocks included, and offered at what such scans
    /// came to before.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed.
    pub fn scan(&self, request: &Request, from: &[u8], limit: u32) -> Result<Vec<Row>, StoreError> {
        let request = self.weigh(Operation::Scan, limit, request);
        let permit = self.wait(Operation::Scan, self.touched(), &request)?;
        self.scan_with(permit, from, limit)
    }

    /// [`Store::get`] with a permit from [`Store::admit`].
    ///
    /// # Errors
    ///
    /// When RocksDB failed.
    pub fn get_with(
        &self,
        permit: impl Into<StorePermit>,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let family = self.handle()?;
        let meter = Meter::start();
        let value = self.inner.db.get_cf(family, key);
        let cost = meter.examined().points(1);
        if value.is_ok() {
            self.learn_points(1, cost);
        }
        self.finish_read(permit, value.map(|value| (value, cost)))
    }

    /// [`Store::multi_get`] with a permit from [`Store::admit`].
    ///
    /// # Errors
    ///
    /// When RocksDB failed for one of the keys.
    pub fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        permit: impl Into<StorePermit>,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let family = self.handle()?;
        let meter = Meter::start();
        let keys_of = keys.iter().map(AsRef::as_ref);
        let values = self.inner.db.batched_multi_get_cf(family, keys_of, false);
        let cost = meter.examined().points(keys.len());
        let values = values
            .into_iter()
            .map(|value| Ok(value?.map(|value| value.to_vec())));
        let values = values.collect::<Result<Vec<_>, rocksdb::Error>>();
        if values.is_ok() {
            self.learn_points(number(keys.len()), cost);
        }
        self.finish_read(permit, values.map(|values| (values, cost)))
    }

    /// [`Store::scan`] with a permit from [`Store::admit`].
    ///
    /// # Errors
    ///
    /// When RocksDB failed.
    pub fn scan_with(
        &self,
        permit: impl Into<StorePermit>,
        from: &[u8],
        limit: u32,
    ) -> Result<Vec<Row>, StoreError> {
        let family = self.handle()?;
        let meter = Meter::start();
        let mut iterator = self.inner.db.raw_iterator_cf(family);
        let mut rows: Vec<Row> = Vec::new();
        if limit > 0 {
            iterator.seek(from);
        }
        while rows.len() < limit as usize
            && let Some((key, value)) = iterator.item()
        {
            rows.push((key.into(), value.into()));
            // Not a step beyond the last: behind it may lie any number of tombstones.
            if rows.len() < limit as usize {
                iterator.next();
            }
        }
        let rows = iterator.status().map(|()| rows);
        let returned = rows.as_ref().map_or(0, Vec::len);
        let cost = meter.examined().scan(returned);
        if rows.is_ok() {
            self.learn_scan(scan_cost(limit), cost);
        }
        self.finish_read(permit, rows.map(|rows| (rows, cost)))
    }

    /// Gives the permit back with what the work came to.
    fn finish_read<T>(
        &self,
        permit: impl Into<StorePermit>,
        done: Result<(T, u32), rocksdb::Error>,
    ) -> Result<T, StoreError> {
        let touched = self.touched();
        self.inner.finish(touched, true, permit.into(), done)
    }
}

fn number(keys: usize) -> u32 {
    u32::try_from(keys).unwrap_or(u32::MAX)
}
