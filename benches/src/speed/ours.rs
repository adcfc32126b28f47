//! Cinnamon's own subjects.
//!
//! Where it matters they are controllers as an embedder builds them, control thread and all; the exceptions are
//! those whose cost is that of a step that the control thread would take at a time of its own.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cinnamon_core::{
    AdmitOwned, Clock, Completion, Lane, ManualClock, Mode, MonotonicClock, Reason, Request,
    Target, Tier,
};

use super::fixture::{self, Error, Fixture, SIGNALS, SLOTS, TICK, WAITERS};
use super::rounds::Subject;

/// Requests on each lane between two ticks that are measured: a tick of a lane at rest does next to nothing.
const WORK_PER_TICK: u32 = 100;
const HAND_OFF: &str = "cinnamon hand-off";

/// Names that bars and readers look for.
pub mod names {
    /// `try_admit` and `finish`, with slots to spare.
    pub const ADMIT: &str = "cinnamon admit+finish uncontended";
    /// The same with a permit that can move.
    pub const OWNED: &str = "cinnamon admit+finish owned";
    /// A refusal by the gate.
    pub const SHED: &str = "cinnamon shed";
    /// One control step.
    pub const TICK: &str = "cinnamon tick";
}

/// Admission and finish with slots to spare, each way there is, on one thread and on two.
///
/// # Errors
///
/// When a controller cannot be built.
pub fn admit() -> Result<Vec<Subject>, Error> {
    Ok(vec![
        on_one(names::ADMIT, Mode::Enforce, borrowed)?,
        on_one(names::OWNED, Mode::Enforce, owned)?,
        on_one("cinnamon admit+finish async", Mode::Enforce, ready)?,
        on_one("cinnamon admit+finish blocking", Mode::Enforce, blocking)?,
        on_two("cinnamon admit+finish, two threads", borrowed)?,
        on_two("cinnamon admit+finish owned, two threads", owned)?,
        on_two("cinnamon admit+finish async, two threads", ready)?,
        on_two("cinnamon admit+finish blocking, two threads", blocking)?,
    ])
}

/// Refusals: by the gate, and for want of a slot.
///
/// # Errors
///
/// When a controller cannot be built.
pub fn shed() -> Result<Vec<Subject>, Error> {
    let (controller, lane) = fixture::running(SLOTS)?;
    fixture::shut(&controller)?;
    let shared = (Arc::new(controller), lane);
    let (controller, lane) = shared.clone();
    let mut shed = shed_by(lane);
    let one = Subject::new(names::SHED, move || {
        let _kept = &controller;
        shed()
    });
    let two = Subject::twice("cinnamon shed, two threads", move || {
        let _kept = &shared.0;
        shed_by(shared.1.clone())
    });
    Ok(vec![one, two, busy()?])
}

/// Admission and finish where decisions do not count.
///
/// # Errors
///
/// When a controller cannot be built.
pub fn modes() -> Result<Vec<Subject>, Error> {
    Ok(vec![
        on_one("cinnamon monitor", Mode::Monitor, borrowed)?,
        on_one("cinnamon off", Mode::Off, borrowed)?,
    ])
}

/// Admission and finish while a signal acts on whom it names: nobody, and as many keys as it may; the request is somebody else's.
///
/// # Errors
///
/// When a controller cannot be built.
pub fn precise() -> Result<Vec<Subject>, Error> {
    let with = |name: &str, culprits| -> Result<Subject, Error> {
        let (controller, lane) = fixture::throttling(culprits)?;
        let is_so = controller.snapshot().throttles.len() as u64 == culprits;
        let mut key = fixture::CULPRITS;
        Ok(Subject::new(name, move || {
            let _kept = &controller;
            key += 1;
            is_so && borrowed(&lane, &black_box(Request::new(Tier::T1).key(key)))
        }))
    };
    Ok(vec![
        with("cinnamon precise action, nobody throttled", 0)?,
        with(
            "cinnamon precise action, 16 keys throttled",
            fixture::CULPRITS,
        )?,
    ])
}

/// The queue: a slot handed on to who waits, and a queue that is swept.
///
/// # Errors
///
/// When a controller cannot be built.
pub fn queue() -> Result<Vec<Subject>, Error> {
    Ok(vec![hand_off(fixture::running(1)?), sweep()?])
}

/// One control step of two lanes under load, with [`SIGNALS`] signals and with none.
///
/// # Errors
///
/// When a controller cannot be built.
pub fn tick() -> Result<Vec<Subject>, Error> {
    Ok(vec![
        tick_with(names::TICK, SIGNALS)?,
        tick_with("cinnamon tick, no signals", 0)?,
    ])
}

/// A snapshot of two lanes and [`SIGNALS`] signals.
///
/// # Errors
///
/// When a controller cannot be built.
pub fn snapshot() -> Result<Vec<Subject>, Error> {
    let clock = ManualClock::new();
    let (controller, _lanes) = fixture::store(SIGNALS, &clock)?;
    controller.tick(clock.advance(TICK));
    let take = move || black_box(controller.snapshot()).lanes.len() == 2;
    Ok(vec![Subject::new("cinnamon snapshot", take)])
}

/// One reading of the clock, through the pointer that the controller holds.
#[must_use]
pub fn clock() -> Vec<Subject> {
    let clock: Arc<dyn Clock> = MonotonicClock::new().shared();
    let mut last = clock.now();
    let read = move || {
        let before = std::mem::replace(&mut last, black_box(&clock).now());
        last >= before
    };
    vec![Subject::new("cinnamon clock read", read)]
}

/// All of them.
///
/// # Errors
///
/// When a controller cannot be built.
pub fn all() -> Result<Vec<Subject>, Error> {
    let groups = [
        admit()?,
        shed()?,
        modes()?,
        precise()?,
        queue()?,
        tick()?,
        snapshot()?,
        clock(),
    ];
    Ok(groups.into_iter().flatten().collect())
}

/// `try_admit`, with a permit that borrows the lane.
#[inline]
#[must_use]
pub fn borrowed(lane: &Lane, request: &Request) -> bool {
    let permit = lane.try_admit(request);
    permit
        .map(|permit| permit.finish(Completion::success()))
        .is_ok()
}

/// `try_admit_owned`.
#[inline]
#[must_use]
pub fn owned(lane: &Lane, request: &Request) -> bool {
    let permit = lane.try_admit_owned(request);
    permit
        .map(|permit| permit.finish(Completion::success()))
        .is_ok()
}

/// `try_admit` of what the gate refuses.
#[inline]
#[must_use]
pub fn refused(lane: &Lane, request: &Request) -> bool {
    matches!(lane.try_admit(request), Err(rejected) if rejected.reason() == Reason::Shed)
}

/// `admit`, polled once.
fn ready(lane: &Lane, request: &Request) -> bool {
    let admit = pin!(lane.admit(request));
    match admit.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(permit)) => {
            permit.finish(Completion::success());
            true
        }
        _ => false,
    }
}

fn blocking(lane: &Lane, request: &Request) -> bool {
    let permit = lane.admit_blocking(request);
    permit
        .map(|permit| permit.finish(Completion::success()))
        .is_ok()
}

fn on_one(
    name: &str,
    mode: Mode,
    way: impl Fn(&Lane, &Request) -> bool + 'static,
) -> Result<Subject, Error> {
    let (controller, lane) = fixture::running(SLOTS)?;
    controller.set_mode(mode);
    let mut key = 0u64;
    Ok(Subject::new(name, move || {
        let _kept = &controller;
        key += 1;
        way(&lane, &black_box(Request::new(Tier::T1).key(key)))
    }))
}

fn on_two(
    name: &str,
    way: impl Fn(&Lane, &Request) -> bool + Copy + Sync + 'static,
) -> Result<Subject, Error> {
    let (controller, lane) = fixture::running(SLOTS)?;
    Ok(Subject::twice(name, move || {
        let _kept = &controller;
        let lane = lane.clone();
        let mut key = 0u64;
        move || {
            key += 1;
            way(&lane, &black_box(Request::new(Tier::T1).key(key)))
        }
    }))
}

fn shed_by(lane: Lane) -> impl FnMut() -> bool {
    let request = fixture::refused();
    move || refused(&lane, black_box(&request))
}

/// A try on a lane whose only slot is taken.
fn busy() -> Result<Subject, Error> {
    let (controller, lane) = fixture::running(1)?;
    let held = lane.try_admit_owned(&Request::new(Tier::T1));
    let request = Request::new(Tier::T1).key(1);
    Ok(Subject::new("cinnamon busy", move || {
        let _kept = (&controller, &held);
        matches!(lane.try_admit(black_box(&request)), Err(rejected) if rejected.reason() == Reason::Busy)
    }))
}

/// A future waits, is granted the slot that is given back, and looks: all on one thread, so without a wake-up of
/// the kernel's.
fn hand_off((controller, lane): Fixture) -> Subject {
    let clock = MonotonicClock::new();
    let request = Request::new(Tier::T1).key(1);
    Subject::timed(HAND_OFF, move |times| {
        let _kept = &controller;
        let mut held = lane.try_admit(&request).ok();
        let took = super::rounds::repeat(&clock, times, || {
            let mut next = lane.admit(black_box(&request));
            let waits = next.poll_admit(Waker::noop()).is_pending();
            if let Some(permit) = held.take() {
                permit.finish(Completion::success());
            }
            if let Poll::Ready(Ok(permit)) = next.poll_admit(Waker::noop()) {
                held = Some(permit);
            }
            waits && held.is_some()
        });
        drop(held);
        took
    })
}

/// A queue full of what the gate comes to refuse is emptied, with each waiter told. Per waiter.
fn sweep() -> Result<Subject, Error> {
    let (controller, lane) = fixture::queue()?;
    let clock = MonotonicClock::new();
    let held = lane.try_admit_owned(&Request::new(Tier::T1));
    let mut waiting: Vec<AdmitOwned> = Vec::with_capacity(WAITERS as usize);
    Ok(Subject::timed("cinnamon sweep, per waiter", move |times| {
        let _kept = &held;
        let mut took_ns = 0;
        let mut left = times;
        while left > 0 {
            let here = left.min(u64::from(WAITERS));
            left -= here;
            controller.clear_overrides(&Target::Controller);
            controller.tick(controller.clock().now());
            for key in 0..here {
                let request = Request::new(Tier::T5).key(key);
                let mut admit = lane.admit_owned(&request);
                if admit.poll_admit(Waker::noop()).is_ready() {
                    return None;
                }
                waiting.push(admit);
            }
            let began = clock.now();
            fixture::shut(&controller).ok()?;
            took_ns += clock.now().nanos_since(began);
            for mut admit in waiting.drain(..) {
                let refused = matches!(admit.poll_admit(Waker::noop()), Poll::Ready(Err(_)));
                if !refused {
                    return None;
                }
            }
        }
        Some(took_ns)
    }))
}

fn tick_with(name: &str, signals: usize) -> Result<Subject, Error> {
    let time = ManualClock::new();
    let (controller, lanes) = fixture::store(signals, &time)?;
    let clock = MonotonicClock::new();
    Ok(Subject::timed(name, move |times| {
        let mut took_ns = 0;
        for _ in 0..times {
            let busy = lanes.iter().all(|lane| work(lane, &time));
            if !busy {
                return None;
            }
            let now = time.advance(TICK);
            let began = clock.now();
            controller.tick(now);
            took_ns += clock.now().nanos_since(began);
        }
        Some(took_ns)
    }))
}

/// A little work on a lane, a microsecond each.
fn work(lane: &Lane, time: &ManualClock) -> bool {
    (0..WORK_PER_TICK).all(|key| {
        let request = Request::new(Tier::T2).key(u64::from(key));
        let Ok(permit) = lane.try_admit(&request) else {
            return false;
        };
        time.advance(Duration::from_micros(1));
        permit.finish(Completion::success());
        true
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::rounds::Miss;
    use super::*;

    #[test]
    fn every_subject_does_what_it_says() {
        let mut seen = BTreeSet::new();
        let mut subjects = all().unwrap();
        // Waits expire, in real time: a machine that stands still for half a second is no fault of ours.
        subjects.retain(|subject| subject.name != HAND_OFF);
        subjects.push(hand_off(fixture::steady(1).unwrap()));
        for mut subject in subjects {
            for times in [1, 50, 1_100] {
                let ran = (subject.run)(times);
                assert_ne!(ran, Err(Miss::Astray), "{}", subject.name);
            }
            assert!(seen.insert(subject.name.clone()), "{} twice", subject.name);
        }
    }
}
