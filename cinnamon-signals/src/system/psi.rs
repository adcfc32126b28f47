//! Time that tasks lose for want of a resource: [`Pressure`].

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use cinnamon_core::{Authority, Dynamics, Instant, Reading, Signal, View};

use super::{V2, own_cgroup_dirs};
use crate::common::{Common, common_answers, common_setters, world_setters};
use crate::setting::{SettingError, within};
use crate::window::Window;
use crate::world::{Missing, World};

/// Share of time in which *some* task waited for a core, at pressure 1.0. It is high long before it hurts: at 70 % of
/// two cores some task waits half the time.
pub const DEFAULT_CPU_PRESSURE: f64 = 0.8;
/// Share of time in which *every* task that was not idle waited for a disk, at pressure 1.0.
pub const DEFAULT_IO_PRESSURE: f64 = 0.6;
/// Share of time in which *every* task that was not idle waited for memory, at pressure 1.0: a machine that loses a
/// tenth of its time to reclaim and swap is about to lose the rest.
pub const DEFAULT_MEMORY_PRESSURE: f64 = 0.1;
/// Shares are taken over this, the kernel's own shortest mean: a pause of 400 ms is 4 % of it.
pub const PRESSURE_WINDOW: Duration = Duration::from_secs(10);

/// Pressure stall information (PSI): the share of time that tasks lost for want of a core, a disk or memory, as Linux
/// counts it since 4.20.
///
/// - **Measures**, of one resource, the growth of `total` over the last [`PRESSURE_WINDOW`]: for a core of the line
///   `some` (at least one task waited), for disks and memory of the line `full` (all that were not idle did). It reads
///   the file of the process's own cgroup where v2 has one, else that of the machine, `/proc/pressure/*`. Pressure is
///   that share over the target share. The kernel's `avg10` would be the same mean, but to two digits and two seconds
///   late.
/// - **A sample costs** the reading of one file of 100 bytes, about 5 microseconds; the kernel brings the sums up to date
///   as it is read.
/// - **Lies** about whose trouble it is: of a whole machine it counts every tenant, and of a cgroup backups and
///   compactions too. A lone thread that reads from a disk in a quiet night makes `full` of io 1.0 and hurts nobody,
///   so wrap that of io in [`ConfirmedBy`](crate::ConfirmedBy). It sees nothing of waiting inside a program.
/// - **Dynamics** are settling, with its window. **Authority** is [`Authority::Inferring`].
/// - **Targets**: [`DEFAULT_CPU_PRESSURE`], [`DEFAULT_IO_PRESSURE`], [`DEFAULT_MEMORY_PRESSURE`].
///
/// Unavailable until a window has passed, where the kernel was built or started without PSI (`psi=1`), and on any
/// system other than Linux.
///
/// ```
/// use cinnamon_signals::{ConfirmedBy, LaneLatency, Pressure};
///
/// # fn main() -> Result<(), cinnamon_signals::SettingError> {
/// let memory = Pressure::memory().target_share(0.05)?;
/// let io = ConfirmedBy::new(Pressure::io(), LaneLatency::new());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct Pressure {
    common: Common,
    resource: Resource,
    target_share: f64,
    machine: bool,
    world: World,
    /// The file that was there when it was last looked for.
    file: Option<PathBuf>,
    window: Window<1>,
}

#[derive(Clone, Copy, Debug)]
struct Resource {
    file: &'static str,
    cgroup_file: &'static str,
    line: &'static str,
}

impl Pressure {
    /// Of cores, called `pressure-cpu`.
    pub fn cpu() -> Self {
        let resource = Resource {
            file: "proc/pressure/cpu",
            cgroup_file: "cpu.pressure",
            line: "some",
        };
        Self::of("pressure-cpu", resource, DEFAULT_CPU_PRESSURE)
    }

    /// Of disks, called `pressure-io`.
    pub fn io() -> Self {
        let resource = Resource {
            file: "proc/pressure/io",
            cgroup_file: "io.pressure",
            line: "full",
        };
        Self::of("pressure-io", resource, DEFAULT_IO_PRESSURE)
    }

    /// Of memory, called `pressure-memory`.
    pub fn memory() -> Self {
        let resource = Resource {
            file: "proc/pressure/memory",
            cgroup_file: "memory.pressure",
            line: "full",
        };
        Self::of("pressure-memory", resource, DEFAULT_MEMORY_PRESSURE)
    }

    fn of(name: &'static str, resource: Resource, target_share: f64) -> Self {
        Self {
            common: Common::new(name, Authority::Inferring),
            resource,
            target_share,
            machine: false,
            world: World::new(),
            file: None,
            window: Window::new(PRESSURE_WINDOW),
        }
    }

    common_setters!();

    /// The share of time at pressure 1.0. Default: as said of the signal.
    ///
    /// # Errors
    ///
    /// Unless it is from 0.001 to 1.
    pub fn target_share(mut self, share: f64) -> Result<Self, SettingError> {
        let bound = "from 0.001 to 1";
        self.target_share = within("pressure.target_share", share, 0.001..=1.0, bound)?;
        Ok(self)
    }

    /// Of the whole machine, even if the process is in a cgroup of its own.
    pub const fn of_the_machine(mut self) -> Self {
        self.machine = true;
        self
    }

    world_setters!("Looks for `proc` and `sys` in this directory instead of in `/`.");

    /// What some task lost since the counter began.
    pub(crate) fn some_lost(&mut self) -> Option<Duration> {
        self.resource.line = "some";
        self.lost_us().ok().map(Duration::from_micros)
    }

    /// What the tasks lost since the counter began, microseconds.
    fn lost_us(&mut self) -> Result<u64, Missing> {
        let line = self.resource.line;
        if let Some(file) = &self.file {
            let lost = self.world.look(file, line, |text| total_us(text, line));
            if !lost.as_ref().is_err_and(Missing::is_file) {
                return lost;
            }
            // Moved to another cgroup: what it counted before is not to be compared.
            self.file = None;
            self.window.clear();
        }
        let mut files = Vec::new();
        if !self.machine {
            for mount in V2 {
                // No cgroup v2 is no fault.
                let dirs = own_cgroup_dirs(&mut self.world, "", mount).unwrap_or_default();
                files.extend(dirs.first().map(|dir| dir.join(self.resource.cgroup_file)));
            }
        }
        files.push(PathBuf::from(self.resource.file));
        let mut missing = Missing::Other("no file tells it".to_owned());
        for file in files {
            match self.world.look(&file, line, |text| total_us(text, line)) {
                Ok(lost_us) => {
                    self.file = Some(file);
                    return Ok(lost_us);
                }
                Err(error) => missing = error,
            }
        }
        Err(missing)
    }
}

/// `total` of the line of this name, microseconds.
fn total_us(text: &str, line: &str) -> Option<u64> {
    let line = text.lines().find_map(|one| one.strip_prefix(line))?;
    let total = line
        .split_ascii_whitespace()
        .find_map(|word| word.strip_prefix("total="));
    total?.parse().ok()
}

impl Signal for Pressure {
    common_answers!();

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(PRESSURE_WINDOW)
    }

    fn range(&self) -> RangeInclusive<f64> {
        // The kernel's clock and ours need not agree to the microsecond.
        0.0..=1.1 / self.target_share
    }

    fn sample(&mut self, now: Instant, _view: &View) -> Reading {
        let lost_us = match self.lost_us() {
            Ok(lost_us) => lost_us,
            Err(missing) => return Reading::unavailable(missing.into_text()),
        };
        match self.window.push(now, [lost_us]) {
            Some(gain) => {
                let share = gain.counts[0] as f64 / 1e6 / gain.seconds;
                Reading::pressure(share / self.target_share)
            }
            None => Reading::unavailable("not watched for a whole window yet"),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::world::tests::{tree, write};

    fn psi(some_us: u64, full_us: u64) -> String {
        format!(
            "some avg10=1.00 avg60=2.20 avg300=0.00 total={some_us}\n\
             full avg10=99.00 avg60=0.00 avg300=0.00 total={full_us}\n"
        )
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    /// Eleven seconds, of each of which so much was lost.
    fn run(mut signal: Pressure, file: &str, some_us: u64, full_us: u64) -> Reading {
        let root = tree(&[("proc/self/cgroup", "0::/db\n")]);
        signal = signal.root(root.path());
        let mut last = Reading::pressure(f64::NAN);
        for second in 0..=10 {
            write(
                &root,
                file,
                &psi(7 + some_us * second, 9 + full_us * second),
            );
            last = signal.sample(at(second), &View::default());
            assert!(second == 10 || last.value().is_none());
        }
        last
    }

    #[test]
    fn pressure_is_the_share_of_time_lost_over_its_target() {
        let near = |reading: Reading, expected: f64| {
            let pressure = reading.value().unwrap();
            assert!((pressure - expected).abs() < 1e-9, "{pressure} {expected}");
        };
        near(run(Pressure::cpu(), "proc/pressure/cpu", 400_000, 0), 0.5);
        near(
            run(Pressure::io(), "proc/pressure/io", 900_000, 600_000),
            1.0,
        );
        let own = "sys/fs/cgroup/db/memory.pressure";
        near(run(Pressure::memory(), own, 900_000, 200_000), 2.0);
        let beside = "sys/fs/cgroup/unified/db/memory.pressure";
        near(run(Pressure::memory(), beside, 900_000, 50_000), 0.5);
        let machine = Pressure::memory().of_the_machine();
        near(run(machine, "proc/pressure/memory", 0, 100_000), 1.0);
    }

    #[test]
    fn a_counter_that_fell_or_a_gap_is_not_pressure() {
        let root = tree(&[]);
        let mut signal = Pressure::cpu().root(root.path());
        let mut sample = |second: u64, total: u64| {
            write(&root, "proc/pressure/cpu", &psi(total, 0));
            signal.sample(at(second), &View::default()).value()
        };
        for second in 0..10 {
            assert_eq!(sample(second, 1_000_000 * second), None);
        }
        assert!(sample(10, 10_000_000).is_some());
        assert_eq!(sample(11, 0), None, "begun anew");
        assert_eq!(sample(3_600, u64::MAX), None, "an hour is no window");
        assert_eq!(sample(5, u64::MAX), None, "the clock was set back");
    }

    #[test]
    fn what_is_not_there_says_so() {
        let said = |files: &[(&str, &str)]| {
            let root = tree(files);
            let said = Pressure::cpu()
                .root(root.path())
                .sample(at(0), &View::default());
            format!("{said:?}")
        };
        assert!(said(&[]).contains("/proc/pressure/cpu could not be read"));
        for text in [
            "",
            "some total=x\n",
            "full avg10=0 total=5\n",
            "some avg10=1\n",
        ] {
            let said = said(&[("proc/pressure/cpu", text)]);
            assert!(said.contains("does not hold some"), "{said}");
        }
        assert!(Pressure::cpu().target_share(0.0).is_err());
    }
}
