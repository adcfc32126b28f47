//! The model's queue, and all that happens to a lane but offers.

use std::collections::HashSet;

use cinnamon_core::{AdmitKind, Binding, KeyHash, Mode, Rank, Reason, Tier, Verdict};

use super::{Lane, Rule, Seen, Shadow, Ticket, Told, Waiter};
use crate::figures::all_verdicts;
use crate::ops::LaneCase;
use crate::{Checked, ensure};

/// The queue is swept to so many targets of the backlog, and in the tick that engages to so many …
const SWEEP: (f64, f64) = (2.0, 0.8);
/// … times this, or through it: the target that a snapshot shows is that of a moment before.
const ABOUT: f64 = 1.5;

impl Lane {
    // ----- permits and futures

    /// A permit is given back.
    pub fn finish(&mut self, clock: u64, ticket: &Ticket, seen: &Seen) -> Checked {
        if ticket.shadowed {
            self.let_in -= 1;
            let held = self.time_at(clock).saturating_sub(ticket.since);
            match self.shadows.get(&ticket.id).copied() {
                Some(Shadow::Waits) => {
                    self.shadows.insert(ticket.id, Shadow::WaitsDone { held });
                }
                Some(Shadow::Runs { tier, since }) if self.mode == Mode::Monitor => {
                    let at = since + held;
                    self.shadows.insert(ticket.id, Shadow::Ends { tier, at });
                }
                Some(Shadow::Runs { tier, .. }) => {
                    self.shadows.remove(&ticket.id);
                    self.enter(clock, seen)?;
                    self.slots[tier] -= 1;
                    return self.dispatch(seen);
                }
                _ => {
                    self.shadows.remove(&ticket.id);
                }
            }
            return self.enter(clock, seen);
        }
        self.enter(clock, seen)?;
        match ticket.kind {
            AdmitKind::Exempt => self.exempt -= 1,
            AdmitKind::Open => self.open_running -= 1,
            AdmitKind::Slot => {
                self.slots[ticket.tier] -= 1;
                self.dispatch(seen)?;
            }
        }
        Ok(())
    }

    /// Work within the work of `parent`.
    pub fn nested(&mut self, clock: u64, parent: &Ticket, id: u64, seen: &Seen) -> Checked<Ticket> {
        self.enter(clock, seen)?;
        self.offered += 1;
        self.exempt += 1;
        let kind = AdmitKind::Exempt;
        self.count(parent.tier, Verdict::Admit(kind));
        Ok(Ticket {
            id,
            kind,
            since: self.now,
            shadowed: false,
            ..*parent
        })
    }

    /// The owner of a future gives up.
    pub fn abandon(&mut self, clock: u64, id: u64, seen: &Seen) -> Checked {
        if let Some(ticket) = self.granted.remove(&id) {
            return self.finish(clock, &ticket, seen);
        }
        if let Some(at) = self.waiters.iter().position(|waiter| waiter.id == id) {
            self.enter(clock, seen)?;
            let waiter = self.waiters.remove(at);
            self.count(waiter.place.tier(), Verdict::Cancel);
        }
        Ok(())
    }

    /// Somebody looks for its answer, and with it after the time of all.
    pub fn expire(&mut self, clock: u64, seen: &Seen) -> Checked {
        self.enter(clock, seen)?;
        self.expire_due();
        Ok(())
    }

    // ----- the operator

    pub fn set_limit(&mut self, clock: u64, limit: u32, seen: &Seen) -> Checked {
        self.enter(clock, seen)?;
        self.limit = limit;
        self.dispatch(seen)
    }

    pub fn set_mode(&mut self, clock: u64, mode: Mode, seen: &Seen) -> Checked {
        if mode == self.mode {
            return Ok(());
        }
        self.enter(clock, seen)?;
        if self.mode == Mode::Monitor {
            // Who only waits or ends in the shadow leaves it; who runs in truth keeps the slot that it has there.
            for waiter in std::mem::take(&mut self.waiters) {
                self.count(waiter.place.tier(), Verdict::Cancel);
                match self.shadows.remove(&waiter.id) {
                    Some(Shadow::Waits) => {
                        self.shadows.insert(waiter.id, Shadow::Refused);
                    }
                    left => ensure!(matches!(left, Some(Shadow::WaitsDone { .. })), "{left:?}"),
                }
            }
            let slots = &mut self.slots;
            self.shadows.retain(|_, shadow| match shadow {
                Shadow::Ends { tier, .. } => {
                    slots[*tier] -= 1;
                    false
                }
                _ => true,
            });
        }
        if mode != Mode::Enforce {
            for waiter in std::mem::take(&mut self.waiters) {
                self.grant(&waiter, AdmitKind::Open)?;
            }
        }
        self.mode = mode;
        Ok(())
    }

    /// No rank from `cap` on until `ends`, by the clock.
    pub fn set_cap(&mut self, clock: u64, cap: Rank, ends: u64, seen: &Seen) -> Checked {
        self.enter(clock, seen)?;
        self.cap = Some((cap, ends + self.skew));
        self.open_if_stale();
        if self.cap_at(self.now) < self.threshold {
            (self.threshold, self.binding) = (cap, Binding::Override);
            self.gate_set_at = self.now;
        }
        self.evict_capped()
    }

    pub fn set_rules(&mut self, rules: &[Rule]) {
        let in_own_time = |rule: &Rule| Rule {
            ends: rule.ends + self.skew,
            ..*rule
        };
        self.rules = rules.iter().map(in_own_time).collect();
    }

    pub fn reconfigure(
        &mut self,
        clock: u64,
        to: &LaneCase,
        limit: Option<u32>,
        seen: &Seen,
    ) -> Checked {
        self.enter(clock, seen)?;
        self.queue_len_max = to.queue_len_max;
        self.queue_bytes_max = to.queue_bytes_max;
        self.limit = limit.unwrap_or(self.limit);
        self.dispatch(seen)
    }

    pub fn close(&mut self, clock: u64, seen: &Seen) -> Checked {
        self.enter(clock, seen)?;
        self.open = false;
        for waiter in std::mem::take(&mut self.waiters) {
            self.refuse(&waiter, Reason::Closed);
        }
        Ok(())
    }

    /// A control step. `cap` is what overrides say of this lane.
    pub fn tick(&mut self, clock: u64, cap: Rank, epoch: u64, seen: &Seen) -> Checked {
        self.enter(clock, seen)?;
        self.expire_due();
        self.hash = KeyHash::new(0, epoch);
        (self.threshold, self.binding) = (seen.threshold, seen.binding);
        self.gate_set_at = self.now;
        self.at_stale_gate = [0; 6];
        ensure!(self.threshold <= cap, "the gate stands above an override");
        let forced = self.binding == Binding::Override;
        ensure!(
            !forced || self.threshold == cap,
            "no override says {}",
            self.threshold
        );
        let held = self.binding != Binding::Nothing;
        ensure!(
            held != self.threshold.is_open(),
            "{:?} holds it",
            self.binding
        );
        self.evict_capped()?;
        self.sweep(seen)
    }

    // ----- the queue

    /// Fills free slots.
    pub(super) fn dispatch(&mut self, seen: &Seen) -> Checked {
        while self.in_use() < self.limit && !self.waiters.is_empty() {
            let next = self.next(seen)?;
            let waiter = self.waiters.remove(next);
            if self.is_due(&waiter) {
                self.refuse(&waiter, Reason::Expired);
            } else {
                self.grant(&waiter, AdmitKind::Slot)?;
            }
        }
        Ok(())
    }

    /// Whose turn it is: of the best tier, and of each tenant in it, the oldest, or the newest. Which tenant's turn it
    /// is is seen.
    fn next(&self, seen: &Seen) -> Checked<usize> {
        let best = self.waiters.iter().map(|waiter| waiter.place.tier()).min();
        let of_tier: Vec<usize> = self
            .indices(|waiter| Some(waiter.place.tier()) == best)
            .collect();
        let tenants: HashSet<Option<u32>> =
            of_tier.iter().map(|&at| self.waiters[at].tenant).collect();
        let newest = seen.snapshot.newest_first;
        let mut turns = Vec::new();
        for tenant in tenants {
            let mut of = of_tier
                .iter()
                .copied()
                .filter(|&at| self.waiters[at].tenant == tenant);
            turns.extend(if newest { of.next_back() } else { of.next() });
        }
        // One whose time is up must have been taken to be told so, and takes no slot.
        self.one_of(&turns, seen, |waiter| !self.is_due(waiter))
    }

    /// The one of these that was told something in this step; of several the first by `order`.
    fn one_of<K: Ord>(
        &self,
        may: &[usize],
        seen: &Seen,
        order: impl Fn(&Waiter) -> K,
    ) -> Checked<usize> {
        if let [only] = may {
            return Ok(*only);
        }
        let told = |&&at: &&usize| seen.woken.contains(&self.waiters[at].id);
        let told = may.iter().filter(told).copied();
        told.min_by_key(|&at| order(&self.waiters[at]))
            .ok_or_else(|| {
                let may: Vec<&Waiter> = may.iter().map(|&at| &self.waiters[at]).collect();
                format!("one of these must have been told something: {may:?}")
            })
    }

    /// Whether there is no room for those who wait, and so many more of so many bytes.
    pub fn is_beyond_full(&self, more: u32, more_bytes: u32) -> bool {
        let len = self.waiters.len() as u32 + more;
        let bytes = self.waiters.iter().map(|waiter| u64::from(waiter.bytes));
        let bytes = bytes.sum::<u64>() + u64::from(more_bytes);
        // What is derived is 160 at least, and no case comes that far.
        len > self.queue_len_max.unwrap_or(u32::MAX) || bytes > self.queue_bytes_max
    }

    /// Lets the worst go until all have room.
    pub(super) fn make_room(&mut self, newcomer: u64, seen: &Seen) -> Checked {
        while self.is_beyond_full(0, 0) {
            // Once it has to go itself, nobody else has to any more: so it is the last.
            let mut seen = seen.clone();
            let others = self
                .waiters
                .iter()
                .any(|waiter| seen.woken.contains(&waiter.id));
            if seen.newcomer_evicted && !others {
                seen.woken.insert(newcomer);
            }
            let worst = self.victim(&seen, |waiter| waiter.bytes)?;
            let waiter = self.waiters.remove(worst);
            self.refuse(&waiter, Reason::Evicted);
            if waiter.id == newcomer {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Who has to go: of the worst tier the oldest of the worst level; or, if another tenant has about twice as many
    /// waiters there, that one's oldest. `takes` is how much room each takes.
    fn victim(&self, seen: &Seen, takes: impl Fn(&Waiter) -> u32) -> Checked<usize> {
        let worst = self.waiters.iter().map(|waiter| waiter.place.tier()).max();
        let of_tier: Vec<usize> = self
            .indices(|waiter| Some(waiter.place.tier()) == worst)
            .collect();
        let level = |at: usize| self.waiters[at].place.level();
        let known = of_tier.iter().filter_map(|&at| level(at)).max();
        let oldest = of_tier
            .iter()
            .copied()
            .find(|&at| level(at).is_some() && level(at) == known);
        // Of keyless work the level is not to be seen, so it may lie anywhere.
        let anywhere = of_tier.iter().copied().filter(|&at| level(at).is_none());
        let length = |at: usize| {
            let tenant = self.waiters[at].tenant;
            let of = of_tier
                .iter()
                .filter(|&&of| self.waiters[of].tenant == tenant);
            of.count().ilog2()
        };
        let longest = of_tier.iter().map(|&at| length(at)).max();
        let mut may = Vec::new();
        for at in oldest.into_iter().chain(anywhere) {
            if Some(length(at)) == longest {
                may.push(at);
                continue;
            }
            let mut tenants = HashSet::new();
            let long = of_tier.iter().filter(|&&of| Some(length(of)) == longest);
            may.extend(long.filter(|&&of| tenants.insert(self.waiters[of].tenant)));
        }
        may.sort_unstable();
        may.dedup();
        // Had one that takes more gone first, one that takes less need not have.
        self.one_of(&may, seen, takes)
    }

    fn evict_capped(&mut self) -> Checked {
        let cap = self.cap_at(self.now);
        for at in (0..self.waiters.len()).rev() {
            if self.waiters[at].place.low >= cap {
                let waiter = self.waiters.remove(at);
                self.refuse(&waiter, Reason::Evicted);
            }
        }
        Ok(())
    }

    /// Lets those go whom the law has swept out; how many is seen.
    fn sweep(&mut self, seen: &Seen) -> Checked {
        let evicted = Verdict::Refuse(Reason::Evicted);
        let swept = seen
            .snapshot
            .verdicts
            .total(evicted)
            .checked_sub(self.total(evicted));
        let Some(swept) = swept else {
            return Err("fewer were evicted than must have been".to_owned());
        };
        ensure!(
            swept == 0 || seen.snapshot.engaged,
            "{swept} swept, and no law is engaged"
        );
        let first = seen.snapshot.engaged && !self.engaged;
        let target = seen.snapshot.wait_target_s * seen.snapshot.capacity_per_s;
        let beyond = |lane: &Self, at: usize, first: bool| {
            let place = lane.waiters[at].place;
            let level = if place.level().is_some() {
                place.low
            } else {
                place.high
            };
            Rank::new(level.priority(), 0) >= lane.threshold
                || (first && place.tier() >= Tier::T2.index())
        };
        for _ in 0..swept {
            ensure!(!self.waiters.is_empty(), "more were evicted than waited");
            let least = if first { SWEEP.1 } else { SWEEP.0 };
            let cost = self.waiting_cost() as f64;
            ensure!(
                cost * ABOUT > least * target,
                "swept at a backlog of {cost}, target {target}"
            );
            let worst = self.victim(seen, |waiter| waiter.cost)?;
            // Who goes in place of the worst may lie anywhere.
            let alone = self.waiters.iter().all(|waiter| waiter.tenant.is_none());
            ensure!(
                !alone || beyond(self, worst, first),
                "one was swept who passes the gate"
            );
            let waiter = self.waiters.remove(worst);
            self.refuse(&waiter, Reason::Evicted);
        }
        let all_known = self
            .waiters
            .iter()
            .all(|waiter| waiter.place.level().is_some() && waiter.tenant.is_none());
        if seen.snapshot.engaged
            && all_known
            && !self.waiters.is_empty()
            && self.waiting_cost() as f64 > ABOUT * SWEEP.0 * target
        {
            let worst = self.victim(seen, |waiter| waiter.cost)?;
            ensure!(
                !beyond(self, worst, false),
                "the worst should have been swept"
            );
        }
        Ok(())
    }

    fn is_due(&self, waiter: &Waiter) -> bool {
        let waited = self.now - waiter.since;
        let strict = self.engaged || waiter.until.is_none();
        waiter.until.is_some_and(|at| at <= self.now) || (strict && waited >= self.timeout)
    }

    fn expire_due(&mut self) {
        let (due, waiting): (Vec<Waiter>, Vec<Waiter>) =
            self.waiters.iter().partition(|waiter| self.is_due(waiter));
        self.waiters = waiting;
        due.iter()
            .for_each(|waiter| self.refuse(waiter, Reason::Expired));
    }

    fn grant(&mut self, waiter: &Waiter, kind: AdmitKind) -> Checked {
        let tier = waiter.place.tier();
        self.count(tier, Verdict::Admit(kind));
        match kind {
            AdmitKind::Slot => self.slots[tier] += 1,
            AdmitKind::Exempt | AdmitKind::Open => self.open_running += 1,
        }
        let (id, since) = (waiter.id, self.now);
        if !waiter.shadow {
            let ticket = Ticket {
                id,
                kind,
                tier,
                since,
                shadowed: false,
            };
            self.granted.insert(id, ticket);
            self.told.push((id, Told::Runs(kind)));
            return Ok(());
        }
        let shadow = match self.shadows.get(&id) {
            Some(Shadow::Waits) => Shadow::Runs { tier, since },
            Some(Shadow::WaitsDone { held }) => Shadow::Ends {
                tier,
                at: since + held,
            },
            other => return Err(format!("{other:?} waits in the shadow")),
        };
        self.shadows.insert(id, shadow);
        Ok(())
    }

    fn refuse(&mut self, waiter: &Waiter, reason: Reason) {
        self.count(waiter.place.tier(), Verdict::Refuse(reason));
        if !waiter.shadow {
            self.told.push((waiter.id, Told::Refused(reason)));
        } else if let Some(Shadow::Waits) = self.shadows.remove(&waiter.id) {
            self.shadows.insert(waiter.id, Shadow::Refused);
        }
    }

    // ----- sums

    pub(super) fn waiting_cost(&self) -> u64 {
        self.waiters
            .iter()
            .map(|waiter| u64::from(waiter.cost))
            .sum()
    }

    pub(super) fn count(&mut self, tier: usize, verdict: Verdict) {
        let number = all_verdicts().iter().position(|of| *of == verdict);
        *self
            .verdicts
            .entry((tier, number.unwrap_or(usize::MAX)))
            .or_default() += 1;
    }

    pub(super) fn total(&self, verdict: Verdict) -> u64 {
        let number = all_verdicts().iter().position(|of| *of == verdict);
        let of = self
            .verdicts
            .iter()
            .filter(|((_, of), _)| Some(*of) == number);
        of.map(|(_, count)| count).sum()
    }

    fn indices(&self, of: impl Fn(&Waiter) -> bool) -> impl Iterator<Item = usize> {
        (0..self.waiters.len()).filter(move |&at| of(&self.waiters[at]))
    }

    /// Whether a storm may go on: what is derived for the length of the queue must not be reached.
    pub fn is_far_from_full(&self) -> bool {
        self.waiters.len() < 100
    }
}
