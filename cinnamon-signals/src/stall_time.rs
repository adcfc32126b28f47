//! Time in which nothing could go on: [`StallTime`].

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cinnamon_core::{Authority, Dynamics, Instant, Reading, Signal, View};

use crate::combine::HELD_BACK;
use crate::common::{Common, common_answers, common_setters};
use crate::latency::{Confirmation, Latency};
use crate::setting::{SettingError, within};
use crate::system::Pressure;

/// Shares of a window that are lost, and how many windows in a row must lose so much: the worse, the sooner. A tenth
/// lost is felt but can be lived with for half a minute; half lost is an outage under way; nine tenths is one.
pub const DEFAULT_STALL_TIERS: [StallTier; 4] = [
    StallTier::new(0.1, 30),
    StallTier::new(0.25, 10),
    StallTier::new(0.5, 4),
    StallTier::new(0.9, 2),
];
/// A window of lost time.
pub const STALL_WINDOW: Duration = Duration::from_secs(1);
/// Most tiers.
pub const STALL_TIERS_MAX: usize = 8;

/// How long to wait for the effect of a change.
const HOLD: Duration = Duration::from_secs(4);
/// A window that ends so late is several: nobody knows which of them lost what.
const GAP: Duration = Duration::from_secs(4);

/// A degree of severity.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct StallTier {
    /// The share of a window that is lost, 0..=1.
    pub share: f64,
    /// Windows in a row that must lose so much.
    pub windows: u32,
}

impl StallTier {
    /// From this share of a window on, for so many windows in a row.
    #[must_use]
    pub const fn new(share: f64, windows: u32) -> Self {
        Self { share, windows }
    }
}

/// The share of time that is lost to stalls: write stalls of the engine below, reclaim of memory, a collector, a log that
/// blocks. What LinkedIn's Hodor does for garbage collection.
///
/// - **Measures** the time that was told to be lost, in windows of a second, as a share of it. Each *tier* is a share and a
///   number of windows in a row; the worse the share, the fewer are needed ([`DEFAULT_STALL_TIERS`]). Pressure is the
///   way to the nearest firing, and 1.0 is one. It ends with the first window in which no tier holds.
/// - **A sample costs** a load, or what the source takes.
/// - **Lies** as its source does. A stall that is told of at its end counts in that window alone, and for no more than
///   the whole of it: tell of long ones as they go on. Time that several threads lost at once counts several times, so
///   divide it by their number. Stalls harm nobody while queues absorb them; so it fires only while the latency confirms
///   it ([`ConfirmedBy`](crate::ConfirmedBy) says how), and there is no way to build one without.
/// - **Dynamics** are binary. **Authority** is [`Authority::Inferring`].
///
/// ```
/// use cinnamon_signals::{LaneLatency, StallTime};
/// use std::time::Duration;
///
/// let (stalls, handle) = StallTime::new(LaneLatency::new());
/// // Wherever writes were held up:
/// handle.lost(Duration::from_millis(35));
/// ```
#[must_use = "a signal does nothing until a controller has it"]
pub struct StallTime {
    common: Common,
    tiers: Vec<StallTier>,
    latency: Box<dyn Latency>,
    confirmation: Confirmation,
    source: Source,
    /// Since when the window goes, and what was lost until then.
    began: Option<(Instant, Duration)>,
    /// Windows in a row, by tier.
    in_a_row: Vec<u32>,
    share: f64,
}

/// Time lost since some beginning.
enum Source {
    Told(Arc<AtomicU64>),
    Asked(Box<dyn FnMut() -> Option<Duration> + Send>),
}

/// Tells a [`StallTime`] of time that was lost. Clones tell the same one.
#[derive(Clone, Debug)]
pub struct StallHandle {
    lost_ns: Arc<AtomicU64>,
}

impl StallHandle {
    /// So much time was lost just now.
    pub fn lost(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Wraps after five centuries of lost time; then a window is left out.
        self.lost_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

impl fmt::Debug for StallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StallTime")
            .field("common", &self.common)
            .field("tiers", &self.tiers)
            .field("in_a_row", &self.in_a_row)
            .field("confirmation", &self.confirmation)
            .finish_non_exhaustive()
    }
}

impl StallTime {
    /// Of what its handle is told, called `stall-time`, while `latency` confirms it.
    pub fn new(latency: impl Latency + 'static) -> (Self, StallHandle) {
        let lost_ns = Arc::new(AtomicU64::new(0));
        let handle = StallHandle {
            lost_ns: Arc::clone(&lost_ns),
        };
        (Self::with(Box::new(latency), Source::Told(lost_ns)), handle)
    }

    /// Of what `lost` says: all time lost since some beginning, or nothing when that is not known.
    pub fn asking(
        latency: impl Latency + 'static,
        lost: impl FnMut() -> Option<Duration> + Send + 'static,
    ) -> Self {
        Self::with(Box::new(latency), Source::Asked(Box::new(lost)))
    }

    /// Of what some task lost for want of memory, as the kernel counts it (page faults that had to wait, reclaim): the line
    /// `some` of [`Pressure::memory`]'s file. Unavailable where there is none.
    pub fn of_memory(latency: impl Latency + 'static) -> Self {
        let mut stalls = Pressure::memory();
        Self::asking(latency, move || stalls.some_lost())
    }

    fn with(latency: Box<dyn Latency>, source: Source) -> Self {
        Self {
            common: Common::new("stall-time", Authority::Inferring),
            tiers: DEFAULT_STALL_TIERS.to_vec(),
            latency,
            confirmation: Confirmation::new(),
            source,
            began: None,
            in_a_row: vec![0; DEFAULT_STALL_TIERS.len()],
            share: 0.0,
        }
    }

    common_setters!();

    /// The tiers of severity, the mildest first. Default [`DEFAULT_STALL_TIERS`].
    ///
    /// # Errors
    ///
    /// Unless there are from 1 to [`STALL_TIERS_MAX`], with shares from 0.01 to 1 that rise and windows from 1 to 600 that
    /// fall.
    pub fn tiers(mut self, tiers: &[StallTier]) -> Result<Self, SettingError> {
        let count = tiers.len() as f64;
        within(
            "stall_time.tiers",
            count,
            1.0..=STALL_TIERS_MAX as f64,
            "from 1 to 8 tiers",
        )?;
        let (mut least, mut most) = (0.01, 600);
        for tier in tiers {
            let bound = "a share from 0.01 to 1, and no less than the tier's before it";
            within("stall_time.tiers.share", tier.share, least..=1.0, bound)?;
            let bound = "from 1 to 600, and no more than the tier's before it";
            let windows = f64::from(tier.windows);
            within(
                "stall_time.tiers.windows",
                windows,
                1.0..=f64::from(most),
                bound,
            )?;
            (least, most) = (tier.share, tier.windows);
        }
        self.tiers = tiers.to_vec();
        self.in_a_row = vec![0; tiers.len()];
        Ok(self)
    }

    /// How many times the slow mean of the latency the fast one must be. Default
    /// [`DEFAULT_CONFIRM_FACTOR`](crate::DEFAULT_CONFIRM_FACTOR).
    ///
    /// # Errors
    ///
    /// Unless it is from 1.05 to 100.
    pub fn confirm_factor(mut self, factor: f64) -> Result<Self, SettingError> {
        self.confirmation.set_factor(factor)?;
        Ok(self)
    }

    /// Begins anew.
    fn forget(&mut self) {
        self.began = None;
        self.share = 0.0;
        self.in_a_row.fill(0);
    }

    /// So much was lost until now.
    fn look(&mut self, now: Instant, lost: Duration) {
        let Some((began, before)) = self.began else {
            self.began = Some((now, lost));
            return;
        };
        let time = now.since(began);
        if now < began || lost < before || time > GAP {
            self.forget();
            self.began = Some((now, lost));
        } else if time >= STALL_WINDOW {
            let share = (lost - before).as_secs_f64() / time.as_secs_f64();
            self.share = share.min(1.0);
            for (in_a_row, tier) in self.in_a_row.iter_mut().zip(&self.tiers) {
                let holds = self.share >= tier.share;
                *in_a_row = if holds { in_a_row.saturating_add(1) } else { 0 };
            }
            self.began = Some((now, lost));
        }
    }

    fn pressure(&self) -> f64 {
        let ways = self.in_a_row.iter().zip(&self.tiers);
        ways.map(|(in_a_row, tier)| f64::from(*in_a_row) / f64::from(tier.windows))
            .fold(0.0, f64::max)
            .min(1.0)
    }
}

impl Signal for StallTime {
    common_answers!();

    fn dynamics(&self) -> Dynamics {
        Dynamics::binary(HOLD)
    }

    fn range(&self) -> RangeInclusive<f64> {
        0.0..=1.0
    }

    fn sample(&mut self, now: Instant, view: &View) -> Reading {
        let latency_s = self.latency.latency_s(now, view);
        let confirmed = self.confirmation.look(now, latency_s);
        let lost = match &mut self.source {
            Source::Told(lost_ns) => Some(Duration::from_nanos(lost_ns.load(Ordering::Relaxed))),
            Source::Asked(lost) => lost(),
        };
        let Some(lost) = lost else {
            self.forget();
            return Reading::unavailable("its source does not tell");
        };
        self.look(now, lost);
        let (pressure, percent) = (self.pressure(), 100.0 * self.share);
        if pressure >= 1.0 && !confirmed {
            let text = self.confirmation.text();
            return Reading::pressure(HELD_BACK)
                .note(format!("{percent:.0} % lost, not confirmed: {text}"));
        }
        Reading::pressure(pressure).note(format!("{percent:.0} % lost"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    struct Bench {
        signal: StallTime,
        handle: StallHandle,
        latency_s: Arc<Mutex<f64>>,
        tenths: u64,
    }

    impl Bench {
        fn new() -> Self {
            let latency_s = Arc::new(Mutex::new(0.010));
            let source = Arc::clone(&latency_s);
            let (signal, handle) = StallTime::new(move || Some(*source.lock().unwrap()));
            let mut bench = Self {
                signal,
                handle,
                latency_s,
                tenths: 0,
            };
            assert_eq!(bench.run(60, 0.0), None);
            bench
        }

        /// So many seconds of which this share is lost; after how many of them it first fired.
        fn run(&mut self, seconds: u64, share: f64) -> Option<f64> {
            let mut fired = None;
            for tenth in 1..=10 * seconds {
                self.tenths += 1;
                self.handle.lost(Duration::from_secs_f64(0.1 * share));
                let now = Instant::ZERO.after(Duration::from_millis(100 * self.tenths));
                let pressure = self.signal.sample(now, &View::default()).value();
                if pressure.is_some_and(|pressure| pressure >= 1.0) {
                    fired.get_or_insert(tenth as f64 / 10.0);
                }
            }
            fired
        }
    }

    #[test]
    fn the_worse_the_sooner() {
        for (share, after_s) in [(0.12, 30.0), (0.3, 10.0), (0.6, 4.0), (1.0, 2.0)] {
            let mut bench = Bench::new();
            *bench.latency_s.lock().unwrap() = 1.0;
            let fired_s = bench.run(40, share).unwrap();
            assert!((fired_s - after_s).abs() <= 1.0, "{share}: {fired_s}");
            bench.run(2, 0.0);
            assert_eq!(bench.run(60, 0.05), None, "and it ends");
        }
    }

    #[test]
    fn it_fires_only_while_latency_confirms_it() {
        let mut bench = Bench::new();
        assert_eq!(bench.run(120, 1.0), None);
        *bench.latency_s.lock().unwrap() = 0.020;
        assert!(bench.run(5, 1.0).is_some());
    }

    #[test]
    fn one_long_stall_is_one_window_and_what_breaks_a_run_is_forgotten() {
        let mut bench = Bench::new();
        *bench.latency_s.lock().unwrap() = 1.0;
        bench.handle.lost(Duration::from_secs(3_600));
        assert_eq!(bench.run(30, 0.0), None);
        // A counter that fell, a gap, a clock set back.
        bench.run(1, 1.0);
        bench.handle.lost_ns.store(0, Ordering::Relaxed);
        assert_eq!(bench.run(1, 1.0), None);
        bench.tenths += 600;
        assert_eq!(bench.run(1, 1.0), None);
        bench.tenths = 0;
        assert_eq!(bench.run(1, 1.0), None);
        bench.handle.lost(Duration::MAX);
        assert_eq!(bench.run(5, 0.0), None);
    }

    #[test]
    fn a_source_that_does_not_tell_is_unavailable() {
        let mut signal = StallTime::asking(|| None::<f64>, || None);
        let said = signal.sample(Instant::ZERO, &View::default());
        assert_eq!(said, Reading::unavailable("its source does not tell"));
        let mut memory = StallTime::of_memory(|| None::<f64>);
        let said = memory.sample(Instant::ZERO, &View::default());
        assert!(said.value().is_none_or(|pressure| pressure == 0.0));
    }

    #[test]
    fn tiers_that_cannot_be_are_refused_by_name() {
        let refused = |tiers: &[(f64, u32)]| {
            let tiers: Vec<_> = tiers.iter().map(|&(s, w)| StallTier::new(s, w)).collect();
            let (signal, _handle) = StallTime::new(|| None::<f64>);
            signal.tiers(&tiers).err().map(|error| error.to_string())
        };
        assert!(refused(&[]).unwrap().contains("from 1 to 8 tiers"));
        assert!(refused(&[(0.5, 4); 9]).is_some());
        for tiers in [
            [(0.0, 5), (0.5, 4)],
            [(0.5, 5), (0.4, 4)],
            [(0.4, 5), (0.5, 6)],
            [(0.4, 0), (0.5, 0)],
            [(f64::NAN, 5), (0.5, 4)],
        ] {
            assert!(
                refused(&tiers).unwrap().contains("stall_time.tiers."),
                "{tiers:?}"
            );
        }
        let defaults = DEFAULT_STALL_TIERS.map(|tier| (tier.share, tier.windows));
        assert_eq!(refused(&defaults), None);
    }
}
