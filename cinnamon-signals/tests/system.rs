//! The kernel's own files, where this machine has them.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use cinnamon_core::{Instant, Reading, Signal, View};
use cinnamon_signals::{AcceptQueue, Cpu, Pressure, StealTime};

/// Twenty seconds by a clock of its own; the files are as they are now.
fn last_of(signal: &mut impl Signal) -> Reading {
    let sample = |tenths: u64| {
        // Some work for the counters of time to move by.
        std::hint::black_box((0..100_000_u64).map(std::hint::black_box).sum::<u64>());
        let now = Instant::ZERO.after(Duration::from_millis(100 * tenths));
        signal.sample(now, &View::default())
    };
    (0..200).map(sample).last().unwrap()
}

/// A pressure that can be.
fn can_be(signal: &mut impl Signal) -> f64 {
    let reading = last_of(signal);
    let pressure = reading.value().unwrap();
    assert!(signal.range().contains(&pressure), "{pressure}");
    pressure
}

#[test]
fn the_kernel_tells_of_stalls_where_it_counts_them() {
    for mut signal in [Pressure::cpu(), Pressure::io(), Pressure::memory()] {
        let read = std::fs::read_to_string("/proc/pressure/cpu");
        if !Path::new("/proc/pressure").exists() || read.is_err() {
            assert_eq!(last_of(&mut signal).value(), None, "no PSI here");
            continue;
        }
        can_be(&mut signal);
        can_be(&mut signal.of_the_machine());
    }
}

#[test]
fn the_kernel_tells_how_busy_it_is() {
    // Two hundred samples of a few tens of microseconds may fall into one tick of the machine.
    let mut steal = StealTime::new();
    let mut cpu = Cpu::new();
    let stands_still = |reading: &Reading| format!("{reading:?}").contains("stand still");
    let reading = last_of(&mut steal);
    assert!(
        reading.value().is_some() || stands_still(&reading),
        "{reading:?}"
    );
    if let Some(pressure) = last_of(&mut cpu).value() {
        assert!(cpu.range().contains(&pressure), "{pressure}");
    }
}

#[test]
fn connections_that_nobody_accepts_are_seen() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut queue = AcceptQueue::new(port, 16).unwrap();
    assert_eq!(can_be(&mut queue), 0.0);
    let connections: Vec<_> = (0..8)
        .map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap())
        .collect();
    assert_eq!(can_be(&mut queue), 1.0, "half of sixteen");
    for _ in &connections {
        listener.accept().unwrap();
    }
    assert_eq!(can_be(&mut queue), 0.0);
    drop(listener);
    assert_eq!(last_of(&mut queue).value(), None, "nobody listens any more");
}
