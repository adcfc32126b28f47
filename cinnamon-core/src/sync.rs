//! The only file that names `std::sync` and `std::thread`, so that a model checker can stand in
//! for both by changing one file.

pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
pub(crate) use std::thread::{Builder as ThreadBuilder, Thread, current, park_timeout};

/// A small number of this thread's own, to choose a shard by.
pub(crate) fn shard() -> usize {
    use std::cell::Cell;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    let mine = MINE.try_with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        mine.get()
    });
    // A thread that is being torn down has no thread-locals any more.
    mine.unwrap_or(0)
}

/// Locks `mutex`, and takes what it guards even when a panic poisoned it. Nothing here is left half
/// done by a panic: a lane catches its engine's under the lock and marks itself failed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
