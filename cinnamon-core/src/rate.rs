//! A rate that is steady while the world is, and new at once when it changes.
//!
//! An exponential mean alone is either noisy or late: with a memory of one second it over-sheds for
//! about a second after a 12x spike. So each window is compared with what the mean predicts for
//! compound Poisson arrivals; a window that cannot be chance replaces the mean.

/// Standard deviations beyond which a window is suspicious; two running are a change.
const SUSPICIOUS_SIGMAS: f64 = 3.0;
/// Standard deviations beyond which one window is a change.
const CERTAIN_SIGMAS: f64 = 6.0;
/// The memory holds at least so many independent events: at ten a second, one second of them is known
/// to a third only …
const MEMORY_EVENTS: f64 = 60.0;
/// … but is never longer than this.
const MEMORY_MAX_S: f64 = 10.0;
/// Weight of one tick in the estimate of the scatter: a memory of fifty ticks.
const SCATTER_GAIN: f64 = 0.02;
/// One tick counts for at most so many times the present estimate, so that a step in load is not taken
/// for scatter, while batches, which come again and again, are learned within a hundred ticks.
const SCATTER_OUTLIER: f64 = 20.0;
/// More clustered than this nothing is believed to be.
const SCATTER_MAX: f64 = 1_000.0;

/// Sums over a stretch of time: its length, cost and squared cost of the events in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    pub(crate) seconds: f64,
    pub(crate) events: f64,
    pub(crate) cost: f64,
    pub(crate) cost_squared: f64,
}

impl Window {
    pub(crate) const EMPTY: Self = Self {
        seconds: 0.0,
        events: 0.0,
        cost: 0.0,
        cost_squared: 0.0,
    };

    pub(crate) fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.events += other.events;
        self.cost += other.cost;
        self.cost_squared += other.cost_squared;
    }

    /// Counts one event of this cost.
    pub(crate) fn count(&mut self, cost: u32) {
        let cost = f64::from(cost);
        self.events += 1.0;
        self.cost += cost;
        self.cost_squared += cost * cost;
    }

    /// Cost per second, 0 for an empty stretch.
    pub(crate) fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            self.cost / self.seconds
        } else {
            0.0
        }
    }
}

/// Cost per second, smoothed, with change detection.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    memory_s: f64,
    rate: f64,
    /// Cost of the "typical" event for the scatter: mean of squares over mean.
    grain: f64,
    /// Seconds since the estimate began afresh; young estimates average all they have.
    age_s: f64,
    suspicious: bool,
    /// How many times as much as independent events the events scatter, at least 1: batches of thirty
    /// scatter thirty times as much.
    scatter: f64,
    /// The last tick, for the scatter.
    last: Window,
}

impl Rate {
    pub(crate) const fn new(memory_s: f64) -> Self {
        Self {
            memory_s,
            rate: 0.0,
            grain: 1.0,
            age_s: 0.0,
            suspicious: false,
            scatter: 1.0,
            last: Window::EMPTY,
        }
    }

    /// Cost per second; 0 until the first window.
    pub(crate) const fn get(&self) -> f64 {
        self.rate
    }

    /// Cost of the events that could be independent: what the scatter over a time is made of.
    pub(crate) fn grain(&self) -> f64 {
        self.grain * self.scatter
    }

    /// How many times as much as independent events they scatter.
    pub(crate) const fn scatter(&self) -> f64 {
        self.scatter
    }

    /// Cost per second that it is at least, to two standard errors.
    pub(crate) fn at_least(&self) -> f64 {
        if self.age_s <= 0.0 || self.rate <= 0.0 {
            return 0.0;
        }
        let known_s = self.age_s.min(self.memory_s());
        let error = (self.grain() / (self.rate * known_s)).sqrt();
        self.rate * (1.0 - 2.0 * error)
    }

    /// How long it has not changed, seconds.
    pub(crate) const fn age_s(&self) -> f64 {
        self.age_s
    }

    fn memory_s(&self) -> f64 {
        let by_events_s = MEMORY_EVENTS * self.grain() / self.rate.max(f64::MIN_POSITIVE);
        self.memory_s.max(by_events_s.min(MEMORY_MAX_S))
    }

    /// Says how much the events scatter, where that is known from elsewhere.
    pub(crate) fn set_scatter(&mut self, scatter: f64) {
        self.scatter = scatter.clamp(1.0, SCATTER_MAX);
    }

    /// Learns from two ticks running how much the events scatter. The difference between them, and not
    /// the distance from the mean: a slow drift is no scatter.
    pub(crate) fn learn_scatter(&mut self, tick: &Window) {
        let last = std::mem::replace(&mut self.last, *tick);
        let expected = self.rate * self.grain;
        if last.seconds <= 0.0 || tick.seconds <= 0.0 || expected <= 0.0 {
            return;
        }
        let variance = expected * (1.0 / last.seconds + 1.0 / tick.seconds);
        let sample = (tick.rate() - last.rate()).powi(2) / variance;
        let sample = sample.min(SCATTER_OUTLIER * self.scatter);
        self.set_scatter(self.scatter + SCATTER_GAIN * (sample - self.scatter));
    }

    /// Lets the next window replace the estimate.
    pub(crate) fn relearn(&mut self) {
        self.age_s = 0.0;
        self.suspicious = false;
    }

    /// Sets the estimate from other evidence than a window.
    pub(crate) fn set(&mut self, rate: f64) {
        self.rate = rate;
    }

    pub(crate) fn observe(&mut self, window: &Window) {
        if window.seconds <= 0.0 {
            return;
        }
        if window.cost > 0.0 {
            self.grain = window.cost_squared / window.cost;
        }
        if self.age_s == 0.0 {
            self.restart(window);
            return;
        }
        let expected = self.rate.max(f64::MIN_POSITIVE);
        let sigma = (expected * self.grain() / window.seconds).sqrt();
        let off = (window.rate() - self.rate).abs();
        let suspicious = off > SUSPICIOUS_SIGMAS * sigma;
        if off > CERTAIN_SIGMAS * sigma || (suspicious && self.suspicious) {
            self.restart(window);
            return;
        }
        self.suspicious = suspicious;
        if suspicious {
            // Neither believed nor blended in: the next window decides.
            return;
        }
        self.age_s += window.seconds;
        let smooth = 1.0 - (-window.seconds / self.memory_s()).exp();
        let gain = smooth.max(window.seconds / self.age_s);
        self.rate += gain * (window.rate() - self.rate);
    }

    fn restart(&mut self, window: &Window) {
        self.rate = window.rate();
        self.age_s = window.seconds;
        self.suspicious = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(seconds: f64, events: f64, cost: f64) -> Window {
        Window {
            seconds,
            events,
            cost: events * cost,
            cost_squared: events * cost * cost,
        }
    }

    #[test]
    fn a_step_is_believed_in_one_window_and_noise_is_not() {
        let mut rate = Rate::new(0.5);
        for events in [60.0, 52.0, 67.0, 58.0, 63.0] {
            rate.observe(&window(0.06, events, 1.0));
        }
        assert!((rate.get() - 1_000.0).abs() < 60.0, "{}", rate.get());
        rate.observe(&window(0.06, 720.0, 1.0));
        assert_eq!(rate.get(), 720.0 / 0.06);
        rate.observe(&window(0.06, 60.0, 1.0));
        assert_eq!(rate.get(), 1_000.0);
    }

    #[test]
    fn dear_requests_scatter_more_and_are_not_taken_for_a_change() {
        // One request of 450 units among 60 of one: 8 times the cost of a window without, by chance.
        let mut rate = Rate::new(0.5);
        let mut dear = window(0.06, 60.0, 1.0);
        dear.add(&Window {
            seconds: 0.0,
            events: 1.0,
            cost: 450.0,
            cost_squared: 450.0 * 450.0,
        });
        rate.observe(&dear);
        rate.observe(&dear);
        let before = rate.get();
        let mut two = dear;
        two.add(&Window {
            seconds: 0.0,
            events: 1.0,
            cost: 450.0,
            cost_squared: 450.0 * 450.0,
        });
        rate.observe(&two);
        assert!(
            rate.get() > before && rate.get() < two.rate(),
            "blended, not replaced"
        );
    }

    #[test]
    fn silence_is_a_change_and_an_empty_window_is_nothing() {
        let mut rate = Rate::new(0.5);
        rate.observe(&window(1.0, 100.0, 1.0));
        rate.observe(&window(0.0, 0.0, 1.0));
        assert_eq!(rate.get(), 100.0);
        rate.observe(&window(2.0, 0.0, 1.0));
        assert_eq!(rate.get(), 0.0);
    }
}
