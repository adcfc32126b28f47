//! What two numbers of slots do to the throughput: the evidence, and what it amounts to.
//!
//! Below the knee of a store throughput grows with the slots; above it only the service time does. Two points
//! give the knee itself: if the lower one is below it, its throughput per slot is that of an empty store, and
//! the knee is where that line meets the throughput of the upper one,
//! `knee = low * X(high) / X(low)`. With Little's law this is capacity times unloaded service time.

use super::SlotUse;

/// Whatever the counts say, two stretches of the same store differ by this much: other threads, a compaction,
/// a core that was lent away. Standard deviation of the logarithm of a stretch's throughput.
pub(super) const NOISE: f64 = 0.03;
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
/// More slots that are not used up, and in which work takes no longer than this many times as long, are let be …
const CALM: f64 = 1.2;
/// … as far as they were used, on average, and a step more: what does not bind costs nothing, and what is asked for at seven
/// tenths of a capacity says no more of where that ends.
const USED: f64 = 1.5;
/// A verdict that the next trial makes good may come from this standard error on …
const COARSE: f64 = 0.1;
/// … or from this one, in the first search, or where everything stays as it is …
const COARSE_FIRST: f64 = 0.15;
/// … and a move is one of so many of them …
const SURELY_OFF: f64 = 3.0;
/// … on a trial of more than so many times as many slots.
const BIG: f64 = 2.0;
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

    /// Whether a knee that is known with this standard error is acted on, or the trial goes on until it is `sharp`.
    ///
    /// Not sharp enough is good enough for what the next trial makes good: after a big step, a move that is one for
    /// certain, wherever it may end; and staying where one is, when fewer slots were on trial. That one costs
    /// throughput for as long as it lasts, and a knee a little below the present number costs next to nothing.
    pub(super) fn suffices(&self, knee: f64, error: f64, sharp: f64, searching: bool) -> bool {
        let parts = self.low.1.parts + self.high.1.parts;
        if error < sharp || parts >= STRETCHES_MAX {
            return true;
        }
        // Slots that nobody asked for are not above the knee because of that: fewer were on trial, and all that are used
        // are needed.
        let (home, seen) = self.home();
        let used = if self.upward {
            f64::from(*home)
        } else {
            seen.in_use().min(f64::from(*home))
        };
        let off = (knee / used).ln();
        let coarse = if searching || off > -error {
            COARSE_FIRST
        } else {
            COARSE
        };
        let big = f64::from(self.high.0) > BIG * f64::from(self.low.0);
        let moves = big && off.abs() > SURELY_OFF * error;
        error < coarse && (moves || !self.upward && off > -error)
    }

    /// The greater number found no work for all of its slots, so that what it served is what was asked for, and no
    /// capacity.
    pub(super) fn is_unused(&self) -> bool {
        !self.high.1.is_full(self.high.0)
    }

    /// … and then as many of them are good to have as were used, and some more, if work took no longer for it, as far as
    /// so few samples can tell: of a few dozen, one in three would seem to take a fifth longer by chance.
    pub(super) fn used(&self, scatter: f64) -> Option<u32> {
        let ((low, fewer), (high, more)) = (&self.low, &self.high);
        let used = (more.in_use() * USED).round() as u32;
        let error = (scatter * (1.0 / fewer.samples + 1.0 / more.samples)).sqrt();
        let calm = more.service_s() < CALM * error.exp() * fewer.service_s();
        (self.is_unused() && calm).then(|| used.clamp(*low, *high))
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
    /// The knee is here, slots, and this is the standard error of its logarithm: see [`Trial::suffices`].
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
    // No slot serves more than those before it: what lies beyond is chance, and would pass for certainty where little
    // has been seen. (Below nothing is no chance alone: a store can be buried.)
    let (least, most) = (gain.min(more) - SURE * error, gain + SURE * error);
    let gains = if coarse { GAINS } else { NEEDED };
    if least > gains * more {
        Finding::Gains
    } else if most < FLAT * more {
        Finding::Flat
    } else {
        Finding::Knee(low.in_use() * gain.clamp(0.0, more).exp(), error)
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
        let small = of(16.0, 20.0, 0.1);
        assert!(
            matches!(small, Finding::Knee(_, error) if error > COARSE_FIRST),
            "{small:?}"
        );
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

    fn trial(low: u32, high: u32, upward: bool) -> Trial {
        Trial {
            low: (low, stretch(f64::from(low), 1.0)),
            high: (high, stretch(f64::from(high), 1.0)),
            upward,
            away: false,
            lasted_s: 1.0,
            guided: false,
        }
    }

    #[test]
    fn a_coarse_verdict_is_one_that_the_next_trial_makes_good() {
        // Knee, standard error, in the first search: a move after a big step, or staying.
        let asks = [
            (trial(5, 20, true), 10.0, 0.12, true, true),
            (trial(5, 20, true), 5.5, 0.12, true, false),
            (trial(14, 20, true), 19.0, 0.09, true, false),
            (trial(14, 20, false), 20.0, 0.12, false, true),
            (trial(14, 20, false), 16.0, 0.12, false, false),
            (trial(5, 20, false), 7.0, 0.12, false, false),
            (trial(5, 20, false), 7.0, 0.12, true, true),
            (trial(5, 20, false), 7.0, 0.09, false, true),
        ];
        for (i, (trial, knee, error, searching, enough)) in asks.into_iter().enumerate() {
            let suffices = trial.suffices(knee, error, 0.04, searching);
            assert_eq!(suffices, enough, "{i}");
            assert!(trial.suffices(knee, 0.03, 0.04, searching), "{i}: sharp");
        }
    }

    #[test]
    fn slots_that_nobody_asked_for_are_not_above_the_knee() {
        // Seven of eight were in use and served as much as was asked for, five serve less: the eight stay.
        let mut calm = trial(5, 8, false);
        calm.high.1.slot_s = 7.0;
        assert!(calm.suffices(7.0, 0.09, 0.04, false));
        assert!(!calm.suffices(6.0, 0.09, 0.04, false));
        let full = trial(5, 8, false);
        assert!(!full.suffices(7.0, 0.09, 0.04, false));
    }

    #[test]
    fn slots_without_work_are_kept_a_step_beyond_what_was_used() {
        let mut spare = trial(5, 20, true);
        assert_eq!(spare.used(1.0), None, "all were in use");
        spare.high.1.slot_s = 7.0;
        (spare.high.1.timed, spare.high.1.samples) = (100.0, 100.0);
        spare.high.1.sum_s = 2.0;
        (spare.low.1.timed, spare.low.1.samples) = (100.0, 100.0);
        spare.low.1.sum_s = 2.0;
        assert_eq!(spare.used(1.0), Some(11));
        spare.high.1.sum_s = 3.0;
        assert_eq!(spare.used(1.0), None, "and work took longer for it");
        spare.low.1.samples = 10.0;
        assert_eq!(spare.used(1.0), Some(11), "or so it seemed");
    }

    #[test]
    fn a_gain_beyond_what_the_slots_can_bring_is_chance() {
        let mut lucky = stretch(30.0, 0.2);
        (lucky.count, lucky.cost, lucky.cost_squares) = (30.0, 30.0, 30.0);
        lucky.seconds = 0.01;
        lucky.slot_s = 0.3;
        let question = Question {
            step: 1.5_f64.ln(),
            ..QUESTION
        };
        let finding = weigh(&stretch(20.0, 1.0), &lucky, question);
        assert!(matches!(finding, Finding::Knee(..)), "{finding:?}");
    }
}
