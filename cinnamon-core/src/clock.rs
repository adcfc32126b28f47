//! Time: an instant in nanoseconds, the [`Clock`] that reads it, and two clocks.
//!
//! Everything below the lane takes `now` as an argument; only the handles read a clock, mostly once per
//! call. All arithmetic saturates: a clock that steps back yields zero elapsed time, never a panic
//! and never a wait of centuries.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::sync::Arc;
#[cfg(feature = "test-util")]
use crate::sync::{AtomicU64, Ordering};

/// A point in time: nanoseconds since the origin of the clock that read it.
///
/// Instants of different clocks do not compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// Later than any real reading; means "never" where a deadline is expected.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// The instant `nanos` ns after the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds since `earlier`, 0 when `earlier` is later.
    #[must_use]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Time since `earlier`, zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// This instant plus `duration`, at most [`Instant::FAR_FUTURE`].
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        self.after_nanos(nanos(duration))
    }

    /// This instant plus `nanos` ns, at most [`Instant::FAR_FUTURE`].
    #[must_use]
    pub const fn after_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

/// A duration in nanoseconds, at most `u64::MAX` (584 years).
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Where the controller reads the time.
///
/// Held as `Arc<dyn Clock>` and read once per call that has to be decided on, outside every lock but the lane's own. A clock that panics does not
/// lose a slot: the controller falls back to the last instant it saw.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present instant. It should not run backwards; when it does, elapsed times read as zero.
    fn now(&self) -> Instant;

    /// Unix time of this clock's origin, in nanoseconds; 0 for virtual clocks.
    ///
    /// The cohort epoch is counted in wall-clock time, so that every node of a fleet sheds the same
    /// keys at the same moment.
    fn origin_unix_nanos(&self) -> u64 {
        0
    }
}

/// Reads a clock that may be the embedder's own and may panic; `None` when it did.
pub(crate) fn read(clock: &dyn Clock) -> Option<Instant> {
    catch_unwind(AssertUnwindSafe(|| clock.now())).ok()
}

/// The machine's monotonic clock, read through the TSC where it is stable (`quanta`).
#[derive(Clone)]
pub struct MonotonicClock {
    clock: quanta::Clock,
    origin: quanta::Instant,
    origin_unix_nanos: u64,
}

impl MonotonicClock {
    /// A clock with its origin now.
    ///
    /// The first one in a process calibrates the TSC, which takes up to 200 ms.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads wall-clock time: the origin of the cohort epochs"
    )]
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        let origin = clock.now();
        let origin_unix_nanos = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, nanos);
        Self {
            clock,
            origin,
            origin_unix_nanos,
        }
    }

    /// This clock as the shared handle that the builder takes.
    #[must_use]
    pub fn shared(self) -> Arc<dyn Clock> {
        Arc::new(self)
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MonotonicClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MonotonicClock").finish_non_exhaustive()
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Instant {
        Instant(nanos(
            self.clock.now().saturating_duration_since(self.origin),
        ))
    }

    fn origin_unix_nanos(&self) -> u64 {
        self.origin_unix_nanos
    }
}

/// A clock that moves only when told to. Clones share one time.
#[cfg(feature = "test-util")]
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    now: Arc<AtomicU64>,
}

#[cfg(feature = "test-util")]
impl ManualClock {
    /// A clock that stands at its origin.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward by `step` and returns the new time.
    pub fn advance(&self, step: Duration) -> Instant {
        let before = self.now.fetch_add(nanos(step), Ordering::AcqRel);
        Instant(before.saturating_add(nanos(step)))
    }

    /// Sets the clock to `to`, forwards or backwards (real clocks have done both).
    pub fn set(&self, to: Instant) {
        self.now.store(to.as_nanos(), Ordering::Release);
    }

    /// This clock as the shared handle that the builder takes.
    #[must_use]
    pub fn shared(&self) -> Arc<dyn Clock> {
        Arc::new(self.clone())
    }
}

#[cfg(feature = "test-util")]
impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant(self.now.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_both_ways() {
        let early = Instant::from_nanos(5);
        let late = Instant::from_nanos(9);
        assert_eq!(late.nanos_since(early), 4);
        assert_eq!(early.nanos_since(late), 0);
        assert_eq!(late.after(Duration::MAX), Instant::FAR_FUTURE);
    }

    #[test]
    fn manual_clock_clones_share_time_and_may_step_back() {
        let clock = ManualClock::new();
        let twin = clock.clone();
        clock.advance(Duration::from_secs(2));
        assert_eq!(twin.now(), Instant::from_nanos(2_000_000_000));
        twin.set(Instant::from_nanos(1));
        assert_eq!(clock.now(), Instant::from_nanos(1));
    }

    #[test]
    #[cfg_attr(miri, ignore = "the time-stamp counter is read by inline assembly")]
    fn monotonic_clock_does_not_run_backwards() {
        let clock = MonotonicClock::new();
        let first = clock.now();
        assert!(clock.now() >= first);
        assert!(clock.origin_unix_nanos() > 0);
    }
}
