//! Precision before recall: a day at 70 % of what can be done, with noise, a pause of 10 to 400 ms now and then, and one
//! sample in ten lost. No detector's pressure may reach 1.0, and none may name a culprit or ask for a cut. Then trouble, of
//! the kind that each is for: it must.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cinnamon_core::{Class, Instant, LaneView, Reading, Signal, Tenant, View};

use crate::world::tests::Feigned;
use crate::{
    AcceptQueue, ConfirmedBy, Cpu, Debounced, FollowerLag, HotKeys, HotTenants, InflightBudget,
    LagReport, LaneLatency, LatencySlo, Pressure, QueueWait, Retries, Slo, StallTime, StealTime,
    WriteBytes,
};

const DAY_S: u64 = 24 * 3_600;
const TROUBLE_S: u64 = 60;
const TICK: Duration = Duration::from_millis(100);
const LOAD: f64 = 0.7;
/// Requests that can be done a second.
const RATE: f64 = 1_000.0;
const SERVICE_S: f64 = 0.010;

/// SplitMix64.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About normal, mean 0 and deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// What happened in a tick, in seconds of the node's work where nothing else is said.
#[derive(Clone, Copy, Debug, Default)]
struct Tick {
    /// Share of the tick in which nothing ran.
    paused: f64,
    served: f64,
    backlog: f64,
    /// Mean time of a request that ended in it, seconds.
    latency_s: f64,
    noise: f64,
    trouble: bool,
}

/// A node on a usual day.
struct Day {
    rng: Rng,
    now: Instant,
    slow_noise: f64,
    backlog: f64,
    paused_s: f64,
    next_pause_s: f64,
    trouble: bool,
}

impl Day {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng(seed),
            now: Instant::from_nanos(1),
            slow_noise: 0.0,
            backlog: 0.0,
            paused_s: 0.0,
            next_pause_s: 20.0,
            trouble: false,
        }
    }

    fn tick(&mut self) -> Tick {
        let dt = TICK.as_secs_f64();
        self.now = self.now.after(TICK);
        self.next_pause_s -= dt;
        if self.next_pause_s <= 0.0 {
            self.paused_s = 0.010 + 0.390 * self.rng.unit();
            self.next_pause_s = 10.0 + 50.0 * self.rng.unit();
        }
        // 10 % from tick to tick, and 3 % over minutes.
        self.slow_noise = 0.999 * self.slow_noise + 0.03 * 0.0447 * self.rng.normal();
        let noise = 0.1 * self.rng.normal();
        let arrived = dt * LOAD * (1.0 + noise + self.slow_noise).max(0.0);
        let paused = self.paused_s.min(dt);
        self.paused_s -= paused;
        self.backlog += arrived;
        let served = self.backlog.min(dt - paused);
        self.backlog -= served;
        Tick {
            paused: paused / dt,
            served,
            backlog: self.backlog,
            latency_s: SERVICE_S * (1.0 + 0.2 * self.rng.normal().abs()) + self.backlog,
            noise: self.rng.unit(),
            trouble: self.trouble,
        }
    }
}

/// Runs the day, and then trouble; `feed` tells the world of each tick, and fills the view.
fn run(mut signal: impl Signal, seed: u64, mut feed: impl FnMut(Instant, &Tick, &mut View)) {
    let mut day = Day::new(seed);
    let mut view = View::of(vec![LaneView::new("main", "main")]);
    let mut due = Instant::ZERO;
    let mut sample = |day: &mut Day, view: &mut View| {
        let tick = day.tick();
        feed(day.now, &tick, view);
        if day.now < due || day.rng.unit() < 0.1 {
            return None;
        }
        due = day
            .now
            .after(signal.period().saturating_sub(Duration::from_millis(1)));
        Some(signal.sample(day.now, view))
    };
    let (mut readings, mut greatest) = (0_u64, 0.0_f64);
    for _ in 0..10 * DAY_S {
        let Some(reading) = sample(&mut day, &mut view) else {
            continue;
        };
        if let Some(pressure) = reading.value() {
            readings += 1;
            greatest = greatest.max(pressure);
            assert!(pressure < 1.0, "seed {seed}, {:?}: {reading:?}", day.now);
            let quiet = reading.get_culprits().is_empty() && reading.get_cut().is_none();
            assert!(quiet, "seed {seed}, {:?}: {reading:?}", day.now);
        }
    }
    assert!(readings > DAY_S, "it was watched: {readings} readings");
    day.trouble = true;
    let fires = |reading: Reading| reading.value().is_some_and(|pressure| pressure >= 1.0);
    let fired = (0..10 * TROUBLE_S).find(|_| sample(&mut day, &mut view).is_some_and(fires));
    let name = signal.name();
    let after_s = fired.map(|tenths| tenths as f64 / 10.0);
    println!(
        "{name}: at most {greatest:.2} on a day of {readings} readings; in trouble after {after_s:?} s"
    );
    assert!(
        fired.is_some(),
        "seed {seed}: {name} does not see its trouble"
    );
}

/// The latency of the ticks, for detectors that ask for it: in trouble three times as long.
fn latency() -> (Arc<Mutex<f64>>, impl Fn(&Tick)) {
    let latency_s = Arc::new(Mutex::new(SERVICE_S));
    let told = Arc::clone(&latency_s);
    let tell = move |tick: &Tick| {
        let factor = if tick.trouble { 3.0 } else { 1.0 };
        *told.lock().unwrap() = factor * tick.latency_s;
    };
    (latency_s, tell)
}

#[test]
fn queue_wait() {
    let (signal, pool) = QueueWait::new();
    run(signal, 1, |_, tick, _| {
        let wait_s = tick.backlog + if tick.trouble { 0.05 } else { 0.0 };
        // A few each tick; what is told of is the mean.
        pool.waited(Duration::from_secs_f64(wait_s));
    });
}

#[test]
fn inflight() {
    // Room for what a pause of half a second holds up.
    let budget = InflightBudget::new((0.5 * RATE) as u64).unwrap();
    let pool = budget.pool();
    let mut held = None;
    run(budget.signal(), 2, |_, tick, view| {
        view.lanes[0].in_use = (RATE * (SERVICE_S + tick.backlog)) as u32;
        if tick.trouble && held.is_none() {
            held = Some(pool.enter(RATE as u32));
        }
    });
}

#[test]
fn write_bytes() {
    let (signal, handle) = WriteBytes::new(RATE * 1e3).unwrap();
    let mut writes = 0_u64;
    run(signal, 3, |_, tick, _| {
        let factor = if tick.trouble { 2.0 } else { 1.0 };
        let bytes = factor * tick.served * RATE * 1e3;
        // Estimates that are wrong by half, and one in ten that fails.
        writes += 1;
        let write = handle.admit((bytes * (0.5 + tick.noise)) as u64);
        if writes.is_multiple_of(10) && !tick.trouble {
            write.fail();
        } else {
            write.complete(bytes as u64);
        }
    });
}

#[test]
fn follower_lag() {
    let (signal, followers) = FollowerLag::new();
    let members = ["a", "b"].map(|name| followers.follower(name));
    let (mut ticks, mut lag_s) = (0_u64, 0.0);
    run(signal, 4, |_, tick, _| {
        ticks += 1;
        lag_s += if tick.trouble { 0.1 } else { 0.0 };
        for (i, member) in members.iter().enumerate() {
            // One report a second from each, every tenth of them lost.
            if (ticks + 5 * i as u64).is_multiple_of(10) && tick.noise > 0.1 {
                let lag_s = lag_s + 0.3 * tick.noise + tick.backlog;
                member.report(LagReport::time(Duration::from_secs_f64(lag_s)));
            }
        }
    });
}

#[test]
fn stall_time() {
    let (latency_s, tell) = latency();
    let (signal, handle) = StallTime::new(move || Some(*latency_s.lock().unwrap()));
    run(signal, 5, |_, tick, _| {
        tell(tick);
        let lost = if tick.trouble { 0.6 } else { tick.paused };
        handle.lost(TICK.mul_f64(lost));
    });
}

#[test]
fn latency_slo() {
    let promise = Slo::new(
        Class(0),
        Duration::from_millis(30),
        Duration::from_millis(500),
    );
    let (signal, handle) = LatencySlo::of(&[promise.unwrap()]).unwrap();
    let mut part = 0.0;
    run(signal, 6, |_, tick, _| {
        part += 0.5 * tick.served * RATE;
        while part >= 1.0 {
            part -= 1.0;
            let factor = if tick.trouble { 5.0 } else { 1.0 };
            let time_s = factor * tick.latency_s;
            handle.finished(Class(0), Duration::from_secs_f64(time_s));
        }
    });
}

/// Files of pressure stall information, of which `lost` says the share of each tick.
fn psi(signal: Pressure, file: &'static str, seed: u64, lost: impl Fn(&Tick) -> f64) {
    let files = Feigned::default();
    let mut total_us = 0.0;
    let signal = signal.world(files.world());
    run(signal, seed, |_, tick, _| {
        total_us += 1e6 * TICK.as_secs_f64() * if tick.trouble { 0.95 } else { lost(tick) };
        let total_us = total_us as u64;
        files.write(
            file,
            format!("some total={total_us}\nfull total={total_us}\n"),
        );
    });
}

#[test]
fn pressure_of_cores() {
    // Whenever all of a tick is used somebody waits, and half of the time else.
    psi(Pressure::cpu(), "proc/pressure/cpu", 7, |tick| {
        if tick.served > 0.99 * TICK.as_secs_f64() {
            1.0
        } else {
            0.3 + 0.4 * tick.noise
        }
    });
}

#[test]
fn pressure_of_disks() {
    psi(Pressure::io(), "proc/pressure/io", 8, |tick| {
        tick.paused.max(0.4 * tick.noise)
    });
}

#[test]
fn pressure_of_memory() {
    psi(Pressure::memory(), "proc/pressure/memory", 9, |tick| {
        tick.paused.max(0.02 * tick.noise)
    });
}

/// `/proc/stat` with eight cores of which `busy` and `stolen` say the shares of each tick.
fn stat(files: &Feigned, ticks: &mut [f64; 3], busy: f64, stolen: f64) {
    let all = 800.0 * TICK.as_secs_f64();
    ticks[0] += all * busy;
    ticks[1] += all * (1.0 - busy - stolen);
    ticks[2] += all * stolen;
    let [busy, idle, stolen] = ticks.map(|ticks| ticks as u64);
    files.write(
        "proc/stat",
        format!("cpu  {busy} 0 0 {idle} 0 0 0 {stolen} 0 0\n"),
    );
}

#[test]
fn cores() {
    let (files, mut ticks) = (Feigned::default(), [0.0; 3]);
    run(Cpu::new().world(files.world()), 10, |_, tick, _| {
        let busy = tick.served / TICK.as_secs_f64();
        let busy = if tick.trouble { 0.99 } else { busy };
        stat(&files, &mut ticks, busy, 0.0);
    });
}

#[test]
fn stolen_time() {
    let (files, mut ticks) = (Feigned::default(), [0.0; 3]);
    run(StealTime::new().world(files.world()), 11, |_, tick, _| {
        // The pauses are the host's.
        let stolen = if tick.trouble {
            0.2
        } else {
            tick.paused.max(0.02 * tick.noise)
        };
        let busy = (tick.served / TICK.as_secs_f64()).min(1.0 - stolen);
        stat(&files, &mut ticks, busy, stolen);
    });
}

#[test]
fn accept_queue() {
    let files = Feigned::default();
    let queue = AcceptQueue::new(80, 128).unwrap();
    let mut waiting = 0.0_f64;
    run(queue.world(files.world()), 12, |_, tick, _| {
        // Some hundred connections a second, all accepted at once but for pauses.
        waiting = if tick.paused > 0.0 || tick.trouble {
            waiting + 40.0 + 40.0 * tick.noise
        } else {
            0.0
        };
        waiting = waiting.min(129.0);
        let text = format!(
            "  sl  local_address\n   0: 00000000:0050 00000000:0000 0A 00000000:{:08X}\n",
            waiting as u32
        );
        files.write("proc/net/tcp", text);
    });
}

#[test]
fn hot_keys() {
    // Busy all day, and keys with Zipf's distribution: rank 2^(16 u) of 65,536 has it, with an exponent of 1.
    let (signal, handle) = HotKeys::with_seed(13);
    let mut rng = Rng(13);
    run(signal, 13, |_, tick, view| {
        (view.lanes[0].limit, view.lanes[0].in_use) = (16, 16);
        for _ in 0..(tick.served * RATE) as u64 {
            let rank = (16.0 * rng.unit()).exp2() as u64;
            let hot = tick.trouble && rng.unit() < 0.4;
            handle.key(if hot { u64::MAX } else { rank });
        }
    });
}

#[test]
fn hot_tenants() {
    // Busy all day, and twenty tenants of which the largest has twice as much as the smallest.
    let (signal, handle) = HotTenants::new();
    let mut rng = Rng(15);
    run(signal, 15, |_, tick, view| {
        (view.lanes[0].limit, view.lanes[0].in_use) = (16, 16);
        for _ in 0..(tick.served * RATE) as u64 {
            let tenant = (20.0 * (rng.unit() + 1.0).log2()) as u32;
            let hot = tick.trouble && rng.unit() < 0.3;
            // Costs that differ, too.
            let cost = 1 + (rng.next() % 8) as u32;
            handle.tenant(Tenant(if hot { 99 } else { tenant }), cost);
        }
    });
}

#[test]
fn retries() {
    let (mut part, mut again) = (0.0, 0.0);
    let mut rng = Rng(16);
    run(Retries::new(), 16, |_, tick, view| {
        // One in fifty is tried again; once somebody has waited for a tenth of a second all are; and half of all in trouble.
        let late = (tick.backlog - 0.1).max(0.0) / TICK.as_secs_f64();
        let share = if tick.trouble {
            0.5
        } else {
            late.clamp(0.02, 1.0)
        };
        part += RATE * LOAD * TICK.as_secs_f64() * (0.8 + 0.4 * tick.noise) + again;
        let offered = part as u64;
        part -= offered as f64;
        let retried = (0..offered).filter(|_| rng.unit() < share).count() as u64;
        again = if tick.trouble { 0.0 } else { retried as f64 };
        view.lanes[0].offered += offered;
        view.lanes[0].retried += retried;
    });
}

#[test]
fn a_twitchy_gauge_confirmed_by_latency_and_debounced() {
    // A gauge that is over its target whenever there is a pause.
    let (gauge, handle) = crate::Push::new("gauge", cinnamon_core::Dynamics::binary(TICK));
    let confirmed = ConfirmedBy::new(gauge, LaneLatency::new());
    let signal = Debounced::new(confirmed, Duration::from_secs(3)).unwrap();
    run(signal, 14, |_, tick, view| {
        let fires = tick.paused > 0.0 || tick.trouble;
        handle.push(if fires { 1.0 } else { 0.0 });
        let factor = if tick.trouble { 3.0 } else { 1.0 };
        view.lanes[0].admitted_per_s = RATE * LOAD;
        view.lanes[0].service_mean_s = factor * SERVICE_S;
        // Averaged over a second, as a lane does.
        let gain = TICK.as_secs_f64();
        view.lanes[0].wait_s += gain * (tick.backlog - view.lanes[0].wait_s);
    });
}
