//! What an operator may force upon a running controller, for a time: [`Override`].
//!
//! An override stands in for what the settings and the laws say until its time is over, and never longer. Pure:
//! here is what may be asked and the table of what is in force; the control step acts on it.
//!
//! | action | of the controller | of a lane | of a signal | of a tenant |
//! |---|---|---|---|---|
//! | mode | in place of its mode | in place of its mode | in place of its mode | `off` only: admitted without a decision |
//! | shed tN | no rank of tN or below passes any gate | … this gate | refused | the tenant's requests of tN or below are capped |

mod parse;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::clock::Instant;
use crate::config::ConfigError;
use crate::priority::{COHORTS, Rank, Tier};
use crate::request::Tenant;
use crate::signal::Mode;

pub(crate) use parse::lines;

/// Longest time to live of an override. What should hold for longer is a setting.
pub const OVERRIDE_TTL_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Shortest time to live: shorter ones would be over before the step that ends them.
pub const OVERRIDE_TTL_MIN: Duration = Duration::from_millis(1);
/// Most tenants' overrides in force at once: each is looked at by every offer.
pub const OVERRIDES_MAX: usize = 64;

/// What an override bears on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// All lanes.
    Controller,
    /// The lane of this name.
    Lane(String),
    /// The signal of this name.
    Signal(String),
    /// All requests on behalf of this tenant.
    Tenant(Tenant),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controller => f.write_str("controller"),
            Self::Lane(name) => write!(f, "lane {name}"),
            Self::Signal(name) => write!(f, "signal {name}"),
            Self::Tenant(Tenant(id)) => write!(f, "tenant {id}"),
        }
    }
}

/// What an override does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// This mode holds in place of the target's own. As ever the lesser of a lane's and the controller's counts.
    Mode(Mode),
    /// Work of this tier and of less important ones is refused, whatever the load; who waits is evicted.
    Shed(Tier),
}

impl Action {
    /// Whether both set the same thing, so that the later one replaces the earlier.
    const fn is_of_kind(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::Mode(_), Self::Mode(_)) | (Self::Shed(_), Self::Shed(_))
        )
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode(mode) => write!(f, "mode {}", mode.as_str()),
            Self::Shed(tier) => write!(f, "shed {tier}"),
        }
    }
}

/// Something forced upon the controller for a time. See
/// [`Controller::set_override`](crate::Controller::set_override).
///
/// It has a form as text, the one that an override file has on each line:
///
/// ```
/// use std::time::Duration;
/// use cinnamon_core::{Action, Mode, Override, Target, Tier};
///
/// let all: Override = "shed t4 for 10m".parse()?;
/// assert_eq!(all, Override::new(Target::Controller, Action::Shed(Tier::T4), Duration::from_secs(600)));
/// let lane: Override = "lane write mode monitor for 90s".parse()?;
/// assert_eq!(lane.to_string(), "lane write mode monitor for 90s");
/// # Ok::<(), cinnamon_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// On what it bears.
    pub target: Target,
    /// What it does.
    pub action: Action,
    /// For how long, [`OVERRIDE_TTL_MIN`] to [`OVERRIDE_TTL_MAX`].
    pub ttl: Duration,
}

impl Override {
    /// Forces `action` upon `target` for `ttl`.
    #[must_use]
    pub const fn new(target: Target, action: Action, ttl: Duration) -> Self {
        Self {
            target,
            action,
            ttl,
        }
    }
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.target != Target::Controller {
            write!(f, "{} ", self.target)?;
        }
        write!(f, "{} for {}", self.action, parse::duration(self.ttl))
    }
}

/// Who asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OverrideSource {
    /// The embedder's code: [`Controller::set_override`](crate::Controller::set_override).
    Call,
    /// A [`KillSwitch`](crate::KillSwitch).
    Switch,
    /// The override file.
    File,
}

impl OverrideSource {
    /// The word used in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Switch => "switch",
            Self::File => "file",
        }
    }
}

/// An override in force, as a snapshot shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OverrideSnapshot {
    /// What it bears on: `controller`, `lane write`, `signal memory`, `tenant 7`.
    pub target: String,
    /// What it does: `mode monitor`, `shed t4`.
    pub action: String,
    /// Who asked for it.
    pub source: OverrideSource,
    /// Seconds until it ends.
    pub left_s: f64,
}

/// One that is in force.
#[derive(Clone, Debug)]
pub(crate) struct Active {
    pub(crate) what: Override,
    pub(crate) source: OverrideSource,
    /// The switch that was thrown; 0 for others.
    pub(crate) switch: u64,
    /// By the controller's clock.
    pub(crate) ends_at: Instant,
}

/// What a tenant's requests meet in place of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TenantRule {
    pub(crate) tenant: Tenant,
    /// Admitted without a decision.
    pub(crate) off: bool,
    /// First rank that is refused.
    pub(crate) cap: Rank,
    /// When the first of it ends; the next step makes another rule of what is left.
    pub(crate) ends_at: Instant,
}

/// All that are in force, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    active: Vec<Active>,
    /// What the clock read last.
    read_at: Instant,
}

impl Overrides {
    /// None, at a time when the clock reads `now`.
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            active: Vec::new(),
            read_at: now,
        }
    }

    /// Puts one in force, in place of one of the same target, kind and source. Of several sources the newest holds,
    /// and the others come back when it is over.
    pub(crate) fn set(&mut self, new: Active) -> Result<(), ConfigError> {
        check(&new.what)?;
        let same = |old: &Active| {
            let of = |active: &Active| (active.what.target.clone(), active.source, active.switch);
            of(old) == of(&new) && old.what.action.is_of_kind(new.what.action)
        };
        let others = self.active.iter().filter(|old| !same(old));
        // Of controllers, lanes and signals there are only so many; a switch must not fail for want of room.
        if matches!(new.what.target, Target::Tenant(_)) {
            let tenants = others.filter(|old| matches!(old.what.target, Target::Tenant(_)));
            ConfigError::within(
                "overrides of tenants",
                tenants.count() + 1,
                1,
                OVERRIDES_MAX,
            )?;
        }
        self.active.retain(|active| !same(active));
        self.active.push(new);
        Ok(())
    }

    /// Whether this very override is in force from this source.
    pub(crate) fn has(&self, what: &Override, source: OverrideSource) -> bool {
        let mut all = self.active.iter();
        all.any(|active| active.what == *what && active.source == source)
    }

    /// Ends those that `over` names, and moves them into `ended`.
    pub(crate) fn end(&mut self, over: impl Fn(&Active) -> bool, ended: &mut Vec<Active>) -> bool {
        let before = ended.len();
        ended.extend(self.active.extract_if(.., |active| over(active)));
        ended.len() > before
    }

    /// What the clock read last.
    pub(crate) const fn read_at(&self) -> Instant {
        self.read_at
    }

    /// The clock reads `now`. If it was set back since it was read last, what is in force ends as much sooner.
    pub(crate) fn read(&mut self, now: Instant) {
        let back_ns = self.read_at.nanos_since(now);
        self.read_at = now;
        for active in &mut self.active {
            let ends_ns = active.ends_at.as_nanos().saturating_sub(back_ns);
            active.ends_at = Instant::from_nanos(ends_ns);
        }
    }

    /// Ends those whose time is over.
    pub(crate) fn expire(&mut self, now: Instant, ended: &mut Vec<Active>) -> bool {
        self.end(|active| active.ends_at <= now, ended)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// When the first of them ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.active.iter().map(|active| active.ends_at).min()
    }

    /// The mode that is forced upon `target`.
    pub(crate) fn mode(&self, target: &Target) -> Option<Mode> {
        self.of(target).find_map(|active| match active.what.action {
            Action::Mode(mode) => Some(mode),
            Action::Shed(_) => None,
        })
    }

    /// The first rank that no request of this lane may have, and until when.
    pub(crate) fn cap(&self, lane: &str) -> (Rank, Instant) {
        let lane = Target::Lane(lane.to_owned());
        self.cap_of(&Target::Controller).min(self.cap_of(&lane))
    }

    /// What tenants meet, one rule each.
    pub(crate) fn tenants(&self) -> Vec<TenantRule> {
        let mut rules: Vec<TenantRule> = Vec::new();
        for active in &self.active {
            let target = &active.what.target;
            if let Target::Tenant(tenant) = *target
                && rules.iter().all(|rule| rule.tenant != tenant)
            {
                let ends = self.of(target).map(|active| active.ends_at);
                rules.push(TenantRule {
                    tenant,
                    off: self.mode(target) == Some(Mode::Off),
                    cap: self.cap_of(target).0,
                    ends_at: ends.min().unwrap_or(active.ends_at),
                });
            }
        }
        rules
    }

    pub(crate) fn snapshots(&self, now: Instant) -> Vec<OverrideSnapshot> {
        let snapshot = |active: &Active| OverrideSnapshot {
            target: active.what.target.to_string(),
            action: active.what.action.to_string(),
            source: active.source,
            left_s: active.ends_at.nanos_since(now) as f64 * 1e-9,
        };
        self.active.iter().map(snapshot).collect()
    }

    /// Those of this target, the newest first.
    fn of<'a>(&'a self, target: &'a Target) -> impl Iterator<Item = &'a Active> + 'a {
        let mine = move |active: &&Active| active.what.target == *target;
        self.active.iter().rev().filter(mine)
    }

    fn cap_of(&self, target: &Target) -> (Rank, Instant) {
        let shed = self.of(target).find_map(|active| match active.what.action {
            Action::Shed(tier) => {
                let cap = Rank::threshold(tier.index() * COHORTS, 0.0);
                Some((cap, active.ends_at))
            }
            Action::Mode(_) => None,
        });
        shed.unwrap_or((Rank::OPEN, Instant::ZERO))
    }
}

/// Whether there is such a thing, wherever its target may be.
pub(crate) fn check(what: &Override) -> Result<(), ConfigError> {
    let refuse = |bound: &str| {
        Err(ConfigError::OutOfBounds {
            setting: format!("override of {}", what.target),
            value: what.action.to_string(),
            bound: bound.to_owned(),
        })
    };
    match (&what.target, what.action) {
        (Target::Signal(_), Action::Shed(_)) => {
            refuse("a mode: a signal has no gate; shed in its lanes")
        }
        (Target::Tenant(_), Action::Mode(Mode::Monitor | Mode::Enforce)) => {
            refuse("`mode off` or `shed`: a tenant has no mode of its own")
        }
        _ => {
            let (least, most) = (OVERRIDE_TTL_MIN.as_millis(), OVERRIDE_TTL_MAX.as_millis());
            ConfigError::within("override's ttl in ms", what.ttl.as_millis(), least, most)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn active(seconds: u64, text: &str) -> Active {
        let what: Override = text.parse().unwrap();
        Active {
            ends_at: at(seconds).after(what.ttl),
            what,
            source: OverrideSource::Call,
            switch: 0,
        }
    }

    fn put(overrides: &mut Overrides, seconds: u64, text: &str) {
        overrides.set(active(seconds, text)).unwrap();
    }

    #[test]
    fn the_later_of_one_kind_replaces_the_earlier_and_each_ends_by_itself() {
        let mut overrides = Overrides::default();
        put(&mut overrides, 0, "shed t4 for 60s");
        put(&mut overrides, 0, "mode monitor for 10s");
        put(&mut overrides, 0, "lane write shed t2 for 30s");
        put(&mut overrides, 5, "shed t3 for 60s");
        assert_eq!(
            overrides.cap("read").0,
            Rank::threshold(3 * COHORTS, 0.0),
            "in place of t4"
        );
        assert_eq!(overrides.cap("write").0, Rank::threshold(2 * COHORTS, 0.0));
        assert_eq!(overrides.mode(&Target::Controller), Some(Mode::Monitor));
        assert_eq!(overrides.next_end(), Some(at(10)));
        let mut ended = Vec::new();
        assert!(!overrides.expire(at(9), &mut ended));
        assert!(overrides.expire(at(31), &mut ended));
        assert_eq!(ended.len(), 2);
        assert_eq!(overrides.mode(&Target::Controller), None);
        assert_eq!(overrides.cap("write"), overrides.cap("read"));
        assert!(overrides.expire(at(65), &mut ended) && overrides.is_empty());
        assert!(overrides.cap("read").0.is_open());
    }

    #[test]
    fn a_clock_that_is_set_back_neither_prolongs_nor_ends_one() {
        let mut overrides = Overrides::default();
        put(&mut overrides, 10_000, "shed t4 for 60s");
        let mut ended = Vec::new();
        // After 59 s it goes back to 5 s.
        overrides.read(at(10_059));
        overrides.read(at(5));
        assert!(!overrides.expire(at(5), &mut ended));
        assert!(overrides.expire(at(6), &mut ended));
    }

    #[test]
    fn of_several_sources_the_newest_holds_and_the_others_come_back() {
        let mut overrides = Overrides::default();
        let of = |source, text| Active {
            source,
            ..active(0, text)
        };
        let mut set = |active| overrides.set(active).unwrap();
        set(of(OverrideSource::File, "mode monitor for 1h"));
        set(of(OverrideSource::Call, "mode off for 10s"));
        assert_eq!(overrides.mode(&Target::Controller), Some(Mode::Off));
        overrides.expire(at(10), &mut Vec::new());
        assert_eq!(overrides.mode(&Target::Controller), Some(Mode::Monitor));
    }

    #[test]
    fn a_tenant_has_one_rule() {
        let mut overrides = Overrides::default();
        put(&mut overrides, 0, "tenant 7 shed t3 for 60s");
        put(&mut overrides, 0, "tenant 7 mode off for 10s");
        put(&mut overrides, 0, "tenant 8 shed t0 for 60s");
        let rule = |id, off, tier: usize| TenantRule {
            tenant: Tenant(id),
            off,
            cap: Rank::threshold(tier * COHORTS, 0.0),
            ends_at: at(if off { 10 } else { 60 }),
        };
        assert_eq!(overrides.tenants(), [rule(7, true, 3), rule(8, false, 0)]);
    }

    #[test]
    fn what_there_is_not_is_refused_with_its_bound_and_changes_nothing() {
        let mut overrides = Overrides::default();
        let mut refused = |target, action, ttl| {
            let what = Override::new(target, action, ttl);
            let new = Active {
                what,
                ..active(0, "shed t4 for 60s")
            };
            let error = overrides.set(new).unwrap_err();
            assert!(overrides.is_empty());
            error.to_string()
        };
        let signal = Target::Signal("memory".into());
        assert_eq!(
            refused(signal, Action::Shed(Tier::T4), MINUTE),
            "`override of signal memory` is shed t4 but must be a mode: a signal has no gate; shed in its lanes"
        );
        let tenant = Target::Tenant(Tenant(7));
        assert_eq!(
            refused(tenant, Action::Mode(Mode::Monitor), MINUTE),
            "`override of tenant 7` is mode monitor but must be `mode off` or `shed`: a tenant has no mode of its own"
        );
        for ttl in [Duration::ZERO, OVERRIDE_TTL_MAX * 2] {
            let error = refused(Target::Controller, Action::Shed(Tier::T4), ttl);
            assert!(error.contains("between 1 and 604800000"), "{error}");
        }
        for id in 0..OVERRIDES_MAX as u32 {
            put(&mut overrides, 0, &format!("tenant {id} shed t3 for 60s"));
        }
        let one_more = active(0, "tenant 999 shed t3 for 60s");
        let error = overrides.set(one_more).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`overrides of tenants` is 65 but must be between 1 and 64"
        );
        // A switch of the whole controller needs no room, and one that is there may still be changed.
        put(&mut overrides, 0, "mode off for 60s");
        put(&mut overrides, 0, "tenant 3 shed t1 for 60s");
    }
}
