//! A lane in a model.
#![allow(
    clippy::expect_used,
    reason = "a model that cannot be set up is to end"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use loom::thread::{Builder, JoinHandle};

use cinnamon_core::{Config, Controller, Lane, ManualClock, Request, Settings, Tier, Verdict};

/// What is offered.
pub const T1: Request = Request::new(Tier::T1);

/// Runs `model` in every order in which its threads can meet with so few preemptions.
pub fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 100_000;
    let model = Arc::new(model);
    // The first thread of a model has a stack of 32 kB, which a controller does not fit in.
    builder.check(move || {
        let model = Arc::clone(&model);
        spawn(move || model()).join().expect("it panicked");
    });
}

/// Starts a thread of a model.
///
/// # Panics
///
/// When loom has no more threads.
pub fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    // In words of eight bytes, whatever its documentation says.
    let builder = Builder::new().stack_size(1 << 16);
    builder.spawn(run).expect("loom has more threads")
}

/// A lane of so many slots whose requests may run without the engine, on a clock that stands still.
#[must_use]
pub fn lane(limit: u32) -> (Controller, Lane, ManualClock) {
    let clock = ManualClock::new();
    let config = Config::new(Settings::one_lane("main", limit)).expect("in bounds");
    let controller = Controller::builder(config)
        .build_manual(clock.shared())
        .expect("it has no signals");
    let lane = controller.lane("main").expect("it was configured");
    lane.let_run_free();
    (controller, lane, clock)
}

/// Every slot is back, nobody waits, and each request has one verdict.
pub fn assert_at_rest(lane: &Lane, offered: u64) {
    let snapshot = lane.snapshot();
    let running = (snapshot.in_use, snapshot.open_in_use, snapshot.waiting);
    assert_eq!(running, (0, 0, 0), "{snapshot:?}");
    assert_eq!(snapshot.in_use_by_tier, [0; 6]);
    assert_eq!(snapshot.free, snapshot.limit);
    assert_eq!(snapshot.offered, offered);
    let verdicts = &snapshot.verdicts;
    let cancelled = verdicts.total(Verdict::Cancel);
    assert_eq!(
        verdicts.admitted() + verdicts.refused() + cancelled,
        offered
    );
}

/// A waker that remembers that it was called. It is no part of the model: whoever looks at it does so when all is done.
#[derive(Debug, Default)]
pub struct Bell(AtomicUsize);

impl Bell {
    /// A bell, and the waker that rings it.
    #[must_use]
    pub fn new() -> (Arc<Self>, Waker) {
        let bell = Arc::new(Self::default());
        (Arc::clone(&bell), Waker::from(bell))
    }

    /// Whether it was rung.
    #[must_use]
    pub fn rang(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
