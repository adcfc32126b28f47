//! Overload protection that a storage engine can embed.
//!
//! Cinnamon sits in the request loop next to the state it protects and decides which request runs
//! now, which waits a moment, and which is refused at once: least important first, as few as needed,
//! with a reason and a time to come back. In calm weather it does nothing.
//!
//! # Use
//!
//! Build one [`Controller`] with a [`Lane`] per pool of slots, ask the lane before the work, and say
//! how the work ended:
//!
//! ```
//! use cinnamon_core::{Completion, Config, Controller, Request, Settings, Tier};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::new(Settings::one_lane("main", 16))?;
//! let controller = Controller::builder(config).build()?;
//! let lane = controller.lane("main")?;
//!
//! let user_id = 42;
//! match lane.admit_blocking(&Request::new(Tier::T2).key(user_id)) {
//!     Ok(permit) => {
//!         // … the work …
//!         permit.finish(Completion::success());
//!     }
//!     Err(rejected) => println!("{rejected}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Lane::try_admit`] never waits, [`Lane::admit`] waits on any async runtime,
//! [`Lane::admit_blocking`] on the calling thread, and [`Admit::poll_admit`] serves event loops.
//!
//! # How it decides
//!
//! A request's [`Rank`] is its tier (t0, the most important, to t5), its cohort (0 to 127, from a
//! hash of its key) and a fraction. The gate refuses every rank from its *threshold* on. While no
//! queue stands, the gate is open. Once one does, a control law sets a budget of admitted cost per
//! second from the measured capacity and the backlog, and the threshold is where the offered load,
//! counted from the most important rank, exhausts the budget. Between the steps of the law a bounded
//! queue serves the best tier first and lets the worst priority go.
//!
//! # Promises
//!
//! - Every offered request gets exactly one verdict; slots in use plus free equal the limit, whatever
//!   panics, is cancelled, dropped or times out.
//! - A failure of the controller fails open.
//! - No call blocks but those that say so, and each wait is bounded.

mod admission;
mod arrivals;
mod attach;
mod budget;
mod capacity;
mod clock;
mod codel;
pub mod config;
mod control;
mod controller;
mod distress;
mod driver;
mod effects;
mod engine;
mod event;
mod explain;
pub mod export;
mod flow;
mod gate;
mod health;
mod histogram;
mod lane;
mod limiter;
mod list;
mod metrics;
#[cfg(cinnamon_loom)]
#[doc(hidden)]
pub mod modelled;
mod observer;
mod overrides;
mod permit;
mod pid;
mod priority;
mod queue;
mod rate;
mod request;
mod retry;
mod sampler;
mod seat;
mod sentinel;
mod service;
mod shards;
mod signal;
#[cfg(feature = "test-util")]
pub mod simulation;
mod slots;
mod steering;
mod switch;
mod sync;
mod tenants;
mod throttle;
mod verdict;
mod waiter;
mod wheel;

#[cfg(feature = "test-util")]
pub use clock::ManualClock;
pub use clock::{Clock, Instant, MonotonicClock};
pub use codel::CodelState;
pub use config::{
    ClassSettings, Config, ConfigError, LaneSettings, Law, Order, Settings, ShareKind,
    ShareSettings, SignalSettings, TenantSettings, TierBudget,
};
pub use controller::{BuildError, Builder, Controller, DrainTimeout, UnknownLane, UnknownSignal};
pub use explain::{DECISIONS_KEPT, Decision, Expected, Explanation, LaneDecision, SignalDecision};
pub use health::{Health, HealthState, WEIGHT_MIN};
pub use histogram::{HISTOGRAM_BUCKETS, Histogram};
pub use lane::{Admit, AdmitOwned, Lane};
pub use limiter::{
    DEFAULT_FOUND_LIMIT_MAX, Limit, LimitChange, LimitRule, Limiter, SlotUse, Wanted,
};
pub use metrics::{
    LaneSnapshot, ShedWork, Snapshot, TenantSnapshot, ThrottleSnapshot, VerdictCounts,
};
pub use observer::{FinishEvent, Observer, OfferAnswer, OfferEvent, StartEvent};
pub use overrides::{
    Action, OVERRIDE_TTL_MAX, OVERRIDE_TTL_MIN, OVERRIDES_MAX, Override, OverrideSnapshot,
    OverrideSource, Target,
};
pub use permit::{Completion, Outcome, OwnedPermit, Permit};
pub use priority::{Cohort, KeyHash, Priority, Rank, TIERS, Tier};
pub use request::{Class, Request, Tenant};
pub use retry::{RETRY_AFTER_BASE, RETRY_BUDGET, RETRY_DOUBLINGS_MAX, Retry, RetryBudget};
pub use signal::{
    Authority, Culprit, DEFAULT_PERIOD, DEFAULT_PRESSURE_MAX, Dynamics, Finished, LaneView, Mode,
    Reading, Remedy, SIGNALS_MAX, Scope, Signal, SignalFault, SignalSnapshot, SignalState, Symptom,
    View, Who,
};
pub use switch::KillSwitch;
pub use tenants::TENANT_NAMES_MAX;
pub use verdict::{AdmitKind, Binding, Reason, Rejected, Verdict};

/// The README's example is compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
