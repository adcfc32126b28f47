//! Nothing between the clients and the store.

use super::fixed::Fixed;
use super::{Arm, Kind};

pub(super) const ARM: Arm = Arm {
    name: "none",
    about: "no control: every request runs at once, and all share the store's speed",
    kind: Kind::Baseline,
    // A limit that no run comes near, so that nobody ever waits.
    build: |_| Ok(Box::new(Fixed::new(u32::MAX))),
};

#[cfg(test)]
mod tests {
    use super::super::tests::{overload, run};
    use super::*;

    #[test]
    fn everybody_runs_on_arrival() {
        let (report, fates) = run(&ARM, &overload(2.0, 20.0));
        assert!(
            fates
                .iter()
                .all(|fate| fate.started_at == Some(fate.offered_at))
        );
        assert!(report.phases[0].goodput < 0.5, "it collapses");
    }
}
