//! What every criterion bench here does: run each subject, and see that it did what is measured.

use cinnamon_lab::speed::rounds::Subject;
use criterion::Criterion;

/// Benches each of them under its own name.
pub(crate) fn each(criterion: &mut Criterion, subjects: impl IntoIterator<Item = Subject>) {
    for mut subject in subjects {
        let name = subject.name.clone();
        criterion.bench_function(&name, |bencher| {
            bencher.iter_custom(|times| {
                let ran = subject.lasts(times);
                ran.expect("each operation does what is measured")
            });
        });
    }
}
