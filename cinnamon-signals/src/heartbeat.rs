//! A thread that should wake each ten milliseconds: [`Heartbeat`].

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use cinnamon_core::{Authority, Clock, Dynamics, Instant, MonotonicClock, Reading, Signal, View};

use crate::combine::HELD_BACK;
use crate::common::{Common, common_answers, common_setters};
use crate::latency::{Confirmation, Latency};
use crate::setting::{SettingError, time_within, within};

/// What a beat sleeps.
pub const HEARTBEAT_SLEEP: Duration = Duration::from_millis(10);
/// A window of beats.
pub const HEARTBEAT_WINDOW: Duration = Duration::from_secs(1);
/// A window violates when the 99th percentile of its beats took longer than this: five and a half times what was asked
/// for, as LinkedIn's Hodor found to tell starvation from the scatter of schedulers on all its machines.
pub const DEFAULT_HEARTBEAT_P99: Duration = Duration::from_millis(55);
/// So many windows in a row make a firing, Hodor's figure too: no pause under eight seconds does, and starvation is
/// found within nine.
pub const DEFAULT_HEARTBEAT_WINDOWS: u32 = 8;

/// How long to wait for the effect of a change: two windows, and what the scheduler needs to get through its queue.
const HOLD: Duration = Duration::from_secs(4);
/// When no window has ended for so long, the thread is gone or held: nothing is known.
const DEAD: Duration = Duration::from_secs(10);
/// A hundredth of the beats of a window may be late.
const PERCENTILE: f64 = 0.99;
/// Beats kept of a window; more there are only on a clock that stands still.
const BEATS_MAX: usize = 1_024;
/// Bounds of the settings.
const P99S: RangeInclusive<Duration> = Duration::from_millis(11)..=Duration::from_secs(1);

/// Starvation of the processor, as a thread feels it that has next to nothing to do: it sleeps 10 ms, and looks how long
/// that took.
///
/// - **Measures** the 99th percentile of the beats in each second, time asleep and time until it ran again; a window
///   *violates* when that is over [`DEFAULT_HEARTBEAT_P99`], and [`DEFAULT_HEARTBEAT_WINDOWS`] in a row are a
///   firing. It needs no counter of any operating system and feels whatever takes the processor away: other work, a
///   quota, a hypervisor, a debugger. Pressure is the violating windows in a row over those needed: 1.0 is a firing. A
///   single good window ends it.
/// - **A sample costs** three loads. The thread wakes a hundred times a second.
/// - **Lies** when its thread alone is held back (a lower priority, a cpuset of its own), and where timers are coarser
///   than 10 ms. Pauses of the whole process are felt, too: it is the requests that decide. So it fires only
///   while the latency confirms it ([`ConfirmedBy`](crate::ConfirmedBy) says how), and there is no way to build one
///   without.
/// - **Dynamics** are binary. **Authority** is [`Authority::Inferring`].
///
/// The thread starts with the first sample and ends with the signal. When it cannot be started, or no window has ended for
/// ten seconds, the signal is unavailable.
///
/// ```
/// use cinnamon_core::{Config, Controller, Settings};
/// use cinnamon_signals::{Heartbeat, LaneLatency};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::new(Settings::one_lane("main", 16))?;
/// let heartbeat = Heartbeat::new(LaneLatency::new());
/// let controller = Controller::builder(config).signal(heartbeat).build()?;
/// # drop(controller);
/// # Ok(())
/// # }
/// ```
#[must_use = "a signal does nothing until a controller has it"]
pub struct Heartbeat {
    common: Common,
    p99: Duration,
    windows: u32,
    latency: Box<dyn Latency>,
    confirmation: Confirmation,
    pulse: Arc<Pulse>,
    thread: Option<Thread>,
    /// Windows that had ended at the last sample that saw a new one, and when that was.
    seen: Option<(u64, Instant)>,
}

impl fmt::Debug for Heartbeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heartbeat")
            .field("common", &self.common)
            .field("p99", &self.p99)
            .field("windows", &self.windows)
            .field("confirmation", &self.confirmation)
            .field("pulse", &self.pulse)
            .finish_non_exhaustive()
    }
}

/// What the thread tells.
#[derive(Debug, Default)]
struct Pulse {
    windows: AtomicU64,
    in_a_row: AtomicU32,
    p99_ns: AtomicU64,
    stop: AtomicBool,
}

/// The beats of a window.
#[derive(Debug)]
struct Beats {
    limit: Duration,
    began: Option<Instant>,
    slept_ns: Vec<u64>,
    in_a_row: u32,
}

/// A window that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ended {
    p99: Duration,
    in_a_row: u32,
}

impl Heartbeat {
    /// A heartbeat called `heartbeat` that counts while `latency` confirms it.
    pub fn new(latency: impl Latency + 'static) -> Self {
        Self {
            common: Common::new("heartbeat", Authority::Inferring),
            p99: DEFAULT_HEARTBEAT_P99,
            windows: DEFAULT_HEARTBEAT_WINDOWS,
            latency: Box::new(latency),
            confirmation: Confirmation::new(),
            pulse: Arc::new(Pulse::default()),
            thread: None,
            seen: None,
        }
    }

    common_setters!();

    /// What the 99th percentile of a window's beats may take. Default [`DEFAULT_HEARTBEAT_P99`]. A shorter time violates on
    /// usual scatter, a longer one late.
    ///
    /// # Errors
    ///
    /// Unless it is from 11 ms to 1 s.
    pub fn p99(mut self, p99: Duration) -> Result<Self, SettingError> {
        self.p99 = time_within("heartbeat.p99", p99, P99S, "from 0.011 to 1 second")?;
        Ok(self)
    }

    /// Violating windows in a row that make a firing. Default [`DEFAULT_HEARTBEAT_WINDOWS`]. Fewer fire on a pause of so many
    /// seconds.
    ///
    /// # Errors
    ///
    /// Unless there are from 1 to 60.
    pub fn windows(mut self, windows: u32) -> Result<Self, SettingError> {
        let bound = "from 1 to 60";
        within("heartbeat.windows", f64::from(windows), 1.0..=60.0, bound)?;
        self.windows = windows;
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

    fn start(&mut self) -> std::io::Result<()> {
        if self.thread.is_none() {
            let (pulse, beats) = (Arc::clone(&self.pulse), Beats::new(self.p99));
            let thread = thread::Builder::new()
                .name("cinnamon-heartbeat".to_owned())
                .spawn(move || beat(&pulse, beats))?;
            self.thread = Some(thread.thread().clone());
        }
        Ok(())
    }

    /// What the pulse comes to, once the latency has been looked at.
    fn reading(&mut self, now: Instant, confirmed: bool) -> Reading {
        let ended = self.pulse.windows.load(Ordering::Acquire);
        let known = self
            .seen
            .filter(|(windows, at)| *windows == ended && *at <= now);
        let (_, at) = *self.seen.insert(known.unwrap_or((ended, now)));
        if now.since(at) >= DEAD {
            return Reading::unavailable("its thread does not beat");
        }
        if ended == 0 {
            return Reading::unavailable("no window has ended yet");
        }
        let in_a_row = self.pulse.in_a_row.load(Ordering::Relaxed);
        let pressure = f64::from(in_a_row) / f64::from(self.windows);
        let p99_ms = self.pulse.p99_ns.load(Ordering::Relaxed) as f64 / 1e6;
        if pressure >= 1.0 && !confirmed {
            let text = self.confirmation.text();
            return Reading::pressure(HELD_BACK)
                .note(format!("p99 {p99_ms:.1} ms, not confirmed: {text}"));
        }
        Reading::pressure(pressure.min(1.0)).note(format!("p99 {p99_ms:.1} ms"))
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.pulse.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }
}

/// The thread: it holds nothing of the controller, so it outlives the signal by a beat.
fn beat(pulse: &Pulse, mut beats: Beats) {
    let clock = MonotonicClock::new();
    let mut before = clock.now();
    while !pulse.stop.load(Ordering::Relaxed) {
        // Like a sleep, but for what ends it early.
        thread::park_timeout(HEARTBEAT_SLEEP);
        let now = clock.now();
        if let Some(ended) = beats.beat(now, now.since(before)) {
            pulse.tell(ended);
        }
        before = now;
    }
}

impl Pulse {
    fn tell(&self, ended: Ended) {
        let p99_ns = u64::try_from(ended.p99.as_nanos()).unwrap_or(u64::MAX);
        self.p99_ns.store(p99_ns, Ordering::Relaxed);
        self.in_a_row.store(ended.in_a_row, Ordering::Relaxed);
        self.windows.fetch_add(1, Ordering::Release);
    }
}

impl Beats {
    const fn new(limit: Duration) -> Self {
        Self {
            limit,
            began: None,
            slept_ns: Vec::new(),
            in_a_row: 0,
        }
    }

    /// A beat that ended at `at` after so long; the window, if it ended with it. However long one takes, it ends
    /// one window: a machine that slept an hour was late once.
    fn beat(&mut self, at: Instant, slept: Duration) -> Option<Ended> {
        let began = match self.began {
            Some(began) if began <= at => began,
            // The first, or the clock was set back.
            other => {
                if other.is_some() {
                    self.in_a_row = 0;
                }
                self.slept_ns.clear();
                *self.began.insert(at)
            }
        };
        if self.slept_ns.len() < BEATS_MAX {
            self.slept_ns
                .push(u64::try_from(slept.as_nanos()).unwrap_or(u64::MAX));
        }
        if at.since(began) < HEARTBEAT_WINDOW {
            return None;
        }
        self.slept_ns.sort_unstable();
        let rank = (PERCENTILE * self.slept_ns.len() as f64).ceil() as usize;
        let p99_ns = self
            .slept_ns
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or(0);
        let p99 = Duration::from_nanos(p99_ns);
        self.in_a_row = if p99 > self.limit {
            self.in_a_row.saturating_add(1)
        } else {
            0
        };
        self.slept_ns.clear();
        self.began = Some(at);
        Some(Ended {
            p99,
            in_a_row: self.in_a_row,
        })
    }
}

impl Signal for Heartbeat {
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
        if let Err(error) = self.start() {
            return Reading::unavailable(format!("its thread could not be started: {error}"));
        }
        self.reading(now, confirmed)
    }
}

#[cfg(test)]
mod tests;
