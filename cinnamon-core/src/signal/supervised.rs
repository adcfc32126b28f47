//! One signal under supervision: what of it is believed, and how much of that may count.
//!
//! | what comes | what follows |
//! |---|---|
//! | a pressure in range, newer than the last | the law learns from it |
//! | the same reading again | nothing; it grows old |
//! | unavailable, not a number, out of range, a panic | its grip fades from now on |
//! | nothing: a sample that hangs, a gauge that stands still in time | its grip fades once the last reading is a horizon old |
//! | faded for two horizons | ignored: no budget |
//! | a good reading after that | it starts afresh |
//!
//! Whatever its law wants, a budget leaves all but its *authority* of the capacity alone, moves by no more
//! than [`SLEW`] a tick, and never falls below the floor.

use std::borrow::Cow;

use crate::budget::BUDGET_FLOOR;
use crate::clock::Instant;
use crate::config::{Config, SignalSettings};
use crate::priority::Rank;
use crate::signal::binary::BinaryLaw;
use crate::signal::law::{Flow, PressureLaw};
use crate::signal::{
    Authority, Culprit, Dynamics, Mode, Reading, SignalFault, SignalSnapshot, SignalState, Symptom,
};

/// A budget moves by no more than this share of the capacity a tick, whatever its signal says: a gauge that
/// jumps is one bad number, not the end of the world.
pub(crate) const SLEW: f64 = 0.1;
/// What a signal that infers may take of the capacity until something confirms it, and any signal that
/// does not respond.
const AUTHORITY_INFERRING: f64 = 0.5;
/// What one may take that still does not respond.
const AUTHORITY_UNRESPONSIVE: f64 = 0.1;
/// A signal does not respond when the load was halved (a little scatter allowed), or cut by all that the
/// signal may take …
const HALVED: f64 = 0.55;
const SPENT: f64 = 1.05;
/// … and for so many `T` and delays its pressure stayed within this much …
const RESPONSE_TIMES: f64 = 5.0;
const FLAT: f64 = 0.05;
/// … away from the target: one that is held at its target stands still, too. (As a share of the pressure,
/// and without the delay, a follower six targets behind whose time was declared five times too short was
/// taken for stuck while it caught up.)
const OFF_TARGET: f64 = 0.02;
/// … although its budget was moved by this factor in the meantime, or there is no more to take. (One that is
/// nearly at its target is hardly asked for anything.)
const ASKED: f64 = 0.1;
/// Once it was found not to respond, it must move by this much to be believed again.
const MOVED: f64 = 0.15;
/// So many periods without a reading are no fault yet.
const LATE_PERIODS: f64 = 3.0;
/// A grip fades over so many horizons.
const FADE_HORIZONS: f64 = 2.0;

/// What is known of a signal from the beginning.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) name: String,
    pub(crate) dynamics: Dynamics,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// Bit per lane.
    pub(crate) lanes: u64,
    pub(crate) authority: Authority,
    pub(crate) symptom: Symptom,
    pub(crate) period_s: f64,
    pub(crate) horizon_s: f64,
    /// Authority and period as it says itself.
    pub(crate) said: (Authority, f64),
}

impl Profile {
    /// Within this time a gauge that has stopped is not missed: the signal's own `T`, or three periods.
    pub(crate) fn default_horizon_s(dynamics: Dynamics, period_s: f64) -> f64 {
        let time_s = dynamics.time().as_secs_f64();
        time_s.max(LATE_PERIODS * period_s)
    }
}

#[derive(Debug)]
enum Law {
    Pressure(PressureLaw),
    Binary(BinaryLaw),
}

impl Law {
    fn forget(&mut self) {
        match self {
            Self::Pressure(law) => law.forget(),
            Self::Binary(law) => law.forget(),
        }
    }
}

/// Watches whether the pressure answers to the load.
#[derive(Debug, Default)]
struct Response {
    /// Least and greatest pressure since it began to stand still.
    band: Option<(f64, f64)>,
    flat_s: f64,
    /// The budget at the time.
    budget: Option<f64>,
    /// 0 responds, 1 half of its authority is gone, 2 nearly all.
    lost: u8,
    /// Where it stood still.
    level: f64,
}

impl Response {
    /// `held` when the pressure is where a law would hold it.
    fn read(&mut self, pressure: f64, held: bool) {
        let moved = (pressure - self.level).abs() > MOVED;
        if self.lost > 0 && moved {
            *self = Self::default();
        }
        let (least, most) = self.band.unwrap_or((pressure, pressure));
        let (least, most) = (least.min(pressure), most.max(pressure));
        let flat = most - least <= FLAT && !held;
        if flat {
            self.band = Some((least, most));
        } else {
            self.band = Some((pressure, pressure));
            self.flat_s = 0.0;
            self.budget = None;
        }
    }

    /// `cut` when the load was cut by as much as should show, `spent` when by all that may be, `own` what the
    /// signal may take by itself.
    fn tick(
        &mut self,
        dt_s: f64,
        budget: f64,
        (cut, spent): (bool, bool),
        own: f64,
        time_s: f64,
    ) -> bool {
        // Once it was found out, what it is given back is no cut, and it need not be cut again.
        if !cut && self.lost == 0 {
            return false;
        }
        self.flat_s += dt_s;
        let since = self.budget.get_or_insert(budget);
        let asked = self.lost > 0 || spent || (budget / *since).ln().abs() >= ASKED;
        if self.flat_s < RESPONSE_TIMES * time_s || self.lost == 2 || !asked {
            return false;
        }
        self.lost = if own <= AUTHORITY_INFERRING {
            2
        } else {
            self.lost + 1
        };
        self.flat_s = 0.0;
        self.budget = None;
        self.level = self.band.map_or(0.0, |(least, most)| (least + most) / 2.0);
        true
    }
}

/// What became of a signal in a tick, for the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    Engaged { pressure: f64, budget: f64 },
    Released,
    Lost(SignalFault),
    Ignored,
    Back,
    Unresponsive { authority: f64 },
}

/// One signal, its law and its supervisor.
#[derive(Debug)]
pub(crate) struct Supervised {
    profile: Profile,
    law: Law,
    mode: Mode,
    pressure: Option<f64>,
    /// When it was true.
    read_at: Option<Instant>,
    /// The same as it said itself: the same time again is the same reading.
    said_at: Option<Instant>,
    /// When the last good reading came in, whenever it was true.
    heard_at: Option<Instant>,
    fault: Option<SignalFault>,
    fault_detail: String,
    note: Cow<'static, str>,
    /// For how long there has been no good reading, seconds.
    faded_s: f64,
    response: Response,
    /// What was possible when it took hold.
    reference: f64,
    /// The budget in force; nothing while it has no grip.
    budget: Option<f64>,
    /// The budget when it was lost.
    fades_from: f64,
    threshold: Rank,
    cut: Option<Rank>,
    culprits: Vec<Culprit>,
    authority: f64,
    pub(crate) binding: bool,
    bound_s: f64,
    readings: u64,
    faults: [u64; SignalFault::COUNT],
    /// How it stood when a change was last looked for.
    told: (SignalState, Option<SignalFault>),
}

impl Supervised {
    pub(crate) fn new(profile: Profile) -> Self {
        let time_s = profile.dynamics.time().as_secs_f64();
        let law = match profile.dynamics {
            Dynamics::Binary { .. } => Law::Binary(BinaryLaw::new(time_s)),
            // A sample is, on average, half a period old when the next one comes.
            dynamics => Law::Pressure(PressureLaw::new(
                time_s,
                dynamics.delay().as_secs_f64(),
                matches!(dynamics, Dynamics::Integrating { .. }),
            )),
        };
        Self {
            profile,
            law,
            mode: Mode::Enforce,
            pressure: None,
            read_at: None,
            said_at: None,
            heard_at: None,
            fault: None,
            fault_detail: String::new(),
            note: Cow::Borrowed(""),
            faded_s: 0.0,
            response: Response::default(),
            reference: 0.0,
            budget: None,
            fades_from: 0.0,
            threshold: Rank::OPEN,
            cut: None,
            culprits: Vec::new(),
            authority: 0.0,
            binding: false,
            bound_s: 0.0,
            readings: 0,
            faults: [0; SignalFault::COUNT],
            told: (SignalState::Waiting, None),
        }
    }

    pub(crate) const fn profile(&self) -> &Profile {
        &self.profile
    }

    pub(crate) const fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn set_mode(&mut self, mode: Mode) {
        if mode == Mode::Off && self.mode != Mode::Off {
            self.forget();
        }
        self.mode = mode;
    }

    /// Takes over what the settings say of it; the mode, if they now say another.
    pub(crate) fn reconfigure(&mut self, old: &Config, new: &Config) -> Option<Mode> {
        let of = |config: &Config| {
            let name = &self.profile.name;
            let settings = config.signals.iter().find(|s| s.name == *name);
            settings.map_or_else(|| SignalSettings::new(name), Clone::clone)
        };
        let (old, new) = (of(old), of(new));
        self.profile.configure(&new);
        (old.mode != new.mode).then_some(new.mode)
    }

    /// The budget in force, and where it puts the threshold, if it has a grip.
    pub(crate) const fn budget(&self) -> Option<f64> {
        self.budget
    }

    pub(crate) const fn threshold(&self) -> Rank {
        self.threshold
    }

    pub(crate) fn set_threshold(&mut self, threshold: Rank) {
        self.threshold = threshold;
    }

    pub(crate) const fn cut(&self) -> Option<Rank> {
        self.cut
    }

    /// Takes in, at `now`, what a sample brought that was asked for at `asked_at`.
    pub(crate) fn read(
        &mut self,
        now: Instant,
        asked_at: Instant,
        reading: Result<Reading, SignalFault>,
    ) {
        let reading = match reading {
            Ok(reading) => reading,
            Err(fault) => return self.fail(fault, ""),
        };
        let pressure = match &reading.pressure {
            Ok(pressure) => *pressure,
            Err(why) => return self.fail(SignalFault::Unavailable, why),
        };
        if !(pressure >= self.profile.least && pressure <= self.profile.most) {
            let detail = format!(
                "{pressure} is not within {} and {}",
                self.profile.least, self.profile.most
            );
            return self.fail(SignalFault::OutOfRange, &detail);
        }
        let said_at = reading.taken_at.unwrap_or(asked_at);
        // A clock of its own that runs ahead does not make a reading younger than now.
        let at = said_at.min(now);
        if now.nanos_since(at) as f64 * 1e-9 > self.profile.horizon_s {
            return self.fail(SignalFault::Stale, "the value is older than its horizon");
        }
        // Not "later": the controller's clock may have been set back.
        let news = self.said_at != Some(said_at);
        if !news && (self.fault.is_none() || self.age_s(now) > self.profile.horizon_s) {
            return;
        }
        if self.faded_s > 0.0 && self.budget.is_none() {
            // Whatever was known before has nothing to do with this.
            self.forget();
        }
        let dt_s = self
            .read_at
            .filter(|&last| last < at)
            .map_or(self.profile.period_s, |last| span_s(last, at))
            .min(LATE_PERIODS * self.profile.period_s);
        self.readings += 1;
        self.fault = None;
        self.fault_detail.clear();
        self.faded_s = 0.0;
        self.read_at = Some(at);
        self.said_at = Some(said_at);
        self.heard_at = Some(now);
        self.pressure = Some(pressure);
        self.culprits = reading.culprits;
        self.note = reading.note;
        self.cut = reading.cut.map(|priority| Rank::new(priority, 0));
        let held = match self.law {
            Law::Pressure(_) => (pressure - 1.0).abs() <= OFF_TARGET,
            Law::Binary(_) => false,
        };
        self.response.read(pressure, held);
        match &mut self.law {
            Law::Pressure(law) => law.read(pressure, dt_s),
            Law::Binary(law) => law.read(pressure),
        }
    }

    /// One step of `dt_s` seconds. [`Supervised::budget`] holds the budget afterwards. `cut` is what the
    /// cut level of the last reading comes to.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        dt_s: f64,
        flow: &Flow,
        cut: Option<f64>,
    ) -> Option<Change> {
        if self.mode == Mode::Off {
            return None;
        }
        let silent_s = self
            .heard_at
            .map_or(0.0, |at| span_s(at, now).max(self.age_s(now)));
        if self.fault.is_none() && silent_s > self.profile.horizon_s {
            let detail = "no new reading for longer than its horizon";
            self.fail(SignalFault::Stale, detail);
        }
        self.authority = self.authority_share(flow);
        let capacity = flow.capacity.max(flow.admitted);
        let least = (1.0 - self.authority) * capacity;
        let wanted = if self.fault.is_some() {
            self.faded_s += dt_s;
            self.fade(flow)
        } else {
            self.fades_from = self.budget.unwrap_or(0.0);
            let wanted = match &mut self.law {
                Law::Pressure(law) => law.tick(dt_s, flow, least),
                Law::Binary(law) => law.tick(dt_s, flow, least),
            };
            match (wanted, cut) {
                (Some(wanted), Some(cut)) => Some(wanted.min(cut).max(least)),
                (wanted, cut) => wanted.or(cut.map(|cut| cut.max(least))),
            }
        };
        let mut unresponsive = false;
        if let Some(wanted) = wanted {
            let last = self.budget.unwrap_or_else(|| {
                self.reference = flow.possible();
                self.reference
            });
            let halved = flow.admitted <= HALVED * self.reference;
            let spent = last <= SPENT * least;
            let cut = halved || (self.binding && spent);
            let dynamics = self.profile.dynamics;
            let time_s = (dynamics.time() + dynamics.delay()).as_secs_f64();
            let own = self.own_authority(flow);
            unresponsive = self.response.tick(dt_s, last, (cut, spent), own, time_s);
            let slew = SLEW * capacity;
            self.budget = Some(wanted.clamp((last - slew).max(0.0), last + slew));
        } else {
            self.budget = None;
            self.threshold = Rank::OPEN;
            self.response = Response::default();
        }
        self.change(unresponsive)
    }

    /// Counts the time for which it holds a gate.
    pub(crate) fn bind(&mut self, binding: bool, dt_s: f64) {
        self.binding = binding;
        if binding {
            self.bound_s += dt_s;
        }
    }

    pub(crate) fn state(&self) -> SignalState {
        if self.mode == Mode::Off {
            return SignalState::Off;
        }
        match (self.fault, self.budget) {
            (Some(_), Some(_)) => SignalState::Fading,
            (Some(_), None) => SignalState::Ignored,
            (None, Some(_)) => SignalState::Engaged,
            (None, None) if self.readings == 0 => SignalState::Waiting,
            (None, None) => SignalState::Calm,
        }
    }

    pub(crate) fn snapshot(&self, now: Instant) -> SignalSnapshot {
        SignalSnapshot {
            name: self.profile.name.clone(),
            mode: self.mode,
            state: self.state(),
            fault: self.fault,
            fault_detail: self.fault_detail.clone(),
            note: self.note.to_string(),
            pressure: self.pressure,
            age_s: self.age_s(now),
            budget_per_s: self.budget,
            threshold_levels: self.threshold.levels(),
            authority: self.authority,
            unresponsive: self.response.lost > 0,
            binding: self.binding,
            bound_s: self.bound_s,
            readings: self.readings,
            faults: self.faults,
            culprits: self.culprits.clone(),
        }
    }

    fn age_s(&self, now: Instant) -> f64 {
        self.read_at.map_or(0.0, |at| span_s(at, now))
    }

    fn fail(&mut self, fault: SignalFault, detail: &str) {
        self.faults[fault as usize] += 1;
        // A cause that is known is not replaced by its consequence.
        if self.fault.is_none() || fault != SignalFault::Stale {
            self.fault = Some(fault);
            detail.clone_into(&mut self.fault_detail);
        }
    }

    fn forget(&mut self) {
        self.law.forget();
        self.budget = None;
        self.threshold = Rank::OPEN;
        self.pressure = None;
        self.response = Response::default();
        self.cut = None;
        self.culprits.clear();
        self.faded_s = 0.0;
        self.fault = None;
        self.fault_detail.clear();
    }

    /// What is left of the grip of a signal that is lost: from the budget it had to one that holds nobody
    /// back, in equal factors, over two horizons.
    fn fade(&mut self, flow: &Flow) -> Option<f64> {
        self.budget?;
        let open = flow.offered.max(flow.capacity);
        let gone = self.faded_s / (FADE_HORIZONS * self.profile.horizon_s);
        if gone >= 1.0 || self.fades_from <= 0.0 || self.fades_from >= open {
            self.law.forget();
            return None;
        }
        Some(self.fades_from * (open / self.fades_from).powf(gone))
    }

    fn own_authority(&self, flow: &Flow) -> f64 {
        let full = 1.0 - BUDGET_FLOOR;
        match self.profile.authority {
            Authority::Measuring => full,
            Authority::Inferring if flow.confirmed => full,
            Authority::Inferring => AUTHORITY_INFERRING,
        }
    }

    fn authority_share(&self, flow: &Flow) -> f64 {
        let own = self.own_authority(flow);
        match self.response.lost {
            0 => own,
            1 => own.min(AUTHORITY_INFERRING),
            _ => own.min(AUTHORITY_UNRESPONSIVE),
        }
    }

    /// What is new since this was last asked.
    fn change(&mut self, unresponsive: bool) -> Option<Change> {
        let stands = (self.state(), self.fault);
        let (state, fault) = std::mem::replace(&mut self.told, stands);
        match (fault, self.fault) {
            (None, Some(fault)) => return Some(Change::Lost(fault)),
            (Some(_), None) => return Some(Change::Back),
            _ => {}
        }
        match (state, self.state()) {
            (SignalState::Fading, SignalState::Ignored) => Some(Change::Ignored),
            (SignalState::Engaged, SignalState::Calm) => Some(Change::Released),
            (SignalState::Engaged, _) | (_, SignalState::Calm | SignalState::Ignored) => {
                let authority = self.authority_share(&Flow::default());
                unresponsive.then_some(Change::Unresponsive { authority })
            }
            (_, SignalState::Engaged) => Some(Change::Engaged {
                pressure: self.pressure.unwrap_or(0.0),
                budget: self.budget.unwrap_or(0.0),
            }),
            _ => None,
        }
    }
}

fn span_s(from: Instant, to: Instant) -> f64 {
    to.nanos_since(from) as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    const C: f64 = 1_000.0;
    const DT_NS: u64 = 20_000_000;

    fn profile(dynamics: Dynamics, authority: Authority) -> Profile {
        Profile {
            name: "signal".to_owned(),
            dynamics,
            least: 0.0,
            most: 1_000.0,
            lanes: 1,
            authority,
            symptom: Symptom::Other,
            period_s: 0.1,
            horizon_s: Profile::default_horizon_s(dynamics, 0.1),
            said: (authority, 0.1),
        }
    }

    /// A signal in a loop in which everything that its budget allows is let in at once.
    struct Loop {
        signal: Supervised,
        now: Instant,
        flow: Flow,
    }

    impl Loop {
        fn new(dynamics: Dynamics, authority: Authority) -> Self {
            Self {
                signal: Supervised::new(profile(dynamics, authority)),
                now: Instant::ZERO,
                flow: Flow {
                    admitted: 900.0,
                    offered: 900.0,
                    capacity: C,
                    confirmed: false,
                    binds: false,
                    other_binds: false,
                },
            }
        }

        fn read(&mut self, pressure: f64) {
            let reading = Ok(Reading::pressure(pressure));
            self.signal.read(self.now, self.now, reading);
        }

        fn tick(&mut self) -> Option<Change> {
            self.now = self.now.after_nanos(DT_NS);
            let change = self.signal.tick(self.now, 0.02, &self.flow, None);
            let budget = self.signal.budget().unwrap_or(f64::INFINITY);
            self.flow.binds = budget < self.flow.offered;
            self.signal.bind(self.flow.binds, 0.02);
            self.flow.admitted = self.flow.offered.min(budget);
            change
        }

        fn changes(&mut self, ticks: u32) -> Vec<Change> {
            (0..ticks).filter_map(|_| self.tick()).collect()
        }
    }

    fn settling() -> Dynamics {
        Dynamics::settling(Duration::from_secs(1))
    }

    proptest! {
        #[test]
        fn whatever_it_says_it_moves_a_tenth_a_tick_and_leaves_what_is_not_its_to_take(
            said in prop::collection::vec((0u8..8, 0.0..5.0f64), 1..300),
            kind in 0u8..3,
            measuring: bool,
        ) {
            let second = Duration::from_secs(1);
            let dynamics = match kind {
                0 => Dynamics::settling(second),
                1 => Dynamics::integrating(second).delayed(second / 2),
                _ => Dynamics::binary(second),
            };
            let authority = if measuring { Authority::Measuring } else { Authority::Inferring };
            let mut run = Loop::new(dynamics, authority);
            for (what, pressure) in said {
                match what {
                    0 => run.read(f64::NAN),
                    1 => run.read(1e12),
                    2 => run.signal.read(run.now, run.now, Ok(Reading::unavailable("lost"))),
                    3 => run.signal.read(run.now, run.now, Err(SignalFault::Panicked)),
                    4 => {}
                    _ => run.read(pressure),
                }
                for _ in 0..5 {
                    let before = run.signal.budget();
                    run.tick();
                    let budget = run.signal.budget();
                    let least = if measuring { BUDGET_FLOOR * C } else { 0.5 * C };
                    if let Some(budget) = budget {
                        prop_assert!(budget.is_finite() && budget >= least - 1e-9, "{budget}");
                        let last = before.unwrap_or(900.0);
                        prop_assert!((budget - last).abs() <= SLEW * C + 1e-9, "{last} {budget}");
                    } else if let Some(before) = before {
                        // Whoever lets go held nobody back any more.
                        prop_assert!(before > 0.8 * 900.0, "{before}");
                    }
                }
            }
        }
    }

    #[test]
    fn each_change_is_told_once_and_in_order() {
        let mut run = Loop::new(settling(), Authority::Measuring);
        run.read(0.5);
        assert_eq!(run.changes(5), []);
        run.read(1.4);
        let changes = run.changes(5);
        assert!(
            matches!(changes[..], [Change::Engaged { pressure: 1.4, budget }] if budget < 900.0),
            "{changes:?}"
        );
        run.signal
            .read(run.now, run.now, Ok(Reading::unavailable("gone")));
        assert_eq!(run.changes(5), [Change::Lost(SignalFault::Unavailable)]);
        assert_eq!(run.signal.snapshot(run.now).fault_detail, "gone");
        assert_eq!(run.signal.state(), SignalState::Fading);
        assert_eq!(run.changes(100), [Change::Ignored]);
        run.read(0.5);
        assert_eq!(run.changes(5), [Change::Back]);
        assert_eq!(run.signal.state(), SignalState::Calm);
    }

    #[test]
    fn silence_is_a_fault_after_a_horizon_and_its_grip_is_gone_after_two_more() {
        let mut run = Loop::new(settling(), Authority::Measuring);
        run.read(1.4);
        run.changes(49);
        assert_eq!(run.signal.state(), SignalState::Engaged);
        let held = run.signal.budget().unwrap();
        assert_eq!(run.changes(3), [Change::Lost(SignalFault::Stale)]);
        run.changes(48);
        let half = run.signal.budget().unwrap();
        assert!(half > 1.2 * held && half < 900.0, "{held} {half}");
        run.changes(52);
        assert_eq!(run.signal.budget(), None);
    }

    #[test]
    fn the_same_reading_again_is_no_news_and_grows_old() {
        let mut run = Loop::new(settling(), Authority::Measuring);
        let at = run.now;
        let mut lost = Vec::new();
        for _ in 0..60 {
            let reading = Ok(Reading::pressure(1.2).taken_at(at));
            run.signal.read(run.now, run.now, reading);
            lost.extend(run.tick());
        }
        assert_eq!(run.signal.snapshot(run.now).readings, 1);
        assert!(lost.contains(&Change::Lost(SignalFault::Stale)), "{lost:?}");
    }

    #[test]
    fn a_time_in_the_future_is_news_once_and_a_clock_set_back_is_none() {
        let mut run = Loop::new(settling(), Authority::Measuring);
        let ahead = run.now.after_nanos(60_000_000_000);
        for _ in 0..60 {
            let reading = Ok(Reading::pressure(1.2)
                .taken_at(ahead)
                .note("a clock that is ahead"));
            run.signal.read(run.now, run.now, reading);
            run.tick();
        }
        let snapshot = run.signal.snapshot(run.now);
        assert_eq!(
            (snapshot.readings, snapshot.fault),
            (1, Some(SignalFault::Stale))
        );
        assert_eq!(snapshot.note, "a clock that is ahead");

        let mut run = Loop::new(settling(), Authority::Measuring);
        run.now = run.now.after_nanos(3_600_000_000_000);
        run.read(0.5);
        run.tick();
        run.now = Instant::ZERO;
        for _ in 0..100 {
            run.read(1.4);
            run.tick();
        }
        assert_eq!(run.signal.state(), SignalState::Engaged);
    }

    #[test]
    fn a_cut_level_needs_no_pressure_but_has_no_more_authority() {
        let mut run = Loop::new(settling(), Authority::Inferring);
        run.read(0.5);
        for _ in 0..20 {
            run.now = run.now.after_nanos(DT_NS);
            run.signal.tick(run.now, 0.02, &run.flow, Some(100.0));
        }
        assert_eq!(run.signal.budget(), Some(500.0));
        run.flow.confirmed = true;
        for _ in 0..20 {
            run.now = run.now.after_nanos(DT_NS);
            run.signal.tick(run.now, 0.02, &run.flow, Some(100.0));
        }
        assert_eq!(run.signal.budget(), Some(100.0));
    }

    #[test]
    fn what_confirms_it_lifts_the_half_and_what_does_not_answer_to_the_load_loses_it() {
        let mut run = Loop::new(settling(), Authority::Inferring);
        run.flow.confirmed = true;
        for _ in 0..40 {
            run.read(2.0);
            run.changes(5);
        }
        assert!(run.signal.budget().unwrap() < 200.0);
        run.flow.confirmed = false;
        let mut all = Vec::new();
        for _ in 0..60 {
            run.read(2.0);
            all.extend(run.changes(5));
        }
        assert_eq!(run.signal.budget(), Some(900.0), "all but a tenth: {all:?}");
        assert!(matches!(all[..], [Change::Unresponsive { .. }]), "{all:?}");
        run.read(0.8);
        run.tick();
        assert!(!run.signal.snapshot(run.now).unresponsive, "it moved");
    }

    #[test]
    fn switched_off_it_forgets() {
        let mut run = Loop::new(settling(), Authority::Measuring);
        run.read(1.4);
        run.changes(5);
        run.signal.set_mode(Mode::Off);
        run.tick();
        assert_eq!(
            (run.signal.budget(), run.signal.state()),
            (None, SignalState::Off)
        );
        run.signal.set_mode(Mode::Enforce);
        run.tick();
        assert_eq!(run.signal.budget(), None);
    }
}
