//! The surge from the outside, much shortened: it runs, and answers everybody.
#![cfg(feature = "rocks")]
#![allow(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::process::Command;

#[test]
fn a_short_surge_runs_both_arms_and_with_cinnamon_answers_every_request() {
    let output = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["surge", "--scale", "0.05", "--seed", "7"])
        .output()
        .expect("lab starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    // The promises are not judged at this length, nor on a machine that runs other tests beside it.
    let code = output.status.code();
    assert!(
        matches!(code, Some(0 | 1 | 3)),
        "{code:?}\n{printed}\n{output:?}"
    );
    let arms: Vec<&str> = printed.split("\nCinnamon\n").collect();
    assert_eq!(arms.len(), 2, "{printed}");
    assert!(arms[0].contains("\nno control\n"), "{printed}");
    for phase in ["0.7x", "3x", "12x surge", "0.7x again"] {
        assert!(arms[1].contains(&format!("\n  {phase:<11} ")), "{printed}");
    }
    let verdicts = arms[1].split("\n\n").next().expect("a table");
    assert!(!verdicts.contains("never answered"), "{printed}");
    assert!(!verdicts.contains("failed"), "{printed}");
}

#[test]
fn a_bad_option_is_refused_by_name_and_bound() {
    let output = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["surge", "--scale", "NaN"])
        .output()
        .expect("lab starts");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("`NaN` is not a number between 0.05 and 60"),
        "{said}"
    );
}
