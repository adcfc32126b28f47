//! What the servers of the experiments share: requests on their way to the workers, and how long they took.

use std::sync::{Arc, Mutex};
use std::task::Wake;
use std::thread::{self, available_parallelism};
use std::time::Duration;

use cinnamon_rocks::{Admission, StoreOptions, StorePermit};
use crossbeam_channel::Sender;
use hdrhistogram::Histogram;

/// What a worker finds in its channel; a job of type `J` is what it is to run. `A` and `P` are the admissions and permits
/// of whatever admits it.
pub(crate) enum Task<J, A = Admission, P = StorePermit> {
    /// To run without asking.
    Unasked(J),
    /// To run with its permit.
    Admitted(J, P),
    /// To look at: something happened to its admission.
    Look(Arc<Waiting<J, A, P>>),
}

/// A request whose admission is under way.
pub(crate) struct Waiting<J, A = Admission, P = StorePermit> {
    pub(crate) pending: Mutex<Option<(J, A)>>,
    pub(crate) tasks: Sender<Task<J, A, P>>,
}

impl<J, A, P> Wake for Waiting<J, A, P>
where
    J: Send + 'static,
    A: Send + 'static,
    P: Send + 'static,
{
    fn wake(self: Arc<Self>) {
        let tasks = self.tasks.clone();
        // After the end of a run nobody listens; nothing is lost.
        let _closed = tasks.send(Task::Look(self));
    }
}

/// The slots of an experiment whose threads take calls themselves, so that no slot waits to be woken: two per core for
/// reads, and two for writes, of which one leads and one queues up behind it.
pub(crate) fn few_slots(options: &mut StoreOptions) {
    let cores = available_parallelism().map_or(1, |cores| cores.get() as u32);
    options.read_limit = (2 * cores).into();
    options.write_limit = 2.into();
}

/// 1 us to 10 min, two significant digits.
pub(crate) fn histogram() -> Histogram<u64> {
    #[expect(
        clippy::expect_used,
        reason = "the bounds are constants that the crate accepts"
    )]
    Histogram::new_with_bounds(1, 600_000_000, 2).expect("bounds are valid")
}

/// What the thread came to; its panic is the caller's.
pub(crate) fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Sleeps.
#[expect(
    clippy::disallowed_methods,
    reason = "a load generator waits for real time"
)]
pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}

/// A number of a command line, within these bounds.
pub(crate) fn within(text: &str, least: f64, most: f64) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!(
            "`{text}` is not a number between {least} and {most}"
        )),
    }
}
