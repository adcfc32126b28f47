//! What a call costs: what it will, judged by what such calls came to, and what it did, by what RocksDB
//! examined for it.
//!
//! The unit is one point read that finds its block in the cache. `cargo run --example costs` says what the others
//! are in it; the figures below are the medians of five rounds.

use std::sync::atomic::{AtomicU32, Ordering};

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

/// How what such calls came to relates to what was asked of them: three means, decayed.
///
/// Each is an `f32` of its own: an update that another overtakes is lost, and one that is seen by half is a
/// lesson mixed up, which the next ones put right.
#[derive(Debug, Default)]
pub(crate) struct Experience {
    /// What was asked; 0 before the first call.
    asked: AtomicU32,
    /// What was charged beyond that.
    extra: AtomicU32,
    /// What was not used of it.
    unused: AtomicU32,
}

impl Experience {
    /// A call that by what it asked for would have cost `asked` came to `charged`.
    pub(crate) fn learn(&self, asked: u32, charged: u32) {
        if asked == 0 {
            // Nothing was asked, and what that came to says nothing of what is asked. A mean of zeros would make
            // each thing that is asked dear without a bound.
            return;
        }
        let first = mean(&self.asked) <= 0.0;
        // The first is not held back by what is not known.
        let gain = if first { 1.0 } else { GAIN };
        for (of, news) in [
            (&self.extra, charged.saturating_sub(asked)),
            (&self.unused, asked.saturating_sub(charged)),
            (&self.asked, asked),
        ] {
            let old = mean(of);
            let new = old + gain * (news as f32 - old);
            of.store(new.to_bits(), Ordering::Relaxed);
        }
    }

    /// What work that is done for each of what is asked will come to, such as reading keys, at least 1.
    pub(crate) fn expect_each(&self, asked: u32) -> u32 {
        self.expect(asked, |share| share)
    }

    /// What a scan will come to, at least 1. What it steps over beside its rows may lie between them, or all of
    /// it before the first one. So one that asks for more than the mean is not expected to step over more than
    /// that: were it in proportion, one row behind ten thousand tombstones would make a scan of ten thousand
    /// rows dearer than the store.
    pub(crate) fn expect_scan(&self, asked: u32) -> u32 {
        self.expect(asked, |share| share.min(1.0))
    }

    /// What nobody has asked for yet costs what is asked.
    fn expect(&self, asked: u32, extra_share: impl FnOnce(f32) -> f32) -> u32 {
        let [mean_asked, extra, unused] = [&self.asked, &self.extra, &self.unused].map(mean);
        if mean_asked <= 0.0 {
            return asked.max(1);
        }
        let share = asked as f32 / mean_asked;
        let used = (mean_asked - unused).max(0.0);
        // The cast saturates.
        ((share * used + extra_share(share) * extra).round() as u32).max(1)
    }
}

fn mean(of: &AtomicU32) -> f32 {
    f32::from_bits(of.load(Ordering::Relaxed))
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
        assert_eq!([0, 7].map(|asked| experience.expect_scan(asked)), [1, 7]);
        experience.learn(10, 30);
        assert_eq!(
            [1, 10, 20].map(|asked| experience.expect_each(asked)),
            [3, 30, 60]
        );
        // A mean of 20 stepped over, and in proportion for what is smaller.
        assert_eq!(
            [1, 10, 20].map(|asked| experience.expect_scan(asked)),
            [3, 30, 40]
        );
        for _ in 0..400 {
            experience.learn(10, 20);
        }
        assert_eq!(
            [10, 100].map(|asked| experience.expect_scan(asked)),
            [20, 110]
        );
        // One dear call among many: what is charged and what is expected stay equal in the mean.
        experience.learn(10, 660);
        assert_eq!(experience.expect_scan(10), 40);
    }

    #[test]
    fn scans_that_find_less_than_they_ask_for_are_expected_to() {
        let experience = Experience::default();
        for _ in 0..10 {
            experience.learn(626, 5);
        }
        assert_eq!(
            [2, 626, 1_252].map(|asked| experience.expect_scan(asked)),
            [1, 5, 10]
        );
        // Of all sizes, each of which finds what it asks for: what is asked is what is expected.
        let experience = Experience::default();
        for asked in [1, 1_000, 1, 50, 1_000] {
            experience.learn(asked, asked);
        }
        assert_eq!(
            [1, 1_000].map(|asked| experience.expect_scan(asked)),
            [1, 1_000]
        );
    }

    #[test]
    fn a_row_behind_many_tombstones_does_not_make_a_long_scan_dearer_than_the_store() {
        let experience = Experience::default();
        experience.learn(1, 626);
        assert_eq!(
            [1, 626].map(|asked| experience.expect_scan(asked)),
            [626, 1_251]
        );
    }

    #[test]
    fn what_is_expected_saturates() {
        let experience = Experience::default();
        experience.learn(1, u32::MAX);
        assert_eq!(experience.expect_each(u32::MAX), u32::MAX);
        assert_eq!(experience.expect_scan(u32::MAX), u32::MAX);
        let experience = Experience::default();
        experience.learn(0, 5);
        assert_eq!(experience.expect_scan(2), 2, "nothing was asked");
        experience.learn(1, 1);
        (0..10_000).for_each(|_| experience.learn(0, 1));
        assert_eq!(
            experience.expect_each(1),
            1,
            "what asks for nothing teaches nothing"
        );
        experience.learn(1_000_000, 0);
        assert_eq!(experience.expect_scan(1), 1);
    }
}
