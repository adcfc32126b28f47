//! Whole trees of files, as kernels and containers lay them out.

#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;

const STATUS: &str = "VmRSS:\t 3145728 kB\nRssAnon:\t 2097152 kB\nRssFile:\t 1048576 kB\n";
const STAT_V2: &str = "anon 9\ninactive_file 300\nactive_file 100\n";
const STAT_V1: &str =
    "inactive_file 9\nactive_file 9\ntotal_inactive_file 300\ntotal_active_file 100\n";

fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn cgroup_of(root: &Path) -> Result<CgroupUsage, MemoryError> {
    let memory = Memory::builder().cgroup(0.5, 0.9).root(root).build();
    memory.unwrap().usage().cgroup.unwrap()
}

fn used(files: &[(&str, &str)]) -> (u64, u64) {
    let usage = cgroup_of(tree(files).path()).unwrap();
    (usage.used_bytes, usage.limit_bytes)
}

fn error(files: &[(&str, &str)]) -> String {
    let root = tree(files);
    let text = cgroup_of(root.path()).unwrap_err().to_string();
    text.replace(root.path().to_str().unwrap(), "")
}

fn sample(memory: MemoryBuilder, root: &TempDir) -> Reading {
    let mut memory = memory.root(root.path()).build().unwrap();
    memory.sample(Instant::ZERO, &View::default())
}

#[test]
fn page_cache_is_no_pressure() {
    let full_of_cache = [
        ("proc/self/cgroup", "0::/db\n"),
        ("sys/fs/cgroup/db/memory.max", "1000\n"),
        ("sys/fs/cgroup/db/memory.current", "990\n"),
        (
            "sys/fs/cgroup/db/memory.stat",
            "inactive_file 300\nactive_file 440\n",
        ),
    ];
    assert_eq!(used(&full_of_cache), (250, 1000));
    let root = tree(&full_of_cache);
    let reading = sample(Memory::builder().cgroup(0.5, 0.9), &root);
    assert_eq!(reading, Reading::pressure(0.5).note("cgroup"));
}

#[test]
fn v1_and_hybrid_are_read_where_the_memory_controller_is() {
    let v1 = [
        ("proc/self/cgroup", "4:memory:/db\n0::/elsewhere\n"),
        ("sys/fs/cgroup/memory/db/memory.limit_in_bytes", "1000\n"),
        ("sys/fs/cgroup/memory/db/memory.usage_in_bytes", "900\n"),
        ("sys/fs/cgroup/memory/db/memory.stat", STAT_V1),
    ];
    assert_eq!(used(&v1), (500, 1000));
    // v2 beside v1 hierarchies that do not count memory.
    let beside = [
        ("proc/self/cgroup", "3:cpu:/db\n0::/db\n"),
        ("sys/fs/cgroup/unified/db/memory.max", "1000\n"),
        ("sys/fs/cgroup/unified/db/memory.current", "900\n"),
        ("sys/fs/cgroup/unified/db/memory.stat", STAT_V2),
    ];
    assert_eq!(used(&beside), (500, 1000));
}

#[test]
fn a_container_finds_itself_at_the_root() {
    for own in ["0::/docker/0123abcd\n", "0::/\n", "0::/../other\n"] {
        let container = [
            ("proc/self/cgroup", own),
            ("sys/fs/cgroup/memory.max", "1000\n"),
            ("sys/fs/cgroup/memory.current", "700\n"),
            ("sys/fs/cgroup/memory.stat", STAT_V2),
        ];
        assert_eq!(used(&container), (300, 1000), "{own:?}");
    }
}

#[test]
fn the_fullest_of_the_cgroups_around_it_holds() {
    let mut nested = vec![
        ("proc/self/cgroup", "0::/pod/db\n"),
        ("sys/fs/cgroup/pod/db/memory.max", "max\n"),
        ("sys/fs/cgroup/pod/memory.max", "2000\n"),
        ("sys/fs/cgroup/pod/memory.current", "1900\n"),
        ("sys/fs/cgroup/pod/memory.stat", STAT_V2),
    ];
    assert_eq!(used(&nested), (1500, 2000), "its own is not limited");
    nested[1].1 = "1000\n";
    nested.push(("sys/fs/cgroup/pod/db/memory.current", "800\n"));
    nested.push(("sys/fs/cgroup/pod/db/memory.stat", STAT_V2));
    assert_eq!(used(&nested), (1500, 2000), "its own is emptier");
    nested.push(("sys/fs/cgroup/pod/db/memory.high", "500\n"));
    assert_eq!(used(&nested), (400, 500), "the kernel slows it down there");
}

#[test]
fn what_is_not_known_says_why() {
    let unlimited_v1 = [
        ("proc/self/cgroup", "4:memory:/\n"),
        (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        ),
    ];
    assert_eq!(error(&unlimited_v1), "no limit is set");
    let unlimited_v2 = [
        ("proc/self/cgroup", "0::/db\n"),
        ("sys/fs/cgroup/db/memory.max", "max\n"),
        ("sys/fs/cgroup/db/memory.high", "max\n"),
    ];
    assert_eq!(error(&unlimited_v2), "no limit is set");
    for own in ["", "nonsense", "0::/db\n"] {
        let none = [("proc/self/cgroup", own)];
        assert_eq!(error(&none), "no cgroup counts its memory");
    }
    assert!(error(&[]).starts_with("/proc/self/cgroup could not be read: "));
    let mut broken = [
        ("proc/self/cgroup", "0::/db\n"),
        ("sys/fs/cgroup/db/memory.max", "1000\n"),
        ("sys/fs/cgroup/db/memory.current", "\n"),
        ("sys/fs/cgroup/db/memory.stat", STAT_V2),
    ];
    let path = "/sys/fs/cgroup/db/memory";
    assert_eq!(
        error(&broken),
        format!("{path}.current does not hold a number")
    );
    broken[2].1 = "900\n";
    broken[3].1 = "";
    assert_eq!(
        error(&broken),
        format!("{path}.stat does not hold inactive_file"),
        "without it page cache would count"
    );
    broken[1].1 = "much\n";
    assert_eq!(error(&broken), format!("{path}.max does not hold a limit"));
    assert!(error(&broken[..2]).contains("does not hold a limit"));
}

#[test]
fn the_greater_of_two_counts_and_one_is_enough() {
    const GIB: u64 = 1 << 30;
    let both = Memory::builder().process(2 * GIB, 4 * GIB).cgroup(0.5, 0.9);
    let mut files = vec![("proc/self/status", STATUS)];
    // The process holds 2 GiB without mapped files; no cgroup is to be seen.
    let root = tree(&files);
    let process_only = format!(
        "process; cgroup: {}/proc/self/cgroup could not be read: No such file or directory (os error 2)",
        root.path().display()
    );
    assert_eq!(
        sample(both.clone(), &root),
        Reading::pressure(1.0).note(process_only)
    );
    files.extend([
        ("proc/self/cgroup", "0::/\n"),
        ("sys/fs/cgroup/memory.max", "1000\n"),
        ("sys/fs/cgroup/memory.current", "1300\n"),
        ("sys/fs/cgroup/memory.stat", STAT_V2),
    ]);
    let of_both = sample(both.clone(), &tree(&files));
    assert!((of_both.value().unwrap() - 2.0).abs() < 1e-9);
    files[3].1 = "500\n";
    assert_eq!(
        sample(both.clone(), &tree(&files)),
        Reading::pressure(1.0).note("process")
    );
    files[0].1 = "Name:\tdb\n";
    files[2].1 = "max\n";
    let root = tree(&files);
    let neither = format!(
        "process: {}/proc/self/status does not hold VmRSS; cgroup: no limit is set",
        root.path().display()
    );
    assert_eq!(sample(both, &root), Reading::unavailable(neither));
}

#[test]
fn settings_that_cannot_be_are_refused_by_name() {
    let text = |memory: Result<Memory, SettingError>| memory.unwrap_err().to_string();
    assert!(text(Memory::process(2, 1)).starts_with("`process`: the soft limit is 2 "));
    assert!(text(Memory::process(0, 1)).contains("the soft limit is 0"));
    assert!(text(Memory::cgroup(f64::NAN, 1.0)).starts_with("`cgroup`: "));
    assert_eq!(
        text(Memory::cgroup(80.0, 95.0)),
        "`cgroup.hard_share` is 95 but must be a share, at most 1"
    );
    assert!(text(Memory::builder().build()).contains("nothing to measure"));
    assert!(Memory::cgroup(DEFAULT_CGROUP_SOFT, DEFAULT_CGROUP_HARD).is_ok());
}
