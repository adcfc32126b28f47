//! A controller in a rush, to look at: clients that never rest ask for more than two small lanes can serve.
//!
//! ```text
//! cargo run -p cinnamon-lab --no-default-features --example rush -- 60
//! cargo run -p cinnamon-lab --no-default-features -- top 127.0.0.1:9184
//! ```
//!
//! The argument is for how many seconds. The second one, if there is one, is the port; 0 takes any that is free.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cinnamon_core::{
    Authority, Completion, Config, Controller, Dynamics, Instant, Lane, LaneSettings, Mode,
    Reading, Request, Settings, Signal, Tier, View,
};
use cinnamon_lab::endpoint::Endpoint;

const CLIENTS: u64 = 96;
const SECONDS_MAX: u64 = 3_600;
const PORT: u16 = 9_184;
/// How long a request holds its slot, how long a client waits for one, and how long it thinks.
const SERVICE: Duration = Duration::from_millis(4);
const PATIENCE: Duration = Duration::from_millis(50);
const THINK: Duration = Duration::from_millis(20);

/// Goes up and down once a minute, around its target.
struct Tide;

impl Signal for Tide {
    fn name(&self) -> &str {
        "tide"
    }

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(Duration::from_secs(2))
    }

    fn authority(&self) -> Authority {
        Authority::Measuring
    }

    fn sample(&mut self, now: Instant, _view: &View) -> Reading {
        let turn = now.as_nanos() as f64 * 1e-9 / 60.0 * std::f64::consts::TAU;
        Reading::pressure(0.8 + 0.4 * turn.sin())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, default| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let seconds = number(1, 60)?.min(SECONDS_MAX);
    let port = u16::try_from(number(2, PORT.into())?)?;
    let endpoint = Endpoint::start(([127, 0, 0, 1], port).into())?;
    println!("{}", endpoint.url());
    let settings = Settings::default()
        .lane(LaneSettings::new("read", 4).scope("store"))
        .lane(LaneSettings::new("write", 2).scope("store"));
    let controller = Controller::builder(Config::new(settings)?)
        .signal(Tide)
        .build()?;
    let lanes = [controller.lane("read")?, controller.lane("write")?];
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let lane = &lanes[usize::from(number / 6 % 3 == 0)];
            let over = &over;
            scope.spawn(move || client(lane, number, over));
        }
        pause(Duration::from_secs(seconds / 2));
        let forced = "lane write mode monitor for 10s".parse();
        let forced = forced.map(|forced| controller.set_override(forced));
        pause(Duration::from_secs(seconds - seconds / 2));
        over.store(true, Ordering::Release);
        forced
    })??;
    controller.set_mode(Mode::Off);
    Ok(())
}

fn client(lane: &Lane, number: u64, over: &AtomicBool) {
    let tier = Tier::ALL[(number % 6) as usize];
    let mut key = number;
    while !over.load(Ordering::Acquire) {
        key = key.wrapping_add(CLIENTS);
        let request = Request::new(tier).key(key).max_wait(PATIENCE);
        if let Ok(permit) = lane.admit_blocking(&request) {
            pause(SERVICE);
            permit.finish(Completion::success());
        }
        pause(THINK);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "it is for people to look at, in real time"
)]
fn pause(time: Duration) {
    thread::sleep(time);
}
