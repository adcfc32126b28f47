//! Column families, and batches over several of them.
#![allow(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cinnamon_core::{Instant, Signal, View};
use cinnamon_rocks::{
    FamilyOptions, OpenError, Request, StallPart, StallTriggers, Store, StoreError, StoreOptions,
    Tier, WriteStall,
};
use rocksdb::{ColumnFamilyDescriptor, DB, Options};

const T1: Request = Request::new(Tier::T1);

fn with_families(names: &[&str]) -> StoreOptions {
    names.iter().fold(StoreOptions::default(), |options, name| {
        options.family(FamilyOptions::new(name))
    })
}

fn open(path: &Path, names: &[&str]) -> Store {
    Store::open(path, with_families(names)).expect("the store opens")
}

#[test]
fn each_family_has_its_own_rows_for_every_operation() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &["orders", "users"]);
    let (orders, users) = (
        store.family("orders").unwrap(),
        store.family("users").unwrap(),
    );
    assert_eq!(store.family_name(), "default");
    assert_eq!(orders.family_name(), "orders");
    for (number, handle) in [&store, &orders, &users].into_iter().enumerate() {
        let value = [number as u8];
        handle.put(&T1, b"key", &value).unwrap();
        handle.put(&T1, &value, b"").unwrap();
    }
    for (number, handle) in [&store, &orders, &users].into_iter().enumerate() {
        let value = vec![number as u8];
        assert_eq!(handle.get(&T1, b"key").unwrap().unwrap(), value);
        assert_eq!(handle.scan(&T1, b"", 10).unwrap().len(), 2);
        let both = handle
            .multi_get(&T1, &[b"key".as_slice(), b"none"])
            .unwrap();
        assert_eq!(both, [Some(value), None]);
    }
    orders.delete(&T1, b"key").unwrap();
    assert_eq!(orders.get(&T1, b"key").unwrap(), None);
    assert!(users.get(&T1, b"key").unwrap().is_some());
}

#[test]
fn a_family_that_is_not_there_is_an_error_that_names_those_that_are() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &["orders"]);
    let error = store.family("order").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the store has no column family \"order\", only [\"default\", \"orders\"]"
    );
}

#[test]
fn families_missing_in_the_folder_are_created_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &["a"]);
    store.family("a").unwrap().put(&T1, b"key", b"a").unwrap();
    drop(store);
    let store = open(dir.path(), &["b", "a"]);
    store.family("b").unwrap().put(&T1, b"key", b"b").unwrap();
    let a = store.family("a").unwrap();
    assert_eq!(a.get(&T1, b"key").unwrap().unwrap(), b"a");
}

#[test]
fn families_that_nobody_named_are_named_in_the_error_or_opened_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &["a", "b"]);
    store.family("b").unwrap().put(&T1, b"key", b"b").unwrap();
    drop(store);
    let Err(OpenError::UnnamedFamilies { names }) = Store::open(dir.path(), with_families(&["a"]))
    else {
        panic!("a family was forgotten");
    };
    assert_eq!(names, ["b"]);
    let mut options = with_families(&["a"]);
    options.open_unknown_families = true;
    let store = Store::open(dir.path(), options).unwrap();
    let b = store.family("b").unwrap();
    assert_eq!(b.get(&T1, b"key").unwrap().unwrap(), b"b");
}

#[test]
fn a_bad_name_is_refused_before_anything_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |names: &[&str]| {
        let error = Store::open(dir.path(), with_families(names)).unwrap_err();
        error.to_string()
    };
    for (names, expected) in [
        (
            &["a", "a"][..],
            "`families[1].name` is \"a\" but an earlier one has that name",
        ),
        (
            &[""],
            "`families[0].name.len` is 0 but must be between 1 and 255",
        ),
        (
            &["a\0b"],
            "`families[0].name` is \"a\\0b\" but must be without a zero byte",
        ),
        (
            &["default"],
            "`families[0].name` is \"default\" but must be another: every store has that one, and \
             `write_buffer_bytes` and `triggers` are its settings",
        ),
    ] {
        assert_eq!(refused(names), expected);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_batch_is_written_whole_over_several_families() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &["orders"]);
    let orders = store.family("orders").unwrap();
    store.put(&T1, b"old", b"value").unwrap();
    let mut batch = store.batch();
    assert!(batch.is_empty());
    batch
        .put(&store, b"key", b"default")
        .put(&orders, b"key", b"orders")
        .delete(&store, b"old");
    assert_eq!((batch.len(), batch.bytes()), (3, 10 + 9 + 3));
    store.write(&T1, batch).unwrap();
    assert_eq!(store.get(&T1, b"key").unwrap().unwrap(), b"default");
    assert_eq!(orders.get(&T1, b"key").unwrap().unwrap(), b"orders");
    assert_eq!(store.get(&T1, b"old").unwrap(), None);
    // Nothing to do is done, from whichever handle.
    orders.write(&T1, store.batch()).unwrap();
    let snapshot = store.snapshot();
    assert_eq!(snapshot.lane("write").unwrap().in_use, 0);
}

#[test]
fn a_batch_with_a_handle_of_another_store_writes_nothing() {
    let [here, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (store, other) = (open(here.path(), &[]), open(there.path(), &[]));
    let mut batch = store.batch();
    batch
        .put(&store, b"key", b"value")
        .put(&other, b"key", b"value");
    assert!(matches!(
        store.write(&T1, batch),
        Err(StoreError::OtherStore)
    ));
    assert!(matches!(
        other.write(&T1, store.batch()),
        Err(StoreError::OtherStore)
    ));
    assert_eq!(store.get(&T1, b"key").unwrap(), None);
    let snapshot = store.snapshot();
    let write = snapshot.lane("write").unwrap();
    assert_eq!(write.verdicts.admitted(), 0, "it was not even offered");
}

/// A database with a second column family, neither of which compacts by itself.
fn growing(dir: &Path) -> Arc<DB> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let family = |name| {
        let mut options = Options::default();
        options.set_disable_auto_compactions(true);
        ColumnFamilyDescriptor::new(name, options)
    };
    let families = ["default", "orders"].map(family);
    let db = DB::open_cf_descriptors(&options, dir, families);
    Arc::new(db.expect("a new database opens"))
}

fn triggers(l0_slowdown: u32) -> StallTriggers {
    let mut triggers = StallTriggers::default();
    triggers.l0_slowdown = l0_slowdown;
    triggers
}

#[test]
fn the_family_that_is_worst_off_rules_the_signal_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let db = growing(dir.path());
    // The soft limit of `orders`: 0.55 of the way from 4 to 8.
    let mut signal = WriteStall::new(&db, &triggers(20), 64 << 20)
        .unwrap()
        .family("orders", &triggers(8), 64 << 20)
        .unwrap();
    let watch = signal.watch();
    let mut sample = |hour: u64| {
        let now = Instant::ZERO.after(Duration::from_secs(3_600 * hour));
        signal.sample(now, &View::default()).value()
    };
    let orders = db.cf_handle("orders").unwrap();
    let mut rows = 0u64..;
    let mut grow = |family, files| {
        for row in rows.by_ref().take(files) {
            db.put_cf(family, row.to_be_bytes(), b"value").unwrap();
            db.flush_cf(family).unwrap();
        }
    };
    grow(orders, 8);
    assert_eq!(sample(1), Some(2.0));
    let level = watch.level().unwrap();
    assert_eq!((&*level.family, level.part), ("orders", StallPart::L0Files));
    assert_eq!(level.gauges.l0_files, Some(8));
    grow(db.cf_handle("default").unwrap(), 25);
    assert!(sample(2) > Some(2.0));
    let level = watch.level().unwrap();
    assert_eq!(&*level.family, "default");
    assert_eq!(level.gauges.l0_files, Some(25));
}

#[test]
fn a_family_that_cannot_be_read_is_unavailable_unless_another_is_at_its_target() {
    let dir = tempfile::tempdir().unwrap();
    let db = growing(dir.path());
    let mut signal = WriteStall::new(&db, &triggers(8), 64 << 20)
        .unwrap()
        .family("never made", &triggers(8), 64 << 20)
        .unwrap();
    let mut sample = |hour: u64| {
        let now = Instant::ZERO.after(Duration::from_secs(3_600 * hour));
        signal.sample(now, &View::default()).value()
    };
    assert_eq!(sample(1), None);
    for row in 0..8u64 {
        db.put(row.to_be_bytes(), b"value").unwrap();
        db.flush().unwrap();
    }
    assert_eq!(sample(2), Some(2.0));
}

#[test]
fn a_stall_is_blamed_on_the_family_that_is_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = StoreOptions::default();
    // Next to nothing is flushed.
    options.background_bytes_per_s = Some(200 << 10);
    options.no_slowdown = true;
    let mut orders = FamilyOptions::new("orders");
    orders.write_buffer_bytes = Some(64 << 10);
    let store = Store::open(dir.path(), options.family(orders)).unwrap();
    let orders = store.family("orders").unwrap();
    let mut rng = cinnamon_core::simulation::Rng::new(1);
    let (mut rows, mut held_back) = (0u64.., false);
    // The signal samples by itself; rows of `orders` come until it has seen their stall.
    let level = loop {
        let row = rows.next().unwrap().to_be_bytes();
        let value: Vec<u8> = (0..1_024).flat_map(|_| rng.bits().to_le_bytes()).collect();
        // Behind is one family, and no other can be written to either.
        held_back |= orders.put(&T1, &row, &value).is_err() && store.put(&T1, b"", b"").is_err();
        let level = store.stall_level().filter(|level| level.pressure >= 2.0);
        if let Some(level) = level.filter(|_| held_back) {
            break level;
        }
    };
    assert_eq!(&*level.family, "orders", "{level:?}");
}
