//! The best constant rate: what the store takes for good without holding anybody back.
//!
//! Writers that never rest say what a store gets done while it stalls. What can be had of it without a stall is less, and
//! is asked for in a second step, at constant rates below the first, as in *On Performance Stability in LSM-based Storage
//! Systems* (Luo and Carey, VLDB 2019): there the second step is 95 % of the first, here the highest that holds is looked for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use cinnamon_core::simulation::Rng;
use cinnamon_core::{Request, Tier};
use cinnamon_rocks::StoreError;
use hdrhistogram::Histogram;

use super::load::{self, ROWS, VALUE_BYTES};
use super::server::Server;
use super::stats::DEADLINE;
use super::watch::Seen;
use crate::task::{histogram, join, pause};

/// The rates that may be asked for, in shares of what the writers that never rest get done, low to high.
pub(super) const SHARES: [f64; 11] = [
    0.800, 0.825, 0.850, 0.875, 0.900, 0.925, 0.950, 0.975, 1.000, 1.025, 1.050,
];
/// So many of them are asked for at most, halving what is left.
pub(super) const RUNS_MAX: usize = SHARES.len().ilog2() as usize + 1;
/// Threads that write: as many as the more of the writers that never rest.
const WRITERS: u64 = 8;
/// Of the time, the most in which RocksDB may delay or stop writes at a rate that it takes without a stall.
const HELD_BACK_MAX: f64 = 0.01;
/// Of the writes, the least that must be done within [`DEADLINE`].
const IN_TIME_MIN: f64 = 0.99;
/// Before a write is due its writer looks again this often.
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// What became of one constant rate.
#[derive(Debug)]
pub(super) struct Steady {
    /// Share of what the writers that never rest get done.
    pub(super) share: f64,
    pub(super) asked_per_s: f64,
    pub(super) writes_per_s: f64,
    /// Share of the writes that were done in time.
    pub(super) in_time: f64,
    pub(super) p99_ms: f64,
    /// Share of the time in which RocksDB held writes back.
    pub(super) held_back: f64,
    pub(super) seen: Seen,
}

impl Steady {
    /// Whether the store takes this without a stall.
    pub(super) fn holds(&self) -> bool {
        self.held_back <= HELD_BACK_MAX && self.in_time >= IN_TIME_MIN
    }
}

/// The highest of [`SHARES`] that holds, if any does; one that holds is taken to say that all below it do.
pub(super) fn highest<E>(mut holds: impl FnMut(f64) -> Result<bool, E>) -> Result<Option<f64>, E> {
    let (mut from, mut until) = (0, SHARES.len());
    while from < until {
        let middle = from.midpoint(until);
        if holds(SHARES[middle])? {
            from = middle + 1;
        } else {
            until = middle;
        }
    }
    Ok(from.checked_sub(1).map(|highest| SHARES[highest]))
}

/// Offers this share of so many writes a second, at equal distances, for as long as `watch` takes.
pub(super) fn run(
    server: &Server,
    share: f64,
    closed_per_s: f64,
    seed: u64,
    watch: impl FnOnce() -> (Seen, f64),
) -> Result<Steady, StoreError> {
    let asked_per_s = share * closed_per_s;
    let (over, number) = (AtomicBool::new(false), AtomicU64::new(0));
    let write = |writer| {
        let mut rng = Rng::new(seed ^ writer);
        let mut value = [0; VALUE_BYTES];
        let mut latency_us = histogram();
        'writes: loop {
            let number = number.fetch_add(1, Ordering::Relaxed);
            let due = Duration::from_secs_f64(number as f64 / asked_per_s);
            while server.elapsed() < due {
                if over.load(Ordering::Acquire) {
                    break 'writes;
                }
                pause(LOOK_AGAIN);
            }
            if over.load(Ordering::Acquire) {
                break;
            }
            let key = rng.bits() % ROWS;
            load::fill(&mut value, rng.bits());
            let request = Request::new(Tier::T1);
            server.store().put(&request, &key.to_be_bytes(), &value)?;
            server.written().fetch_add(1, Ordering::Relaxed);
            if due >= server.warm_up() {
                let took = server.elapsed().saturating_sub(due);
                latency_us.saturating_record(took.as_micros() as u64);
            }
        }
        Ok::<Histogram<u64>, StoreError>(latency_us)
    };
    thread::scope(|scope| {
        let write = &write;
        let threads: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write(writer)))
            .collect();
        let (seen, writes_per_s) = watch();
        over.store(true, Ordering::Release);
        let mut latency_us = histogram();
        for thread in threads {
            latency_us += join(thread)?;
        }
        let in_time = latency_us.count_between(0, DEADLINE.as_micros() as u64);
        Ok(Steady {
            share,
            asked_per_s,
            writes_per_s,
            in_time: in_time as f64 / latency_us.len().max(1) as f64,
            p99_ms: latency_us.value_at_quantile(0.99) as f64 / 1e3,
            held_back: (seen.delayed_s + seen.stopped_s) / seen.counted_s,
            seen,
        })
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn the_highest_share_that_holds_is_found_with_few_runs() {
        let up_to = |most: f64| {
            let mut runs = 0;
            let found = highest(|share| {
                runs += 1;
                Ok::<bool, Infallible>(share <= most)
            });
            assert!(runs <= RUNS_MAX, "{runs}");
            found.unwrap()
        };
        assert_eq!(up_to(0.5), None);
        for share in SHARES {
            assert_eq!(up_to(share), Some(share));
        }
        assert_eq!(
            highest(|_| Err("the store failed")),
            Err("the store failed")
        );
    }
}
