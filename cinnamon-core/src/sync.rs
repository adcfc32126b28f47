//! The only file that names `std::sync` and `std::thread`, so that a model checker can stand in
//! for both by changing one file.

#[cfg(not(cinnamon_loom))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
#[cfg(not(cinnamon_loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(cinnamon_loom))]
pub(crate) use std::thread::{Thread, current, park_timeout};

pub(crate) use std::sync::{Arc, OnceLock, PoisonError, TryLockError, Weak};
pub(crate) use std::thread::Builder as ThreadBuilder;

/// Locks `mutex`, and takes what it guards even when a panic poisoned it. Nothing here is left half
/// done by a panic: a lane catches its engine's under the lock and marks itself failed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
