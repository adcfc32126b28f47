//! Where RocksDB delays and stops writes.

use cinnamon_core::ConfigError;
use serde::{Deserialize, Serialize};

/// L0 files from which RocksDB compacts them: RocksDB's own default.
pub const DEFAULT_L0_COMPACTION_TRIGGER: u32 = 4;
/// L0 files from which RocksDB delays writes: RocksDB's own default.
pub const DEFAULT_L0_SLOWDOWN_TRIGGER: u32 = 20;
/// L0 files from which RocksDB stops writes: RocksDB's own default.
pub const DEFAULT_L0_STOP_TRIGGER: u32 = 36;
/// Compaction debt from which RocksDB delays writes: RocksDB's own default.
pub const DEFAULT_SOFT_PENDING_COMPACTION_BYTES: u64 = 64 << 30;
/// Compaction debt from which RocksDB stops writes: RocksDB's own default.
pub const DEFAULT_HARD_PENDING_COMPACTION_BYTES: u64 = 256 << 30;
/// Memtables: RocksDB's own default. With two of them RocksDB knows no delay: it goes from full speed to a
/// stop.
pub const DEFAULT_WRITE_BUFFERS_MAX: u32 = 2;

/// Where RocksDB delays and stops writes. The soft limits of [`WriteStall`](crate::WriteStall) follow from
/// it: they lie below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct StallTriggers {
    /// L0 files from which they are compacted, at least 1. Default [`DEFAULT_L0_COMPACTION_TRIGGER`].
    pub l0_compaction: u32,
    /// L0 files from which writes are delayed, above `l0_compaction`. Default
    /// [`DEFAULT_L0_SLOWDOWN_TRIGGER`].
    pub l0_slowdown: u32,
    /// L0 files from which no write is taken, at least `l0_slowdown`. Default [`DEFAULT_L0_STOP_TRIGGER`].
    pub l0_stop: u32,
    /// Bytes of compaction debt from which writes are delayed, at least 1. Default
    /// [`DEFAULT_SOFT_PENDING_COMPACTION_BYTES`].
    pub soft_pending_compaction_bytes: u64,
    /// Bytes of compaction debt from which no write is taken, at least the soft limit. Default
    /// [`DEFAULT_HARD_PENDING_COMPACTION_BYTES`].
    pub hard_pending_compaction_bytes: u64,
    /// Memtables, the one that is written to included, at least 2. Default [`DEFAULT_WRITE_BUFFERS_MAX`].
    pub write_buffers_max: u32,
}

impl Default for StallTriggers {
    fn default() -> Self {
        Self {
            l0_compaction: DEFAULT_L0_COMPACTION_TRIGGER,
            l0_slowdown: DEFAULT_L0_SLOWDOWN_TRIGGER,
            l0_stop: DEFAULT_L0_STOP_TRIGGER,
            soft_pending_compaction_bytes: DEFAULT_SOFT_PENDING_COMPACTION_BYTES,
            hard_pending_compaction_bytes: DEFAULT_HARD_PENDING_COMPACTION_BYTES,
            write_buffers_max: DEFAULT_WRITE_BUFFERS_MAX,
        }
    }
}

impl StallTriggers {
    /// Most of anything that is counted: what RocksDB takes is an `int`.
    const COUNT_MAX: u32 = i32::MAX as u32;

    /// Checks them against each other.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let most = Self::COUNT_MAX;
        ConfigError::within("triggers.l0_compaction", self.l0_compaction, 1, most)?;
        let least = self.l0_compaction.saturating_add(1);
        ConfigError::within("triggers.l0_slowdown", self.l0_slowdown, least, most)?;
        ConfigError::within("triggers.l0_stop", self.l0_stop, self.l0_slowdown, most)?;
        let soft = self.soft_pending_compaction_bytes;
        let hard = self.hard_pending_compaction_bytes;
        let most = i64::MAX as u64;
        ConfigError::within("triggers.soft_pending_compaction_bytes", soft, 1, most)?;
        ConfigError::within("triggers.hard_pending_compaction_bytes", hard, soft, most)?;
        let most = Self::COUNT_MAX;
        ConfigError::within(
            "triggers.write_buffers_max",
            self.write_buffers_max,
            2,
            most,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_pass_their_own_checks_and_others_are_refused_by_name_and_bound() {
        StallTriggers::default().check().unwrap();
        type Change = fn(&mut StallTriggers);
        let refused: [(Change, &str); 5] = [
            (
                |t| t.l0_compaction = 0,
                "`triggers.l0_compaction` is 0 but must be between 1 and 2147483647",
            ),
            (
                |t| t.l0_slowdown = 4,
                "`triggers.l0_slowdown` is 4 but must be between 5 and 2147483647",
            ),
            (
                |t| t.l0_stop = 19,
                "`triggers.l0_stop` is 19 but must be between 20 and 2147483647",
            ),
            (
                |t| t.hard_pending_compaction_bytes = 1,
                "`triggers.hard_pending_compaction_bytes` is 1 but must be between 68719476736 and 9223372036854775807",
            ),
            (
                |t| t.write_buffers_max = 1,
                "`triggers.write_buffers_max` is 1 but must be between 2 and 2147483647",
            ),
        ];
        for (change, text) in refused {
            let mut triggers = StallTriggers::default();
            change(&mut triggers);
            assert_eq!(triggers.check().unwrap_err().to_string(), text);
        }
    }
}
