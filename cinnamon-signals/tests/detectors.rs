//! Detectors in a controller that is asked for more than what stands behind it can do.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::collections::VecDeque;
use std::time::Duration;

use cinnamon_core::{Clock, ManualClock, Scope, SignalState, Tier};
use cinnamon_signals::{
    Follower, FollowerLag, LagReport, QueueWait, QueueWaitHandle, WriteBytes, WriteBytesHandle,
};
use support::Bench;

/// What is let in each millisecond, seen from outside.
fn step(bench: &mut Bench) -> u64 {
    bench.run_one_ms();
    bench.offered - bench.refused.len() as u64
}

/// A pool below the lane that can do so many requests a millisecond, newest last.
struct Pool {
    handle: QueueWaitHandle,
    clock: ManualClock,
    waiting: VecDeque<cinnamon_signals::QueuedWork>,
    credit: f64,
    does_per_ms: f64,
}

impl Pool {
    fn step(&mut self, admitted: u64) {
        let now = self.clock.now();
        (0..admitted).for_each(|_| self.waiting.push_back(self.handle.enter(now)));
        self.credit = (self.credit + self.does_per_ms).min(self.does_per_ms.max(1.0));
        while self.credit >= 1.0
            && let Some(work) = self.waiting.pop_front()
        {
            self.credit -= 1.0;
            work.begin(now);
        }
    }

    fn wait_ms(&self) -> f64 {
        self.waiting.len() as f64 / self.does_per_ms
    }
}

#[test]
fn queue_wait_is_held_and_lets_go() {
    let (signal, handle) = QueueWait::new();
    let mut bench = Bench::new(signal);
    let mut pool = Pool {
        handle,
        clock: bench.clock.clone(),
        waiting: VecDeque::new(),
        credit: 0.0,
        does_per_ms: 10.0,
    };
    let run = |bench: &mut Bench, pool: &mut Pool, seconds: u64| {
        let (mut admitted, mut refused, mut wait_ms) = (0, 0, 0.0);
        for _ in 0..1_000 * seconds {
            let here = step(bench);
            admitted += here;
            refused += bench.refused.len();
            pool.step(here);
            wait_ms += pool.wait_ms();
        }
        let ms = 1e3 * seconds as f64;
        (admitted / seconds, refused as u64 / seconds, wait_ms / ms)
    };
    let (calm, refused, _) = run(&mut bench, &mut pool, 15);
    assert_eq!((calm, refused), (4_000, 0));
    // It can do 3,000 of the 4,000 a second that it is asked for.
    pool.does_per_ms = 3.0;
    run(&mut bench, &mut pool, 20);
    let (served, _, wait_ms) = run(&mut bench, &mut pool, 40);
    println!("of 3,000 a second {served} let in; the mean wait is {wait_ms:.0} ms");
    assert!((2_850..=3_050).contains(&served), "{served}");
    assert!(wait_ms <= 22.0, "within a tenth of its target: {wait_ms}");
    assert!(bench.refused.iter().all(|(tier, _)| *tier >= Tier::T3));
    pool.does_per_ms = 10.0;
    run(&mut bench, &mut pool, 30);
    let (_, refused, _) = run(&mut bench, &mut pool, 10);
    assert_eq!((refused, bench.signal().state), (0, SignalState::Calm));
}

#[test]
fn follower_lag_is_held_at_its_target() {
    let (signal, followers) = FollowerLag::new();
    let follower: Follower = followers.follower("b");
    let signal = signal.delay(Duration::from_millis(50)).unwrap();
    let mut bench = Bench::new(signal.scope(Scope::Lane("main".to_owned())));
    let mut behind = 0.0_f64;
    let mut run = |bench: &mut Bench, ms: u64, applies_per_ms: f64| {
        let mut sum_s = 0.0;
        for ms in 0..ms {
            behind = (behind + step(bench) as f64 - applies_per_ms).max(0.0);
            let lag_s = behind / applies_per_ms / 1e3;
            sum_s += lag_s;
            if ms % 100 == 0 {
                follower.report(LagReport::time(Duration::from_secs_f64(lag_s)));
            }
        }
        sum_s / ms as f64
    };
    run(&mut bench, 5_000, 5.0);
    run(&mut bench, 30_000, 2.0);
    let mean_s = run(&mut bench, 30_000, 2.0);
    println!("a follower that applies half of it: {mean_s:.2} s behind");
    assert!(
        (1.8..=2.2).contains(&mean_s),
        "within a tenth of its target: {mean_s}"
    );
    run(&mut bench, 10_000, 8.0);
    run(&mut bench, 1_000, 8.0);
    assert_eq!(bench.refused.len(), 0);
}

#[test]
fn write_bytes_are_held_at_their_budget() {
    const BYTES: u64 = 4_096;
    let (signal, handle): (_, WriteBytesHandle) = WriteBytes::new(2_000.0 * BYTES as f64).unwrap();
    let mut bench = Bench::new(signal);
    let run = |bench: &mut Bench, ms: u64| {
        let mut bytes = 0;
        for _ in 0..ms {
            for _ in 0..step(bench) {
                // Taken for half of what it is.
                handle.admit(BYTES / 2).complete(BYTES);
                bytes += BYTES;
            }
        }
        bytes as f64 / ms as f64 * 1e3 / (2_000.0 * BYTES as f64)
    };
    run(&mut bench, 20_000);
    let of_budget = run(&mut bench, 20_000);
    println!("{of_budget:.3} of the budget");
    assert!((0.9..=1.1).contains(&of_budget), "{of_budget}");
    assert!(bench.refused.iter().all(|(tier, _)| *tier >= Tier::T3));
}

#[test]
#[cfg(target_os = "linux")]
fn the_cascade_refuses_one_tier_before_it_touches_the_next() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("proc")).unwrap();
    let mut bench = Bench::new(cinnamon_signals::Cpu::new().root(root.path()));
    let mut ticks = [0_u64; 2];
    let mut run = |bench: &mut Bench, seconds: u64, busy_percent: u64| {
        for _ in 0..10 * seconds {
            // A hundred ticks each tenth of a second.
            ticks[0] += busy_percent;
            ticks[1] += 100 - busy_percent;
            let stat = format!("cpu  {} 0 0 {} 0 0 0 0 0 0\n", ticks[0], ticks[1]);
            std::fs::write(root.path().join("proc/stat"), stat).unwrap();
            bench.run(100);
        }
    };
    let refused = |bench: &Bench, tier| {
        let refused = bench.refused.iter().filter(|(of, _)| *of == tier).count();
        refused as f64 / (bench.offered / 4) as f64
    };
    run(&mut bench, 10, 78);
    assert_eq!(bench.refused.len(), 0, "silent over a busy day");
    // Two thirds of the way: t5 and t4 are gone, and two thirds of t3.
    run(&mut bench, 20, 90);
    assert!(
        refused(&bench, Tier::T4) > 0.99,
        "{}",
        refused(&bench, Tier::T4)
    );
    let third = refused(&bench, Tier::T3);
    assert!((0.55..0.8).contains(&third), "{third}");
    assert_eq!(refused(&bench, Tier::T2) + refused(&bench, Tier::T1), 0.0);
    run(&mut bench, 10, 70);
    assert_eq!(bench.refused.len(), 0);
}
