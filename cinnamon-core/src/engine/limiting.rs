//! An engine's slots: what they did, who decides how many there are, and what became of it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Engine;
use crate::clock::Instant;
use crate::config::{Config, LaneSettings};
use crate::limiter::{DEFAULT_FOUND_LIMIT_MAX, Limit, LimitChange, LimitRule, Limiter, SlotUse};
use crate::metrics::LaneSnapshot;
use crate::permit::Outcome;
use crate::priority::mix64;
use crate::shards::Ended;

/// A limiter is asked no more often than this: ticks that a waiter kicked off see nothing.
const ASKED_S: f64 = 1e-3;

/// Why a limit is no longer looked for.
pub(crate) const PANICKED: &str = "the limiter panicked";

/// A change of the limit that was meant to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) rule: &'static str,
}

/// Who decides on the slots, and what they did since it was asked last.
#[derive(Debug)]
pub(super) struct Slotting {
    limiter: Option<Box<dyn Limiter>>,
    /// Its name, asked for once.
    name: &'static str,
    bounds: (u32, u32),
    configured: Limit,
    seen: SlotUse,
    /// When the present limit began.
    since: Instant,
    /// The limit that was last meant to stay.
    settled: u32,
    trial: bool,
    moved: Option<Moved>,
    moves: u64,
    news: bool,
    /// Nothing is asked: what the slots do is not what the store does.
    held: bool,
}

impl Slotting {
    pub(super) fn new(lane: &LaneSettings, seed: u64, now: Instant) -> Self {
        let slots = lane.limit.start();
        Self {
            limiter: lane.limit.limiter(slots, seed),
            name: lane.limit.rule.name(),
            bounds: lane.limit.bounds(),
            configured: lane.limit,
            seen: SlotUse::default(),
            since: now,
            settled: slots,
            trial: false,
            moved: None,
            moves: 0,
            news: false,
            held: false,
        }
    }

    /// So much time passed with these slots taken, a part of it without anything coming back.
    pub(super) fn passed(
        &mut self,
        dt_s: f64,
        in_use: u32,
        limit: u32,
        waiting: u32,
        stalled_s: f64,
    ) {
        if self.limiter.is_none() {
            return;
        }
        let seen = &mut self.seen;
        seen.seconds += dt_s;
        seen.slot_s += f64::from(in_use) * dt_s;
        seen.waiting_s += f64::from(waiting) * dt_s;
        seen.in_use_peak = seen.in_use_peak.max(in_use);
        if in_use >= limit {
            seen.full_s += dt_s;
        }
        seen.stalled |= stalled_s > 0.0;
    }

    /// Work that held a slot is done.
    pub(super) fn ended(&mut self, cost: u32, outcome: Option<Outcome>) {
        let cost = u64::from(cost);
        let one = Ended {
            requests: 1,
            cost,
            cost_squares: cost * cost,
        };
        self.ended_many(outcome, &one);
    }

    /// So much work is done that ended alike.
    pub(super) fn ended_many(&mut self, outcome: Option<Outcome>, ended: &Ended) {
        if self.limiter.is_none() {
            return;
        }
        let seen = &mut self.seen;
        match outcome {
            Some(Outcome::Success) => {
                seen.succeeded += ended.requests;
                seen.succeeded_cost += ended.cost as f64;
                seen.succeeded_cost_squares += ended.cost_squares as f64;
            }
            Some(Outcome::Overloaded) => seen.overloaded += ended.requests,
            _ => {}
        }
    }

    /// The most slots that were in use while the engine did not look.
    pub(super) fn saw_peak(&mut self, in_use: u32) {
        self.seen.in_use_peak = self.seen.in_use_peak.max(in_use);
    }

    /// Work of which the time was taken is done.
    pub(super) fn held(
        &mut self,
        started_at: Instant,
        held_ns: u64,
        outcome: Option<Outcome>,
        stands_for: u64,
    ) {
        if self.limiter.is_none() || !outcome.is_some_and(Outcome::teaches) {
            return;
        }
        let seen = &mut self.seen;
        let held_s = held_ns as f64 * 1e-9;
        let weight = stands_for as f64;
        seen.samples += 1;
        seen.timed += stands_for;
        seen.service_sum_s += weight * held_s;
        seen.service_squares_s2 += weight * held_s * held_s;
        seen.service_least_s = if seen.samples == 1 {
            held_s
        } else {
            seen.service_least_s.min(held_s)
        };
        if started_at >= self.since {
            seen.fresh += stands_for;
            seen.fresh_sum_s += weight * held_s;
        }
    }

    /// The limiter panicked: the limit that was last meant to stay is to stay.
    fn take_out(&mut self) -> u32 {
        self.limiter = None;
        self.trial = false;
        self.moved = Some(Moved {
            from: self.settled,
            to: self.settled,
            rule: PANICKED,
        });
        self.news = true;
        self.settled
    }

    /// Somebody else has set the limit.
    fn go_on_from(&mut self, limit: u32) {
        self.trial = false;
        self.seen = SlotUse::default();
        if let Some(limiter) = &mut self.limiter
            && catch_unwind(AssertUnwindSafe(|| limiter.moved(limit))).is_err()
        {
            self.take_out();
        }
    }

    fn note(&mut self, from: u32, to: u32, rule: &'static str) {
        if from != to {
            self.moved = Some(Moved { from, to, rule });
            self.moves += 1;
            self.news = true;
        }
        self.settled = to;
    }
}

impl Engine {
    /// Asks the limiter, and does what it says.
    pub(super) fn ask_limiter(&mut self, now: Instant) {
        let slots = &mut self.slotting;
        if slots.seen.seconds < ASKED_S || slots.held {
            return;
        }
        let Some(limiter) = slots.limiter.as_mut() else {
            return;
        };
        let seen = SlotUse {
            limit: self.limit,
            in_use: self.in_use,
            in_use_peak: slots.seen.in_use_peak.max(self.in_use),
            service_p90_s: self.steering.service().p90_s,
            ..std::mem::take(&mut slots.seen)
        };
        // It may be the embedder's own code.
        let Ok(wanted) = catch_unwind(AssertUnwindSafe(|| limiter.tick(&seen))) else {
            let limit = slots.take_out();
            self.resize(now, limit);
            return;
        };
        let limit = wanted.limit.clamp(slots.bounds.0, slots.bounds.1);
        slots.trial = wanted.trial;
        if !wanted.trial {
            slots.note(slots.settled, limit, wanted.rule);
        }
        if limit != self.limit {
            self.resize(now, limit);
        }
    }

    /// Changes the number of slots by hand. A lower limit acts as slots come back, a higher one at once.
    pub(crate) fn set_limit(&mut self, now: Instant, limit: u32) {
        let now = self.advance(now);
        let slots = &mut self.slotting;
        slots.note(slots.settled, limit, "by hand");
        // Who sets it by hand means it, whatever the bounds were.
        slots.bounds = (slots.bounds.0.min(limit), slots.bounds.1.max(limit));
        slots.go_on_from(limit);
        self.resize(now, limit);
    }

    fn resize(&mut self, now: Instant, limit: u32) {
        self.limit = limit;
        self.slotting.since = now;
        self.dispatch(now);
    }

    /// The limit without a trial that is on.
    #[cfg(feature = "test-util")]
    pub(crate) const fn settled_limit(&self) -> u32 {
        self.slotting.settled
    }

    /// Takes the embedder's own limiter.
    pub(crate) fn set_limiter(&mut self, limiter: Box<dyn Limiter>) {
        if self.slotting.configured.rule == LimitRule::Fixed {
            self.slotting.bounds = (1, DEFAULT_FOUND_LIMIT_MAX);
        }
        let name = catch_unwind(AssertUnwindSafe(|| limiter.name()));
        self.slotting.name = name.unwrap_or("nameless");
        self.slotting.limiter = Some(limiter);
    }

    /// Puts a limit that is found out of step with those of other nodes.
    pub(crate) fn jitter_limiter(&mut self, seed: u64) {
        let lane = self.slotting.configured;
        if let Some(limiter) = lane.limiter(self.limit, seed) {
            self.slotting.limiter = Some(limiter);
        }
    }

    /// While what the slots do says nothing of the store (it is not they that hold work back), the limit stays.
    pub(crate) fn hold_limit(&mut self, now: Instant, held: bool) {
        let slots = &mut self.slotting;
        if slots.held == held {
            return;
        }
        slots.held = held;
        let settled = slots.settled;
        slots.go_on_from(settled);
        if settled != self.limit {
            let now = self.advance(now);
            self.resize(now, settled);
        }
    }

    /// Takes over another way to find the limit; what is in force is where it begins.
    pub(super) fn reconfigure_limit(&mut self, now: Instant, old: &Config, new: &Config) {
        let lane = usize::from(self.lane);
        let (old, new) = (old.lanes[lane].limit, new.lanes[lane].limit);
        if old == new {
            return;
        }
        let explicit = new.initial.filter(|_| new.initial != old.initial);
        let (least, most) = new.bounds();
        let start = explicit.unwrap_or(self.slotting.settled).clamp(least, most);
        self.slotting.bounds = (least, most);
        self.slotting.configured = new;
        self.slotting.limiter = new.limiter(start, mix64(now.as_nanos() ^ u64::from(self.lane)));
        self.slotting.name = new.rule.name();
        self.slotting.seen = SlotUse::default();
        self.slotting.trial = false;
        self.slotting
            .note(self.slotting.settled, start, "by configuration");
        self.resize(now, start);
    }

    /// The change of the limit since the last call, if there was one that was meant to stay.
    pub(crate) fn take_limit_moved(&mut self) -> Option<Moved> {
        std::mem::take(&mut self.slotting.news)
            .then_some(self.slotting.moved)
            .flatten()
    }

    pub(super) fn fill_limit(&self, snapshot: &mut LaneSnapshot) {
        let slots = &self.slotting;
        (snapshot.limit_min, snapshot.limit_max) = match slots.limiter {
            Some(_) => slots.bounds,
            None => (self.limit, self.limit),
        };
        let fixed = LimitRule::Fixed.name();
        let name = slots.limiter.as_ref().map_or(fixed, |_| slots.name);
        name.clone_into(&mut snapshot.limit_rule);
        snapshot.limit_trial = slots.trial;
        snapshot.limit_moves = slots.moves;
        snapshot.limit_moved = slots.moved.map(|moved| LimitChange {
            from: moved.from,
            to: moved.to,
            rule: moved.rule.to_owned(),
        });
    }
}
