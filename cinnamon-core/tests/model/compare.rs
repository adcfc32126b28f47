//! What is looked at after each step, and what must agree.

use std::time::Duration;

use cinnamon_core::{AdmitKind, Binding, Mode, Outcome, Request};

use super::World;
use crate::figures::Figures;
use crate::lane::{Seen, Told};
use crate::{Checked, ensure};

impl World<'_> {
    /// Looks at what cannot be predicted.
    pub(super) fn look(&mut self, offered: Option<(usize, bool)>) -> Checked {
        let mut all = Vec::with_capacity(self.lanes.len());
        for (i, lane) in self.lanes.iter().enumerate() {
            let Some(gate) = lane.explain(&Request::exempt()) else {
                return Err("the lane has failed".to_owned());
            };
            let snapshot = lane.snapshot();
            let told = self.pending.iter().filter(|pending| {
                pending.lane == i && pending.told.is_none() && pending.counter.wakes() > 0
            });
            all.push(Seen {
                threshold: gate.threshold,
                binding: gate.binding,
                cost: gate.cost,
                timeout: (snapshot.timeout_s * 1e9).round() as u64,
                woken: told.map(|pending| pending.id).collect(),
                newcomer_evicted: offered == Some((i, true)),
                snapshot,
            });
        }
        self.seen = all;
        Ok(())
    }

    pub(super) fn compare(&mut self) -> Checked {
        for (i, (model, seen)) in self.models.iter_mut().zip(&self.seen).enumerate() {
            model.learn(seen);
            for (id, told) in model.take_told() {
                let Some(pending) = self.pending.iter_mut().find(|pending| pending.id == id) else {
                    return Err(format!("lane {i}: nobody {id} waits, who is told {told:?}"));
                };
                let twice = pending.told.replace(told);
                ensure!(
                    twice.is_none(),
                    "lane {i}: {id} is answered twice, {twice:?} and {told:?}"
                );
            }
            let (is, expected) = (Figures::of(&seen.snapshot), model.figures());
            ensure!(
                is == expected,
                "lane {i} is\n{is:#?}\nand must be\n{expected:#?}"
            );
            ensure!(
                (seen.threshold, seen.binding) == (model.threshold, model.binding),
                "lane {i}: the gate is at {} ({}), and must be at {} ({})",
                seen.threshold,
                seen.binding,
                model.threshold,
                model.binding
            );
            let by_law = !matches!(seen.binding, Binding::Nothing | Binding::Override);
            self.held += u64::from(by_law);
        }
        self.woken()
    }

    /// Who is told something is woken, once, and nobody else is.
    fn woken(&self) -> Checked {
        for pending in &self.pending {
            let (wakes, told) = (pending.counter.wakes(), pending.told);
            ensure!(
                wakes == usize::from(told.is_some()),
                "lane {}: {} was woken {wakes} times; it is told {told:?}",
                pending.lane,
                pending.id
            );
        }
        ensure!(
            self.replaced.iter().all(|counter| counter.wakes() == 0),
            "a waker was called that had been replaced"
        );
        Ok(())
    }

    /// The sums that must hold between two steps, whatever the model says.
    pub(super) fn all_conserve(&self) -> Checked {
        (0..self.lanes.len()).try_for_each(|lane| self.conserves(lane))
    }

    fn conserves(&self, lane: usize) -> Checked {
        let snapshot = &self.seen[lane].snapshot;
        let answered = snapshot.verdicts.sum() + u64::from(snapshot.waiting);
        ensure!(
            answered == snapshot.offered,
            "{answered} of {} offers",
            snapshot.offered
        );
        let all = snapshot.in_use + snapshot.free;
        ensure!(all == snapshot.limit.max(snapshot.in_use), "{all} slots");
        ensure!(
            snapshot.waiting == 0 || snapshot.free == 0,
            "somebody waits, and a slot is free"
        );
        let of_lane = |told: Option<Told>| {
            self.pending
                .iter()
                .filter(move |p| p.lane == lane && p.told == told)
                .count()
        };
        let waits = snapshot.waiting - snapshot.shadow_waiting;
        ensure!(
            of_lane(None) == waits as usize,
            "{waits} wait, and {} do",
            of_lane(None)
        );
        let held = self
            .running
            .iter()
            .filter(|running| running.lane == lane && running.ticket.kind == AdmitKind::Slot);
        let held = held.count() + of_lane(Some(Told::Runs(AdmitKind::Slot)));
        let slots = snapshot.in_use - snapshot.shadow_in_use;
        ensure!(
            held == slots as usize,
            "{held} hold a slot, and {slots} slots are in use"
        );
        Ok(())
    }

    /// All work ends, everybody who waits is answered, and every gauge is zero.
    pub(super) fn come_to_rest(&mut self) -> Checked {
        self.mode = Mode::Enforce;
        self.controller.set_mode(Mode::Enforce);
        self.modes_changed()?;
        while !self.running.is_empty() {
            self.finish(0, Outcome::Success, None)?;
            self.all_conserve()?;
        }
        for _ in 0..100 {
            if self.pending.is_empty() && self.running.is_empty() {
                break;
            }
            for nth in (0..self.pending.len()).rev() {
                self.poll(nth, false)?;
                self.all_conserve()?;
            }
            while !self.running.is_empty() {
                self.finish(0, Outcome::Success, None)?;
                self.all_conserve()?;
            }
            self.clock.advance(Duration::from_secs(1));
            self.tick()?;
        }
        ensure!(self.pending.is_empty(), "somebody waits for ever");
        // An hour on, everything that was forced or may end in a shadow is over.
        self.clock.advance(Duration::from_secs(7_200));
        self.tick()?;
        for seen in &self.seen {
            let lane = &seen.snapshot;
            let left = lane.in_use + lane.exempt_in_use + lane.open_in_use + lane.waiting;
            ensure!(left == 0, "{left} are left at the end: {lane:#?}");
        }
        Ok(())
    }

    pub(super) const fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}
