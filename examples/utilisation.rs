//! A store tells how it stands, and a gateway in front of it sheds its least important reads above 40 %.
//! `tools/cargo-rocks.sh run --release -p cinnamon-examples --example utilisation`
//!
//! The large reads that make the store slow are another client's, so the gateway can only give way: a signal that infers
//! takes half of what comes, the least important half. The store is real and so is its time; the gateway's clock moves a
//! tenth of a second a step, whatever the store takes.
use std::time::Duration;

use cinnamon_core::{Completion, Config, Controller, Lane, ManualClock, Request, Settings, Tier};
use cinnamon_rocks::{Store, StoreOptions};
use cinnamon_signals::{DEFAULT_SLO_TARGET_SHARE, LatencySlo, Utilisation};

/// Reads of the store should take no more than 2 ms.
const OPTIONS: &str = "
[read_slo]
target_us = 2000
max_us = 2000000
";
/// Rows of a large read: some milliseconds.
const LARGE: u32 = 40_000;
const STEP: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path(), StoreOptions::from_toml(OPTIONS)?)?;
    fill(&store)?;

    // The gateway, elsewhere: promises of its own it has none, so it knows of backing stores only.
    let (signal, stores) = LatencySlo::of(&[])?;
    let signal = signal.target_shares(DEFAULT_SLO_TARGET_SHARE, 0.05)?;
    let clock = ManualClock::new();
    let controller = Controller::builder(Config::new(Settings::one_lane("reads", 64))?)
        .signal(signal)
        .build_manual(clock.shared())?;
    let reads = controller.lane("reads")?;

    println!("of ten reads, large   store says, overall   gateway lets in: t1   t3   t5");
    for large in [0, 2, 8, 0] {
        let (mut let_in, mut said) = ([0; 6], Utilisation::default());
        for step in 0..80 {
            for read in 0..10 {
                let request = Request::new(Tier::T1).key(read);
                let limit = if read < large { LARGE } else { 1 };
                store.scan(&request, b"", limit)?;
            }
            // In a header of its answer, and out of it again.
            let header = serde_json::to_string(&store.family_utilisation())?;
            said = serde_json::from_str(&header)?;
            stores.report("blobs", said.overall, said.latency.slo_max);

            let now_let_in = offer(&reads, step);
            // Once it has settled.
            if step >= 60 {
                (0..6).for_each(|tier| let_in[tier] += now_let_in[tier]);
            }
            controller.tick(clock.advance(STEP));
        }
        let percent = |tier: Tier| let_in[tier as usize] / 2;
        println!(
            "{large:>20}   {:>18.0} %   {:>18} % {:>3} % {:>3} %",
            100.0 * said.overall,
            percent(Tier::T1),
            percent(Tier::T3),
            percent(Tier::T5)
        );
    }
    println!(
        "last header: {}",
        serde_json::to_string(&store.family_utilisation())?
    );
    Ok(())
}

fn fill(store: &Store) -> Result<(), Box<dyn std::error::Error>> {
    let mut batch = store.batch();
    for row in 0..LARGE {
        batch.put(store, &row.to_be_bytes(), b"value");
    }
    Ok(store.write(&Request::new(Tier::T1), batch)?)
}

/// Ten reads of each tier come to the gateway; how many of each it lets in.
fn offer(reads: &Lane, step: u64) -> [u32; 6] {
    let mut let_in = [0; 6];
    for caller in 0..10 {
        for tier in Tier::ALL {
            let request = Request::new(tier).key(10 * step + caller);
            if let Ok(permit) = reads.try_admit(&request) {
                permit.finish(Completion::success());
                let_in[tier as usize] += 1;
            }
        }
    }
    let_in
}
