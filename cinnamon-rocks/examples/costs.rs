//! What the units of the cost model are on this machine: each kind of work as a multiple of a point read whose
//! block is in the cache.
//!
//! ```text
//! tools/cargo-rocks.sh run --release -p cinnamon-rocks --example costs
//! ```
#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::hint::black_box;
use std::path::Path;

use cinnamon_core::simulation::Rng;
use cinnamon_core::{Clock, MonotonicClock};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, DBCompressionType, Options, WriteBatch,
    WriteOptions,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ROWS: u64 = 1_000_000;
const VALUE_BYTES: usize = 100;
const ROUNDS: u32 = 5;

fn main() -> Result<()> {
    let dir = tempfile::tempdir()?;
    fill(dir.path())?;
    let mut rng = Rng::new(1);
    println!("In point reads from the cache:");
    for round in 1..=ROUNDS {
        let db = open(dir.path(), 1 << 30)?;
        scan(&db);
        points(&db, &mut rng, ROWS as u32 / 2)?;
        let get = points(&db, &mut rng, 200_000)?;
        let row = scan(&db);
        let of_many = many(&db, &mut rng)?;
        drop(db);
        let db = open(dir.path(), 0)?;
        let uncached = points(&db, &mut rng, 200_000)? - get;
        drop(db);
        let db = open(dir.path(), 1 << 20)?;
        let (put, batched) = (
            puts(&db, &mut rng, 1, false)?,
            puts(&db, &mut rng, 64, false)?,
        );
        let (put_synced, batch_synced) = (
            puts(&db, &mut rng, 1, true)?,
            puts(&db, &mut rng, 64, true)?,
        );
        let tombstone = tombstones(&db)?;
        println!(
            "round {round}: (point read {get:.0} ns) key of 16 at once {:.2}, block not cached {:.2}, \
             row of a scan {:.3}, tombstone {:.3}",
            of_many / get,
            uncached / get,
            row / get,
            tombstone / get,
        );
        println!(
            "         put {:.2}, in a batch of 64 each {:.2}; synchronised put {:.0}, batch of 64 {:.0}",
            put / get,
            batched / get,
            put_synced / get,
            64.0 * batch_synced / get,
        );
    }
    Ok(())
}

fn open(path: &Path, cache_bytes: usize) -> Result<DB> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(cache_bytes));
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    let family = ColumnFamilyDescriptor::new("default", options.clone());
    Ok(DB::open_cf_descriptors(&options, path, [family])?)
}

/// Rows of which half is noise, as real ones are.
fn fill(path: &Path) -> Result<()> {
    let db = open(path, 1 << 20)?;
    let mut rng = Rng::new(0);
    let mut value = [0; VALUE_BYTES];
    for row in 0..ROWS {
        for eight in value[..VALUE_BYTES / 2].chunks_exact_mut(8) {
            eight.copy_from_slice(&rng.bits().to_le_bytes());
        }
        db.put(row.to_be_bytes(), value)?;
    }
    db.flush()?;
    db.compact_range(None::<&[u8]>, None::<&[u8]>);
    Ok(())
}

/// Nanoseconds that each of so many takes.
fn each(count: u32, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let clock = MonotonicClock::new();
    let start = clock.now();
    work()?;
    Ok(clock.now().nanos_since(start) as f64 / f64::from(count))
}

fn points(db: &DB, rng: &mut Rng, count: u32) -> Result<f64> {
    each(count, || {
        for _ in 0..count {
            black_box(db.get((rng.bits() % ROWS).to_be_bytes())?);
        }
        Ok(())
    })
}

fn many(db: &DB, rng: &mut Rng) -> Result<f64> {
    const TIMES: u32 = 10_000;
    let family = db.cf_handle("default").ok_or("every database has it")?;
    each(16 * TIMES, || {
        for _ in 0..TIMES {
            let keys: Vec<_> = (0..16).map(|_| (rng.bits() % ROWS).to_be_bytes()).collect();
            for value in db.batched_multi_get_cf(family, &keys, false) {
                black_box(value?.map(|value| value.to_vec()));
            }
        }
        Ok(())
    })
}

fn scan(db: &DB) -> f64 {
    let mut rows = db.raw_iterator();
    rows.seek_to_first();
    let all = each(ROWS as u32, || {
        for _ in 0..ROWS {
            let row = rows
                .item()
                .map(|(key, value)| (key.to_vec(), value.to_vec()));
            black_box(row);
            rows.next();
        }
        Ok(())
    });
    all.unwrap_or(f64::NAN)
}

/// Writes above all rows, at random, one by one or so many at once.
fn puts(db: &DB, rng: &mut Rng, at_once: u32, sync: bool) -> Result<f64> {
    let count = if sync {
        100 * at_once
    } else {
        50_000 / at_once * at_once
    };
    let mut options = WriteOptions::default();
    options.set_sync(sync);
    each(count, || {
        for _ in 0..count / at_once {
            let mut batch = WriteBatch::default();
            for _ in 0..at_once {
                let key = rng.bits() | 1 << 63;
                batch.put(key.to_be_bytes(), [7; VALUE_BYTES]);
            }
            db.write_opt(batch, &options)?;
        }
        Ok(())
    })
}

/// Stepping over rows that were deleted: a tombstone and what it hides are two steps.
fn tombstones(db: &DB) -> Result<f64> {
    const DELETED: u32 = 100_000;
    let keys = || (0..u64::from(DELETED)).map(|row| (row | 1 << 62).to_be_bytes());
    for key in keys() {
        db.put(key, b"value")?;
    }
    db.flush()?;
    for key in keys() {
        db.delete(key)?;
    }
    let mut rows = db.raw_iterator();
    each(2 * DELETED, || {
        rows.seek((1u64 << 62).to_be_bytes());
        black_box(rows.valid());
        Ok(())
    })
}
