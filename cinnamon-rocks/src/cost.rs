//! What a call costs: what it will, judged by what such calls came to, and what it did, by what RocksDB
//! examined for it.
//!
//! The unit is one point read that finds its block in the cache. `cargo run --example costs` says what the others
//! are in it; the figures below are the medians of five rounds.

use std::sync::atomic::{AtomicU64, Ordering};

use rocksdb::perf::{PerfContext, PerfMetric};

/// Rows, and tombstones, a scan steps over for the cost of one point read. (14 rows; 19 tombstones.)
const SCAN_ROWS_PER_UNIT: u32 = 16;
/// Blocks that were not in the cache, for the cost of one. (0.4 from the page cache; from a disk it is what the
/// disk takes over some microseconds. One lies between.)
const BLOCKS_PER_UNIT: u64 = 1;
/// Bytes a write carries for the cost of one: what fits a block.
const WRITE_BYTES_PER_UNIT: usize = 4_096;
/// Operations of a batch for the cost of one: they share the log record, and still each goes to the memtable.
/// (A put 0.9; in a batch of 64 each 0.5.)
pub(crate) const BATCH_OPERATIONS_PER_UNIT: u32 = 2;
/// The same where a write waits for the disk: that is what takes the time. (A batch of 64 takes as long as one
/// put.)
pub(crate) const SYNCED_OPERATIONS_PER_UNIT: u32 = 64;
/// Weight of one call in what is expected of the next, as that of a completion in its class's mean cost.
const GAIN: f32 = 1.0 / 32.0;

/// A scan that examines so many rows.
pub(crate) const fn scan_cost(rows: u32) -> u32 {
    (rows / SCAN_ROWS_PER_UNIT).saturating_add(1)
}

/// One write of so many bytes, key and value.
pub(crate) fn write_cost(bytes: usize) -> u32 {
    small((bytes / WRITE_BYTES_PER_UNIT) as u64).saturating_add(1)
}

/// So many writes of so many bytes in all, as one log record.
pub(crate) fn batch_cost(operations: u32, bytes: usize, operations_per_unit: u32) -> u32 {
    let more = operations.saturating_sub(1) / operations_per_unit;
    write_cost(bytes).saturating_add(more)
}

/// What RocksDB did on this thread for one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Examined {
    /// Rows and tombstones stepped over, returned or not: what was overwritten, and what is newer than the
    /// snapshot, included.
    steps: u64,
    /// Blocks that were not in the block cache.
    blocks: u64,
}

impl Examined {
    /// What a scan that returned so many rows costs. Where RocksDB does not count, those are all that is known
    /// of it.
    pub(crate) fn scan(self, returned: usize) -> u32 {
        let steps = self.steps.max(returned as u64);
        scan_cost(small(steps)).saturating_add(small(self.blocks / BLOCKS_PER_UNIT))
    }

    /// What reading so many keys costs.
    pub(crate) fn points(self, keys: usize) -> u32 {
        let steps = self.steps / u64::from(SCAN_ROWS_PER_UNIT);
        let blocks = self.blocks / BLOCKS_PER_UNIT;
        small(
            (keys.max(1) as u64)
                .saturating_add(steps)
                .saturating_add(blocks),
        )
    }
}

/// Counts from here on what RocksDB examines on this thread.
///
/// RocksDB counts by itself on every thread, unless it was told not to there. The counters are only read, so
/// whoever else looks at them on this thread is not disturbed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    skipped: u64,
    recent: u64,
    blocks: u64,
}

impl Meter {
    pub(crate) fn start() -> Self {
        with_counters(|counters| Self {
            skipped: skipped(counters),
            recent: counters.metric(PerfMetric::InternalRecentSkippedCount),
            blocks: counters.metric(PerfMetric::BlockReadCount),
        })
    }

    /// How much was stepped over so far, but for what is newer than the snapshot: quick enough to be asked at
    /// every row.
    pub(crate) fn steps(self) -> u64 {
        with_counters(skipped).saturating_sub(self.skipped)
    }

    pub(crate) fn examined(self) -> Examined {
        let now = Self::start();
        Examined {
            steps: now.skipped.saturating_sub(self.skipped)
                + now.recent.saturating_sub(self.recent),
            blocks: now.blocks.saturating_sub(self.blocks),
        }
    }
}

fn skipped(counters: &PerfContext) -> u64 {
    counters.metric(PerfMetric::InternalKeySkippedCount)
        + counters.metric(PerfMetric::InternalDeleteSkippedCount)
}

fn with_counters<T: Default>(read: impl FnOnce(&PerfContext) -> T) -> T {
    thread_local! {
        static COUNTERS: PerfContext = PerfContext::default();
    }
    // Not to be had while the thread ends.
    COUNTERS.try_with(read).unwrap_or_default()
}

/// How what such calls came to relates to what was asked of them: the mean of what was charged over the mean
/// of what was asked, both decayed.
///
/// Both are `f32` in one word: an update that another overtakes is lost, which costs one lesson.
#[derive(Debug, Default)]
pub(crate) struct Experience(AtomicU64);

impl Experience {
    /// A call that by what it asked for would have cost `asked` came to `charged`.
    pub(crate) fn learn(&self, asked: u32, charged: u32) {
        let (sum_asked, sum_charged) = self.sums();
        let decayed = |sum: f32, news: u32| sum + GAIN * (news as f32 - sum);
        // The first is not held back by what is not known.
        let (sum_asked, sum_charged) = if sum_asked > 0.0 {
            (decayed(sum_asked, asked), decayed(sum_charged, charged))
        } else {
            (asked as f32, charged as f32)
        };
        let bits = u64::from(sum_asked.to_bits()) << 32 | u64::from(sum_charged.to_bits());
        self.0.store(bits, Ordering::Relaxed);
    }

    /// What a call that asks for so much will come to, at least 1. What nobody has asked for yet costs what
    /// is asked.
    pub(crate) fn expect(&self, asked: u32) -> u32 {
        let (sum_asked, sum_charged) = self.sums();
        if sum_asked > 0.0 {
            // Saturates, and NaN cannot be.
            ((asked as f32 * (sum_charged / sum_asked)).round() as u32).max(1)
        } else {
            asked.max(1)
        }
    }

    fn sums(&self) -> (f32, f32) {
        let bits = self.0.load(Ordering::Relaxed);
        (
            f32::from_bits((bits >> 32) as u32),
            f32::from_bits(bits as u32),
        )
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_at_least_one_and_saturates() {
        assert_eq!([0, 15, 16, 64].map(scan_cost), [1, 1, 2, 5]);
        assert_eq!(scan_cost(u32::MAX), u32::MAX / 16 + 1);
        assert_eq!([0, 4_095, 8_192].map(write_cost), [1, 1, 3]);
        assert_eq!(batch_cost(0, 0, 2), 1);
        assert_eq!(batch_cost(1, 8_192, 2), 3);
        assert_eq!([2, 64].map(|per_unit| batch_cost(65, 0, per_unit)), [33, 2]);
        assert_eq!(batch_cost(u32::MAX, usize::MAX, 1), u32::MAX);
        let all = Examined {
            steps: u64::MAX,
            blocks: u64::MAX,
        };
        assert_eq!([all.scan(0), all.points(0)], [u32::MAX; 2]);
    }

    #[test]
    fn a_scan_is_charged_for_what_it_stepped_over_and_at_least_for_what_it_returned() {
        let examined = Examined {
            steps: 176,
            blocks: 3,
        };
        assert_eq!(examined.scan(1), 1 + 11 + 3);
        assert_eq!(Examined::default().scan(64), 5);
        assert_eq!(examined.points(10), 10 + 11 + 3);
        assert_eq!(Examined::default().points(0), 1);
    }

    #[test]
    fn what_is_expected_follows_what_such_calls_came_to() {
        let experience = Experience::default();
        assert_eq!([0, 7].map(|asked| experience.expect(asked)), [1, 7]);
        experience.learn(1, 626);
        assert_eq!(experience.expect(1), 626);
        assert_eq!(experience.expect(3), 1_878);
        // Cheap ones bring it down, and the mean of many is theirs.
        for _ in 0..400 {
            experience.learn(10, 20);
        }
        assert_eq!(experience.expect(10), 20);
        // One dear call among many: what is charged and what is expected stay equal in the mean.
        experience.learn(10, 660);
        assert_eq!(experience.expect(10), 40);
    }

    #[test]
    fn what_is_expected_saturates() {
        let experience = Experience::default();
        experience.learn(1, u32::MAX);
        assert_eq!(experience.expect(u32::MAX), u32::MAX);
        let experience = Experience::default();
        experience.learn(0, 5);
        assert_eq!(experience.expect(2), 2, "nothing was asked");
        experience.learn(1_000_000, 0);
        assert_eq!(experience.expect(1), 1);
    }
}
