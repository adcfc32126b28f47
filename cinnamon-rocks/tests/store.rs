//! The store on a real RocksDB: calls, errors, costs, admission.
#![allow(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::task::{Poll, Waker};

use cinnamon_rocks::{
    OpenError, Operation, Reason, Request, Store, StoreError, StoreOptions, Tier,
};
use tempfile::TempDir;

const T1: Request = Request::new(Tier::T1);

fn open(change: impl FnOnce(&mut StoreOptions)) -> (TempDir, Store) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut options = StoreOptions::default();
    change(&mut options);
    let store = Store::open(dir.path(), options).expect("a new store opens");
    (dir, store)
}

fn slots(store: &Store) -> [u32; 2] {
    let snapshot = store.snapshot();
    [snapshot.lanes[0].in_use, snapshot.lanes[1].in_use]
}

#[test]
fn what_is_put_is_got_scanned_and_deleted() {
    let (_dir, store) = open(|_| {});
    for n in 0..100u32 {
        store
            .put(&T1, &n.to_be_bytes(), format!("value {n}").as_bytes())
            .unwrap();
    }
    assert_eq!(
        store.get(&T1, &7u32.to_be_bytes()).unwrap().unwrap(),
        b"value 7"
    );
    let rows = store.scan(&T1, &95u32.to_be_bytes(), 10).unwrap();
    assert_eq!(rows.len(), 5);
    assert_eq!(&*rows[0].1, b"value 95");
    assert!(store.scan(&T1, b"", 0).unwrap().is_empty());
    store.delete(&T1, &7u32.to_be_bytes()).unwrap();
    store.delete(&T1, b"never there").unwrap();
    assert_eq!(store.get(&T1, &7u32.to_be_bytes()).unwrap(), None);
    let snapshot = store.snapshot();
    let [read, write] = ["read", "write"].map(|name| snapshot.lane(name).unwrap());
    assert_eq!(
        (read.verdicts.admitted(), write.verdicts.admitted()),
        (4, 102)
    );
    assert_eq!(slots(&store), [0, 0]);
}

#[test]
fn what_was_written_survives_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    store.put(&T1, b"key", b"value").unwrap();
    drop(store);
    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert_eq!(store.get(&T1, b"key").unwrap().unwrap(), b"value");
}

#[test]
fn a_checkpoint_is_a_store_of_its_own() {
    let (dir, store) = open(|_| {});
    store.put(&T1, b"key", b"old").unwrap();
    let copy = dir.path().join("copy");
    store.checkpoint(&copy).unwrap();
    store.put(&T1, b"key", b"new").unwrap();
    let copy = Store::open(&copy, StoreOptions::default()).unwrap();
    assert_eq!(copy.get(&T1, b"key").unwrap().unwrap(), b"old");
}

#[test]
fn a_full_lane_makes_waiters_and_refuses_by_deadline_but_not_in_the_other_lane() {
    let (_dir, store) = open(|options| options.read_limit = 1.into());
    let mut holder = store.admit(Operation::Get, &T1);
    let Poll::Ready(Ok(permit)) = holder.poll_admit(Waker::noop()) else {
        panic!("an idle lane admits");
    };
    let hurried = T1.max_wait(std::time::Duration::from_millis(1));
    let error = store.get(&hurried, b"key").unwrap_err();
    assert!(
        matches!(error, StoreError::Rejected(r) if r.reason() == Reason::Expired),
        "{error}"
    );
    store.put(&hurried, b"key", b"value").unwrap();
    assert_eq!(store.get_with(permit, b"key").unwrap().unwrap(), b"value");
    assert_eq!(slots(&store), [0, 0]);
}

#[test]
fn a_closed_store_says_so_and_permits_out_may_finish() {
    let (_dir, store) = open(|_| {});
    let mut holder = store.admit(Operation::Put, &T1);
    let Poll::Ready(Ok(permit)) = holder.poll_admit(Waker::noop()) else {
        panic!("an idle lane admits");
    };
    store.close();
    assert!(matches!(store.get(&T1, b"key"), Err(StoreError::Closed)));
    store.put_with(permit, b"key", b"value").unwrap();
    assert_eq!(slots(&store), [0, 0]);
}

#[test]
fn a_folder_that_cannot_be_opened_and_a_bad_option_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = StoreOptions::default();
    options.create_if_missing = false;
    let error = Store::open(dir.path(), options).unwrap_err();
    assert!(matches!(error, OpenError::Rocks(_)), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let mut options = StoreOptions::default();
    options.write_limit = 0.into();
    let error = Store::open(dir.path(), options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`write_limit` is 0 but must be between 1 and 1048576"
    );
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "nothing was touched"
    );
}

#[test]
fn scans_are_charged_by_the_rows_they_examine() {
    let (_dir, store) = open(|options| options.read_limit = 1.into());
    for n in 0..64u32 {
        store.put(&T1, &n.to_be_bytes(), b"value").unwrap();
    }
    // A thousand scans that ask for much and find little teach their class a small cost.
    for _ in 0..300 {
        assert_eq!(store.scan(&T1, b"", 10_000).unwrap().len(), 64);
    }
    let mut holder = store.admit(Operation::Scan, &T1);
    assert!(matches!(
        holder.poll_admit(Waker::noop()),
        Poll::Ready(Ok(_))
    ));
    let mut holder = store.admit(Operation::Scan, &T1);
    let Poll::Ready(Ok(_permit)) = holder.poll_admit(Waker::noop()) else {
        panic!("an idle lane admits");
    };
    let mut waiting = store.admit(Operation::Scan, &T1);
    assert!(waiting.poll_admit(Waker::noop()).is_pending());
    assert_eq!(
        store.snapshot().lanes[0].waiting_cost,
        5,
        "1 + 64 rows / 16"
    );
}
