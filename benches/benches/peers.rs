//! What the speed is measured beside: locks, a semaphore and the limiters that exist for Rust, each doing the least
//! that it can be asked for. They do less than Cinnamon: none of them knows priorities, costs or arrivals.

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cinnamon_core::MonotonicClock;
use cinnamon_lab::speed::report::{SEMAPHORE, SEMAPHORE_OWNED};
use cinnamon_lab::speed::rounds::{Subject, repeat};
use governor::{Quota, RateLimiter};
use throttle_net::{AdaptiveLimiter, Aimd};
use tokio::sync::Semaphore;
use tower::limit::ConcurrencyLimit;
use tower::load_shed::LoadShed;
use tower::{Service, service_fn};
use tower_resilience_adaptive::AdaptiveService;

/// As many as a lane of Cinnamon's has here.
const SLOTS: usize = cinnamon_lab::speed::fixture::SLOTS as usize;
/// The limit of an adaptive one may go this far.
const SLOTS_MAX: usize = 1_024;
/// A rate that no run reaches, for what limits rates.
const NO_LIMIT_PER_S: u32 = u32::MAX;

/// Admission and finish with slots to spare.
pub(crate) fn admit() -> Vec<Subject> {
    let mut all = semaphore();
    all.extend([
        tower_limit(),
        tower_shed(),
        governor_check(),
        throttle_net(),
        tower_resilience(),
    ]);
    all.extend(floor());
    all
}

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = Subject> {
    let groups = [admit(), shed(), queue(), clock()];
    groups.into_iter().flatten()
}

/// Refusals.
pub(crate) fn shed() -> Vec<Subject> {
    let full = Semaphore::new(0);
    let limiter = AdaptiveLimiter::builder()
        .ceiling(1)
        .build(Aimd::new(1, 0.5));
    let limiter = Arc::new(limiter);
    let held = limiter.try_acquire_owned();
    let quota = Quota::per_hour(std::num::NonZeroU32::MIN);
    let rate = RateLimiter::direct(quota);
    vec![
        Subject::new("tokio Semaphore try_acquire, refused", move || {
            black_box(&full).try_acquire().is_err()
        }),
        tower_shed_refused(),
        // The first one is let in.
        Subject::new("governor check, refused", {
            let _first = rate.check();
            move || black_box(&rate).check().is_err()
        }),
        Subject::new("throttle-net Adaptive<Aimd>, refused", move || {
            let _kept = &held;
            black_box(&limiter).try_acquire().is_none()
        }),
    ]
}

/// A slot handed on to who waits.
pub(crate) fn queue() -> Vec<Subject> {
    let clock = MonotonicClock::new();
    let semaphore = Semaphore::new(1);
    let run = move |times| {
        let mut held = semaphore.try_acquire().ok();
        let took = repeat(&clock, times, || {
            let mut next = pin!(semaphore.acquire());
            let mut context = Context::from_waker(Waker::noop());
            let waits = next.as_mut().poll(&mut context).is_pending();
            held = None;
            if let Poll::Ready(Ok(permit)) = next.poll(&mut context) {
                held = Some(permit);
            }
            waits && held.is_some()
        });
        drop(held);
        took
    };
    vec![Subject::timed("tokio Semaphore hand-off", run)]
}

/// The system's clock.
#[expect(
    clippy::disallowed_methods,
    reason = "it is what is measured, beside our own clock"
)]
pub(crate) fn clock() -> Vec<Subject> {
    use std::time::Instant;

    let mut last = Instant::now();
    let read = move || {
        let before = std::mem::replace(&mut last, Instant::now());
        last >= before
    };
    vec![Subject::new("std Instant::now", read)]
}

/// What an admission cannot be cheaper than, if it takes a lock, or counts.
fn floor() -> Vec<Subject> {
    let lock = Mutex::new(0u64);
    let twice = move || {
        *black_box(&lock)
            .lock()
            .unwrap_or_else(PoisonError::into_inner) += 1;
        let mut count = black_box(&lock)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *count -= 1;
        *count == 0
    };
    let count = AtomicU64::new(0);
    let add_and_sub = move || {
        black_box(&count).fetch_add(1, Ordering::AcqRel);
        black_box(&count).fetch_sub(1, Ordering::AcqRel) == 1
    };
    vec![
        Subject::new("std Mutex locked twice", twice),
        Subject::new("atomic add and sub", add_and_sub),
    ]
}

fn semaphore() -> Vec<Subject> {
    let semaphore = Arc::new(Semaphore::new(SLOTS));
    let [one, two, three, four, five] = std::array::from_fn(|_| Arc::clone(&semaphore));
    vec![
        Subject::new(SEMAPHORE, move || black_box(&one).try_acquire().is_ok()),
        Subject::new(SEMAPHORE_OWNED, move || {
            Arc::clone(black_box(&two)).try_acquire_owned().is_ok()
        }),
        Subject::new("tokio Semaphore acquire, ready", move || {
            at_once(black_box(&three).acquire()).is_some_and(|permit| permit.is_ok())
        }),
        Subject::twice("tokio Semaphore try_acquire+drop, two threads", move || {
            let semaphore = Arc::clone(&four);
            move || black_box(&semaphore).try_acquire().is_ok()
        }),
        Subject::twice(
            "tokio Semaphore try_acquire_owned+drop, two threads",
            move || {
                let semaphore = Arc::clone(&five);
                move || {
                    Arc::clone(black_box(&semaphore))
                        .try_acquire_owned()
                        .is_ok()
                }
            },
        ),
    ]
}

/// A service that does nothing.
macro_rules! nothing {
    () => {
        service_fn(|(): ()| std::future::ready(Ok::<(), Infallible>(())))
    };
}

/// A call of a service, ready or not, as far as it goes without waiting.
fn call<S: Service<()>>(service: &mut S) -> Option<Result<S::Response, S::Error>> {
    let mut context = Context::from_waker(Waker::noop());
    match service.poll_ready(&mut context) {
        Poll::Ready(Ok(())) => at_once(service.call(())),
        Poll::Ready(Err(error)) => Some(Err(error)),
        Poll::Pending => None,
    }
}

fn done<R, E>(called: Option<Result<R, E>>) -> bool {
    called.is_some_and(|result| result.is_ok())
}

fn tower_limit() -> Subject {
    let mut service = ConcurrencyLimit::new(nothing!(), SLOTS);
    Subject::new("tower ConcurrencyLimit", move || done(call(&mut service)))
}

fn tower_shed() -> Subject {
    let mut service = LoadShed::new(ConcurrencyLimit::new(nothing!(), SLOTS));
    Subject::new("tower LoadShed<ConcurrencyLimit>", move || {
        done(call(&mut service))
    })
}

fn tower_shed_refused() -> Subject {
    let slot = Arc::new(Semaphore::new(0));
    let limited = ConcurrencyLimit::with_semaphore(nothing!(), slot);
    let mut service = LoadShed::new(limited);
    Subject::new("tower LoadShed<ConcurrencyLimit>, refused", move || {
        call(&mut service).is_some_and(|result| result.is_err())
    })
}

/// It limits a rate, and never hears of the end of what it lets in.
fn governor_check() -> Subject {
    let most = std::num::NonZeroU32::new(NO_LIMIT_PER_S).unwrap_or(std::num::NonZeroU32::MIN);
    let limiter = RateLimiter::direct(Quota::per_second(most));
    Subject::new("governor check", move || {
        black_box(&limiter).check().is_ok()
    })
}

fn throttle_net() -> Subject {
    let limiter = AdaptiveLimiter::builder()
        .ceiling(SLOTS_MAX as u32)
        .initial(SLOTS as u32)
        .build(Aimd::new(1, 0.5));
    Subject::new("throttle-net Adaptive<Aimd>", move || {
        let permit = black_box(&limiter).try_acquire();
        permit.map(|permit| permit.success()).is_some()
    })
}

fn tower_resilience() -> Subject {
    let aimd = tower_resilience_adaptive::Aimd::builder()
        .initial_limit(SLOTS)
        .min_limit(1)
        .max_limit(SLOTS_MAX)
        .latency_threshold(Duration::from_secs(1))
        .build()
        .expect("bounds in order");
    let mut service = AdaptiveService::new(nothing!(), Arc::new(aimd));
    Subject::new("tower-resilience Aimd", move || done(call(&mut service)))
}

/// What the future comes to if it does not have to wait.
fn at_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
