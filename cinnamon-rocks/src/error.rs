//! What can go wrong, and what to do next.

use cinnamon_core::{BuildError, ConfigError, Reason, Rejected, UnknownLane};

/// A call that was not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Admission refused it; nothing was done. [`Rejected::retry`] says when, or whether, to come
    /// back.
    #[error(transparent)]
    Rejected(Rejected),
    /// It ran, and RocksDB failed.
    #[error("RocksDB failed")]
    Rocks(#[source] rocksdb::Error),
    /// The store is closed; nothing was done.
    #[error("the store is closed")]
    Closed,
}

impl From<Rejected> for StoreError {
    fn from(rejected: Rejected) -> Self {
        if rejected.reason() == Reason::Closed {
            Self::Closed
        } else {
            Self::Rejected(rejected)
        }
    }
}

impl From<rocksdb::Error> for StoreError {
    fn from(error: rocksdb::Error) -> Self {
        Self::Rocks(error)
    }
}

/// A store that could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting is out of its bounds.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The control thread could not be started.
    #[error(transparent)]
    Controller(#[from] BuildError),
    /// The controller lacks one of the store's lanes; a fault of this crate.
    #[error(transparent)]
    Lane(#[from] UnknownLane),
    /// RocksDB could not open the folder.
    #[error("RocksDB could not open the store")]
    Rocks(#[from] rocksdb::Error),
}
