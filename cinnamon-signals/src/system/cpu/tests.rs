#![cfg(target_os = "linux")]

use cinnamon_core::Tier;
use tempfile::TempDir;

use super::*;
use crate::world::tests::{tree, write};

fn at(tenths: u64) -> Instant {
    Instant::ZERO.after(Duration::from_millis(100 * tenths))
}

/// Eight seconds of a machine of four cores, this share of them busy, after what `also` writes each tenth of a second.
fn run(root: &TempDir, cpu: Cpu, busy: f64, also: impl Fn(u64)) -> Reading {
    let mut cpu = cpu.root(root.path());
    let mut last = Reading::pressure(f64::NAN);
    for tenths in 0..80 {
        let total = 40 * tenths;
        let busy = (busy * total as f64) as u64;
        let idle = total - busy;
        write(
            root,
            "proc/stat",
            &format!("cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\n"),
        );
        also(tenths);
        last = cpu.sample(at(tenths), &View::default());
    }
    last
}

fn at_utilisation(busy: f64) -> Reading {
    run(&tree(&[]), Cpu::new(), busy, |_| {})
}

#[test]
fn it_is_silent_up_to_where_the_cascade_begins() {
    for percent in [0, 50, 70, 80] {
        let busy = f64::from(percent) / 100.0;
        let reading = at_utilisation(busy);
        let pressure = reading.value().unwrap();
        assert!((pressure - busy / 0.95).abs() < 0.01, "{pressure}");
        let silent = Reading::pressure(pressure).note(format!("machine {percent} %"));
        assert_eq!(reading, silent, "no cut");
    }
}

#[test]
fn one_bucket_is_gone_before_the_next_is_touched() {
    let cpu = Cpu::new();
    let mut before = LEVELS;
    for step in 0..=300 {
        let utilisation = 0.80 + f64::from(step) * 0.0005;
        let cut = cpu.cut(utilisation).map_or(LEVELS, Priority::number);
        assert!(cut <= before, "more load never lets in more");
        assert!(before - cut <= 3, "no jump at {utilisation}");
        before = cut;
    }
    let tier = |utilisation: f64| cpu.cut(utilisation).unwrap().tier();
    assert_eq!(tier(0.81), Tier::T5);
    assert_eq!(tier(0.85), Tier::T4);
    assert_eq!(tier(0.90), Tier::T3);
    assert_eq!(tier(0.94), Tier::T2);
    for full in [0.95, 1.0, 7.0] {
        assert_eq!(cpu.cut(full).unwrap().number(), LAST, "t0 and t1 stay");
    }
    assert_eq!(cpu.cut(f64::NAN), None);
}

#[test]
fn the_pressure_leaves_the_way_to_the_cascade_and_then_takes_over() {
    let reading = at_utilisation(0.9);
    assert!(reading.value().unwrap() < 1.0);
    assert!(format!("{reading:?}").contains("cut: Some"), "{reading:?}");
    assert!(at_utilisation(1.0).value().unwrap() > 1.0);
}

#[test]
fn the_quota_of_a_cgroup_counts_where_it_is_nearer() {
    // Half a core, of which 0.45 are used; the pod around it may use two.
    let v2 = tree(&[
        ("proc/self/cgroup", "0::/pod/db\n"),
        ("sys/fs/cgroup/pod/db/cpu.max", "50000 100000\n"),
        ("sys/fs/cgroup/pod/cpu.max", "200000 100000\n"),
    ]);
    let used = |tenths: u64| {
        let text = format!("usage_usec {}\nuser_usec 1\n", 45_000 * tenths);
        write(&v2, "sys/fs/cgroup/pod/db/cpu.stat", &text);
    };
    let reading = run(&v2, Cpu::new(), 0.3, used);
    assert!((reading.value().unwrap() - 0.9 / 0.95).abs() < 1e-6);
    assert!(
        format!("{reading:?}").contains("cgroup 90 %"),
        "{reading:?}"
    );

    let v1 = tree(&[
        ("proc/self/cgroup", "3:cpu,cpuacct:/db\n"),
        ("sys/fs/cgroup/cpu/db/cpu.cfs_quota_us", "200000\n"),
        ("sys/fs/cgroup/cpu/db/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
    ]);
    let used = |tenths: u64| {
        let text = format!("{}\n", 100_000_000 * tenths);
        write(&v1, "sys/fs/cgroup/cpuacct/db/cpuacct.usage", &text);
    };
    let reading = run(&v1, Cpu::new(), 0.3, used);
    assert!((reading.value().unwrap() - 0.5 / 0.95).abs() < 1e-6);
}

#[test]
fn quotas_that_are_none_do_not_count() {
    for text in [
        "max 100000\n",
        "",
        "5",
        "0 100000\n",
        "1 0\n",
        "-1 100000\n",
        "x y\n",
    ] {
        let root = tree(&[
            ("proc/self/cgroup", "0::/db\n"),
            ("sys/fs/cgroup/db/cpu.max", text),
            ("sys/fs/cgroup/db/cpu.stat", "usage_usec 1\n"),
        ]);
        let reading = run(&root, Cpu::new(), 0.5, |_| {});
        assert!(format!("{reading:?}").contains("machine"), "{text:?}");
    }
}

#[test]
fn what_cannot_be_is_unavailable_and_bad_settings_are_named() {
    let root = tree(&[]);
    let mut cpu = Cpu::new().root(root.path());
    let mut sample = |tenths: u64, text: &str| {
        write(&root, "proc/stat", text);
        cpu.sample(at(tenths), &View::default()).value()
    };
    let huge = format!("cpu  1 0 0 {} 0 0 0 0\n", u64::MAX - 1);
    for (i, text) in [
        "",
        "cpu  x\n",
        "cpu  5 0 0 5 0\n",
        &huge,
        "cpu  6 0 0 5 0\n",
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(sample(80 * i as u64, text), None, "{text:?}");
    }
    assert_eq!(
        sample(0, "cpu  9 0 0 9 0\n"),
        None,
        "the clock was set back"
    );
    for (from, to) in [(0.0, 0.5), (0.8, 0.8), (0.8, 1.1), (f64::NAN, 0.9)] {
        assert!(Cpu::new().cascade(from, to).is_err());
    }
    let error = Cpu::new().cascade(0.5, f64::NAN).unwrap_err();
    assert!(error.to_string().starts_with("`cpu.to` is NaN but must be"));
}
