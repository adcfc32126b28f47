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

mod free;
mod limiting;
mod offering;
mod outside;
mod published;
mod queueing;
mod shares;
mod tenants;
mod time;

pub(crate) use limiting::{Moved, PANICKED};

use crate::clock::Instant;
use crate::config::{ClassSettings, Config};
use crate::effects::{Effect, Offered, Ticket};
use crate::histogram::Histogram;
use crate::metrics::VerdictCounts;
use crate::overrides::TenantRule;
use crate::permit::Completion;
use crate::priority::{KeyHash, Rank, Tier, mix64};
use crate::queue::{Entry, Queue, WaiterId};
use crate::request::Request;
use crate::retry::{Advice, ServerBudget};
use crate::shards::Tally;
use crate::steering::{Slots, Steering};
use crate::sync::Arc;
use crate::throttle::Throttle;
use crate::verdict::{AdmitKind, Binding, Reason, Rejected, Verdict};
use shares::Shares;
use tenants::Tenants;

/// More than one slot in four free, more than one in all, and nobody waiting: the gate yields. In an
/// overload the backlog at the boundary keeps the slots full, and so many are never free.
const IDLE_SLOTS_SHARE: u32 = 4;
/// A gate that nobody moved for this long belongs to a dead or starved control thread: it opens.
const GATE_STALE_NS: u64 = 2_000_000_000;
/// Weight of one completion in its class's mean cost.
const COST_GAIN: f64 = 1.0 / 32.0;

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

#[derive(Debug)]
struct ClassModel {
    default_tier: Option<Tier>,
    /// The mean, and what a request is charged that does not say its own: that in whole units, at least 1.
    cost: f64,
    units: u32,
}

impl ClassModel {
    fn new(class: &ClassSettings) -> Self {
        Self {
            default_tier: class.default_tier,
            cost: f64::from(class.cost),
            units: class.cost.max(1),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Engine {
    // ----- settings
    hash: KeyHash,
    cohort_seed: u64,
    lane: u8,
    untagged_tier: Tier,
    queue_len_max: Option<u32>,
    queue_bytes_max: u64,
    // ----- time
    now: Instant,
    /// Added to the clock's reading so that engine time never runs backwards.
    skew_ns: u64,
    /// When the last gap ended in which nobody looked at the clock.
    gap_ends: Instant,
    // ----- slots and waiters
    limit: u32,
    slotting: limiting::Slotting,
    in_use: u32,
    /// Slots in use when the engine let go of them, until the time since is accounted for.
    in_use_before: Option<u32>,
    pace: free::Pace,
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
    /// For how long something has held the gate, ns.
    held_ns: u64,
    /// No rank from here on passes, whatever the law says or the slots do, until `cap_ends` (the engine's time).
    cap: Rank,
    cap_ends: Instant,
    /// Tenants for whom an override says something else than for all; almost always none.
    tenant_rules: Vec<TenantRule>,
    tenants: Tenants,
    shares: Shares,
    /// Culprits; almost always none.
    throttles: Vec<Arc<Throttle>>,
    /// Of the request offered last: what a ticket of it says.
    last: Ticket,
    // ----- what is learned
    classes: Vec<ClassModel>,
    steering: Steering,
    retries: ServerBudget,
    /// Of those who did not come to the engine.
    tally: Tally,
    /// The mean cost of some class is another than its gate shows.
    costs_changed: bool,
    retries_at: Instant,
    /// Other instances serve the same.
    peers: bool,
    // ----- counters
    offered: u64,
    untagged: u64,
    verdicts: VerdictCounts,
    waiting_peak: u32,
    /// Cost shed, by what held the gate: see [`cause`].
    shed_cost: Vec<u64>,
    /// Of those who waited for their slot.
    waited: Histogram,
    served: Histogram,
}

impl Engine {
    pub(crate) fn new(config: &Config, lane: usize, now: Instant) -> Self {
        let settings = &config.lanes[lane];
        Self {
            hash: KeyHash::new(config.cohort_seed, 0),
            cohort_seed: config.cohort_seed,
            lane: lane as u8,
            untagged_tier: config.untagged_tier,
            queue_len_max: settings.queue_len_max,
            queue_bytes_max: settings.queue_bytes_max,
            now,
            skew_ns: 0,
            gap_ends: Instant::ZERO,
            limit: settings.limit.start(),
            slotting: limiting::Slotting::new(
                settings,
                mix64(config.cohort_seed ^ lane as u64),
                now,
            ),
            in_use: 0,
            in_use_before: None,
            pace: free::Pace::new(now),
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
            held_ns: 0,
            cap: Rank::OPEN,
            cap_ends: now,
            tenant_rules: Vec::new(),
            tenants: Tenants::new(config, lane),
            shares: Shares::new(settings),
            throttles: Vec::new(),
            last: Ticket::open(Rank::OPEN),
            classes: config.classes.iter().map(ClassModel::new).collect(),
            steering: Steering::new(config, lane),
            retries: ServerBudget::new(),
            tally: Tally::new(),
            costs_changed: true,
            retries_at: now,
            peers: config.peers,
            offered: 0,
            untagged: 0,
            verdicts: VerdictCounts::default(),
            waiting_peak: 0,
            shed_cost: Vec::new(),
            waited: Histogram::default(),
            served: Histogram::default(),
        }
    }

    /// Withdraws a waiter. `false` when it no longer waits: then it was granted or refused.
    pub(crate) fn cancel(&mut self, now: Instant, id: WaiterId) -> bool {
        self.advance(now);
        match self.queue.remove(id) {
            Some(entry) => {
                self.steering.lost_for_impatience(entry.cost);
                self.count(entry.rank, Verdict::Cancel);
                self.left(&entry);
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
            free: false,
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
                self.give_slot_back(ticket);
                self.steering.completed(ticket.cost);
                let outcome = done.map(|done| done.outcome);
                self.steering.ended(outcome);
                self.slotting.ended(ticket.cost, outcome);
                if !ticket.free {
                    let held_ns = now.nanos_since(ticket.started_at);
                    let stands_for = 1 << ticket.stands_for_bits;
                    self.served.record_many(held_ns, stands_for);
                    if ticket.started_at >= self.gap_ends {
                        self.steering.held(held_ns, outcome, stands_for);
                        self.slotting
                            .held(ticket.started_at, held_ns, outcome, stands_for);
                    }
                }
                if let Some(cost) = done.and_then(|done| done.cost) {
                    let model = &mut self.classes[usize::from(ticket.class)];
                    model.cost += COST_GAIN * (f64::from(cost) - model.cost);
                    let units = (model.cost.round() as u32).max(1);
                    self.costs_changed |= units != model.units;
                    model.units = units;
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
        self.pace.tick(now, self.offered);
        let threshold = self.steering.tick(self.slots());
        self.ask_limiter(now);
        self.observe_sojourn(now);
        self.retries
            .pass(now.nanos_since(self.retries_at) as f64 * 1e-9);
        self.retries_at = now;
        threshold
    }

    /// Sets the gate to the lowest threshold of the scope, and, while engaged, sweeps the queue.
    pub(crate) fn set_gate(&mut self, now: Instant, threshold: Rank, binding: Binding, epoch: u64) {
        let now = self.advance(now);
        self.hash = KeyHash::new(self.cohort_seed, epoch);
        if self.binding != Binding::Nothing {
            self.held_ns += now.nanos_since(self.gate_set_at);
        }
        self.steering.gate_set(threshold);
        self.threshold = threshold;
        self.binding = if threshold.is_open() {
            Binding::Nothing
        } else {
            binding
        };
        self.gate_set_at = now;
        self.evict_beyond(self.cap_now(now));
        if self.steering.engaged() && self.steering.parts().sweep {
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
        let at = self.queue.next_wakeup(self.steering.timeout())?;
        Some(Instant::from_nanos(
            at.as_nanos().saturating_sub(self.skew_ns),
        ))
    }

    /// All that was ever offered.
    pub(crate) const fn offered(&self) -> u64 {
        self.offered
    }

    /// The request offered last, as a ticket.
    pub(crate) const fn last_offered(&self) -> Ticket {
        self.last
    }

    /// Whether there is anything to tell waiters.
    pub(crate) const fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Moves what must be told to waiters into `out`.
    pub(crate) fn take_effects(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.effects);
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
        self.steering.completions_per_s()
    }

    /// Whether a tick could change nothing: nobody came, nobody waits, nothing is held back.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.threshold.is_open() && self.steering.is_idle()
    }

    // ----- helpers

    /// The slots as the law is to see them: those that are kept free on purpose are none.
    fn slots(&self) -> Slots {
        let held = self.shares.held_from(None, self.limit);
        Slots {
            limit: (self.limit - held).max(1),
            in_use: self.in_use,
        }
    }

    /// A request has a slot from now on.
    fn take_slot(&mut self, ticket: Ticket) -> Ticket {
        self.in_use += 1;
        self.shares.started(ticket.rank.priority().tier().index());
        if ticket.counted {
            self.tenants.change(ticket.tenant, 1, 0);
        }
        Ticket {
            kind: AdmitKind::Slot,
            ..ticket
        }
    }

    fn give_slot_back(&mut self, ticket: &Ticket) {
        self.in_use -= 1;
        self.shares.ended(ticket.rank.priority().tier().index());
        if ticket.counted {
            self.tenants.change(ticket.tenant, -1, 0);
        }
    }

    /// A waiter waits no longer.
    fn left(&mut self, entry: &Entry) {
        if entry.counted {
            self.tenants.change(entry.tenant, 0, -1);
        }
    }

    /// The cap, while its time lasts: it ends even if nobody is there to end it.
    fn cap_now(&self, now: Instant) -> Rank {
        if now < self.cap_ends {
            self.cap
        } else {
            Rank::OPEN
        }
    }

    fn grant(&mut self, now: Instant, entry: &Entry, kind: AdmitKind) {
        self.count(entry.rank, Verdict::Admit(kind));
        self.left(entry);
        let ticket = Ticket {
            started_at: now,
            cost: entry.cost,
            class: entry.class,
            tenant: entry.tenant,
            counted: entry.counted,
            key: entry.key,
            bytes: entry.bytes,
            waited_ns: now.nanos_since(entry.enqueued_at),
            ..Ticket::open(entry.rank)
        };
        let ticket = match kind {
            AdmitKind::Slot => self.take_slot(ticket),
            AdmitKind::Exempt | AdmitKind::Open => {
                self.open_in_use += 1;
                ticket
            }
        };
        self.effects.push(Effect {
            token: entry.token,
            result: Ok(ticket),
        });
    }

    fn refuse(&mut self, entry: &Entry, reason: Reason) {
        self.count(entry.rank, Verdict::Refuse(reason));
        self.left(entry);
        let rejected = self.rejected(entry, reason);
        self.effects.push(Effect {
            token: entry.token,
            result: Err(rejected),
        });
    }

    fn rejected(&mut self, entry: &Entry, reason: Reason) -> Rejected {
        let gate = (self.threshold, self.binding);
        let retry = (entry.attempt, self.advice(reason));
        Rejected::new(reason, entry.rank, gate, entry.salt, retry)
    }

    /// What one who is refused for this reason is told of trying again.
    fn advice(&mut self, reason: Reason) -> Advice {
        // What these say needs no budget.
        let asks = !matches!(reason, Reason::Hopeless | Reason::Closed);
        match asks && !self.retries.grant() {
            true => Advice::Never,
            false if self.peers => Advice::Elsewhere,
            false => Advice::Wait,
        }
    }

    fn admit(&mut self, ticket: Ticket) -> Offered {
        self.count(ticket.rank, Verdict::Admit(ticket.kind));
        Offered::Admitted(ticket)
    }

    fn reject(&mut self, request: &Request, rank: Rank, reason: Reason) -> Offered {
        self.reject_at(request, rank, reason, (self.threshold, self.binding))
    }

    fn reject_at(
        &mut self,
        request: &Request,
        rank: Rank,
        reason: Reason,
        gate: (Rank, Binding),
    ) -> Offered {
        self.count(rank, Verdict::Refuse(reason));
        let salt = self.salt(request);
        let retry = (request.attempt, self.advice(reason));
        Offered::Rejected(Rejected::new(reason, rank, gate, salt, retry))
    }

    /// Spreads the retry times of callers refused together.
    fn salt(&self, request: &Request) -> u32 {
        mix64(request.key.unwrap_or(0) ^ self.offered.rotate_left(32)) as u32
    }

    fn count(&mut self, rank: Rank, verdict: Verdict) {
        self.verdicts.count(rank.priority().tier(), verdict);
    }
}

/// The number under which what is shed for this is counted.
const fn cause(binding: Binding) -> usize {
    match binding {
        // A tenant's cap sheds nothing: it refuses before the gate.
        Binding::Nothing | Binding::Backlog { .. } | Binding::Tenant => 0,
        Binding::Override => 1,
        Binding::Signal { index } => 2 + index as usize,
    }
}
