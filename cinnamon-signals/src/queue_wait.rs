//! Waiting in pools that are not ours: [`QueueWait`].

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cinnamon_core::{Authority, Dynamics, Instant, Reading, Signal, View};

use crate::combine::{HELD_BACK, Lasting};
use crate::common::{Common, common_answers, common_setters};
use crate::setting::{SettingError, time_within};

/// Wait at pressure 1.0: from a mean of 20 ms on WeChat's DAGOR calls its servers overloaded, whatever they do.
pub const DEFAULT_QUEUE_WAIT_TARGET: Duration = Duration::from_millis(20);
/// A wait counts once it has stood over the target for so long: what a pause of 400 ms holds up at 70 % of what a pool
/// can do is worked off in 1.4 s.
pub const QUEUE_WAIT_STANDS: Duration = Duration::from_secs(2);
/// Time between two samples: with 100 ms the mean wait of that pool was half over its target.
pub const DEFAULT_QUEUE_WAIT_PERIOD: Duration = Duration::from_millis(50);

/// The target it declares, at least: a queue of 20 ms is filled between two samples, and too long a time is the cheaper
/// error. (`tests/detectors.rs`, a pool that can do 3,000 of 4,000 requests a second: 2,967 let in and a mean wait of 20 ms,
/// against 2,476 as a binary detector, which cuts and probes, and against waits of 100 to 650 ms where the least of two
/// seconds was the reading.)
const TIME_MIN: Duration = Duration::from_millis(200);
/// Bounds of the target.
const TARGETS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(60);
/// Work that came within this of each other waits together.
const SLICE_NS: u64 = 10_000_000;
/// Slices kept, at most: ten seconds of them; after that what comes counts with the last one.
const SLICES_MAX: usize = 1_000;

/// How long work waits in a pool's queue that is not a lane: a thread pool below the lane, an executor, a disk queue.
///
/// LinkedIn's Hodor found that it must be the *wait*, never the length: how much a length harms differs from service to
/// service, a wait harms alike.
///
/// - **Measures** the mean wait of what began to run between two samples; while nothing begins, for how long the oldest has
///   been waiting. Pressure is that over the target, but held under 1.0 until it has stood over it for
///   [`QUEUE_WAIT_STANDS`], as in CoDel: what counts is a queue that stands, not one that comes and goes.
/// - **A sample costs** a lock; so do entering the queue and leaving it.
/// - **Lies** where what waits longest is served last (newest first, or by importance): it tells of those that ran. It sees
///   no queue that nobody tells of.
/// - **Dynamics** are integrating: it adds up what comes beyond what the pool can do. **Authority** is
///   [`Authority::Inferring`].
/// - **Target**: [`DEFAULT_QUEUE_WAIT_TARGET`].
///
/// ```
/// use cinnamon_core::{Config, Controller, Settings};
/// use cinnamon_signals::QueueWait;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (wait, pool) = QueueWait::new();
/// let config = Config::new(Settings::one_lane("main", 16))?;
/// let controller = Controller::builder(config).signal(wait).build()?;
/// let clock = controller.clock();
///
/// let waiting = pool.enter(clock.now()); // where work is put into the queue
/// waiting.begin(clock.now()); // where a thread takes it out
/// # drop(controller);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct QueueWait {
    common: Common,
    target: Duration,
    queue: Arc<Mutex<Queue>>,
    lasting: Lasting,
}

/// Tells a [`QueueWait`] of what waits. Clones tell the same one.
#[derive(Clone, Debug)]
pub struct QueueWaitHandle {
    queue: Arc<Mutex<Queue>>,
}

/// Work that waits. Dropped, it left without having run.
#[derive(Debug)]
#[must_use = "dropping it says that the work left without having run"]
pub struct QueuedWork {
    queue: Arc<Mutex<Queue>>,
    since: Instant,
    slice: u64,
}

#[derive(Debug, Default)]
struct Queue {
    /// How much of each slice of time still waits, the oldest first, its number before it.
    waiting: VecDeque<(u64, u64)>,
    /// Began to run since the last sample, and how long it all waited.
    begun: u64,
    waited_s: f64,
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    // Nothing here panics while it holds the lock.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    /// The number of the slice in which it counts.
    fn enter(&mut self, now: Instant) -> u64 {
        let slice = now.as_nanos() / SLICE_NS;
        let full = self.waiting.len() >= SLICES_MAX;
        match self.waiting.back_mut() {
            // A clock that was set back does not put it before others, either.
            Some((last, count)) if *last >= slice || full => {
                *count += 1;
                *last
            }
            _ => {
                self.waiting.push_back((slice, 1));
                slice
            }
        }
    }

    fn leave(&mut self, slice: u64) {
        if let Ok(index) = self
            .waiting
            .binary_search_by_key(&slice, |(slice, _)| *slice)
        {
            let count = &mut self.waiting[index].1;
            *count = count.saturating_sub(1);
        }
        while self.waiting.front().is_some_and(|(_, count)| *count == 0) {
            self.waiting.pop_front();
        }
    }

    /// The wait since this was last asked, seconds.
    fn take_wait_s(&mut self, now: Instant) -> f64 {
        let begun = std::mem::take(&mut self.begun);
        let waited_s = std::mem::take(&mut self.waited_s);
        if begun > 0 {
            return waited_s / begun as f64;
        }
        let oldest = self.waiting.front().map(|(slice, _)| slice * SLICE_NS);
        oldest.map_or(0.0, |ns| now.since(Instant::from_nanos(ns)).as_secs_f64())
    }
}

impl QueueWaitHandle {
    /// Work is put into the queue at `now`, by the controller's clock.
    pub fn enter(&self, now: Instant) -> QueuedWork {
        QueuedWork {
            queue: Arc::clone(&self.queue),
            since: now,
            slice: lock(&self.queue).enter(now),
        }
    }

    /// Work began to run after so long a wait, for pools that measure it themselves.
    pub fn waited(&self, wait: Duration) {
        let mut queue = lock(&self.queue);
        queue.begun += 1;
        queue.waited_s += wait.as_secs_f64();
    }
}

impl QueuedWork {
    /// It begins to run at `now`.
    pub fn begin(self, now: Instant) {
        let wait_s = now.since(self.since).as_secs_f64();
        let mut queue = lock(&self.queue);
        queue.begun += 1;
        queue.waited_s += wait_s;
    }
}

impl Drop for QueuedWork {
    fn drop(&mut self) {
        lock(&self.queue).leave(self.slice);
    }
}

impl QueueWait {
    /// A signal called `queue-wait`, and the handle that tells it what waits.
    pub fn new() -> (Self, QueueWaitHandle) {
        let queue = Arc::<Mutex<Queue>>::default();
        let common = Common::new("queue-wait", Authority::Inferring);
        let signal = Self {
            common: common.every(DEFAULT_QUEUE_WAIT_PERIOD),
            target: DEFAULT_QUEUE_WAIT_TARGET,
            queue: Arc::clone(&queue),
            lasting: Lasting::new(QUEUE_WAIT_STANDS),
        };
        (signal, QueueWaitHandle { queue })
    }

    common_setters!();

    /// The wait at pressure 1.0. Default [`DEFAULT_QUEUE_WAIT_TARGET`]. Shorter than what one piece of work takes it fires
    /// on two that come together; longer, callers feel it first.
    ///
    /// # Errors
    ///
    /// Unless it is from 1 ms to a minute.
    pub fn target(mut self, target: Duration) -> Result<Self, SettingError> {
        let bound = "from 0.001 to 60 seconds";
        self.target = time_within("queue_wait.target", target, TARGETS, bound)?;
        Ok(self)
    }
}

impl Signal for QueueWait {
    common_answers!();

    fn dynamics(&self) -> Dynamics {
        Dynamics::integrating(self.target.max(TIME_MIN))
    }

    fn sample(&mut self, now: Instant, _view: &View) -> Reading {
        let wait_s = lock(&self.queue).take_wait_s(now);
        let pressure = wait_s / self.target.as_secs_f64();
        if self.lasting.passes(now, pressure) {
            Reading::pressure(pressure)
        } else {
            Reading::pressure(HELD_BACK).note(format!("{pressure:.2}, but not for long enough"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(ms))
    }

    fn sample(signal: &mut QueueWait, ms: u64) -> Option<f64> {
        signal.sample(at(ms), &View::default()).value()
    }

    #[test]
    fn a_standing_wait_counts_and_a_passing_one_does_not() {
        let (mut signal, pool) = QueueWait::new();
        let mut wait = |tenths: u64, waits_ms: &[u64]| {
            for ms in waits_ms {
                pool.waited(Duration::from_millis(*ms));
            }
            sample(&mut signal, 100 * tenths).unwrap()
        };
        for tenths in 0..20 {
            assert_eq!(wait(tenths, &[30]), HELD_BACK);
        }
        let pressure = wait(20, &[50, 90]);
        assert!((pressure - 3.5).abs() < 1e-9, "{pressure}");
        assert!((wait(21, &[1]) - 0.05).abs() < 1e-9, "and follows at once");
        assert_eq!(wait(22, &[]), 0.0, "nothing waits");
        for tenths in 23..45 {
            assert!(wait(tenths, &[1]) < 1.0);
        }
        assert_eq!(wait(46, &[400]), HELD_BACK, "another run");
    }

    #[test]
    fn while_nothing_begins_the_oldest_counts() {
        let (mut signal, pool) = QueueWait::new();
        let stuck = pool.enter(at(0));
        for tenths in 0..=80 {
            let _ = sample(&mut signal, 100 * tenths);
        }
        let pressure = sample(&mut signal, 8_100).unwrap();
        assert!((pressure - 405.0).abs() < 1e-9, "eight seconds: {pressure}");
        // It runs at last, and others left.
        let others: Vec<_> = (0..100).map(|i| pool.enter(at(8_100 + i))).collect();
        stuck.begin(at(8_200));
        drop(others);
        assert!(lock(&signal.queue).waiting.is_empty());
        assert!(sample(&mut signal, 8_200).is_some());
        assert_eq!(sample(&mut signal, 8_300), Some(0.0));
    }

    #[test]
    fn memory_is_bounded_and_clocks_may_go_wrong() {
        let (mut signal, pool) = QueueWait::new();
        let works: Vec<_> = (0..20_000).map(|i| pool.enter(at(20 * i))).collect();
        assert!(lock(&signal.queue).waiting.len() <= SLICES_MAX);
        let early = pool.enter(Instant::ZERO);
        let late = pool.enter(Instant::FAR_FUTURE);
        early.begin(Instant::FAR_FUTURE);
        late.begin(Instant::ZERO);
        pool.waited(Duration::MAX);
        assert_eq!(sample(&mut signal, 0), Some(HELD_BACK));
        drop(works);
        assert!(lock(&signal.queue).waiting.is_empty(), "all have left");
        assert_eq!(sample(&mut signal, 1), Some(0.0));
    }

    #[test]
    fn targets_that_cannot_be_are_refused_by_name() {
        let error = QueueWait::new().0.target(Duration::ZERO).unwrap_err();
        let text = "`queue_wait.target` is 0 but must be from 0.001 to 60 seconds";
        assert_eq!(error.to_string(), text);
        let defaults = QueueWait::new().0.target(DEFAULT_QUEUE_WAIT_TARGET);
        assert_eq!(Signal::name(&defaults.unwrap()), "queue-wait");
    }
}
