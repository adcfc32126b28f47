//! Admissions under way: the futures that [`Lane`] gives out.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::{Asks, Decided, Lane};
use crate::effects::{Offered, Ticket};
use crate::observer::OfferAnswer;
use crate::permit::{OwnedPermit, Permit};
use crate::request::Request;
use crate::verdict::Rejected;
use crate::waiter::{Abandoned, Looked};

/// An admission under way. Its owner must [`abandon`](Pending::abandon) it when it gives up.
#[derive(Debug)]
pub(super) enum Pending {
    Unoffered(Request),
    Waiting(Request, u32),
    Done,
}

impl Pending {
    pub(super) fn poll(&mut self, lane: &Lane, waker: &Waker) -> Poll<Result<Ticket, Rejected>> {
        let polled = match *self {
            Self::Unoffered(request) => match self.offer(lane, &request) {
                Poll::Ready(result) => Poll::Ready(result),
                Poll::Pending => self.look(lane, waker),
            },
            Self::Waiting(..) => {
                // Whoever looks also keeps the time, should the control thread be late. That is a
                // step of its own: its effects are in the cells once it is over.
                lane.with(|engine, _, now| engine.expire(now));
                self.look(lane, waker)
            }
            Self::Done => Poll::Pending,
        };
        if polled.is_ready() {
            *self = Self::Done;
        }
        polled
    }

    /// Makes the offer to the engine. If it has to wait, who waits is to [`poll`](Pending::poll).
    pub(super) fn offer_at_once(
        &mut self,
        lane: &Lane,
        asks: Asks,
    ) -> Poll<Result<Ticket, Rejected>> {
        let Self::Unoffered(request) = *self else {
            return Poll::Pending;
        };
        let offered = self.offer_to_engine(lane, &request, asks);
        if offered.is_ready() {
            *self = Self::Done;
        }
        offered
    }

    #[inline]
    fn offer(&mut self, lane: &Lane, request: &Request) -> Poll<Result<Ticket, Rejected>> {
        match lane.decide_before(request) {
            Ok(answer) => Poll::Ready(answer),
            Err(asks) => self.offer_to_engine(lane, request, asks),
        }
    }

    fn offer_to_engine(
        &mut self,
        lane: &Lane,
        request: &Request,
        asks: Asks,
    ) -> Poll<Result<Ticket, Rejected>> {
        let decided = lane.decide_by_engine(request, asks, |engine, waiters, now| {
            let offered = engine.offer(now, request, Some(waiters.next_token()));
            let token = match offered {
                Offered::Waiting(id) => Some(waiters.wait(id)),
                _ => None,
            };
            let waits = token.is_some() || engine.waits_in_shadow();
            (offered, token, waits.then(|| engine.next_wakeup()))
        });
        let (offered, stands_for_bits) = match decided {
            Decided::Before(answer) => return Poll::Ready(answer),
            Decided::ByEngine(offered, stands_for_bits) => (offered, stands_for_bits),
        };
        if let Some((offered, token, wakeup)) = &offered {
            if let Some(token) = *token {
                *self = Self::Waiting(*request, token);
            }
            if let Some(wakeup) = *wakeup {
                lane.shared.waiter_came(wakeup);
            }
            lane.tell_offer(request, OfferAnswer::of(offered));
        }
        match offered {
            Some((Offered::Admitted(ticket), ..)) => Poll::Ready(Ok(Ticket {
                stands_for_bits,
                ..ticket
            })),
            Some((Offered::Rejected(rejected), ..)) => Poll::Ready(Err(rejected)),
            Some((Offered::Waiting(_), ..)) => Poll::Pending,
            None => Poll::Ready(lane.past_the_engine(request)),
        }
    }

    /// Looks what became of it, and leaves `waker` if nothing did.
    fn look(&self, lane: &Lane, waker: &Waker) -> Poll<Result<Ticket, Rejected>> {
        let Self::Waiting(request, token) = *self else {
            return Poll::Pending;
        };
        let mut looked = lane.with(|_, waiters, _| waiters.look(token, waker));
        if let Some(Looked::NoWaker) = looked {
            // Cloned before the lock, and what it replaces dropped after it. It may have been
            // resolved while no waker was there, so look once more.
            let waker = waker.clone();
            let replaced = lane.with(|_, waiters, _| waiters.leave_waker(token, waker));
            drop(replaced);
            looked = lane.with(|_, waiters, _| waiters.look(token, Waker::noop()));
        }
        match looked {
            Some(Looked::Resolved(result)) => {
                if let Ok(ticket) = &result {
                    lane.tell_start(&request, ticket);
                }
                Poll::Ready(result)
            }
            Some(Looked::Waiting | Looked::NoWaker) => Poll::Pending,
            None => Poll::Ready(lane.past_the_engine(&request)),
        }
    }

    fn abandon(&mut self, lane: &Lane) {
        let Self::Waiting(_, token) = std::mem::replace(self, Self::Done) else {
            return;
        };
        let waker = lane.with(|engine, waiters, now| {
            let (abandoned, waker) = waiters.abandon(token);
            match abandoned {
                Some(Abandoned::Waiting(id)) => {
                    engine.cancel(now, id);
                }
                Some(Abandoned::Granted(ticket)) => engine.finish(now, &ticket, None),
                Some(Abandoned::Refused) | None => {}
            }
            waker
        });
        drop(waker);
        lane.shared.slot_freed();
    }
}

/// Waits for admission; see [`Lane::admit`]. Polled again after it was ready, it stays pending.
#[derive(Debug)]
#[must_use = "nothing is offered until the future is polled"]
pub struct Admit<'a> {
    lane: &'a Lane,
    pending: Pending,
}

/// Waits for admission; see [`Lane::admit_owned`]. Polled again after it was ready, it stays pending.
#[derive(Debug)]
#[must_use = "nothing is offered until the future is polled"]
pub struct AdmitOwned {
    lane: Lane,
    pending: Pending,
}

impl<'a> Admit<'a> {
    pub(super) const fn new(lane: &'a Lane, request: &Request) -> Self {
        let pending = Pending::Unoffered(*request);
        Self { lane, pending }
    }

    /// One step of the admission, for event loops (epoll, io_uring) without futures: `waker` is
    /// called, from any thread, when it is worth polling again. Make one from your own type with
    /// [`std::task::Wake`]. Only the last waker given is called.
    ///
    /// # Errors
    ///
    /// As [`Lane::admit`].
    ///
    /// # Cancel safety
    ///
    /// Drop the value to give up, as with [`Lane::admit`].
    pub fn poll_admit(&mut self, waker: &Waker) -> Poll<Result<Permit<'a>, Rejected>> {
        let lane = self.lane;
        let polled = self.pending.poll(lane, waker);
        polled.map_ok(|ticket| Permit::new(lane, ticket))
    }
}

impl AdmitOwned {
    pub(super) const fn new(lane: Lane, request: &Request) -> Self {
        let pending = Pending::Unoffered(*request);
        Self { lane, pending }
    }

    /// Like [`Admit::poll_admit`], with a permit that borrows nothing.
    ///
    /// # Errors
    ///
    /// As [`Lane::admit`].
    ///
    /// # Cancel safety
    ///
    /// Drop the value to give up, as with [`Lane::admit`].
    pub fn poll_admit(&mut self, waker: &Waker) -> Poll<Result<OwnedPermit, Rejected>> {
        let polled = self.pending.poll(&self.lane, waker);
        polled.map_ok(|ticket| OwnedPermit::new(self.lane.clone(), ticket))
    }
}

impl<'a> Future for Admit<'a> {
    type Output = Result<Permit<'a>, Rejected>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_admit(cx.waker())
    }
}

impl Future for AdmitOwned {
    type Output = Result<OwnedPermit, Rejected>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_admit(cx.waker())
    }
}

impl Drop for Admit<'_> {
    fn drop(&mut self) {
        self.pending.abandon(self.lane);
    }
}

impl Drop for AdmitOwned {
    fn drop(&mut self) {
        self.pending.abandon(&self.lane);
    }
}
