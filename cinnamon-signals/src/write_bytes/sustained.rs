//! What a store carries off while it is behind: [`Sustained`].

use std::time::Duration;

use cinnamon_core::Instant;

use crate::window::Window;

/// How far back the mean of a store's rate looks: a few flushes and compactions.
pub const SUSTAINED_MEMORY: Duration = Duration::from_secs(15);

/// Rates are taken over this.
const WINDOW: Duration = Duration::from_secs(5);

/// What a store's background work sustains, learned from what it does, as the budget of [`WriteBytes`](crate::WriteBytes).
///
/// It is fed what flushes (or compactions out of the first level, if that is where work piles up) have carried off so far,
/// and whether they are *behind*. What is done while there is not enough to do says nothing of what could be done: a limit
/// learned from that falls to nothing in every quiet hour (cockroachdb/cockroach#115373). So it learns downward only while
/// they are behind, with a mean over [`SUSTAINED_MEMORY`], and is no limit at all while they are not; one interval of bad
/// luck moves it by a third at most, and one of calm releases no flood, for what was learned is kept for the next time.
///
/// ```
/// use cinnamon_core::{Clock, MonotonicClock};
/// use cinnamon_signals::{Sustained, WriteBytes};
///
/// let clock = MonotonicClock::new();
/// let mut sustained = Sustained::new();
/// # let store = || (0, 0);
/// let (bytes, handle) = WriteBytes::following(move || {
///     let (flushed_bytes, waiting_memtables) = store();
///     sustained.look(clock.now(), flushed_bytes, waiting_memtables >= 2)
/// });
/// ```
#[derive(Clone, Debug)]
pub struct Sustained {
    window: Window<1>,
    rate: Option<f64>,
    seen_at: Option<Instant>,
    /// Since when it has been behind without a break.
    behind_since: Option<Instant>,
}

impl Sustained {
    /// Nothing learned yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            window: Window::new(WINDOW),
            rate: None,
            seen_at: None,
            behind_since: None,
        }
    }

    /// So many bytes have been carried off so far, and the store is behind or not: the budget, bytes per second. Infinity
    /// while it keeps up, or nothing has been learned; nothing when what it carries off cannot be told.
    pub fn look(&mut self, now: Instant, carried_off: u64, behind: bool) -> Option<f64> {
        let dt_s = self.seen_at.map_or(0.0, |at| now.since(at).as_secs_f64());
        self.seen_at = Some(now);
        let gain = self.window.push(now, [carried_off]);
        if !behind {
            self.behind_since = None;
            return Some(f64::INFINITY);
        }
        let since = *self.behind_since.get_or_insert(now);
        let measured = gain.map(|gain| gain.counts[0] as f64 / gain.seconds);
        // A window that began before it was behind holds idle time.
        if let Some(measured) = measured
            && now.since(since) >= WINDOW
        {
            let gain = 1.0 - (-dt_s / SUSTAINED_MEMORY.as_secs_f64()).exp();
            let rate = self.rate.get_or_insert(measured);
            *rate += gain.min(1.0 / 3.0) * (measured - *rate);
        }
        match self.rate {
            // Behind, and nothing comes off: a stuck store, which is for a stall detector to say.
            Some(rate) if rate > 0.0 => Some(rate),
            Some(_) => None,
            None => Some(f64::INFINITY),
        }
    }
}

impl Default for Sustained {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        sustained: Sustained,
        ms: u64,
        bytes: u64,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                sustained: Sustained::new(),
                ms: 0,
                bytes: 0,
            }
        }

        fn run(&mut self, seconds: u64, bytes_per_s: u64, behind: bool) -> Option<f64> {
            let mut last = None;
            for _ in 0..10 * seconds {
                self.ms += 100;
                self.bytes += bytes_per_s / 10;
                let now = Instant::ZERO.after(Duration::from_millis(self.ms));
                last = self.sustained.look(now, self.bytes, behind);
            }
            last
        }
    }

    #[test]
    fn it_learns_while_behind_and_is_no_limit_otherwise() {
        let mut bench = Bench::new();
        assert_eq!(bench.run(60, 10, false), Some(f64::INFINITY));
        assert_eq!(
            bench.run(4, 1_000, true),
            Some(f64::INFINITY),
            "not known yet"
        );
        let learned = bench.run(30, 1_000, true).unwrap();
        assert!((learned - 1_000.0).abs() < 50.0, "{learned}");
        // A quiet hour teaches nothing.
        assert_eq!(bench.run(3_600, 10, false), Some(f64::INFINITY));
        let again = bench.run(1, 1_000, true).unwrap();
        assert!((again - learned).abs() < 50.0, "{again}");
    }

    #[test]
    fn it_follows_what_becomes_slower_over_its_memory() {
        let mut bench = Bench::new();
        bench.run(60, 1_000, true);
        let soon = bench.run(2, 200, true).unwrap();
        assert!(soon > 700.0, "no single interval cuts it: {soon}");
        let later = bench.run(60, 200, true).unwrap();
        assert!((200.0..250.0).contains(&later), "{later}");
    }

    #[test]
    fn counters_that_fall_and_clocks_set_back_teach_nothing() {
        let mut bench = Bench::new();
        let learned = bench.run(60, 1_000, true);
        bench.bytes = 0;
        assert_eq!(bench.run(1, 1_000, true), learned);
        bench.ms = 0;
        let back = bench.run(1, 1_000, true).unwrap();
        assert!((back - learned.unwrap()).abs() < 10.0, "{back}");
        let mut stuck = Bench::new();
        assert_eq!(stuck.run(60, 0, true), None);
    }
}
