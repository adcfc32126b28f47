//! The threads of the asynchronous store.
//!
//! A job comes with its permit, so there are never more jobs at once than slots, but for what is admitted
//! without one. A thread is started when a job finds none idle, up to as many as there are slots; so no job
//! stands behind another, and the channel between them is all but empty. Threads are kept until the pool is
//! dropped: an idle one costs its stack, and starting one in the middle of a surge costs more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::{io, mem};

use crossbeam_channel::{Receiver, Sender, unbounded};

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs on its threads. They end when it is closed or dropped, and all jobs are done.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

/// The pool takes no more jobs; this one was dropped.
#[derive(Debug)]
pub(crate) struct PoolClosed;

#[derive(Debug)]
struct Shared {
    jobs: Receiver<Job>,
    state: Mutex<State>,
    /// Where jobs are put; nothing once it is closed. Order of locks: this, then the state.
    inlet: Mutex<Option<Sender<Job>>>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

/// Every job is given a thread when it comes, or counted in `backlog`: `threads - idle` is the number of jobs
/// that have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    /// Threads there are.
    threads: usize,
    /// Threads that no job was given.
    idle: usize,
    /// Jobs that no thread was given yet.
    backlog: usize,
    /// How many threads there may be.
    threads_max: usize,
}

impl Pool {
    /// A pool with one thread, so that whatever comes is done even if the system gives no more.
    pub(crate) fn new(threads_max: usize) -> io::Result<Self> {
        let (sender, receiver) = unbounded();
        let shared = Arc::new(Shared {
            jobs: receiver,
            state: Mutex::new(State {
                threads: 1,
                idle: 1,
                backlog: 0,
                threads_max: threads_max.max(1),
            }),
            inlet: Mutex::new(Some(sender)),
            handles: Mutex::default(),
        });
        start(&shared, 1)?;
        Ok(Self { shared })
    }

    /// Runs the job on a thread of its own, at once, if there may be one more; `threads_max` is asked when there
    /// are already as many as there might be when it was asked before.
    ///
    /// # Errors
    ///
    /// When it is closed.
    pub(crate) fn submit(
        &self,
        job: Job,
        threads_max: impl FnOnce() -> usize,
    ) -> Result<(), PoolClosed> {
        let inlet = lock(&self.shared.inlet);
        let jobs = inlet.as_ref().ok_or(PoolClosed)?;
        let mut state = self.shared.lock();
        if state.idle > 0 {
            state.idle -= 1;
        } else {
            if state.threads >= state.threads_max {
                state.threads_max = threads_max().max(state.threads_max);
            }
            state.backlog += 1;
            // Whatever waits gets its thread: there may be more of it since a limit was raised.
            while state.backlog > 0 && state.threads < state.threads_max {
                if let Err(error) = start(&self.shared, state.threads + 1) {
                    tracing::warn!(
                        %error,
                        threads = state.threads,
                        "no thread could be started for the store; work waits for one of those there are"
                    );
                    break;
                }
                state.threads += 1;
                state.backlog -= 1;
            }
        }
        drop(state);
        // There is a receiver as long as there is a pool.
        let sent = jobs.send(job);
        debug_assert!(sent.is_ok());
        Ok(())
    }

    /// Takes no more jobs.
    pub(crate) fn close(&self) {
        *lock(&self.shared.inlet) = None;
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.shared.inlet).is_none()
    }

    /// Closes it, and waits until all jobs are done and all threads have ended; but for this one, if it is one of them.
    pub(crate) fn join(&self) {
        self.close();
        let handles = mem::take(&mut *lock(&self.shared.handles));
        let this = thread::current().id();
        for handle in handles {
            if handle.thread().id() != this {
                // It catches what its jobs do.
                let _ended = handle.join();
            }
        }
    }

    #[cfg(test)]
    fn state(&self) -> State {
        *self.shared.lock()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn work(&self) {
        while let Ok(job) = self.jobs.recv() {
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("a job of the store panicked; its thread goes on");
            }
            let mut state = self.lock();
            if state.backlog > 0 {
                state.backlog -= 1;
            } else {
                state.idle += 1;
            }
        }
    }
}

fn start(shared: &Arc<Shared>, number: usize) -> io::Result<()> {
    let working = Arc::clone(shared);
    let builder = thread::Builder::new().name(format!("cinnamon-rocks-{number}"));
    let handle = builder.spawn(move || working.work())?;
    lock(&shared.handles).push(handle);
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job that says it began, and goes on when it is told to.
    fn held() -> (Job, Receiver<()>, Sender<()>) {
        let (began, when_began) = unbounded();
        let (release, released) = unbounded::<()>();
        let job = move || {
            began.send(()).unwrap();
            released.recv().unwrap();
        };
        (Box::new(job), when_began, release)
    }

    /// Waits until the pool stands so, without a clock: its threads get there by themselves.
    fn until(pool: &Pool, expected: State) {
        while pool.state() != expected {
            thread::yield_now();
        }
    }

    #[test]
    fn jobs_run_at_once_up_to_the_most_and_then_in_turn() {
        let pool = Pool::new(2).unwrap();
        let held = [held(), held(), held()];
        let mut ends = Vec::new();
        for (job, began, release) in held {
            pool.submit(job, || 2).unwrap();
            ends.push((began, release));
        }
        ends[0].0.recv().unwrap();
        ends[1].0.recv().unwrap();
        let state = pool.state();
        assert_eq!((state.threads, state.idle, state.backlog), (2, 0, 1));
        assert!(ends[2].0.try_recv().is_err(), "it waits for a thread");
        ends[1].1.send(()).unwrap();
        ends[2].0.recv().unwrap();
        for end in [0, 2] {
            ends[end].1.send(()).unwrap();
        }
        let rest = State {
            threads: 2,
            idle: 2,
            backlog: 0,
            threads_max: 2,
        };
        until(&pool, rest);
    }

    #[test]
    fn it_grows_when_more_is_allowed_and_keeps_what_it_has() {
        let pool = Pool::new(1).unwrap();
        let (first, began, release) = held();
        pool.submit(first, || 1).unwrap();
        began.recv().unwrap();
        let (second, began, release_second) = held();
        pool.submit(second, || 2).unwrap();
        began.recv().unwrap();
        release.send(()).unwrap();
        release_second.send(()).unwrap();
        let rest = State {
            threads: 2,
            idle: 2,
            backlog: 0,
            threads_max: 2,
        };
        until(&pool, rest);
        pool.submit(Box::new(|| {}), || 1).unwrap();
        until(&pool, rest);
    }

    #[test]
    fn a_panic_costs_no_thread() {
        let pool = Pool::new(1).unwrap();
        for _ in 0..3 {
            pool.submit(Box::new(|| panic!("on purpose")), || 1)
                .unwrap();
        }
        let (job, began, release) = held();
        pool.submit(job, || 1).unwrap();
        began.recv().unwrap();
        assert_eq!(pool.state().threads, 1);
        release.send(()).unwrap();
    }

    #[test]
    fn what_was_submitted_is_done_although_the_pool_is_dropped() {
        let pool = Pool::new(1).unwrap();
        let (job, began, release) = held();
        let (done, when_done) = unbounded();
        pool.submit(job, || 1).unwrap();
        pool.submit(Box::new(move || done.send(()).unwrap()), || 1)
            .unwrap();
        began.recv().unwrap();
        drop(pool);
        release.send(()).unwrap();
        when_done.recv().unwrap();
    }

    #[test]
    fn who_joins_it_finds_everything_done_and_nobody_is_taken_after() {
        let pool = Pool::new(2).unwrap();
        let done = Arc::new(Mutex::new(0));
        for _ in 0..20 {
            let done = Arc::clone(&done);
            pool.submit(Box::new(move || *lock(&done) += 1), || 2)
                .unwrap();
        }
        pool.join();
        assert_eq!(*lock(&done), 20);
        assert_eq!(Arc::strong_count(&pool.shared), 1, "its threads have ended");
        assert!(pool.submit(Box::new(|| {}), || 2).is_err());
        pool.join();
    }

    #[test]
    fn a_job_may_join_it_and_does_not_wait_for_itself() {
        let pool = Arc::new(Pool::new(1).unwrap());
        let (done, when_done) = unbounded();
        let joining = Arc::clone(&pool);
        let job = move || {
            joining.join();
            done.send(()).unwrap();
        };
        pool.submit(Box::new(job), || 1).unwrap();
        when_done.recv().unwrap();
    }
}
