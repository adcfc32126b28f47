//! How many requests are slower than was promised: [`LatencySlo`].

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cinnamon_core::{
    Authority, Class, Dynamics, FinishEvent, Instant, Observer, Outcome, Reading, Signal, Symptom,
    View,
};

use crate::common::{Common, common_answers, common_setters};
use crate::least::Least;
use crate::setting::{SettingError, time_within, within};
use crate::share::ShareWindow;

/// Share of requests slower than their target at pressure 1.0. Netflix sheds low-priority reads from 40 % on.
pub const DEFAULT_SLO_TARGET_SHARE: f64 = 0.4;
/// Share of requests slower than their maximum at pressure 1.0: what callers gave up on, about as many as errors that
/// count as an overload.
pub const DEFAULT_SLO_MAX_SHARE: f64 = 0.05;
/// Completions that a share is taken over, at least; missing ones count as fast.
pub const SLO_COMPLETIONS: u32 = 20;
/// The least share within this counts. All that a pause of 400 ms makes slow is out of sight after a second and a half.
pub const SLO_WINDOW: Duration = Duration::from_secs(3);
/// A report of a backing store counts for so long.
pub const SLO_REPORT_VALID: Duration = Duration::from_secs(5);
/// Most classes of one signal.
pub const SLOS_MAX: usize = 64;

/// The time constant it declares: the window of a share, and as much again.
const TAU: Duration = Duration::from_secs(2);
/// Half of the window in which the least counts.
const DELAY: Duration = Duration::from_millis(1_500);
/// Bounds of the times.
const TIMES: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(3_600);

/// What a class of requests was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slo {
    class: Class,
    target: Duration,
    max: Duration,
}

impl Slo {
    /// Requests of `class` are to take no longer than `target`, and `max` at the very most.
    ///
    /// # Errors
    ///
    /// Unless 1 us <= `target` < `max` <= an hour.
    pub fn new(class: Class, target: Duration, max: Duration) -> Result<Self, SettingError> {
        let bound = "from 0.000001 to 3600 seconds";
        let target = time_within("slo.target", target, TIMES, bound)?;
        let longer = target.saturating_add(Duration::from_nanos(1))..=*TIMES.end();
        let bound = "over `target`, and at most 3600 seconds";
        let max = time_within("slo.max", max, longer, bound)?;
        Ok(Self { class, target, max })
    }
}

/// Utilisation as latency shows it: the shares of requests that are slower than was promised, of the node's own classes and
/// as reported by the stores behind it. Netflix steers by it, because it accepts as much as the backend serves in time,
/// whatever its limits of concurrency or cores are.
///
/// - **Measures**, for each class, the share of service times over its *target* and the share over its *max*, in the last
///   second or as far back as [`SLO_COMPLETIONS`] of them reach, up to five seconds; what chance explains is taken off. A
///   backing store [reports](SloHandle::report) the same two shares of its own. Pressure is the greatest of all, over
///   [`DEFAULT_SLO_TARGET_SHARE`] and [`DEFAULT_SLO_MAX_SHARE`]; the least of these within [`SLO_WINDOW`] counts.
/// - **A sample costs** 0.1 to 0.2 microseconds for each class; a request a search through the classes and one to three atomic
///   additions.
/// - **Lies** when a promise does not fit a class: one that is never kept sheds for ever (and is found unresponsive), so
///   bring it in as `monitor`. Requests that never finish are not seen. A store that is slow for others' sake is not helped by
///   less of this load.
/// - **Dynamics** are settling. **Authority** is [`Authority::Inferring`]; it is the service times, so they do not confirm
///   it ([`Symptom::ServiceTimes`]).
///
/// Without completions and reports its pressure is 0.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use cinnamon_core::{Class, Config, Controller, Settings};
/// use cinnamon_signals::{LatencySlo, Slo};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let reads = Slo::new(Class(0), Duration::from_millis(10), Duration::from_millis(500))?;
/// let (slo, handle) = LatencySlo::of(&[reads])?;
/// let config = Config::new(Settings::one_lane("main", 16))?;
/// let controller = Controller::builder(config)
///     .signal(slo)
///     .observer(Arc::new(handle.clone()))
///     .build()?;
/// // Where a backing store's answer says how it stands:
/// handle.report("blobs", 0.12, 0.0);
/// # drop(controller);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct LatencySlo {
    common: Common,
    target_share: f64,
    max_share: f64,
    shared: Arc<Shared>,
    /// Of each class, over the target and over the max.
    windows: Vec<[ShareWindow; 2]>,
    /// Of each store the last report that was seen, and when.
    seen: HashMap<String, (u64, Instant)>,
    least: Least,
}

/// Tells a [`LatencySlo`] of requests, as an [`Observer`] or by hand, and of backing stores. Clones tell the same one.
#[derive(Clone, Debug)]
pub struct SloHandle {
    shared: Arc<Shared>,
}

/// How many of a node's own requests are slower than was promised, for its answers: what a caller upstream gives to
/// [`SloHandle::report`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SloUtilisation {
    /// The share over the target, of the class in which it is greatest, 0..=1.
    pub over_target: f64,
    /// The share over the maximum, of the class in which it is greatest, 0..=1.
    pub over_max: f64,
}

#[derive(Debug)]
struct Shared {
    classes: Vec<Counts>,
    reports: Mutex<HashMap<String, Report>>,
    own: Mutex<Option<SloUtilisation>>,
}

/// What was promised to a class, and how it went.
#[derive(Debug)]
struct Counts {
    class: Class,
    target: Duration,
    max: Duration,
    total: AtomicU64,
    over: [AtomicU64; 2],
}

#[derive(Clone, Copy, Debug)]
struct Report {
    shares: [f64; 2],
    /// Counts reports.
    number: u64,
}

impl SloHandle {
    /// A request of this class took so long. Classes without a promise are passed over.
    pub fn finished(&self, class: Class, time: Duration) {
        let Some(counts) = self.shared.classes.iter().find(|one| one.class == class) else {
            return;
        };
        if time > counts.target {
            counts.over[0].fetch_add(1, Ordering::Relaxed);
        }
        if time > counts.max {
            counts.over[1].fetch_add(1, Ordering::Relaxed);
        }
        // Last, so that no sample sees more slow ones than there are.
        counts.total.fetch_add(1, Ordering::Release);
    }

    /// The backing store of this name says that these shares of its requests, 0..=1, were slower than its target and than
    /// its maximum. It counts for [`SLO_REPORT_VALID`]. Shares that cannot be are passed over.
    pub fn report(&self, store: &str, over_target: f64, over_max: f64) {
        let shares = [over_target, over_max];
        if !shares.iter().all(|share| (0.0..=1.0).contains(share)) {
            return;
        }
        let mut reports = self
            .shared
            .reports
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(report) = reports.get_mut(store) {
            report.shares = shares;
            report.number += 1;
        } else if reports.len() < SLOS_MAX {
            reports.insert(store.to_owned(), Report { shares, number: 0 });
        }
    }
}

impl SloHandle {
    /// The node's own utilisation at the last sample, backing stores left out, so that two nodes that report to each other
    /// do not hear their own echo. Nothing before the first sample, and while the signal is off the last one.
    #[must_use]
    pub fn utilisation(&self) -> Option<SloUtilisation> {
        *self
            .shared
            .own
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for SloHandle {
    fn on_finish(&self, finish: &FinishEvent) {
        // What failed at once was not served, fast or slow.
        if matches!(finish.outcome, Some(Outcome::Success | Outcome::Overloaded)) {
            self.finished(finish.class, finish.service_time);
        }
    }
}

impl LatencySlo {
    /// A signal called `latency-slo` for these promises, and the handle that tells it of requests. Without promises it
    /// knows of backing stores only.
    ///
    /// # Errors
    ///
    /// When there are more than [`SLOS_MAX`], or two of one class.
    pub fn of(slos: &[Slo]) -> Result<(Self, SloHandle), SettingError> {
        let (count, most) = (slos.len() as f64, SLOS_MAX as f64);
        within("latency_slo.slos", count, 0.0..=most, "at most 64 promises")?;
        for (i, slo) in slos.iter().enumerate() {
            let twice = slos[..i].iter().any(|other| other.class == slo.class);
            let class = f64::from(slo.class.0);
            let range = if twice { 1.0..=0.0 } else { class..=class };
            within(
                "latency_slo.class",
                class,
                range,
                "a class without another promise",
            )?;
        }
        let counts = |slo: &Slo| Counts {
            class: slo.class,
            target: slo.target,
            max: slo.max,
            total: AtomicU64::new(0),
            over: Default::default(),
        };
        let shared = Arc::new(Shared {
            classes: slos.iter().map(counts).collect(),
            reports: Mutex::default(),
            own: Mutex::default(),
        });
        let signal = Self {
            common: Common::new("latency-slo", Authority::Inferring),
            target_share: DEFAULT_SLO_TARGET_SHARE,
            max_share: DEFAULT_SLO_MAX_SHARE,
            windows: slos.iter().map(|_| Default::default()).collect(),
            shared: Arc::clone(&shared),
            seen: HashMap::new(),
            least: Least::new(SLO_WINDOW),
        };
        Ok((signal, SloHandle { shared }))
    }

    common_setters!();

    /// The share slower than the target, and the one slower than the maximum, at pressure 1.0. Default
    /// [`DEFAULT_SLO_TARGET_SHARE`] and [`DEFAULT_SLO_MAX_SHARE`]. Lower ones shed on usual tails.
    ///
    /// # Errors
    ///
    /// Unless both are from 0.001 to 1.
    pub fn target_shares(mut self, over_target: f64, over_max: f64) -> Result<Self, SettingError> {
        let (range, bound) = (0.001..=1.0, "from 0.001 to 1");
        self.target_share = within("slo.over_target", over_target, range.clone(), bound)?;
        self.max_share = within("slo.over_max", over_max, range, bound)?;
        Ok(self)
    }

    /// The pressure of these shares, and which of the two it is.
    fn pressure(&self, [target, max]: [f64; 2]) -> (f64, &'static str) {
        let (target, max) = (target / self.target_share, max / self.max_share);
        if max > target {
            (max, "max")
        } else {
            (target, "target")
        }
    }

    fn classes(&mut self, now: Instant) -> Option<(f64, String)> {
        let targets = [self.target_share, self.max_share];
        let mut greatest: Option<(f64, String)> = None;
        let mut own = SloUtilisation::default();
        for i in 0..self.windows.len() {
            let counts = &self.shared.classes[i];
            let total = counts.total.load(Ordering::Acquire);
            let shares = std::array::from_fn(|k| {
                let over = counts.over[k].load(Ordering::Relaxed).min(total);
                self.windows[i][k].share(now, total, over, SLO_COMPLETIONS, targets[k])
            });
            own.over_target = own.over_target.max(shares[0]);
            own.over_max = own.over_max.max(shares[1]);
            let (pressure, which) = self.pressure(shares);
            if greatest.as_ref().is_none_or(|(other, _)| pressure > *other) {
                greatest = Some((pressure, format!("class {}, {which}", counts.class.0)));
            }
        }
        let mut told = self
            .shared
            .own
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *told = Some(own);
        greatest
    }

    fn stores(&mut self, now: Instant) -> Option<(f64, String)> {
        let mut reports = self
            .shared
            .reports
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut greatest: Option<(f64, String)> = None;
        let seen = &mut self.seen;
        reports.retain(|store, report| {
            let (number, at) = seen.entry(store.clone()).or_insert((report.number, now));
            if *number != report.number || *at > now {
                (*number, *at) = (report.number, now);
            }
            let valid = now.since(*at) < SLO_REPORT_VALID;
            if !valid {
                seen.remove(store);
            }
            valid
        });
        for (store, report) in reports.iter() {
            let (pressure, which) = self.pressure(report.shares);
            if greatest.as_ref().is_none_or(|(other, _)| pressure > *other) {
                greatest = Some((pressure, format!("store {store}, {which}")));
            }
        }
        greatest
    }
}

impl Signal for LatencySlo {
    common_answers!();

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(TAU).delayed(DELAY)
    }

    fn range(&self) -> RangeInclusive<f64> {
        0.0..=1.0 / self.target_share.min(self.max_share)
    }

    fn symptom(&self) -> Symptom {
        Symptom::ServiceTimes
    }

    fn sample(&mut self, now: Instant, _view: &View) -> Reading {
        let found = [self.classes(now), self.stores(now)];
        let found = found.into_iter().flatten();
        let greatest = found.max_by(|(a, _), (b, _)| a.total_cmp(b));
        let (pressure, whose) = greatest.unwrap_or_default();
        match self.least.push(now, pressure) {
            Some(least) => Reading::pressure(least).note(whose),
            None => Reading::unavailable("not watched for a whole window yet"),
        }
    }
}

#[cfg(test)]
mod tests;
