//! What is the embedder's own, and fails as told: a clock, a signal, a waker.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;
use std::time::Duration;

use cinnamon_core::{Clock, Dynamics, Instant, Reading, Signal, View};

/// A clock that does what it is told to.
#[derive(Debug, Default)]
pub struct Hand {
    pub now: AtomicU64,
    pub panics: AtomicBool,
}

impl Clock for Hand {
    fn now(&self) -> Instant {
        if self.panics.load(Ordering::SeqCst) {
            // Past the hook: a thousand such messages say nothing.
            resume_unwind(Box::new("the clock fails"));
        }
        Instant::from_nanos(self.now.load(Ordering::SeqCst))
    }
}

/// What a signal says.
#[derive(Clone, Copy, Debug)]
pub enum Says {
    Pressure(f64),
    Nothing,
    /// What it said at this time, again and again.
    Old(f64, u64),
    Panics,
}

pub struct Gauge(pub Arc<Mutex<Says>>);

impl Signal for Gauge {
    fn name(&self) -> &str {
        "gauge"
    }

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(Duration::from_millis(200))
    }

    fn sample(&mut self, _: Instant, _: &View) -> Reading {
        let says = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match says {
            Says::Pressure(pressure) => Reading::pressure(pressure),
            Says::Nothing => Reading::unavailable("it is dead"),
            Says::Old(pressure, at) => {
                Reading::pressure(pressure).taken_at(Instant::from_nanos(at))
            }
            Says::Panics => resume_unwind(Box::new("the signal fails")),
        }
    }
}

/// Counts how often it was called, and may panic then.
#[derive(Debug, Default)]
pub struct Bell {
    pub rung: AtomicUsize,
    pub panics: bool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, Ordering::SeqCst);
        if self.panics {
            resume_unwind(Box::new("the waker fails"));
        }
    }
}
