//! A signal of your own: a follower that applies half of the writes its leader is offered.
//! `tools/cargo.sh run -p cinnamon-examples --no-default-features --example custom_signal`
use std::sync::{Arc, atomic::AtomicU64, atomic::Ordering::Relaxed};
use std::time::Duration;

use cinnamon_core::{Authority, Dynamics, Instant, Reading, Signal, View};
use cinnamon_core::{Completion, Config, Controller, ManualClock, Request, Settings, Tier};

const TARGET: Duration = Duration::from_secs(1);

/// How far a follower is behind, milliseconds of its work, against [`TARGET`].
struct FollowerLag(Arc<AtomicU64>);

impl Signal for FollowerLag {
    fn name(&self) -> &str {
        "follower-lag"
    }
    fn dynamics(&self) -> Dynamics {
        Dynamics::integrating(TARGET)
    }
    fn authority(&self) -> Authority {
        Authority::Measuring
    }
    fn sample(&mut self, _now: Instant, _view: &View) -> Reading {
        let lag = Duration::from_millis(self.0.load(Relaxed));
        Reading::pressure(lag.as_secs_f64() / TARGET.as_secs_f64())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (gauge, clock) = (Arc::new(AtomicU64::new(0)), ManualClock::new());
    // Ten seconds take none here: a program calls `build`, which ticks by itself.
    let controller = Controller::builder(Config::new(Settings::one_lane("write", 8))?)
        .signal(FollowerLag(Arc::clone(&gauge)))
        .build_manual(clock.shared())?;
    let (lane, mut refused) = (controller.lane("write")?, None);
    for ms in 1..=10_000_usize {
        // A thousand writes a second, of t1 to t5 in turn, each a millisecond long.
        let offered = lane.try_admit(&Request::new(Tier::ALL[1 + ms % 5]));
        controller.tick(clock.advance(Duration::from_millis(1)));
        match offered {
            Ok(permit) => {
                permit.finish(Completion::success());
                gauge.fetch_add(2, Relaxed); // of the follower's work
            }
            Err(rejected) => refused = Some(rejected),
        }
        gauge.fetch_sub(gauge.load(Relaxed).min(1), Relaxed);
        if let (0, Some(last)) = (ms % 2_000, refused) {
            let signal = controller.snapshot().signals.remove(0);
            let (pressure, budget) = (signal.pressure, signal.budget_per_s);
            println!("{ms:5} ms: pressure {pressure:.2?}, budget {budget:.0?}/s");
            println!("  {last}: {}", controller.binding_name(last.binding()));
        }
    }
    let verdicts: Vec<_> = lane.snapshot().verdicts.iter().collect();
    println!("{verdicts:?}");
    Ok(())
}
