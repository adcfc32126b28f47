//! What is checked before anything is touched: each setting by itself, and those that do not go together.

use cinnamon_core::config::DEFAULT_SCOPE;
use cinnamon_core::{ClassSettings, Config, ConfigError, LaneSettings, Limit};

use super::{
    BACKGROUND_JOBS_MIN, READ, SCOPE, StoreOptions, WRITE, WRITE_BUFFER_BYTES_MAX,
    WRITE_BUFFER_BYTES_MIN,
};
use crate::operation::Operation;
use crate::write_stall::WRITE_STALL;

impl StoreOptions {
    /// Checks them and makes the controller's configuration: two lanes of one scope, a class an operation.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        self.check_bounds()?;
        self.check_family_names()?;
        for (path, triggers, write_buffer_bytes) in self.stalls() {
            let of_family = |error| under(&path, error);
            triggers.check().map_err(of_family)?;
            ConfigError::within(
                "write_buffer_bytes",
                write_buffer_bytes,
                WRITE_BUFFER_BYTES_MIN,
                WRITE_BUFFER_BYTES_MAX,
            )
            .map_err(of_family)?;
        }
        self.check_slos()?;
        self.check_together()?;
        let mut settings = self.control.clone();
        settings.lanes = self.lanes()?;
        settings.classes = self.classes()?;
        self.check_signals()?;
        Config::new(settings).map_err(|error| under("control.", error))
    }

    fn check_bounds(&self) -> Result<(), ConfigError> {
        self.read_limit.check("read_limit")?;
        self.write_limit.check("write_limit")?;
        let most = i32::MAX as u32;
        let jobs = self.background_jobs_max;
        ConfigError::within("background_jobs_max", jobs, BACKGROUND_JOBS_MIN, most)?;
        if let Some(bytes_per_s) = self.background_bytes_per_s {
            ConfigError::within("background_bytes_per_s", bytes_per_s, 1, i64::MAX as u64)?;
        }
        let cache = self.block_cache_bytes;
        ConfigError::within("block_cache_bytes", cache, 0, i64::MAX as u64)
    }

    /// Settings that are good each by itself and bad together.
    fn check_together(&self) -> Result<(), ConfigError> {
        for (path, triggers, write_buffer_bytes) in self.stalls() {
            // As much lies in L0 in ordinary operation: RocksDB would delay writes all the time, for a debt
            // that no compaction is due for.
            let l0_bytes = u64::from(triggers.l0_compaction).saturating_mul(write_buffer_bytes);
            let debt = triggers.soft_pending_compaction_bytes;
            if debt < l0_bytes {
                return Err(ConfigError::OutOfBounds {
                    setting: format!("{path}triggers.soft_pending_compaction_bytes"),
                    value: debt.to_string(),
                    bound: format!(
                        "at least {l0_bytes}: `triggers.l0_compaction` ({}) files of `write_buffer_bytes` ({write_buffer_bytes})",
                        triggers.l0_compaction
                    ),
                });
            }
        }
        if self.no_slowdown && !self.write_stall {
            // When RocksDB falls behind, writes of all tiers would fail alike, and nothing would shed the least
            // important of them.
            return Err(ConfigError::OutOfBounds {
                setting: "no_slowdown".to_owned(),
                value: "true".to_owned(),
                bound: "false while `write_stall` is false: nothing would shed low tiers before RocksDB \
                        refuses writes of all tiers alike"
                    .to_owned(),
            });
        }
        if self.write_stall_sheds_reads && !self.write_stall {
            return Err(ConfigError::OutOfBounds {
                setting: "write_stall_sheds_reads".to_owned(),
                value: "true".to_owned(),
                bound: "false while `write_stall` is false: nothing would shed them".to_owned(),
            });
        }
        self.check_memory()
    }

    /// The promises: each by itself, and beside the wait that a lane is told to take for no overload.
    fn check_slos(&self) -> Result<(), ConfigError> {
        let own = self.families.iter().enumerate().map(|(i, family)| {
            let path = format!("families[{i}].");
            (path, [family.read_slo, family.write_slo])
        });
        let all = std::iter::once((String::new(), [self.read_slo, self.write_slo])).chain(own);
        for (path, slos) in all {
            for (lane, slo) in [READ, WRITE].into_iter().zip(slos) {
                let Some(slo) = slo else { continue };
                let path = format!("{path}{lane}_slo");
                slo.check(&path)?;
                let lanes = self.control.lanes.iter().enumerate();
                let mut given = lanes.filter(|(_, given)| given.name == lane);
                let wait = given.find_map(|(i, given)| Some((i, given.codel_target_us?)));
                // Promises would be broken before anybody is refused.
                if let Some((i, wait_us)) = wait.filter(|(_, wait_us)| *wait_us >= slo.target_us) {
                    return Err(ConfigError::OutOfBounds {
                        setting: format!("{path}.target_us"),
                        value: slo.target_us.to_string(),
                        bound: format!(
                            "over {wait_us}, `control.lanes[{i}].codel_target_us`: its least important calls may wait \
                             for that long before the lane `{lane}` takes it for an overload"
                        ),
                    });
                }
            }
        }
        Ok(())
    }

    /// Memtables, all of which may be full at once, and the block cache.
    fn check_memory(&self) -> Result<(), ConfigError> {
        let Some(memory) = self.memory_bytes_max else {
            return Ok(());
        };
        let memtables = self.stalls().fold(0u64, |sum, (_, triggers, bytes)| {
            sum.saturating_add(u64::from(triggers.write_buffers_max).saturating_mul(bytes))
        });
        let cache = self.block_cache_bytes;
        let needed = memtables.saturating_add(cache);
        if memory >= needed {
            return Ok(());
        }
        Err(ConfigError::OutOfBounds {
            setting: "memory_bytes_max".to_owned(),
            value: memory.to_string(),
            bound: format!(
                "at least {needed}: `block_cache_bytes` ({cache}) and the memtables of {} column families, \
                 `write_buffer_bytes` times `triggers.write_buffers_max` of each ({memtables})",
                self.families.len() + 1
            ),
        })
    }

    /// The lanes, with what [`StoreOptions::control`] says of them.
    fn lanes(&self) -> Result<Vec<LaneSettings>, ConfigError> {
        let limits = [(READ, self.read_limit), (WRITE, self.write_limit)];
        for (i, lane) in self.control.lanes.iter().enumerate() {
            let refused = |field: &str, value: String, bound: String| ConfigError::OutOfBounds {
                setting: format!("control.lanes[{i}].{field}"),
                value,
                bound,
            };
            let Some((name, limit)) = limits.into_iter().find(|(name, _)| *name == lane.name)
            else {
                return Err(ConfigError::Unknown {
                    setting: format!("control.lanes[{i}].name"),
                    value: lane.name.clone(),
                    known: vec![READ.to_owned(), WRITE.to_owned()],
                });
            };
            if self.control.lanes[..i]
                .iter()
                .any(|other| other.name == *name)
            {
                return Err(ConfigError::Duplicate {
                    setting: format!("control.lanes[{i}].name"),
                    value: lane.name.clone(),
                });
            }
            // What says nothing of it goes with everything.
            if ![limit, Limit::auto()].contains(&lane.limit) {
                let bound = format!("{limit}, which `{name}_limit` is");
                return Err(refused("limit", lane.limit.to_string(), bound));
            }
            if ![DEFAULT_SCOPE, SCOPE].contains(&lane.scope.as_str()) {
                let bound = format!("{SCOPE:?}, the scope of both lanes of a store");
                return Err(refused("scope", format!("{:?}", lane.scope), bound));
            }
        }
        let lane = |(name, limit)| {
            let given = self.control.lanes.iter().find(|lane| lane.name == name);
            let lane = given.cloned();
            lane.unwrap_or_else(|| LaneSettings::auto(name))
                .limit(limit)
                .scope(SCOPE)
        };
        Ok(limits.map(lane).to_vec())
    }

    /// The classes, one an operation, with what [`StoreOptions::control`] says of them.
    fn classes(&self) -> Result<Vec<ClassSettings>, ConfigError> {
        let known = Operation::ALL.map(Operation::name);
        // What the settings of a controller have by default says nothing.
        let nothing = [ClassSettings::default()];
        let given: &[ClassSettings] = if self.control.classes == nothing {
            &[]
        } else {
            &self.control.classes
        };
        for (i, class) in given.iter().enumerate() {
            let setting = format!("control.classes[{i}].name");
            let value = class.name.clone();
            if !known.contains(&class.name.as_str()) {
                let known = known.map(str::to_owned).to_vec();
                return Err(ConfigError::Unknown {
                    setting,
                    value,
                    known,
                });
            }
            if given[..i].iter().any(|other| other.name == class.name) {
                return Err(ConfigError::Duplicate { setting, value });
            }
            if class.cost != 1 {
                return Err(ConfigError::OutOfBounds {
                    setting: format!("control.classes[{i}].cost"),
                    value: class.cost.to_string(),
                    bound: "1: the store weighs each call by what such calls have examined"
                        .to_owned(),
                });
            }
        }
        let class = |name: &str| {
            let given = given.iter().find(|class| class.name == name);
            given.cloned().unwrap_or_else(|| {
                let mut class = ClassSettings::default();
                name.clone_into(&mut class.name);
                class
            })
        };
        Ok(known.map(class).to_vec())
    }

    /// Settings of a signal that the store has not would be refused too, but after the folder was opened.
    fn check_signals(&self) -> Result<(), ConfigError> {
        let known: &[&str] = if self.write_stall {
            &[WRITE_STALL]
        } else {
            &[]
        };
        let signals = self.control.signals.iter().enumerate();
        for (i, signal) in signals {
            if !known.contains(&signal.name.as_str()) {
                return Err(ConfigError::Unknown {
                    setting: format!("control.signals[{i}].name"),
                    value: signal.name.clone(),
                    known: known.iter().map(|&name| name.to_owned()).collect(),
                });
            }
        }
        Ok(())
    }
}

/// The same error of a setting under this path.
fn under(path: &str, error: ConfigError) -> ConfigError {
    match error {
        ConfigError::OutOfBounds {
            setting,
            value,
            bound,
        } => ConfigError::OutOfBounds {
            setting: format!("{path}{setting}"),
            value,
            bound,
        },
        ConfigError::Duplicate { setting, value } => ConfigError::Duplicate {
            setting: format!("{path}{setting}"),
            value,
        },
        ConfigError::Unknown {
            setting,
            value,
            known,
        } => ConfigError::Unknown {
            setting: format!("{path}{setting}"),
            value,
            known,
        },
        other => other,
    }
}
