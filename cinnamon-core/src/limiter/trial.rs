//! What two numbers of slots do to the throughput: the evidence, and what it amounts to.
//!
//! Below the knee of a store throughput grows with the slots; above it only the service time does. Two points
//! give the knee itself: if the lower one is below it, its throughput per slot is that of an empty store, and
//! the knee is where that line meets the throughput of the upper one,
//! `knee = low * X(high) / X(low)`. With Little's law this is capacity times unloaded service time.

use super::SlotUse;

/// Whatever the counts say, two stretches of the same store differ by this much: other threads, a compaction,
/// a core that was lent away. Standard deviation of the logarithm of a stretch's throughput.
const NOISE: f64 = 0.03;
/// So many standard errors must lie between a verdict and its bound. It is looked for at every tick, so one and
/// a half were wrong once in ten trials; three would take more than twice as long for errors that the next
/// trial corrects.
const SURE: f64 = 2.0;
/// More slots serve more: above this share of what slots alone would bring …
const GAINS: f64 = 0.6;
/// … and (nearly) nothing more: below this.
const FLAT: f64 = 0.35;
/// After a small step down the present number is good if all of it is needed: above this share. (Lower, and it
/// would stay wherever it is between the knee and half as many again.)
const NEEDED: f64 = 0.92;
/// Share of time without a free slot from which on the slots decide the throughput …
const FULL_SHARE: f64 = 0.7;
/// … or share of them in use: of five hundred, one or two are always free.
const FULL_USE: f64 = 0.85;
/// Waiting requests, as a share of the slots: a healthy pool at 0.8x has fewer, but for a moment.
const PRESSED: f64 = 0.25;
/// After so many stretches it is read off as it is.
const STRETCHES_MAX: u32 = 16;
/// The slots in use must have differed by this share of the step, or the trial has shown nothing.
const FILLED: f64 = 0.3;

/// What happened over a stretch with one number of slots.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stretch {
    pub(super) seconds: f64,
    pub(super) slot_s: f64,
    pub(super) full_s: f64,
    pub(super) waiting_s: f64,
    pub(super) count: f64,
    pub(super) cost: f64,
    pub(super) cost_squares: f64,
    pub(super) overloaded: f64,
    pub(super) fresh: f64,
    pub(super) fresh_sum_s: f64,
    pub(super) timed: f64,
    pub(super) samples: f64,
    pub(super) sum_s: f64,
    pub(super) squares_s2: f64,
    pub(super) peak: u32,
    pub(super) ticks: u32,
    /// Stretches this is the sum of.
    pub(super) parts: u32,
}

impl Stretch {
    pub(super) fn take(&mut self, seen: &SlotUse) {
        self.seconds += seen.seconds;
        self.slot_s += seen.slot_s;
        self.full_s += seen.full_s;
        self.waiting_s += seen.waiting_s;
        self.count += seen.succeeded as f64;
        self.cost += seen.succeeded_cost;
        self.cost_squares += seen.succeeded_cost_squares;
        self.overloaded += seen.overloaded as f64;
        self.fresh += seen.fresh as f64;
        self.fresh_sum_s += seen.fresh_sum_s;
        self.timed += seen.timed as f64;
        self.samples += seen.samples as f64;
        self.sum_s += seen.service_sum_s;
        self.squares_s2 += seen.service_squares_s2;
        self.peak = self.peak.max(seen.in_use_peak);
        self.ticks += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.slot_s += other.slot_s;
        self.full_s += other.full_s;
        self.waiting_s += other.waiting_s;
        self.count += other.count;
        self.cost += other.cost;
        self.cost_squares += other.cost_squares;
        self.overloaded += other.overloaded;
        self.fresh += other.fresh;
        self.fresh_sum_s += other.fresh_sum_s;
        self.timed += other.timed;
        self.samples += other.samples;
        self.sum_s += other.sum_s;
        self.squares_s2 += other.squares_s2;
        self.peak = self.peak.max(other.peak);
        self.ticks += other.ticks;
        self.parts += 1;
    }

    /// Requests that ended and teach.
    pub(super) fn finished(&self) -> f64 {
        self.count + self.overloaded
    }

    /// Cost per second that succeeded.
    pub(super) fn throughput(&self) -> f64 {
        self.cost / self.seconds
    }

    /// Slots in use, on average.
    pub(super) fn in_use(&self) -> f64 {
        self.slot_s / self.seconds
    }

    /// Mean service time, seconds; of work that began in it, if there is enough.
    pub(super) fn service_s(&self) -> f64 {
        if self.fresh * 2.0 >= self.timed && self.fresh > 0.0 {
            self.fresh_sum_s / self.fresh
        } else {
            self.sum_s / self.timed
        }
    }

    /// Whether `slots` decided the throughput: there was hardly ever one free, or hardly one.
    pub(super) fn is_full(&self, slots: u32) -> bool {
        self.full_s > FULL_SHARE * self.seconds || self.in_use() > FULL_USE * f64::from(slots)
    }

    /// Whether so many waited, on average, that it was no chance.
    pub(super) fn is_pressed(&self, slots: u32) -> bool {
        self.waiting_s > (PRESSED * f64::from(slots)).max(1.0) * self.seconds
    }

    /// Squared standard error of the logarithm of the throughput.
    fn variance(&self, scatter: f64) -> f64 {
        // Of work that is dear now and then, as much scatters as it is dear.
        let by_cost = self.cost_squares / (self.cost * self.cost);
        let by_count = scatter / self.count.max(1.0);
        by_cost.max(by_count) + NOISE * NOISE / f64::from(self.parts.max(1))
    }
}

/// A trial that is on: two numbers of slots, and what happened with each.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) low: (u32, Stretch),
    pub(super) high: (u32, Stretch),
    /// The higher number is the one on trial.
    pub(super) upward: bool,
    /// The number on trial is in force, not the present one.
    pub(super) away: bool,
    pub(super) lasted_s: f64,
    /// Not a step, but where the service time puts the knee.
    pub(super) guided: bool,
}

impl Trial {
    const fn is_high(&self) -> bool {
        self.upward == self.away
    }

    pub(super) fn side(&mut self) -> &mut Stretch {
        if self.is_high() {
            &mut self.high.1
        } else {
            &mut self.low.1
        }
    }

    pub(super) const fn limit(&self) -> u32 {
        if self.is_high() {
            self.high.0
        } else {
            self.low.0
        }
    }

    pub(super) const fn home(&self) -> &(u32, Stretch) {
        if self.upward { &self.low } else { &self.high }
    }

    pub(super) const fn other(&self) -> &(u32, Stretch) {
        if self.upward { &self.high } else { &self.low }
    }
}

/// What a trial comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Finding {
    /// Nothing yet.
    Open,
    /// The higher number serves (nearly) as much more as it is higher.
    Gains,
    /// The lower number serves as much.
    Flat,
    /// The knee is here, slots, and this is the standard error of its logarithm.
    Knee(f64, f64),
    /// The additional slots found no work.
    Unused,
}

/// The question and the store it is put to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    /// Logarithm of the step.
    pub(super) step: f64,
    /// Whether anything between the two would do as well; else the knee is to be read off.
    pub(super) coarse: bool,
    /// The standard error of the knee's logarithm at which it is read off.
    pub(super) sharp: f64,
    /// Variance of the service time over its squared mean.
    pub(super) scatter: f64,
    /// Both numbers have had their time.
    pub(super) whole: bool,
}

/// The evidence of two numbers of slots.
pub(super) fn weigh(low: &Stretch, high: &Stretch, question: Question) -> Finding {
    let Question {
        step,
        coarse,
        sharp,
        scatter,
        whole,
    } = question;
    if high.cost <= 0.0 && low.cost <= 0.0 {
        return Finding::Open;
    }
    let more = (high.in_use() / low.in_use()).ln();
    if !more.is_finite() || more < FILLED * step {
        return if whole {
            Finding::Unused
        } else {
            Finding::Open
        };
    }
    if low.cost <= 0.0 || high.cost <= 0.0 {
        // One of them served nothing: as clear as it gets, once it has had its time.
        return match whole {
            false => Finding::Open,
            true if low.cost <= 0.0 => Finding::Gains,
            true => Finding::Flat,
        };
    }
    let gain = (high.throughput() / low.throughput()).ln();
    let error = (low.variance(scatter) + high.variance(scatter)).sqrt();
    let (least, most) = (gain - SURE * error, gain + SURE * error);
    let gains = if coarse { GAINS } else { NEEDED };
    if least > gains * more {
        Finding::Gains
    } else if most < FLAT * more {
        Finding::Flat
    } else if error < sharp || low.parts + high.parts >= STRETCHES_MAX {
        Finding::Knee(low.in_use() * gain.clamp(0.0, more).exp(), error)
    } else {
        Finding::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` slots for `seconds` on a store of 20 slots and 1,000 a second.
    fn stretch(n: f64, seconds: f64) -> Stretch {
        let count = 1_000.0 * (n / 20.0).min(1.0) * seconds;
        Stretch {
            seconds,
            slot_s: n * seconds,
            count,
            cost: count,
            cost_squares: count,
            parts: 4,
            ..Stretch::default()
        }
    }

    const QUESTION: Question = Question {
        step: std::f64::consts::LN_2,
        coarse: true,
        sharp: 0.07,
        scatter: 1.0,
        whole: true,
    };

    fn of(low: f64, high: f64, seconds: f64) -> Finding {
        let step = (high / low).ln();
        let question = Question { step, ..QUESTION };
        weigh(&stretch(low, seconds), &stretch(high, seconds), question)
    }

    #[test]
    fn below_the_knee_slots_gain_above_it_they_do_not_and_between_it_is_found() {
        assert_eq!(of(5.0, 10.0, 1.0), Finding::Gains);
        let down = Question {
            coarse: false,
            ..QUESTION
        };
        let flat = weigh(&stretch(30.0, 1.0), &stretch(60.0, 1.0), down);
        assert_eq!(flat, Finding::Flat);
        let Finding::Knee(knee, _) = of(14.0, 28.0, 10.0) else {
            panic!("{:?}", of(14.0, 28.0, 10.0));
        };
        assert!((knee - 20.0).abs() < 0.5, "{knee}");
    }

    #[test]
    fn little_evidence_decides_a_big_step_and_no_small_one() {
        assert_eq!(of(5.0, 20.0, 0.1), Finding::Gains);
        assert_eq!(of(16.0, 20.0, 0.1), Finding::Open);
        assert_eq!(of(14.0, 20.0, 5.0), Finding::Gains);
    }

    #[test]
    fn slots_that_found_no_work_and_stretches_without_any() {
        let low = stretch(10.0, 1.0);
        let ask =
            |low: &Stretch, high: &Stretch, whole| weigh(low, high, Question { whole, ..QUESTION });
        assert_eq!(ask(&low, &stretch(10.5, 1.0), true), Finding::Unused);
        assert_eq!(ask(&low, &stretch(10.5, 1.0), false), Finding::Open);
        let nothing = Stretch {
            cost: 0.0,
            count: 0.0,
            ..stretch(20.0, 1.0)
        };
        assert_eq!(ask(&low, &nothing, true), Finding::Flat);
        assert_eq!(ask(&nothing, &nothing, true), Finding::Open);
        assert_eq!(
            ask(&Stretch::default(), &Stretch::default(), true),
            Finding::Open
        );
    }
}
