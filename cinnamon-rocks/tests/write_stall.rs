//! The signal on a real RocksDB that is driven to its stall.
#![allow(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use cinnamon_core::{Dynamics, Instant, Reading, Signal, View};
use cinnamon_rocks::{
    Request, StallPart, StallTriggers, Store, StoreError, StoreOptions, Tier, WRITE_STALL,
    WriteStall,
};
use rocksdb::{DB, Options};

const WRITE_BUFFER_BYTES: u64 = 64 << 10;
const T1: Request = Request::new(Tier::T1);

fn triggers() -> StallTriggers {
    let mut triggers = StallTriggers::default();
    triggers.l0_compaction = 2;
    triggers.l0_slowdown = 12;
    triggers.l0_stop = 16;
    triggers.write_buffers_max = 4;
    triggers
}

/// A database that never compacts by itself, so that L0 only grows.
fn growing(dir: &std::path::Path) -> Arc<DB> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES as usize);
    options.set_max_write_buffer_number(4);
    Arc::new(DB::open(&options, dir).expect("a new database opens"))
}

/// Samples an hour after the sample before: whatever is averaged has arrived.
fn sample(signal: &mut WriteStall, hour: u64) -> Reading {
    let now = Instant::ZERO.after(Duration::from_secs(3_600 * hour));
    signal.sample(now, &View::default())
}

#[test]
fn pressure_follows_the_files_in_l0_and_passes_its_target_before_the_slowdown() {
    let dir = tempfile::tempdir().unwrap();
    let db = growing(dir.path());
    let mut signal = WriteStall::new(&db, &triggers(), WRITE_BUFFER_BYTES).unwrap();
    let watch = signal.watch();
    assert_eq!(watch.level(), None);
    // The soft limit: 0.55 of the way from 2 to 12.
    let (soft, hard) = (7.5, 12.0);
    for files in 1..=14u64 {
        db.put(files.to_be_bytes(), b"value").unwrap();
        db.flush().unwrap();
        let expected = if files as f64 <= soft {
            files as f64 / soft
        } else {
            1.0 + (files as f64 - soft) / (hard - soft)
        };
        let pressure = sample(&mut signal, files).value().unwrap();
        let level = watch.level().unwrap();
        assert!((pressure - expected).abs() < 1e-9, "{files}: {level:?}");
        assert_eq!(level.gauges.l0_files, Some(files));
        assert_eq!(level.part, StallPart::L0Files);
    }
}

#[test]
fn a_database_that_is_closed_is_unavailable_and_the_signal_does_not_keep_it_open() {
    let dir = tempfile::tempdir().unwrap();
    let db = growing(dir.path());
    let mut signal = WriteStall::new(&db, &triggers(), WRITE_BUFFER_BYTES).unwrap();
    assert!(sample(&mut signal, 1).value().is_some());
    drop(db);
    let db = growing(dir.path());
    assert_eq!(
        sample(&mut signal, 2),
        Reading::unavailable("the store is closed")
    );
    assert_eq!(signal.watch().level(), None);
    let mut signal = WriteStall::new(&db, &triggers(), WRITE_BUFFER_BYTES).unwrap();
    signal.watch().detach();
    assert_eq!(sample(&mut signal, 1).value(), None);
}

#[test]
fn what_the_signal_declares_suits_the_memtables() {
    let dir = tempfile::tempdir().unwrap();
    let db = growing(dir.path());
    let dynamics = |bytes| {
        WriteStall::new(&db, &StallTriggers::default(), bytes)
            .unwrap()
            .dynamics()
    };
    let expected = |seconds: f64| {
        Dynamics::settling(Duration::from_secs_f64(seconds))
            .delayed(Duration::from_secs_f64(seconds))
    };
    assert_eq!(dynamics(1), expected(2.0));
    let Dynamics::Settling { tau: target, .. } = dynamics(64 << 20) else {
        panic!("it settles");
    };
    assert!((20.0..30.0).contains(&target.as_secs_f64()), "{target:?}");
}

/// A store whose flushes get next to nothing done, so that its memtables fill up.
fn stuck(change: impl FnOnce(&mut StoreOptions)) -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut options = StoreOptions::default();
    options.write_buffer_bytes = WRITE_BUFFER_BYTES;
    options.triggers = triggers();
    options.background_bytes_per_s = Some(40 << 10);
    change(&mut options);
    let store = Store::open(dir.path(), options).expect("a new store opens");
    (dir, store)
}

#[test]
fn a_write_that_rocksdb_would_hold_back_fails_at_once_where_that_is_asked_for() {
    let (_dir, store) = stuck(|options| options.no_slowdown = true);
    let mut value = vec![0u8; 8 << 10];
    let refused = (0..500u64).find_map(|n| {
        // Noise, or next to nothing would have to be flushed.
        for (i, byte) in value.iter_mut().enumerate() {
            *byte = ((n.wrapping_mul(31) + (i as u64).wrapping_mul(2_654_435_761)) >> 7) as u8;
        }
        store.put(&T1, &n.to_be_bytes(), &value).err()
    });
    let Some(StoreError::Rocks(error)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(error.kind(), rocksdb::ErrorKind::Incomplete, "{error}");
    let gauges = store.stall_gauges();
    let held_back = gauges.write_stopped == Some(1) || gauges.delayed_write_bytes_per_s > Some(0);
    assert!(held_back, "{gauges:?}");
}

#[test]
fn a_store_has_the_signal_unless_it_is_told_not_to() {
    let (_dir, store) = stuck(|_| {});
    let lanes_of = |store: &Store| store.snapshot().signal(WRITE_STALL).unwrap().lanes.clone();
    assert_eq!(lanes_of(&store), ["write"], "reads fill no L0");
    let (_dir, store) = stuck(|options| options.write_stall_sheds_reads = true);
    assert_eq!(lanes_of(&store), ["read", "write"]);
    let (_dir, store) = stuck(|options| options.write_stall = false);
    assert!(store.snapshot().signal(WRITE_STALL).is_none());
    assert_eq!(store.stall_level(), None);
}

#[test]
fn a_trigger_out_of_its_bounds_is_refused_before_anything_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = StoreOptions::default();
    options.triggers.l0_slowdown = 3;
    let error = Store::open(dir.path(), options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`triggers.l0_slowdown` is 3 but must be between 5 and 2147483647"
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
