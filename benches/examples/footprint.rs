//! What a controller, a lane, a signal and a waiter hold, and what allocates: tables for `docs/performance.md`.
//!
//! ```text
//! cargo run --release -p cinnamon-lab --no-default-features --example footprint
//! ```
//!
//! Counted by an allocator of its own, so not in the program that measures times.

use std::error::Error;
use std::mem::size_of;
use std::task::Waker;
use std::time::Duration;

use allocation_counter::measure;
use cinnamon_core::{
    Admit, AdmitOwned, Config, Controller, DECISIONS_KEPT, LaneSettings, ManualClock, OwnedPermit,
    Permit, Rejected, Request, Settings, Tier,
};
use cinnamon_lab::speed::fixture::{self, Error as FixtureError, SIGNALS, SLOTS, TICK, WAITERS};
use cinnamon_lab::speed::ours;

/// What is counted by the operation is done so often.
const TIMES: u32 = 1_000;
/// Lanes, beside the first, over which the bytes of a lane are averaged.
const FURTHER: u32 = 8;

fn main() -> Result<(), Box<dyn Error>> {
    bytes()?;
    println!();
    allocations()?;
    Ok(())
}

fn bytes() -> Result<(), FixtureError> {
    let one = held(|| idle(1, 0))?;
    let lane = (held(|| idle(1 + FURTHER, 0))? - one) / i64::from(FURTHER);
    let signal = (held(|| idle(1, SIGNALS))? - one) / SIGNALS as i64;
    println!("| what | bytes |\n|---|--:|");
    let row = |what: &str, bytes: i64| println!("| {what} | {bytes} |");
    row(
        "controller with one lane, idle, without its threads' stacks",
        one,
    );
    row("each further lane", lane);
    row("each signal, without what it holds itself", signal);
    row("each waiter, of the lane", waiter()?);
    let sizes = [
        ("its future, of the caller: `Admit`", size_of::<Admit<'_>>()),
        ("`AdmitOwned`", size_of::<AdmitOwned>()),
        ("`Permit`", size_of::<Permit<'_>>()),
        ("`OwnedPermit`", size_of::<OwnedPermit>()),
        ("`Request`", size_of::<Request>()),
        ("`Rejected`", size_of::<Rejected>()),
    ];
    for (what, bytes) in sizes {
        row(what, bytes as i64);
    }
    Ok(())
}

fn allocations() -> Result<(), FixtureError> {
    println!("| operation | allocations |\n|---|--:|");
    let row = |what: &str, count: f64| println!("| {what} | {count} |");
    let request = Request::new(Tier::T1).key(1);
    let (_controller, lane) = fixture::steady(SLOTS)?;
    let borrowed = || ours::borrowed(&lane, &request);
    row("admit and finish, borrowed", counted(borrowed));
    row(
        "admit and finish, owned",
        counted(|| ours::owned(&lane, &request)),
    );
    let (shut, lane) = fixture::steady(SLOTS)?;
    fixture::shut(&shut)?;
    let shed = || ours::refused(&lane, &fixture::refused());
    row("shed", counted(shed));
    for signals in [0, SIGNALS] {
        let clock = ManualClock::new();
        let (controller, _lanes) = fixture::store(signals, &clock)?;
        // Metrics are emitted once a second: these ticks stand still between two emissions.
        let tick = |step| controller.tick(clock.advance(step));
        for _ in 0..DECISIONS_KEPT {
            tick(TICK);
        }
        tick(Duration::from_secs(1));
        let few = 40;
        let info = measure(|| (0..few).for_each(|_| tick(TICK)));
        let what = format!("tick of two lanes that samples {signals} signals");
        row(&what, info.count_total as f64 / f64::from(few));
        let info = measure(|| tick(Duration::from_secs(1)));
        let what = format!("tick that emits metrics too, once a second, with {signals} signals");
        row(&what, info.count_total as f64);
        let snapshot = || !controller.snapshot().lanes.is_empty();
        row(
            &format!("snapshot with {signals} signals"),
            counted(snapshot),
        );
    }
    Ok(())
}

/// A controller that has ticked for long enough to hold what it ever holds at rest.
fn idle(lanes: u32, signals: usize) -> Result<Controller, FixtureError> {
    let lane =
        |settings: Settings, n| settings.lane(LaneSettings::new(&format!("lane-{n}"), SLOTS));
    let settings = (0..lanes).fold(Settings::default(), lane);
    let clock = ManualClock::new();
    let builder = fixture::with_gauges(Controller::builder(Config::new(settings)?), signals, TICK);
    let controller = builder.build_manual(clock.shared())?;
    for _ in 0..2 * DECISIONS_KEPT {
        controller.tick(clock.advance(Duration::from_millis(250)));
    }
    Ok(controller)
}

/// Bytes still held of what `make` made.
fn held<T>(make: impl FnOnce() -> Result<T, FixtureError>) -> Result<i64, FixtureError> {
    let mut made = None;
    let info = measure(|| made = Some(make()));
    made.transpose().map(|_| info.bytes_current)
}

/// Bytes that the lane holds for each of [`WAITERS`].
fn waiter() -> Result<i64, FixtureError> {
    let (_controller, lane) = fixture::queue()?;
    let request = Request::new(Tier::T1).key(1);
    let _held = lane.try_admit(&request);
    let mut waiting = Vec::with_capacity(WAITERS as usize);
    let info = measure(|| {
        for _ in 0..WAITERS {
            let mut admit = lane.admit(&request);
            let polled = admit.poll_admit(Waker::noop());
            debug_assert!(polled.is_pending());
            drop(polled);
            waiting.push(admit);
        }
    });
    Ok(info.bytes_current / i64::from(WAITERS))
}

/// Allocations of one of many, once warm.
fn counted(mut op: impl FnMut() -> bool) -> f64 {
    let mut good = (0..TIMES).all(|_| op());
    let info = measure(|| good &= (0..TIMES).all(|_| op()));
    if good {
        info.count_total as f64 / f64::from(TIMES)
    } else {
        f64::NAN
    }
}
