//! [`Push`] and [`Errors`] in a controller.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::time::Duration;

use cinnamon_core::{Authority, Clock, Dynamics, SignalFault, SignalState, Tier};
use cinnamon_signals::{Errors, Push};
use support::Bench;

#[test]
fn a_gauge_that_nobody_feeds_any_more_grows_stale_and_lets_go() {
    let second = Duration::from_secs(1);
    let (signal, handle) = Push::new("gauge", Dynamics::settling(second));
    let mut bench = Bench::new(signal.authority(Authority::Measuring));
    bench.run(1_000);
    let waiting = bench.signal();
    assert_eq!(waiting.fault, Some(SignalFault::Unavailable));
    assert_eq!(waiting.fault_detail, "nothing has been pushed yet");
    assert_eq!(bench.refused.len(), 0);

    for _ in 0..20 {
        handle.push(1.5);
        bench.run(100);
    }
    let fed = bench.signal();
    assert_eq!((fed.state, fed.fault), (SignalState::Engaged, None));
    assert!(fed.readings == 20 && bench.refused_share() > 0.1);

    // One horizon is its T; the grip is gone two horizons later.
    bench.run(1_300);
    let stale = bench.signal();
    assert_eq!(stale.state, SignalState::Fading);
    assert_eq!(stale.fault, Some(SignalFault::Stale));
    assert_eq!(stale.readings, 20, "the same value again teaches nothing");
    bench.run(2_000);
    assert_eq!(bench.signal().state, SignalState::Ignored);
    bench.run(1_000);
    assert_eq!(bench.refused.len(), 0);

    handle.push_at(0.5, bench.clock.now());
    bench.run(100);
    assert_eq!(bench.signal().state, SignalState::Calm);
    drop(handle);
    bench.run(100);
    assert_eq!(bench.signal().fault_detail, "nobody feeds it any more");
}

#[test]
fn errors_engage_on_overload_and_leave_a_normal_day_alone() {
    let mut bench = Bench::new(Errors::new());
    bench.overloaded_of_100 = 4;
    bench.run(10_000);
    assert_eq!(bench.refused.len(), 0, "below the target");
    assert_eq!(bench.signal().state, SignalState::Calm);

    bench.overloaded_of_100 = 30;
    bench.run(2_000);
    let signal = bench.signal();
    assert_eq!(signal.state, SignalState::Engaged);
    assert_eq!(bench.refused[0].0, Tier::T4, "the least important first");
    let name = bench.controller.binding_name(bench.refused[0].1.binding());
    assert_eq!(name, "signal errors");
    let budget_per_s = signal.budget_per_s.unwrap();
    assert!(
        budget_per_s > 1_900.0,
        "half of what is asked, for its own errors do not confirm it: {budget_per_s}"
    );

    bench.overloaded_of_100 = 0;
    bench.run(20_000);
    bench.run(1_000);
    assert_eq!(bench.refused.len(), 0);
    assert_eq!(bench.signal().state, SignalState::Calm);
}
