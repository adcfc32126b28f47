//! The stall experiment from the outside: what it refuses before it starts anything.
#![cfg(feature = "rocks")]
#![allow(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::process::Command;

#[test]
fn a_bad_option_is_refused_by_name_and_bound() {
    let output = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["stall", "--seconds", "NaN"])
        .output()
        .expect("lab starts");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("`NaN` is not a number between 0.5 and 600"),
        "{said}"
    );
}
