//! RocksDB's iterator, which borrows its database, together with the store that it borrows from.
#![allow(
    clippy::mem_forget,
    reason = "the macro's own, where it hands over what it would drop"
)]

use std::sync::Arc;

use rocksdb::{DB, DBRawIteratorWithThreadMode};
use self_cell::self_cell;

use crate::store::Inner;

pub(super) type RawIterator<'a> = DBRawIteratorWithThreadMode<'a, DB>;

self_cell!(
    /// Dropped, it lets the iterator go first.
    pub(super) struct Cursor {
        owner: Arc<Inner>,
        #[not_covariant]
        dependent: RawIterator,
    }
);
