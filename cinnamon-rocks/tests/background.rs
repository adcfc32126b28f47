//! What the store tells of its background work, and when it does not.
#![allow(clippy::expect_used, reason = "a failed expectation is a failed test")]

use cinnamon_core::Mode;
use cinnamon_rocks::{Request, Store, StoreOptions, Tier};

const T1: Request = Request::new(Tier::T1);
const VALUE_BYTES: usize = 1_000;
const WRITES: u64 = 1_000;

fn options(counted: bool) -> StoreOptions {
    let mut options = StoreOptions::default();
    // Several of them fill up with what is written.
    options.write_buffer_bytes = 64 << 10;
    options.count_background_bytes = counted;
    options
}

fn write(store: &Store) {
    // The memtables are so small that the store would shed.
    store.controller().set_mode(Mode::Off);
    let value = [7; VALUE_BYTES];
    for key in 0..WRITES {
        let put = store.put(&T1, &key.to_be_bytes(), &value);
        put.expect("nobody is refused");
    }
}

#[test]
fn what_is_written_and_flushed_is_counted_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options(true)).unwrap();
    write(&store);
    let bytes = store.background_bytes().unwrap();
    assert!(
        bytes.written >= WRITES * VALUE_BYTES as u64,
        "keys and values: {bytes:?}"
    );
    assert!(bytes.flushed > 0, "many memtables were filled: {bytes:?}");
    assert!(bytes.flushed < bytes.written, "it compresses: {bytes:?}");
    write(&store);
    let later = store.background_bytes().unwrap();
    assert!(later.written >= 2 * bytes.written && later.flushed >= bytes.flushed);
}

#[test]
fn without_being_asked_nothing_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options(false)).unwrap();
    write(&store);
    assert_eq!(store.background_bytes(), None);
    assert_eq!(store.background().bytes(), None);
    assert!(store.background().gauges().is_some());
}

#[test]
fn a_watch_tells_of_its_store_and_does_not_keep_it_open() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options(true)).unwrap();
    let watch = store.background();
    write(&store);
    assert!(
        watch
            .gauges()
            .is_some_and(|gauges| gauges.l0_files.is_some())
    );
    assert!(watch.bytes().is_some_and(|bytes| bytes.written > 0));
    drop(store);
    assert_eq!(watch.gauges(), None);
    let store = Store::open(dir.path(), options(true)).expect("the folder is not locked");
    assert_eq!(watch.gauges(), None, "it is of the store that was");
    drop(store);
}
