//! [`Memory`] on the memory of this very process.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use cinnamon_core::{Binding, Instant, Reason, Signal, SignalState, Tier, View};
use cinnamon_signals::Memory;
use support::Bench;

const MIB: u64 = 1 << 20;

/// Tests of one process share its memory, and run at the same time.
static ALONE: Mutex<()> = Mutex::new(());

/// Limits of 32 and 64 MiB more than the process holds now.
fn memory() -> Memory {
    let mut probe = Memory::process(1, 2).unwrap();
    let held = probe.usage().process_bytes.unwrap().unwrap();
    Memory::process(held + 32 * MIB, held + 64 * MIB).unwrap()
}

/// Memory that is really used. So large a piece is mapped by itself, and given back when it is dropped.
fn allocate() -> Vec<u8> {
    black_box(vec![1; 64 * MIB as usize])
}

#[test]
fn pressure_follows_what_the_process_holds() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut memory = memory();
    let mut pressure = || {
        let reading = memory.sample(Instant::ZERO, &View::default());
        reading.value().unwrap()
    };
    let before = pressure();
    assert!(before < 0.8, "{before}");
    let held = allocate();
    let filled = pressure();
    assert!((1.8..2.2).contains(&filled), "{filled}");
    drop(held);
    let released = pressure();
    assert!(released < before + 0.1, "{before}, {released}");
}

#[test]
fn memory_over_its_soft_limit_sheds_the_least_important_first_and_says_so() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut bench = Bench::new(memory());
    bench.run(2_000);
    assert_eq!(bench.refused.len(), 0, "in calm weather it does nothing");
    assert_eq!(bench.signal().state, SignalState::Calm);

    let held = allocate();
    bench.run(1_000);
    let signal = bench.signal();
    assert_eq!(signal.state, SignalState::Engaged);
    assert!(signal.pressure.unwrap() > 1.8 && signal.binding);
    let budget = signal.budget_per_s.unwrap();
    assert!(budget < 3_000.0, "{budget}");
    let first = bench.refused[0].1;
    assert_eq!(first.reason(), Reason::Shed);
    assert_eq!(first.binding(), Binding::Signal { index: 0 });
    let name = bench.controller.binding_name(first.binding());
    assert_eq!(name, "signal memory");
    assert_eq!(bench.refused[0].0, Tier::T4, "the least important first");

    drop(held);
    bench.run(20_000);
    bench.run(1_000);
    assert_eq!(bench.refused.len(), 0);
    assert_eq!(bench.signal().state, SignalState::Calm);
}

/// envoyproxy/envoy#21923, #39006: a heap that never shrinks shed for ever.
#[test]
fn bug_65_memory_that_does_not_fall_holds_the_gate_only_so_long() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut bench = Bench::new(memory());
    bench.run(2_000);
    let held = allocate();
    bench.run(10_000);
    assert!(
        bench.refused_share() < 0.99,
        "something always gets through"
    );
    bench.run(110_000);
    let signal = bench.signal();
    assert!(signal.unresponsive && signal.pressure.unwrap() > 1.8);
    assert!(signal.authority <= 0.1, "{}", signal.authority);
    bench.run(10_000);
    let share = bench.refused_share();
    assert!(share < 0.12, "it may take a tenth: {share}");
    drop(held);
    bench.run(30_000);
    bench.run(1_000);
    assert_eq!(bench.refused.len(), 0);
}
