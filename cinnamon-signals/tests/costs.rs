//! What a sample of each detector costs, and what its handle costs on the path of a request.
//!
//! Figures, not judgements; they run when asked for:
//! `cargo test --release -p cinnamon-signals --all-features --test costs -- --ignored --nocapture`

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what fails here fails the test"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use cinnamon_core::{
    Class, Clock, Completion, Config, Controller, Instant, LaneView, ManualClock, MonotonicClock,
    Observer, Request, Settings, Signal, Tenant, Tier, View,
};
use cinnamon_signals::{
    AcceptQueue, Cpu, Errors, FollowerLag, Heartbeat, HotKeys, HotTenants, InflightBudget,
    LagReport, LaneLatency, LatencySlo, Memory, Pressure, QueueWait, Retries, Slo, StallTime,
    StealTime, WriteBytes,
};

const SAMPLES: u64 = 2_000;
const CALLS: u64 = 1_000_000;

/// Nanoseconds of one of so many.
fn nanos_of_one(count: u64, mut one: impl FnMut(u64)) -> f64 {
    let clock = MonotonicClock::new();
    (0..count / 10).for_each(&mut one);
    let began = clock.now();
    (0..count).for_each(&mut one);
    clock.now().since(began).as_secs_f64() * 1e9 / count as f64
}

fn sample(mut signal: impl Signal) {
    let view = View::of(vec![
        LaneView::new("read", "disk"),
        LaneView::new("write", "disk"),
    ]);
    let mut tenths = 0;
    let nanos = nanos_of_one(SAMPLES, |_| {
        tenths += 1;
        let now = Instant::ZERO.after(Duration::from_millis(100 * tenths));
        let _ = black_box(signal.sample(now, &view));
    });
    println!("{:20} a sample {:8.2} us", signal.name(), nanos / 1e3);
}

fn call(name: &str, one: impl FnMut(u64)) {
    println!("{name:20} a call   {:8.1} ns", nanos_of_one(CALLS, one));
}

/// A request with a key, a tenant, bytes and a cost, let in and done, while this observer looks on.
fn observed(name: &str, observer: impl Observer + 'static) {
    let config = Config::new(Settings::one_lane("main", 4)).unwrap();
    let builder = Controller::builder(config).observer(Arc::new(observer));
    let controller = builder.build_manual(ManualClock::new().shared()).unwrap();
    let lane = controller.lane("main").unwrap();
    call(name, |i| {
        let request = Request::new(Tier::T2).key(i).tenant(Tenant(i as u32 % 100));
        let permit = lane.try_admit(&request.bytes(4_096).cost(2));
        permit.unwrap().finish(Completion::success());
    });
}

/// A sample after so many requests.
fn sample_of(mut signal: impl Signal, what: &str, counts: [u64; 2], mut tell: impl FnMut(u64)) {
    let mut tenths = 0_u64;
    for count in counts {
        let nanos = nanos_of_one(SAMPLES, |n| {
            (0..count).for_each(|i| tell(n * 4_001 + i));
            tenths += 1;
            let now = Instant::ZERO.after(Duration::from_millis(100 * tenths));
            let _ = black_box(signal.sample(now, &View::default()));
        });
        let name = signal.name();
        println!(
            "{name:20} a sample {:8.2} us, of {count} {what}",
            nanos / 1e3
        );
    }
}

#[test]
#[ignore = "figures of this machine"]
fn observers() {
    struct Nobody;
    impl Observer for Nobody {}
    observed("an observer", Nobody);
    observed("HotKeysHandle", HotKeys::new().1);
    observed("HotTenantsHandle", HotTenants::new().1);
    observed("WriteBytesHandle", WriteBytes::new(1e9).unwrap().1);
}

#[test]
#[ignore = "figures of this machine"]
fn what_each_costs() {
    sample(
        Memory::builder()
            .process(1, 2)
            .cgroup(0.8, 0.95)
            .build()
            .unwrap(),
    );
    sample(Errors::new());
    sample(Retries::new());
    sample(Cpu::new());
    sample(Pressure::memory());
    sample(StealTime::new());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    sample(AcceptQueue::new(listener.local_addr().unwrap().port(), 128).unwrap());
    sample(Heartbeat::new(LaneLatency::new()));

    let (stalls, handle) = StallTime::new(LaneLatency::new());
    sample(stalls);
    call("StallHandle", |_| handle.lost(Duration::from_nanos(1)));

    let promises: Vec<_> = (0..8)
        .map(|class| {
            Slo::new(
                Class(class),
                Duration::from_millis(1),
                Duration::from_secs(1),
            )
        })
        .collect::<Result<_, _>>()
        .unwrap();
    let (slo, handle) = LatencySlo::of(&promises).unwrap();
    sample(slo);
    call("SloHandle", |i| {
        handle.finished(Class(i as u16 % 8), Duration::from_micros(10));
    });

    let (lag, followers) = FollowerLag::new();
    let members: Vec<_> = (0..4)
        .map(|i| followers.follower(&format!("f{i}")))
        .collect();
    members
        .iter()
        .for_each(|one| one.report(LagReport::time(Duration::from_millis(1))));
    sample(lag.silent_after(Duration::from_secs(3_600)).unwrap());
    call("Follower", |_| members[0].report(LagReport::entries(1)));

    let budget = InflightBudget::new(100).unwrap();
    sample(budget.signal());
    let pool = budget.pool();
    call("InflightPool", |_| drop(black_box(pool.enter(1))));

    let (wait, pool) = QueueWait::new();
    sample(wait);
    let now = Instant::from_nanos(1);
    call("QueueWaitHandle", |_| pool.enter(now).begin(now));

    let (bytes, handle) = WriteBytes::new(1e9).unwrap();
    sample(bytes);
    call("WriteBytesHandle", |_| handle.admit(4_096).complete(4_000));

    let (keys, handle) = HotKeys::new();
    call("HotKeysHandle", |i| handle.key(i));
    sample_of(keys, "keys", [0, 4_000], |i| {
        handle.key(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    });
    let (tenants, handle) = HotTenants::new();
    call("HotTenantsHandle", |i| handle.tenant(Tenant(i as u32), 1));
    sample_of(tenants, "requests of a hundred tenants", [0, 4_000], |i| {
        handle.tenant(Tenant(i as u32 % 100), 1);
    });
    let (tenants, handle) = HotTenants::new();
    sample_of(tenants, "requests of 4,000 tenants", [0, 4_000], |i| {
        handle.tenant(Tenant(i as u32 % 4_000), 1);
    });

    #[cfg(feature = "tokio")]
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        sample(cinnamon_signals::Tasks::of(runtime.handle(), 100).unwrap());
    }
}
