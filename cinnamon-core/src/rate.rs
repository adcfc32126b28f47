//! A rate that is steady while the world is, and new at once when it changes.
//!
//! An exponential mean alone is either noisy or late: with a memory of one second it over-sheds for
//! about a second after a 12x spike. So each window is compared with what the mean predicts for
//! compound Poisson arrivals; a window that cannot be chance replaces the mean.

/// Standard deviations beyond which a window is suspicious; two running are a change.
const SUSPICIOUS_SIGMAS: f64 = 3.0;
/// Standard deviations beyond which one window is a change: one in three million by chance, and with
/// six a load that has fallen to a third needs a window more to be believed.
const CERTAIN_SIGMAS: f64 = 5.0;
/// The memory holds at least so many independent events: at ten a second, one second of them is known
/// to a third only …
const MEMORY_EVENTS: f64 = 60.0;
/// … but is never longer than this.
const MEMORY_MAX_S: f64 = 10.0;
/// Memory of how dear requests are, seconds: long enough for the rare ones.
const GRAIN_MEMORY_S: f64 = 10.0;
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
    /// Cost and squared cost of what is remembered for it.
    costs: (f64, f64),
    /// Seconds since the estimate began afresh; young estimates average all they have.
    age_s: f64,
    /// Events seen since then.
    events: f64,
    /// How long windows have been off on the same side, seconds; negative below.
    suspicious_s: f64,
    /// A fall must last so long.
    fall_s: f64,
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
            costs: (0.0, 0.0),
            age_s: 0.0,
            events: 0.0,
            suspicious_s: 0.0,
            fall_s: 0.0,
            scatter: 1.0,
            last: Window::EMPTY,
        }
    }

    /// The same, but a fall must last for `fall_s` seconds and two windows.
    pub(crate) const fn slow_to_fall(memory_s: f64, fall_s: f64) -> Self {
        let mut rate = Self::new(memory_s);
        rate.fall_s = fall_s;
        rate
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

    /// Cost per second that it is at least and at most, to two standard errors.
    pub(crate) fn bounds(&self) -> (f64, f64) {
        if self.age_s <= 0.0 || self.rate <= 0.0 {
            return (0.0, f64::INFINITY);
        }
        let known_s = self.age_s.min(self.memory_s());
        let error = 2.0 * (self.grain() / (self.rate * known_s)).sqrt();
        (self.rate * (1.0 - error), self.rate * (1.0 + error))
    }

    /// How long it has not changed, seconds.
    pub(crate) const fn age_s(&self) -> f64 {
        self.age_s
    }

    /// From how many events it is known.
    pub(crate) const fn events(&self) -> f64 {
        self.events
    }

    fn memory_s(&self) -> f64 {
        let by_events_s = MEMORY_EVENTS * self.grain() / self.rate.max(f64::MIN_POSITIVE);
        self.memory_s.max(by_events_s.min(MEMORY_MAX_S))
    }

    /// Says how much the events scatter, where that is known from elsewhere. What is not a number (work
    /// that took no time has no scatter) changes nothing.
    pub(crate) fn set_scatter(&mut self, scatter: f64) {
        if !scatter.is_nan() {
            self.scatter = scatter.clamp(1.0, SCATTER_MAX);
        }
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

    /// Lets the next window count for as much as all that is known so far, which then was learned from so
    /// many events.
    pub(crate) fn relearn(&mut self, events: f64) {
        self.age_s = self
            .age_s
            .min(events * self.grain() / self.rate.max(f64::MIN_POSITIVE));
    }

    /// Sets the estimate from other evidence than a window, worth so many events. (Worth none, the first
    /// window would replace it, and that may be one with a pause in it.)
    pub(crate) fn set(&mut self, rate: f64, events: f64) {
        self.rate = rate;
        self.suspicious_s = 0.0;
        self.age_s = self
            .age_s
            .max(events * self.grain() / rate.max(f64::MIN_POSITIVE));
    }

    /// Takes in a window; whether it replaced what was known.
    pub(crate) fn observe(&mut self, window: &Window) -> bool {
        if window.seconds <= 0.0 {
            return false;
        }
        // Remembered, and not of the last window alone: one without any of the dear requests would make the
        // next one with them a change.
        let keep = (-window.seconds / GRAIN_MEMORY_S).exp();
        self.costs = (
            keep * self.costs.0 + window.cost,
            keep * self.costs.1 + window.cost_squared,
        );
        if self.costs.0 > 0.0 {
            self.grain = self.costs.1 / self.costs.0;
        }
        if self.age_s == 0.0 {
            self.restart(window);
            return true;
        }
        let expected = self.rate.max(f64::MIN_POSITIVE);
        let sigma = (expected * self.grain() / window.seconds).sqrt();
        let off = window.rate() - self.rate;
        if off.abs() > SUSPICIOUS_SIGMAS * sigma {
            // Neither believed nor blended in unless it is certain or the one before said the same.
            let since_s = if off * self.suspicious_s > 0.0 {
                self.suspicious_s
            } else {
                0.0
            };
            let certain = off.abs() > CERTAIN_SIGMAS * sigma || since_s != 0.0;
            let fall_s = if since_s == 0.0 {
                0.0
            } else {
                window.seconds - since_s
            };
            let believed = if off > 0.0 || self.fall_s == 0.0 {
                certain
            } else {
                fall_s >= self.fall_s
            };
            if believed {
                self.restart(window);
            } else {
                self.suspicious_s = since_s + window.seconds.copysign(off);
            }
            return believed;
        }
        self.suspicious_s = 0.0;
        self.age_s += window.seconds;
        self.events += window.events;
        let smooth = 1.0 - (-window.seconds / self.memory_s()).exp();
        let gain = smooth.max(window.seconds / self.age_s);
        self.rate += gain * (window.rate() - self.rate);
        false
    }

    fn restart(&mut self, window: &Window) {
        self.rate = window.rate();
        self.age_s = window.seconds;
        self.events = window.events;
        self.suspicious_s = 0.0;
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

    #[test]
    fn batches_are_learned_to_scatter_and_a_step_is_not_scatter() {
        let tick = |events: f64| window(0.02, events, 1.0);
        let mut rate = Rate::new(0.5);
        rate.observe(&window(1.0, 700.0, 1.0));
        // Thirty at once in every other tick or so, as 700 a second come in batches of thirty.
        for n in 0..300 {
            let batch = [30.0, 0.0, 0.0, 30.0, 0.0, 30.0, 0.0][n % 7];
            rate.learn_scatter(&tick(batch));
        }
        assert!((15.0..60.0).contains(&rate.scatter()), "{}", rate.scatter());
        let mut stepped = Rate::new(0.5);
        stepped.observe(&window(1.0, 700.0, 1.0));
        stepped.set_scatter(f64::NAN);
        assert_eq!(stepped.scatter(), 1.0);
        (0..50).for_each(|_| stepped.learn_scatter(&tick(14.0)));
        stepped.learn_scatter(&tick(168.0));
        stepped.learn_scatter(&tick(168.0));
        assert!(stepped.scatter() < 1.5, "{}", stepped.scatter());
    }

    #[test]
    fn what_scatters_more_must_be_further_off_to_be_news() {
        let mut steady = Rate::new(0.5);
        let mut clustered = Rate::new(0.5);
        clustered.set_scatter(30.0);
        for rate in [&mut steady, &mut clustered] {
            rate.observe(&window(1.0, 1_000.0, 1.0));
        }
        let off = window(0.06, 120.0, 1.0);
        assert!(steady.observe(&off), "replaced");
        assert!(!clustered.observe(&off), "blended");
        let (least, most) = clustered.bounds();
        assert!(least < 800.0 && most > 1_200.0, "{least} {most}");
    }

    #[test]
    fn a_fall_that_must_last_is_believed_when_it_has() {
        let mut rate = Rate::slow_to_fall(1.0, 0.05);
        let known = || window(0.02, 20.0, 1.0);
        (0..50).for_each(|_| {
            rate.observe(&known());
        });
        // A window with a pause in it, then as before: not a fall, nor is another one later.
        let paused = window(0.08, 20.0, 1.0);
        assert!(!rate.observe(&paused));
        assert!(!rate.observe(&known()) && !rate.observe(&paused));
        assert!((rate.get() - 1_000.0).abs() < 1.0, "{}", rate.get());
        assert!(rate.observe(&paused), "two running, and longer than 50 ms");
        assert_eq!(rate.get(), 250.0);
        assert!(rate.observe(&window(0.02, 60.0, 1.0)), "a rise at once");
    }
}
