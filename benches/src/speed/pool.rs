//! A pool of threads with a controller before it and without: what a store loses of its throughput when there is nothing to
//! control.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::thread;

use cinnamon_core::{Clock, Completion, Lane, MonotonicClock, Request, Tier};

use super::fixture::{self, Error, SLOTS};

/// Threads: as many as the smallest machine that this is measured on has.
const THREADS: u64 = 2;
/// Keys of the table that jobs look things up in: more than a core's own cache holds.
const KEYS: u64 = 200_000;
/// How long one half of a pair takes, about, ns …
const HALF_NS: u64 = 200_000_000;
/// … in so many slices, with one of the other half after each: a machine that is a tenth slower for half a second would else be all of
/// what a pair shows.
const SLICES: u64 = 10;
/// Jobs after which the pool is taken to be warm.
const WARM_UP: u64 = 2_000;
/// The shortest service time that the defaults are made for, ns: what takes less is not held to the bar, and shown beside it.
const SHORTEST_NS: f64 = 10_000.0;
/// What a pair is to come to at least, and what it is to come to one day.
const BAR: f64 = 0.97;
const MOONSHOT: f64 = 0.99;

/// What pairs came to: throughput with a controller over that without, sorted.
#[derive(Debug)]
pub struct Pairs {
    /// Lookups of a job.
    lookups: u64,
    /// How long a job takes, ns.
    job_ns: f64,
    ratios: Vec<f64>,
}

/// Runs so many pairs of each size of job, the two halves in turns.
///
/// # Errors
///
/// When a controller cannot be built.
pub fn measure(pairs: usize) -> Result<Vec<Pairs>, Error> {
    let table: BTreeMap<u64, u64> = (0..KEYS).map(|key| (scatter(key), key)).collect();
    let (controller, lane) = fixture::running(SLOTS)?;
    let sizes = [10, 60, 200];
    let measured = sizes.map(|lookups| {
        let pool = Pool {
            table: &table,
            lookups,
            clock: MonotonicClock::new(),
        };
        pool.run(WARM_UP, Some(&lane));
        let job_ns = pool.run(WARM_UP, None) as f64 / WARM_UP as f64;
        let jobs = ((HALF_NS as f64 / job_ns) as u64).max(WARM_UP) / SLICES;
        let mut ratios: Vec<f64> = (0..pairs)
            .map(|_| {
                let (mut with, mut without) = (0, 0);
                for slice in 0..SLICES {
                    // Neither is always first.
                    if slice % 2 == 0 {
                        with += pool.run(jobs, Some(&lane));
                        without += pool.run(jobs, None);
                    } else {
                        without += pool.run(jobs, None);
                        with += pool.run(jobs, Some(&lane));
                    }
                }
                without as f64 / with as f64
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        Pairs {
            lookups,
            job_ns,
            ratios,
        }
    });
    drop(controller);
    Ok(measured.into())
}

/// The figures, as a table in Markdown.
#[must_use]
pub fn markdown(pairs: &[Pairs]) -> String {
    let mut text = format!(
        "\n## Throughput of a pool\n\n{THREADS} threads that look keys up, with a controller before each job over without, in \
         interleaved pairs.\n\n| a job | its time | least | median | bar (moonshot) | verdict |\n|---|--:|--:|--:|--:|---|\n"
    );
    for of in pairs {
        let median = of.median();
        let verdict = match () {
            () if of.job_ns < SHORTEST_NS && median < BAR => "missed, shorter than 10 µs",
            () if median >= MOONSHOT => "met, moonshot too",
            () if median >= BAR => "met",
            () => "MISSED",
        };
        let (least, us) = (of.ratios.first().copied().unwrap_or(0.0), of.job_ns * 1e-3);
        // Writing to a string does not fail.
        _ = writeln!(
            text,
            "| {} lookups | {us:.1} µs | {least:.3} | {median:.3} | {BAR} ({MOONSHOT}) | {verdict} |",
            of.lookups
        );
    }
    text
}

impl Pairs {
    fn median(&self) -> f64 {
        let middle = self.ratios.len() / 2;
        self.ratios.get(middle).copied().unwrap_or(0.0)
    }
}

struct Pool<'a> {
    table: &'a BTreeMap<u64, u64>,
    lookups: u64,
    clock: MonotonicClock,
}

impl Pool<'_> {
    /// How long each thread needs for so many jobs, ns.
    fn run(&self, jobs: u64, lane: Option<&Lane>) -> u64 {
        let began = self.clock.now();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || (0..jobs).for_each(|n| self.job(thread * jobs + n, lane)));
            }
        });
        self.clock.now().nanos_since(began)
    }

    fn job(&self, n: u64, lane: Option<&Lane>) {
        let permit = lane.map(|lane| lane.admit_blocking(&Request::new(Tier::T1).key(n)));
        for lookup in 0..self.lookups {
            let key = scatter((n * self.lookups + lookup) % KEYS);
            black_box(self.table.get(&key));
        }
        if let Some(Ok(permit)) = permit {
            permit.finish(Completion::success());
        }
    }
}

/// Keys in no order.
const fn scatter(key: u64) -> u64 {
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_the_pairs_came_to() {
        let of = |ratio| Pairs {
            lookups: 10,
            job_ns: 12_000.0,
            ratios: vec![0.9, ratio, 1.0],
        };
        let short = markdown(&[Pairs {
            job_ns: 9_999.0,
            ..of(0.5)
        }]);
        assert!(
            short.trim_end().ends_with("| missed, shorter than 10 µs |"),
            "{short}"
        );
        let table = markdown(&[of(0.96), of(0.98), of(0.995)]);
        let rows: Vec<&str> = table.lines().rev().take(3).collect();
        assert!(
            rows[0].contains("| 12.0 µs | 0.900 | 0.995 |") && rows[0].contains("moonshot too")
        );
        assert!(rows[1].ends_with("| met |"), "{}", rows[1]);
        assert!(rows[2].ends_with("| MISSED |"), "{}", rows[2]);
    }
}
