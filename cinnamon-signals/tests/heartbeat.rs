//! [`Heartbeat`] on a processor that is really starved: a child of the lowest priority beside threads that spin.
//!
//! It takes half a minute and the whole machine, so it runs only when asked for:
//! `cargo test -p cinnamon-signals --test heartbeat -- --ignored --nocapture starvation`

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what fails here fails the test"
)]

use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use cinnamon_core::{Clock, MonotonicClock, Signal, View};
use cinnamon_signals::Heartbeat;

/// Told by the child once it has learned what its latency usually is.
const READY: &str = "ready";
const CALM: Duration = Duration::from_secs(14);
const STARVED: Duration = Duration::from_secs(14);
/// For each core.
const HOGS: usize = 64;

#[test]
#[ignore = "takes half a minute and the whole machine"]
fn starvation_of_the_processor_is_found_within_nine_seconds() {
    let mut child = Command::new("nice")
        .args(["-n", "19"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "starved_child", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let stop = Arc::new(AtomicBool::new(false));
    let mut hogs = Vec::new();
    let mut found_s = None;
    while let Some(Ok(line)) = lines.next() {
        println!("child: {line}");
        if line.ends_with(READY) {
            let cores = thread::available_parallelism().unwrap().get();
            for _ in 0..HOGS * cores {
                let stop = Arc::clone(&stop);
                hogs.push(thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        black_box((0..10_000_u64).fold(0, |a, b| black_box(a ^ b)));
                    }
                }));
            }
        } else if let Some(seconds) = line.strip_prefix("fired after ") {
            found_s = seconds.trim_end_matches(" s").parse::<f64>().ok();
        }
    }
    stop.store(true, Ordering::Relaxed);
    for hog in hogs {
        hog.join().unwrap();
    }
    assert!(child.wait().unwrap().success());
    let found_s = found_s.unwrap();
    println!(
        "{} spinning threads a core: found after {found_s:.1} s",
        HOGS
    );
    assert!(found_s <= 9.5, "{found_s}");
}

#[test]
#[ignore = "is started by the other one"]
fn starved_child() {
    let clock = MonotonicClock::new();
    // A request is handed to a worker, which needs some ten milliseconds of a core for it.
    let (ask, asked) = mpsc::channel::<()>();
    let (answer, answered) = mpsc::channel::<()>();
    thread::spawn(move || {
        while asked.recv().is_ok() {
            black_box((0..5_000_000_u64).fold(0, |a, b| black_box(a ^ b)));
            answer.send(()).unwrap();
        }
    });
    let worker = MonotonicClock::new();
    let mut heartbeat = Heartbeat::new(move || {
        let began = worker.now();
        ask.send(()).ok()?;
        answered.recv().ok()?;
        Some(worker.now().since(began).as_secs_f64())
    });
    let mut starved = None;
    let began = clock.now();
    loop {
        thread::park_timeout(Duration::from_millis(100));
        let now = clock.now();
        let reading = heartbeat.sample(now, &View::default());
        let fires = reading.value().is_some_and(|pressure| pressure >= 1.0);
        match starved {
            None if now.since(began) >= CALM => {
                println!("{READY}");
                starved = Some(now);
            }
            None => assert!(!fires, "in calm: {reading:?}"),
            Some(since) => {
                if fires {
                    println!("{reading:?}");
                    println!("fired after {:.1} s", now.since(since).as_secs_f64());
                    return;
                }
                if now.since(since) > STARVED {
                    println!("silent: {reading:?}");
                    return;
                }
            }
        }
    }
}
