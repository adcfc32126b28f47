//! The only file that names `std::sync` and `std::thread`, so that a model checker can stand in
//! for both: with `--cfg cinnamon_loom` that is loom. `Arc` stays the standard library's, for loom's holds no trait objects.

#[cfg(not(cinnamon_loom))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
#[cfg(not(cinnamon_loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(cinnamon_loom))]
pub(crate) use std::thread::{Thread, current, park_timeout};

#[cfg(not(cinnamon_loom))]
pub(crate) use std::thread::Builder as ThreadBuilder;

#[cfg(cinnamon_loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
#[cfg(cinnamon_loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(cinnamon_loom)]
pub(crate) use loom::thread::{Builder as ThreadBuilder, Thread, current};

/// Atomics that stand alone, each a figure for itself, and that no model is about; they can be made in constants.
pub(crate) mod lone {
    pub(crate) use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
}

pub(crate) use std::sync::{Arc, OnceLock, PoisonError, TryLockError, Weak};

use std::time::Duration;

/// Parks this thread until it is unparked; a model knows no time.
#[cfg(cinnamon_loom)]
pub(crate) fn park_timeout(_: Duration) {
    loom::thread::park();
}

/// What is in a word that is about to be changed. To loom it is an attempt to change it: in its search a plain load of a thread
/// that then stores hides the loads of others before it, and orders that matter are not tried (loom 0.7.3).
pub(crate) fn peek(word: &AtomicU64) -> u64 {
    #[cfg(not(cinnamon_loom))]
    return word.load(Ordering::Acquire);
    #[cfg(cinnamon_loom)]
    match word.compare_exchange(u64::MAX, u64::MAX, Ordering::Acquire, Ordering::Acquire) {
        Ok(is) | Err(is) => is,
    }
}

/// Waits while `condition` holds, for `at_most`.
#[cfg(not(cinnamon_loom))]
pub(crate) fn wait_while<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    at_most: Duration,
    condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    let waited = condvar.wait_timeout_while(guard, at_most, condition);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

#[cfg(cinnamon_loom)]
pub(crate) fn wait_while<'a, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'a, T>,
    _: Duration,
    mut condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    while condition(&mut guard) {
        guard = condvar.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
    guard
}

/// Locks `mutex`, and takes what it guards even when a panic poisoned it. Nothing here is left half
/// done by a panic: a lane catches its engine's under the lock and marks itself failed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
