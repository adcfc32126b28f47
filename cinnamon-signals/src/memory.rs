//! Memory of the process and of its cgroup: [`Memory`].

mod files;
mod parse;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cinnamon_core::{Authority, DEFAULT_PERIOD, Dynamics, Instant, Reading, Scope, Signal, View};

use crate::ramp::Ramp;
use crate::setting::SettingError;
use files::Files;
pub(crate) use parse::levels;

/// Soft limit of a cgroup, as a share of its own: what runs at that moment can still grow by a fifth before
/// the kernel kills the process.
pub const DEFAULT_CGROUP_SOFT: f64 = 0.8;
/// Hard limit of a cgroup, as a share of its own: one step from there a single large request is the end.
pub const DEFAULT_CGROUP_HARD: f64 = 0.95;
/// The time constant it declares: allocators give memory back over seconds. jemalloc's pages decay along a
/// curve that ends after ten and is past its middle after five; memtables and batches take as long to be
/// written. Too long a time is the cheaper error.
pub const DEFAULT_MEMORY_TAU: Duration = Duration::from_secs(5);

/// Memory against limits: what the process holds, how full its cgroup is, or both.
///
/// - **Measures**, by choice,
///   - *process*: resident memory, bytes, without resident pages of mapped files (`VmRSS` less `RssFile` of
///     `/proc/self/status`);
///   - *cgroup*: what is used of the limit, as a share: v2 `memory.current`, v1 `memory.usage_in_bytes`,
///     less the page cache (`inactive_file` and `active_file` of `memory.stat`), over v2 `memory.max` or
///     `memory.high`, whichever is less, v1 `memory.limit_in_bytes`. Limits of the cgroups around it count
///     too; the fullest holds.
///
///   Each goes through a [`Ramp`]: pressure 1.0 at the soft limit, 2.0 at the hard one; of two the greater
///   counts. Page cache is no pressure: a store fills it to the limit in calm weather, and the kernel takes
///   it back when it is needed.
/// - **A sample costs** the reading of one small file for the process, and of two for each cgroup up to the
///   root and two more for each with a limit: about 10 and 20 microseconds. That is on the sampler's thread,
///   and no request waits for it.
/// - **Lies** when memory was freed but the allocator keeps it (then it falls late, or never), when pages were
///   swapped out (they no longer count), when much of the cgroup is dirty pages (they count as page cache and
///   cannot be taken back at once), and about memory that is not the load's: a cache of fixed size filling
///   up looks like overload, so set the soft limit above what caches may take. The kernel's count of
///   resident memory runs behind by up to a few hundred kilobytes a core.
/// - **Dynamics** are settling, with [`DEFAULT_MEMORY_TAU`].
/// - **Authority** is [`Authority::Measuring`]: nothing else need confirm it. Memory that stays where it is
///   though the load was halved is found unresponsive, and then may take no more than a tenth.
/// - **Targets**: a share of the cgroup's limit has defaults, [`DEFAULT_CGROUP_SOFT`] and
///   [`DEFAULT_CGROUP_HARD`]. Bytes have none; they depend on the machine.
///
/// Of two measures of which one is not known the other counts; with none it is unavailable, and says why
/// of each. The reading's note says which one holds, and why the other is not known. No limit set, no cgroup, and any system other than Linux, are such reasons.
/// [`Memory::usage`] tells beforehand.
///
/// ```
/// use cinnamon_core::{Config, Controller, Settings};
/// use cinnamon_signals::{DEFAULT_CGROUP_HARD, DEFAULT_CGROUP_SOFT, Memory};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut memory = Memory::builder()
///     .process(6 << 30, 8 << 30)
///     .cgroup(DEFAULT_CGROUP_SOFT, DEFAULT_CGROUP_HARD)
///     .build()?;
/// if let Some(Err(error)) = memory.usage().cgroup {
///     println!("the cgroup is not watched: {error}");
/// }
/// let config = Config::new(Settings::one_lane("main", 16))?;
/// let controller = Controller::builder(config).signal(memory).build()?;
/// # drop(controller);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct Memory {
    name: String,
    process: Option<Ramp>,
    cgroup: Option<Ramp>,
    tau: Duration,
    period: Duration,
    scope: Scope,
    files: Files,
}

/// Builds a [`Memory`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct MemoryBuilder {
    name: String,
    process: Option<(u64, u64)>,
    cgroup: Option<(f64, f64)>,
    tau: Duration,
    period: Duration,
    scope: Scope,
    root: PathBuf,
}

/// Memory in use, as far as a [`Memory`] looks; `None` is what it was not told to look at.
#[derive(Debug)]
#[non_exhaustive]
pub struct MemoryUsage {
    /// What the process holds, bytes.
    pub process_bytes: Option<Result<u64, MemoryError>>,
    /// How full its cgroup is.
    pub cgroup: Option<Result<CgroupUsage, MemoryError>>,
}

/// How full a cgroup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CgroupUsage {
    /// Memory in use without page cache, bytes.
    pub used_bytes: u64,
    /// Its limit, bytes.
    pub limit_bytes: u64,
}

/// Memory in use is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A file could not be read.
    #[error("{} could not be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file does not say what it should.
    #[error("{} does not hold {what}", path.display())]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// The process is in no cgroup that counts memory.
    #[error("no cgroup counts its memory")]
    NoCgroup,
    /// Neither its cgroup nor one around it has a limit.
    #[error("no limit is set")]
    NoLimit,
    /// Only Linux tells.
    #[error("only Linux tells it")]
    Unsupported,
}

impl MemoryError {
    fn is_absent(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl CgroupUsage {
    /// The share in use; above 1 for a moment when a limit was lowered.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.used_bytes as f64 / self.limit_bytes as f64
    }
}

impl Memory {
    /// The memory of the process against these limits in bytes.
    ///
    /// # Errors
    ///
    /// Unless 0 < `soft_bytes` < `hard_bytes`.
    pub fn process(soft_bytes: u64, hard_bytes: u64) -> Result<Self, SettingError> {
        Self::builder().process(soft_bytes, hard_bytes).build()
    }

    /// The memory of the cgroup against these shares of its own limit.
    ///
    /// # Errors
    ///
    /// Unless 0 < `soft_share` < `hard_share` <= 1.
    pub fn cgroup(soft_share: f64, hard_share: f64) -> Result<Self, SettingError> {
        Self::builder().cgroup(soft_share, hard_share).build()
    }

    /// Both, and settings other than the defaults.
    pub fn builder() -> MemoryBuilder {
        MemoryBuilder {
            name: "memory".to_owned(),
            process: None,
            cgroup: None,
            tau: DEFAULT_MEMORY_TAU,
            period: DEFAULT_PERIOD,
            scope: Scope::default(),
            root: PathBuf::from("/"),
        }
    }

    /// What is in use now, or why that is not known. Ask before the controller has it, so that a limit
    /// that is not set is known at the start.
    pub fn usage(&mut self) -> MemoryUsage {
        let files = &mut self.files;
        MemoryUsage {
            process_bytes: self.process.map(|_| on_linux(|| files.process())),
            cgroup: self.cgroup.map(|_| on_linux(|| files.cgroup())),
        }
    }
}

fn on_linux<T>(read: impl FnOnce() -> Result<T, MemoryError>) -> Result<T, MemoryError> {
    if cfg!(target_os = "linux") {
        read()
    } else {
        Err(MemoryError::Unsupported)
    }
}

impl MemoryBuilder {
    /// Watches the memory of the process, against these limits in bytes.
    pub const fn process(mut self, soft_bytes: u64, hard_bytes: u64) -> Self {
        self.process = Some((soft_bytes, hard_bytes));
        self
    }

    /// Watches the memory of the cgroup, against these shares of its own limit.
    pub const fn cgroup(mut self, soft_share: f64, hard_share: f64) -> Self {
        self.cgroup = Some((soft_share, hard_share));
        self
    }

    /// Its name, where a controller has several. Default `memory`.
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// How long memory takes to follow the load: 63 % of a change shows after it. Default
    /// [`DEFAULT_MEMORY_TAU`]. Too short a time makes the gate swing; too long a one holds it for longer
    /// after the memory has fallen.
    pub const fn tau(mut self, tau: Duration) -> Self {
        self.tau = tau;
        self
    }

    /// Time between two samples. Default [`DEFAULT_PERIOD`].
    pub const fn period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// The lanes whose load fills the memory. Default: all.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Looks for `proc` and `sys` in this directory instead of in `/`: for tests, and for systems that keep
    /// them elsewhere.
    pub fn root(mut self, root: impl AsRef<Path>) -> Self {
        root.as_ref().clone_into(&mut self.root);
        self
    }

    /// The signal.
    ///
    /// # Errors
    ///
    /// When there is nothing to watch, unless 0 < soft < hard of both, or when a hard share is above 1.
    pub fn build(self) -> Result<Memory, SettingError> {
        if self.process.is_none() && self.cgroup.is_none() {
            return Err(SettingError::Nothing {
                setting: "memory",
                wanted: "the process, the cgroup or both",
            });
        }
        if let Some((_, hard)) = self.cgroup
            && hard > 1.0
        {
            return Err(SettingError::OutOfBounds {
                setting: "cgroup.hard_share",
                value: hard,
                bound: "a share, at most 1",
            });
        }
        let process = self.process.map(|(soft, hard)| (soft as f64, hard as f64));
        Ok(Memory {
            process: ramp("process", process)?,
            cgroup: ramp("cgroup", self.cgroup)?,
            name: self.name,
            tau: self.tau,
            period: self.period,
            scope: self.scope,
            files: Files::new(&self.root),
        })
    }
}

fn ramp(setting: &'static str, limits: Option<(f64, f64)>) -> Result<Option<Ramp>, SettingError> {
    let ramp = limits.map(|(soft, hard)| Ramp::new(soft, hard)).transpose();
    ramp.map_err(|source| SettingError::Limits { setting, source })
}

impl Signal for Memory {
    fn name(&self) -> &str {
        &self.name
    }

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(self.tau)
    }

    fn scope(&self) -> Scope {
        self.scope.clone()
    }

    fn authority(&self) -> Authority {
        Authority::Measuring
    }

    fn period(&self) -> Duration {
        self.period
    }

    fn sample(&mut self, _now: Instant, _view: &View) -> Reading {
        let usage = self.usage();
        let mut greatest: Option<(f64, &str)> = None;
        let mut unknown = Vec::new();
        let mut take = |name: &'static str, pressure: Result<f64, MemoryError>| match pressure {
            Ok(pressure) if greatest.is_none_or(|(other, _)| pressure > other) => {
                greatest = Some((pressure, name));
            }
            Ok(_) => {}
            Err(error) => unknown.push(format!("{name}: {error}")),
        };
        if let (Some(ramp), Some(bytes)) = (self.process, usage.process_bytes) {
            take("process", bytes.map(|bytes| ramp.pressure(bytes as f64)));
        }
        if let (Some(ramp), Some(usage)) = (self.cgroup, usage.cgroup) {
            take("cgroup", usage.map(|usage| ramp.pressure(usage.share())));
        }
        match greatest {
            Some((pressure, name)) => {
                unknown.insert(0, name.to_owned());
                Reading::pressure(pressure).note(unknown.join("; "))
            }
            None => Reading::unavailable(unknown.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests;
