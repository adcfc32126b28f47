//! What an admission costs while a signal acts on whom it names.
#![allow(
    missing_docs,
    clippy::expect_used,
    reason = "a benchmark that cannot be run ends"
)]

mod run;

use cinnamon_lab::speed::ours;
use criterion::{Criterion, criterion_group, criterion_main};

fn bench(criterion: &mut Criterion) {
    let subjects = ours::precise().expect("the controllers can be built");
    run::each(criterion, subjects);
}

criterion_group!(benches, bench);
criterion_main!(benches);
