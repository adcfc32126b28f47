//! The whole controller against a slow, obvious model: whatever callers, operators and clocks do, in any order, each
//! offer comes to what the book says, and after each step every sum agrees.
//!
//! The cases are the same each time. `CINNAMON_PROOF_CASES=200000` runs so many instead of 10,000, and others, whose seed is printed.
#![allow(
    clippy::expect_used,
    unreachable_pub,
    reason = "a test in several files: helpers outside of the test function, and shared between the files"
)]

mod support;

#[path = "model/figures.rs"]
mod figures;
#[path = "model/lane.rs"]
mod lane;
#[path = "model/ops.rs"]
mod ops;
#[path = "model/world.rs"]
mod world;

use std::sync::atomic::Ordering;

use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

/// What is checked, or what is wrong.
type Checked<T = ()> = Result<T, String>;

/// Leaves with what is wrong.
macro_rules! ensure {
    ($holds:expr, $($what:tt)*) => {{
        let holds: bool = $holds;
        if !holds {
            return Err(format!($($what)*));
        }
    }};
}
use ensure;

/// As many as it was asked for, or 10,000.
fn cases() -> u32 {
    let asked = std::env::var("CINNAMON_PROOF_CASES").ok();
    asked.map_or(10_000, |cases| cases.parse().expect("a number of cases"))
}

/// Where the cases come from: always the same ones, but others where more are asked for, by the seed that is printed.
fn rng() -> TestRng {
    let seed = std::env::var("CINNAMON_PROOF_SEED").ok();
    let seed = seed.map(|seed| seed.parse().expect("a number as a seed"));
    let more = std::env::var_os("CINNAMON_PROOF_CASES").is_some();
    let drawn = || {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        now.as_nanos() as u64
    };
    let seed: u64 = seed.unwrap_or_else(|| if more { drawn() } else { 0 });
    println!("the same cases again: CINNAMON_PROOF_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

#[test]
fn the_controller_does_what_the_book_says() {
    let config = Config {
        cases: cases(),
        max_shrink_iters: 20_000,
        failure_persistence: Some(Box::new(
            proptest::test_runner::FileFailurePersistence::WithSource("proptest-regressions"),
        )),
        source_file: Some(file!()),
        ..Config::default()
    };
    let failed = TestRunner::new_with_rng(config, rng()).run(&ops::case(), |case| {
        world::play(&case).map_err(proptest::test_runner::TestCaseError::fail)
    });
    match failed {
        Ok(()) => {}
        Err(TestError::Fail(why, case)) => panic!("{why}\nby {case:#?}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
    // Or all of the above would be about gates that are open.
    let held = world::HELD.load(Ordering::Relaxed);
    println!(
        "{held} of {} cases had a gate that was held by a law or a signal",
        cases()
    );
    assert!(
        held > u64::from(cases()) / 100,
        "{held} of {} cases had a gate that was held",
        cases()
    );
}
