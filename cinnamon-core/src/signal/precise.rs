//! What is done about culprits: they are throttled, and nobody else.
//!
//! A culprit with a share `b` of all that is offered, where `t` is what it should have, is let in at
//!
//! ```text
//! rate = R * t * (1 - b) / (1 - t)        R: cost offered per second;  t = b / pressure
//! ```
//!
//! so that next to what the others offer it has the share `t` (FoundationDB's Ratekeeper, tag throttling). While the
//! pressure stays, its rate falls by a third each settling time. Once the pressure is gone it rises: fast up to what the
//! others leave of seven tenths of the capacity, slowly beyond. A throttle that has refused nothing for two seconds is none.
//!
//! | state | left by |
//! |---|---|
//! | none | a reading of pressure 1.0 or more that names it → held |
//! | held | the same again, a settling time later → held, at a lower rate; a settling time without → rising |
//! | rising | named again → held; nothing refused for two seconds, or its signal off, or lost and faded → none |

use crate::signal::selector::LaneFlow;
use crate::signal::{Culprit, Who};
use crate::sync::Arc;
use crate::throttle::Throttle;

/// Most that are throttled at once, the worst: FoundationDB throttles five. Each costs every request a comparison.
pub(crate) const THROTTLES_MAX: usize = 16;
/// Each settling time under pressure leaves so much of a culprit's rate …
const CUT: f64 = 0.7;
/// … but no less than this of what the formula says: one who is named while all the load is too much has others beside.
const CUT_LEAST: f64 = 0.1;
/// A rate grows so fast, per second, up to what is left: from a tenth to all in a second …
const RISE_FAST: f64 = 2.3;
/// … and beyond, up to what the formula said last: fourfold in half a minute …
const RISE_SLOW: f64 = 0.05;
/// … and beyond that twofold in two minutes. (Without that difference the key was let in until the lanes were as busy as
/// when it was named: in `lab fair hot-key` the others' p99 was 1.5 times what it is without the key, and is 1.1 times so.)
const RISE_BEYOND: f64 = 0.005;
/// What is left is what the others do not ask for of this share of the capacity, as it was known when the culprit was named last and
/// the lanes were full: one that is not full shows up to a fifth more than it has. (In `lab fair hot-key` the others' p99 was 1.4 times
/// what it is without the key with 0.8, and 2.2 times by the present estimate.)
const LEFT_OF: f64 = 0.7;
/// All that it asks for is left when that and what the others ask for are less than this share of the capacity.
const FITS: f64 = 0.85;
/// A throttle that refuses nobody for this long is over, seconds.
const IDLE_S: f64 = 2.0;
/// Memory of what came and was refused, seconds.
const MEMORY_S: f64 = 0.5;
/// A settling time is half of the signal's `T`, and no longer than this, seconds.
const SETTLE_MAX_S: f64 = 2.0;

/// What a signal says of culprits in one tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'a> {
    pub(crate) signal: usize,
    pub(crate) lanes: u64,
    pub(crate) pressure: f64,
    pub(crate) culprits: &'a [Culprit],
    pub(crate) settle_s: f64,
}

/// A settling time of a signal with this `T`, delay and period.
pub(crate) fn settle_s(time_s: f64, delay_s: f64, period_s: f64) -> f64 {
    (0.5 * time_s).min(SETTLE_MAX_S).max(period_s) + delay_s
}

#[derive(Debug)]
struct Held {
    throttle: Arc<Throttle>,
    per_s: f64,
    /// What the formula said last.
    wanted: f64,
    share: f64,
    settle_s: f64,
    /// Since its rate was last cut, and since it was last named under pressure.
    cut_s: f64,
    named_s: f64,
    /// Since anything was refused.
    idle_s: f64,
    counts: (u64, u64),
    came_per_s: f64,
    refused_per_s: f64,
    /// What its lanes could do for it beside the others, cost per second, over the same memory.
    left_per_s: f64,
    /// Of its lanes when it was named last, cost per second.
    capacity: f64,
}

/// What the others need to know of a throttle.
#[derive(Clone, Copy, Debug)]
struct Beside {
    lanes: u64,
    let_in_per_s: f64,
    came_per_s: f64,
}

/// One throttle, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ThrottleFigures {
    pub(crate) who: Who,
    pub(crate) signal: usize,
    pub(crate) share: f64,
    pub(crate) per_s: f64,
    pub(crate) came_per_s: f64,
    pub(crate) refused: u64,
}

/// All throttles of a controller.
#[derive(Debug, Default)]
pub(crate) struct Precise {
    held: Vec<Held>,
    /// Since this was last asked, some came or went.
    changed: bool,
    /// Of one step; kept so that a step allocates nothing.
    beside: Vec<Beside>,
}

impl Precise {
    /// A signal names culprits, under pressure.
    pub(crate) fn name(&mut self, named: &Named<'_>, lanes: &[LaneFlow]) {
        let offered: f64 = of(named.lanes, lanes).map(|lane| lane.offered).sum();
        // What is refused for a throttle is not counted as offered.
        let beside = self
            .held
            .iter()
            .filter(|held| held.throttle.lanes() & named.lanes != 0);
        let refused: f64 = beside.map(|held| held.refused_per_s).sum();
        let all = offered + refused;
        let capacity = of(named.lanes, lanes).map(|lane| lane.capacity).sum();
        for culprit in named.culprits {
            let share = culprit.share.clamp(0.0, 1.0);
            let target = share / named.pressure.max(1.0);
            if target <= 0.0 || all <= 0.0 {
                continue;
            }
            // At a share of 1 there are no others whose load it could be measured by.
            let others = (1.0 - share).max(0.01);
            let wanted = (all * target * others / (1.0 - target).max(0.01)).max(1.0);
            let signal = named.signal as u8;
            let is_it = |held: &Held| {
                held.throttle.who() == culprit.who && held.throttle.signal() == signal
            };
            let Some(i) = self.held.iter().position(is_it) else {
                let throttle = Throttle::new(culprit.who, signal, named.lanes, wanted);
                self.hold(throttle, wanted, share, named.settle_s, capacity);
                continue;
            };
            let held = &mut self.held[i];
            held.named_s = 0.0;
            held.share = share;
            held.wanted = wanted;
            held.capacity = capacity;
            if held.cut_s >= held.settle_s {
                held.cut_s = 0.0;
                held.set(
                    (held.per_s * CUT)
                        .clamp(CUT_LEAST * wanted, wanted)
                        .max(1.0),
                );
            }
        }
    }

    fn hold(&mut self, throttle: Throttle, per_s: f64, share: f64, settle_s: f64, capacity: f64) {
        if self.held.len() >= THROTTLES_MAX {
            let least = self.held.iter().enumerate();
            let least = least.min_by(|a, b| a.1.share.total_cmp(&b.1.share));
            match least.map(|(i, held)| (i, held.share)) {
                Some((i, least)) if least < share => {
                    self.held.swap_remove(i);
                }
                _ => return,
            }
        }
        self.changed = true;
        self.held.push(Held {
            throttle: Arc::new(throttle),
            per_s,
            wanted: per_s,
            share,
            settle_s,
            cut_s: 0.0,
            named_s: 0.0,
            idle_s: 0.0,
            counts: (0, 0),
            came_per_s: 0.0,
            refused_per_s: 0.0,
            left_per_s: 0.0,
            capacity,
        });
    }

    /// One step of `dt_s` seconds. `faded` tells how far a signal has faded: 0 not at all, 1 to nothing; and nothing for
    /// one that does not count.
    pub(crate) fn tick(
        &mut self,
        dt_s: f64,
        lanes: &[LaneFlow],
        faded: impl Fn(usize) -> Option<f64>,
    ) {
        if self.held.is_empty() {
            return;
        }
        let before = self.held.len();
        let mut all = std::mem::take(&mut self.beside);
        all.clear();
        all.extend(self.held.iter().map(Held::beside));
        self.held.retain_mut(|held| {
            held.measure(dt_s);
            // Those that share lanes with it; what they are let in with is offered like anything else.
            let mask = held.throttle.lanes();
            let beside = || all.iter().filter(|of| of.lanes & mask != 0);
            let count = beside().count().max(1) as f64;
            let theirs: f64 = beside().map(|of| of.let_in_per_s).sum();
            let asked: f64 = beside().map(|of| of.came_per_s).sum();
            let lanes = || of(held.throttle.lanes(), lanes);
            let capacity = lanes().map(|lane| lane.capacity).sum::<f64>();
            let offered: f64 = lanes().map(|lane| lane.offered).sum();
            let others = (offered - theirs).max(0.0);
            let capacity = capacity.min(held.capacity);
            let mut left = (LEFT_OF * capacity - others).max(0.0) / count;
            if others + asked <= FITS * capacity {
                // And a little more, so that what comes by chance is not refused.
                left = left.max(2.0 * held.came_per_s);
            }
            held.see_left(dt_s, left);
            let Some(faded) = faded(usize::from(held.throttle.signal())) else {
                return false;
            };
            held.rise(dt_s, faded);
            // The next reading may be a little late.
            let named = held.named_s < 2.0 * held.settle_s;
            faded < 1.0 && (named || faded > 0.0 || held.idle_s < IDLE_S)
        });
        self.changed |= self.held.len() != before;
        self.beside = all;
    }

    /// The throttles for the lanes, if there are others than when this was last asked.
    pub(crate) fn take_changed(&mut self) -> Option<Vec<Arc<Throttle>>> {
        let all = self.held.iter().map(|held| Arc::clone(&held.throttle));
        std::mem::take(&mut self.changed).then(|| all.collect())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn figures(&self) -> impl Iterator<Item = ThrottleFigures> {
        self.held.iter().map(|held| ThrottleFigures {
            who: held.throttle.who(),
            signal: usize::from(held.throttle.signal()),
            share: held.share,
            per_s: held.per_s,
            came_per_s: held.came_per_s,
            refused: held.throttle.counts().1,
        })
    }
}

impl Held {
    fn set(&mut self, per_s: f64) {
        self.per_s = per_s;
        self.throttle.set_per_s(per_s);
    }

    fn beside(&self) -> Beside {
        Beside {
            lanes: self.throttle.lanes(),
            let_in_per_s: self.let_in_per_s(),
            came_per_s: self.came_per_s,
        }
    }

    /// What it is let in with, cost per second.
    fn let_in_per_s(&self) -> f64 {
        (self.came_per_s - self.refused_per_s).max(0.0)
    }

    fn see_left(&mut self, dt_s: f64, left_per_s: f64) {
        let gain = 1.0 - (-dt_s / MEMORY_S).exp();
        self.left_per_s += gain * (left_per_s - self.left_per_s);
    }

    /// Lets it have more, once it is no longer named under pressure; and as its signal fades, what it asks for.
    fn rise(&mut self, dt_s: f64, faded: f64) {
        if faded > 0.0 {
            self.set(self.per_s.max(faded * self.came_per_s));
        }
        if self.named_s < self.settle_s {
            return;
        }
        let (rise, most) = match self.per_s {
            per_s if per_s < self.left_per_s => (RISE_FAST, self.left_per_s),
            per_s if per_s < self.wanted => (RISE_SLOW, f64::INFINITY),
            _ => (RISE_BEYOND, f64::INFINITY),
        };
        self.set((self.per_s * (rise * dt_s).exp()).min(most));
    }

    fn measure(&mut self, dt_s: f64) {
        self.cut_s += dt_s;
        self.named_s += dt_s;
        let (came, refused) = self.throttle.counts();
        let (came_before, refused_before) = std::mem::replace(&mut self.counts, (came, refused));
        if dt_s > 0.0 {
            let gain = 1.0 - (-dt_s / MEMORY_S).exp();
            let rate = |now: u64, before: u64| (now - before) as f64 / dt_s;
            self.came_per_s += gain * (rate(came, came_before) - self.came_per_s);
            self.refused_per_s += gain * (rate(refused, refused_before) - self.refused_per_s);
        }
        if refused > refused_before {
            self.idle_s = 0.0;
        } else {
            self.idle_s += dt_s;
        }
    }
}

/// The lanes of a mask.
fn of(mask: u64, lanes: &[LaneFlow]) -> impl Iterator<Item = &LaneFlow> {
    let lanes = lanes.iter().enumerate();
    lanes.filter_map(move |(i, lane)| (mask >> i & 1 == 1).then_some(lane))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Instant;
    use crate::priority::Tier;
    use crate::request::Request;

    const HOT: Who = Who::Key(1);

    fn flows(offered: f64, capacity: f64) -> [LaneFlow; 1] {
        [LaneFlow {
            offered,
            admitted: offered.min(capacity),
            capacity,
            ..LaneFlow::default()
        }]
    }

    fn named(pressure: f64, culprits: &[Culprit]) -> Named<'_> {
        Named {
            signal: 0,
            lanes: 1,
            pressure,
            culprits,
            settle_s: 0.5,
        }
    }

    fn culprit(share: f64) -> Culprit {
        Culprit { who: HOT, share }
    }

    /// Runs `seconds` in which the culprit offers `per_s`, each of cost 1.
    fn run(precise: &mut Precise, from_s: f64, seconds: f64, per_s: f64, lanes: &[LaneFlow]) {
        let throttles: Vec<_> = precise
            .held
            .iter()
            .map(|h| Arc::clone(&h.throttle))
            .collect();
        let request = Request::new(Tier::T3).key(1);
        for step in 0..(seconds * 64.0) as u64 {
            for throttle in throttles.iter().filter(|t| t.concerns(0, &request)) {
                for i in 0..(per_s / 64.0) as u64 {
                    let s = from_s + (step as f64 + i as f64 / per_s * 64.0) / 64.0;
                    let now = Instant::from_nanos((s * 1e9) as u64);
                    let has_room = throttle.has_room(now, Tier::T3);
                    throttle.count(1, !has_room);
                    if has_room {
                        throttle.pay(now, 1);
                    }
                }
            }
            precise.tick(1.0 / 64.0, lanes, |_| Some(0.0));
        }
    }

    #[test]
    fn beside_the_others_it_has_the_share_it_should_have() {
        let mut precise = Precise::default();
        // 400 of 1,000 are its; a tenth of what is left is what it should have: 600 and 66.7.
        precise.name(&named(4.0, &[culprit(0.4)]), &flows(1_000.0, 800.0));
        let throttles = precise.take_changed().unwrap();
        assert_eq!(throttles.len(), 1);
        assert!(
            (throttles[0].per_s() - 66.7).abs() < 0.1,
            "{}",
            throttles[0].per_s()
        );
        assert!(precise.take_changed().is_none());
    }

    #[test]
    fn while_the_pressure_stays_its_rate_falls_once_a_settling_time() {
        let mut precise = Precise::default();
        let lanes = flows(1_000.0, 800.0);
        let hot = [culprit(0.4)];
        precise.name(&named(4.0, &hot), &lanes);
        let before = precise.held[0].per_s;
        for _ in 0..10 {
            precise.name(&named(4.0, &hot), &lanes);
        }
        assert_eq!(precise.held[0].per_s, before, "no time has passed");
        run(&mut precise, 0.0, 0.5, 0.0, &lanes);
        precise.name(&named(4.0, &hot), &lanes);
        assert!((precise.held[0].per_s / before - CUT).abs() < 0.01);
        for _ in 0..40 {
            run(&mut precise, 0.0, 0.5, 0.0, &lanes);
            precise.name(&named(4.0, &hot), &lanes);
        }
        assert!((precise.held[0].per_s / before - CUT_LEAST).abs() < 0.01);
    }

    #[test]
    fn when_the_load_is_gone_nothing_is_refused_two_seconds_later() {
        let mut precise = Precise::default();
        precise.name(&named(4.0, &[culprit(0.4)]), &flows(1_000.0, 800.0));
        let throttle = Arc::clone(&precise.held[0].throttle);
        run(&mut precise, 0.0, 1.0, 400.0, &flows(600.0, 800.0));
        assert!(throttle.counts().1 > 200);
        // The others have gone; the culprit comes as before, and would fit.
        run(&mut precise, 1.0, 2.0, 400.0, &flows(100.0, 800.0));
        let refused = throttle.counts().1;
        run(&mut precise, 3.0, 3.0, 400.0, &flows(100.0, 800.0));
        assert_eq!(throttle.counts().1, refused);
        assert!(precise.is_idle() && precise.take_changed().is_some_and(|all| all.is_empty()));
    }

    #[test]
    fn beyond_what_the_others_leave_it_is_let_go_slowly() {
        let mut precise = Precise::default();
        precise.name(&named(4.0, &[culprit(0.4)]), &flows(1_000.0, 800.0));
        let before = precise.held[0].per_s;
        run(&mut precise, 0.0, 10.0, 400.0, &flows(720.0, 800.0));
        let times = precise.held[0].per_s / before;
        assert!((1.04..=1.06).contains(&times), "{times}");
    }

    #[test]
    fn a_signal_that_is_lost_holds_nobody() {
        let mut precise = Precise::default();
        precise.name(&named(4.0, &[culprit(0.4)]), &flows(1_000.0, 800.0));
        precise.tick(0.01, &flows(1_000.0, 800.0), |_| None);
        assert!(precise.is_idle());
    }

    #[test]
    fn the_worst_are_held_and_no_more_than_so_many() {
        let mut precise = Precise::default();
        let lanes = flows(1_000.0, 800.0);
        for key in 0..30u64 {
            let who = Who::Key(key);
            let share = 0.02 + 0.001 * key as f64;
            precise.name(&named(1.5, &[Culprit { who, share }]), &lanes);
        }
        assert_eq!(precise.held.len(), THROTTLES_MAX);
        let least = precise
            .held
            .iter()
            .map(|held| held.share)
            .fold(1.0, f64::min);
        assert!((least - 0.034).abs() < 1e-9, "{least}");
    }

    #[test]
    fn all_that_comes_is_one_key_and_it_still_runs() {
        let mut precise = Precise::default();
        precise.name(&named(10.0, &[culprit(1.0)]), &flows(1_000.0, 800.0));
        assert!(precise.held[0].per_s >= 1.0);
        precise.name(&named(10.0, &[culprit(0.0)]), &flows(0.0, 0.0));
        assert_eq!(precise.held.len(), 1);
    }
}
