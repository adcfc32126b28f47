//! Long scans in chunks: what they return, when they give way, and what they are charged.
#![allow(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::task::{Poll, Waker};
use std::time::Duration;

use cinnamon_rocks::{
    Admission, FamilyOptions, Operation, Reason, Request, Row, Scan, ScanError, ScanOptions, Store,
    StoreError, StoreOptions, StorePermit, Tier,
};
use tempfile::TempDir;

const T1: Request = Request::new(Tier::T1).key(1);
const T5: Request = Request::new(Tier::T5).key(5);

fn open(rows: u32) -> (TempDir, Store) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut options = StoreOptions::default().family(FamilyOptions::new("other"));
    options.read_limit = 1.into();
    let store = Store::open(dir.path(), options).expect("a new store opens");
    fill(&store, 0..rows);
    (dir, store)
}

fn fill(store: &Store, rows: std::ops::Range<u32>) {
    for row in rows {
        store
            .put(&T1, &row.to_be_bytes(), b"value")
            .expect("a calm store takes a write");
    }
}

fn in_chunks(rows: u32) -> ScanOptions {
    let mut options = ScanOptions::default();
    options.chunk_rows = rows;
    options
}

fn numbers(rows: &[Row]) -> Vec<u32> {
    rows.iter()
        .map(|(key, _)| u32::from_be_bytes((**key).try_into().expect("four bytes")))
        .collect()
}

/// All that is left, chunk by chunk.
fn rest(scan: &mut Scan) -> Vec<Vec<u32>> {
    let next = || scan.next_chunk().expect("a calm store serves");
    std::iter::from_fn(next)
        .map(|rows| numbers(&rows))
        .collect()
}

fn granted(admit: &mut Admission) -> StorePermit {
    match admit.poll_admit(Waker::noop()) {
        Poll::Ready(Ok(permit)) => Some(permit),
        _ => None,
    }
    .expect("a lane with a free slot admits")
}

fn reads(store: &Store) -> (u64, u32) {
    let snapshot = store.snapshot();
    let lane = snapshot.lane("read").expect("a store has it");
    (lane.verdicts.admitted(), lane.in_use)
}

#[test]
fn chunks_come_in_order_and_each_is_admitted_by_itself() {
    let (_dir, store) = open(10);
    let mut scan = store.open_scan(&T5, in_chunks(4));
    assert_eq!(reads(&store), (0, 0), "nothing is read before the first");
    assert_eq!(
        rest(&mut scan),
        [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]
    );
    assert!(scan.is_over());
    assert_eq!(reads(&store), (3, 0));
    assert!(scan.next_chunk().unwrap().is_none());
    assert_eq!(reads(&store).0, 3, "what is over is not offered");
}

#[test]
fn bounds_reverse_and_the_most_rows() {
    let (_dir, store) = open(20);
    let key = |row: u32| Some(row.to_be_bytes().to_vec());
    let scan = |change: &dyn Fn(&mut ScanOptions)| {
        let mut options = in_chunks(3);
        change(&mut options);
        rest(&mut store.open_scan(&T1, options)).concat()
    };
    let between = |options: &mut ScanOptions| {
        (options.from, options.to) = (key(5), key(9));
    };
    assert_eq!(scan(&between), [5, 6, 7, 8]);
    let down = |options: &mut ScanOptions| {
        between(options);
        options.reverse = true;
    };
    assert_eq!(scan(&down), [8, 7, 6, 5]);
    let few_down = |options: &mut ScanOptions| {
        options.reverse = true;
        options.rows_max = Some(4);
        options.fill_cache = false;
    };
    assert_eq!(scan(&few_down), [19, 18, 17, 16]);
    assert_eq!(scan(&|options| options.rows_max = Some(0)), []);
    assert_eq!(
        scan(&|options| (options.from, options.to) = (key(9), key(5))),
        []
    );
    assert_eq!(scan(&|options| options.from = key(20)), []);
    assert_eq!(scan(&|options| options.chunk_rows = 0).len(), 20);
}

#[test]
fn a_chunk_ends_with_the_row_that_reaches_its_bytes_or_what_it_may_examine() {
    let (_dir, store) = open(10);
    let mut options = ScanOptions::default();
    options.chunk_bytes = 2 * (4 + 5);
    let chunks = rest(&mut store.open_scan(&T1, options));
    assert_eq!(chunks.len(), 5, "two rows each: {chunks:?}");
    let other = store.family("other").unwrap();
    fill(&other, 0..30);
    for row in (0..30u32).filter(|row| row % 10 != 0) {
        other.delete(&T1, &row.to_be_bytes()).unwrap();
    }
    let mut options = ScanOptions::default();
    options.chunk_examined = 9;
    let chunks = rest(&mut other.open_scan(&T1, options));
    assert_eq!(chunks, [[0, 10].as_slice(), &[20]]);
}

#[test]
fn the_whole_scan_sees_the_store_as_it_was_at_its_first_chunk() {
    let (_dir, store) = open(4);
    let mut scan = store.open_scan(&T1, in_chunks(2));
    store.put(&T1, &4u32.to_be_bytes(), b"before").unwrap();
    assert_eq!(numbers(&scan.next_chunk().unwrap().unwrap()), [0, 1]);
    fill(&store, 5..10);
    store.delete(&T1, &3u32.to_be_bytes()).unwrap();
    store.put(&T1, &2u32.to_be_bytes(), b"new").unwrap();
    let next = scan.next_chunk().unwrap().unwrap();
    assert_eq!(numbers(&next), [2, 3]);
    assert_eq!(&*next[0].1, b"value");
    assert_eq!(rest(&mut scan), [[4]]);
}

#[test]
fn more_important_work_passes_between_two_chunks() {
    let (_dir, store) = open(10);
    let mut scan = store.open_scan(&T5, in_chunks(4));
    let mut first = scan.admit();
    let permit = granted(&mut first);
    let mut important = store.admit(Operation::Get, &T1);
    assert!(important.poll_admit(Waker::noop()).is_pending());
    scan.next_chunk_with(permit).unwrap().unwrap();
    // The next chunk is asked for at once, and the slot is the other's already.
    let mut second = scan.admit();
    assert!(second.poll_admit(Waker::noop()).is_pending());
    let permit = granted(&mut important);
    store.get_with(permit, b"key").unwrap();
    let permit = granted(&mut second);
    let rows = scan.next_chunk_with(permit).unwrap().unwrap();
    assert_eq!(numbers(&rows), [4, 5, 6, 7]);
}

#[test]
fn a_scan_that_is_refused_midway_says_from_where_to_resume_and_goes_on_later() {
    for reverse in [false, true] {
        let (_dir, store) = open(10);
        let mut options = in_chunks(4);
        options.reverse = reverse;
        let hurried = T5.max_wait(Duration::ZERO);
        let mut scan = store.open_scan(&hurried, options);
        assert_eq!(scan.resume_at(), None);
        let first = numbers(&scan.next_chunk().unwrap().unwrap());
        let permit = granted(&mut store.admit(Operation::Get, &T1));
        fill(&store, 10..12);
        let ScanError {
            error, resume_at, ..
        } = scan.next_chunk().unwrap_err();
        assert!(
            matches!(error, StoreError::Rejected(r) if r.reason() == Reason::Busy),
            "{error}"
        );
        let mut expected = first[3].to_be_bytes().to_vec();
        if !reverse {
            // The least key above the last one.
            expected.push(0);
        }
        assert_eq!(resume_at, Some(expected));
        drop(permit);
        // Another scan can take over, on the store as it is now …
        let mut other = store.open_scan(&T5, scan.rest().clone());
        let later = rest(&mut other).concat();
        // … and this one goes on, on the store as it was.
        let same = rest(&mut scan).concat();
        if reverse {
            assert_eq!((&same, &later), (&vec![5, 4, 3, 2, 1, 0], &same));
        } else {
            assert_eq!(same, [4, 5, 6, 7, 8, 9]);
            assert_eq!(later, [4, 5, 6, 7, 8, 9, 10, 11]);
        }
    }
}

#[test]
fn the_time_left_of_the_request_is_that_of_the_whole_scan() {
    let (_dir, store) = open(10);
    let left = Duration::from_millis(1);
    let mut scan = store.open_scan(&T5.time_left(left), in_chunks(4));
    let clock = store.controller().clock();
    let end = clock.now().after(left);
    while clock.now() <= end {
        std::hint::spin_loop();
    }
    let error = scan.next_chunk().unwrap_err();
    assert!(
        matches!(&error.error, StoreError::Rejected(r) if r.reason() == Reason::Hopeless),
        "{error}"
    );
    assert_eq!(error.to_string(), "the scan stopped at its beginning");
    scan.set_request(&T5.time_left(Duration::from_secs(600)));
    assert_eq!(rest(&mut scan).concat().len(), 10);
}

#[test]
fn a_closed_store_ends_a_scan_with_that_word() {
    let (_dir, store) = open(10);
    let mut scan = store.open_scan(&T1, in_chunks(4));
    scan.next_chunk().unwrap();
    store.close();
    let error = scan.next_chunk().unwrap_err();
    assert!(matches!(error.error, StoreError::Closed), "{error}");
    assert_eq!(
        error.to_string(),
        "the scan stopped at key \\x00\\x00\\x00\\x03\\x00"
    );
}

#[test]
fn a_scan_that_is_dropped_anywhere_frees_everything() {
    let (dir, store) = open(10);
    let mut scan = store.open_scan(&T1, in_chunks(4));
    scan.next_chunk().unwrap();
    let mut admit = scan.admit();
    let permit = granted(&mut admit);
    drop(scan);
    drop(permit);
    let mut unread = store.open_scan(&T1, in_chunks(4));
    assert!(unread.admit().poll_admit(Waker::noop()).is_ready());
    assert_eq!(reads(&store).1, 0);
    // A scan keeps the database open, and nothing else does.
    unread.next_chunk().unwrap();
    drop(store);
    assert_eq!(
        numbers(&unread.next_chunk().unwrap().unwrap()),
        [4, 5, 6, 7]
    );
    let families = || StoreOptions::default().family(FamilyOptions::new("other"));
    assert!(Store::open(dir.path(), families()).is_err());
    drop(unread);
    Store::open(dir.path(), families()).unwrap();
}

/// What the next scan is offered at without a cost of its own, by the mean of its class.
fn class_mean(store: &Store) -> u64 {
    let holder = granted(&mut store.admit(Operation::Get, &T1));
    let mut waiting = store.admit(Operation::Scan, &T1);
    assert!(waiting.poll_admit(Waker::noop()).is_pending());
    let cost = waiting_cost(store);
    drop(waiting);
    drop(holder);
    cost
}

/// What this request for a scan is offered at.
fn offered_at(store: &Store, request: &Request) -> u64 {
    let holder = granted(&mut store.admit(Operation::Get, &T1));
    let mut waiting = store.admit(Operation::Scan, request);
    assert!(waiting.poll_admit(Waker::noop()).is_pending());
    let cost = waiting_cost(store);
    drop(waiting);
    drop(holder);
    cost
}

fn waiting_cost(store: &Store) -> u64 {
    store
        .snapshot()
        .lane("read")
        .expect("a store has it")
        .waiting_cost
}

#[test]
fn a_scan_is_charged_for_the_tombstones_it_steps_over_and_the_next_is_weighed_by_it() {
    const TOMBSTONES: u32 = 10_000;
    let (_dir, store) = open(TOMBSTONES + 1);
    for row in 0..TOMBSTONES {
        store.delete(&T1, &row.to_be_bytes()).unwrap();
    }
    let weigh = |rows| offered_at(&store, &store.weigh(Operation::Scan, rows, &T1));
    assert_eq!((weigh(1), class_mean(&store)), (1, 1));
    let rows = store.scan(&T1, b"", 1).unwrap();
    assert_eq!(numbers(&rows), [TOMBSTONES]);
    // A tombstone and the row below it, each of them a step.
    let steps = u64::from(2 * TOMBSTONES);
    let dear = 1 + steps / 16;
    let offered = weigh(1);
    assert!((dear..dear + 10).contains(&offered), "{offered}");
    // The class's mean takes a thirty-second of the way.
    let mean = class_mean(&store);
    assert!((dear / 32..dear / 32 + 3).contains(&mean), "{mean}");
    // A long scan pays the same.
    let mut scan = store.open_scan(&T1, in_chunks(1));
    scan.next_chunk().unwrap();
    assert!(class_mean(&store) > mean + dear / 64);
    // Another column family has had no such scan.
    let other = store.family("other").unwrap();
    assert_eq!(offered_at(&other, &other.weigh(Operation::Scan, 1, &T1)), 1);
}

#[test]
fn reads_are_charged_for_the_blocks_that_were_not_in_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = StoreOptions::default();
    options.read_limit = 1.into();
    let store = Store::open(dir.path(), options.clone()).unwrap();
    fill(&store, 0..1_000);
    drop(store);
    // Reopened, the log becomes a file and the cache is empty.
    let store = Store::open(dir.path(), options).unwrap();
    let read = || store.multi_get(&T1, &[1u32.to_be_bytes()]).unwrap();
    assert!(read()[0].is_some());
    let cold = offered_at(&store, &store.weigh(Operation::MultiGet, 1, &T1));
    assert!(cold > 1, "{cold}");
    for _ in 0..400 {
        read();
    }
    let warm = offered_at(&store, &store.weigh(Operation::MultiGet, 1, &T1));
    assert_eq!(warm, 1);
    assert_eq!(
        offered_at(&store, &store.weigh(Operation::MultiGet, 50, &T1)),
        50
    );
}

#[test]
fn a_short_scan_does_not_step_into_the_tombstones_behind_its_last_row() {
    const TOMBSTONES: u32 = 5_000;
    let (_dir, store) = open(TOMBSTONES + 1);
    for row in 1..=TOMBSTONES {
        store.delete(&T1, &row.to_be_bytes()).unwrap();
    }
    let rows = store.scan(&T1, b"", 1).unwrap();
    assert_eq!(numbers(&rows), [0]);
    assert_eq!(class_mean(&store), 1);
    assert!(store.scan(&T1, b"", 0).unwrap().is_empty());
}
