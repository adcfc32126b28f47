//! The limit that finds itself: trials of fewer and of more slots, judged by the throughput.
//!
//! There is no baseline to drift and none to be pinned. While the lane is full, a trial gives some work another
//! number of slots for a moment; [`weigh`] says what that did to the throughput. Trials are of two
//! thirds and of half as many again, the first ones of four times as many: a big step shows in some dozen completions
//! what a small one shows in thousands, and with two points the knee between them can be read off. Between trials
//! the lane rests, in the end twenty times as long: they take some 5 % of the time.
//!
//! The service time only guides: if the store answered faster a moment ago with fewer slots in use, a trial
//! goes to where that puts the knee, full or not. And it vetoes growth while a store is sick.
//!
//! | state | left when | to |
//! |---|---|---|
//! | watching | the lane is full and the rest is over; or it is crowded, by what it did with fewer in use | trial |
//! | watching | most work ends overloaded, or its P90 is over the ceiling | watching, a tenth fewer slots |
//! | trial, settling | the slots are down to the number and a service time has passed | trial, measuring |
//! | trial, measuring | the evidence is clear | watching, with the better number |
//! | trial, measuring | its stretch is over and nothing is clear | trial, settling, the other number |

use super::distress::{Cut, Distress};
use super::evidence::Evidence;
use super::trial::{Finding, Question, Stretch, Trial, weigh};
use super::{Limiter, SlotUse, Wanted};
use crate::priority::mix64;

/// A stretch holds at least so many completions (times their scatter) …
pub(super) const STRETCH_EVENTS: f64 = 25.0;
/// … spans so many service times, or it sees only a part of what it started …
const STRETCH_SERVICES: f64 = 2.0;
/// … and so many ticks.
const STRETCH_TICKS: u32 = 3;
/// A verdict may come from so many completions (times their scatter) on.
const VERDICT_EVENTS: f64 = 8.0;
/// Another number is measured for at most so many stretches before the present one is looked at again …
const AWAY_STRETCHES: f64 = 8.0;
/// … and for as many times as much as is known of that.
const AWAY_TIMES: f64 = 2.0;
/// The present number is known well by as many full stretches as [`Evidence`] keeps, or so many completions (times scatter).
const KNOWN_EVENTS: f64 = 400.0;
/// A trial is of half as many slots again, or of two thirds; of four times and a quarter, when the last one succeeded
/// or nothing is known yet. As logarithms.
const STEP: f64 = 0.405;
const STEP_BIG: f64 = 2.0 * std::f64::consts::LN_2;
/// The knee is read off when its standard error, as a logarithm, is down to this: some 400 exponential completions
/// each way …
const SHARP: f64 = 0.07;
/// … or more, where a second brings them: a real store has no edge where its room ends, and what every step up
/// still gains adds up …
const SHARP_BEST: f64 = 0.04;
const SHARP_BEST_S: f64 = 1.0;
/// … or half as many in the first search, which goes on, on a quiet service, for minutes.
const SHARP_FIRST: f64 = 0.1;
/// Slots above the knee, so that a short gap in one does not idle the store.
const HEADROOM: f64 = 1.05;
/// … and rounded up from this much of a slot on.
const ROUND_UP: f64 = 0.25;
/// A knee that is so far (a logarithm) above the present number is worth a move: above the knee, more slots
/// seem to serve more by chance half of the time.
const MOVE_UP_MIN: f64 = 0.05;
/// … and so many standard errors: with one and a half of them one trial in fifteen above the knee moved up, and on ten
/// requests a second, where looks down are rare, the limit climbed.
const UP_ERRORS: f64 = 2.0;
/// … and one that, with the headroom, is so far below it.
const MOVE_DOWN_MIN: f64 = 0.08;
/// After trials up and down that found nothing the lane rests this many times the length of the last look up before
/// it looks up again, twice as long after each further one, to the most …
const REST_MIN: f64 = 2.0;
const REST_MAX: f64 = 20.0;
/// A look down costs throughput, below the knee: a step some hundred completions, to a guess some dozen. After one that
/// lost some, or after a change of the store, so many completions (times their scatter) must have been served
/// before the next step …
const DOWN_EVENTS: f64 = 8_000.0;
/// … or a guess, that it costs some per cent at the most …
const GUESS_EVENTS: f64 = 4_000.0;
/// … and twice as many before each further step, to so many times.
const DOWN_TIMES_MAX: f64 = 4.0;
/// … or at once, if the knee must lie below this part of the slots in use: a store that is buried has no throughput to
/// lose.
const BURIED: f64 = 4.0;
/// A trial of a guess goes no further down than by this factor.
const GUESS_MAX: f64 = 16.0;
/// Service times that differ by this much, as a logarithm, from what was settled on, and by so many standard
/// errors, twice running: another store, and the rest is over.
const CHANGED: f64 = 0.35;
const CHANGED_ERRORS: f64 = 4.0;
/// Less than this share of the throughput is less, if a queue forms too.
const LESS: f64 = 0.8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Auto {
    base: u32,
    bounds: (u32, u32),
    distress: Distress,
    rule: &'static str,
    /// Time it has seen, seconds.
    now_s: f64,
    open: Stretch,
    /// The stretch begins when the slots are down to the limit and this time has come.
    settled_at_s: Option<f64>,
    service_p90_s: f64,
    known: Evidence,
    trial: Option<Trial>,
    /// The next trial.
    upward: bool,
    big: bool,
    /// The last trial was the other way, and found nothing.
    other_failed: bool,
    /// The first search: nothing has been settled on yet, by trial.
    searching: bool,
    /// The last look was down: the next is up.
    look_up: bool,
    /// A look found no work for more slots: once more of it waits, the rest is over.
    idle: bool,
    /// The last move was a guess: it is to be looked at before anything else.
    unsure: bool,
    /// The last stretch was crowded.
    guessed: bool,
    /// Completions since the last look down that lost some, or the last change of the store.
    credit: f64,
    /// How many times [`DOWN_EVENTS`] the next step down waits for.
    down_times: f64,
    /// What the service time was before it grew, seconds; 0 if it has not.
    before_s: f64,
    rest_until_s: f64,
    rest: f64,
    /// How long the last look up took, seconds.
    look_s: f64,
    /// Service time that was settled on, seconds; 0 before.
    reference_s: f64,
    changed: u32,
    jitter: u64,
}

impl Auto {
    pub(crate) fn new(slots: u32, bounds: (u32, u32), ceiling_s: Option<f64>, seed: u64) -> Self {
        Self {
            base: slots,
            bounds,
            distress: Distress::new(ceiling_s),
            rule: "initial",
            now_s: 0.0,
            open: Stretch::default(),
            settled_at_s: None,
            service_p90_s: 0.0,
            known: Evidence::new(slots),
            trial: None,
            upward: true,
            // It may be wrong by any factor.
            big: true,
            other_failed: false,
            searching: true,
            look_up: false,
            idle: false,
            unsure: false,
            guessed: false,
            credit: 0.0,
            down_times: 1.0,
            before_s: 0.0,
            rest_until_s: 0.0,
            rest: REST_MIN,
            look_s: 0.0,
            reference_s: 0.0,
            changed: 0,
            jitter: seed,
        }
    }

    /// Takes in a tick; `true` when it can be measured.
    fn take(&mut self, seen: &SlotUse) -> bool {
        self.now_s += seen.seconds;
        self.credit += seen.finished() as f64;
        self.service_p90_s = seen.service_p90_s;
        if seen.stalled {
            // What a stall did to one side of a trial says nothing of the slots.
            self.open = Stretch::default();
            return false;
        }
        if let Some(at_s) = self.settled_at_s {
            if seen.in_use > seen.limit {
                // Still in debt: the service time begins when it is paid.
                self.settle();
            } else if self.now_s >= at_s {
                self.settled_at_s = None;
                self.open = Stretch::default();
            }
            return false;
        }
        self.open.take(seen);
        true
    }

    /// Nothing is measured before the work that runs has been replaced.
    ///
    /// Some is about to end and some has just begun: on average it needs the mean residual life, which is a service
    /// time for exponential service and five for a coefficient of variation of 3. (With one, new slots
    /// seemed to serve more for as long as only their short work came back.)
    fn settle(&mut self) {
        self.settled_at_s = Some(self.now_s + self.known.residual_s(self.known.service_s));
        self.open = Stretch::default();
    }

    /// Whether the open stretch is as long as so many.
    fn is_whole(&self, stretches: f64) -> bool {
        let open = &self.open;
        open.ticks >= STRETCH_TICKS
            && open.finished() >= stretches * STRETCH_EVENTS * self.known.scatter
            && self.known.knows_times(open, stretches)
            // At the very beginning only short work has come back; by Little's law this knows.
            && open.finished() >= STRETCH_SERVICES * self.known.residual_s(1.0) * open.in_use()
            && open.seconds >= STRETCH_SERVICES * self.known.residual_s(open.service_s())
    }

    fn watch(&mut self) {
        if !self.is_whole(1.0) {
            return;
        }
        let mut stretch = Stretch::default();
        stretch.add(&std::mem::take(&mut self.open));
        self.known.note(&stretch, self.base);
        if self.distressed(&stretch) || self.is_crowded(&stretch) {
            return;
        }
        if !stretch.is_full(self.base) {
            self.changed = 0;
            self.known.note_spare(stretch);
            return;
        }
        self.known.note_full(stretch);
        self.look_for_change(&stretch);
        if self.idle && stretch.is_pressed(self.base) {
            self.idle = false;
            self.rest_until_s = self.now_s;
            self.rest = REST_MIN;
        }
        if self.now_s >= self.rest_until_s {
            self.look_about(&stretch);
        }
    }

    /// Whether the store answered so much faster with fewer in use that this is looked into.
    fn is_crowded(&mut self, stretch: &Stretch) -> bool {
        let guess = self.known.guess(stretch, self.searching);
        // Not for one stretch alone: there may have been something dear in it.
        let again = std::mem::replace(&mut self.guessed, guess.is_some());
        let Some(knee) = guess else {
            return false;
        };
        if !again && !self.searching {
            return false;
        }
        let affordable = self.may_look_down(GUESS_EVENTS);
        (affordable || knee * BURIED < stretch.in_use()) && self.look_at(knee, stretch)
    }

    /// Begins the trial that is due, if one is.
    fn look_about(&mut self, last: &Stretch) {
        let (home, contiguous) = self.known.home();
        let known = contiguous || home.count >= KNOWN_EVENTS * self.known.scatter;
        if self.before_s > 0.0 && known && self.credit >= GUESS_EVENTS * self.known.scatter {
            let knee = home.in_use() * std::mem::take(&mut self.before_s) / home.service_s();
            if self.look_at(knee, &home) {
                return;
            }
        }
        let uncrowded = self.known.is_uncrowded(&home);
        let down = known && self.may_look_down(DOWN_EVENTS * self.down_times) && !uncrowded;
        let pressed = last.is_pressed(self.base);
        if self.unsure && pressed {
            self.unsure = false;
            self.big = true;
            self.step(true, home);
        } else if self.searching && !self.upward && uncrowded {
            // No fewer are needed, as far as can be told; and no more.
            self.settled(home.service_s());
        } else if self.searching && (known || pressed) {
            // A look down waits until the present is known well.
            let _ = self.upward && self.step(true, home)
                || down && self.step(false, home)
                || known && self.step(true, home);
        } else if known {
            // In turn: where thousands are served a second, a look down is always due.
            let down = down && !self.look_up;
            let _ = down && self.step(false, home) || self.step(true, home);
        }
    }

    /// Whether enough was served for a look down that is worth so many completions.
    fn may_look_down(&self, events: f64) -> bool {
        self.searching || self.credit >= events * self.known.scatter
    }

    /// Begins a trial of what would be the knee.
    fn look_at(&mut self, knee: f64, home: &Stretch) -> bool {
        let high = self.base.min(home.peak.max(1));
        let low = (knee * HEADROOM).max(home.in_use() / GUESS_MAX).ceil();
        self.begin((low as u32, high), *home, false, true)
    }

    /// Begins a trial of a step up or down, if there is one to make.
    fn step(&mut self, upward: bool, home: Stretch) -> bool {
        let base = f64::from(self.base);
        let step = if self.big { STEP_BIG } else { STEP };
        if !upward {
            let low = ((base / step.exp()).round() as u32).min(self.base.saturating_sub(1));
            return self.begin((low, self.base), home, false, false);
        }
        let mut high = ((base * step.exp()).round() as u32).max(self.base + 1);
        if self.known.is_sick() {
            // As far as it was in health, but no further.
            high = high.min(self.known.healthy_slots);
        }
        self.begin((self.base, high), home, true, false)
    }

    fn begin(
        &mut self,
        (low, high): (u32, u32),
        home: Stretch,
        upward: bool,
        guided: bool,
    ) -> bool {
        let (least, most) = self.bounds;
        let (low, high) = (low.clamp(least, most), high.clamp(least, most));
        if low >= high {
            return false;
        }
        let mut trial = Trial {
            low: (low, Stretch::default()),
            high: (high, Stretch::default()),
            upward,
            away: false,
            lasted_s: 0.0,
            guided,
        };
        *trial.side() = home;
        trial.away = true;
        self.trial = Some(trial);
        self.settle();
        self.rule = match (upward, guided) {
            (true, _) => "trial of more",
            (false, false) => "trial of fewer",
            (false, true) => "trial of fewer: crowded",
        };
        true
    }

    fn measure(&mut self, mut trial: Trial) {
        let enough = self.open.finished() >= VERDICT_EVENTS * self.known.scatter
            && self.open.ticks >= STRETCH_TICKS
            && self.open.seconds >= self.known.residual_s(self.open.service_s());
        if !enough {
            self.trial = Some(trial);
            return;
        }
        let stretches = match trial.away {
            true => AWAY_TIMES * trial.home().1.count / (STRETCH_EVENTS * self.known.scatter),
            false => AWAY_TIMES * trial.other().1.count / (STRETCH_EVENTS * self.known.scatter),
        };
        let fewer = !trial.upward && trial.away;
        let pressed = !trial.high.1.is_pressed(trial.high.0) && self.open.is_pressed(trial.low.0);
        if fewer && pressed && self.open.throughput() < LESS * trial.high.1.throughput() {
            // Nobody waited before, and now they do, for less is served: no need to know it better.
            self.conclude(&trial, Finding::Gains);
            return;
        }
        let whole = self.is_whole(stretches.clamp(1.0, AWAY_STRETCHES));
        let before = *trial.side();
        trial.side().add(&self.open);
        let question = Question {
            step: f64::from(trial.high.0).ln() - f64::from(trial.low.0).ln(),
            coarse: trial.upward || trial.guided || self.big,
            scatter: self.known.scatter,
            whole: whole || trial.other().1.parts > 1,
        };
        let sharp = match self.searching {
            _ if trial.lasted_s < SHARP_BEST_S => SHARP_BEST,
            true => SHARP_FIRST,
            false => SHARP,
        };
        let mut finding = weigh(&trial.low.1, &trial.high.1, question);
        if let Finding::Knee(knee, error) = finding
            && !trial.suffices(knee, error, sharp, self.searching)
        {
            finding = Finding::Open;
        }
        if finding != Finding::Open {
            self.conclude(&trial, finding);
        } else if whole {
            trial.away = !trial.away;
            self.trial = Some(trial);
            self.settle();
        } else {
            *trial.side() = before;
            self.trial = Some(trial);
        }
    }

    fn conclude(&mut self, trial: &Trial, finding: Finding) {
        let (low, high) = (trial.low.0, trial.high.0);
        let (home, scatter) = (trial.home().0, self.known.scatter);
        let (to, rule) = match finding {
            Finding::Gains => (high, "more serve more"),
            Finding::Flat => (low, "fewer serve as much"),
            Finding::Knee(knee, error) => {
                // Of a few slots, the one too many is the cheaper error.
                let roomy = (knee * HEADROOM - ROUND_UP).ceil();
                let far = match trial.upward {
                    true => (knee / f64::from(home)).ln() > MOVE_UP_MIN.max(UP_ERRORS * error),
                    false => (f64::from(home) / roomy).ln() > MOVE_DOWN_MIN.max(error),
                };
                let to = (roomy as u32).clamp(low, high);
                match trial.used(scatter).filter(|_| far && trial.upward) {
                    Some(used) => (to.max(used), "as many as are used"),
                    None => (if far { to } else { home }, "the knee"),
                }
            }
            Finding::Unused => {
                let wanted = trial.upward && trial.low.1.is_pressed(low);
                let used = trial.used(scatter).filter(|_| wanted);
                (used.unwrap_or(home), "as many as are used")
            }
            Finding::Open => (home, "nothing shown"),
        };
        self.rule = rule;
        self.trial = None;
        self.distress.tried(self.now_s);
        self.settle();
        if to == home {
            self.found_nothing(trial);
            return;
        }
        self.base = to;
        self.forget();
        self.unsure = trial.guided;
        self.before_s = 0.0;
        if !trial.upward && finding != Finding::Flat {
            self.credit = 0.0;
        }
        if !matches!(finding, Finding::Gains | Finding::Flat) {
            return;
        }
        let away = trial.other().1;
        if !trial.upward && self.known.is_uncrowded(&away) {
            // Work takes no longer than it did in calm: fewer could only lose.
            self.searching = false;
            return;
        }
        self.upward = trial.upward;
        self.big = true;
        if away.is_full(to) && !trial.guided {
            // What was on trial is now the present, and has just been measured.
            self.known.note_full(away);
            self.known.service_s = away.service_s();
            self.step(trial.upward, away);
        }
    }

    /// Another number: what was seen with the last one guides no more.
    fn forget(&mut self) {
        self.known.full.clear();
        self.upward = true;
        self.big = false;
        self.look_up = false;
        self.idle = false;
        self.other_failed = false;
        self.reference_s = 0.0;
        self.rest_until_s = self.now_s;
        self.rest = REST_MIN;
    }

    /// The present number is as good as it gets, as far as this trial can tell.
    fn found_nothing(&mut self, trial: &Trial) {
        if trial.guided {
            // Slower, not crowded: that is how it is now.
            self.known.spare.clear();
            self.before_s = 0.0;
            self.reference_s = trial.home().1.service_s();
        }
        if trial.upward {
            self.look_s = trial.lasted_s;
        }
        self.look_up = !trial.upward;
        if !trial.upward {
            self.credit = 0.0;
            if !trial.guided && !self.searching {
                self.down_times = (2.0 * self.down_times).min(DOWN_TIMES_MAX);
            }
        }
        if std::mem::replace(&mut self.big, false) && !trial.upward {
            // Less than a quarter is too few; two thirds may still do.
            self.upward = false;
            return;
        }
        self.idle |= trial.is_unused();
        let both = std::mem::replace(&mut self.other_failed, true);
        if self.searching && !both {
            self.upward = !trial.upward;
            return;
        }
        self.settled(trial.home().1.service_s());
    }

    /// Neither more nor fewer: this is it, for now.
    fn settled(&mut self, service_s: f64) {
        self.searching = false;
        self.big = false;
        if self.reference_s <= 0.0 {
            self.reference_s = service_s;
        }
        self.jitter = mix64(self.jitter);
        let spread = 0.5 + (self.jitter >> 40) as f64 / f64::from(1u32 << 24);
        self.rest_until_s = self.now_s + self.rest * self.look_s * spread;
        self.rest = (2.0 * self.rest).min(REST_MAX);
    }

    /// One cut, if the stretch asks for it.
    fn distressed(&mut self, stretch: &Stretch) -> bool {
        let (base, least) = (self.base, self.bounds.0);
        let p90 = (self.now_s, self.service_p90_s);
        match self.distress.look(stretch, p90, base, least) {
            Some(Cut { to, rule, again }) => {
                self.cut_to(to, rule);
                again
            }
            None => false,
        }
    }

    fn cut_to(&mut self, slots: u32, rule: &'static str) {
        if slots != self.base {
            self.rule = rule;
            self.base = slots;
            self.forget();
            self.settle();
        }
    }

    fn look_for_change(&mut self, stretch: &Stretch) {
        if self.reference_s <= 0.0 {
            return;
        }
        let by = (stretch.service_s() / self.reference_s).ln();
        let errors = CHANGED_ERRORS * (self.known.scatter / stretch.samples.max(1.0)).sqrt();
        self.changed = if by.abs() > CHANGED.max(errors) {
            self.changed + 1
        } else {
            0
        };
        if self.changed >= 2 {
            self.changed = 0;
            if by > 0.0 {
                // There may be room for fewer; or it is only slower.
                self.before_s = self.reference_s;
            }
            self.forget();
            self.known.note_full(*stretch);
            self.credit = 0.0;
            self.down_times = 1.0;
        }
    }
}

impl Limiter for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn tick(&mut self, seen: &SlotUse) -> Wanted {
        if let Some(trial) = &mut self.trial {
            trial.lasted_s += seen.seconds;
        }
        if self.take(seen) {
            match self.trial.take() {
                Some(trial) => self.measure(trial),
                None => self.watch(),
            }
        }
        Wanted {
            limit: self.trial.as_ref().map_or(self.base, Trial::limit),
            rule: self.rule,
            trial: self.trial.is_some(),
        }
    }

    fn moved(&mut self, limit: u32) {
        self.base = limit;
        self.bounds = (self.bounds.0.min(limit), self.bounds.1.max(limit));
        self.rule = "by hand";
        self.trial = None;
        self.forget();
        self.searching = true;
        self.big = true;
        self.settle();
    }
}
