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
use crate::explain::SignalDecision;
use crate::priority::Rank;
use crate::signal::binary::BinaryLaw;
use crate::signal::law::{Flow, PressureLaw};
use crate::signal::precise;
use crate::signal::response::{Cut, Response};
use crate::signal::{
    Authority, Culprit, Dynamics, Mode, Reading, Remedy, SignalFault, SignalSnapshot, SignalState,
    Symptom,
};

/// A budget moves by no more than this share of the capacity a tick, whatever its signal says: a gauge that
/// jumps is one bad number, not the end of the world.
pub(crate) const SLEW: f64 = 0.1;
/// What a signal that infers may take of the capacity until something confirms it.
const AUTHORITY_INFERRING: f64 = 0.5;
/// So many periods without a reading are no fault yet.
const LATE_PERIODS: f64 = 3.0;
/// A grip fades over so many horizons.
const FADE_HORIZONS: f64 = 2.0;

/// The gate leaves it to the culprits' throttles for so many settling times: a first rate, and two that are lower.
const PRECISE_SETTLINGS: f64 = 3.0;
/// What the gate feels of a pressure meanwhile: not enough to engage, and too much to let go.
const HELD_BACK: f64 = 0.95;

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
    pub(crate) remedy: Remedy,
    pub(crate) period_s: f64,
    pub(crate) horizon_s: f64,
    /// Authority and period as it says itself.
    pub(crate) said: (Authority, f64),
}

impl Profile {
    /// Within this time a gauge that has stopped is not missed: the signal's own `T`, or three periods; and a
    /// reading is as old as the delay when it comes.
    pub(crate) fn default_horizon_s(dynamics: Dynamics, period_s: f64) -> f64 {
        let time_s = dynamics.time().as_secs_f64();
        time_s.max(LATE_PERIODS * period_s) + dynamics.delay().as_secs_f64()
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
    /// When it was true, how old it was when it came, and for how long there has been none since, seconds. (Not
    /// by the clock: set back by an hour it would hide an hour's silence.)
    read_at: Option<Instant>,
    came_aged_s: f64,
    silent_s: f64,
    /// The same as it said itself: the same time again is the same reading.
    said_at: Option<Instant>,
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
    /// What the cut of the last reading comes to, on its way there.
    cut_budget: Option<f64>,
    threshold: Rank,
    cut: Option<Rank>,
    culprits: Vec<Culprit>,
    /// The last reading names them, under pressure, and nobody has acted on that yet.
    names: bool,
    /// For how long culprits have been named without a break, seconds; nothing while there are none.
    named_s: Option<f64>,
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
            dynamics => Law::Pressure(PressureLaw::new(
                time_s,
                dynamics.delay().as_secs_f64(),
                profile.period_s,
                matches!(dynamics, Dynamics::Integrating { .. }),
            )),
        };
        Self {
            profile,
            law,
            mode: Mode::Enforce,
            pressure: None,
            read_at: None,
            came_aged_s: 0.0,
            silent_s: 0.0,
            said_at: None,
            fault: None,
            fault_detail: String::new(),
            note: Cow::Borrowed(""),
            faded_s: 0.0,
            response: Response::default(),
            reference: 0.0,
            budget: None,
            fades_from: 0.0,
            cut_budget: None,
            threshold: Rank::OPEN,
            cut: None,
            culprits: Vec::new(),
            names: false,
            named_s: None,
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

    /// The budget in force, if it has a grip.
    pub(crate) fn budget(&self) -> Option<f64> {
        match (self.budget, self.cut_budget) {
            (Some(budget), Some(cut)) => Some(budget.min(cut)),
            (budget, cut) => budget.or(cut),
        }
    }

    pub(crate) const fn threshold(&self) -> Rank {
        self.threshold
    }

    /// Puts the threshold where `walk` says the budgets end, but never lower for a cut than the cut itself.
    pub(crate) fn set_threshold(&mut self, walk: impl Fn(f64) -> Rank) {
        let by_law = self.budget.map_or(Rank::OPEN, &walk);
        let by_cut = match (self.cut_budget, self.cut) {
            (Some(budget), Some(cut)) => walk(budget).max(cut),
            _ => Rank::OPEN,
        };
        self.threshold = by_law.min(by_cut);
    }

    /// Whether it has a grip on the gate, by its law or by a cut.
    pub(crate) const fn has_grip(&self) -> bool {
        self.budget.is_some() || self.cut_budget.is_some()
    }

    /// `T`, the delay and a period: within which an answer must show.
    fn time_s(&self) -> f64 {
        let dynamics = self.profile.dynamics;
        (dynamics.time() + dynamics.delay()).as_secs_f64() + self.profile.period_s
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
        if !news && (self.fault.is_none() || self.age_s() > self.profile.horizon_s) {
            return;
        }
        if self.faded_s > 0.0 && self.budget.is_none() {
            // Whatever was known before has nothing to do with this; but for how long culprits have been dealt with, or
            // one lost sample now and then would keep the gate from ever being moved.
            let named_s = self.named_s;
            self.forget();
            self.named_s = named_s;
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
        if news {
            self.came_aged_s = span_s(at, now);
            self.silent_s = 0.0;
        }
        self.pressure = Some(pressure);
        self.culprits = reading.culprits;
        // Of one without a share nothing follows.
        self.culprits
            .retain(|culprit| culprit.share.is_finite() && culprit.share > 0.0);
        self.note = reading.note;
        self.cut = reading.cut.map(|priority| Rank::new(priority, 0));
        let silent = matches!(self.law, Law::Binary(_)) && pressure < 1.0;
        self.response.read(pressure, dt_s, self.time_s(), silent);
        let felt = self.felt(pressure);
        match &mut self.law {
            Law::Pressure(law) => law.read(felt, dt_s),
            Law::Binary(law) => law.read(felt),
        }
    }

    /// How much of a pressure the gate is to feel: while culprits are being dealt with, not so much as to move.
    fn felt(&mut self, pressure: f64) -> f64 {
        let remedy = self.profile.remedy;
        self.names = pressure >= 1.0 && !self.culprits.is_empty() && remedy != Remedy::Broad;
        if self.names {
            self.named_s.get_or_insert(0.0);
        } else {
            self.named_s = None;
        }
        let patience_s = PRECISE_SETTLINGS * self.settle_s();
        let waits = self.named_s.is_some_and(|named_s| named_s < patience_s);
        if remedy == Remedy::Precise || waits {
            pressure.min(HELD_BACK)
        } else {
            pressure
        }
    }

    /// Within this time it shows what has been done about a culprit.
    pub(crate) fn settle_s(&self) -> f64 {
        let dynamics = self.profile.dynamics;
        let (time_s, delay_s) = (
            dynamics.time().as_secs_f64(),
            dynamics.delay().as_secs_f64(),
        );
        precise::settle_s(time_s, delay_s, self.profile.period_s)
    }

    /// The pressure and whom it is put down to, once for each reading that names somebody.
    pub(crate) fn take_named(&mut self) -> Option<(f64, &[Culprit])> {
        let named = std::mem::take(&mut self.names) && self.mode == Mode::Enforce;
        let pressure = self.pressure.filter(|_| named)?;
        Some((pressure, &self.culprits))
    }

    /// One step of `dt_s` seconds. [`Supervised::budget`] holds the budget afterwards. `cut` is what is
    /// offered below the cut level of the last reading.
    pub(crate) fn tick(&mut self, dt_s: f64, flow: &Flow, cut: Option<f64>) -> Option<Change> {
        if self.mode == Mode::Off {
            return None;
        }
        if self.read_at.is_some() {
            self.silent_s += dt_s;
        }
        if let Some(named_s) = &mut self.named_s {
            *named_s += dt_s;
        }
        if self.fault.is_none() && self.age_s() > self.profile.horizon_s {
            let detail = "no new reading for longer than its horizon";
            self.fail(SignalFault::Stale, detail);
        }
        self.authority = self.authority_share(flow);
        let capacity = flow.capacity.max(flow.admitted);
        // Half of what would be let in without it, and not of what idle lanes could do besides: with three times
        // too many slots, half of the capacity was more than was ever asked for. One that does not respond
        // must leave its part of the capacity alone, whatever is asked for.
        let own_least = (1.0 - self.own_authority(flow)) * flow.possible();
        let least = if self.response.is_doubted() {
            own_least.max((1.0 - self.authority) * capacity)
        } else {
            own_least
        };
        let slew = SLEW * capacity;
        let toward = |wanted: f64, last: f64| wanted.clamp((last - slew).max(0.0), last + slew);
        self.cut_budget = cut.filter(|_| self.fault.is_none()).map(|cut| {
            let last = self.cut_budget.unwrap_or_else(|| flow.possible());
            toward(cut.max(least), last)
        });
        let wanted = if self.fault.is_some() {
            self.faded_s += dt_s;
            self.fade(flow)
        } else {
            self.fades_from = self.budget.unwrap_or(0.0);
            // What is taken from it for a while is not what it starts from when it is believed again.
            let wanted = match &mut self.law {
                Law::Pressure(law) => law.tick(dt_s, flow, own_least),
                Law::Binary(law) => law.tick(dt_s, flow, own_least),
            };
            wanted.map(|wanted| wanted.max(least))
        };
        let mut unresponsive = false;
        if let Some(wanted) = wanted {
            let last = self.budget.unwrap_or_else(|| {
                self.reference = flow.possible();
                self.reference
            });
            let cut = Cut {
                dt_s,
                budget: last,
                least,
                admitted: flow.admitted,
                reference: self.reference,
                binding: self.binding,
                time_s: self.time_s(),
            };
            let own = self.own_authority(flow);
            unresponsive = self.response.tick(&cut, own);
            self.budget = Some(toward(wanted, last));
        } else {
            self.budget = None;
            self.response = Response::default();
        }
        if self.budget.is_none() && self.cut_budget.is_none() {
            self.threshold = Rank::OPEN;
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
        match (self.fault, self.has_grip()) {
            (Some(_), true) => SignalState::Fading,
            (Some(_), false) => SignalState::Ignored,
            (None, true) => SignalState::Engaged,
            (None, false) if self.readings == 0 => SignalState::Waiting,
            (None, false) => SignalState::Calm,
        }
    }

    /// How far what it said of culprits has faded, 0 not at all to 1; nothing when it does not count.
    pub(crate) fn faded(&self) -> Option<f64> {
        let known = self.mode == Mode::Enforce && self.pressure.is_some();
        let horizons = self.faded_s / self.profile.horizon_s;
        known.then(|| (horizons / FADE_HORIZONS).min(1.0))
    }

    /// Its pressure, if that is good and counts.
    pub(crate) fn say(&self) -> Option<f64> {
        let counts = self.mode == Mode::Enforce && self.fault.is_none();
        self.pressure
            .filter(|_| counts && !self.response.is_doubted())
    }

    pub(crate) fn decision(&self) -> SignalDecision {
        SignalDecision {
            pressure: self.pressure,
            budget_per_s: self.budget(),
            threshold_levels: self.threshold.levels(),
        }
    }

    pub(crate) fn snapshot(&self) -> SignalSnapshot {
        SignalSnapshot {
            name: self.profile.name.clone(),
            // Known here by number; the selector's caller has their names.
            lanes: Vec::new(),
            mode: self.mode,
            state: self.state(),
            fault: self.fault,
            fault_detail: self.fault_detail.clone(),
            note: self.note.to_string(),
            pressure: self.pressure,
            age_s: self.age_s(),
            budget_per_s: self.budget(),
            threshold_levels: self.threshold.levels(),
            authority: self.authority,
            unresponsive: self.response.is_doubted(),
            binding: self.binding,
            bound_s: self.bound_s,
            // The lanes know; the controller adds it up.
            shed_cost: 0,
            readings: self.readings,
            faults: self.faults,
            culprits: self.culprits.clone(),
        }
    }

    fn age_s(&self) -> f64 {
        self.came_aged_s + self.silent_s
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
        (self.read_at, self.said_at) = (None, None);
        (self.came_aged_s, self.silent_s) = (0.0, 0.0);
        self.response = Response::default();
        self.cut = None;
        self.cut_budget = None;
        self.culprits.clear();
        (self.names, self.named_s) = (false, None);
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
        self.response.authority(self.own_authority(flow))
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
                budget: self.budget().unwrap_or(0.0),
            }),
            _ => None,
        }
    }
}

fn span_s(from: Instant, to: Instant) -> f64 {
    to.nanos_since(from) as f64 * 1e-9
}

#[cfg(test)]
mod tests;
