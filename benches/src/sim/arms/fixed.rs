//! A fixed limit, an endless queue before it, and nobody refused: the plain worker pool.

use cinnamon_core::Instant;
use cinnamon_core::simulation::{Answer, Done, Offer, Policy};

use super::slots::{Next, Slots};
use super::{Arm, Kind};

pub(super) const ARM: Arm = Arm {
    name: "fixed",
    about: "a fixed limit, the store's parallelism; an endless queue, oldest first",
    kind: Kind::Baseline,
    build: |scenario| Ok(Box::new(Fixed::new(scenario.service.parallelism))),
};

/// So many at once, the others in the order in which they came.
#[derive(Debug)]
pub(super) struct Fixed {
    slots: Slots,
}

impl Fixed {
    pub(super) fn new(limit: u32) -> Self {
        Self::of(Slots::new(limit))
    }

    pub(super) const fn of(slots: Slots) -> Self {
        Self { slots }
    }
}

impl Policy for Fixed {
    fn offer(&mut self, _now: Instant, offer: &Offer) -> Answer {
        self.slots.offer(offer.token, Instant::FAR_FUTURE)
    }

    fn cancel(&mut self, _now: Instant, token: u32) -> bool {
        self.slots.cancel(token)
    }

    fn finish(&mut self, now: Instant, _token: u32, _done: Done) {
        self.slots.finish(now, Next::Oldest);
    }

    fn take_answers(&mut self, out: &mut Vec<(u32, Answer)>) {
        self.slots.take_answers(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{overload, run};
    use super::*;

    #[test]
    fn nobody_is_refused_and_the_order_is_that_of_arrival() {
        let (report, mut fates) = run(&ARM, &overload(2.0, 5.0));
        let phase = &report.phases[0];
        assert_eq!((phase.refused_at_gate, phase.lost_in_queue), (0, 0));
        assert!(phase.late > phase.offers() / 2, "it collapses");
        fates.sort_by_key(|fate| fate.request);
        assert!(fates.is_sorted_by_key(|fate| fate.started_at));
    }
}
