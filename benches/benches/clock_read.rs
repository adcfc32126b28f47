//! What a reading of the clock costs, through a pointer as the controller has it, beside the system's.
#![allow(
    missing_docs,
    clippy::expect_used,
    reason = "a benchmark that cannot be run ends"
)]

#[allow(dead_code, reason = "each bench uses its part")]
mod peers;
mod run;

use cinnamon_lab::speed::ours;
use criterion::{Criterion, criterion_group, criterion_main};

fn bench(criterion: &mut Criterion) {
    let subjects = ours::clock();
    run::each(criterion, subjects.into_iter().chain(peers::clock()));
}

criterion_group!(benches, bench);
criterion_main!(benches);
