//! Overrides on their way into force, and out of it.

use std::task::Waker;
use std::time::Duration;

use super::{Control, Shared};
use crate::clock::Instant;
use crate::config::ConfigError;
use crate::lane::{LaneCore, wake_all};
use crate::overrides::{Active, Override, OverrideSource, Target, lines};
use crate::signal::Mode;
use crate::sync::{PoisonError, TryLockError, lock};

impl Control {
    /// The controller's mode: what an override says, else its own.
    pub(crate) fn mode_in_force(&self) -> Mode {
        self.overrides
            .mode(&Target::Controller)
            .unwrap_or(self.mode)
    }
}

impl Shared {
    /// Puts `what` in force at once, on this thread. `switch` is the number of the one that was thrown.
    pub(crate) fn set_override(
        &self,
        what: Override,
        source: OverrideSource,
        switch: u64,
    ) -> Result<(), ConfigError> {
        self.find(&what.target)?;
        let now = self.read_clock();
        let mut wakers = Vec::new();
        let mut control = lock(&self.control);
        let now = self.read_overrides(&mut control, now);
        let new = Active {
            ends_at: now.after(what.ttl),
            what: what.clone(),
            source,
            switch,
        };
        control.overrides.set(new)?;
        self.apply_overrides(&mut control, now, &mut wakers);
        drop(control);
        self.kick.no_later_than(now, Duration::ZERO);
        wake_all(wakers);
        log_begin(&what, source);
        Ok(())
    }

    /// Ends the overrides that `over` names; how many there were.
    pub(crate) fn end_overrides(&self, over: impl Fn(&Active) -> bool) -> usize {
        let now = self.read_clock();
        let mut wakers = Vec::new();
        let mut ended = Vec::new();
        let mut control = lock(&self.control);
        let now = self.read_overrides(&mut control, now);
        if control.overrides.end(over, &mut ended) {
            self.apply_overrides(&mut control, now, &mut wakers);
        }
        drop(control);
        self.kick.no_later_than(now, Duration::ZERO);
        wake_all(wakers);
        log_end(&ended, "it was cleared");
        ended.len()
    }

    /// What the override file says: its text, empty when there is none, and its age. Lines that make no sense are
    /// passed over and told; what the file said before and says no more ends.
    pub(crate) fn take_override_file(&self, text: &str, age: Duration) {
        let mut error = None;
        let mut wanted = Vec::new();
        for (number, line) in lines(text) {
            let found = line.and_then(|what| self.find(&what.target).map(|()| what));
            match found {
                Ok(what) if what.ttl > age => wanted.push(what),
                // One whose time was over before it was read ends like one that is not there.
                Ok(what) => tracing::warn!(
                    line = number,
                    %what,
                    age_s = age.as_secs_f64(),
                    "a line of the override file was over before it was read"
                ),
                Err(why) => {
                    error.get_or_insert_with(|| format!("line {number}: {why}"));
                }
            }
        }
        let file = OverrideSource::File;
        let now = self.read_clock();
        let (mut wakers, mut ended, mut begun) = (Vec::new(), Vec::new(), Vec::new());
        let mut control = lock(&self.control);
        let now = self.read_overrides(&mut control, now);
        let said_no_more =
            |active: &Active| active.source == file && !wanted.contains(&active.what);
        control.overrides.end(said_no_more, &mut ended);
        for what in wanted {
            let is_news = !control.overrides.has(&what, file);
            let new = Active {
                ends_at: now.after(what.ttl.saturating_sub(age)),
                what: what.clone(),
                source: file,
                switch: 0,
            };
            match control.overrides.set(new) {
                Ok(()) if is_news => begun.push(what),
                Ok(()) => {}
                Err(why) => {
                    error.get_or_insert_with(|| why.to_string());
                }
            }
        }
        self.apply_overrides(&mut control, now, &mut wakers);
        drop(control);
        self.kick.no_later_than(now, Duration::ZERO);
        wake_all(wakers);
        log_end(&ended, "the override file says so no more");
        begun.iter().for_each(|what| log_begin(what, file));
        self.tell_override_file_error(error);
    }

    /// What is wrong with the override file, if anything is. Overrides stay as they are.
    pub(crate) fn tell_override_file_error(&self, error: Option<String>) {
        let told = {
            let mut control = lock(&self.control);
            std::mem::replace(&mut control.override_file_error, error.clone())
        };
        if let Some(why) = error.filter(|why| told.as_ref() != Some(why)) {
            tracing::error!(%why, "the override file is not understood");
        }
    }

    /// Brings the table up to what the clock reads, before anything is put into it or taken out: one that is set
    /// between a step of the clock forward and one back must not last for as long as that step. Returns the reading; the
    /// last one if the clock could not be read.
    fn read_overrides(&self, control: &mut Control, reading: Option<Instant>) -> Instant {
        let before = control.overrides.read_at();
        let Some(mut now) = reading else {
            return before;
        };
        if now < before {
            // An old reading of a thread that was held up, or a clock that was set back?
            now = self.read_clock().unwrap_or(now);
        }
        control.overrides.read(now);
        now
    }

    /// Ends what is over at `now`; part of the control step. What is moved into `control.ended` is to be logged after it.
    pub(super) fn expire_overrides(
        &self,
        control: &mut Control,
        now: Instant,
        wakers: &mut Vec<Waker>,
    ) {
        let now = self.read_overrides(control, Some(now));
        if control.overrides.is_empty() {
            return;
        }
        let mut ended = std::mem::take(&mut control.ended);
        if control.overrides.expire(now, &mut ended) {
            self.apply_overrides(control, now, wakers);
        }
        control.ended = ended;
    }

    /// The same for a controller that has failed, which takes no steps.
    pub(super) fn expire_after_failure(&self, now: Instant) {
        let mut ended = Vec::new();
        let mut control = lock(&self.control);
        let now = self.read_overrides(&mut control, Some(now));
        control.overrides.expire(now, &mut ended);
        drop(control);
        log_end(&ended, "its time is over");
    }

    /// Modes, caps and tenants' rules as the table has them now.
    fn apply_overrides(&self, control: &mut Control, now: Instant, wakers: &mut Vec<Waker>) {
        self.apply_modes(control, wakers);
        for index in 0..self.sampling.slots.len() {
            self.apply_signal_mode(control, index);
        }
        let rules = control.overrides.tenants();
        for (i, lane) in self.lanes.iter().enumerate() {
            let (cap, ends_at) = control.overrides.cap(lane.name());
            control.caps[i] = cap;
            lane.with_counts(Some(now), wakers, |engine, _, now| {
                engine.set_cap(now, cap, ends_at);
                // After it: a rule's end is put into the engine's time, which must have seen `now`.
                engine.set_tenant_rules(&rules);
            });
        }
        // An idle controller sleeps for longer than a short one lasts.
        let ends = control.overrides.next_end().unwrap_or(control.next_tick);
        control.next_tick = control.next_tick.min(ends);
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
        // Whoever else is at it acts on what it has taken before anybody takes more.
        let _polling = match self.switches.polling.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => return,
        };
        for (number, what, thrown) in self.switches.take() {
            if !thrown {
                self.end_overrides(|active| active.switch == number);
            } else if let Err(why) = self.set_override(what, OverrideSource::Switch, number) {
                tracing::error!(%why, "a switch was thrown in vain");
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
