//! The texts in which Linux tells how much memory is used: numbers out of them, and nothing else.

/// A limit from here on is none: cgroup v1 writes the largest number of pages there is, times their size.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// A limit of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// So many bytes.
    Bytes(u64),
    /// None is set.
    None,
}

/// The cgroups that a process belongs to, as paths below the mount point of their hierarchy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnCgroups<'a> {
    /// Of the v1 hierarchy that has the memory controller.
    pub(super) v1: Option<&'a str>,
    /// Of the v2 hierarchy.
    pub(super) v2: Option<&'a str>,
}

/// `/proc/PID/status`: resident memory less resident pages of mapped files, bytes.
///
/// Those are page cache: the kernel takes them back when it needs them, and a store that maps its files
/// would look full for ever. Kernels before 4.5 do not tell them apart; then it is all resident memory.
pub(super) fn resident_bytes(status: &str) -> Option<u64> {
    let all = kilobytes(status, "VmRSS:")?;
    let files = kilobytes(status, "RssFile:").unwrap_or(0);
    Some(all.saturating_sub(files))
}

/// The value of a line `Name:  123 kB`.
fn kilobytes(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    number(value.trim().strip_suffix("kB")?)?.checked_mul(1024)
}

/// `/proc/PID/cgroup`: lines `number:controllers:path`, the controllers empty for v2.
pub(super) fn own_cgroups(text: &str) -> OwnCgroups<'_> {
    let mut own = OwnCgroups::default();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) =
            (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        if controllers.split(',').any(|name| name == "memory") {
            own.v1 = Some(path);
        } else if number == "0" && controllers.is_empty() {
            own.v2 = Some(path);
        }
    }
    own
}

/// A cgroup's path and those of all that contain it, itself first and `/` last, without the leading slash.
/// Of a path that leads out of what this process can see (`/../other`) only `/` is of use.
pub(crate) fn levels(path: &str) -> impl Iterator<Item = &str> {
    let path = path.trim_matches('/');
    let outside = path.split('/').any(|part| part == "..");
    let first = if outside { "" } else { path };
    std::iter::successors(Some(first), |path| {
        let (parent, _) = path.rsplit_once('/').unwrap_or_default();
        (!path.is_empty()).then_some(parent)
    })
}

/// `memory.max`, `memory.high`, `memory.limit_in_bytes`.
pub(super) fn limit(text: &str) -> Option<Limit> {
    if text.trim() == "max" {
        return Some(Limit::None);
    }
    match number(text)? {
        // Nothing can run in it, so it is not ours, or not a limit.
        0 => None,
        NO_LIMIT_BYTES.. => Some(Limit::None),
        bytes => Some(Limit::Bytes(bytes)),
    }
}

/// `memory.stat`: page cache, bytes, read once and read often. v1 counts what is below a cgroup too in lines
/// that begin with `total_`, v2 always does.
pub(super) fn page_cache_bytes(stat: &str, prefix: &str) -> Option<u64> {
    let value = |name: &str| {
        let line = |line: &str| {
            let rest = line.strip_prefix(prefix)?.strip_prefix(name)?;
            number(rest.strip_prefix(' ')?)
        };
        stat.lines().find_map(line)
    };
    value("inactive_file")?.checked_add(value("active_file")?)
}

/// A file that holds a number.
pub(super) fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GARBAGE: [&str; 7] = ["", "\n", "maximum", "-1", "12.5", "0x10", "1 2"];
    const HUGE: &str = "99999999999999999999999999";

    #[test]
    fn resident_memory_is_told_from_mapped_files() {
        let status = "Name:\tdb\nVmPeak:\t  999 kB\nVmHWM:\t   9999 kB\nVmRSS:\t    1956 kB\n\
                      RssAnon:\t     152 kB\nRssFile:\t    1800 kB\nRssShmem:\t       4 kB\n";
        assert_eq!(resident_bytes(status), Some(156 * 1024));
        let old = "VmHWM:\t 9999 kB\nVmRSS:\t 1956 kB\n";
        assert_eq!(resident_bytes(old), Some(1956 * 1024));
        // Read while they changed.
        assert_eq!(resident_bytes("VmRSS: 100 kB\nRssFile: 101 kB\n"), Some(0));
    }

    #[test]
    fn a_status_without_resident_memory_is_not_zero() {
        // A kernel thread has none.
        for status in ["Name:\tkthreadd\nPid:\t2\n", "VmRSS:\n", "VmRSS:\t12\n"] {
            assert_eq!(resident_bytes(status), None, "{status:?}");
        }
        for value in GARBAGE.iter().chain([&HUGE]) {
            assert_eq!(resident_bytes(&format!("VmRSS:\t{value} kB\n")), None);
        }
        assert_eq!(
            resident_bytes("VmRSS: 18446744073709551615 kB"),
            None,
            "no overflow"
        );
    }

    #[test]
    fn the_own_cgroup_is_found_in_every_layout() {
        let v2 = own_cgroups("0::/system.slice/db.service\n");
        assert_eq!(v2.v2, Some("/system.slice/db.service"));
        assert_eq!(v2.v1, None);
        let hybrid = own_cgroups(
            "9:name=systemd:/a\n4:memory:/b:c/d\n3:cpu,cpuacct:/e\n1:name=memory:/f\n0::/g\n",
        );
        assert_eq!(hybrid.v1, Some("/b:c/d"), "a path may hold colons");
        assert_eq!(hybrid.v2, Some("/g"));
        let mounted_together = own_cgroups("3:cpu,memory:/a\n");
        assert_eq!(mounted_together.v1, Some("/a"));
        for text in ["", "nonsense\n", "0:\n", ":::\n", "4:memory\n"] {
            assert_eq!(own_cgroups(text).v1, None, "{text:?}");
        }
    }

    #[test]
    fn levels_lead_up_to_the_root() {
        let all = |path| levels(path).collect::<Vec<_>>();
        assert_eq!(all("/a/b c/d"), ["a/b c/d", "a/b c", "a", ""]);
        assert_eq!(all("/"), [""]);
        assert_eq!(all(""), [""]);
        assert_eq!(all("/../../other"), [""]);
        assert_eq!(all("/a..b"), ["a..b", ""]);
    }

    #[test]
    fn limits_are_bytes_none_or_garbage() {
        assert_eq!(limit("max\n"), Some(Limit::None));
        assert_eq!(limit("9223372036854771712\n"), Some(Limit::None));
        assert_eq!(limit("18446744073709551615"), Some(Limit::None));
        assert_eq!(limit("536870912\n"), Some(Limit::Bytes(536_870_912)));
        for text in GARBAGE.iter().chain([&HUGE, &"0\n"]) {
            assert_eq!(limit(text), None, "{text:?}");
        }
    }

    #[test]
    fn page_cache_is_both_lists_of_files() {
        let v2 = "anon 1000\nfile 900\ninactive_anon 7\nactive_anon 8\ninactive_file 600\n\
                  active_file 200\nworkingset_refault_file 5\n";
        assert_eq!(page_cache_bytes(v2, ""), Some(800));
        let v1 = "inactive_file 1\nactive_file 2\ntotal_inactive_file 600\ntotal_active_file 250\n";
        assert_eq!(page_cache_bytes(v1, "total_"), Some(850));
        for stat in ["", "inactive_file 1\n", "inactive_file x\nactive_file 1\n"] {
            assert_eq!(page_cache_bytes(stat, ""), None, "{stat:?}");
        }
    }
}
