//! What metrics cost: CPU time of one emission of a controller with two lanes, and of serving the page once, as a
//! share of a core when each happens once a second. With one signal, as a store has, and with eight:
//!
//! ```text
//! tools/cargo-rocks.sh run --release -p cinnamon-lab --example scrape -- 1
//! tools/cargo-rocks.sh run --release -p cinnamon-lab --example scrape -- 8
//! ```

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use cinnamon_core::{
    Config, Controller, Dynamics, Instant, LaneSettings, ManualClock, Reading, Request, Settings,
    Signal, Tier, View,
};
use cinnamon_lab::endpoint::Endpoint;
use rustix::time::{ClockId, clock_gettime};

/// Each round is this many emissions, or fetches …
const REPEATS: u32 = 500;
/// … and of so many rounds the least and the median are printed.
const ROUNDS: usize = 9;

/// A gauge at half its target.
struct Half(String);

impl Signal for Half {
    fn name(&self) -> &str {
        &self.0
    }

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(Duration::from_secs(5))
    }

    fn sample(&mut self, _now: Instant, _view: &View) -> Reading {
        Reading::pressure(0.5)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::start(([127, 0, 0, 1], 0).into())?;
    let settings = Settings::default()
        .lane(LaneSettings::new("read", 16))
        .lane(LaneSettings::new("write", 2));
    let number: u32 = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => 1,
    };
    let signals = (0..number).map(|n| Half(format!("gauge-{n}")));
    let builder = Controller::builder(Config::new(settings)?);
    let clock = ManualClock::new();
    let controller = signals
        .fold(builder, |builder, signal| builder.signal(signal))
        .build_manual(clock.shared())?;
    let lanes = [controller.lane("read")?, controller.lane("write")?];
    // Every verdict of every tier there may be is a series.
    for tier in Tier::ALL {
        for lane in &lanes {
            drop(lane.try_admit(&Request::new(tier)));
            drop(lane.try_admit(&Request::new(tier).deadline(Instant::ZERO)));
        }
    }
    let step = |by: Duration| controller.tick(clock.advance(by));
    step(Duration::from_secs(1));
    let here = || cpu_time(ClockId::ThreadCPUTime);
    // What the scraper itself takes is not the embedder's.
    let elsewhere = || cpu_time(ClockId::ProcessCPUTime).saturating_sub(here());
    let plain = rounds(here, || step(Duration::from_millis(20)));
    let second = rounds(here, || step(Duration::from_secs(1)));
    let mut bytes = 0;
    let fetch = rounds(elsewhere, || {
        bytes = fetch_once(&endpoint).unwrap_or(0);
    });
    if bytes == 0 {
        return Err("the page could not be fetched".into());
    }
    println!("two lanes, {number} signals");
    println!(
        "CPU time of {REPEATS} in a row, {ROUNDS} rounds: least and median of one, and as a share of a core at one a second"
    );
    print("a tick that emits nothing", plain);
    print("a tick that emits all metrics", second);
    print(
        &format!("serving the page ({} kB) once", bytes >> 10),
        fetch,
    );
    Ok(())
}

fn print(what: &str, (least, median): (Duration, Duration)) {
    println!(
        "{what:<45} {:>8.1} us {:>8.1} us   {:.4} %",
        least.as_secs_f64() * 1e6,
        median.as_secs_f64() * 1e6,
        median.as_secs_f64() * 100.0
    );
}

/// CPU time of one `act`: the least and the median over all rounds.
fn rounds(time: impl Fn() -> Duration, mut act: impl FnMut()) -> (Duration, Duration) {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let before = time();
            (0..REPEATS).for_each(|_| act());
            time().saturating_sub(before) / REPEATS
        })
        .collect();
    times.sort_unstable();
    (times[0], times[ROUNDS / 2])
}

fn cpu_time(clock: ClockId) -> Duration {
    let used = clock_gettime(clock);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec as u32)
}

/// Fetches the page as a scraper does; its length.
fn fetch_once(endpoint: &Endpoint) -> Result<usize, Box<dyn Error>> {
    let mut stream = TcpStream::connect(endpoint.address())?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut page = Vec::new();
    stream.read_to_end(&mut page)?;
    Ok(page.len())
}
