//! The check that every setting passes.

use std::fmt::Display;
use std::path::PathBuf;

use super::tenant::{check_shares, check_tenants};
use super::{
    CLASSES_MAX, ConfigError, LANES_MAX, LIMIT_MAX, LaneSettings, QUEUE_LEN_MAX, Settings,
};
use crate::priority::Tier;
use crate::signal::SIGNALS_MAX;

/// Checks the name of a lane or a signal: a line of the override file, whose words are told by spaces and whose
/// comments begin with `#`, must be able to name it.
pub(crate) fn check_name(path: &str, name: &str) -> Result<(), ConfigError> {
    within(&format!("{path}.name.len"), name.len(), 1, 64)?;
    if name.contains(|c: char| c.is_whitespace() || c == '#') {
        return Err(ConfigError::OutOfBounds {
            setting: format!("{path}.name"),
            value: format!("{name:?}"),
            bound: "without spaces and `#`".to_owned(),
        });
    }
    Ok(())
}

/// Checks that a live limit is one a lane may have.
pub(crate) fn check_limit(setting: &str, limit: u32) -> Result<(), ConfigError> {
    within(setting, limit, 1, LIMIT_MAX)
}

pub(super) fn check(settings: &Settings) -> Result<(), ConfigError> {
    within("name.len", settings.name.len(), 1, 64)?;
    within("lanes.len", settings.lanes.len(), 1, LANES_MAX)?;
    within("classes.len", settings.classes.len(), 1, CLASSES_MAX)?;
    for (i, lane) in settings.lanes.iter().enumerate() {
        check_lane(&format!("lanes[{i}]"), lane)?;
        if settings.lanes[..i].iter().any(|l| l.name == lane.name) {
            return Err(ConfigError::Duplicate {
                setting: format!("lanes[{i}].name"),
                value: lane.name.clone(),
            });
        }
    }
    for (i, class) in settings.classes.iter().enumerate() {
        if let Some(tier) = class.default_tier {
            within(
                &format!("classes[{i}].default_tier"),
                tier,
                Tier::T2,
                Tier::T5,
            )?;
        }
        within(&format!("classes[{i}].cost"), class.cost, 1, u32::MAX)?;
    }
    within("untagged_tier", settings.untagged_tier, Tier::T2, Tier::T5)?;
    within("cohort_epoch_ms", settings.cohort_epoch_ms, 1_000, u64::MAX)?;
    number("kp", settings.kp, 5.0)?;
    number("ki_per_s", settings.ki_per_s, 10.0)?;
    number("kd_s", settings.kd_s, 1.0)?;
    within("tick_min_ms", settings.tick_min_ms, 1, 1_000)?;
    within(
        "tick_max_ms",
        settings.tick_max_ms,
        settings.tick_min_ms,
        1_000,
    )?;
    check_tenants(settings)?;
    within("signals.len", settings.signals.len(), 0, SIGNALS_MAX)?;
    for (i, signal) in settings.signals.iter().enumerate() {
        let path = format!("signals[{i}]");
        check_name(&path, &signal.name)?;
        if settings.signals[..i].iter().any(|s| s.name == signal.name) {
            return Err(ConfigError::Duplicate {
                setting: format!("{path}.name"),
                value: signal.name.clone(),
            });
        }
        if let Some(period_ms) = signal.period_ms {
            within(&format!("{path}.period_ms"), period_ms, 1, 60_000)?;
        }
        if let Some(horizon_ms) = signal.horizon_ms {
            within(&format!("{path}.horizon_ms"), horizon_ms, 1, 3_600_000)?;
        }
    }
    Ok(())
}

/// Checks that `new` can take the place of `old` in a controller that runs: lanes and scopes are what
/// handles and signals hold on to, and a class in flight must stay one.
pub(crate) fn check_change(old: &Settings, new: &Settings) -> Result<(), ConfigError> {
    let fixed = |setting: String, value: &dyn Display, built: &dyn Display| {
        Err(ConfigError::Fixed {
            setting,
            value: value.to_string(),
            built: built.to_string(),
        })
    };
    if new.lanes.len() != old.lanes.len() {
        return fixed("lanes.len".to_owned(), &new.lanes.len(), &old.lanes.len());
    }
    for (i, (new, old)) in new.lanes.iter().zip(&old.lanes).enumerate() {
        if new.name != old.name {
            return fixed(format!("lanes[{i}].name"), &new.name, &old.name);
        }
        if new.scope != old.scope {
            return fixed(format!("lanes[{i}].scope"), &new.scope, &old.scope);
        }
    }
    if new.classes.len() < old.classes.len() {
        return fixed(
            "classes.len".to_owned(),
            &new.classes.len(),
            &old.classes.len(),
        );
    }
    if new.name != old.name {
        return fixed("name".to_owned(), &new.name, &old.name);
    }
    if new.override_file != old.override_file {
        let path = |file: &Option<PathBuf>| format!("{:?}", file.as_deref().unwrap_or("".as_ref()));
        return fixed(
            "override_file".to_owned(),
            &path(&new.override_file),
            &path(&old.override_file),
        );
    }
    Ok(())
}

fn check_lane(path: &str, lane: &LaneSettings) -> Result<(), ConfigError> {
    check_name(path, &lane.name)?;
    within(&format!("{path}.scope.len"), lane.scope.len(), 1, 64)?;
    lane.limit.check(&format!("{path}.limit"))?;
    if let Some(len) = lane.queue_len_max {
        within(&format!("{path}.queue_len_max"), len, 0, QUEUE_LEN_MAX)?;
    }
    check_shares(path, &lane.shares)?;
    let hour_us = 3_600_000_000;
    let target = lane.codel_target_us;
    if let Some(target) = target {
        within(&format!("{path}.codel_target_us"), target, 1, hour_us)?;
    }
    if let Some(interval) = lane.codel_interval_us {
        let least = target.map_or(1, |target| target + 1);
        within(
            &format!("{path}.codel_interval_us"),
            interval,
            least,
            10 * hour_us,
        )?;
    }
    Ok(())
}

pub(crate) fn within<T: PartialOrd + Display>(
    setting: &str,
    value: T,
    least: T,
    most: T,
) -> Result<(), ConfigError> {
    ConfigError::within(setting, value, least, most)
}

/// NaN fails every comparison, so it is refused here too.
fn number(setting: &str, value: f64, most: f64) -> Result<(), ConfigError> {
    within(setting, value, 0.0, most)
}
