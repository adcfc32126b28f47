//! Column families: their settings, and those that a folder has.

use std::path::Path;

use cinnamon_core::ConfigError;
use serde::{Deserialize, Serialize};

use super::{SloOptions, StoreOptions};
use crate::error::OpenError;
use crate::write_stall::StallTriggers;

/// The column family that every database has. [`StoreOptions::write_buffer_bytes`] and
/// [`StoreOptions::triggers`] are its own.
pub const DEFAULT_FAMILY: &str = "default";
/// Longest name of a column family, bytes. RocksDB has no bound; names go into logs.
const NAME_BYTES_MAX: usize = 255;
/// Most column families of a store. Each has memtables of its own, and costs the sampling of write stalls four
/// looks behind the database's mutex ten times a second.
pub const FAMILIES_MAX: usize = 256;

/// Settings of one column family beside `default`. Those that are not set are the store's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FamilyOptions {
    /// Its name, 1..=255 bytes, other than [`DEFAULT_FAMILY`].
    pub name: String,
    /// Bytes of one memtable of its own. Default (`None`): [`StoreOptions::write_buffer_bytes`].
    #[serde(default)]
    pub write_buffer_bytes: Option<u64>,
    /// Where RocksDB delays and stops writes for it. A write to any column family waits when one of them
    /// stalls. Default (`None`): [`StoreOptions::triggers`]; of those given, what a file leaves out stands at
    /// the defaults of [`StallTriggers`].
    #[serde(default)]
    pub triggers: Option<StallTriggers>,
    /// What its reads are promised. Default (`None`): [`StoreOptions::read_slo`]; of those given, what a file leaves out
    /// stands at the defaults of [`SloOptions`].
    #[serde(default)]
    pub read_slo: Option<SloOptions>,
    /// What its writes are promised. Default (`None`): [`StoreOptions::write_slo`].
    #[serde(default)]
    pub write_slo: Option<SloOptions>,
}

impl FamilyOptions {
    /// A column family with the store's settings.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            write_buffer_bytes: None,
            triggers: None,
            read_slo: None,
            write_slo: None,
        }
    }
}

impl StoreOptions {
    /// Adds a column family.
    #[must_use]
    pub fn family(mut self, family: FamilyOptions) -> Self {
        self.families.push(family);
        self
    }

    /// What holds for this column family.
    pub(crate) fn of_family<'a>(&'a self, family: &'a FamilyOptions) -> (&'a StallTriggers, u64) {
        (
            family.triggers.as_ref().unwrap_or(&self.triggers),
            family.write_buffer_bytes.unwrap_or(self.write_buffer_bytes),
        )
    }

    /// Triggers and memtables of every column family, with the path of its settings.
    pub(super) fn stalls(&self) -> impl Iterator<Item = (String, &StallTriggers, u64)> {
        let default = (String::new(), &self.triggers, self.write_buffer_bytes);
        let named = self.families.iter().enumerate().map(|(i, family)| {
            let (triggers, bytes) = self.of_family(family);
            (format!("families[{i}]."), triggers, bytes)
        });
        std::iter::once(default).chain(named)
    }

    /// The names of all column families, and what their reads and their writes are promised.
    pub(crate) fn slos(&self) -> impl Iterator<Item = (&str, [Option<SloOptions>; 2])> {
        let default = (DEFAULT_FAMILY, [self.read_slo, self.write_slo]);
        let named = self.families.iter().map(|family| {
            let reads = family.read_slo.or(self.read_slo);
            let writes = family.write_slo.or(self.write_slo);
            (family.name.as_str(), [reads, writes])
        });
        std::iter::once(default).chain(named)
    }

    pub(super) fn check_family_names(&self) -> Result<(), ConfigError> {
        ConfigError::within("families.len", self.families.len(), 0, FAMILIES_MAX)?;
        for (i, family) in self.families.iter().enumerate() {
            let setting = format!("families[{i}].name");
            let name = &family.name;
            ConfigError::within(&format!("{setting}.len"), name.len(), 1, NAME_BYTES_MAX)?;
            let refused = |bound: &str| ConfigError::OutOfBounds {
                setting: setting.clone(),
                value: format!("{name:?}"),
                bound: bound.to_owned(),
            };
            if name == DEFAULT_FAMILY {
                return Err(refused(
                    "another: every store has that one, and `write_buffer_bytes` and `triggers` are its settings",
                ));
            }
            if name.contains('\0') {
                return Err(refused("without a zero byte"));
            }
            if self.families[..i].iter().any(|other| other.name == *name) {
                return Err(ConfigError::Duplicate {
                    setting,
                    value: name.clone(),
                });
            }
        }
        Ok(())
    }

    /// Looks which column families the folder has, and takes in those that are not named if that is asked
    /// for.
    pub(crate) fn adopt_families(&mut self, path: &Path) -> Result<(), OpenError> {
        // The file by which RocksDB itself tells whether a folder holds a database.
        if !path.join("CURRENT").exists() {
            return Ok(());
        }
        let there = rocksdb::DB::list_cf(&self.rocksdb(), path)?;
        let named = |name: &String| {
            name == DEFAULT_FAMILY || self.families.iter().any(|family| family.name == *name)
        };
        let names: Vec<String> = there.into_iter().filter(|name| !named(name)).collect();
        if names.is_empty() {
            return Ok(());
        }
        if !self.open_unknown_families {
            return Err(OpenError::UnnamedFamilies { names });
        }
        self.families
            .extend(names.iter().map(|name| FamilyOptions::new(name)));
        // They add to what was checked: memory, and their number.
        self.config()?;
        Ok(())
    }
}
