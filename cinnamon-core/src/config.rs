//! What can be set, what the defaults are and why, and the check that every setting passes.
//!
//! [`Settings`] is plain data that can be written by hand or read from a file; [`Config`] is the
//! proof that it was checked. Nothing downstream checks again. Units come last in the names.

mod check;
mod error;
mod tenant;

use std::ops::Deref;
use std::path::PathBuf;

pub(crate) use check::{check_change, check_limit, check_name, within};
pub use error::ConfigError;
use serde::{Deserialize, Serialize};
pub(crate) use tenant::tenant_number;
pub use tenant::{
    SHARES_MAX, ShareKind, ShareSettings, TENANT_RULES_MAX, TenantSettings, TierBudget,
};

use crate::limiter::Limit;
use crate::priority::Tier;
use crate::signal::{Authority, Mode};

/// Proportional gain. Goodput is flat between 0.3 and 0.7; the low end moves the threshold least.
pub const DEFAULT_KP: f64 = 0.3;
/// Integral gain, per second. Flat between 0.2 and 1.
pub const DEFAULT_KI_PER_S: f64 = 0.3;
/// Derivative gain, seconds. 0: the flow term already anticipates, and the derivative of a
/// backlog that is integrated over a tick is mostly noise.
pub const DEFAULT_KD_S: f64 = 0.0;
/// Shortest tick under load: below it a tick sees too few completions to learn from.
pub const DEFAULT_TICK_MIN_MS: u64 = 5;
/// Longest tick under load: the answer to a step in load may take a couple of ticks.
pub const DEFAULT_TICK_MAX_MS: u64 = 20;
/// Tier of work that says nothing of its importance: the middle of what may be shed.
pub const DEFAULT_UNTAGGED_TIER: Tier = Tier::T3;
/// One epoch step a minute: a caller at the edge keeps its fate for minutes, and a tenant is not
/// the last of its tier for ever (once round the ring in eleven days).
pub const DEFAULT_COHORT_EPOCH_MS: u64 = 60_000;
/// Memory that waiting requests may hold, by their own account ([`Request::bytes`](crate::Request::bytes)).
pub const DEFAULT_QUEUE_BYTES_MAX: u64 = 64 << 20;
/// The name of a controller that has the process to itself.
pub const DEFAULT_NAME: &str = "default";
/// The scope of lanes that name none: lanes of one controller share a resource unless said otherwise.
pub const DEFAULT_SCOPE: &str = "default";

/// Most slots a lane may have.
pub const LIMIT_MAX: u32 = 1 << 20;
/// Most entries a queue may hold.
pub const QUEUE_LEN_MAX: u32 = 1 << 20;
/// Most lanes of a controller.
pub const LANES_MAX: usize = 64;
/// Most classes of a controller.
pub const CLASSES_MAX: usize = 256;

/// Which control law moves the threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Law {
    /// A budget of admitted cost per second, steered by the time-averaged backlog.
    #[default]
    Budget,
    /// The published shape of Uber's 2023 law: a PI on the flow error every 500 ms that sets a
    /// refused share. For reference and comparison: it holds a standing queue and releases slowly.
    Flow,
}

/// Who of one tier is served first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Oldest first; newest first while a standing queue shows that the oldest are lost anyway.
    #[default]
    Adaptive,
    /// Always oldest first.
    Fifo,
    /// Always newest first.
    Lifo,
}

/// Settings of a controller. Start from [`Settings::default`], or [`Settings::one_lane`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Settings {
    /// The controller's name, 1..=64 bytes: a label of its metrics. Two controllers in one process need two names.
    /// Default [`DEFAULT_NAME`].
    pub name: String,
    /// The lanes; at least one, names distinct.
    pub lanes: Vec<LaneSettings>,
    /// Kinds of request; [`Class`](crate::Class) is an index into it. At least one.
    pub classes: Vec<ClassSettings>,
    /// Tier of untagged work, t2 to t5. Default [`DEFAULT_UNTAGGED_TIER`].
    pub untagged_tier: Tier,
    /// Seed of the key hash. Equal on all nodes that should shed the same keys. Default 0.
    pub cohort_seed: u64,
    /// Milliseconds per epoch step, at least 1,000; each moves 1/128 of the keys to the next cohort.
    /// Default [`DEFAULT_COHORT_EPOCH_MS`].
    pub cohort_epoch_ms: u64,
    /// The control law. Default [`Law::Budget`].
    pub law: Law,
    /// Proportional gain, 0..=5. Default [`DEFAULT_KP`].
    pub kp: f64,
    /// Integral gain per second, 0..=10. Default [`DEFAULT_KI_PER_S`].
    pub ki_per_s: f64,
    /// Derivative gain in seconds, 0..=1. Default [`DEFAULT_KD_S`].
    pub kd_s: f64,
    /// Shortest tick under load in milliseconds, 1..=1,000. Default [`DEFAULT_TICK_MIN_MS`].
    pub tick_min_ms: u64,
    /// Longest tick under load in milliseconds, `tick_min_ms`..=1,000. Default [`DEFAULT_TICK_MAX_MS`].
    pub tick_max_ms: u64,
    /// Whether decisions count, for all lanes; the lesser of this and a lane's own holds. Default
    /// [`Mode::Enforce`].
    pub mode: Mode,
    /// Whether other instances serve the same: then a refusal says [`Retry::Elsewhere`](crate::Retry::Elsewhere) for
    /// as long as there are few retries. Default no.
    pub peers: bool,
    /// Rules for tenants. Default: none.
    pub tenants: Vec<TenantSettings>,
    /// What is to be other for some signals than they say themselves. Default: nothing.
    pub signals: Vec<SignalSettings>,
    /// A file that is looked at twenty times a second, by a thread of its own; each line is an
    /// [`Override`](crate::Override), such as `shed t4 for 10m`, whose time counts from when the file was last
    /// written. Default (`None`): none is watched.
    pub override_file: Option<PathBuf>,
}

/// Settings of one signal, by its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SignalSettings {
    /// Its name.
    pub name: String,
    /// Whether its budget counts. Default [`Mode::Enforce`].
    #[serde(default)]
    pub mode: Mode,
    /// How much it may take by itself. Default (`None`): what it says.
    #[serde(default)]
    pub authority: Option<Authority>,
    /// Milliseconds between two samples, 1..=60,000. Default (`None`): what it says.
    #[serde(default)]
    pub period_ms: Option<u64>,
    /// Milliseconds after which a reading is too old, 1..=3,600,000. Its grip is gone after three times
    /// that. At least two periods are allowed in any case. Default (`None`): its `T` or three periods, whichever
    /// is longer, and its delay.
    #[serde(default)]
    pub horizon_ms: Option<u64>,
}

impl SignalSettings {
    /// Nothing other than the signal called `name` says itself.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            mode: Mode::Enforce,
            authority: None,
            period_ms: None,
            horizon_ms: None,
        }
    }
}

/// Settings of one lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LaneSettings {
    /// Its name, 1..=64 bytes.
    pub name: String,
    /// Slots: how many requests run at once. Fixed, it is to be the parallelism of what the lane protects: half of
    /// that refuses good work, ten times that loses the important work when capacity falls. Or found:
    /// [`Limit::auto`], the default.
    #[serde(default = "Limit::auto")]
    pub limit: Limit,
    /// Lanes of one scope share a resource: the threshold of each is the lowest any of them needs,
    /// so that no t3 read passes while a t1 write is shed for the same disk. Default
    /// [`DEFAULT_SCOPE`].
    #[serde(default = "default_scope")]
    pub scope: String,
    /// Most waiting requests, 0..=[`QUEUE_LEN_MAX`]; 0 refuses at once when the slots are full.
    /// Default (`None`): derived from the limit and from what the lane serves in 0.1 s.
    #[serde(default)]
    pub queue_len_max: Option<u32>,
    /// Most bytes held by waiting requests. Default [`DEFAULT_QUEUE_BYTES_MAX`].
    #[serde(default = "default_queue_bytes_max")]
    pub queue_bytes_max: u64,
    /// Order among waiters of one tier. Default [`Order::Adaptive`].
    #[serde(default)]
    pub order: Order,
    /// CoDel's target for the sojourn of the lowest occupied priority, microseconds, at least 1.
    /// Default (`None`): the live P90 of the service time.
    #[serde(default)]
    pub codel_target_us: Option<u64>,
    /// CoDel's interval, microseconds, above the target. Default (`None`): ten targets.
    #[serde(default)]
    pub codel_interval_us: Option<u64>,
    /// Slots that are one tier's. Default: none, and strict priority.
    #[serde(default)]
    pub shares: Vec<ShareSettings>,
    /// Whether this lane's decisions count. Default [`Mode::Enforce`].
    #[serde(default)]
    pub mode: Mode,
}

/// Settings of one class of request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ClassSettings {
    /// Its name, for people.
    pub name: String,
    /// Tier of its untagged requests, t2 to t5. Default (`None`): [`Settings::untagged_tier`].
    pub default_tier: Option<Tier>,
    /// Cost in work units assumed until completions have taught better, at least 1. Default 1.
    pub cost: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: DEFAULT_NAME.to_owned(),
            lanes: Vec::new(),
            classes: vec![ClassSettings::default()],
            untagged_tier: DEFAULT_UNTAGGED_TIER,
            cohort_seed: 0,
            cohort_epoch_ms: DEFAULT_COHORT_EPOCH_MS,
            law: Law::Budget,
            kp: DEFAULT_KP,
            ki_per_s: DEFAULT_KI_PER_S,
            kd_s: DEFAULT_KD_S,
            tick_min_ms: DEFAULT_TICK_MIN_MS,
            tick_max_ms: DEFAULT_TICK_MAX_MS,
            mode: Mode::Enforce,
            peers: false,
            tenants: Vec::new(),
            signals: Vec::new(),
            override_file: None,
        }
    }
}

impl Settings {
    /// The defaults with one lane of `limit` slots.
    #[must_use]
    pub fn one_lane(name: &str, limit: u32) -> Self {
        Self::default().lane(LaneSettings::new(name, limit))
    }

    /// Adds settings of a signal.
    #[must_use]
    pub fn signal(mut self, signal: SignalSettings) -> Self {
        self.signals.push(signal);
        self
    }

    /// Adds a rule for tenants.
    #[must_use]
    pub fn tenant(mut self, rule: TenantSettings) -> Self {
        self.tenants.push(rule);
        self
    }

    /// Adds a lane.
    #[must_use]
    pub fn lane(mut self, lane: LaneSettings) -> Self {
        self.lanes.push(lane);
        self
    }
}

impl LaneSettings {
    /// A lane of `limit` slots in the default scope.
    #[must_use]
    pub fn new(name: &str, limit: u32) -> Self {
        Self {
            name: name.to_owned(),
            limit: Limit::fixed(limit),
            scope: default_scope(),
            queue_len_max: None,
            queue_bytes_max: DEFAULT_QUEUE_BYTES_MAX,
            order: Order::Adaptive,
            codel_target_us: None,
            codel_interval_us: None,
            shares: Vec::new(),
            mode: Mode::Enforce,
        }
    }

    /// A lane in the default scope whose limit is found: [`Limit::auto`].
    #[must_use]
    pub fn auto(name: &str) -> Self {
        Self::new(name, 1).limit(Limit::auto())
    }

    /// The same with this limit.
    #[must_use]
    pub const fn limit(mut self, limit: Limit) -> Self {
        self.limit = limit;
        self
    }

    /// Adds slots that are one tier's.
    #[must_use]
    pub fn share(mut self, share: ShareSettings) -> Self {
        self.shares.push(share);
        self
    }

    /// Puts the lane into this scope.
    #[must_use]
    pub fn scope(mut self, scope: &str) -> Self {
        scope.clone_into(&mut self.scope);
        self
    }
}

impl Default for ClassSettings {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            default_tier: None,
            cost: 1,
        }
    }
}

fn default_scope() -> String {
    DEFAULT_SCOPE.to_owned()
}

const fn default_queue_bytes_max() -> u64 {
    DEFAULT_QUEUE_BYTES_MAX
}

/// Checked [`Settings`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Settings", into = "Settings")]
pub struct Config(Settings);

impl Config {
    /// Checks `settings`.
    ///
    /// # Errors
    ///
    /// The first setting that is out of its bounds, with its name, its value and the bound.
    pub fn new(settings: Settings) -> Result<Self, ConfigError> {
        check::check(&settings)?;
        Ok(Self(settings))
    }
}

impl Deref for Config {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.0
    }
}

impl TryFrom<Settings> for Config {
    type Error = ConfigError;

    fn try_from(settings: Settings) -> Result<Self, ConfigError> {
        Self::new(settings)
    }
}

impl From<Config> for Settings {
    fn from(config: Config) -> Self {
        config.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::one_lane("main", 8);
        change(&mut settings);
        Config::new(settings).unwrap_err().to_string()
    }

    #[test]
    fn defaults_pass_their_own_checks() {
        let config = Config::new(Settings::one_lane("main", 8)).unwrap();
        assert_eq!(config.kp, DEFAULT_KP);
        assert_eq!(config.lanes[0].limit, Limit::fixed(8));
    }

    #[test]
    fn each_refusal_names_setting_value_and_bound() {
        for (text, expected) in [
            (
                refusal(|s| s.lanes.clear()),
                "`lanes.len` is 0 but must be between 1 and 64",
            ),
            (
                refusal(|s| s.lanes[0].limit = Limit::fixed(0)),
                "`lanes[0].limit` is 0 but must be between 1 and 1048576",
            ),
            (
                refusal(|s| s.kp = f64::NAN),
                "`kp` is NaN but must be between 0 and 5",
            ),
            (
                refusal(|s| s.ki_per_s = f64::INFINITY),
                "`ki_per_s` is inf but must be between 0 and 10",
            ),
            (
                refusal(|s| s.kd_s = -0.5),
                "`kd_s` is -0.5 but must be between 0 and 1",
            ),
            (
                refusal(|s| s.untagged_tier = Tier::T1),
                "`untagged_tier` is t1 but must be between t2 and t5",
            ),
            (
                refusal(|s| s.classes[0].default_tier = Some(Tier::T0)),
                "`classes[0].default_tier` is t0 but must be between t2 and t5",
            ),
            (
                refusal(|s| s.classes[0].cost = 0),
                "`classes[0].cost` is 0 but must be between 1 and 4294967295",
            ),
            (
                refusal(|s| s.tick_max_ms = 2),
                "`tick_max_ms` is 2 but must be between 5 and 1000",
            ),
            (
                refusal(|s| s.cohort_epoch_ms = 0),
                "`cohort_epoch_ms` is 0 but must be between 1000 and 18446744073709551615",
            ),
            (
                refusal(|s| s.lanes[0].name.clear()),
                "`lanes[0].name.len` is 0 but must be between 1 and 64",
            ),
            (
                refusal(|s| s.lanes[0].queue_len_max = Some(u32::MAX)),
                "`lanes[0].queue_len_max` is 4294967295 but must be between 0 and 1048576",
            ),
            (
                refusal(|s| s.lanes.push(LaneSettings::new("main", 1))),
                "`lanes[1].name` is \"main\" but an earlier one has that name",
            ),
        ] {
            assert_eq!(text, expected);
        }
        let codel = refusal(|s| {
            s.lanes[0].codel_target_us = Some(500);
            s.lanes[0].codel_interval_us = Some(500);
        });
        assert_eq!(
            codel,
            "`lanes[0].codel_interval_us` is 500 but must be between 501 and 36000000000"
        );
    }

    #[test]
    fn reading_a_file_checks_it() {
        let good = r#"{"lanes":[{"name":"read","limit":4}],"law":"flow"}"#;
        let config: Config = serde_json::from_str(good).unwrap();
        assert_eq!(
            (config.law, config.lanes[0].scope.as_str()),
            (Law::Flow, "default")
        );
        let bad = r#"{"lanes":[{"name":"read","limit":0}]}"#;
        let error = serde_json::from_str::<Config>(bad).unwrap_err().to_string();
        assert!(error.contains("`lanes[0].limit` is 0"), "{error}");
        let typo = r#"{"lanes":[{"name":"read","limit":1}],"kpp":1}"#;
        assert!(serde_json::from_str::<Config>(typo).is_err());
    }
}
