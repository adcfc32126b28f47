//! How soon an override is in force on a node that is overloaded twelvefold, all its workers busy.

use std::path::Path;
use std::thread;
use std::time::Duration;

use cinnamon_core::{Action, Override, Target, Tier};
use cinnamon_rocks::Store;
use quanta::Clock;

use super::arm::Arm;
use super::load::{CALM_S, Schedule};
use super::server::Server;
use super::{Result, generate, threads};
use crate::task::{join, pause};

/// The surge has lasted so long when the switch is thrown.
const INTO_SURGE_S: f64 = 1.5;
/// Looks for the override this often.
const PERIOD: Duration = Duration::from_micros(200);
/// It is given up after this.
const PATIENCE: Duration = Duration::from_secs(2);

/// When an override was in force, after it was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    pub(super) by_switch: Option<Duration>,
    pub(super) by_file: Option<Duration>,
}

/// Overloads the store and throws a switch, and a little later writes the override file that it watches.
pub(super) fn measure(
    store: Store,
    file: &Path,
    schedule: Schedule,
    scale: f64,
    clock: Clock,
) -> Result<Reached> {
    let shed = |tier| Override::new(Target::Controller, Action::Shed(tier), PATIENCE);
    let switch = store.controller().kill_switch(shed(Tier::T2))?;
    let server = Server::new(Arm::Cinnamon, store, None, clock);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads())
            .map(|_| scope.spawn(|| server.work()))
            .collect();
        let generator = scope.spawn(|| generate(&server, schedule));
        pause(Duration::from_secs_f64((CALM_S + INTO_SURGE_S) * scale));
        let by_switch = after(&server, Tier::T2, || switch.throw());
        let text = shed(Tier::T1).to_string();
        let mut written = Ok(());
        let by_file = after(&server, Tier::T1, || written = std::fs::write(file, text));
        join(generator);
        server.stop();
        workers.into_iter().map(join).for_each(drop);
        written?;
        Ok(Reached { by_switch, by_file })
    })
}

/// How long after `act` the gate of the reads is held at `tier` by an override.
fn after(server: &Server, tier: Tier, act: impl FnOnce()) -> Option<Duration> {
    let from = server.elapsed();
    act();
    loop {
        let snapshot = server.store().snapshot();
        let lane = snapshot.lane("read")?;
        let taken = server.elapsed() - from;
        if lane.bound_by == "override" && lane.threshold == format!("{tier}.0") {
            return Some(taken);
        }
        if taken > PATIENCE {
            return None;
        }
        pause(PERIOD);
    }
}
