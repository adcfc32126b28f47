//! Who waits, and how each is told: cells in a slab under the lane's mutex.
//!
//! | state | entered by | left by |
//! |---|---|---|
//! | `Vacant` | start; the owner took the result, or left | an offer that has to wait |
//! | `Waiting` | an offer that has to wait | the engine's effect → `Resolved`; the owner leaves → `Vacant` |
//! | `Resolved` | the engine's effect | the owner takes the result → `Vacant`; the owner leaves → `Vacant`, and a slot it was granted goes back |
//!
//! A cell has one owner, the pending admission, and only the owner frees it. So a slot granted to a
//! waiter that gives up before it looked is found in the cell and goes to the next: there is no
//! moment at which it belongs to nobody.

use std::task::{Wake, Waker};
use std::time::Duration;

use crate::effects::Ticket;
use crate::queue::WaiterId;
use crate::sync::{Arc, AtomicBool, Ordering, Thread, current, park_timeout};
use crate::verdict::Rejected;

#[derive(Debug)]
enum Cell {
    Vacant,
    /// Whom to wake is filled in a moment after the cell, outside the lock.
    Waiting {
        id: WaiterId,
        waker: Option<Waker>,
    },
    Resolved(Result<Ticket, Rejected>),
}

/// What the owner left behind when it gave up.
#[derive(Debug)]
pub(crate) enum Abandoned {
    /// It still waited; the engine must forget it.
    Waiting(WaiterId),
    /// It had been granted a slot, which must go back.
    Granted(Ticket),
    /// It had been refused: nothing to undo.
    Refused,
}

/// What an owner finds in its cell.
#[derive(Debug)]
pub(crate) enum Looked {
    Resolved(Result<Ticket, Rejected>),
    /// It waits, and the waker it would leave is there already.
    Waiting,
    /// It waits, and should leave its waker with [`Waiters::leave_waker`].
    NoWaker,
}

/// The slab.
///
/// A waker is the embedder's code: cloning, waking and dropping it may run anything, such as the drop
/// of a permit of this very lane. So none of the three happens in here; wakers are moved in and out.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    cells: Vec<Cell>,
    free: Vec<u32>,
}

impl Waiters {
    /// The token that the next [`Waiters::wait`] will use.
    pub(crate) fn next_token(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.cells.len() as u32)
    }

    /// Fills the cell of [`Waiters::next_token`].
    pub(crate) fn wait(&mut self, id: WaiterId) -> u32 {
        let cell = Cell::Waiting { id, waker: None };
        if let Some(token) = self.free.pop() {
            self.cells[token as usize] = cell;
            return token;
        }
        self.cells.push(cell);
        self.cells.len() as u32 - 1
    }

    /// Stores what became of a waiter and returns whom to wake, after the lock is released.
    pub(crate) fn resolve(
        &mut self,
        token: u32,
        result: Result<Ticket, Rejected>,
    ) -> Option<Waker> {
        let cell = self.cells.get_mut(token as usize)?;
        match std::mem::replace(cell, Cell::Resolved(result)) {
            Cell::Waiting { waker, .. } => waker,
            other => {
                *cell = other;
                None
            }
        }
    }

    /// Looks into the owner's cell, and empties it if it was resolved.
    pub(crate) fn look(&mut self, token: u32, waker: &Waker) -> Looked {
        match self.cells.get(token as usize) {
            Some(Cell::Resolved(result)) => {
                let result = *result;
                self.vacate(token);
                Looked::Resolved(result)
            }
            Some(Cell::Waiting {
                waker: Some(left), ..
            }) if left.will_wake(waker) => Looked::Waiting,
            _ => Looked::NoWaker,
        }
    }

    /// Leaves the owner's waker and returns what must be dropped, after the lock is released: the
    /// earlier one, or this one if it came too late.
    pub(crate) fn leave_waker(&mut self, token: u32, waker: Waker) -> Option<Waker> {
        match self.cells.get_mut(token as usize) {
            Some(Cell::Waiting { waker: left, .. }) => left.replace(waker),
            _ => Some(waker),
        }
    }

    /// The owner gives up. Returns what it left, and its waker, to be dropped after the lock is
    /// released.
    pub(crate) fn abandon(&mut self, token: u32) -> (Option<Abandoned>, Option<Waker>) {
        let Some(cell) = self.cells.get_mut(token as usize) else {
            return (None, None);
        };
        let (abandoned, waker) = match std::mem::replace(cell, Cell::Vacant) {
            Cell::Vacant => return (None, None),
            Cell::Waiting { id, waker } => (Abandoned::Waiting(id), waker),
            Cell::Resolved(Ok(ticket)) => (Abandoned::Granted(ticket), None),
            Cell::Resolved(Err(_)) => (Abandoned::Refused, None),
        };
        self.free.push(token);
        (Some(abandoned), waker)
    }

    /// Takes the wakers of all who wait; their owners will find the lane failed.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        let waiting = self.cells.iter_mut().filter_map(|cell| match cell {
            Cell::Waiting { waker, .. } => waker.take(),
            _ => None,
        });
        waiting.collect()
    }

    fn vacate(&mut self, token: u32) {
        self.cells[token as usize] = Cell::Vacant;
        self.free.push(token);
    }
}

/// A thread that blocks in `admit_blocking`, as a waker.
#[derive(Debug)]
pub(crate) struct Parker {
    thread: Thread,
    notified: AtomicBool,
}

#[cfg(not(cinnamon_loom))]
thread_local! {
    /// One parker per thread: blocking admissions allocate nothing after the first.
    static PARKER: (Arc<Parker>, Waker) = Parker::new();
}

impl Parker {
    fn new() -> (Arc<Self>, Waker) {
        let parker = Arc::new(Self {
            thread: current(),
            notified: AtomicBool::new(false),
        });
        (Arc::clone(&parker), Waker::from(parker))
    }

    /// This thread's parker and the waker that ends its [`Parker::park`].
    #[cfg(not(cinnamon_loom))]
    pub(crate) fn of_this_thread() -> (Arc<Self>, Waker) {
        // A thread that is being torn down has no thread-locals any more.
        PARKER
            .try_with(Clone::clone)
            .unwrap_or_else(|_| Self::new())
    }

    /// One of its own each time: all threads of a model are one of the system's.
    #[cfg(cinnamon_loom)]
    pub(crate) fn of_this_thread() -> (Arc<Self>, Waker) {
        Self::new()
    }

    /// Blocks until woken since the last call, or for `at_most`.
    pub(crate) fn park(&self, at_most: Duration) {
        if !self.notified.swap(false, Ordering::Acquire) {
            park_timeout(at_most);
            self.notified.store(false, Ordering::Relaxed);
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notified.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
