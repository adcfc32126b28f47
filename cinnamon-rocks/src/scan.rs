//! Long scans: in chunks, each under a permit of its own.

mod cursor;

use std::fmt;
use std::sync::Arc;

use cinnamon_core::Request;
use rocksdb::ReadOptions;

use crate::cost::{Meter, scan_cost};
use crate::error::{ScanError, StoreError};
use crate::operation::Operation;
use crate::permit::{Admission, StorePermit};
use crate::store::{Row, Store};

use cursor::{Cursor, RawIterator};

/// Rows of one chunk: 17 point reads' worth, well below a millisecond from the cache. Much smaller, and the
/// admission is felt beside the work; much larger, and more important work waits longer for the slot.
pub const DEFAULT_CHUNK_ROWS: u32 = 256;
/// Bytes of one chunk, keys and values: what a chunk of large rows holds in memory.
pub const DEFAULT_CHUNK_BYTES: u64 = 256 << 10;
/// Rows and tombstones that one chunk examines: sixteen times what it returns of clean rows.
pub const DEFAULT_CHUNK_EXAMINED: u64 = 16 * DEFAULT_CHUNK_ROWS as u64;

/// What a long scan reads, and in which steps. Start from [`ScanOptions::default`]: all rows, first to last.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScanOptions {
    /// The least key. Default (`None`): the first there is.
    pub from: Option<Vec<u8>>,
    /// The first key beyond. Default (`None`): none.
    pub to: Option<Vec<u8>>,
    /// Whether to begin at the end and go down. Default `false`.
    pub reverse: bool,
    /// Rows of the whole scan, at most. Default (`None`): all there are.
    pub rows_max: Option<u64>,
    /// Rows of one chunk, at most; 0 counts as 1. Default [`DEFAULT_CHUNK_ROWS`].
    pub chunk_rows: u32,
    /// Bytes of one chunk, keys and values: it ends with the row that reaches them. Default
    /// [`DEFAULT_CHUNK_BYTES`].
    pub chunk_bytes: u64,
    /// Rows and tombstones that one chunk steps over: it ends with the row that reaches them. A single run
    /// of tombstones is one step to RocksDB, and is not cut. Default [`DEFAULT_CHUNK_EXAMINED`].
    pub chunk_examined: u64,
    /// Whether blocks that are read go to the block cache. `false` keeps a scan of everything from washing
    /// out what others need. Default `true`.
    pub fill_cache: bool,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            from: None,
            to: None,
            reverse: false,
            rows_max: None,
            chunk_rows: DEFAULT_CHUNK_ROWS,
            chunk_bytes: DEFAULT_CHUNK_BYTES,
            chunk_examined: DEFAULT_CHUNK_EXAMINED,
            fill_cache: true,
        }
    }
}

impl ScanOptions {
    /// The key at which what is left begins: the least one of a scan upwards, the first one beyond of a scan
    /// downwards.
    fn start(&self) -> Option<&[u8]> {
        let start = if self.reverse { &self.to } else { &self.from };
        start.as_deref()
    }
}

/// A long scan under way; see [`Store::open_scan`].
///
/// All chunks show the store as it was when the first one was read, whatever is written meanwhile. For that
/// RocksDB keeps what is overwritten and deleted since, memtables and files, until the scan is over or
/// dropped: a scan that is left lying costs memory and disk.
///
/// No slot is held between chunks. Dropped at any time, it frees all it holds.
pub struct Scan {
    store: Store,
    /// Its deadline is an instant: time goes on between chunks.
    request: Request,
    /// What is left.
    rest: ScanOptions,
    cursor: Option<Cursor>,
    step: Step,
}

/// What brings the iterator to the next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It must look for it: nothing was read yet, or RocksDB failed.
    Seek,
    /// It stands on the last row that was returned.
    Advance,
    /// There is none.
    Over,
}

/// What a chunk came to.
struct Read {
    rows: Vec<Row>,
    cost: u32,
}

impl Scan {
    pub(crate) fn new(store: Store, request: &Request, options: ScanOptions) -> Self {
        let now = store.controller().clock().now();
        let step = if options.rows_max == Some(0) {
            Step::Over
        } else {
            Step::Seek
        };
        Self {
            store,
            request: request.starting_at(now),
            rest: options,
            cursor: None,
            step,
        }
    }

    /// The next rows; `None` when there are no more. Waits for admission on the calling thread.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed, with the key from which to go on. Nothing is lost: called again,
    /// later or after [`Scan::set_request`], it goes on where it was, on the same state of the store.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<Row>>, ScanError> {
        if self.is_over() {
            return Ok(None);
        }
        let request = self.weighed();
        let touched = self.store.touched();
        match self.store.wait(Operation::Scan, touched, &request) {
            Ok(permit) => self.next_chunk_with(permit),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Asks for admission of the next chunk without blocking a thread, for [`Scan::next_chunk_with`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue; the scan stays where it is.
    pub fn admit(&self) -> Admission {
        self.store.admit(Operation::Scan, &self.weighed())
    }

    /// [`Scan::next_chunk`] with a permit from [`Scan::admit`].
    ///
    /// # Errors
    ///
    /// When RocksDB failed. Called again with another permit, it tries anew from the same row, on the same
    /// state of the store.
    pub fn next_chunk_with(
        &mut self,
        permit: impl Into<StorePermit>,
    ) -> Result<Option<Vec<Row>>, ScanError> {
        if self.is_over() {
            return Ok(None);
        }
        let asked = scan_cost(self.rows_wanted());
        let done = match self.read() {
            Ok(read) => {
                self.store.learn_scan(asked, read.cost);
                Ok((read.rows, read.cost))
            }
            Err(StoreError::Rocks(error)) => Err(error),
            Err(other) => return Err(self.failed(other)),
        };
        let (inner, touched) = (self.store.inner(), self.store.touched());
        match inner.finish(touched, true, permit.into(), done) {
            Ok(rows) => Ok((!rows.is_empty()).then_some(rows)),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Whether all rows were returned. It may be that no row is left while this still says `false`: then the
    /// next chunk is `None`.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.step == Step::Over
    }

    /// The key from which to resume: the next key is not below it or, in reverse, below it. `None` before the
    /// first row, unless the scan has a bound where it begins.
    #[must_use]
    pub fn resume_at(&self) -> Option<&[u8]> {
        self.rest.start()
    }

    /// What is left, as the options of another scan, for one that cannot be kept: it shows the store as it is
    /// then.
    #[must_use]
    pub const fn rest(&self) -> &ScanOptions {
        &self.rest
    }

    /// Goes on on behalf of this request: with another deadline, tier or attempt. Its
    /// [`Request::time_left`] counts from now.
    pub fn set_request(&mut self, request: &Request) {
        let now = self.store.controller().clock().now();
        self.request = request.starting_at(now);
    }

    /// What was not read is looked for again.
    fn failed(&mut self, error: StoreError) -> ScanError {
        self.step = Step::Seek;
        self.error(error)
    }

    pub(crate) fn error(&self, error: impl Into<StoreError>) -> ScanError {
        ScanError {
            error: error.into(),
            resume_at: self.resume_at().map(<[u8]>::to_vec),
        }
    }

    /// The request at the cost that the next chunk is to be expected to have.
    fn weighed(&self) -> Request {
        self.store
            .weigh(Operation::Scan, self.rows_wanted(), &self.request)
    }

    /// Rows of the next chunk, at most.
    fn rows_wanted(&self) -> u32 {
        let left = self.rest.rows_max.unwrap_or(u64::MAX);
        left.min(u64::from(self.rest.chunk_rows.max(1))) as u32
    }

    fn read(&mut self) -> Result<Read, StoreError> {
        let wanted = self.rows_wanted();
        let meter = Meter::start();
        let mut cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None => open(&self.store, &self.rest)?,
        };
        // Should it unwind, or fail, the next one looks for its place again.
        let step = std::mem::replace(&mut self.step, Step::Seek);
        let rest = &self.rest;
        let read = cursor
            .with_dependent_mut(|_, iterator| read_chunk(iterator, rest, step, wanted, meter));
        self.cursor = Some(cursor);
        let (rows, over) = read?;
        let cost = meter.examined().scan(rows.len());
        if let Some((key, _)) = rows.last() {
            self.step_past(key);
        }
        if let Some(left) = &mut self.rest.rows_max {
            *left = left.saturating_sub(rows.len() as u64);
        }
        if over || self.rest.rows_max == Some(0) {
            self.step = Step::Over;
            // What RocksDB kept for it can go.
            self.cursor = None;
        } else {
            self.step = Step::Advance;
        }
        Ok(Read { rows, cost })
    }

    /// What is left begins behind this key.
    fn step_past(&mut self, key: &[u8]) {
        if self.rest.reverse {
            self.rest.to = Some(key.to_vec());
        } else {
            // The least key above it.
            let mut next = key.to_vec();
            next.push(0);
            self.rest.from = Some(next);
        }
    }
}

fn open(store: &Store, options: &ScanOptions) -> Result<Cursor, StoreError> {
    let mut read = ReadOptions::default();
    if let Some(from) = &options.from {
        read.set_iterate_lower_bound(from.clone());
    }
    if let Some(to) = &options.to {
        read.set_iterate_upper_bound(to.clone());
    }
    read.fill_cache(options.fill_cache);
    // Files that nobody needs but this scan are deleted by a thread of RocksDB's, not by whoever drops it.
    read.set_background_purge_on_iterator_cleanup(true);
    Cursor::try_new(Arc::clone(store.inner()), |inner| {
        let family = inner.handle(store.family_index())?;
        Ok(inner.db().raw_iterator_cf_opt(family, read))
    })
}

/// Some rows, and whether they were the last.
fn read_chunk(
    iterator: &mut RawIterator<'_>,
    rest: &ScanOptions,
    step: Step,
    wanted: u32,
    meter: Meter,
) -> Result<(Vec<Row>, bool), StoreError> {
    match step {
        Step::Seek => seek(iterator, rest),
        Step::Advance => advance(iterator, rest.reverse),
        Step::Over => return Ok((Vec::new(), true)),
    }
    let mut rows: Vec<Row> = Vec::new();
    let mut bytes = 0;
    loop {
        let Some((key, value)) = iterator.item() else {
            iterator.status()?;
            return Ok((rows, true));
        };
        bytes += (key.len() + value.len()) as u64;
        rows.push((key.into(), value.into()));
        let full = rows.len() >= wanted as usize || bytes >= rest.chunk_bytes;
        if full || meter.steps() >= rest.chunk_examined {
            return Ok((rows, false));
        }
        advance(iterator, rest.reverse);
    }
}

fn seek(iterator: &mut RawIterator<'_>, rest: &ScanOptions) {
    match (rest.reverse, rest.start()) {
        (false, Some(from)) => iterator.seek(from),
        (false, None) => iterator.seek_to_first(),
        // That key itself lies beyond.
        (true, Some(to)) => {
            iterator.seek_for_prev(to);
            if iterator.key() == Some(to) {
                iterator.prev();
            }
        }
        (true, None) => iterator.seek_to_last(),
    }
}

fn advance(iterator: &mut RawIterator<'_>, reverse: bool) {
    if reverse {
        iterator.prev();
    } else {
        iterator.next();
    }
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("store", &self.store)
            .field("rest", &self.rest)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use cinnamon_core::Tier;

    use super::*;
    use crate::options::StoreOptions;

    #[test]
    fn a_scan_that_failed_in_the_middle_seeks_its_place_again_on_the_same_state() {
        for reverse in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
            let request = Request::new(Tier::T1).key(1);
            for row in [1u8, 3, 5, 7, 9] {
                store.put(&request, &[row], b"old").unwrap();
            }
            let mut options = ScanOptions::default();
            (options.chunk_rows, options.reverse) = (2, reverse);
            let mut scan = store.open_scan(&request, options);
            let mut rows = scan.next_chunk().unwrap().unwrap();
            for row in 0..10u8 {
                store.put(&request, &[row], b"new").unwrap();
            }
            // As an error of RocksDB leaves it.
            scan.step = Step::Seek;
            while let Some(more) = scan.next_chunk().unwrap() {
                rows.extend(more);
            }
            let mut keys: Vec<u8> = rows.iter().map(|(key, _)| key[0]).collect();
            if reverse {
                keys.reverse();
            }
            assert_eq!(keys, [1, 3, 5, 7, 9]);
            assert!(rows.iter().all(|(_, value)| **value == *b"old"));
        }
    }
}
