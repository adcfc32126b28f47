//! What the kernel tells of the machine: [`Pressure`], [`StealTime`], [`Cpu`], [`AcceptQueue`].

mod accept_queue;
mod cpu;
mod psi;
mod steal;

use std::path::PathBuf;

use crate::memory::levels;
use crate::world::{Missing, World, own_cgroup};

pub use accept_queue::{
    ACCEPT_QUEUE_WINDOW, AcceptQueue, DEFAULT_ACCEPT_QUEUE_PERIOD, DEFAULT_ACCEPT_QUEUE_SHARE,
};
pub use cpu::{CPU_STANDS, CPU_WINDOW, Cpu, DEFAULT_CPU_FROM, DEFAULT_CPU_TO};
pub use psi::{
    DEFAULT_CPU_PRESSURE, DEFAULT_IO_PRESSURE, DEFAULT_MEMORY_PRESSURE, PRESSURE_WINDOW, Pressure,
};
pub use steal::{DEFAULT_STEAL_SHARE, STEAL_WINDOW, StealTime};

/// Mount points of the cgroup v2 hierarchy: by itself, and beside v1.
const V2: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];

/// Times of `/proc/stat` since the machine started, in its ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuTimes {
    /// All of it.
    total: u64,
    /// Idle, and idle with a disk request under way.
    idle: u64,
    /// What the host gave to others.
    steal: u64,
}

/// The line `cpu` of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal; guests' times are part of
/// user and nice. Kernels before 2.6.11 do not tell what was stolen.
fn cpu_times(stat: &str) -> Option<CpuTimes> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut times = [0_u64; 8];
    let mut told = 0;
    for (time, text) in times.iter_mut().zip(line.split_ascii_whitespace()) {
        *time = text.parse().ok()?;
        told += 1;
    }
    let total = times
        .iter()
        .try_fold(0_u64, |sum, time| sum.checked_add(*time))?;
    (told >= 5).then_some(CpuTimes {
        total,
        idle: times[3].checked_add(times[4])?,
        steal: times[7],
    })
}

/// The directories of the own cgroup in the hierarchy of `controller` (v2 for the empty name), mounted at `mount`, and
/// of those around it, the own one first.
fn own_cgroup_dirs(
    world: &mut World,
    controller: &str,
    mount: &str,
) -> Result<Vec<PathBuf>, Missing> {
    let path = world.look("proc/self/cgroup", "a cgroup", |text| {
        own_cgroup(text, controller).map(str::to_owned)
    })?;
    let dirs = levels(&path).map(|level| [mount, level].iter().collect());
    Ok(dirs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_machine_are_told_apart() {
        let stat = "cpu  100 20 30 800 40 5 5 7 50 3\ncpu0 1 1 1 1 1 1 1 1 0 0\nintr 5\n";
        let times = CpuTimes {
            total: 1_007,
            idle: 840,
            steal: 7,
        };
        assert_eq!(cpu_times(stat), Some(times));
        let old = cpu_times("cpu  100 20 30 800 40\n").unwrap();
        assert_eq!((old.total, old.steal), (990, 0));
        let huge = format!("cpu  {} 1 1 1 1 1 1 1\n", u64::MAX);
        for garbage in [
            "",
            "cpu\n",
            "cpu  1 2 x 4 5\n",
            "cpu  1 2 3\n",
            "cpu0 1 2 3 4 5\n",
            &huge,
        ] {
            assert_eq!(cpu_times(garbage), None, "{garbage:?}");
        }
    }
}
