//! Overrides on their way into force, and out of it.

use std::task::Waker;
use std::time::Duration;

use super::{Control, Shared};
use crate::clock::Instant;
use crate::config::ConfigError;
use crate::lane::{LaneCore, wake_all};
use crate::overrides::{Active, Override, OverrideSource, Target, lines};
use crate::signal::Mode;
use crate::sync::lock;

impl Control {
    /// The controller's mode: what an override says, else its own.
    pub(crate) fn mode_in_force(&self) -> Mode {
        self.overrides
            .mode(&Target::Controller)
            .unwrap_or(self.mode)
    }
}

impl Shared {
    /// Puts `what` in force at once, on this thread.
    pub(crate) fn set_override(
        &self,
        what: Override,
        source: OverrideSource,
    ) -> Result<(), ConfigError> {
        self.find(&what.target)?;
        let mut wakers = Vec::new();
        let mut control = lock(&self.control);
        let now = self.read_clock().unwrap_or(control.last_tick);
        control.overrides.set(now, what.clone(), what.ttl, source)?;
        self.apply_overrides(&mut control, now, &mut wakers);
        drop(control);
        wake_all(wakers);
        log_begin(&what, source);
        self.kick.no_later_than(now, Duration::ZERO);
        Ok(())
    }

    /// Ends the overrides that `over` names; how many there were.
    pub(crate) fn end_overrides(&self, over: impl Fn(&Active) -> bool) -> usize {
        let mut wakers = Vec::new();
        let mut ended = Vec::new();
        let mut control = lock(&self.control);
        let now = self.read_clock().unwrap_or(control.last_tick);
        if control.overrides.end(over, &mut ended) {
            self.apply_overrides(&mut control, now, &mut wakers);
        }
        drop(control);
        wake_all(wakers);
        log_end(&ended, "it was cleared");
        self.kick.no_later_than(now, Duration::ZERO);
        ended.len()
    }

    /// What the override file says: its text and its age, or `None` when there is no file. Lines that make no
    /// sense are passed over and told; what the file said before and says no more ends.
    pub(crate) fn take_override_file(&self, file: Result<Option<(&str, Duration)>, String>) {
        let mut error = file.as_ref().err().cloned();
        let (text, age) = file.ok().flatten().unwrap_or(("", Duration::ZERO));
        let mut wanted = Vec::new();
        for (number, line) in lines(text) {
            let found = line.and_then(|what| self.find(&what.target).map(|()| what));
            match found {
                // One whose time was over before it was read ends like one that is not there.
                Ok(what) if what.ttl > age => wanted.push(what),
                Ok(_) => {}
                Err(why) => {
                    error.get_or_insert_with(|| format!("line {number}: {why}"));
                }
            }
        }
        let (mut wakers, mut ended, mut begun) = (Vec::new(), Vec::new(), Vec::new());
        let mut control = lock(&self.control);
        let now = self.read_clock().unwrap_or(control.last_tick);
        let said_no_more = |active: &Active| {
            active.source == OverrideSource::File && !wanted.contains(&active.what)
        };
        control.overrides.end(said_no_more, &mut ended);
        for what in wanted {
            let left = what.ttl.saturating_sub(age);
            let set = control
                .overrides
                .set(now, what.clone(), left, OverrideSource::File);
            match set {
                Ok(()) => begun.push(what),
                Err(why) => {
                    error.get_or_insert_with(|| why.to_string());
                }
            }
        }
        self.apply_overrides(&mut control, now, &mut wakers);
        let told = std::mem::replace(&mut control.override_file_error, error.clone());
        let is_news = error != told;
        drop(control);
        wake_all(wakers);
        log_end(&ended, "the override file says so no more");
        begun
            .iter()
            .for_each(|what| log_begin(what, OverrideSource::File));
        if let Some(why) = error.filter(|_| is_news) {
            tracing::error!(%why, "the override file is not understood");
        }
        self.kick.no_later_than(now, Duration::ZERO);
    }

    /// Ends what is over at `now`; part of the control step. What is moved into `control.ended` is to be
    /// logged after it.
    pub(super) fn expire_overrides(
        &self,
        control: &mut Control,
        now: Instant,
        wakers: &mut Vec<Waker>,
    ) {
        if control.overrides.is_empty() {
            return;
        }
        let mut ended = std::mem::take(&mut control.ended);
        if control.overrides.expire(now, &mut ended) {
            self.apply_overrides(control, now, wakers);
        }
        control.ended = ended;
    }

    /// Modes, caps and tenants' rules as the table has them now. A gate is lowered at once; the next tick raises
    /// it.
    fn apply_overrides(&self, control: &mut Control, now: Instant, wakers: &mut Vec<Waker>) {
        self.apply_modes(control, wakers);
        for index in 0..self.sampling.slots.len() {
            self.apply_signal_mode(control, index);
        }
        let rules = control.overrides.tenants();
        for (i, lane) in self.lanes.iter().enumerate() {
            let cap = control.overrides.cap(lane.name());
            control.caps[i] = cap;
            lane.with_wakers(Some(now), wakers, |engine, _, now| {
                engine.set_tenants(&rules);
                engine.cut_to(now, cap);
            });
        }
    }

    /// Whether there is what `target` names.
    pub(crate) fn find(&self, target: &Target) -> Result<(), ConfigError> {
        let (setting, name, known) = match target {
            Target::Controller | Target::Tenant(_) => return Ok(()),
            Target::Lane(name) => {
                let names = self.lanes.iter().map(LaneCore::name);
                ("override's lane", name, names.map(str::to_owned).collect())
            }
            Target::Signal(name) => {
                let names = lock(&self.control).selector.names();
                ("override's signal", name, names)
            }
        };
        if known.contains(name) {
            return Ok(());
        }
        Err(ConfigError::Unknown {
            setting: setting.to_owned(),
            value: name.clone(),
            known,
        })
    }

    /// Acts on switches that were thrown or released since this was last asked.
    pub(crate) fn poll_switches(&self) {
        if self.switches.is_empty() {
            return;
        }
        for (what, thrown) in self.switches.take() {
            if thrown {
                if let Err(why) = self.set_override(what, OverrideSource::Switch) {
                    tracing::error!(%why, "a switch was thrown in vain");
                }
            } else {
                self.end_overrides(|active| {
                    active.source == OverrideSource::Switch && active.what == what
                });
            }
        }
    }

    /// Whether switches are out that must be looked at.
    pub(crate) fn has_switches(&self) -> bool {
        !self.switches.is_empty()
    }

    /// The modes of a signal as the table has them now.
    pub(super) fn apply_signal_mode(&self, control: &mut Control, index: usize) {
        let own = control.signal_modes[index];
        let Some(signal) = control.selector.signal_mut(index) else {
            return;
        };
        let target = Target::Signal(signal.profile().name.clone());
        let mode = control.overrides.mode(&target).unwrap_or(own);
        if signal.mode() != mode {
            signal.set_mode(mode);
        }
        self.sampling.slots[index].set_mode(mode);
    }

    /// Writes what has ended since this was last called.
    pub(super) fn log_ended(&self) {
        let ended = std::mem::take(&mut lock(&self.control).ended);
        log_end(&ended, "its time is over");
    }
}

fn log_begin(what: &Override, source: OverrideSource) {
    tracing::warn!(
        target = %what.target,
        action = %what.action,
        ttl_s = what.ttl.as_secs_f64(),
        source = source.as_str(),
        "an override is in force"
    );
}

fn log_end(ended: &[Active], why: &str) {
    for active in ended {
        tracing::warn!(
            target = %active.what.target,
            action = %active.what.action,
            source = active.source.as_str(),
            why,
            "an override has ended"
        );
    }
}
