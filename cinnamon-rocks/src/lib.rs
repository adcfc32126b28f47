//! A RocksDB store behind the Cinnamon admission controller.
//!
//! ```text
//!   caller ── request ──► lane "read"  ─┐ scope "store"
//!                     └─► lane "write" ─┤   admit, run on the caller's thread, finish
//!                                       ▼
//!                                    RocksDB
//! ```
//!
//! [`Store`] is synchronous: each call is admitted, runs on the calling thread, and finishes with the
//! cost it really had. Both lanes share one scope, for reads and writes end at the same cores and the
//! same disk: no t3 read passes while a t1 write is shed. Scans are reads of a lower tier, not a lane
//! of their own; reads and scans are charged by the rows, tombstones and blocks they examine.
//!
//! - [`Store::family`] is a handle on a column family, [`Batch`] writes to several of them at once.
//! - [`Store::open_scan`] reads many rows in chunks and gives way between them.
//! - [`AsyncStore`] does all of it on threads of its own, for asynchronous programs.
//! - A server with its own threads takes the permit first and hands the work over afterwards:
//!   [`Store::admit`] gives the permit, the `…_with` methods spend it.
//! - [`Store::utilisation`] tells callers upstream how much of what is asked is served as promised.
//! - [`StoreOptions::from_toml`] reads everything from one file.
//!
//! ```
//! use cinnamon_rocks::{Request, Store, StoreOptions, Tier};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path();
//! let store = Store::open(path, StoreOptions::default())?;
//! let request = Request::new(Tier::T1).key(4711);
//! store.put(&request, b"greeting", b"hello")?;
//! assert_eq!(store.get(&request, b"greeting")?, Some(b"hello".to_vec()));
//! # Ok(())
//! # }
//! ```
//!
//! RocksDB is C++ and takes minutes to compile. A plain `cargo build -p cinnamon-rocks` does so from
//! source; `make` compiles it once a machine and links the result from then on.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod async_store;
mod background;
mod cost;
mod error;
mod operation;
mod options;
mod permit;
mod pool;
mod scan;
mod store;
mod utilisation;
mod write_stall;

pub use async_store::{AsyncScan, AsyncStore, THREADS_MAX};
pub use background::{BackgroundBytes, BackgroundWatch};

pub use cinnamon_core::{
    Completion, Controller, Lane, Outcome, OwnedPermit, Reason, Rejected, Request, Retry, Settings,
    Snapshot, Tenant, Tier,
};
pub use cinnamon_signals::{LatencyShares, ServiceShares, SystemShares, Utilisation};
pub use error::{OpenError, OptionsError, PoolError, ScanError, StoreError, UnknownFamily};
pub use operation::Operation;
pub use options::{
    DEFAULT_BACKGROUND_JOBS_MAX, DEFAULT_BLOCK_CACHE_BYTES, DEFAULT_FAMILY, DEFAULT_SLO_MAX_US,
    DEFAULT_SLO_TARGET_US, DEFAULT_WRITE_BUFFER_BYTES, FAMILIES_MAX, FOUND_LIMIT_MAX,
    FamilyOptions, SloOptions, StoreOptions,
};
pub use permit::{Admission, StorePermit};
pub use scan::{
    DEFAULT_CHUNK_BYTES, DEFAULT_CHUNK_EXAMINED, DEFAULT_CHUNK_ROWS, Scan, ScanOptions,
};
pub use store::{Batch, Row, Store};
pub use utilisation::{UTILISATION_CALLS, UTILISATION_WINDOW, UTILISATION_WINDOW_MAX};
pub use write_stall::{
    DEFAULT_HARD_PENDING_COMPACTION_BYTES, DEFAULT_L0_COMPACTION_TRIGGER,
    DEFAULT_L0_SLOWDOWN_TRIGGER, DEFAULT_L0_STOP_TRIGGER, DEFAULT_SOFT_PENDING_COMPACTION_BYTES,
    DEFAULT_WRITE_BUFFERS_MAX, StallGauges, StallLevel, StallPart, StallTriggers, StallWatch,
    WRITE_STALL, WriteStall,
};
