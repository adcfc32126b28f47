//! An engine, and the mode in which its verdicts count.
//!
//! *Enforce* passes everything through. *Off* decides nothing. *Monitor* lets everything in at once and
//! has the engine decide all the same, in a shadow: a request that the engine lets wait, and later run, runs
//! at once in truth; when it is done, the shadow's slot comes back as much later as its turn came later. So
//! where neither arrivals nor service times depend on what is decided, the verdicts are those of Enforce, one
//! by one. On a live store they are an estimate: work that would have been refused ran, and made the rest
//! slower.
//!
//! | in the shadow | while it runs in truth | once that is done |
//! |---|---|---|
//! | refused | nothing | forgotten |
//! | waits | waits | waits, with the service time known |
//! | runs | runs | ends its service time after its turn came |

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Deref;
use std::time::Duration;

use crate::clock::Instant;
use crate::config::Config;
use crate::effects::{Effect, NO_SHADOW, Offered, Ticket};
use crate::engine::{Engine, Moved};
use crate::explain::Explanation;
use crate::gate::{Gate, Published};
use crate::limiter::Limiter;
use crate::metrics::LaneSnapshot;
use crate::overrides::TenantRule;
use crate::permit::Completion;
use crate::priority::Rank;
use crate::queue::WaiterId;
use crate::request::{Request, Tenant};
use crate::shards::Shards;
use crate::signal::Mode;
use crate::sync::Arc;
use crate::throttle::Throttle;
use crate::verdict::{AdmitKind, Binding, Reason};

/// So many shadows are kept when none is needed.
const SHADOWS_KEPT: usize = 1_024;

#[derive(Clone, Copy, Debug)]
enum Shadow {
    Free,
    Refused,
    Waits(WaiterId),
    /// … and is done in truth, after so many nanoseconds.
    WaitsDone(WaiterId, u64, Option<Completion>),
    Runs(Ticket),
    /// … and is done in truth; its end is planned.
    Ends(Ticket, Option<Completion>),
}

#[derive(Debug)]
pub(crate) struct Admission {
    engine: Engine,
    mode: Mode,
    shadows: Vec<Shadow>,
    free: Vec<u32>,
    /// Ends to come in the shadow.
    ends: BinaryHeap<Reverse<(Instant, u32)>>,
    /// Requests let in by Monitor that run in truth.
    running: u32,
    /// Shadows that hold a slot.
    shadow_slots: u32,
    /// Effects of a change of mode, for real waiters.
    effects: Vec<Effect>,
    scratch: Vec<Effect>,
}

impl Deref for Admission {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Admission {
    pub(crate) fn new(config: &Config, lane: usize, now: Instant) -> Self {
        Self {
            engine: Engine::new(config, lane, now),
            mode: Mode::Enforce,
            shadows: Vec::new(),
            free: Vec::new(),
            ends: BinaryHeap::new(),
            running: 0,
            shadow_slots: 0,
            effects: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// As [`Engine::offer`].
    pub(crate) fn offer(&mut self, now: Instant, request: &Request, wait: Option<u32>) -> Offered {
        if self.mode != Mode::Monitor {
            return self.engine.offer(now, request, wait);
        }
        self.settle(now);
        let id = self.free.pop().unwrap_or_else(|| {
            self.shadows.push(Shadow::Free);
            self.shadows.len() as u32 - 1
        });
        let offered = self.engine.offer(now, request, wait.map(|_| id));
        let shadow = match offered {
            Offered::Admitted(ticket) if ticket.kind != AdmitKind::Slot => {
                self.release(id);
                return offered;
            }
            Offered::Rejected(rejected) if rejected.reason() == Reason::Closed => {
                self.release(id);
                return offered;
            }
            Offered::Admitted(ticket) => Shadow::Runs(ticket),
            Offered::Waiting(waiter) => Shadow::Waits(waiter),
            Offered::Rejected(_) => Shadow::Refused,
        };
        self.put(id, shadow);
        self.absorb();
        self.running += 1;
        Offered::Admitted(Ticket {
            kind: AdmitKind::Open,
            shadow: id,
            ..self.engine.last_offered()
        })
    }

    pub(crate) fn cancel(&mut self, now: Instant, id: WaiterId) -> bool {
        self.engine.cancel(now, id)
    }

    pub(crate) fn nested(&mut self, now: Instant, parent: &Ticket) -> Ticket {
        self.settle(now);
        Ticket {
            nested: true,
            shadow: NO_SHADOW,
            ..self.engine.nested(now, parent)
        }
    }

    /// As [`Engine::finish`].
    pub(crate) fn finish(&mut self, now: Instant, ticket: &Ticket, done: Option<Completion>) {
        if ticket.shadow == NO_SHADOW {
            self.settle(now);
            self.engine.finish(now, ticket, done);
        } else {
            self.running -= 1;
            self.end(now, ticket, done);
            self.settle(now);
        }
        self.absorb();
        self.shrink();
    }

    pub(crate) fn tick(&mut self, now: Instant) -> Rank {
        self.settle(now);
        self.engine.hold_limit(now, self.mode != Mode::Enforce);
        let threshold = self.engine.tick(now);
        self.absorb();
        threshold
    }

    pub(crate) fn set_gate(&mut self, now: Instant, threshold: Rank, binding: Binding, epoch: u64) {
        self.engine.set_gate(now, threshold, binding, epoch);
        self.absorb();
    }

    /// As [`Engine::set_cap`].
    pub(crate) fn set_cap(&mut self, now: Instant, cap: Rank, ends_at: Instant) {
        self.settle(now);
        self.engine.set_cap(now, cap, ends_at);
        self.absorb();
    }

    /// As [`Engine::set_limiter`].
    pub(crate) fn set_limiter(&mut self, limiter: Box<dyn Limiter>) {
        self.engine.set_limiter(limiter);
    }

    pub(crate) fn jitter_limiter(&mut self, seed: u64) {
        self.engine.jitter_limiter(seed);
    }

    pub(crate) fn take_limit_moved(&mut self) -> Option<Moved> {
        self.engine.take_limit_moved()
    }

    pub(crate) fn set_tenant_rules(&mut self, rules: &[TenantRule]) {
        self.engine.set_tenant_rules(rules);
    }

    pub(crate) fn drop_tenant_card(&mut self, tenant: Tenant) {
        self.engine.drop_tenant_card(tenant);
    }

    /// As [`Engine::published`]; where verdicts do not count, nobody is refused.
    pub(crate) fn published(&self) -> Published {
        match self.mode {
            Mode::Enforce => self.engine.published(),
            Mode::Monitor | Mode::Off => Published::SHUT_OFF,
        }
    }

    /// As [`Engine::take_in`].
    pub(crate) fn take_in(&mut self, shards: &Shards) {
        self.engine.take_in(shards);
    }

    /// As [`Engine::runs_free`]; where verdicts do not count, everybody is looked at.
    pub(crate) fn runs_free(&self) -> bool {
        self.mode == Mode::Enforce && self.engine.runs_free()
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn let_run_free(&mut self) {
        self.engine.let_run_free();
    }

    /// As [`Engine::resume`].
    pub(crate) fn resume(&mut self, in_use: u32) {
        self.engine.resume(in_use);
    }

    pub(crate) fn publish_costs(&mut self, gate: &Gate) {
        self.engine.publish_costs(gate);
    }

    pub(crate) fn look_after_gate(&mut self, now: Instant) {
        self.engine.look_after_gate(now);
    }

    pub(crate) fn set_tenant_cards(&mut self, cards: &[(Tenant, u16)]) {
        self.engine.set_tenant_cards(cards);
    }

    pub(crate) fn set_throttles(&mut self, throttles: &[Arc<Throttle>]) {
        self.engine.set_throttles(throttles);
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        self.settle(now);
        self.engine.expire(now);
        self.absorb();
    }

    pub(crate) fn set_limit(&mut self, now: Instant, limit: u32) {
        self.settle(now);
        self.engine.set_limit(now, limit);
        self.absorb();
    }

    pub(crate) fn reconfigure(&mut self, now: Instant, old: &Config, new: &Config) {
        self.settle(now);
        self.engine.reconfigure(now, old, new);
        self.absorb();
    }

    pub(crate) fn drain(&mut self, now: Instant) {
        self.settle(now);
        self.engine.drain(now);
        self.absorb();
    }

    pub(crate) fn close(&mut self, now: Instant) {
        self.settle(now);
        self.engine.close(now);
        self.absorb();
    }

    /// Takes effect at once: who waits is let in when decisions no longer count.
    pub(crate) fn set_mode(&mut self, now: Instant, mode: Mode) {
        if mode == self.mode {
            return;
        }
        self.settle(now);
        if self.mode == Mode::Monitor {
            self.leave_the_shadow(now);
        }
        self.engine.set_off(now, mode != Mode::Enforce);
        self.engine.take_effects(&mut self.effects);
        self.engine.set_off(now, mode == Mode::Off);
        self.mode = mode;
        self.shrink();
    }

    /// Whether there is anything to tell waiters.
    pub(crate) const fn has_effects(&self) -> bool {
        !self.effects.is_empty() || self.engine.has_effects()
    }

    /// Moves what must be told to waiters into `out`.
    pub(crate) fn take_effects(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.effects);
        if self.mode != Mode::Monitor {
            self.engine.take_effects(out);
        }
    }

    pub(crate) const fn mode(&self) -> Mode {
        self.mode
    }

    /// As [`Engine::explain`], with the mode.
    pub(crate) fn explain(&self, now: Instant, request: &Request) -> Explanation {
        Explanation {
            mode: self.mode,
            ..self.engine.explain(now, request)
        }
    }

    /// For how long a ticket has been out, by the engine's time, as of its last step; by the clock's, if the engine did
    /// not give it.
    pub(crate) fn held(&self, ticket: &Ticket, now: Instant) -> Duration {
        let now = if ticket.free { now } else { self.engine.time() };
        now.since(ticket.started_at)
    }

    /// Whether somebody waits in the shadow: then ticks are needed as if it were in truth.
    pub(crate) fn waits_in_shadow(&self) -> bool {
        self.mode == Mode::Monitor && self.engine.waiting() > 0
    }

    /// Requests that wait in truth.
    pub(crate) fn waiting(&self) -> u32 {
        if self.mode == Mode::Monitor {
            0
        } else {
            self.engine.waiting()
        }
    }

    /// Requests that run in truth, slot or not.
    pub(crate) fn running(&self) -> u32 {
        self.engine.running() - self.shadow_slots + self.running
    }

    pub(crate) fn snapshot(&self, name: &str) -> LaneSnapshot {
        let mut snapshot = self.engine.snapshot(name);
        snapshot.mode = self.mode;
        snapshot.open_in_use += self.running;
        snapshot.shadow_in_use = self.shadow_slots;
        if self.mode == Mode::Monitor {
            snapshot.shadow_waiting = snapshot.waiting;
        }
        snapshot
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// A request that Monitor let in is done in truth.
    fn end(&mut self, now: Instant, ticket: &Ticket, done: Option<Completion>) {
        let held_ns = self.engine.time_at(now).nanos_since(ticket.started_at);
        let id = ticket.shadow;
        match self.shadows[id as usize] {
            Shadow::Waits(waiter) => {
                self.put(id, Shadow::WaitsDone(waiter, held_ns, done));
            }
            Shadow::Runs(turn) if self.mode == Mode::Monitor => self.plan(id, turn, held_ns, done),
            Shadow::Runs(turn) => {
                self.release(id);
                self.engine.finish(now, &turn, done);
            }
            Shadow::Refused => self.release(id),
            Shadow::Free | Shadow::WaitsDone(..) | Shadow::Ends(..) => {}
        }
    }

    fn plan(&mut self, id: u32, turn: Ticket, held_ns: u64, done: Option<Completion>) {
        self.put(id, Shadow::Ends(turn, done));
        self.ends
            .push(Reverse((turn.started_at.after_nanos(held_ns), id)));
    }

    /// Ends in the shadow what is due by `now`, each at its own time.
    fn settle(&mut self, now: Instant) {
        if self.ends.is_empty() {
            return;
        }
        // Tickets are in the engine's time, which a clock that is set back does not move.
        let now = self.engine.time_at(now);
        while let Some(&Reverse((at, id))) = self.ends.peek()
            && at <= now
        {
            self.ends.pop();
            if let Shadow::Ends(turn, done) = self.shadows[id as usize] {
                self.release(id);
                let reading = self.engine.reading_of(at);
                self.engine.finish(reading, &turn, done);
                self.absorb();
            }
        }
    }

    /// Tells the shadow what the engine would have told waiters.
    fn absorb(&mut self) {
        if self.mode != Mode::Monitor {
            return;
        }
        let mut effects = std::mem::take(&mut self.scratch);
        self.engine.take_effects(&mut effects);
        for effect in effects.drain(..) {
            let id = effect.token;
            match (self.shadows[id as usize], effect.result) {
                (Shadow::Waits(_), Ok(turn)) => self.put(id, Shadow::Runs(turn)),
                (Shadow::Waits(_), Err(_)) => self.put(id, Shadow::Refused),
                (Shadow::WaitsDone(_, held_ns, done), Ok(turn)) => {
                    self.plan(id, turn, held_ns, done);
                }
                (Shadow::WaitsDone(..), Err(_)) => self.release(id),
                _ => {}
            }
        }
        self.scratch = effects;
    }

    /// Who only waits or ends in the shadow leaves it; who runs in truth keeps the slot it has there.
    fn leave_the_shadow(&mut self, now: Instant) {
        for id in 0..self.shadows.len() as u32 {
            match self.shadows[id as usize] {
                Shadow::Waits(waiter) => {
                    self.engine.cancel(now, waiter);
                    self.put(id, Shadow::Refused);
                }
                Shadow::WaitsDone(waiter, ..) => {
                    self.engine.cancel(now, waiter);
                    self.release(id);
                }
                _ => {}
            }
        }
        self.ends.clear();
        for id in 0..self.shadows.len() as u32 {
            if let Shadow::Ends(turn, done) = self.shadows[id as usize] {
                self.release(id);
                self.engine.finish(now, &turn, done);
            }
        }
    }

    fn put(&mut self, id: u32, shadow: Shadow) {
        let holds = |shadow: &Shadow| matches!(shadow, Shadow::Runs(_) | Shadow::Ends(..));
        let before = std::mem::replace(&mut self.shadows[id as usize], shadow);
        self.shadow_slots -= u32::from(holds(&before));
        self.shadow_slots += u32::from(holds(&shadow));
    }

    fn release(&mut self, id: u32) {
        self.put(id, Shadow::Free);
        self.free.push(id);
    }

    /// What a storm needed is not kept for ever.
    fn shrink(&mut self) {
        if self.free.len() == self.shadows.len() && self.shadows.len() > SHADOWS_KEPT {
            self.shadows = Vec::new();
            self.free = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::priority::Tier;

    #[test]
    fn what_a_storm_needed_in_the_shadow_is_given_back() {
        let config = Config::new(Settings::one_lane("main", 4_096)).unwrap();
        let mut admission = Admission::new(&config, 0, Instant::ZERO);
        admission.set_mode(Instant::ZERO, Mode::Monitor);
        let request = Request::new(Tier::T1);
        let tickets: Vec<Ticket> = (0..2 * SHADOWS_KEPT)
            .map(|_| match admission.offer(Instant::ZERO, &request, None) {
                Offered::Admitted(ticket) => ticket,
                other => panic!("monitor lets everybody in, not {other:?}"),
            })
            .collect();
        assert_eq!(admission.shadows.len(), 2 * SHADOWS_KEPT);
        let now = Instant::from_nanos(1_000_000);
        for ticket in &tickets {
            admission.finish(now, ticket, Some(Completion::success()));
        }
        assert_eq!(admission.running(), 0);
        assert!(admission.shadows.capacity() <= SHADOWS_KEPT);
    }
}
