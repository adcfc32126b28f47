//! What tenants may do: [`TenantSettings`], [`TierBudget`]; and what tiers have for themselves: [`ShareSettings`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::check::within;
use super::{ConfigError, LIMIT_MAX, Settings};
use crate::priority::Tier;

/// Most rules for tenants.
pub const TENANT_RULES_MAX: usize = 1_024;
/// Most of a lane's slots that all its tiers' shares may come to: what is left is there for everybody, and a lane
/// always has some of it.
pub const SHARES_MAX: f64 = 0.9;

/// A rule for tenants. Of all rules that match a tenant the most specific one holds, alone: its name before the
/// longest prefix, and that before `*`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TenantSettings {
    /// Whom it is for: a name as given to [`Controller::tenant`](crate::Controller::tenant); a prefix of names,
    /// `batch/*`; everybody else, `*`; or, for [`Tenant`](crate::Tenant)s that you number yourself, `#7`. 1..=64 bytes,
    /// without spaces.
    #[serde(rename = "match")]
    pub matches: String,
    /// Most requests of the tenant in each lane, running and waiting, 1..=[`LIMIT_MAX`]. Always in force: what is
    /// beyond is refused as [`Reason::Capped`](crate::Reason::Capped). Default: none.
    #[serde(default)]
    pub cap: Option<u32>,
    /// The same as a share of the lane's limit, above 0 to 1; at least one request. With both, the lesser holds.
    #[serde(default)]
    pub cap_share: Option<f64>,
    /// [`cap`](Self::cap) of single lanes, by name, instead of it.
    #[serde(default)]
    pub lane_caps: BTreeMap<String, u32>,
    /// The best tier that it may claim; what claims a better one runs at this. Default (`None`): t0.
    #[serde(default)]
    pub ceiling: Option<Tier>,
    /// The tier of its untagged requests, t2 to t5. Default (`None`): that of their class.
    #[serde(default)]
    pub default_tier: Option<Tier>,
    /// What it may claim of single tiers. What is beyond is not refused but runs one tier lower, if that has room for it.
    #[serde(default)]
    pub budgets: Vec<TierBudget>,
}

impl TenantSettings {
    /// A rule that changes nothing, for these tenants.
    #[must_use]
    pub fn new(matches: &str) -> Self {
        Self {
            matches: matches.to_owned(),
            ..Self::default()
        }
    }

    /// The same with this [`cap`](Self::cap).
    #[must_use]
    pub const fn cap(mut self, cap: u32) -> Self {
        self.cap = Some(cap);
        self
    }

    /// The same with this [`ceiling`](Self::ceiling).
    #[must_use]
    pub const fn ceiling(mut self, tier: Tier) -> Self {
        self.ceiling = Some(tier);
        self
    }

    /// The same with a budget more.
    #[must_use]
    pub fn budget(mut self, budget: TierBudget) -> Self {
        self.budgets.push(budget);
        self
    }
}

/// What a tenant may claim of one tier in each lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TierBudget {
    /// The tier, t0 to t4: below t5 there is nothing.
    pub tier: Tier,
    /// Cost per second that may come at it, above 0.
    #[serde(default)]
    pub per_s: Option<f64>,
    /// The same as a share of what the lane can serve, above 0 to 1; while that is unknown there is no bound. Exactly
    /// one of the two must be given.
    #[serde(default)]
    pub share: Option<f64>,
}

impl TierBudget {
    /// This cost per second.
    #[must_use]
    pub const fn per_s(tier: Tier, per_s: f64) -> Self {
        Self {
            tier,
            per_s: Some(per_s),
            share: None,
        }
    }

    /// This share of what the lane can serve.
    #[must_use]
    pub const fn share(tier: Tier, share: f64) -> Self {
        Self {
            tier,
            per_s: None,
            share: Some(share),
        }
    }
}

/// Slots of a lane that are one tier's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ShareSettings {
    /// The tier.
    pub tier: Tier,
    /// Share of the lane's limit, above 0; all shares of a lane come to [`SHARES_MAX`] at most. In whole slots: a hard
    /// share is rounded down, a stealable one is at least one slot.
    pub share: f64,
    /// Whether others may have them while they are idle.
    #[serde(default)]
    pub kind: ShareKind,
}

impl ShareSettings {
    /// A share that is lent while it is idle.
    #[must_use]
    pub const fn stealable(tier: Tier, share: f64) -> Self {
        Self {
            tier,
            share,
            kind: ShareKind::Stealable,
        }
    }

    /// A share that is never lent.
    #[must_use]
    pub const fn hard(tier: Tier, share: f64) -> Self {
        Self {
            tier,
            share,
            kind: ShareKind::Hard,
        }
    }
}

/// What becomes of reserved slots that are idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShareKind {
    /// Others have them; who has a claim to one gets the next that comes back, before better tiers.
    #[default]
    Stealable,
    /// They stay free: a request that finds one does not wait even for the shortest of others' work, and the lane
    /// serves that much less.
    Hard,
}

pub(super) fn check_tenants(settings: &Settings) -> Result<(), ConfigError> {
    let rules = &settings.tenants;
    within("tenants.len", rules.len(), 0, TENANT_RULES_MAX)?;
    for (i, rule) in rules.iter().enumerate() {
        let path = format!("tenants[{i}]");
        check_pattern(&format!("{path}.match"), &rule.matches)?;
        if rules[..i].iter().any(|r| r.matches == rule.matches) {
            return Err(ConfigError::Duplicate {
                setting: format!("{path}.match"),
                value: rule.matches.clone(),
            });
        }
        if let Some(cap) = rule.cap {
            within(&format!("{path}.cap"), cap, 1, LIMIT_MAX)?;
        }
        if let Some(share) = rule.cap_share {
            above_zero(&format!("{path}.cap_share"), share, 1.0)?;
        }
        for (lane, &cap) in &rule.lane_caps {
            within(&format!("{path}.lane_caps.{lane}"), cap, 1, LIMIT_MAX)?;
            if !settings.lanes.iter().any(|l| l.name == *lane) {
                return Err(ConfigError::Unknown {
                    setting: format!("{path}.lane_caps"),
                    value: lane.clone(),
                    known: settings.lanes.iter().map(|l| l.name.clone()).collect(),
                });
            }
        }
        if let Some(tier) = rule.default_tier {
            within(&format!("{path}.default_tier"), tier, Tier::T2, Tier::T5)?;
        }
        for (j, budget) in rule.budgets.iter().enumerate() {
            check_budget(&format!("{path}.budgets[{j}]"), budget, &rule.budgets[..j])?;
        }
    }
    Ok(())
}

fn check_budget(path: &str, budget: &TierBudget, before: &[TierBudget]) -> Result<(), ConfigError> {
    within(&format!("{path}.tier"), budget.tier, Tier::T0, Tier::T4)?;
    if before.iter().any(|b| b.tier == budget.tier) {
        return Err(ConfigError::Duplicate {
            setting: format!("{path}.tier"),
            value: budget.tier.to_string(),
        });
    }
    match (budget.per_s, budget.share) {
        (Some(per_s), None) => above_zero(&format!("{path}.per_s"), per_s, 1e12),
        (None, Some(share)) => above_zero(&format!("{path}.share"), share, 1.0),
        (per_s, share) => Err(ConfigError::OutOfBounds {
            setting: path.to_owned(),
            value: format!("per_s {per_s:?}, share {share:?}"),
            bound: "one of the two".to_owned(),
        }),
    }
}

pub(super) fn check_shares(path: &str, shares: &[ShareSettings]) -> Result<(), ConfigError> {
    for (i, share) in shares.iter().enumerate() {
        above_zero(
            &format!("{path}.shares[{i}].share"),
            share.share,
            SHARES_MAX,
        )?;
        if shares[..i].iter().any(|s| s.tier == share.tier) {
            return Err(ConfigError::Duplicate {
                setting: format!("{path}.shares[{i}].tier"),
                value: share.tier.to_string(),
            });
        }
    }
    let all: f64 = shares.iter().map(|share| share.share).sum();
    // Ten tenths, added up, are not quite one.
    within(&format!("{path}.shares (all)"), all, 0.0, SHARES_MAX + 1e-9)
}

fn check_pattern(setting: &str, pattern: &str) -> Result<(), ConfigError> {
    within(&format!("{setting}.len"), pattern.len(), 1, 64)?;
    let wrong = |bound: &str| ConfigError::OutOfBounds {
        setting: setting.to_owned(),
        value: format!("{pattern:?}"),
        bound: bound.to_owned(),
    };
    if pattern.contains(char::is_whitespace) {
        return Err(wrong("without spaces"));
    }
    if pattern.strip_suffix('*').unwrap_or(pattern).contains('*') {
        return Err(wrong("a name, or a prefix with one `*` at its end"));
    }
    if pattern.starts_with('#') && tenant_number(pattern).is_none() {
        return Err(wrong("`#` and a number below 2147483648"));
    }
    Ok(())
}

/// The number in `#7`.
pub(crate) fn tenant_number(pattern: &str) -> Option<u32> {
    let number = pattern.strip_prefix('#')?.parse().ok()?;
    (number < crate::tenants::NAMED_FROM).then_some(number)
}

fn above_zero(setting: &str, value: f64, most: f64) -> Result<(), ConfigError> {
    within(setting, value, f64::MIN_POSITIVE, most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn refusal(rule: TenantSettings) -> String {
        let settings = Settings::one_lane("main", 8).tenant(rule);
        Config::new(settings).unwrap_err().to_string()
    }

    #[test]
    fn each_refusal_names_setting_value_and_bound() {
        let rule = |change: fn(&mut TenantSettings)| {
            let mut rule = TenantSettings::new("batch/*");
            change(&mut rule);
            refusal(rule)
        };
        for (text, expected) in [
            (
                refusal(TenantSettings::new("")),
                "`tenants[0].match.len` is 0",
            ),
            (
                refusal(TenantSettings::new("a*b")),
                "`tenants[0].match` is \"a*b\" but must be a name, or a prefix with one `*` at its end",
            ),
            (
                refusal(TenantSettings::new("#x")),
                "`tenants[0].match` is \"#x\" but must be `#` and a number",
            ),
            (rule(|r| r.cap = Some(0)), "`tenants[0].cap` is 0"),
            (
                rule(|r| r.cap_share = Some(f64::NAN)),
                "`tenants[0].cap_share` is NaN",
            ),
            (
                rule(|r| {
                    r.lane_caps.insert("write".to_owned(), 3);
                }),
                "`tenants[0].lane_caps` is \"write\" but there are only [\"main\"]",
            ),
            (
                rule(|r| r.default_tier = Some(Tier::T1)),
                "`tenants[0].default_tier` is t1",
            ),
            (
                rule(|r| r.budgets.push(TierBudget::per_s(Tier::T5, 1.0))),
                "`tenants[0].budgets[0].tier` is t5 but must be between t0 and t4",
            ),
            (
                rule(|r| {
                    r.budgets.push(TierBudget {
                        share: Some(0.1),
                        ..TierBudget::per_s(Tier::T0, 1.0)
                    });
                }),
                "must be one of the two",
            ),
            (
                rule(|r| r.budgets.push(TierBudget::share(Tier::T0, 1.5))),
                "`tenants[0].budgets[0].share` is 1.5",
            ),
        ] {
            assert!(text.contains(expected), "{text}\n{expected}");
        }
    }

    #[test]
    fn shares_leave_something_for_everybody() {
        let with = |shares: &[ShareSettings]| {
            let mut settings = Settings::one_lane("main", 8);
            settings.lanes[0].shares = shares.to_vec();
            Config::new(settings).map_err(|error| error.to_string())
        };
        let third = ShareSettings::hard(Tier::T0, 0.3);
        let of = |tier| ShareSettings { tier, ..third };
        assert!(with(&[third, of(Tier::T1), of(Tier::T2)]).is_ok());
        let more = with(&[third, of(Tier::T1), of(Tier::T2), of(Tier::T3)]).unwrap_err();
        assert!(more.contains("`lanes[0].shares (all)` is 1.2"), "{more}");
        let twice = with(&[third, third]).unwrap_err();
        assert!(
            twice.contains("`lanes[0].shares[1].tier` is \"t0\""),
            "{twice}"
        );
        let none = with(&[ShareSettings::hard(Tier::T0, 0.0)]).unwrap_err();
        assert!(none.contains("`lanes[0].shares[0].share` is 0"), "{none}");
    }
}
