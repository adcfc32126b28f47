//! A lane as the book describes it, slow and obvious: a list of who waits, a list of who holds a slot, and sums.
//!
//! What the laws decide (the threshold, the timeout, the order within a tier) is no business of this model: it is read
//! from the controller after each step ([`Seen`]). What follows from it is predicted.

use std::collections::{BTreeMap, HashMap, HashSet};

use cinnamon_core::{
    AdmitKind, Binding, Cohort, KeyHash, LaneSnapshot, Mode, Priority, Rank, Reason, Tier, Verdict,
};

use crate::figures::Figures;
use crate::ops::{Ask, LaneCase, SECOND, Tag};
use crate::{Checked, ensure};

/// A gate that nobody moved for longer than this opens.
const GATE_STALE: u64 = 2 * SECOND;
/// A clock that steps back by more than this was set.
const RACE: u64 = SECOND;
/// While no law is engaged, those without a time of their own may wait for so many service times.
const PATIENT_SERVICES: f64 = 50.0;
/// Refusals at the gate of one tier, between two looks whether it is stale.
const LOOK_EVERY: u32 = 64;

/// What a waiter, or whoever is answered at once, is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Told {
    Runs(AdmitKind),
    Refused(Reason),
}

/// What an offer may come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Judged {
    Runs(AdmitKind),
    Refused(Reason),
    Waits,
}

/// What cannot be predicted, seen after the step.
#[derive(Clone, Debug)]
pub struct Seen {
    pub threshold: Rank,
    pub binding: Binding,
    /// What a request costs that does not say so.
    pub cost: u32,
    pub timeout: u64,
    pub snapshot: LaneSnapshot,
    /// Whose wakers were called in this step.
    pub woken: HashSet<u64>,
    /// Whether the request offered in this step was told that it is evicted.
    pub newcomer_evicted: bool,
}

/// Where a request lies, as far as can be known from outside: of keyless work only the tier, or the level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    pub low: Rank,
    pub high: Rank,
}

impl Place {
    fn exact(rank: Rank) -> Self {
        Self {
            low: rank,
            high: rank,
        }
    }

    fn tier(self) -> usize {
        self.low.priority().tier().index()
    }

    fn level(self) -> Option<u16> {
        let (low, high) = (self.low.priority(), self.high.priority());
        (low == high).then(|| low.number())
    }

    pub fn holds(self, rank: Rank) -> bool {
        (self.low..=self.high).contains(&rank)
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    id: u64,
    place: Place,
    cost: u32,
    bytes: u32,
    tenant: Option<u32>,
    since: u64,
    /// Its own deadline or patience.
    until: Option<u64>,
    /// It only waits in a shadow.
    shadow: bool,
}

/// What becomes, in a lane that only monitors, of a request that was let in at once.
#[derive(Clone, Copy, Debug)]
enum Shadow {
    Refused,
    Waits,
    WaitsDone { held: u64 },
    Runs { tier: usize, since: u64 },
    Ends { tier: usize, at: u64 },
}

/// What an override says of a tenant.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub tenant: u32,
    pub off: bool,
    pub cap: Rank,
    /// By the clock; by the lane's time once it has the rule.
    pub ends: u64,
}

/// What a permit stands for.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    pub id: u64,
    pub kind: AdmitKind,
    pub tier: usize,
    pub since: u64,
    shadowed: bool,
}

#[derive(Clone, Debug)]
pub struct Lane {
    index: u8,
    limit: u32,
    queue_len_max: Option<u32>,
    queue_bytes_max: u64,
    pub mode: Mode,
    open: bool,
    /// The lane's time: what the clock reads and `skew`, and never back.
    pub now: u64,
    pub skew: u64,
    hash: KeyHash,
    pub threshold: Rank,
    pub binding: Binding,
    gate_set_at: u64,
    /// Offers refused at a stale gate without the lane, by tier.
    at_stale_gate: [u32; 6],
    cap: Option<(Rank, u64)>,
    rules: Vec<Rule>,
    timeout: u64,
    engaged: bool,
    /// Mean service time.
    service_s: f64,
    waiters: Vec<Waiter>,
    slots: [u32; 6],
    exempt: u32,
    open_running: u32,
    /// Let in although the lane only monitors.
    let_in: u32,
    shadows: BTreeMap<u64, Shadow>,
    /// Granted, and not yet seen by their owners.
    granted: HashMap<u64, Ticket>,
    offered: u64,
    untagged: u64,
    retried: u64,
    verdicts: BTreeMap<(usize, usize), u64>,
    /// Who is told something in this step.
    told: Vec<(u64, Told)>,
}

impl Lane {
    pub fn new(index: usize, case: &LaneCase, now: u64) -> Self {
        Self {
            index: index as u8,
            limit: case.limit,
            queue_len_max: case.queue_len_max,
            queue_bytes_max: case.queue_bytes_max,
            mode: Mode::Enforce,
            open: true,
            now,
            skew: 0,
            hash: KeyHash::new(0, 0),
            threshold: Rank::OPEN,
            binding: Binding::Nothing,
            gate_set_at: now,
            at_stale_gate: [0; 6],
            cap: None,
            rules: Vec::new(),
            timeout: SECOND / 2,
            engaged: false,
            service_s: 0.0,
            waiters: Vec::new(),
            slots: [0; 6],
            exempt: 0,
            open_running: 0,
            let_in: 0,
            shadows: BTreeMap::new(),
            granted: HashMap::new(),
            offered: 0,
            untagged: 0,
            retried: 0,
            verdicts: BTreeMap::new(),
            told: Vec::new(),
        }
    }

    pub fn figures(&self) -> Figures {
        let by_tier = |tier: usize| {
            let of = |waiter: &&Waiter| waiter.place.tier() == tier;
            self.waiters.iter().filter(of).count() as u32
        };
        let in_shadow =
            |shadow: &&Shadow| matches!(shadow, Shadow::Runs { .. } | Shadow::Ends { .. });
        let waiting = self.waiters.len() as u32;
        Figures {
            mode: self.mode,
            limit: self.limit,
            in_use: self.in_use(),
            free: self.limit.saturating_sub(self.in_use()),
            in_use_by_tier: self.slots,
            exempt_in_use: self.exempt,
            open_in_use: self.open_running + self.let_in,
            shadow_in_use: self.shadows.values().filter(in_shadow).count() as u32,
            shadow_waiting: if self.mode == Mode::Monitor {
                waiting
            } else {
                0
            },
            waiting,
            waiting_by_tier: [0, 1, 2, 3, 4, 5].map(by_tier),
            waiting_cost: self.waiting_cost(),
            waiting_bytes: self
                .waiters
                .iter()
                .map(|waiter| u64::from(waiter.bytes))
                .sum(),
            offered: self.offered,
            untagged: self.untagged,
            retried: self.retried,
            verdicts: self.verdicts.clone(),
        }
    }

    pub fn in_use(&self) -> u32 {
        self.slots.iter().sum()
    }

    pub fn waiting(&self) -> u32 {
        self.waiters.len() as u32
    }

    /// Requests that run in truth.
    pub fn running(&self) -> u32 {
        let figures = self.figures();
        figures.in_use - figures.shadow_in_use + figures.exempt_in_use + figures.open_in_use
    }

    pub fn take_told(&mut self) -> Vec<(u64, Told)> {
        std::mem::take(&mut self.told)
    }

    /// Takes over what the laws decided in the step that is over.
    pub fn learn(&mut self, seen: &Seen) {
        self.timeout = seen.timeout;
        self.engaged = seen.snapshot.engaged;
        self.service_s = seen.snapshot.service_mean_s;
    }

    /// The owner looks at what it was granted, or has gone.
    pub fn take_granted(&mut self, id: u64) -> Option<Ticket> {
        self.granted.remove(&id)
    }

    /// The rank of such a request in this lane, now.
    pub fn place(&self, ask: &Ask) -> Place {
        let tier = match ask.tag {
            Tag::Tier(tier) => tier,
            Tag::Untagged => 3,
            Tag::Exempt => 0,
            Tag::Priority(number) => {
                let priority = Priority::from_number(number).expect("below 768");
                return match ask.key {
                    Some(key) => Place::exact(self.hash.rank_at(priority, key)),
                    None => Place {
                        low: Rank::new(priority, 0),
                        high: Rank::new(priority, u16::MAX),
                    },
                };
            }
        };
        match ask.key {
            Some(key) => Place::exact(self.hash.rank(Tier::ALL[tier], key)),
            None => Place {
                low: first_of(tier),
                high: Rank::new(
                    Priority::new(Tier::ALL[tier], Cohort::new(127).expect("below 128")),
                    u16::MAX,
                ),
            },
        }
    }

    // ----- time

    pub fn time_at(&self, clock: u64) -> u64 {
        let reading = clock.saturating_add(self.skew);
        if self.now.saturating_sub(reading) > RACE {
            return self.now;
        }
        reading.max(self.now)
    }

    /// Time goes on to what the clock reads; in a shadow, what ends until then ends at its own time.
    fn enter(&mut self, clock: u64, seen: &Seen) -> Checked {
        let to = self.time_at(clock);
        let due = |(&id, shadow): (&u64, &Shadow)| match *shadow {
            Shadow::Ends { at, tier } if at <= to => Some((at, id, tier)),
            _ => None,
        };
        while let Some((at, id, tier)) = self.shadows.iter().filter_map(due).min() {
            self.now = self.now.max(at);
            self.shadows.remove(&id);
            self.slots[tier] -= 1;
            self.dispatch(seen)?;
        }
        let reading = clock.saturating_add(self.skew);
        if self.now.saturating_sub(reading) > RACE {
            self.skew += self.now - reading;
        }
        self.now = to;
        Ok(())
    }

    /// Somebody reads the clock for this lane, and nothing else.
    pub fn observe(&mut self, clock: u64, seen: &Seen) -> Checked {
        self.enter(clock, seen)
    }

    // ----- offers

    /// What an offer may come to at this time. Mostly one thing; with idle slots the gate may yield or not.
    pub fn judge(&self, clock: u64, now: u64, ask: &Ask, waits: bool) -> Vec<Judged> {
        let place = self.place(ask);
        if !self.open {
            return vec![Judged::Refused(Reason::Closed)];
        }
        if ask.tag == Tag::Exempt {
            return vec![Judged::Runs(AdmitKind::Exempt)];
        }
        let rule = self
            .rules
            .iter()
            .find(|rule| Some(rule.tenant) == ask.tenant);
        let rule = rule.filter(|rule| now < rule.ends);
        if self.mode == Mode::Off || rule.is_some_and(|rule| rule.off) {
            return vec![Judged::Runs(AdmitKind::Open)];
        }
        if rule.is_some_and(|rule| place.low >= rule.cap) {
            return vec![Judged::Refused(Reason::Capped)];
        }
        let deadline = ask.deadline_at(clock).map(|at| at + self.skew);
        if deadline.is_some_and(|at| at <= now) {
            return vec![Judged::Refused(Reason::Hopeless)];
        }
        let mut may = Vec::new();
        let shed = Judged::Refused(Reason::Shed);
        if place.high >= self.threshold {
            may.push(shed);
            if place.low >= self.threshold && !self.may_yield() {
                return may;
            }
        }
        let cap = self.cap_at(now);
        if place.low >= cap {
            return vec![shed];
        }
        if self.limit > self.in_use() && self.waiters.is_empty() {
            may.push(Judged::Runs(AdmitKind::Slot));
            return may;
        }
        let until = self.until(clock, now, ask);
        if !waits || until.is_some_and(|at| at <= now) {
            may.push(Judged::Refused(Reason::Busy));
        } else if u64::from(ask.bytes) > self.queue_bytes_max {
            may.push(Judged::Refused(Reason::Evicted));
        } else {
            may.push(Judged::Waits);
        }
        may
    }

    fn until(&self, clock: u64, now: u64, ask: &Ask) -> Option<u64> {
        let deadline = ask.deadline_at(clock).map(|at| at + self.skew);
        let patience = ask.max_wait.map(|wait| now + wait);
        deadline.into_iter().chain(patience).min()
    }

    /// Whether so many slots are idle that the gate yields if it is this lane's own backlog that holds it. That also
    /// hangs on whether somebody was refused who would not wait, which is not to be seen.
    fn may_yield(&self) -> bool {
        let idle = self.limit.saturating_sub(self.in_use());
        self.waiters.is_empty()
            && idle > (self.limit / 4).max(1)
            && self.binding == Binding::Backlog { lane: self.index }
    }

    fn cap_at(&self, now: u64) -> Rank {
        self.cap
            .filter(|cap| now < cap.1)
            .map_or(Rank::OPEN, |cap| cap.0)
    }

    fn is_stale(&self) -> bool {
        !self.threshold.is_open() && self.now.saturating_sub(self.gate_set_at) > GATE_STALE
    }

    fn open_if_stale(&mut self) {
        if self.is_stale() {
            // The law lets go with it, and the patient timeout is in force: at once, in the middle of a step.
            if std::mem::take(&mut self.engaged) {
                let services = (PATIENT_SERVICES * self.service_s * 1e9) as u64;
                self.timeout = services.clamp(SECOND / 2, 60 * SECOND);
            }
            (self.threshold, self.binding) = (Rank::OPEN, Binding::Nothing);
        }
    }

    /// Whether its caller may have to wait: nobody here can wait on this thread for what only this thread would do.
    pub fn may_block(&self, clock: u64, ask: &Ask) -> bool {
        let mut opened = self.clone();
        // A stale gate opens when somebody comes.
        opened.threshold = Rank::OPEN;
        let may = opened.judge(clock, self.time_at(clock), ask, true);
        self.mode == Mode::Enforce && may.contains(&Judged::Waits)
    }

    /// A request is offered. Returns what its caller must be told at once, and `None` if it waits.
    pub fn offer(
        &mut self,
        clock: u64,
        id: u64,
        ask: &Ask,
        waits: bool,
        seen: &Seen,
    ) -> Checked<(Option<Told>, Option<Ticket>)> {
        self.enter(clock, seen)?;
        self.offered += 1;
        self.retried += u64::from(ask.attempt > 0);
        self.untagged += u64::from(ask.tag == Tag::Untagged);
        let place = self.place(ask);
        let tier = place.tier();
        let shed = Verdict::Refuse(Reason::Shed);
        let is_shed = seen.snapshot.verdicts.total(shed) > self.total(shed);
        if self.is_stale() {
            if is_shed && self.may_be_refused_at_gate(ask) {
                // Nobody came to the lane who would have opened it.
                self.at_stale_gate[tier] += 1;
                ensure!(
                    self.at_stale_gate[tier] <= LOOK_EVERY,
                    "a stale gate has refused {LOOK_EVERY} of t{tier}, and nobody has looked"
                );
                if seen.threshold.is_open() {
                    self.open_if_stale();
                }
                self.count(tier, shed);
                return Ok((Some(Told::Refused(Reason::Shed)), None));
            }
            self.open_if_stale();
        }
        self.at_stale_gate = [0; 6];
        let may = self.judge(clock, self.now, ask, waits);
        let as_seen = |judged: &&Judged| is_shed == (**judged == Judged::Refused(Reason::Shed));
        let Some(&judged) = may.iter().find(as_seen) else {
            return Err(format!("offer {id} may come to {may:?}; shed: {is_shed}"));
        };
        let ticket = Ticket {
            id,
            kind: AdmitKind::Open,
            tier,
            since: self.now,
            shadowed: false,
        };
        let ticket = match judged {
            Judged::Runs(kind) => {
                self.count(tier, Verdict::Admit(kind));
                match kind {
                    AdmitKind::Slot => self.slots[tier] += 1,
                    AdmitKind::Exempt => self.exempt += 1,
                    AdmitKind::Open => self.open_running += 1,
                }
                Some(Ticket { kind, ..ticket })
            }
            Judged::Refused(reason) => {
                self.count(tier, Verdict::Refuse(reason));
                None
            }
            Judged::Waits => {
                self.waiters.push(Waiter {
                    id,
                    place,
                    cost: ask.cost.map_or(seen.cost, |cost| cost.max(1)),
                    bytes: ask.bytes,
                    tenant: ask.tenant,
                    since: self.now,
                    until: self.until(clock, self.now, ask),
                    shadow: self.mode == Mode::Monitor,
                });
                self.shadows_put(id, Shadow::Waits);
                self.make_room(id, seen)?;
                None
            }
        };
        let waits = self.waiters.iter().any(|waiter| waiter.id == id);
        if self.mode == Mode::Monitor {
            return Ok(self.let_in(judged, waits, ticket, id, tier));
        }
        let newcomer = self.told.iter().position(|(of, _)| *of == id);
        let told = match (judged, newcomer) {
            (_, Some(at)) => Some(self.told.swap_remove(at).1),
            (Judged::Runs(kind), None) => Some(Told::Runs(kind)),
            (Judged::Refused(reason), None) => Some(Told::Refused(reason)),
            (Judged::Waits, None) => None,
        };
        Ok((told, ticket))
    }

    /// Under monitor the verdict is the shadow's, and the request runs; unless the lane is closed.
    fn let_in(
        &mut self,
        judged: Judged,
        waits: bool,
        ticket: Option<Ticket>,
        id: u64,
        tier: usize,
    ) -> (Option<Told>, Option<Ticket>) {
        let shadow = match judged {
            Judged::Runs(kind @ (AdmitKind::Exempt | AdmitKind::Open)) => {
                return (Some(Told::Runs(kind)), ticket);
            }
            Judged::Refused(Reason::Closed) => {
                return (Some(Told::Refused(Reason::Closed)), None);
            }
            Judged::Runs(AdmitKind::Slot) => Shadow::Runs {
                tier,
                since: self.now,
            },
            Judged::Waits if waits => Shadow::Waits,
            Judged::Refused(_) | Judged::Waits => Shadow::Refused,
        };
        self.shadows.insert(id, shadow);
        self.let_in += 1;
        let kind = AdmitKind::Open;
        let ticket = Ticket {
            id,
            kind,
            tier,
            since: self.now,
            shadowed: true,
        };
        (Some(Told::Runs(kind)), Some(ticket))
    }

    fn shadows_put(&mut self, id: u64, shadow: Shadow) {
        if self.mode == Mode::Monitor {
            self.shadows.insert(id, shadow);
        }
    }

    /// Whether all that it says of itself is what the gate alone can judge by.
    fn may_be_refused_at_gate(&self, ask: &Ask) -> bool {
        let plain = ask.deadline.is_none() && ask.time_left.is_none();
        let ranked = matches!(ask.tag, Tag::Priority(_) | Tag::Tier(_));
        let shut = self.place(ask).low >= self.threshold;
        plain && ranked && shut && self.open && self.mode == Mode::Enforce
    }
}

/// The first rank of a tier.
pub fn first_of(tier: usize) -> Rank {
    let cohort = Cohort::new(0).expect("below 128");
    Rank::new(Priority::new(Tier::ALL[tier], cohort), 0)
}

#[path = "queue.rs"]
mod queue;
