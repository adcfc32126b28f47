//! The demo from the outside, much shortened: it runs every arm, answers everybody, draws its page.
#![cfg(feature = "rocks")]
#![allow(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::process::{Command, Output};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(arguments)
        .output()
        .expect("lab starts")
}

#[test]
fn a_short_demo_walks_a_failure_through_all_arms_and_draws_it() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let report = dir.path().join("report.html");
    let page = report.to_str().expect("a path in UTF-8");
    let output = lab(&[
        "demo", "--way", "hot-key", "--scale", "0.05", "--report", page,
    ]);
    let printed = String::from_utf8_lossy(&output.stdout);
    // The promises are not judged at this length, nor on a machine that runs other tests beside it.
    let code = output.status.code();
    assert!(
        matches!(code, Some(0 | 1 | 3)),
        "{code:?}\n{printed}\n{output:?}"
    );
    let arms = [
        "no control",
        "fixed limit, FIFO",
        "CoDel, LIFO",
        "flow law",
        "Cinnamon",
    ];
    let drawn = std::fs::read_to_string(&report).expect("the page is there");
    for arm in arms {
        assert!(printed.contains(&format!("\n  {arm:<18} ")), "{printed}");
        assert!(drawn.contains(&format!("<figcaption>{arm}</figcaption>")));
    }
    assert!(!printed.contains("failed"), "{printed}");
    assert!(printed.contains("controller \"hot-key\""), "{printed}");
    // A third of a second is too short for a key to be named.
    assert!(
        printed.contains("none    hot-key, Cinnamon: of what calm gives them, bystanders"),
        "{printed}"
    );
    assert!(printed.contains(" bystanders "), "{printed}");
    assert_eq!(drawn.matches("<th>bystanders</th>").count(), 1);
    assert_eq!(drawn.matches("<svg").count(), arms.len());
}

#[test]
fn a_bad_option_is_refused_by_name_and_bound() {
    for (arguments, expected) in [
        (
            ["--scale", "NaN"],
            "`NaN` is not a number between 0.05 and 60",
        ),
        (
            ["--way", "flood"],
            "`flood` is none of surge, scan-storm, write-stall, hot-key",
        ),
        (
            ["--listen", "0.0.0.0:80"],
            "`0.0.0.0:80` is no loopback address with a port",
        ),
        (["--hold", "-1"], "is not a number between 0 and 3600"),
    ] {
        let option = format!("{}={}", arguments[0], arguments[1]);
        let output = lab(&["demo", &option]);
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{said}");
    }
}
