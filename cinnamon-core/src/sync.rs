//! The only file that names `std::sync` and `std::thread`, so that a model checker can stand in
//! for both by changing one file.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
pub(crate) use std::thread::{Builder as ThreadBuilder, Thread, current, park_timeout};

/// Locks `mutex`, and takes what it guards even when a panic poisoned it.
///
/// For state that is valid at every step (plain counters and handles). A lane's engine is not: it
/// looks at the poison itself and fails open.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
