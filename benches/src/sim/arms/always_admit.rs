//! The control with no gate: a bounded queue, blind to priority, and nothing shed before it.
//!
//! It keeps the store busy, so a bar on goodput alone lets it pass; a bar on the important tiers
//! must not.

use super::fixed::Fixed;
use super::slots::Slots;
use super::{Arm, Kind};

pub(super) const ARM: Arm = Arm {
    name: "always-admit",
    about: "control: admits everybody into a bounded queue, blind to priority, the oldest evicted",
    kind: Kind::Control,
    build: |scenario| {
        let parallelism = scenario.service.parallelism;
        let slots = Slots::new(parallelism).queue_len_max(queue_len_max(parallelism));
        Ok(Box::new(Fixed::of(slots)))
    },
};

/// Waiters per slot.
const QUEUE_LIMITS: usize = 20;
/// … but no fewer than this, so that a small pool can bear a random burst.
const QUEUE_LEN_MIN: usize = 160;

/// Most waiters. As Cinnamon derives it from its slots, so that the arms do not differ in that;
/// only Cinnamon's may grow beyond, to what it serves in 0.1 s.
pub(super) fn queue_len_max(parallelism: u32) -> usize {
    (parallelism as usize)
        .saturating_mul(QUEUE_LIMITS)
        .max(QUEUE_LEN_MIN)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{overload, run};
    use super::*;
    use cinnamon_core::Reason;
    use cinnamon_core::simulation::End;

    #[test]
    fn the_queue_is_cinnamons() {
        assert_eq!([1, 8, 20].map(queue_len_max), [160, 160, 400]);
    }

    #[test]
    fn nobody_is_shed_and_the_important_pay_like_the_rest() {
        let (report, fates) = run(&ARM, &overload(2.0, 10.0));
        let phase = &report.phases[0];
        assert_eq!(phase.refused_at_gate, 0);
        assert!(phase.lost_in_queue > 8_000);
        let evicted = End::Lost(Reason::Evicted);
        assert!(
            fates
                .iter()
                .all(|f| matches!(f.end, End::Good | End::Late) || f.end == evicted)
        );
        let share = |tier: usize| phase.good[tier] as f64 / phase.offered[tier] as f64;
        assert!((share(1) - share(5)).abs() < 0.05);
    }
}
