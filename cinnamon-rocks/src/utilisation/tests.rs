//! On a real store, whose controller's clock moves when a test says so.

use std::path::Path;
use std::sync::Arc;
use std::task::{Poll, Waker};

use cinnamon_core::{
    Completion, Config, Controller, Limit, ManualClock, Request, Settings, Tenant, Tier,
};
use cinnamon_signals::{LatencyShares, LatencySlo, SloHandle};
use rocksdb::ErrorKind;
use tempfile::TempDir;

use super::*;
use crate::async_store::AsyncStore;
use crate::operation::Operation;
use crate::options::{FamilyOptions, StoreOptions};
use crate::permit::{Admission, StorePermit};
use crate::scan::ScanOptions;

const T1: Request = Request::new(Tier::T1).key(1);
const FAST: Duration = Duration::from_millis(2);
const SLOW: Duration = Duration::from_millis(20);
const LOST: Duration = Duration::from_millis(900);

/// The defaults for both kinds in both families, `default` and `orders`, one slot each.
fn promised() -> StoreOptions {
    StoreOptions {
        read_limit: Limit::fixed(1),
        write_limit: Limit::fixed(1),
        read_slo: Some(SloOptions::default()),
        write_slo: Some(SloOptions::default()),
        ..StoreOptions::default()
    }
    .family(FamilyOptions::new("orders"))
}

struct Bench {
    _dir: TempDir,
    clock: ManualClock,
    store: Store,
    orders: Store,
}

impl Bench {
    fn new() -> Self {
        Self::with(promised())
    }

    fn with(options: StoreOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = ManualClock::new();
        let store = open(dir.path(), options, &clock);
        let orders = store.family("orders").unwrap();
        Self {
            _dir: dir,
            clock,
            store,
            orders,
        }
    }

    /// A call of `operation` that holds its slot for so long before the work.
    fn admitted(&self, operation: Operation, held: Duration) -> StorePermit {
        let permit = granted(&mut self.orders.admit(operation, &T1));
        self.clock.advance(held);
        permit
    }

    /// So many point reads of `orders`, each of which takes so long.
    fn read(&self, times: u32, held: Duration) {
        for _ in 0..times {
            let permit = self.admitted(Operation::Get, held);
            self.orders.get_with(permit, b"key").unwrap();
        }
    }

    fn reads(&self) -> ServiceShares {
        self.orders.family_utilisation().reads.unwrap()
    }

    fn writes(&self) -> ServiceShares {
        self.orders.family_utilisation().writes.unwrap()
    }
}

fn open(path: &Path, options: StoreOptions, clock: &ManualClock) -> Store {
    let clock = clock.shared();
    Store::open_on(path, options, |builder| builder.build_manual(clock)).unwrap()
}

fn granted(admission: &mut Admission) -> StorePermit {
    match admission.poll_admit(Waker::noop()) {
        Poll::Ready(Ok(permit)) => permit,
        other => panic!("{other:?}"),
    }
}

fn shares(overall: f64, slo_target: f64, slo_max: f64) -> ServiceShares {
    ServiceShares::new(overall, LatencyShares::new(slo_target, slo_max))
}

#[test]
fn it_says_how_much_was_slower_than_was_promised() {
    let bench = Bench::new();
    assert_eq!(bench.reads(), ServiceShares::default());
    bench.read(1, LOST);
    bench.read(15, SLOW);
    bench.read(4, FAST);
    assert_eq!(bench.reads(), shares(0.8, 0.8, 0.05));
    bench.read(60, FAST);
    assert_eq!(bench.reads(), shares(0.2, 0.2, 0.0125));
    // Exactly as long as was promised is in time.
    bench.clock.advance(UTILISATION_WINDOW_MAX * 2);
    bench.read(20, Duration::from_millis(10));
    assert_eq!(bench.reads(), ServiceShares::default());
}

#[test]
fn a_call_is_timed_from_its_offer_and_the_wait_counts() {
    let bench = Bench::new();
    for _ in 0..20 {
        let holder = bench.admitted(Operation::Get, Duration::ZERO);
        let mut waiting = bench.orders.admit(Operation::Get, &T1);
        assert!(waiting.poll_admit(Waker::noop()).is_pending());
        bench.clock.advance(SLOW);
        holder.finish(Completion::success());
        let permit = granted(&mut waiting);
        let waited = permit
            .started_at()
            .unwrap()
            .since(permit.offered_at().unwrap());
        assert_eq!(waited, SLOW);
        bench.orders.get_with(permit, b"key").unwrap();
    }
    assert_eq!(bench.reads().latency, LatencyShares::new(1.0, 0.0));
    // Of a plain permit of the lane nobody knows how long it was waited for.
    bench.clock.advance(UTILISATION_WINDOW_MAX * 2);
    let lane = bench.store.controller().lane("read").unwrap();
    for _ in 0..20 {
        let permit = lane.try_admit_owned(&T1).unwrap();
        bench.orders.get_with(permit, b"key").unwrap();
    }
    assert_eq!(bench.reads(), ServiceShares::default());
}

#[test]
fn every_operation_counts_for_its_family_and_its_kind() {
    let bench = Bench::new();
    let orders = &bench.orders;
    let slow = |operation| bench.admitted(operation, SLOW);
    // Each of them is one of twenty that the share is of at least.
    orders.get_with(slow(Operation::Get), b"key").unwrap();
    assert_eq!(bench.reads().latency.slo_target, 0.05);
    orders
        .multi_get_with(slow(Operation::MultiGet), &[b"a", b"b"])
        .unwrap();
    assert_eq!(bench.reads().latency.slo_target, 0.1);
    orders.scan_with(slow(Operation::Scan), b"", 10).unwrap();
    assert_eq!(bench.reads().latency.slo_target, 0.15);
    assert_eq!(bench.writes(), ServiceShares::default());
    orders.put_with(slow(Operation::Put), b"key", b"").unwrap();
    assert_eq!(bench.writes().latency.slo_target, 0.05);
    let mut scan = orders.open_scan(&T1, ScanOptions::default());
    let permit = granted(&mut scan.admit());
    bench.clock.advance(SLOW);
    scan.next_chunk_with(permit).unwrap();
    assert_eq!(bench.reads().latency.slo_target, 0.2);
    orders.delete_with(slow(Operation::Delete), b"key").unwrap();
    assert_eq!(bench.writes().latency.slo_target, 0.1);
    let default = bench.store.family_utilisation();
    assert_eq!((default.overall, default.name.as_str()), (0.0, "default"));
    // A batch is one call of each family that it writes to.
    let mut batch = bench.store.batch();
    batch.put(orders, b"a", b"").put(orders, b"b", b"");
    orders.write_with(slow(Operation::Batch), batch).unwrap();
    assert_eq!(bench.writes().latency.slo_target, 0.15);
    assert_eq!(bench.store.family_utilisation().overall, 0.0);
    let mut batch = bench.store.batch();
    batch.put(orders, b"a", b"").put(&bench.store, b"b", b"");
    orders.write_with(slow(Operation::Batch), batch).unwrap();
    assert_eq!(bench.writes().latency.slo_target, 0.2);
    assert_eq!(bench.store.family_utilisation().overall, 0.05);
    // The waiting calls are the same ones.
    orders.put(&T1, b"key", b"value").unwrap();
    orders.get(&T1, b"key").unwrap();
    orders.write(&T1, bench.store.batch()).unwrap();
    let all = bench.store.utilisation();
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["default", "orders"]);
    assert_eq!(all[1], orders.family_utilisation());
    assert_eq!((all[1].overall, all[1].latency.slo_target), (0.2, 0.2));
}

#[test]
fn a_refused_call_is_not_slow_and_is_not_hidden_either() {
    let bench = Bench::new();
    bench.read(20, FAST);
    let holder = bench.admitted(Operation::Get, Duration::ZERO);
    // Who waits no longer than nothing is refused as expired at once, or as busy.
    for _ in 0..20 {
        let impatient = T1.max_wait(Duration::ZERO);
        let refused = bench.orders.admit(Operation::Get, &impatient);
        let refused = { refused }.poll_admit(Waker::noop());
        assert!(matches!(refused, Poll::Ready(Err(_))), "{refused:?}");
    }
    assert_eq!(bench.reads(), shares(0.5, 0.0, 0.0));
    assert_eq!(bench.orders.family_utilisation().overall, 0.5);
    // Of a batch it is refused by each family that it would have written to.
    let writer = bench.admitted(Operation::Put, Duration::ZERO);
    let mut batch = bench.store.batch();
    batch
        .put(&bench.store, b"a", b"")
        .put(&bench.orders, b"b", b"");
    let impatient = T1.max_wait(Duration::ZERO);
    bench.store.write(&impatient, batch).unwrap_err();
    for store in [&bench.store, &bench.orders] {
        assert_eq!(store.family_utilisation().writes.unwrap().overall, 0.05);
    }
    drop((holder, writer));
}

#[test]
fn what_is_refused_for_no_want_of_room_says_nothing() {
    let bench = Bench::new();
    bench.clock.advance(Duration::from_secs(1));
    for _ in 0..20 {
        let hopeless = T1.deadline(Instant::ZERO);
        assert!(bench.orders.get(&hopeless, b"key").is_err());
    }
    let capped = T1.tenant(Tenant(7));
    let what = "tenant 7 shed t0 for 10s";
    let over: cinnamon_core::Override = what.parse().unwrap();
    bench.store.controller().set_override(over).unwrap();
    let refused = bench.orders.get(&capped, b"key").unwrap_err();
    assert!(refused.to_string().contains("cap"), "{refused}");
    bench.store.close();
    assert!(bench.orders.get(&T1, b"key").is_err());
    assert_eq!(bench.reads(), ServiceShares::default());
}

#[test]
fn who_leaves_after_the_target_was_served_late_and_who_leaves_before_says_nothing() {
    let bench = Bench::new();
    let holder = bench.admitted(Operation::Get, Duration::ZERO);
    for (held, expected) in [(FAST, 0.0), (SLOW, 0.05)] {
        let mut waiting = bench.orders.admit(Operation::Get, &T1);
        assert!(waiting.poll_admit(Waker::noop()).is_pending());
        bench.clock.advance(held);
        drop(waiting);
        assert_eq!(bench.reads().latency.slo_target, expected);
    }
    // Nothing was offered, so nobody waited.
    let unoffered = bench.orders.admit(Operation::Get, &T1);
    bench.clock.advance(SLOW);
    drop(unoffered);
    drop(holder);
    assert_eq!(bench.reads().latency, LatencyShares::new(0.05, 0.0));
}

#[test]
fn what_rocksdb_refuses_for_load_was_not_served_in_time() {
    let mut options = promised();
    options.write_buffer_bytes = 64 << 10;
    options.background_bytes_per_s = Some(40 << 10);
    options.no_slowdown = true;
    let bench = Bench::with(options);
    let mut rng = cinnamon_core::simulation::Rng::new(1);
    let error = (0..500u64).find_map(|_| {
        // Noise, or next to nothing would have to be flushed.
        let value: Vec<u8> = (0..1_024).flat_map(|_| rng.bits().to_le_bytes()).collect();
        let key = rng.bits().to_le_bytes();
        bench.orders.put(&T1, &key, &value).err()
    });
    let Some(crate::StoreError::Rocks(error)) = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.kind(), ErrorKind::Incomplete);
    let writes = bench.writes();
    assert!(writes.overall > 0.0, "{writes:?}");
    assert_eq!(writes.latency.slo_max, writes.overall);
    assert_eq!(bench.reads(), ServiceShares::default());
}

#[test]
fn without_a_promise_nothing_is_counted_and_a_family_may_have_its_own() {
    let mut options = promised();
    options.read_slo = None;
    options.families[0].write_slo = Some(SloOptions {
        target_us: 1_000,
        max_us: 2_000,
    });
    let bench = Bench::with(options);
    bench.read(20, LOST);
    let permit = bench.admitted(Operation::Put, FAST);
    bench.orders.put_with(permit, b"key", b"").unwrap();
    let orders = bench.orders.family_utilisation();
    assert_eq!((orders.reads, orders.overall), (None, 0.05));
    assert_eq!(orders.latency, LatencyShares::new(0.05, 0.0));
    let permit = bench.admitted(Operation::Put, FAST);
    bench.store.put_with(permit, b"key", b"").unwrap();
    assert_eq!(bench.store.family_utilisation().overall, 0.0);
}

#[test]
fn storage_is_each_familys_way_to_a_stall() {
    let bench = Bench::new();
    let storage = |store: &Store| store.family_utilisation().system.storage;
    assert_eq!(storage(&bench.store), None, "before the first sample");
    let inner = bench.store.inner();
    // One fewer than are compacted.
    for row in 0..3u8 {
        bench.orders.put(&T1, &[row], b"value").unwrap();
        let orders = inner.handle(bench.orders.family_index()).unwrap();
        inner.db().flush_cf(orders).unwrap();
    }
    let now = bench.clock.advance(Duration::from_secs(1));
    bench.store.controller().tick(now);
    // Three files of 12.8 at pressure 1.0.
    let expected = 3.0 / 12.8 / 2.0;
    let orders = storage(&bench.orders).unwrap();
    assert!((orders - expected).abs() < 1e-9, "{orders} {expected}");
    let default = storage(&bench.store).unwrap();
    assert!(default < orders, "{default}");
    // It is no share of calls.
    assert_eq!(bench.orders.family_utilisation().overall, 0.0);
    bench.clock.advance(Duration::from_secs(6));
    assert_eq!(storage(&bench.orders), None, "nobody has looked since");
}

#[test]
fn a_nested_call_counts_by_itself_and_work_of_ones_own_does_not() {
    let bench = Bench::new();
    let permit = bench.admitted(Operation::Get, LOST);
    let nested = permit.nested();
    bench.orders.get_with(nested, b"key").unwrap();
    permit.finish(Completion::success());
    assert_eq!(bench.reads(), ServiceShares::default());
    // It was counted: as one of twenty-one, in time.
    bench.read(20, SLOW);
    assert_eq!(bench.reads().latency.slo_target, 20.0 / 21.0);
}

#[tokio::test]
async fn an_asynchronous_call_counts_from_its_offer_until_its_thread_is_done() {
    let bench = Bench::new();
    let orders = AsyncStore::new(bench.orders.clone()).unwrap();
    let clock = bench.clock.clone();
    let work = move |store: &Store, permit: StorePermit| {
        clock.advance(SLOW);
        store.get_with(permit, b"key")
    };
    orders.run(Operation::Get, &T1, work).await.unwrap();
    let said = orders.family_utilisation();
    assert_eq!(said.reads.unwrap().latency.slo_target, 0.05);
    assert_eq!(orders.utilisation()[1], said);
    // A batch counts where it writes to, whichever handle it goes through.
    let _writer = bench.admitted(Operation::Put, Duration::ZERO);
    let mut batch = orders.batch();
    batch.put(&bench.store, b"key", b"");
    let impatient = T1.max_wait(Duration::ZERO);
    orders.write(&impatient, batch).await.unwrap_err();
    assert_eq!(bench.store.family_utilisation().overall, 0.05);
    assert_eq!(bench.writes(), ServiceShares::default());
}

#[test]
fn all_families_of_a_store_fit_a_call() {
    let mut touched = Touched::default();
    let all: Vec<usize> = (0..=FAMILIES_MAX).collect();
    all.iter().for_each(|&family| touched.add(family));
    assert_eq!(touched.families().collect::<Vec<_>>(), all);
    assert_eq!(Touched::one(200).families().collect::<Vec<_>>(), [200]);
}

/// A gateway in front of the store, on the same clock, that hears of it with each answer.
struct Gateway {
    bench: Bench,
    controller: Controller,
    stores: SloHandle,
}

/// What some seconds came to, in the mean.
#[derive(Debug, Default)]
struct Run {
    /// Shares of the reads of t1 and of t5 that were let in.
    t1: f64,
    t5: f64,
    /// What the store said.
    overall: f64,
}

impl Gateway {
    fn new() -> Self {
        let mut options = promised();
        options.read_limit = Limit::fixed(64);
        let bench = Bench::with(options);
        let (signal, stores) = LatencySlo::of(&[]).unwrap();
        // Twice as many slots as are in use: with twenty times as many there would be no load to speak of.
        let config = Config::new(Settings::one_lane("reads", 32)).unwrap();
        let builder = Controller::builder(config).signal(signal);
        Self {
            controller: builder.build_manual(bench.clock.shared()).unwrap(),
            bench,
            stores,
        }
    }

    /// So many seconds: in each tenth of one come ten reads of t1, which are quick, and so many of t5, which are slow.
    fn run(&self, seconds: u64, slow: u64) -> Run {
        let (lane, orders) = (self.controller.lane("reads").unwrap(), &self.bench.orders);
        let (mut let_in, mut run) = ([0u64; 2], Run::default());
        let steps = 10 * seconds;
        for step in 0..steps {
            let mut slow_ones = Vec::new();
            for caller in 0..10 + slow {
                let is_slow = caller >= 10;
                let tier = if is_slow { Tier::T5 } else { Tier::T1 };
                let request = Request::new(tier).key(1_000 * step + caller);
                let Ok(permit) = lane.try_admit_owned(&request) else {
                    continue;
                };
                let_in[usize::from(is_slow)] += 1;
                let asked = granted(&mut orders.admit(Operation::Get, &request));
                if is_slow {
                    slow_ones.push((permit, asked));
                } else {
                    orders.get_with(asked, b"key").unwrap();
                    permit.finish(Completion::success());
                }
            }
            self.tick();
            for (permit, asked) in slow_ones {
                orders.get_with(asked, b"key").unwrap();
                permit.finish(Completion::success());
            }
            (0..4).for_each(|_| self.tick());
            run.overall += self.tell() / steps as f64;
        }
        run.t1 = let_in[0] as f64 / (10 * steps) as f64;
        run.t5 = let_in[1] as f64 / (slow * steps) as f64;
        run
    }

    fn tick(&self) {
        self.controller.tick(self.bench.clock.advance(SLOW));
    }

    /// The store's report, as it travels.
    fn tell(&self) -> f64 {
        let body = toml::to_string(&self.bench.orders.family_utilisation()).unwrap();
        let said: Utilisation = toml::from_str(&body).unwrap();
        self.stores
            .report("a/orders", said.overall, said.latency.slo_max);
        said.overall
    }
}

#[test]
fn a_gateway_holds_the_store_at_forty_percent_by_refusing_its_least_important_reads() {
    let gateway = Gateway::new();
    // Five of fifteen are slow: a third, less than the target.
    let below = gateway.run(20, 5);
    assert_eq!((below.t1, below.t5), (1.0, 1.0), "{below:?}");
    // Sixteen of twenty-six: six tenths. (Of more it could not let in few enough: a signal that infers may refuse half.)
    gateway.run(30, 16);
    let above = gateway.run(60, 16);
    assert_eq!(above.t1, 1.0, "{above:?}");
    // Two fifths of them would be as many as make two fifths of all; what is held is the least of three seconds.
    assert!((0.38..0.47).contains(&above.overall), "{above:?}");
    assert!((0.4..0.6).contains(&above.t5), "{above:?}");
    // And back.
    gateway.run(20, 5);
    let below = gateway.run(20, 5);
    assert_eq!((below.t1, below.t5), (1.0, 1.0), "{below:?}");
}

#[test]
#[ignore = "prints how long counting takes"]
fn what_it_costs() {
    use cinnamon_core::{Clock, MonotonicClock};
    const TIMES: u32 = 2_000_000;
    let clock = Arc::new(MonotonicClock::new());
    let each = |threads: u32, work: &(dyn Fn(u32) + Sync)| {
        let begun = clock.now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..TIMES).for_each(work));
            }
        });
        clock.now().nanos_since(begun) as f64 / f64::from(TIMES)
    };
    let promise = Promise::new(SloOptions::default());
    for threads in [1, 2] {
        let ended = |_| promise.ended(clock.now(), FAST, Served::Done);
        println!("count, {threads} threads: {:.0} ns", each(threads, &ended));
        let read = |_| {
            std::hint::black_box(clock.now());
        };
        println!("clock, {threads} threads: {:.0} ns", each(threads, &read));
    }
    for promised in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let slo = promised.then(SloOptions::default);
        let options = StoreOptions {
            read_limit: Limit::fixed(8),
            read_slo: slo,
            ..StoreOptions::default()
        };
        let store = Store::open(dir.path(), options).unwrap();
        let ask = |_| drop(store.family_utilisation());
        println!("family_utilisation, idle: {:.0} ns", each(1, &ask));
        store.put(&T1, b"key", b"value").unwrap();
        for threads in [1, 2] {
            let get = |_| drop(store.get(&T1, b"key").unwrap());
            println!(
                "get, promised {promised}, {threads} threads: {:.0} ns",
                each(threads, &get)
            );
        }
        println!("family_utilisation, busy: {:.0} ns", each(1, &ask));
    }
}
