//! What RocksDB and the controller say meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use cinnamon_rocks::Store;
use serde::Serialize;

/// RocksDB is asked this often.
pub(crate) const PERIOD: Duration = Duration::from_millis(10);
/// A point of the timeline is kept every so many of these.
const POINT_PERIODS: u64 = 10;

/// How things stood at one moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    at_s: f64,
    l0_files: u64,
    memtables: f64,
    pending_mib: u64,
    delayed_bytes_per_s: u64,
    stopped: bool,
    written: u64,
    pressure: f64,
    note: String,
    budget_per_s: f64,
    threshold_levels: f64,
    capacity_per_s: [f64; 2],
    offered_per_s: [f64; 2],
    bound_by: String,
}

/// What was seen of an arm.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Seen {
    /// Seconds in which RocksDB delayed writes without stopping them.
    pub(crate) delayed_s: f64,
    /// Seconds that counted.
    pub(crate) counted_s: f64,
    /// Seconds in which it took none.
    pub(crate) stopped_s: f64,
    /// When it first did not, since the start.
    pub(crate) first_stop_s: Option<f64>,
    pub(crate) first_delay_s: Option<f64>,
    /// Compaction debt when the run began to count, and at its end, MiB.
    pub(crate) debt_mib: Option<(u64, u64)>,
    pub(crate) l0_files_max: u64,
    l0_files_sum: u64,
    samples: u64,
    /// What held the gate of the writes, and for how many seconds.
    pub(crate) bound_s: BTreeMap<String, f64>,
    /// The part of the stall that had the greatest pressure, while any was at its target.
    pub(crate) parts_s: BTreeMap<&'static str, f64>,
    pub(crate) timeline: Vec<Point>,
}

impl Seen {
    pub(crate) fn l0_files_mean(&self) -> f64 {
        self.l0_files_sum as f64 / self.samples.max(1) as f64
    }

    /// Looks once, `at` the start plus so much and `dt` after the look before; `counts` says whether the time
    /// counts.
    pub(crate) fn look(
        &mut self,
        store: &Store,
        written: u64,
        at: Duration,
        dt: Duration,
        counts: bool,
    ) {
        let gauges = store.stall_gauges();
        let stopped = gauges.write_stopped.unwrap_or(0) > 0;
        let delayed = gauges.delayed_write_bytes_per_s.unwrap_or(0);
        let (at_s, dt_s) = (at.as_secs_f64(), dt.as_secs_f64());
        let files = gauges.l0_files.unwrap_or(0);
        if stopped {
            self.first_stop_s.get_or_insert(at_s);
        }
        if delayed > 0 {
            self.first_delay_s.get_or_insert(at_s);
        }
        let snapshot = store.snapshot();
        let level = store.stall_level();
        let signal = snapshot.signals.first();
        let bound_by = snapshot.lane("write").map_or("", |lane| &lane.bound_by);
        if counts {
            self.counted_s += dt_s;
            self.stopped_s += if stopped { dt_s } else { 0.0 };
            self.delayed_s += if delayed > 0 && !stopped { dt_s } else { 0.0 };
            let debt = gauges.pending_compaction_bytes.unwrap_or(0) >> 20;
            self.debt_mib = Some((self.debt_mib.map_or(debt, |(from, _)| from), debt));
            self.l0_files_max = self.l0_files_max.max(files);
            self.l0_files_sum += files;
            *self.bound_s.entry(bound_by.to_owned()).or_default() += dt_s;
            if let Some(level) = level.as_ref().filter(|level| level.pressure >= 1.0) {
                *self.parts_s.entry(level.part.as_str()).or_default() += dt_s;
            }
        }
        self.samples += u64::from(counts);
        if self.samples % POINT_PERIODS == 1 || !counts {
            let per_lane = |of: fn(&cinnamon_core::LaneSnapshot) -> f64| {
                ["read", "write"].map(|name| snapshot.lane(name).map_or(0.0, of))
            };
            self.timeline.push(Point {
                at_s,
                l0_files: files,
                memtables: gauges.immutable_memtables.unwrap_or(0) as f64,
                pending_mib: gauges.pending_compaction_bytes.unwrap_or(0) >> 20,
                delayed_bytes_per_s: delayed,
                stopped,
                written,
                pressure: signal.and_then(|signal| signal.pressure).unwrap_or(0.0),
                note: signal.map_or_else(String::new, |signal| signal.note.clone()),
                budget_per_s: signal.and_then(|signal| signal.budget_per_s).unwrap_or(0.0),
                threshold_levels: snapshot.lane("write").map_or(0.0, |l| l.threshold_levels),
                capacity_per_s: per_lane(|lane| lane.capacity_per_s),
                offered_per_s: per_lane(|lane| lane.offered_per_s),
                bound_by: bound_by.to_owned(),
            });
        }
    }
}
