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
    /// There is no such column family; nothing was done.
    #[error(transparent)]
    UnknownFamily(#[from] UnknownFamily),
    /// A batch was filled with, or given to, a handle on another store than the one that made it; nothing
    /// was done.
    #[error("a batch writes to one store, and a handle on another was given")]
    OtherStore,
    /// The work panicked on its thread; how far it came is not known.
    #[error("the work panicked on its thread")]
    Panicked,
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

impl From<ScanError> for StoreError {
    fn from(error: ScanError) -> Self {
        error.error
    }
}

/// A chunk that could not be read. The scan can go on later; what was returned before is not read again.
#[derive(Debug, thiserror::Error)]
#[error("the scan stopped at {}", place(.resume_at.as_deref()))]
#[non_exhaustive]
pub struct ScanError {
    /// Why.
    #[source]
    pub error: StoreError,
    /// The key from which to resume, [`Scan::resume_at`](crate::Scan::resume_at).
    pub resume_at: Option<Vec<u8>>,
}

/// A name that no column family of the store has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store has no column family {name:?}, only {known:?}")]
#[non_exhaustive]
pub struct UnknownFamily {
    /// The name.
    pub name: String,
    /// The names there are.
    pub known: Vec<String>,
}

/// A store that could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting is out of its bounds, or does not go with another.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The folder has column families that the options do not name; nothing was touched.
    #[error(
        "the folder has the column families {names:?}, which `families` does not name; name them there, or set \
         `open_unknown_families`"
    )]
    UnnamedFamilies {
        /// Their names.
        names: Vec<String>,
    },
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

/// A configuration that could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// It is no TOML, has a setting that does not exist, or one of another type. It says which, and where.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// A setting is out of its bounds, or does not go with another.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Threads for the asynchronous store that could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The lanes have more slots than there may be threads.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system gave no thread.
    #[error("no thread could be started for the store")]
    Thread(#[source] std::io::Error),
}

fn place(key: Option<&[u8]>) -> String {
    key.map_or_else(
        || "its beginning".to_owned(),
        |key| format!("key {}", key.escape_ascii()),
    )
}
