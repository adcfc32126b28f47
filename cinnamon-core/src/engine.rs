//! One lane as a state machine: offer, cancel, finish, tick, each with the time as an argument.
//!
//! No lock, no clock, no wake-up: what must be told to a waiter comes out as an [`Effect`], for the
//! caller to act on after its lock is released. Equal inputs give equal outputs.
//!
//! A request is in one of these states, and each offer ends in exactly one verdict:
//!
//! | state | left by | verdict |
//! |---|---|---|
//! | offered | the gate, a full lane without waiting, a passed deadline, a closed lane | shed, busy, hopeless, close |
//! | offered | a free slot and nobody waiting; exempt; mode off | admit |
//! | waiting | a slot given back, the limit raised | admit |
//! | waiting | queue full, sweep; timeout or own deadline; close; the caller | evict; expire; close; cancel |
//! | running | `finish` | (had its verdict) |

use crate::arrivals::Arrivals;
use crate::budget::{BudgetLaw, Observed, Step};
use crate::capacity::Capacity;
use crate::clock::Instant;
use crate::codel::{Codel, Regime};
use crate::config::{Config, Law};
use crate::flow::{Flow, FlowLaw};
use crate::metrics::{LaneSnapshot, VerdictCounts};
use crate::permit::{Completion, Outcome};
use crate::priority::{KeyHash, Rank, Tier, mix64};
use crate::queue::{Entry, Queue, WaiterId};
use crate::rate::Window;
use crate::request::{Request, Tag};
use crate::service::{ServiceSummary, ServiceTimes};
use crate::verdict::{AdmitKind, Binding, Reason, Rejected, Verdict};

/// A waiting queue may be this many limits long (flat between 20 and 50) …
const QUEUE_LIMITS: u32 = 20;
/// … but at least this long, so that a small pool can absorb a burst …
const QUEUE_LEN_MIN: u32 = 50;
/// … and at least as long as what is served in this time.
const QUEUE_SECONDS: f64 = 0.1;
/// Upper bound on what is derived; a larger queue must be asked for.
const QUEUE_LEN_DERIVED_MAX: u32 = 65_536;
/// The sweep trims the backlog to this many targets.
const SWEEP_TARGETS: f64 = 1.5;
/// A gate that nobody moved for this long belongs to a dead or starved control thread: it opens.
const GATE_STALE_NS: u64 = 2_000_000_000;
/// A clock that steps back further than this was set; less is two threads racing for the lock.
const STEP_BACK_NS: u64 = 1_000_000_000;
/// Weight of one completion in its class's mean cost.
const COST_GAIN: f64 = 1.0 / 32.0;

/// Proof of admission; given back at [`Engine::finish`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) kind: AdmitKind,
    pub(crate) started_at: Instant,
    pub(crate) rank: Rank,
    pub(crate) cost: u32,
    pub(crate) class: u16,
}

/// What an offer came to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Offered {
    Admitted(Ticket),
    Waiting(WaiterId),
    Rejected(Rejected),
}

/// What a waiter must be told. `token` is what the caller gave at the offer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect {
    pub(crate) token: u32,
    pub(crate) result: Result<Ticket, Rejected>,
}

/// Which offers are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doors {
    /// All.
    Open,
    /// None; those who wait keep their place.
    Draining,
    /// None, and nobody waits.
    Closed,
}

/// Time-weighted sums since the last tick.
#[derive(Clone, Copy, Debug, Default)]
struct Occupancy {
    backlog_cost_s: f64,
    idle_slot_s: f64,
    slot_s: f64,
    busy_s: f64,
}

#[derive(Debug)]
struct ClassModel {
    default_tier: Option<Tier>,
    cost: f64,
}

#[derive(Debug)]
pub(crate) struct Engine {
    // ----- settings
    hash: KeyHash,
    cohort_seed: u64,
    untagged_tier: Tier,
    queue_len_max: Option<u32>,
    queue_bytes_max: u64,
    law_kind: Law,
    // ----- time
    now: Instant,
    /// Added to the clock's reading so that engine time never runs backwards.
    skew_ns: u64,
    // ----- slots and waiters
    limit: u32,
    in_use: u32,
    exempt_in_use: u32,
    open_in_use: u32,
    doors: Doors,
    off: bool,
    queue: Queue,
    expired: Vec<Entry>,
    effects: Vec<Effect>,
    // ----- the gate
    threshold: Rank,
    binding: Binding,
    gate_set_at: Instant,
    // ----- what is learned
    classes: Vec<ClassModel>,
    arrivals: Arrivals,
    capacity: Capacity,
    service: ServiceTimes,
    summary: ServiceSummary,
    codel: Codel,
    budget: BudgetLaw,
    flow: FlowLaw,
    // ----- since the last tick
    ticked_at: Instant,
    occupancy: Occupancy,
    completed: Window,
    entered: u32,
    left: u32,
    evicted: bool,
    // ----- counters
    offered: u64,
    untagged: u64,
    verdicts: VerdictCounts,
    waiting_peak: u32,
}

impl Engine {
    pub(crate) fn new(config: &Config, lane: usize, now: Instant) -> Self {
        let settings = &config.lanes[lane];
        Self {
            hash: KeyHash::new(config.cohort_seed, 0),
            cohort_seed: config.cohort_seed,
            untagged_tier: config.untagged_tier,
            queue_len_max: settings.queue_len_max,
            queue_bytes_max: settings.queue_bytes_max,
            law_kind: config.law,
            now,
            skew_ns: 0,
            limit: settings.limit,
            in_use: 0,
            exempt_in_use: 0,
            open_in_use: 0,
            doors: Doors::Open,
            off: false,
            queue: Queue::new(),
            expired: Vec::new(),
            effects: Vec::new(),
            threshold: Rank::OPEN,
            binding: Binding::Nothing,
            gate_set_at: now,
            classes: config
                .classes
                .iter()
                .map(|class| ClassModel {
                    default_tier: class.default_tier,
                    cost: f64::from(class.cost),
                })
                .collect(),
            arrivals: Arrivals::new(),
            capacity: Capacity::new(),
            service: ServiceTimes::new(),
            summary: ServiceSummary::default(),
            codel: Codel::new(
                settings.order,
                settings.codel_target_us,
                settings.codel_interval_us,
            ),
            budget: BudgetLaw::new(config.kp, config.ki_per_s, config.kd_s),
            flow: FlowLaw::new(),
            ticked_at: now,
            occupancy: Occupancy::default(),
            completed: Window::default(),
            entered: 0,
            left: 0,
            evicted: false,
            offered: 0,
            untagged: 0,
            verdicts: VerdictCounts::default(),
            waiting_peak: 0,
        }
    }

    /// Asks to run. `wait` names the waiter if the caller is ready to wait.
    pub(crate) fn offer(&mut self, now: Instant, request: &Request, wait: Option<u32>) -> Offered {
        let clock_now = now;
        let now = self.advance(now);
        self.offered += 1;
        let class = self.class_of(request);
        let model = &self.classes[usize::from(class)];
        let untagged_tier = model.default_tier.unwrap_or(self.untagged_tier);
        let cost = request
            .cost
            .map_or(model.cost.round() as u32, u32::from)
            .max(1);
        let rank = request.rank(self.hash, untagged_tier, self.offered);
        let ticket = |kind| Ticket {
            kind,
            started_at: now,
            rank,
            cost,
            class,
        };
        if request.tag == Tag::Untagged {
            self.untagged += 1;
        }
        if self.doors != Doors::Open {
            return self.reject(request, rank, Reason::Closed);
        }
        if request.tag == Tag::Exempt {
            self.exempt_in_use += 1;
            return self.admit(ticket(AdmitKind::Exempt));
        }
        if self.off {
            self.open_in_use += 1;
            return self.admit(ticket(AdmitKind::Open));
        }
        let deadline = request
            .deadline_at(clock_now)
            .map(|at| at.after_nanos(self.skew_ns));
        if deadline.is_some_and(|deadline| deadline <= now) {
            return self.reject(request, rank, Reason::Hopeless);
        }
        self.arrivals.offer(rank, cost);
        if self.law_kind == Law::Flow {
            self.flow.offer(rank);
        }
        if rank >= self.threshold_now(now) {
            return self.reject(request, rank, Reason::Shed);
        }
        if self.in_use < self.limit && self.queue.is_empty() {
            self.in_use += 1;
            self.entered += 1;
            self.left += 1;
            return self.admit(ticket(AdmitKind::Slot));
        }
        let patience = request.max_wait.map(|wait| now.after(wait));
        let expires_at = match (deadline, patience) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b).unwrap_or(Instant::FAR_FUTURE),
        };
        let Some(token) = wait.filter(|_| expires_at > now) else {
            return self.reject(request, rank, Reason::Busy);
        };
        self.enqueue(Entry {
            rank,
            cost,
            bytes: request.bytes,
            class,
            attempt: request.attempt,
            salt: self.salt(request),
            token,
            enqueued_at: now,
            expires_at,
        })
    }

    /// Withdraws a waiter. `false` when it no longer waits: then it was granted or refused.
    pub(crate) fn cancel(&mut self, now: Instant, id: WaiterId) -> bool {
        self.advance(now);
        match self.queue.remove(id) {
            Some(entry) => {
                self.count(entry.rank, Verdict::Cancel);
                true
            }
            None => false,
        }
    }

    /// Counts work that runs in the slot of its parent.
    pub(crate) fn nested(&mut self, now: Instant, parent: &Ticket) -> Ticket {
        let now = self.advance(now);
        self.offered += 1;
        self.exempt_in_use += 1;
        let verdict = Verdict::Admit(AdmitKind::Exempt);
        self.count(parent.rank, verdict);
        Ticket {
            kind: AdmitKind::Exempt,
            started_at: now,
            ..*parent
        }
    }

    /// Gives back what a ticket holds. Without a completion nothing is learned of the work but that
    /// its slot turned over.
    pub(crate) fn finish(&mut self, now: Instant, ticket: &Ticket, done: Option<Completion>) {
        let now = self.advance(now);
        match ticket.kind {
            AdmitKind::Exempt => self.exempt_in_use -= 1,
            AdmitKind::Open => self.open_in_use -= 1,
            AdmitKind::Slot => {
                self.in_use -= 1;
                let cost = done.and_then(|done| done.cost).unwrap_or(ticket.cost);
                self.completed.count(cost);
                if done.is_some_and(|done| done.outcome.teaches()) {
                    self.service.record(now.nanos_since(ticket.started_at));
                }
                if done.is_some_and(|done| done.outcome == Outcome::Success) {
                    let model = &mut self.classes[usize::from(ticket.class)];
                    model.cost += COST_GAIN * (f64::from(cost) - model.cost);
                }
                self.dispatch(now);
            }
        }
    }

    /// One control step. Returns the threshold this lane needs; [`Engine::set_gate`] must follow
    /// with the one that holds in its scope.
    pub(crate) fn tick(&mut self, now: Instant) -> Rank {
        let now = self.advance(now);
        self.expire_until(now);
        let dt_ns = now.nanos_since(self.ticked_at);
        if dt_ns == 0 {
            return self.threshold;
        }
        self.ticked_at = now;
        let dt_s = dt_ns as f64 * 1e-9;
        let occupancy = std::mem::take(&mut self.occupancy);
        let mut completed = std::mem::take(&mut self.completed);
        completed.seconds = dt_s;
        let flow = Flow {
            entered: std::mem::take(&mut self.entered),
            left: std::mem::take(&mut self.left),
            free: self.limit.saturating_sub(self.in_use),
            limit: self.limit,
        };
        self.summary = self.service.roll(dt_s);
        let promised = f64::from(self.limit) * self.capacity.mean_cost() / self.summary.mean_s;
        let calm = !self.budget.engaged() && self.summary.mean_s > 0.0;
        self.capacity
            .tick(&completed, occupancy.busy_s, calm.then_some(promised));
        self.arrivals.tick(dt_s);

        let seen = Observed {
            dt_s,
            backlog_cost: occupancy.backlog_cost_s / dt_s,
            idle_share: occupancy.idle_slot_s / occupancy.slot_s.max(f64::MIN_POSITIVE),
            evicted: std::mem::take(&mut self.evicted),
            service_s: self.summary.mean_s,
            capacity: self.capacity.rate(),
            mean_cost: self.capacity.mean_cost(),
        };
        let threshold = match self.law_kind {
            Law::Flow => self.flow.tick(&flow, dt_s),
            Law::Budget => {
                let step = self.budget.step(&seen);
                if step == Step::Engaged {
                    self.capacity.relearn();
                }
                let threshold = self.arrivals.threshold(self.budget.budget);
                self.budget.threshold_set(threshold.is_open(), dt_s);
                threshold
            }
        };
        self.codel.retune(&Regime {
            engaged: self.budget.engaged(),
            service_s: self.summary.mean_s,
            service_p90_s: self.summary.p90_s,
            target_wait_s: self.budget.target_s,
        });
        self.observe_sojourn(now);
        threshold
    }

    /// Sets the gate to the lowest threshold of the scope, and, while engaged, sweeps the queue.
    pub(crate) fn set_gate(&mut self, now: Instant, threshold: Rank, binding: Binding, epoch: u64) {
        let now = self.advance(now);
        self.hash = KeyHash::new(self.cohort_seed, epoch);
        self.threshold = threshold;
        self.binding = if threshold.is_open() {
            Binding::Nothing
        } else {
            binding
        };
        self.gate_set_at = now;
        if self.budget.engaged() {
            self.sweep();
        }
    }

    /// Refuses whoever has waited too long.
    pub(crate) fn expire(&mut self, now: Instant) {
        let now = self.advance(now);
        self.expire_until(now);
    }

    /// When somebody's time may next run out, by the engine's clock reading; `None` when nobody
    /// waits.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let at = self.queue.next_wakeup(self.codel.timeout_ns())?;
        Some(Instant::from_nanos(
            at.as_nanos().saturating_sub(self.skew_ns),
        ))
    }

    /// Changes the number of slots. A lower limit acts as slots come back, a higher one at once.
    pub(crate) fn set_limit(&mut self, now: Instant, limit: u32) {
        let now = self.advance(now);
        self.limit = limit;
        self.dispatch(now);
    }

    /// Off: everything is admitted without a decision, and nobody waits.
    pub(crate) fn set_off(&mut self, now: Instant, off: bool) {
        let now = self.advance(now);
        self.off = off;
        while self.off {
            let Some(entry) = self.queue.pop_best(false) else {
                return;
            };
            self.open_in_use += 1;
            self.grant(now, &entry, AdmitKind::Open);
        }
    }

    /// Takes no more offers; whoever waits keeps the place.
    pub(crate) fn drain(&mut self, now: Instant) {
        self.advance(now);
        if self.doors == Doors::Open {
            self.doors = Doors::Draining;
        }
    }

    /// Takes no more offers and refuses whoever waits. Permits out stay valid.
    pub(crate) fn close(&mut self, now: Instant) {
        self.advance(now);
        self.doors = Doors::Closed;
        while let Some(entry) = self.queue.pop_best(false) {
            self.refuse(&entry, Reason::Closed);
        }
    }

    /// Moves what must be told to waiters into `out`.
    pub(crate) fn take_effects(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.effects);
    }

    /// The clock's reading at the last call, for when the clock cannot be read.
    pub(crate) const fn last_reading(&self) -> Instant {
        Instant::from_nanos(self.now.as_nanos().saturating_sub(self.skew_ns))
    }

    pub(crate) const fn waiting(&self) -> u32 {
        self.queue.len()
    }

    /// Requests running, slot or not.
    pub(crate) const fn running(&self) -> u32 {
        self.in_use + self.exempt_in_use + self.open_in_use
    }

    /// Completions per second the lane is good for; 0 while unknown.
    pub(crate) fn completions_per_s(&self) -> f64 {
        self.capacity.rate() / self.capacity.mean_cost()
    }

    /// Whether a tick now could change anything soon: something was offered, waits or is held back.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.entered == 0
            && self.completed.events == 0.0
            && self.threshold.is_open()
            && !self.budget.engaged()
    }

    pub(crate) fn snapshot(&self, name: &str) -> LaneSnapshot {
        LaneSnapshot {
            name: name.to_owned(),
            limit: self.limit,
            in_use: self.in_use,
            free: self.limit.saturating_sub(self.in_use),
            exempt_in_use: self.exempt_in_use,
            open_in_use: self.open_in_use,
            waiting: self.queue.len(),
            waiting_by_tier: *self.queue.tier_len(),
            waiting_peak: self.waiting_peak,
            waiting_cost: self.queue.cost(),
            waiting_bytes: self.queue.bytes(),
            offered: self.offered,
            untagged: self.untagged,
            verdicts: self.verdicts.clone(),
            engaged: self.budget.engaged(),
            threshold: self.threshold.to_string(),
            threshold_levels: self.threshold.levels(),
            binding: self.binding,
            budget_per_s: self.budget.budget.is_finite().then_some(self.budget.budget),
            capacity_per_s: self.capacity.rate(),
            offered_per_s: self.arrivals.rate(),
            wait_s: self.budget.wait_s,
            wait_target_s: self.budget.target_s,
            error: match self.law_kind {
                Law::Budget => self.budget.error,
                Law::Flow => self.flow.error,
            },
            p: self.budget.terms.p,
            i: self.budget.terms.i,
            d: self.budget.terms.d,
            codel: self.codel.state(),
            newest_first: self.codel.newest_first(),
            timeout_s: self.codel.timeout_ns() as f64 * 1e-9,
            service_mean_s: self.summary.mean_s,
            service_p50_s: self.summary.p50_s,
            service_p90_s: self.summary.p90_s,
            failed: false,
        }
    }

    // ----- helpers

    /// Brings engine time up to the clock's reading and accounts for the time between.
    fn advance(&mut self, clock: Instant) -> Instant {
        let mut now = clock.after_nanos(self.skew_ns);
        let behind = self.now.nanos_since(now);
        if behind > STEP_BACK_NS {
            self.skew_ns = self.skew_ns.saturating_add(behind);
        }
        now = now.max(self.now);
        let dt_s = now.nanos_since(self.now) as f64 * 1e-9;
        self.now = now;
        if dt_s > 0.0 {
            let limit = f64::from(self.limit);
            let free = f64::from(self.limit.saturating_sub(self.in_use));
            self.occupancy.backlog_cost_s += self.queue.cost() as f64 * dt_s;
            self.occupancy.idle_slot_s += free * dt_s;
            self.occupancy.slot_s += limit * dt_s;
            if self.in_use >= self.limit {
                self.occupancy.busy_s += dt_s;
            }
        }
        now
    }

    fn class_of(&self, request: &Request) -> u16 {
        if usize::from(request.class.0) < self.classes.len() {
            request.class.0
        } else {
            0
        }
    }

    fn threshold_now(&mut self, now: Instant) -> Rank {
        if !self.threshold.is_open() && now.nanos_since(self.gate_set_at) > GATE_STALE_NS {
            self.threshold = Rank::OPEN;
            self.binding = Binding::Nothing;
        }
        self.threshold
    }

    fn enqueue(&mut self, entry: Entry) -> Offered {
        let (rank, token) = (entry.rank, entry.token);
        self.entered += 1;
        let id = self.queue.push(entry);
        while self.queue.len() > self.queue_len_max() || self.queue.bytes() > self.queue_bytes_max {
            let Some(worst) = self.queue.pop_worst() else {
                break;
            };
            self.evicted = true;
            if worst.token == token {
                self.count(rank, Verdict::Refuse(Reason::Evicted));
                return Offered::Rejected(self.rejected(&worst, Reason::Evicted));
            }
            self.refuse(&worst, Reason::Evicted);
        }
        self.waiting_peak = self.waiting_peak.max(self.queue.len());
        Offered::Waiting(id)
    }

    fn queue_len_max(&self) -> u32 {
        self.queue_len_max.unwrap_or_else(|| {
            let by_capacity = (QUEUE_SECONDS * self.completions_per_s()) as u32;
            let derived = self.limit.saturating_mul(QUEUE_LIMITS).max(by_capacity);
            derived.clamp(QUEUE_LEN_MIN, QUEUE_LEN_DERIVED_MAX)
        })
    }

    /// Fills free slots from the queue.
    fn dispatch(&mut self, now: Instant) {
        if self.queue.is_empty() || self.in_use >= self.limit {
            return;
        }
        self.observe_sojourn(now);
        while self.in_use < self.limit {
            let Some(entry) = self.queue.pop_best(self.codel.newest_first()) else {
                return;
            };
            let waited = now.nanos_since(entry.enqueued_at);
            if entry.expires_at <= now || waited >= self.codel.timeout_ns() {
                self.refuse(&entry, Reason::Expired);
                continue;
            }
            self.in_use += 1;
            self.left += 1;
            self.grant(now, &entry, AdmitKind::Slot);
        }
    }

    fn observe_sojourn(&mut self, now: Instant) {
        let worst = self.queue.worst();
        let sojourn = worst.map(|entry| now.nanos_since(entry.enqueued_at));
        self.codel.observe(now, sojourn);
    }

    fn expire_until(&mut self, now: Instant) {
        if self.queue.is_empty() {
            return;
        }
        let mut expired = std::mem::take(&mut self.expired);
        self.queue.pop_due(now, &mut expired);
        let timeout_ns = self.codel.timeout_ns();
        if let Some(cutoff) = now.as_nanos().checked_sub(timeout_ns) {
            let cutoff = Instant::from_nanos(cutoff);
            expired.extend(std::iter::from_fn(|| self.queue.pop_older(cutoff)));
        }
        for entry in expired.drain(..) {
            self.refuse(&entry, Reason::Expired);
        }
        self.expired = expired;
    }

    /// Evicts waiters whose whole level lies beyond the threshold, worst first, until the backlog is
    /// near its target. Without it the gate would pay for what the queue holds by refusing better
    /// work: t0+t1 at 2x on 10 rps rose from 0.947 to 0.991 of its offers.
    fn sweep(&mut self) {
        let allowed = SWEEP_TARGETS * self.budget.target_s * self.capacity.rate();
        while self.queue.cost() as f64 > allowed {
            let beyond = |worst: &Entry| whole_level(worst.rank) >= self.threshold;
            if !self.queue.worst().is_some_and(beyond) {
                return;
            }
            if let Some(worst) = self.queue.pop_worst() {
                self.refuse(&worst, Reason::Evicted);
            }
        }
    }

    fn grant(&mut self, now: Instant, entry: &Entry, kind: AdmitKind) {
        self.count(entry.rank, Verdict::Admit(kind));
        self.effects.push(Effect {
            token: entry.token,
            result: Ok(Ticket {
                kind,
                started_at: now,
                rank: entry.rank,
                cost: entry.cost,
                class: entry.class,
            }),
        });
    }

    fn refuse(&mut self, entry: &Entry, reason: Reason) {
        self.count(entry.rank, Verdict::Refuse(reason));
        self.effects.push(Effect {
            token: entry.token,
            result: Err(self.rejected(entry, reason)),
        });
    }

    fn rejected(&self, entry: &Entry, reason: Reason) -> Rejected {
        let gate = (self.threshold, self.binding);
        Rejected::new(reason, entry.rank, gate, entry.salt, entry.attempt)
    }

    fn admit(&mut self, ticket: Ticket) -> Offered {
        self.count(ticket.rank, Verdict::Admit(ticket.kind));
        Offered::Admitted(ticket)
    }

    fn reject(&mut self, request: &Request, rank: Rank, reason: Reason) -> Offered {
        self.count(rank, Verdict::Refuse(reason));
        let gate = (self.threshold, self.binding);
        let salt = self.salt(request);
        Offered::Rejected(Rejected::new(reason, rank, gate, salt, request.attempt))
    }

    /// Spreads the retry times of callers refused together.
    fn salt(&self, request: &Request) -> u32 {
        mix64(request.key.unwrap_or(0) ^ self.offered.rotate_left(32)) as u32
    }

    fn count(&mut self, rank: Rank, verdict: Verdict) {
        self.verdicts.count(rank.priority().tier(), verdict);
    }
}

/// The first rank of the level that `rank` lies in.
const fn whole_level(rank: Rank) -> Rank {
    Rank::new(rank.priority(), 0)
}
