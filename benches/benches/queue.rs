//! What the queue costs: a slot handed on to who waits, and a queue that is swept.
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
    let subjects = ours::queue().expect("the controllers can be built");
    run::each(criterion, subjects.into_iter().chain(peers::queue()));
}

criterion_group!(benches, bench);
criterion_main!(benches);
