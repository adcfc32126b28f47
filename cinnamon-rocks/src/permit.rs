//! Admissions and permits of a store: those of its lanes, and when they were offered.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use cinnamon_core::{AdmitOwned, Completion, Instant, OwnedPermit, Rejected, Request};

use crate::operation::Operation;
use crate::store::Store;
use crate::utilisation::{Ledger, Touched};

/// Waits for admission to a store; see [`Store::admit`]. Polled again after it was ready, it stays pending.
#[derive(Debug)]
#[must_use = "nothing is offered until the future is polled"]
pub struct Admission {
    admit: AdmitOwned,
    ledger: Arc<Ledger>,
    reads: bool,
    touched: Touched,
    /// Set by the first poll, which is the offer, if the call has a promise; taken when it is over.
    offered_at: Option<Instant>,
    offered: bool,
}

/// The right to run one call of a store: an [`OwnedPermit`], and when it was asked for. Spend it with the `…_with` method
/// of an operation, or [`finish`](StorePermit::finish) it.
///
/// A plain permit of one of the store's lanes will do in its place; then the time of the call, for
/// [`Store::utilisation`], begins at its admission.
#[derive(Debug)]
#[must_use = "dropping a permit at once gives its slot back before the work has run"]
pub struct StorePermit {
    permit: OwnedPermit,
    offered_at: Option<Instant>,
}

impl Admission {
    pub(crate) fn new(
        store: &Store,
        operation: Operation,
        touched: Touched,
        request: &Request,
    ) -> Self {
        let request = request.class(operation.class());
        Self {
            admit: store.lane(operation).admit_owned(&request),
            ledger: Arc::clone(store.inner().ledger()),
            reads: operation.reads(),
            touched,
            offered_at: None,
            offered: false,
        }
    }

    /// One step of the admission, for event loops without futures; see [`AdmitOwned::poll_admit`].
    ///
    /// # Errors
    ///
    /// As [`Lane::admit`](cinnamon_core::Lane::admit).
    pub fn poll_admit(&mut self, waker: &Waker) -> Poll<Result<StorePermit, Rejected>> {
        if !self.offered {
            self.offered = true;
            self.offered_at = self.ledger.offered_at(self.touched, self.reads);
        }
        let polled = self.admit.poll_admit(waker);
        polled.map(|answer| {
            let offered_at = self.offered_at.take();
            match answer {
                Ok(permit) => Ok(StorePermit { permit, offered_at }),
                Err(rejected) => {
                    let ledger = &self.ledger;
                    ledger.refused(self.touched, self.reads, rejected.reason());
                    Err(rejected)
                }
            }
        })
    }
}

impl Future for Admission {
    type Output = Result<StorePermit, Rejected>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_admit(cx.waker())
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(offered_at) = self.offered_at {
            self.ledger.left(self.touched, self.reads, offered_at);
        }
    }
}

impl StorePermit {
    pub(crate) const fn new(permit: OwnedPermit, offered_at: Option<Instant>) -> Self {
        Self { permit, offered_at }
    }

    /// When it was asked for. `None` where nothing was promised for what it is for, and of a plain permit of the lane: nobody
    /// knows how long that was waited for, and most of a busy lane are not timed at all.
    #[must_use]
    pub const fn offered_at(&self) -> Option<Instant> {
        self.offered_at
    }

    /// See [`OwnedPermit::finish`]. Work that the store did not do has no promise, so it does not count in
    /// [`Store::utilisation`].
    pub fn finish(self, completion: Completion) {
        self.permit.finish(completion);
    }

    /// See [`OwnedPermit::nested`]. What is done with it counts in [`Store::utilisation`] as a call of its own, from now.
    pub fn nested(&self) -> Self {
        let permit = self.permit.nested();
        let now = permit.started_at();
        Self::new(permit, now)
    }
}

impl From<OwnedPermit> for StorePermit {
    fn from(permit: OwnedPermit) -> Self {
        Self::new(permit, None)
    }
}

impl Deref for StorePermit {
    type Target = OwnedPermit;

    fn deref(&self) -> &OwnedPermit {
        &self.permit
    }
}
