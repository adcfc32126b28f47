//! The operator's and the world's steps: ticks, limits, modes, overrides, another configuration, the end.

use std::time::Duration;

use cinnamon_core::{
    Action, Config, DrainTimeout, Limit, Mode, Order, Outcome, Override, Rank, Settings, Tenant,
    Tier,
};

use super::{EPOCH, Forced, NAMES, World};
use crate::lane::{Rule, first_of};
use crate::ops::{Ask, Force, How, LaneCase, MS, Target};
use crate::{Checked, ensure};

impl World<'_> {
    /// Monitor only where it can be followed from outside.
    pub(super) const fn may_be(&self, mode: Mode) -> Mode {
        match mode {
            Mode::Monitor if !self.monitors => Mode::Off,
            mode => mode,
        }
    }

    /// Has the clock read for each lane: setting the limit that it has does nothing else.
    pub(super) fn observe(&mut self) -> Checked {
        for lane in self.lanes {
            let limit = lane.snapshot().limit;
            lane.set_limit(limit).map_err(|error| error.to_string())?;
        }
        let clock = self.now();
        self.each(|model, seen| model.observe(clock, seen))
    }

    pub(super) fn set_limit(&mut self, lane: usize, limit: u32) -> Checked {
        self.lanes[lane]
            .set_limit(limit)
            .map_err(|error| error.to_string())?;
        let clock = self.now();
        self.after(None, |models, seen| {
            models[lane].set_limit(clock, limit, &seen[lane])
        })
    }

    // ----- modes and overrides

    /// Overrides end as much sooner as the clock was set back since it was read for them.
    fn read_forced(&mut self) {
        let clock = self.now();
        let back = self.read_at.saturating_sub(clock);
        self.read_at = clock;
        for forced in &mut self.forced {
            forced.ends = forced.ends.saturating_sub(back);
        }
    }

    /// The newest override of this target and kind.
    fn forced(&self, target: Target, is_mode: bool) -> Option<&Forced> {
        self.forced.iter().rev().find(|forced| {
            forced.target == target && matches!(forced.force, Force::Mode(_)) == is_mode
        })
    }

    fn modes(&self) -> Vec<Mode> {
        let forced = |target, own| match self.forced(target, true).map(|forced| forced.force) {
            Some(Force::Mode(mode)) => mode,
            _ => own,
        };
        let all = forced(Target::Controller, self.mode);
        let of = |(lane, &own): (usize, &Mode)| forced(Target::Lane(lane), own).min(all);
        self.lane_modes.iter().enumerate().map(of).collect()
    }

    /// The first rank that no request of the lane may have, and until when.
    fn cap(&self, lane: usize) -> (Rank, u64) {
        let of = |target| match self.forced(target, false) {
            Some(&Forced {
                force: Force::Shed(tier),
                ends,
                ..
            }) => (first_of(tier), ends),
            _ => (Rank::OPEN, 0),
        };
        of(Target::Controller).min(of(Target::Lane(lane)))
    }

    pub(super) fn modes_changed(&mut self) -> Checked {
        let (clock, modes) = (self.now(), self.modes());
        self.after(None, |models, seen| {
            let all = models.iter_mut().zip(seen).zip(&modes);
            all.into_iter()
                .try_for_each(|((model, seen), mode)| model.set_mode(clock, *mode, seen))
        })
    }

    fn name(&self, target: Target) -> cinnamon_core::Target {
        match target {
            Target::Controller => cinnamon_core::Target::Controller,
            Target::Lane(lane) => cinnamon_core::Target::Lane(NAMES[lane].to_owned()),
            Target::Tenant(id) => cinnamon_core::Target::Tenant(Tenant(id)),
        }
    }

    fn of_this(&self, target: Target) -> Target {
        match target {
            Target::Controller | Target::Tenant(_) => target,
            Target::Lane(lane) => Target::Lane(lane % self.lanes.len()),
        }
    }

    pub(super) fn force(&mut self, target: Target, force: Force, ttl: u64) -> Checked {
        let target = self.of_this(target);
        let (force, action) = match force {
            Force::Shed(tier) => (force, Action::Shed(Tier::ALL[tier])),
            Force::Mode(mode) => {
                let of_tenant = matches!(target, Target::Tenant(_));
                // A tenant has no other.
                let mode = if of_tenant {
                    Mode::Off
                } else {
                    self.may_be(mode)
                };
                (Force::Mode(mode), Action::Mode(mode))
            }
        };
        let what = Override::new(self.name(target), action, Duration::from_nanos(ttl));
        self.controller
            .set_override(what)
            .map_err(|error| error.to_string())?;
        self.read_forced();
        let kind = std::mem::discriminant(&force);
        self.forced
            .retain(|old| old.target != target || std::mem::discriminant(&old.force) != kind);
        let ends = self.now() + ttl;
        self.forced.push(Forced {
            target,
            force,
            ends,
        });
        self.overrides_changed()
    }

    pub(super) fn clear(&mut self, target: Target) -> Checked {
        let target = self.of_this(target);
        let ended = self.controller.clear_overrides(&self.name(target));
        self.read_forced();
        let before = self.forced.len();
        self.forced.retain(|forced| forced.target != target);
        ensure!(
            ended == before - self.forced.len(),
            "{ended} overrides have ended"
        );
        if ended == 0 {
            return self.after(None, |_, _| Ok(()));
        }
        self.overrides_changed()
    }

    fn overrides_changed(&mut self) -> Checked {
        let (clock, modes, caps) = (self.now(), self.modes(), self.all_caps());
        let rules = self.rules();
        self.caps = caps.iter().map(|cap| cap.0).collect();
        self.after(None, |models, seen| {
            for (((model, seen), mode), cap) in models.iter_mut().zip(seen).zip(modes).zip(caps) {
                model.set_mode(clock, mode, seen)?;
                model.set_cap(clock, cap.0, cap.1, seen)?;
                model.set_rules(&rules);
            }
            Ok(())
        })
    }

    /// What overrides say of tenants, each until the first of them ends.
    fn rules(&self) -> Vec<Rule> {
        let all = (0..3).filter_map(|tenant| {
            let of = |forced: &&Forced| forced.target == Target::Tenant(tenant);
            let ends = self
                .forced
                .iter()
                .filter(of)
                .map(|forced| forced.ends)
                .min()?;
            let cap = self.forced(Target::Tenant(tenant), false);
            let cap = cap.map_or(Rank::OPEN, |forced| match forced.force {
                Force::Shed(tier) => first_of(tier),
                Force::Mode(_) => Rank::OPEN,
            });
            let off = self.forced(Target::Tenant(tenant), true).is_some();
            Some(Rule {
                tenant,
                off,
                cap,
                ends,
            })
        });
        all.collect()
    }

    fn all_caps(&self) -> Vec<(Rank, u64)> {
        (0..self.lanes.len()).map(|lane| self.cap(lane)).collect()
    }

    // ----- the control step

    pub(super) fn reconfigure(&mut self, lane: usize, to: &LaneCase, mode: Mode) -> Checked {
        let mode = self.may_be(mode);
        let mut settings = self.settings.clone();
        let lane = lane % self.lanes.len();
        settings.mode = mode;
        if settings.lanes[lane].order != Order::Adaptive {
            // Else the order in which the new slots were filled is not the one that is seen after the tick.
            settings.lanes[lane].limit = Limit::fixed(to.limit);
        }
        settings.lanes[lane].queue_len_max = to.queue_len_max;
        settings.lanes[lane].queue_bytes_max = to.queue_bytes_max;
        let config = Config::new(settings.clone()).map_err(|error| error.to_string())?;
        self.controller
            .reconfigure(config)
            .map_err(|error| error.to_string())?;
        self.next_settings = Some(settings);
        self.after(None, |_, _| Ok(()))
    }

    pub(super) fn tick(&mut self) -> Checked {
        let clock = self.now();
        self.controller.tick(self.clock_now());
        let next = self.next_settings.take();
        let old = next.map(|next| std::mem::replace(&mut self.settings, next));
        if let Some(old) = &old
            && old.mode != self.settings.mode
        {
            self.mode = self.settings.mode;
        }
        let modes = self.modes();
        self.read_forced();
        let before = self.forced.len();
        self.forced.retain(|forced| forced.ends > clock);
        let ended = self.forced.len() < before;
        let (modes_after, caps, rules) = (self.modes(), self.all_caps(), self.rules());
        if ended {
            self.caps = caps.iter().map(|cap| cap.0).collect();
        }
        let (settings, own_caps) = (self.settings.clone(), self.caps.clone());
        self.after(None, |models, seen| {
            for (i, (model, seen)) in models.iter_mut().zip(seen).enumerate() {
                if let Some(old) = &old {
                    let (to, limit) = of_settings(&settings, i);
                    let changed = settings.lanes[i].limit != old.lanes[i].limit;
                    model.reconfigure(clock, &to, changed.then_some(limit), seen)?;
                    model.set_mode(clock, modes[i], seen)?;
                }
                if ended {
                    model.set_mode(clock, modes_after[i], seen)?;
                    model.set_cap(clock, caps[i].0, caps[i].1, seen)?;
                    model.set_rules(&rules);
                }
                model.tick(clock, own_caps[i], clock / EPOCH, seen)?;
            }
            Ok(())
        })
    }

    fn clock_now(&self) -> cinnamon_core::Instant {
        cinnamon_core::Instant::from_nanos(self.now())
    }

    // ----- storms and ends

    pub(super) fn storm(&mut self, lane: usize, rounds: u32, per_round: u32, key: u64) -> Checked {
        for round in 0..rounds {
            for n in 0..per_round {
                let seed = key.rotate_left(n) ^ u64::from(round * per_round + n);
                let how = if seed.is_multiple_of(5) {
                    How::Try
                } else {
                    How::Future
                };
                if self.models[lane].is_far_from_full() {
                    self.offer(lane, how, Ask::of((seed >> 8) as usize % 6, seed % 1_000))?;
                    self.all_conserve()?;
                }
            }
            self.clock.advance(Duration::from_nanos(10 * MS));
            // All that run are done within the round: a service time of ten milliseconds.
            for nth in (0..self.running.len()).rev() {
                if self.running[nth].lane == lane {
                    self.finish(nth, Outcome::Success, None)?;
                    self.all_conserve()?;
                }
            }
            for nth in (0..self.pending.len()).rev() {
                if self.pending[nth].told.is_some() {
                    self.poll(nth, false)?;
                    self.all_conserve()?;
                }
            }
            self.tick()?;
        }
        Ok(())
    }

    pub(super) fn drain(&mut self) -> Checked {
        let (running, refused) = self
            .models
            .iter()
            .fold((0, 0), |(running, refused), model| {
                let waits = if model.mode == Mode::Monitor {
                    0
                } else {
                    model.waiting()
                };
                (running + model.running(), refused + waits)
            });
        let drained = self.controller.drain(Duration::ZERO);
        let expected = DrainTimeout { running, refused };
        let at_rest = (running, refused) == (0, 0);
        ensure!(
            drained == if at_rest { Ok(()) } else { Err(expected) },
            "{drained:?}, but {expected:?} is left"
        );
        let clock = self.now();
        self.each(|model, seen| model.close(clock, seen))
    }
}

fn of_settings(settings: &Settings, lane: usize) -> (LaneCase, u32) {
    let lane = &settings.lanes[lane];
    let limit = lane.limit.start();
    let case = LaneCase {
        limit,
        queue_len_max: lane.queue_len_max,
        queue_bytes_max: lane.queue_bytes_max,
    };
    (case, limit)
}
