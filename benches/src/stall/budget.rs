//! What the arm with `WriteBytes` may let in: as much as compactions take out of L0.
//!
//! Flushes keep up whatever is written, until RocksDB stops writes: what piles up are files in L0, so what is carried off is
//! what was written and lies neither in a memtable nor in L0 any more. That is in the bytes of callers, whatever they are
//! compressed to.

use std::time::Duration;

use cinnamon_core::{Clock, Instant, MonotonicClock};
use cinnamon_rocks::{BackgroundBytes, BackgroundWatch, StallGauges};
use cinnamon_signals::Sustained;

use super::WRITE_BUFFER_BYTES;

/// Looked at this often while it learns, as a signal is.
pub(super) const PERIOD: Duration = Duration::from_millis(100);
/// Files in L0 at which a store is held that is behind: one less than those of `WriteStall`, whose scale says why, for it is
/// held a little over it, as what it carries off is learned with too many at first. (With 13 the mean was 14.2, RocksDB
/// delayed for 1.4 s of 20, and 98.9 % of the writes of t0 and t1 were in time; with 15 it was 15.3, 3.5 s, and 96 %.)
const FILES_TARGET: f64 = 12.0;
/// From so many files on it is behind: the budget is there before the target is reached …
const BEHIND_FROM: f64 = 10.0;
/// … and until there are fewer than so many, so that a store that is held at the target does not come and go: what is
/// learned counts for nothing until it was behind for five seconds without a break.
const BEHIND_UNTIL: f64 = 7.0;
/// Their number is averaged over this, seconds: compactions make it a sawtooth of one to two.
const MEAN_S: f64 = 2.0;
/// But so many under what there are now count at least: a crest that no mean has seen yet is half as high.
const CREST_FILES: f64 = 3.0;
/// By so much of itself the budget is less for each time that the target is exceeded by itself, and as much more under
/// it: a budget of what is carried off holds L0 wherever it is. (Without, it came to rest at 10.4 files. With half of it, where
/// what had been learned was a tenth too much, at 15.2 files instead of 13.)
const TRIM: f64 = 1.0;
/// And it moves the budget no further than this.
const TRIM_RANGE: (f64, f64) = (0.5, 1.5);

/// The budget, for `WriteBytes::following`.
#[derive(Debug)]
pub(super) struct Budget {
    clock: MonotonicClock,
    sustained: Sustained,
    store: OfStore,
}

/// What is remembered of one store.
#[derive(Debug, Default)]
struct OfStore {
    seen_at: Option<Instant>,
    /// Mean number of files in L0.
    files: Option<f64>,
    behind: bool,
    /// Bytes, the most there ever were: a memtable that was reckoned full and is not is no loss.
    carried_off: u64,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            clock: MonotonicClock::new(),
            sustained: Sustained::new(),
            store: OfStore::default(),
        }
    }

    /// The same for another store, of which it believes what it has learned.
    pub(super) fn of_another_store(self) -> Self {
        Self {
            store: OfStore::default(),
            ..self
        }
    }

    /// Bytes per second, infinity while there is no limit, nothing when it is not known.
    pub(super) fn look(&mut self, store: &BackgroundWatch) -> Option<f64> {
        let (bytes, gauges) = (store.bytes()?, store.gauges()?);
        let now = self.clock.now();
        let (trim, behind) = self.store.look(now, &bytes, &gauges)?;
        let rate = self.sustained.look(now, self.store.carried_off, behind)?;
        Some(trim * rate)
    }
}

impl OfStore {
    /// The factor on what is carried off, and whether the store is behind.
    fn look(
        &mut self,
        now: Instant,
        bytes: &BackgroundBytes,
        gauges: &StallGauges,
    ) -> Option<(f64, bool)> {
        let (files, memtables) = (gauges.l0_files?, gauges.immutable_memtables?);
        // A file of L0 was a memtable.
        let piled_up = (files + memtables) * WRITE_BUFFER_BYTES + gauges.active_memtable_bytes?;
        let carried_off = bytes.written.saturating_sub(piled_up);
        self.carried_off = self.carried_off.max(carried_off);

        let last = self.seen_at.replace(now);
        let dt_s = last.map_or(0.0, |last| now.since(last).as_secs_f64());
        let (files, gain) = (files as f64, 1.0 - (-dt_s / MEAN_S).exp());
        let mean = self.files.get_or_insert(files);
        *mean += gain * (files - *mean);
        let files = mean.max(files - CREST_FILES);
        let bound = if self.behind {
            BEHIND_UNTIL
        } else {
            BEHIND_FROM
        };
        self.behind = files >= bound;
        let trim = 1.0 + TRIM * (FILES_TARGET - files) / FILES_TARGET;
        Some((trim.clamp(TRIM_RANGE.0, TRIM_RANGE.1), self.behind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(store: &mut OfStore, ms: u64, files: u64, written_mib: u64) -> (f64, bool) {
        let mut bytes = BackgroundBytes::default();
        bytes.written = written_mib << 20;
        let mut gauges = StallGauges::default();
        gauges.l0_files = Some(files);
        gauges.immutable_memtables = Some(0);
        gauges.active_memtable_bytes = Some(0);
        let now = Instant::ZERO.after(Duration::from_millis(ms));
        store.look(now, &bytes, &gauges).unwrap()
    }

    #[test]
    fn what_lies_in_l0_is_not_carried_off_and_what_is_never_comes_back() {
        let mut store = OfStore::default();
        look(&mut store, 0, 4, 1);
        assert_eq!(store.carried_off, 0, "more lies there than was written");
        look(&mut store, 100, 4, 10);
        assert_eq!(store.carried_off, 8 << 20);
        look(&mut store, 200, 10, 11);
        assert_eq!(store.carried_off, 8 << 20);
    }

    #[test]
    fn it_is_behind_from_one_bound_until_another_and_less_is_let_in_the_more_there_is() {
        let mut store = OfStore::default();
        let (trim, behind) = look(&mut store, 0, 0, 0);
        assert_eq!((trim, behind), (1.5, false));
        let (_, behind) = look(&mut store, 100, 14, 0);
        assert!(behind, "a crest counts before the mean does");
        let (trim, behind) = look(&mut store, 60_000, 12, 0);
        assert!(behind && (trim - 1.0).abs() < 1e-3, "{trim}");
        let (trim, behind) = look(&mut store, 120_000, 9, 0);
        assert!(behind && trim > 1.2, "{trim}");
        assert!(!look(&mut store, 180_000, 6, 0).1);
        assert_eq!(look(&mut store, 240_000, 60, 0).0, 0.5);
    }

    #[test]
    fn what_rocksdb_does_not_say_is_not_guessed() {
        let (bytes, gauges) = (BackgroundBytes::default(), StallGauges::default());
        let mut store = OfStore::default();
        assert_eq!(store.look(Instant::ZERO, &bytes, &gauges), None);
    }
}
