//! How many slots a lane has: fixed, or found.
//!
//! Slots are the one number an embedder would otherwise have to guess. A [`Limiter`] is told once a tick what
//! the slots did ([`SlotUse`]) and says how many there should be. It is slow where the threshold is fast: it
//! moves between trials of many service times, the law every tick; and it never refuses anybody. A lower
//! limit acts as slots come back, a higher one wakes as many waiters as there are new slots.
//!
//! | rule | source | what it goes by |
//! |---|---|---|
//! | [`LimitRule::Fixed`] | - | nothing |
//! | [`LimitRule::Auto`] | this project; `docs/decisions/0021-limit.md` | what a trial with fewer or more slots did to the throughput |
//! | [`LimitRule::Gradient2`] | Netflix concurrency-limits | long over short mean of the service time |
//! | [`LimitRule::Vegas`] | Netflix concurrency-limits, after TCP Vegas | least over present service time |
//! | [`LimitRule::Aimd`] | Netflix concurrency-limits | overloaded outcomes |

mod auto;
mod distress;
mod evidence;
mod published;
mod trial;
mod written;

use std::fmt::{self, Debug, Display, Formatter};

use serde::{Deserialize, Serialize};

pub(crate) use auto::Auto;
pub(crate) use published::{Aimd, Gradient2, Vegas};

use written::Written;

use crate::config::{ConfigError, LIMIT_MAX, within};

/// Slots a lane begins with for each core, when nothing is said: enough for reads that wait for a disk, and not
/// so many that a store of some threads is buried before the first trial.
const INITIAL_PER_CORE: u32 = 4;
/// Fewest slots that a limit which is found begins with, when nothing is said.
const INITIAL_MIN: u32 = 8;
/// Most slots that a limit which is found may come to, unless said otherwise: ten thousand threads or requests
/// in flight are a memory question before they are one of throughput.
pub const DEFAULT_FOUND_LIMIT_MAX: u32 = 10_000;

/// What decides how many slots there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LimitRule {
    /// The embedder, who knows the parallelism of what the lane protects.
    Fixed,
    /// The throughput that trials with fewer and with more slots show: the least that loses none.
    #[default]
    Auto,
    /// Netflix's gradient of mean service times, as published. For comparison: it grows without bound under a
    /// modest overload, and takes a store that has become slower for its own doing.
    Gradient2,
    /// Netflix's Vegas, as published. For comparison: one lucky sample pins its baseline.
    Vegas,
    /// Netflix's AIMD, as published. For comparison: without overloaded outcomes it only grows.
    Aimd,
}

impl LimitRule {
    /// Its name in files, snapshots and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Auto => "auto",
            Self::Gradient2 => "gradient2",
            Self::Vegas => "vegas",
            Self::Aimd => "aimd",
        }
    }
}

/// The slots of a lane. In a file a number (so many, fixed), the name of a [`LimitRule`], or a table of these
/// fields.
///
/// ```
/// use cinnamon_core::{LaneSettings, Limit};
///
/// let found = LaneSettings::new("read", 16).limit(Limit::auto().initial(64).at_most(512));
/// assert_eq!(LaneSettings::new("read", 16).limit.start(), 16);
/// assert_eq!(found.limit.start(), 64);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
#[non_exhaustive]
pub struct Limit {
    /// What decides.
    pub rule: LimitRule,
    /// Slots in the beginning, 1..=[`LIMIT_MAX`]; all there ever are of a fixed limit. Default (`None`): from the
    /// hints, or four for each core and at least eight.
    pub initial: Option<u32>,
    /// The least that it may come to by itself, 1..=`max`. Default 1.
    pub min: u32,
    /// The most that it may come to by itself, `min`..=[`LIMIT_MAX`]. Default [`DEFAULT_FOUND_LIMIT_MAX`].
    pub max: u32,
    /// Nine in ten requests are to hold their slot no longer than this, microseconds, at least 1: while they hold it
    /// longer and all slots are taken, the limit falls, whatever the throughput; but not on and on if that does not
    /// help. Only with [`LimitRule::Auto`]. Default (`None`): no ceiling.
    pub service_max_us: Option<u64>,
    /// A hint for the beginning: requests a second the lane is expected to be good for …
    pub expected_per_s: Option<f64>,
    /// … at this service time, microseconds. Both or neither.
    pub expected_service_us: Option<f64>,
}

impl Limit {
    /// So many slots, always.
    #[must_use]
    pub const fn fixed(slots: u32) -> Self {
        Self {
            initial: Some(slots),
            ..Self::found(LimitRule::Fixed)
        }
    }

    /// As many as are needed for the throughput that can be had, and no more.
    #[must_use]
    pub const fn auto() -> Self {
        Self::found(LimitRule::Auto)
    }

    /// Found by this rule.
    #[must_use]
    pub const fn found(rule: LimitRule) -> Self {
        Self {
            rule,
            initial: None,
            min: 1,
            max: DEFAULT_FOUND_LIMIT_MAX,
            service_max_us: None,
            expected_per_s: None,
            expected_service_us: None,
        }
    }

    /// The same, beginning with so many.
    #[must_use]
    pub const fn initial(mut self, slots: u32) -> Self {
        self.initial = Some(slots);
        self
    }

    /// The same, never fewer than this by itself.
    #[must_use]
    pub const fn at_least(mut self, slots: u32) -> Self {
        self.min = slots;
        self
    }

    /// The same, never more than this by itself.
    #[must_use]
    pub const fn at_most(mut self, slots: u32) -> Self {
        self.max = slots;
        self
    }

    /// The same with a ceiling on the P90 of the service time, microseconds.
    #[must_use]
    pub const fn service_max_us(mut self, us: u64) -> Self {
        self.service_max_us = Some(us);
        self
    }

    /// The same, told what to expect for its first second: requests per second, and the service time of one in
    /// microseconds.
    #[must_use]
    pub const fn expected(mut self, per_s: f64, service_us: f64) -> Self {
        self.expected_per_s = Some(per_s);
        self.expected_service_us = Some(service_us);
        self
    }

    /// The slots in the beginning.
    #[must_use]
    pub fn start(&self) -> u32 {
        if self.rule == LimitRule::Fixed {
            return self.initial.unwrap_or(1);
        }
        let by_hint = self.expected_per_s.zip(self.expected_service_us);
        let slots = self.initial.unwrap_or_else(|| {
            by_hint.map_or_else(
                || {
                    let cores = std::thread::available_parallelism().map_or(1, usize::from);
                    (cores as u32 * INITIAL_PER_CORE).max(INITIAL_MIN)
                },
                // Little's law.
                |(per_s, us)| (per_s * us * 1e-6).ceil().min(f64::from(LIMIT_MAX)) as u32,
            )
        });
        slots.clamp(self.min, self.max)
    }

    /// The least and the most it may come to by itself.
    pub(crate) fn bounds(&self) -> (u32, u32) {
        if self.rule == LimitRule::Fixed {
            (self.start(), self.start())
        } else {
            (self.min, self.max)
        }
    }

    /// Checks every figure; `path` names the setting.
    ///
    /// # Errors
    ///
    /// The first one out of bounds, with its name, its value and the bound.
    pub fn check(&self, path: &str) -> Result<(), ConfigError> {
        if let Some(slots) = self.initial {
            let name = match self.rule {
                LimitRule::Fixed => path.to_owned(),
                _ => format!("{path}.initial"),
            };
            within(&name, slots, 1, LIMIT_MAX)?;
        } else if self.rule == LimitRule::Fixed {
            return Err(ConfigError::OutOfBounds {
                setting: format!("{path}.initial"),
                value: "nothing".to_owned(),
                bound: "a number of slots, since the rule is `fixed`".to_owned(),
            });
        }
        within(&format!("{path}.min"), self.min, 1, LIMIT_MAX)?;
        within(&format!("{path}.max"), self.max, self.min, LIMIT_MAX)?;
        if let Some(us) = self.service_max_us {
            within(&format!("{path}.service_max_us"), us, 1, 3_600_000_000)?;
            if self.rule != LimitRule::Auto {
                return Err(ConfigError::OutOfBounds {
                    setting: format!("{path}.service_max_us"),
                    value: us.to_string(),
                    bound: format!("left out, since the rule is `{}`", self.rule.name()),
                });
            }
        }
        for (name, value, other) in [
            (
                "expected_per_s",
                self.expected_per_s,
                self.expected_service_us,
            ),
            (
                "expected_service_us",
                self.expected_service_us,
                self.expected_per_s,
            ),
        ] {
            if let Some(value) = value {
                within(&format!("{path}.{name}"), value, 1e-6, 1e12)?;
            } else if other.is_some() {
                return Err(ConfigError::OutOfBounds {
                    setting: format!("{path}.{name}"),
                    value: "nothing".to_owned(),
                    bound: "there, since the other half of the hint is".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Something that finds it, beginning at `slots`.
    pub(crate) fn limiter(&self, slots: u32, seed: u64) -> Option<Box<dyn Limiter>> {
        Some(match self.rule {
            LimitRule::Fixed => return None,
            LimitRule::Auto => {
                let ceiling_s = self.service_max_us.map(|us| us as f64 * 1e-6);
                Box::new(Auto::new(slots, (self.min, self.max), ceiling_s, seed))
            }
            LimitRule::Gradient2 => Box::new(Gradient2::new(slots)),
            LimitRule::Vegas => Box::new(Vegas::new(slots)),
            LimitRule::Aimd => Box::new(Aimd::new(slots)),
        })
    }
}

impl Display for Limit {
    /// The slots of a fixed one; rule, beginning and bounds of one that is found.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.rule == LimitRule::Fixed {
            return write!(f, "{}", self.start());
        }
        let rule = self.rule.name();
        write!(
            f,
            "{rule} from {} within {} and {}",
            self.start(),
            self.min,
            self.max
        )
    }
}

impl From<u32> for Limit {
    fn from(slots: u32) -> Self {
        Self::fixed(slots)
    }
}

/// What the slots of a lane did since the last tick. Work that is exempt, that failed for reasons of its own
/// or that was given up is in none of the counts of finished work: it says nothing of the load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SlotUse {
    /// Seconds since the last tick.
    pub seconds: f64,
    /// The store stood still for a part of it: counts of such a tick mislead.
    pub stalled: bool,
    /// Slots now.
    pub limit: u32,
    /// Slots in use now; above the limit for a while after it fell.
    pub in_use: u32,
    /// The most in use at once.
    pub in_use_peak: u32,
    /// Slots in use times seconds.
    pub slot_s: f64,
    /// Seconds without a free slot.
    pub full_s: f64,
    /// Requests that waited times seconds.
    pub waiting_s: f64,
    /// Requests that succeeded.
    pub succeeded: u64,
    /// What they cost, work units.
    pub succeeded_cost: f64,
    /// … squared and summed.
    pub succeeded_cost_squares: f64,
    /// Requests that ended overloaded.
    pub overloaded: u64,
    /// Service times that were taken: of all of them, but of a lane with thousands a second of one in sixteen or fewer.
    pub samples: u64,
    /// Requests for which these stand: about as many as finished.
    pub timed: u64,
    /// Their service times, summed, seconds.
    pub service_sum_s: f64,
    /// … and their squares, summed, square seconds …
    pub service_squares_s2: f64,
    /// … the shortest, seconds; 0 if there was none.
    pub service_least_s: f64,
    /// Those of them that began under the present limit: how many …
    pub fresh: u64,
    /// … and their service times summed, seconds. Work that began before says what the last limit did.
    pub fresh_sum_s: f64,
    /// P90 of the service time over the last second or hundred requests, seconds.
    pub service_p90_s: f64,
}

impl SlotUse {
    /// Requests that ended and teach.
    #[must_use]
    pub const fn finished(&self) -> u64 {
        self.succeeded + self.overloaded
    }
}

/// How many slots there should be, and by which rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Slots. What lies outside the lane's bounds is brought to the nearer one.
    pub limit: u32,
    /// Why, in a word or two: it stands in snapshot and events beside the change.
    pub rule: &'static str,
    /// Only for a moment, to see what it does: not told as a change.
    pub trial: bool,
}

/// Finds how many slots a lane should have. It is called under the lane's lock, once a tick: compute, and do
/// not wait. One that panics is taken out, and the limit stays where it is.
pub trait Limiter: Debug + Send {
    /// Its name, for people.
    fn name(&self) -> &'static str;

    /// A tick has passed; how many slots should there be?
    fn tick(&mut self, seen: &SlotUse) -> Wanted;

    /// Somebody else has set the limit: go on from there.
    fn moved(&mut self, limit: u32);
}

/// A change of the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LimitChange {
    /// Slots before.
    pub from: u32,
    /// Slots after.
    pub to: u32,
    /// By which rule.
    pub rule: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Limit {
        #[derive(Deserialize)]
        struct File {
            limit: Limit,
        }
        toml::from_str::<File>(text).unwrap().limit
    }

    #[test]
    fn a_number_a_name_or_a_table() {
        assert_eq!(read("limit = 16"), Limit::fixed(16));
        assert_eq!(read("limit = \"auto\""), Limit::auto());
        let table =
            read("limit = { rule = \"auto\", initial = 64, max = 512, service_max_us = 9000 }");
        let built = Limit::auto().initial(64).at_most(512).service_max_us(9_000);
        assert_eq!(table, built);
        for limit in [
            Limit::fixed(3),
            Limit::auto(),
            built,
            Limit::auto().expected(1e3, 2e4),
        ] {
            let text = serde_json::to_string(&limit).unwrap();
            assert_eq!(
                serde_json::from_str::<Limit>(&text).unwrap(),
                limit,
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_none_of_these_is_told_what_it_should_be() {
        for (text, expected) in [
            (
                "limit = -1",
                "invalid value: integer `-1`, expected a number of slots, the name of a rule, or a table",
            ),
            (
                "limit = 4294967296",
                "invalid value: integer `4294967296`, expected a number of slots",
            ),
            (
                "limit = \"best\"",
                "unknown variant `best`, expected one of `fixed`, `auto`",
            ),
            (
                "limit = { rule = \"auto\", top = 4 }",
                "unknown field `top`",
            ),
            ("limit = 0.5", "invalid type: floating point `0.5`"),
        ] {
            #[derive(Debug, Deserialize)]
            struct File {
                #[expect(dead_code, reason = "only its refusal is looked at")]
                limit: Limit,
            }
            let error = toml::from_str::<File>(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn each_refusal_names_setting_value_and_bound() {
        let half = Limit {
            expected_per_s: Some(5.0),
            ..Limit::auto()
        };
        for (limit, expected) in [
            (
                Limit::fixed(0),
                "`limit` is 0 but must be between 1 and 1048576",
            ),
            (
                Limit::auto().initial(0),
                "`limit.initial` is 0 but must be between 1 and 1048576",
            ),
            (
                Limit::auto().at_least(9).at_most(8),
                "`limit.max` is 8 but must be between 9 and 1048576",
            ),
            (
                Limit::auto().service_max_us(0),
                "`limit.service_max_us` is 0 but must be between 1 and 3600000000",
            ),
            (
                half,
                "`limit.expected_service_us` is nothing but must be there, since the other half of the hint is",
            ),
            (
                Limit::auto().expected(f64::NAN, 1.0),
                "`limit.expected_per_s` is NaN but must be between 0.000001 and 1000000000000",
            ),
            (
                Limit::found(LimitRule::Fixed),
                "`limit.initial` is nothing but must be a number of slots, since the rule is `fixed`",
            ),
        ] {
            assert_eq!(limit.check("limit").unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn the_beginning_follows_from_what_is_said() {
        assert_eq!(Limit::auto().expected(1_000.0, 20_000.0).start(), 20);
        assert_eq!(Limit::auto().initial(5_000).at_most(100).start(), 100);
        assert!(Limit::auto().start() >= INITIAL_MIN);
        assert_eq!(Limit::fixed(7).bounds(), (7, 7));
    }
}
