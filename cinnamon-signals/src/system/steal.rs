//! Time that the host gave to others: [`StealTime`].

use std::ops::RangeInclusive;
use std::time::Duration;

use cinnamon_core::{Authority, Dynamics, Instant, Reading, Signal, View};

use super::cpu_times;
use crate::common::{Common, common_answers, common_setters, world_setters};
use crate::setting::{SettingError, within};
use crate::window::Window;
use crate::world::World;

/// Share of the machine's time that is stolen at pressure 1.0: on shared hosts a few per cent are a usual day, and a
/// tenth is a core in ten that is not there.
pub const DEFAULT_STEAL_SHARE: f64 = 0.1;
/// The share is taken over this: a pause of the whole machine of 400 ms is 4 % of it.
pub const STEAL_WINDOW: Duration = Duration::from_secs(10);

/// The share of time in which the hypervisor ran somebody else though this machine had work.
///
/// - **Measures** `steal` of the line `cpu` in `/proc/stat` over all of that line, over the last [`STEAL_WINDOW`].
///   Pressure is that share over the target share.
/// - **A sample costs** the reading of `/proc/stat`, 10 to 100 microseconds by the number of cores and interrupts.
/// - **Lies** inside containers, which see the machine's; on hosts that do not account for it (it stays 0 then); and it
///   says nothing of a cgroup's own quota, for which see [`Cpu`](crate::Cpu). It is trouble of the host: letting in
///   less does not take it away, only what it does to requests. So watch it in mode `monitor` first.
/// - **Dynamics** are settling, with its window. **Authority** is [`Authority::Inferring`].
/// - **Target**: [`DEFAULT_STEAL_SHARE`].
///
/// Unavailable until a window has passed, and on any system other than Linux.
#[derive(Clone, Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct StealTime {
    common: Common,
    target_share: f64,
    world: World,
    window: Window<2>,
}

impl StealTime {
    /// Of this machine, called `steal-time`.
    pub fn new() -> Self {
        Self {
            common: Common::new("steal-time", Authority::Inferring),
            target_share: DEFAULT_STEAL_SHARE,
            world: World::new(),
            window: Window::new(STEAL_WINDOW),
        }
    }

    common_setters!();

    /// The stolen share at pressure 1.0. Default [`DEFAULT_STEAL_SHARE`].
    ///
    /// # Errors
    ///
    /// Unless it is from 0.01 to 1.
    pub fn target_share(mut self, share: f64) -> Result<Self, SettingError> {
        let bound = "from 0.01 to 1";
        self.target_share = within("steal_time.target_share", share, 0.01..=1.0, bound)?;
        Ok(self)
    }

    world_setters!("Looks for `proc` in this directory instead of in `/`.");
}

impl Default for StealTime {
    fn default() -> Self {
        Self::new()
    }
}

impl Signal for StealTime {
    common_answers!();

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(STEAL_WINDOW)
    }

    fn range(&self) -> RangeInclusive<f64> {
        0.0..=1.0 / self.target_share
    }

    fn sample(&mut self, now: Instant, _view: &View) -> Reading {
        let times = match self.world.look("proc/stat", "the line cpu", cpu_times) {
            Ok(times) => times,
            Err(missing) => return Reading::unavailable(missing.into_text()),
        };
        match self.window.push(now, [times.steal, times.total]) {
            Some(gain) if gain.counts[1] > 0 => {
                let share = gain.counts[0] as f64 / gain.counts[1] as f64;
                Reading::pressure(share / self.target_share)
            }
            Some(_) => Reading::unavailable("the machine's times stand still"),
            None => Reading::unavailable("not watched for a whole window yet"),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::world::tests::{tree, write};

    fn stat(steal: u64, others: u64) -> String {
        format!("cpu  {others} 0 0 0 0 0 0 {steal} 0 0\n")
    }

    #[test]
    fn pressure_is_the_stolen_share_over_its_target() {
        let root = tree(&[]);
        let mut signal = StealTime::new().root(root.path());
        let mut sample = |tenths: u64, steal: u64, others: u64| {
            write(&root, "proc/stat", &stat(steal, others));
            let now = Instant::ZERO.after(Duration::from_millis(100 * tenths));
            signal.sample(now, &View::default()).value()
        };
        // Four cores: 400 ticks a second, a twentieth of them stolen.
        for tenths in 0..100 {
            assert_eq!(sample(tenths, 2 * tenths, 38 * tenths), None);
        }
        assert!((sample(100, 200, 3_800).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(sample(101, 0, 0), None, "the machine began anew");
    }

    #[test]
    fn what_is_missing_and_what_cannot_be_is_said() {
        let mut signal = StealTime::new().root("/nowhere");
        let said = signal.sample(Instant::ZERO, &View::default());
        assert!(format!("{said:?}").contains("/nowhere/proc/stat could not be read"));
        let error = StealTime::new().target_share(f64::NAN).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("`steal_time.target_share` is NaN")
        );
    }
}
