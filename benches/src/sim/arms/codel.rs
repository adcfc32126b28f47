//! CoDel and adaptive LIFO as Facebook published them in 2015 ("Fail at Scale"), blind to priority.
//!
//! Two times are all there is. A queue that has not been empty for an interval stands; while it
//! stands, who enters it may wait for the short target only and the newest is served first. At
//! other times who enters may wait for the interval, and the oldest is served first. How long a
//! request may wait is fixed when it enters. Both times are longer on a slow store than Facebook's,
//! so that the arm is no straw man there.

use cinnamon_core::simulation::{Answer, Done, Offer, Policy, Scenario, View};
use cinnamon_core::{CodelState, Instant};

use super::slots::{Next, Slots};
use super::{Arm, Kind};

pub(super) const ARM: Arm = Arm {
    name: "codel",
    about: "CoDel with adaptive LIFO, priority-blind; Facebook's 5/100 ms, more on a slow store",
    kind: Kind::Baseline,
    build: |scenario| Ok(Box::new(Codel::new(scenario))),
};

/// Facebook's M: how long who enters a standing queue may wait, ns.
const TARGET_NS: u64 = 5_000_000;
/// … but no less than so many mean service times. With 5 ms, a store that takes 500 ms a request
/// would give up on nearly everybody who waits.
const TARGET_SERVICES: f64 = 1.0;
/// Facebook's N: a queue that was not empty for so long stands, ns.
const INTERVAL_NS: u64 = 100_000_000;
/// … but no less than so many mean service times: on a slow store a random burst takes that long
/// to be served.
const INTERVAL_SERVICES: f64 = 5.0;
/// Between two looks at the old end, ns. Newest first never comes to that end, which would grow for
/// as long as the overload lasts. A look only tells those who are lost already. Short beside the
/// interval; charts draw the arm at these times.
const LOOK_NS: u64 = 10_000_000;

/// The law.
#[derive(Debug)]
struct Codel {
    slots: Slots,
    target_ns: u64,
    interval_ns: u64,
    /// When the queue last went from empty to not empty.
    filled_at: Instant,
    /// The next look, while there are waiters, and once after.
    look_at: Option<Instant>,
    /// Whether the queue stood at the last look.
    standing: bool,
}

impl Codel {
    fn new(scenario: &Scenario) -> Self {
        let service_ns = scenario.service.mean_s * 1e9;
        Self {
            slots: Slots::new(scenario.service.parallelism),
            target_ns: TARGET_NS.max((TARGET_SERVICES * service_ns) as u64),
            interval_ns: INTERVAL_NS.max((INTERVAL_SERVICES * service_ns) as u64),
            filled_at: Instant::ZERO,
            look_at: None,
            standing: false,
        }
    }

    fn is_standing(&self, now: Instant) -> bool {
        self.slots.waiting() > 0 && now.nanos_since(self.filled_at) > self.interval_ns
    }
}

impl Policy for Codel {
    fn offer(&mut self, now: Instant, offer: &Offer) -> Answer {
        let timeout_ns = if self.is_standing(now) {
            self.target_ns
        } else {
            self.interval_ns
        };
        let was_empty = self.slots.waiting() == 0;
        let answer = self.slots.offer(offer.token, now.after_nanos(timeout_ns));
        if was_empty && answer == Answer::Wait {
            self.filled_at = now;
            self.look_at.get_or_insert(now.after_nanos(LOOK_NS));
        }
        answer
    }

    fn cancel(&mut self, _now: Instant, token: u32) -> bool {
        self.slots.cancel(token)
    }

    fn finish(&mut self, now: Instant, _token: u32, _done: Done) {
        let next = if self.is_standing(now) {
            Next::Newest
        } else {
            Next::Oldest
        };
        self.slots.finish(now, next);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.look_at
    }

    fn wake(&mut self, now: Instant) {
        self.slots.expire(now);
        self.standing = self.is_standing(now);
        let again = self.slots.waiting() > 0;
        self.look_at = again.then(|| now.after_nanos(LOOK_NS));
    }

    fn take_answers(&mut self, out: &mut Vec<(u32, Answer)>) {
        self.slots.take_answers(out);
    }

    fn view(&self) -> View {
        let codel = if self.standing {
            CodelState::Standing
        } else if self.slots.waiting() > 0 {
            CodelState::Above
        } else {
            CodelState::Calm
        };
        View {
            engaged: self.standing,
            codel,
            newest_first: self.standing,
            binding: if self.standing { "codel" } else { "nothing" },
            ..View::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{offer, overload, run};
    use super::*;
    use cinnamon_core::Reason;
    use cinnamon_core::simulation::Service;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// One slot, taken, on a store fast enough for Facebook's own times.
    fn taken() -> Codel {
        let mut codel = Codel::new(&Scenario {
            service: Service::new(1, 0.001),
            ..Scenario::default()
        });
        assert_eq!(codel.offer(at(0), &offer(0)), Answer::Run);
        codel
    }

    fn answers(codel: &mut Codel) -> Vec<(u32, Answer)> {
        let mut out = Vec::new();
        codel.take_answers(&mut out);
        out
    }

    #[test]
    fn oldest_first_until_the_queue_stands_then_newest_first() {
        let mut codel = taken();
        codel.offer(at(10), &offer(1));
        codel.offer(at(20), &offer(2));
        codel.offer(at(30), &offer(3));
        codel.finish(at(40), 0, Done::SUCCESS);
        assert_eq!(answers(&mut codel), [(1, Answer::Run)]);
        codel.finish(at(110), 1, Done::SUCCESS);
        assert_eq!(
            answers(&mut codel),
            [(2, Answer::Run)],
            "not empty for 100 ms: not yet longer than that"
        );
        codel.offer(at(112), &offer(4));
        codel.offer(at(113), &offer(5));
        codel.finish(at(114), 2, Done::SUCCESS);
        assert_eq!(answers(&mut codel), [(5, Answer::Run)]);
    }

    #[test]
    fn in_a_standing_queue_the_target_is_all_the_time_there_is() {
        let mut codel = taken();
        codel.offer(at(10), &offer(1));
        codel.offer(at(50), &offer(2));
        codel.offer(at(111), &offer(3));
        assert_eq!(codel.next_wakeup(), Some(at(20)));
        codel.wake(at(120));
        let expired = Answer::Refuse(Reason::Expired);
        assert_eq!(answers(&mut codel), [(1, expired)]);
        assert_eq!(codel.view().codel, CodelState::Standing);
        assert!(codel.view().newest_first);
        codel.finish(at(120), 0, Done::SUCCESS);
        assert_eq!(
            answers(&mut codel),
            [(3, expired), (2, Answer::Run)],
            "3 came last and had 5 ms, 2 came before the queue stood and had 100"
        );
        codel.wake(at(130));
        assert_eq!(codel.view().codel, CodelState::Calm);
        assert_eq!(codel.next_wakeup(), None);
    }

    #[test]
    fn a_slow_store_gets_longer_times() {
        let codel = Codel::new(&Scenario {
            service: Service::new(5, 0.5),
            ..Scenario::default()
        });
        assert_eq!(
            (codel.target_ns, codel.interval_ns),
            (500_000_000, 2_500_000_000)
        );
        let codel = taken();
        assert_eq!(
            (codel.target_ns, codel.interval_ns),
            (TARGET_NS, INTERVAL_NS)
        );
    }

    #[test]
    fn goodput_is_kept_and_every_tier_pays_alike() {
        let (report, fates) = run(&ARM, &overload(2.0, 20.0));
        let phase = &report.phases[0];
        assert!(phase.goodput > 0.95, "{}", phase.goodput);
        let share = |tier: usize| phase.good[tier] as f64 / phase.offered[tier] as f64;
        assert!((share(1) - share(5)).abs() < 0.05);
        let longest = fates
            .iter()
            .map(|f| f.ended_at.nanos_since(f.offered_at))
            .max();
        assert!(longest < Some(1_000_000_000), "nobody waits for ever");
    }
}
