//! The asynchronous store: permits before threads, cancelling, panics, growing.
#![allow(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Waker};
use std::thread;

use cinnamon_rocks::{
    AsyncStore, Completion, FamilyOptions, Operation, PoolError, Request, ScanOptions, Store,
    StoreError, StoreOptions, Tier,
};
use tempfile::TempDir;

const T1: Request = Request::new(Tier::T1).key(1);
const T5: Request = Request::new(Tier::T5).key(5);

fn open(change: impl FnOnce(&mut StoreOptions)) -> (TempDir, AsyncStore) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut options = StoreOptions::default().family(FamilyOptions::new("other"));
    options.read_limit = 1.into();
    options.write_limit = 1.into();
    change(&mut options);
    let store = Store::open(dir.path(), options).expect("a new store opens");
    (dir, AsyncStore::new(store).expect("a thread starts"))
}

fn is_send<F: Future + Send>(future: F) -> F {
    future
}

/// Reads that run and those that wait.
fn reads(store: &AsyncStore) -> (u32, u32) {
    let snapshot = store.store().snapshot();
    let lane = snapshot.lane("read").expect("a store has it");
    (lane.in_use, lane.waiting)
}

/// Waits for what threads do by themselves, without a clock.
fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

/// Work that holds its slot until it is told to go on, then puts a row.
struct Held {
    began: Receiver<()>,
    release: Sender<()>,
}

type Work = Box<dyn FnOnce(&Store, cinnamon_rocks::StorePermit) -> Result<u32, StoreError> + Send>;

fn held() -> (Work, Held) {
    let (begin, began) = channel();
    let (release, released) = channel::<()>();
    let work: Work = Box::new(move |store, permit| {
        begin.send(()).expect("the test waits");
        released.recv().expect("the test releases");
        store.put(&T1, b"held", b"done")?;
        permit.finish(Completion::success());
        Ok(7)
    });
    (work, Held { began, release })
}

#[tokio::test]
async fn every_operation_works() {
    let (_dir, store) = open(|_| {});
    is_send(store.put(&T1, b"a", b"1")).await.unwrap();
    store.put(&T1, b"b", b"2").await.unwrap();
    assert_eq!(is_send(store.get(&T1, b"a")).await.unwrap().unwrap(), b"1");
    let keys = vec![b"b".to_vec(), b"none".to_vec()];
    let both = is_send(store.multi_get(&T1, keys)).await.unwrap();
    assert_eq!(both, [Some(b"2".to_vec()), None]);
    let other = store.family("other").unwrap();
    let mut batch = store.batch();
    batch
        .put(other.store(), b"a", b"3")
        .delete(store.store(), b"a");
    is_send(store.write(&T1, batch)).await.unwrap();
    assert_eq!(store.get(&T1, b"a").await.unwrap(), None);
    assert_eq!(other.get(&T1, b"a").await.unwrap().unwrap(), b"3");
    assert_eq!(is_send(store.scan(&T1, b"", 10)).await.unwrap().len(), 1);
    is_send(store.delete(&T1, b"b")).await.unwrap();
    assert!(store.scan(&T1, b"", 10).await.unwrap().is_empty());
    assert_eq!(reads(&store), (0, 0));
}

#[test]
fn dropped_while_it_waits_it_leaves_the_queue_and_nothing_was_done() {
    let (_dir, store) = open(|_| {});
    let cx = &mut Context::from_waker(Waker::noop());
    let mut permit = store.store().admit(Operation::Get, &T1);
    let Poll::Ready(Ok(permit)) = permit.poll_admit(Waker::noop()) else {
        panic!("an idle lane admits");
    };
    let (work, held) = held();
    {
        let mut waiting = pin!(store.run(Operation::Get, &T5, work));
        assert!(waiting.as_mut().poll(cx).is_pending());
        assert_eq!(reads(&store), (1, 1));
    }
    assert_eq!(reads(&store), (1, 0));
    drop(permit);
    assert!(held.began.recv().is_err(), "it was dropped, not begun");
    assert_eq!(reads(&store), (0, 0));
}

#[test]
fn what_a_call_has_copied_counts_while_it_waits() {
    let (_dir, store) = open(|_| {});
    let cx = &mut Context::from_waker(Waker::noop());
    let mut permit = store.store().admit(Operation::Get, &T1);
    let Poll::Ready(Ok(_held)) = permit.poll_admit(Waker::noop()) else {
        panic!("an idle lane admits");
    };
    let bytes = || store.store().snapshot().lane("read").unwrap().waiting_bytes;
    let mut few = pin!(store.get(&T1, b"four"));
    assert!(few.as_mut().poll(cx).is_pending());
    assert_eq!(bytes(), 4);
    let large = T1.bytes(1_000);
    let mut more = pin!(store.multi_get(&large, vec![b"key".to_vec()]));
    assert!(more.as_mut().poll(cx).is_pending());
    assert_eq!(bytes(), 1_004, "the caller knows of more");
}

#[test]
fn dropped_while_it_runs_the_work_is_done_and_frees_its_slot_then() {
    let (_dir, store) = open(|_| {});
    let cx = &mut Context::from_waker(Waker::noop());
    let (work, held) = held();
    {
        let mut running = pin!(store.run(Operation::Get, &T5, work));
        assert!(running.as_mut().poll(cx).is_pending());
        held.began.recv().unwrap();
    }
    assert_eq!(reads(&store), (1, 0), "the slot is as busy as the thread");
    held.release.send(()).unwrap();
    until(|| reads(&store) == (0, 0));
    let done = store.store().get(&T1, b"held").unwrap();
    assert_eq!(done.unwrap(), b"done");
}

#[tokio::test]
async fn a_panic_is_an_error_frees_its_slot_and_costs_no_thread() {
    let (_dir, store) = open(|_| {});
    for _ in 0..3 {
        let work = |_: &Store, _| -> Result<(), StoreError> { panic!("on purpose") };
        let error = store.run(Operation::Get, &T1, work).await.unwrap_err();
        assert!(matches!(error, StoreError::Panicked), "{error}");
        assert_eq!(reads(&store), (0, 0));
    }
    store.put(&T1, b"key", b"value").await.unwrap();
    assert!(store.get(&T1, b"key").await.unwrap().is_some());
}

#[tokio::test]
async fn a_limit_that_is_raised_while_it_runs_brings_its_threads() {
    let (_dir, store) = open(|_| {});
    let mut running = Vec::new();
    let start = |running: &mut Vec<_>, count| {
        for _ in 0..count {
            let (work, held) = held();
            let store = store.clone();
            let task = async move { store.run(Operation::Get, &T1, work).await };
            running.push((tokio::spawn(task), held));
        }
    };
    let lane = store.store().controller().lane("read").unwrap();
    lane.set_limit(5).unwrap();
    start(&mut running, 5);
    // All at once: each has begun before any goes on.
    let (tasks, held): (Vec<_>, Vec<_>) = running.into_iter().unzip();
    let held = tokio::task::spawn_blocking(move || {
        for held in &held {
            held.began.recv().unwrap();
        }
        held
    });
    for held in held.await.unwrap() {
        held.release.send(()).unwrap();
    }
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), 7);
    }
}

#[test]
fn more_slots_than_there_may_be_threads_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = StoreOptions::default();
    (options.read_limit, options.write_limit) = (1_023.into(), 2.into());
    let error = AsyncStore::new(Store::open(dir.path(), options).unwrap()).unwrap_err();
    assert!(matches!(error, PoolError::Config(_)));
    assert_eq!(
        error.to_string(),
        "`read_limit + write_limit` is 1025 but must be between 2 and 1024"
    );
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let (_dir, store) = open(|_| {});
    store.store().close();
    let error = store.get(&T1, b"key").await.unwrap_err();
    assert!(matches!(error, StoreError::Closed), "{error}");
}

/// After it the database is closed by whoever lets the last handle go, and by no thread of the store's.
#[test]
fn shut_down_it_has_done_what_was_begun_and_holds_nothing() {
    let (dir, store) = open(|_| {});
    let cx = &mut Context::from_waker(Waker::noop());
    let (begin, began) = channel();
    let (release, released) = channel::<()>();
    let (ended, when_ended) = channel();
    {
        let work = move |store: &Store, permit| {
            begin.send(()).expect("the test waits");
            released.recv().expect("the test releases");
            store.put_with(permit, b"held", b"done")
        };
        let mut run = pin!(store.run(Operation::Put, &T1, work));
        assert!(run.as_mut().poll(cx).is_pending());
        began.recv().expect("it runs");
    }
    let shutting = store.clone();
    let shutting = thread::spawn(move || {
        shutting.shutdown();
        ended.send(()).expect("the test waits");
    });
    until(|| store.store().snapshot().closed);
    assert!(when_ended.try_recv().is_err(), "a call still runs");
    release.send(()).expect("it waits");
    when_ended.recv().expect("it ends");
    shutting.join().expect("it ended");
    {
        let mut late = pin!(store.get(&T1, b"key"));
        let late = late.as_mut().poll(cx);
        assert!(matches!(late, Poll::Ready(Err(StoreError::Closed))));
    }
    store.shutdown();
    let written = store.store().clone();
    drop(store);
    drop(written);
    // It is closed: it can be opened again, and what was begun is there.
    let mut options = StoreOptions::default().family(FamilyOptions::new("other"));
    options.write_stall = false;
    let again = Store::open(dir.path(), options).expect("nobody holds it");
    assert!(again.get(&T1, b"held").expect("it reads").is_some());
}

#[tokio::test]
async fn a_scan_comes_in_chunks_and_no_row_is_lost_when_its_future_is_dropped() {
    let (_dir, store) = open(|_| {});
    for row in 0..10u32 {
        store.put(&T1, &row.to_be_bytes(), b"value").await.unwrap();
    }
    let mut options = ScanOptions::default();
    options.chunk_rows = 4;
    let mut scan = store.open_scan(&T5, options);
    let mut lengths = Vec::new();
    let cx = &mut Context::from_waker(Waker::noop());
    loop {
        // The chunk is begun, and perhaps done; in any case nobody waits for it.
        let dropped = pin!(scan.next_chunk()).poll(cx);
        let chunk = match dropped {
            Poll::Ready(chunk) => chunk,
            Poll::Pending => is_send(scan.next_chunk()).await,
        };
        match chunk.unwrap() {
            Some(rows) => lengths.push(rows.len()),
            None => break,
        }
    }
    assert_eq!(lengths, [4, 4, 2]);
    assert!(scan.scan().unwrap().is_over());
    assert_eq!(reads(&store), (0, 0));
}

#[tokio::test]
async fn a_scan_that_is_refused_goes_on_later() {
    let (_dir, store) = open(|_| {});
    for row in 0..6u32 {
        store.put(&T1, &row.to_be_bytes(), b"value").await.unwrap();
    }
    let mut options = ScanOptions::default();
    options.chunk_rows = 4;
    let mut scan = store.open_scan(&T5.max_wait(std::time::Duration::ZERO), options);
    scan.next_chunk().await.unwrap().unwrap();
    let permit = store.store().admit(Operation::Get, &T1).await.unwrap();
    let error = scan.next_chunk().await.unwrap_err();
    assert!(matches!(error.error, StoreError::Rejected(_)), "{error}");
    assert_eq!(error.resume_at, Some(vec![0, 0, 0, 3, 0]));
    drop(permit);
    assert!(scan.set_request(&T1));
    assert_eq!(scan.next_chunk().await.unwrap().unwrap().len(), 2);
    assert!(scan.next_chunk().await.unwrap().is_none());
}
