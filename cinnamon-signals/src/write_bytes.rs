//! Bytes of writes let in, against what the store can carry off: [`WriteBytes`].

mod sustained;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cinnamon_core::{
    Authority, Dynamics, FinishEvent, Instant, Observer, OfferAnswer, OfferEvent, Outcome, Reading,
    Signal, StartEvent, View,
};

use crate::common::{Common, common_answers, common_setters};
use crate::setting::{SettingError, within};
use crate::window::Window;

pub use sustained::{SUSTAINED_MEMORY, Sustained};

/// The rate is taken over this: after a pause of 400 ms what has waited comes at once, and is a fifth of it.
pub const WRITE_BYTES_WINDOW: Duration = Duration::from_secs(2);

/// No single write is larger than this, a tebibyte, whatever is said of it.
const BYTES_MAX: u64 = 1 << 40;
/// Lanes that an observer counts apart: as many as a controller has.
const LANES: usize = 64;

/// Bytes per second of writes let in, against a budget that is fixed or follows what the store sustains.
///
/// - **Measures** the bytes of the last [`WRITE_BYTES_WINDOW`], per second: an estimate when a write is let in, corrected when
///   it is done and its size is known, and taken back when it fails. Errors of the estimates do not add up. Pressure is
///   that rate over the budget; where [`in_flight`](Self::in_flight) is set, the bytes of unfinished writes over that
///   count too, and the greater holds.
/// - **A sample costs** the walk over some twenty marks, and what the budget takes; a write two atomic additions at each end,
///   by hand or as an observer.
/// - **Lies** when callers do not tell of all writes, and as its budget does. What is corrected or taken back counts in
///   the window in which that happens, so for a moment the rate may read as too small. An observer believes what requests
///   say of their bytes, and that is the body that waits, not what the store makes of it.
/// - **Dynamics** are settling, with its window. **Authority** is [`Authority::Measuring`].
/// - **Target**: the budget. It has no default; it is the machine's. For an LSM store let it follow what flushes and
///   compactions carry off while they are behind: [`Sustained`].
///
/// A budget that is not known, or no positive number, makes it unavailable; an infinite one is no limit.
///
/// There are two ways to tell it of writes. As an [`Observer`] the handle takes
/// [`Request::bytes`](cinnamon_core::Request::bytes) of what begins to run in the lanes of its scope for the estimate,
/// and takes it back when the work ends as [`Outcome::Failure`] or its permit is dropped; work that was overloaded or
/// ignored may have been written. Where cost is counted in bytes, [`cost_unit`](Self::cost_unit) lets the cost at the end
/// correct it. By hand:
///
/// ```
/// use cinnamon_core::Scope;
/// use cinnamon_signals::WriteBytes;
///
/// # fn main() -> Result<(), cinnamon_signals::SettingError> {
/// let (bytes, handle) = WriteBytes::new(200e6)?;
/// let bytes = bytes.scope(Scope::Lane("write".to_owned()));
/// // Once a write is let in:
/// let write = handle.admit(4_096);
/// # let result: Result<u64, ()> = Ok(4_400);
/// match result {
///     Ok(written) => write.complete(written),
///     Err(()) => write.fail(),
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a signal does nothing until a controller has it"]
pub struct WriteBytes {
    common: Common,
    budget: Budget,
    in_flight_max: Option<f64>,
    counts: Arc<Counts>,
    window: Window<2>,
}

enum Budget {
    Fixed(f64),
    Asked(Box<dyn FnMut() -> Option<f64> + Send>),
}

/// Tells a [`WriteBytes`] of writes, as an [`Observer`] or by hand, not of the same one by both. Clones tell the same one.
#[derive(Clone, Debug)]
pub struct WriteBytesHandle {
    counts: Arc<Counts>,
}

/// A write that was let in. Dropped, it counts as failed.
#[derive(Debug)]
#[must_use = "dropping it takes its bytes back"]
pub struct AdmittedWrite {
    counts: Arc<Counts>,
    estimate: u64,
    written: u64,
}

/// What was told by hand, and what was seen of each lane: apart, for nobody tells an observer which lanes are in scope.
#[derive(Debug)]
struct Counts {
    told: Bytes,
    lanes: [Bytes; LANES],
    /// Bytes of a work unit; 0 when cost says nothing of bytes.
    cost_unit: AtomicU64,
}

/// The first two only rise, and wrap after centuries; their difference is what was let in.
#[derive(Debug, Default)]
struct Bytes {
    added: AtomicU64,
    taken_back: AtomicU64,
    in_flight: AtomicU64,
}

impl Bytes {
    fn begin(&self, estimate: u64) {
        self.added.fetch_add(estimate, Ordering::Relaxed);
        self.in_flight.fetch_add(estimate, Ordering::Relaxed);
    }

    /// What was taken for `estimate` is done, and was `written`.
    fn end(&self, estimate: u64, written: u64) {
        let more = written.saturating_sub(estimate);
        let less = estimate.saturating_sub(written);
        self.added.fetch_add(more, Ordering::Relaxed);
        self.taken_back.fetch_add(less, Ordering::Relaxed);
        self.in_flight.fetch_sub(estimate, Ordering::Relaxed);
    }
}

impl fmt::Debug for WriteBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBytes")
            .field("common", &self.common)
            .field("in_flight_max", &self.in_flight_max)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl WriteBytesHandle {
    /// A write of about so many bytes was let in.
    pub fn admit(&self, estimate: u64) -> AdmittedWrite {
        let estimate = estimate.min(BYTES_MAX);
        self.counts.told.begin(estimate);
        AdmittedWrite {
            counts: Arc::clone(&self.counts),
            estimate,
            written: 0,
        }
    }
}

impl Observer for WriteBytesHandle {
    fn on_offer(&self, offer: &OfferEvent<'_>) {
        if offer.answer == OfferAnswer::Runs
            && let Some(bytes) = self.counts.lanes.get(offer.lane)
        {
            bytes.begin(offer.request.get_bytes().into());
        }
    }

    fn on_start(&self, start: &StartEvent<'_>) {
        if let Some(bytes) = self.counts.lanes.get(start.lane) {
            bytes.begin(start.request.get_bytes().into());
        }
    }

    fn on_finish(&self, finish: &FinishEvent) {
        let Some(bytes) = self.counts.lanes.get(finish.lane) else {
            return;
        };
        let (estimate, unit) = (finish.bytes.into(), &self.counts.cost_unit);
        let of_cost = |cost: u32| match unit.load(Ordering::Relaxed) {
            0 => None,
            unit => Some(u64::from(cost).saturating_mul(unit).min(BYTES_MAX)),
        };
        let written = match finish.outcome {
            None | Some(Outcome::Failure) => 0,
            Some(_) => finish.cost.and_then(of_cost).unwrap_or(estimate),
        };
        bytes.end(estimate, written);
    }
}

impl AdmittedWrite {
    /// It is done, and was so many bytes.
    pub fn complete(mut self, bytes: u64) {
        self.written = bytes.min(BYTES_MAX);
    }

    /// It failed, and wrote nothing. Dropping it says the same.
    pub fn fail(self) {
        drop(self);
    }
}

impl Drop for AdmittedWrite {
    fn drop(&mut self) {
        self.counts.told.end(self.estimate, self.written);
    }
}

impl WriteBytes {
    /// A signal called `write-bytes` with a fixed budget, bytes per second, and the handle that tells it of writes.
    ///
    /// # Errors
    ///
    /// Unless the budget is a number from 1 on.
    pub fn new(bytes_per_s: f64) -> Result<(Self, WriteBytesHandle), SettingError> {
        let bound = "a number, at least 1";
        let budget = within(
            "write_bytes.bytes_per_s",
            bytes_per_s,
            1.0..=f64::MAX,
            bound,
        )?;
        Ok(Self::with(Budget::Fixed(budget)))
    }

    /// The same with a budget that is asked for before each sample: bytes per second, infinity for none, nothing when it is
    /// not known.
    pub fn following(
        bytes_per_s: impl FnMut() -> Option<f64> + Send + 'static,
    ) -> (Self, WriteBytesHandle) {
        Self::with(Budget::Asked(Box::new(bytes_per_s)))
    }

    fn with(budget: Budget) -> (Self, WriteBytesHandle) {
        let counts = Arc::new(Counts {
            told: Bytes::default(),
            lanes: std::array::from_fn(|_| Bytes::default()),
            cost_unit: AtomicU64::new(0),
        });
        let signal = Self {
            common: Common::new("write-bytes", Authority::Measuring),
            budget,
            in_flight_max: None,
            counts: Arc::clone(&counts),
            window: Window::new(WRITE_BYTES_WINDOW),
        };
        (signal, WriteBytesHandle { counts })
    }

    common_setters!();

    /// Bytes of unfinished writes at pressure 1.0: they are in memory. Default: they do not count.
    ///
    /// # Errors
    ///
    /// When it is 0.
    pub fn in_flight(mut self, bytes: u64) -> Result<Self, SettingError> {
        let bound = "at least 1";
        let most = within("write_bytes.in_flight", bytes as f64, 1.0..=f64::MAX, bound)?;
        self.in_flight_max = Some(most);
        Ok(self)
    }

    /// Bytes of one work unit, where what [`Permit::finish`](cinnamon_core::Permit::finish) is told of the cost is what was
    /// written: it corrects what was observed. Default: cost says nothing of bytes.
    ///
    /// # Errors
    ///
    /// When it is 0.
    pub fn cost_unit(self, bytes: u64) -> Result<Self, SettingError> {
        let bound = "at least 1";
        within("write_bytes.cost_unit", bytes as f64, 1.0..=f64::MAX, bound)?;
        self.counts.cost_unit.store(bytes, Ordering::Relaxed);
        Ok(self)
    }

    /// Added, taken back and in flight so far, of all that was told and of the lanes in scope.
    fn counts(&self, view: &View) -> [u64; 3] {
        let lanes = self.counts.lanes.iter().zip(&view.lanes);
        let lanes = lanes.filter(|(_, lane)| self.common.scope.covers(lane));
        let all = lanes.map(|(bytes, _)| bytes);
        let all = all.chain(std::iter::once(&self.counts.told));
        all.fold([0; 3], |sums: [u64; 3], bytes| {
            let counts = [&bytes.added, &bytes.taken_back, &bytes.in_flight];
            std::array::from_fn(|i| sums[i].wrapping_add(counts[i].load(Ordering::Relaxed)))
        })
    }
}

impl Signal for WriteBytes {
    common_answers!();

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(WRITE_BYTES_WINDOW)
    }

    fn sample(&mut self, now: Instant, view: &View) -> Reading {
        let [added, taken_back, in_flight] = self.counts(view);
        let gain = self.window.push(now, [added, taken_back]);
        let rate = gain.map(|gain| {
            let [added, taken_back] = gain.counts.map(|bytes| bytes as f64);
            (added - taken_back).max(0.0) / gain.seconds
        });
        let budget = match &mut self.budget {
            Budget::Fixed(budget) => Some(*budget),
            Budget::Asked(budget) => budget(),
        };
        let by_memory = self
            .in_flight_max
            .map_or(0.0, |most| in_flight as f64 / most);
        match (rate, budget.filter(|budget| *budget > 0.0)) {
            (Some(rate), Some(budget)) => {
                let (rate_mb, budget_mb) = (rate / 1e6, budget / 1e6);
                Reading::pressure((rate / budget).max(by_memory))
                    .note(format!("{rate_mb:.1} of {budget_mb:.1} MB/s"))
            }
            (_, None) => Reading::unavailable("the budget is not known"),
            (None, _) => Reading::unavailable("not watched for a whole window yet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(ms))
    }

    /// Ten samples a second, `work` before each: the last pressure.
    fn run(signal: &mut WriteBytes, from_ms: u64, seconds: u64, mut work: impl FnMut()) -> f64 {
        let mut last = f64::NAN;
        for tenths in 0..10 * seconds {
            work();
            let reading = signal.sample(at(from_ms + 100 * tenths), &View::default());
            last = reading.value().unwrap_or(f64::NAN);
        }
        last
    }

    #[test]
    fn estimates_are_corrected_and_failures_taken_back() {
        let near = |pressure: f64, expected: f64| {
            assert!((pressure - expected).abs() < 1e-9, "{pressure} {expected}");
        };
        let (mut signal, handle) = WriteBytes::new(10_000.0).unwrap();
        near(
            run(&mut signal, 0, 5, || handle.admit(500).complete(500)),
            0.5,
        );
        near(
            run(&mut signal, 5_000, 5, || handle.admit(500).complete(1_000)),
            1.0,
        );
        near(
            run(&mut signal, 10_000, 5, || handle.admit(9_000).complete(100)),
            0.1,
        );
        near(
            run(&mut signal, 15_000, 5, || handle.admit(9_000).fail()),
            0.0,
        );
        // Half of them fail, for an hour: nothing of them is left.
        let half = || {
            handle.admit(500).complete(500);
            drop(handle.admit(700));
        };
        near(run(&mut signal, 20_000, 3_600, half), 0.5);
        assert_eq!(handle.counts.told.in_flight.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn unfinished_writes_count_at_once_and_in_memory() {
        let (signal, handle) = WriteBytes::new(1e9).unwrap();
        let mut signal = signal.in_flight(10_000).unwrap();
        run(&mut signal, 0, 3, || {});
        let writes: Vec<_> = (0..20).map(|_| handle.admit(1_000)).collect();
        assert_eq!(run(&mut signal, 3_000, 1, || {}), 2.0);
        drop(writes);
        assert_eq!(run(&mut signal, 4_000, 1, || {}), 0.0);
    }

    #[test]
    fn the_budget_is_followed_and_an_unknown_one_sheds_nothing() {
        let budgets = [
            (Some(5_000.0), Some(1.0)),
            (Some(20_000.0), Some(0.25)),
            (Some(f64::INFINITY), Some(0.0)),
            (None, None),
            (Some(0.0), None),
            (Some(f64::NAN), None),
            (Some(-1.0), None),
        ];
        for (budget, expected) in budgets {
            let (mut signal, handle) = WriteBytes::following(move || budget);
            run(&mut signal, 0, 3, || handle.admit(500).complete(500));
            handle.admit(500).complete(500);
            let pressure = signal.sample(at(3_000), &View::default()).value();
            assert_eq!(pressure, expected, "{budget:?}");
        }
    }

    #[test]
    fn huge_writes_and_clocks_set_back_are_no_panic_and_no_overload() {
        let (mut signal, handle) = WriteBytes::new(1.0).unwrap();
        run(&mut signal, 0, 3, || handle.admit(u64::MAX).complete(0));
        let last = run(&mut signal, 3_000, 3, || handle.admit(0).complete(u64::MAX));
        assert!(
            last > *signal.range().end(),
            "taken for a fault of the gauge: {last}"
        );
        assert!(run(&mut signal, 0, 1, || {}).is_nan());
        assert!(WriteBytes::new(f64::NAN).is_err() && WriteBytes::new(0.0).is_err());
        let (signal, _handle) = WriteBytes::new(1.0).unwrap();
        assert!(signal.in_flight(0).is_err());
        assert!(WriteBytes::new(1.0).unwrap().0.cost_unit(0).is_err());
    }
}
