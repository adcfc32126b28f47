//! How busy the cores are, and a cascade of what is not let in then: [`Cpu`].

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cinnamon_core::{Authority, Dynamics, Instant, Priority, Reading, Signal, View};

use super::{CpuTimes, V2, cpu_times, own_cgroup_dirs};
use crate::common::{Common, common_answers, common_setters, world_setters};
use crate::least::Least;
use crate::setting::{SettingError, within};
use crate::window::Window;
use crate::world::{Missing, World, number};

/// Utilisation up to which it is silent: over the targets at which autoscalers add nodes (45 to 70 %), so that what is
/// refused does not hide the demand from them, and over a busy usual day.
pub const DEFAULT_CPU_FROM: f64 = 0.8;
/// Utilisation at which all that the cascade may refuse is refused, and pressure 1.0: from there on cores are what
/// requests wait for.
pub const DEFAULT_CPU_TO: f64 = 0.95;
/// Utilisation is taken over this, …
pub const CPU_WINDOW: Duration = Duration::from_secs(2);
/// … and the least of such within this counts: what a pause of 400 ms has held up keeps the cores of a node that is 70 %
/// busy wholly busy for a second, and that must not reach the cascade.
pub const CPU_STANDS: Duration = Duration::from_secs(5);

/// One more than the number of the least important priority, …
const LEVELS: u16 = 768;
/// … and that of the most important one that the cascade may refuse, t2.0: t0 and t1 are left to the law.
const LAST: u16 = 256;

/// Utilisation of the cores, with Netflix's cascade: silent until it is over what the autoscaler aims at, then one
/// bucket of traffic is refused wholly before the next is touched.
///
/// - **Measures** busy time over all time of the machine (`/proc/stat`, stolen time counts as busy), and, where the
///   process's cgroup or one around it has a quota, what that cgroup used over what it may use (v2 `cpu.stat` and
///   `cpu.max`, v1 `cpuacct.usage` and `cpu.cfs_quota_us`); over the last [`CPU_WINDOW`]. The greater counts,
///   and of that the least within [`CPU_STANDS`].
/// - **Says** a *cut* while it is between *from* and *to*: the share of that way is the share of t5 to t2 that is not let
///   in, from the least important priority on, so t5 is gone before t4 is touched. Its *pressure* is the utilisation
///   over *to*, which is under 1.0 all that way; only beyond it does the law hold the utilisation there, whatever tier
///   that takes. t0 and t1 are never part of the cascade.
/// - **A sample costs** the reading of `/proc/stat`, and of two small files for each cgroup around the process: 20 to
///   150 microseconds.
/// - **Lies** about whose work it is: backups, compactions and neighbours in the machine are busy too, and a spinning
///   thread looks like work. Full cores are no overload by themselves; batch work fills them by design, so run
///   it at a low tier, or raise *from*. With simultaneous multithreading 60 % may be all there is.
/// - **Dynamics** are settling, late by half of that time. **Authority** is [`Authority::Inferring`].
/// - **Targets**: [`DEFAULT_CPU_FROM`], [`DEFAULT_CPU_TO`].
///
/// Unavailable until both times have passed, and on any system other than Linux.
///
/// ```
/// use cinnamon_signals::Cpu;
///
/// # fn main() -> Result<(), cinnamon_signals::SettingError> {
/// // The autoscaler aims at 45 %.
/// let cpu = Cpu::new().cascade(0.6, 0.9)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct Cpu {
    common: Common,
    from: f64,
    to: f64,
    world: World,
    machine: Window<2>,
    least: Least,
    /// The cgroup whose quota is the least.
    quota: Option<(PathBuf, Window<1>)>,
}

/// A number out of the text of a file.
type Parse = fn(&str) -> Option<u64>;

/// A version of cgroups: where it tells what was used, and what may be.
#[derive(Clone, Copy, Debug)]
struct Version {
    controller: &'static str,
    mount: &'static str,
    /// Of the hierarchy that counts use.
    usage_mount: &'static str,
    usage: &'static str,
    /// Nanoseconds out of it.
    parse: Parse,
    v1: bool,
}

const VERSIONS: [Version; 3] = [
    Version {
        controller: "cpu",
        mount: "sys/fs/cgroup/cpu",
        usage_mount: "sys/fs/cgroup/cpuacct",
        usage: "cpuacct.usage",
        parse: number,
        v1: true,
    },
    Version {
        controller: "",
        mount: V2[0],
        usage_mount: V2[0],
        usage: "cpu.stat",
        parse: usage_ns,
        v1: false,
    },
    Version {
        controller: "",
        mount: V2[1],
        usage_mount: V2[1],
        usage: "cpu.stat",
        parse: usage_ns,
        v1: false,
    },
];

impl Cpu {
    /// Of this machine and the cgroup of this process, called `cpu`.
    pub fn new() -> Self {
        Self {
            common: Common::new("cpu", Authority::Inferring),
            from: DEFAULT_CPU_FROM,
            to: DEFAULT_CPU_TO,
            world: World::new(),
            machine: Window::new(CPU_WINDOW),
            least: Least::new(CPU_STANDS),
            quota: None,
        }
    }

    common_setters!();

    /// Silent up to the utilisation `from`, which must be over what the autoscaler aims at; all that the cascade may refuse
    /// is refused at `to`. Default [`DEFAULT_CPU_FROM`] and [`DEFAULT_CPU_TO`]. The nearer they are, the more a per cent
    /// moves.
    ///
    /// # Errors
    ///
    /// Unless 0.1 <= `from`, `from` + 0.05 <= `to` and `to` <= 1.
    pub fn cascade(mut self, from: f64, to: f64) -> Result<Self, SettingError> {
        self.from = within("cpu.from", from, 0.1..=0.95, "from 0.1 to 0.95")?;
        let bound = "at least 0.05 over `from`, and at most 1";
        self.to = within("cpu.to", to, from + 0.05..=1.0, bound)?;
        Ok(self)
    }

    world_setters!("Looks for `proc` and `sys` in this directory instead of in `/`.");

    fn machine(&mut self, now: Instant) -> Result<Option<f64>, Missing> {
        let CpuTimes { total, idle, .. } =
            self.world.look("proc/stat", "the line cpu", cpu_times)?;
        // The count of idle time may fall by a tick now and then; that of all time does not.
        let gain = self.machine.push(now, [total, total.saturating_sub(idle)]);
        Ok(gain
            .filter(|gain| gain.counts[0] > 0)
            .map(|gain| gain.counts[1] as f64 / gain.counts[0] as f64))
    }

    /// What was used of the least quota; nothing where there is none.
    fn quota(&mut self, now: Instant) -> Option<f64> {
        let (usage_file, parse, cores) = self.least_quota()?;
        let used_ns = self.world.look(&usage_file, "what was used", parse).ok()?;
        let window = match &mut self.quota {
            Some((file, window)) if *file == usage_file => window,
            other => &mut other.insert((usage_file, Window::new(CPU_WINDOW))).1,
        };
        let gain = window.push(now, [used_ns])?;
        Some(gain.counts[0] as f64 / 1e9 / gain.seconds / cores)
    }

    /// Where the use of the cgroup with the least quota is told, and the cores it may use.
    fn least_quota(&mut self) -> Option<(PathBuf, Parse, f64)> {
        let world = &mut self.world;
        let mut least: Option<(PathBuf, Parse, f64)> = None;
        for version in VERSIONS {
            let dirs = own_cgroup_dirs(world, version.controller, version.mount);
            for dir in dirs.unwrap_or_default() {
                let Some(cores) = cores(world, &dir, version.v1) else {
                    continue;
                };
                if least.as_ref().is_none_or(|(.., other)| cores < *other) {
                    let level = dir.strip_prefix(version.mount).unwrap_or(&dir);
                    let file = Path::new(version.usage_mount).join(level);
                    least = Some((file.join(version.usage), version.parse, cores));
                }
            }
        }
        least
    }

    /// From which priority on nothing is let in at this utilisation.
    fn cut(&self, utilisation: f64) -> Option<Priority> {
        let way = (utilisation - self.from) / (self.to - self.from);
        if way.is_nan() || way <= 0.0 {
            return None;
        }
        let levels = (way.min(1.0) * f64::from(LEVELS - LAST)).ceil() as u16;
        Priority::from_number(LEVELS - levels)
    }
}

/// The cores that the cgroup at `dir` may use, if it has a quota.
fn cores(world: &mut World, dir: &Path, v1: bool) -> Option<f64> {
    let (quota_us, period_us) = if v1 {
        let quota_us = world
            .look(dir.join("cpu.cfs_quota_us"), "a quota", number)
            .ok()?;
        let period = world.look(dir.join("cpu.cfs_period_us"), "a period", number);
        (quota_us, period.ok()?)
    } else {
        world
            .look(dir.join("cpu.max"), "a quota", quota_and_period)
            .ok()?
    };
    // Less than a thousandth of a core is nothing that a store runs in.
    let cores = quota_us as f64 / period_us as f64;
    (cores.is_finite() && cores >= 1e-3).then_some(cores)
}

/// v2 `cpu.max`: `max 100000` is no quota.
fn quota_and_period(text: &str) -> Option<(u64, u64)> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some((quota.parse().ok()?, period.parse().ok()?))
}

/// v2 `cpu.stat`, in nanoseconds.
fn usage_ns(text: &str) -> Option<u64> {
    let usage_us = text
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "))?;
    number(usage_us)?.checked_mul(1_000)
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}

impl Signal for Cpu {
    common_answers!();

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(CPU_WINDOW).delayed(CPU_STANDS / 2)
    }

    fn range(&self) -> RangeInclusive<f64> {
        // A cgroup may use up at once what it saved, and a quota may have been lowered.
        0.0..=4.0 / self.to
    }

    fn sample(&mut self, now: Instant, _view: &View) -> Reading {
        let machine = self.machine(now);
        let (utilisation, whose) = match (machine, self.quota(now)) {
            (Ok(Some(machine)), Some(quota)) if quota > machine => (quota, "cgroup"),
            (Ok(Some(machine)), _) => (machine, "machine"),
            (Ok(None) | Err(_), Some(quota)) => (quota, "cgroup"),
            (Ok(None), None) => {
                return Reading::unavailable("not watched for a whole window yet");
            }
            (Err(missing), None) => return Reading::unavailable(missing.into_text()),
        };
        let Some(utilisation) = self.least.push(now, utilisation) else {
            return Reading::unavailable("not watched for a whole window yet");
        };
        let reading = Reading::pressure(utilisation / self.to)
            .note(format!("{whose} {:.0} %", 100.0 * utilisation));
        match self.cut(utilisation) {
            Some(priority) => reading.cut(priority),
            None => reading,
        }
    }
}

#[cfg(test)]
mod tests;
