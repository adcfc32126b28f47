//! Shared by the integration tests.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::expect_used,
    reason = "each test crate uses its part"
)]

pub mod plugins;
pub mod signals;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use cinnamon_core::{
    AdmitKind, Config, Controller, Lane, LaneSnapshot, ManualClock, Request, Settings, Tier,
    Verdict,
};

/// A waker that counts how often it was called.
#[derive(Debug, Default)]
pub struct CountingWaker(AtomicUsize);

impl CountingWaker {
    pub fn new() -> (Arc<Self>, Waker) {
        let counter = Arc::new(Self::default());
        (Arc::clone(&counter), Waker::from(counter))
    }

    pub fn wakes(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub const T1: Request = Request::new(Tier::T1);

/// One lane on a manual clock, nothing running by itself.
pub fn manual(limit: u32) -> (Controller, Lane, ManualClock) {
    manual_with(Settings::one_lane("main", limit))
}

pub fn manual_with(settings: Settings) -> (Controller, Lane, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1));
    let config = Config::new(settings).expect("settings are in bounds");
    let name = config.lanes[0].name.clone();
    let controller = Controller::builder(config)
        .build_manual(clock.shared())
        .expect("no signals");
    let lane = controller.lane(&name).expect("the lane was configured");
    (controller, lane, clock)
}

/// One lane with the control thread running.
pub fn live(limit: u32) -> (Controller, Lane) {
    let config = Config::new(Settings::one_lane("main", limit)).expect("settings are in bounds");
    let controller = Controller::builder(config)
        .build()
        .expect("a thread can be started");
    let lane = controller.lane("main").expect("the lane was configured");
    (controller, lane)
}

/// Every gauge of an idle lane is exactly zero and every offer has its verdict.
pub fn assert_at_rest(lane: &LaneSnapshot) {
    assert_eq!(
        (
            lane.in_use,
            lane.exempt_in_use,
            lane.open_in_use,
            lane.waiting
        ),
        (0, 0, 0, 0),
        "{lane:#?}"
    );
    assert_eq!((lane.waiting_cost, lane.waiting_bytes), (0, 0), "{lane:#?}");
    assert_eq!(lane.waiting_by_tier, [0; 6], "{lane:#?}");
    assert_eq!(lane.free, lane.limit, "{lane:#?}");
    assert_conserved(lane);
}

/// Every offer so far has one verdict or still waits; slots in use and free are the limit.
pub fn assert_conserved(lane: &LaneSnapshot) {
    assert_eq!(
        lane.verdicts.sum() + u64::from(lane.waiting),
        lane.offered,
        "{lane:#?}"
    );
    assert_eq!(
        lane.in_use.max(lane.limit),
        lane.in_use + lane.free,
        "{lane:#?}"
    );
}

pub fn admitted_to_slots(lane: &LaneSnapshot) -> u64 {
    lane.verdicts.total(Verdict::Admit(AdmitKind::Slot))
}
