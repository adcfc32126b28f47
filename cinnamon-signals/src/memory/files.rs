//! Where the figures are read: the only file of this crate that opens others.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::parse::{self, Limit};
use super::{CgroupUsage, MemoryError};

/// Mount point of the v1 hierarchy with the memory controller.
const V1: &str = "sys/fs/cgroup/memory";
/// Mount points of the v2 hierarchy: by itself, and beside v1.
const V2: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];

/// Reads below a root; the buffer is used again.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    text: String,
}

/// What the files of one version of cgroups are called.
struct Names {
    usage: &'static str,
    /// The least of them counts; none but the first need be there.
    limits: &'static [&'static str],
    /// Of the lines of `memory.stat` that count what is below, too.
    prefix: &'static str,
}

const NAMES_V1: Names = Names {
    usage: "memory.usage_in_bytes",
    limits: &["memory.limit_in_bytes"],
    prefix: "total_",
};

const NAMES_V2: Names = Names {
    usage: "memory.current",
    // Over `memory.high` the kernel slows the process down until it is below: a limit like the other.
    limits: &["memory.max", "memory.high"],
    prefix: "",
};

impl Files {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            text: String::new(),
        }
    }

    /// What this process holds, bytes.
    pub(super) fn process(&mut self) -> Result<u64, MemoryError> {
        let path = self.root.join("proc/self/status");
        self.parse(&path, "VmRSS", parse::resident_bytes)
    }

    /// How the cgroup of this process stands, or the one around it that is nearest to its limit.
    pub(super) fn cgroup(&mut self) -> Result<CgroupUsage, MemoryError> {
        let path = self.root.join("proc/self/cgroup");
        self.read(&path)?;
        let text = std::mem::take(&mut self.text);
        let own = parse::own_cgroups(&text);
        let fullest = match (own.v1, own.v2) {
            (Some(path), _) => self.fullest(V1, path, &NAMES_V1),
            (None, Some(path)) => V2
                .iter()
                .map(|mount| self.fullest(mount, path, &NAMES_V2))
                .find(|found| !matches!(found, Err(MemoryError::NoCgroup)))
                .unwrap_or(Err(MemoryError::NoCgroup)),
            (None, None) => Err(MemoryError::NoCgroup),
        };
        self.text = text;
        fullest
    }

    /// Of the cgroup at `path` and those around it, the one nearest to its limit. Levels that are not there
    /// are passed over: a container sees the path that its host knows, and only its own cgroup, as the root.
    fn fullest(
        &mut self,
        mount: &str,
        path: &str,
        names: &Names,
    ) -> Result<CgroupUsage, MemoryError> {
        let mount = self.root.join(mount);
        let mut fullest: Option<CgroupUsage> = None;
        let mut found = false;
        for level in parse::levels(path) {
            let dir = mount.join(level);
            let Some(limit) = self.limit(&dir, names)? else {
                continue;
            };
            found = true;
            let Limit::Bytes(limit_bytes) = limit else {
                continue;
            };
            let used = self.parse(&dir.join(names.usage), "a number", parse::number)?;
            let cache = |stat: &str| parse::page_cache_bytes(stat, names.prefix);
            let cache = self.parse(&dir.join("memory.stat"), "inactive_file", cache)?;
            let usage = CgroupUsage {
                // They are not read at the same moment.
                used_bytes: used.saturating_sub(cache),
                limit_bytes,
            };
            if fullest.is_none_or(|other| other.share() < usage.share()) {
                fullest = Some(usage);
            }
        }
        match fullest {
            Some(usage) => Ok(usage),
            None if found => Err(MemoryError::NoLimit),
            None => Err(MemoryError::NoCgroup),
        }
    }

    /// The limit of the cgroup at `dir`; nothing when there is no such cgroup, or it cannot have one.
    fn limit(&mut self, dir: &Path, names: &Names) -> Result<Option<Limit>, MemoryError> {
        let mut least = None;
        for (i, name) in names.limits.iter().enumerate() {
            match self.parse(&dir.join(name), "a limit", parse::limit) {
                Ok(Limit::Bytes(bytes)) => {
                    let bytes = match least {
                        Some(Limit::Bytes(other)) => bytes.min(other),
                        _ => bytes,
                    };
                    least = Some(Limit::Bytes(bytes));
                }
                Ok(Limit::None) => least = least.or(Some(Limit::None)),
                Err(error) if error.is_absent() && i == 0 => return Ok(None),
                Err(error) if error.is_absent() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(least)
    }

    fn parse<T>(
        &mut self,
        path: &Path,
        what: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, MemoryError> {
        self.read(path)?;
        parse(&self.text).ok_or_else(|| MemoryError::Unexpected {
            path: path.to_owned(),
            what,
        })
    }

    fn read(&mut self, path: &Path) -> Result<(), MemoryError> {
        self.text.clear();
        let read =
            |text: &mut String| -> io::Result<usize> { File::open(path)?.read_to_string(text) };
        match read(&mut self.text) {
            Ok(_) => Ok(()),
            Err(source) => Err(MemoryError::Read {
                path: path.to_owned(),
                source,
            }),
        }
    }
}
