//! The limiters of Netflix's concurrency-limits, as published (version 0.5, Apache-2.0; the rules, not the
//! code), for comparison: windows of a second and ten samples, the mean service time of a window.

use super::{Limiter, SlotUse, Wanted};

/// A window closes after this time …
const WINDOW_S: f64 = 1.0;
/// … if it holds so many samples.
const WINDOW_SAMPLES: u64 = 10;

/// What one window saw.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    seconds: f64,
    samples: u64,
    sum_s: f64,
    least_s: f64,
    in_use_peak: u32,
    overloaded: u64,
}

impl Window {
    /// Takes in a tick; the window, if that closes it.
    fn take(&mut self, seen: &SlotUse) -> Option<Self> {
        self.seconds += seen.seconds;
        self.samples += seen.timed;
        self.sum_s += seen.service_sum_s;
        if seen.timed > 0 {
            self.least_s = if self.least_s > 0.0 {
                self.least_s.min(seen.service_least_s)
            } else {
                seen.service_least_s
            };
        }
        self.in_use_peak = self.in_use_peak.max(seen.in_use_peak);
        self.overloaded += seen.overloaded;
        if self.seconds < WINDOW_S || self.samples < WINDOW_SAMPLES {
            return None;
        }
        Some(std::mem::take(self))
    }

    fn mean_s(&self) -> f64 {
        self.sum_s / self.samples as f64
    }
}

fn slots(limit: f64) -> u32 {
    limit.round().clamp(1.0, f64::from(u32::MAX)) as u32
}

/// `L' = L * clamp(1.5 * long / short, 0.5, 1) + 4`, smoothed by 0.2.
#[derive(Debug)]
pub(crate) struct Gradient2 {
    limit: f64,
    window: Window,
    long_s: f64,
    windows: f64,
}

impl Gradient2 {
    const LONG_WINDOWS: f64 = 600.0;
    const LONG_WARMUP: f64 = 10.0;
    const TOLERANCE: f64 = 1.5;
    const QUEUE: f64 = 4.0;
    const SMOOTHING: f64 = 0.2;

    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit: f64::from(limit),
            window: Window::default(),
            long_s: 0.0,
            windows: 0.0,
        }
    }
}

impl Limiter for Gradient2 {
    fn name(&self) -> &'static str {
        "gradient2"
    }

    fn tick(&mut self, seen: &SlotUse) -> Wanted {
        self.limit = self.limit.min(f64::from(seen.limit) + 1.0);
        if let Some(window) = self.window.take(seen) {
            let short_s = window.mean_s();
            self.windows += 1.0;
            let gain = if self.windows <= Self::LONG_WARMUP {
                1.0 / self.windows
            } else {
                2.0 / (Self::LONG_WINDOWS + 1.0)
            };
            self.long_s += gain * (short_s - self.long_s);
            if self.long_s > 2.0 * short_s {
                self.long_s *= 0.95;
            }
            if f64::from(window.in_use_peak) >= self.limit / 2.0 {
                let gradient = (Self::TOLERANCE * self.long_s / short_s).clamp(0.5, 1.0);
                let wanted = self.limit * gradient + Self::QUEUE;
                self.limit += Self::SMOOTHING * (wanted - self.limit);
            }
        }
        Wanted {
            limit: slots(self.limit),
            rule: "gradient",
            trial: false,
        }
    }

    fn moved(&mut self, limit: u32) {
        self.limit = f64::from(limit);
    }
}

/// `queue = L * (1 - least / mean)`, kept between 3 and 6 times `log10 L`.
#[derive(Debug)]
pub(crate) struct Vegas {
    limit: f64,
    window: Window,
    least_s: f64,
    windows: u32,
}

impl Vegas {
    /// The baseline is taken anew after so many times the limit of windows.
    const PROBE: f64 = 30.0;

    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit: f64::from(limit),
            window: Window::default(),
            least_s: 0.0,
            windows: 0,
        }
    }
}

impl Limiter for Vegas {
    fn name(&self) -> &'static str {
        "vegas"
    }

    fn tick(&mut self, seen: &SlotUse) -> Wanted {
        self.limit = self.limit.min(f64::from(seen.limit) + 1.0);
        if let Some(window) = self.window.take(seen) {
            self.windows += 1;
            let mean_s = window.mean_s();
            let anew = f64::from(self.windows) > Self::PROBE * self.limit;
            if self.least_s <= 0.0 || mean_s < self.least_s || anew {
                self.least_s = mean_s;
                self.windows = 0;
            } else {
                let log = self.limit.log10().max(1.0);
                let queue = (self.limit * (1.0 - self.least_s / mean_s)).ceil();
                if window.overloaded > 0 {
                    self.limit -= log;
                } else if f64::from(window.in_use_peak) * 2.0 >= self.limit {
                    self.limit += match queue {
                        queue if queue <= log => 6.0 * log,
                        queue if queue < 3.0 * log => log,
                        queue if queue > 6.0 * log => -log,
                        _ => 0.0,
                    };
                }
                self.limit = self.limit.max(1.0);
            }
        }
        Wanted {
            limit: slots(self.limit),
            rule: "queue estimate",
            trial: false,
        }
    }

    fn moved(&mut self, limit: u32) {
        self.limit = f64::from(limit);
    }
}

/// A tenth less after an overloaded outcome, or one of more than 5 s; one more while half are in use.
#[derive(Debug)]
pub(crate) struct Aimd {
    limit: f64,
    window: Window,
}

impl Aimd {
    const TIMEOUT_S: f64 = 5.0;

    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit: f64::from(limit),
            window: Window::default(),
        }
    }
}

impl Limiter for Aimd {
    fn name(&self) -> &'static str {
        "aimd"
    }

    fn tick(&mut self, seen: &SlotUse) -> Wanted {
        self.limit = self.limit.min(f64::from(seen.limit) + 1.0);
        if let Some(window) = self.window.take(seen) {
            if window.overloaded > 0 || window.mean_s() > Self::TIMEOUT_S {
                self.limit = (self.limit * 0.9).floor().max(1.0);
            } else if f64::from(window.in_use_peak) * 2.0 >= self.limit {
                self.limit += 1.0;
            }
        }
        Wanted {
            limit: slots(self.limit),
            rule: "additive",
            trial: false,
        }
    }

    fn moved(&mut self, limit: u32) {
        self.limit = f64::from(limit);
    }
}
