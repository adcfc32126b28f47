//! Ready-made signals for the Cinnamon admission controller, and the parts to build your own.
//!
//! A *signal* measures one symptom of overload and reports it as a *pressure*: 1.0 is "at target", whatever the
//! unit underneath. The controller turns the pressure into a budget of admitted work; a signal never sheds by itself.
//!
//! | | what it is |
//! |---|---|
//! | [`Memory`] | memory of the process and of its cgroup, against soft and hard limits |
//! | [`Errors`] | the share of work that finishes as overloaded, against a target share |
//! | [`LatencySlo`] | the share of requests slower than was promised, here and in backing stores |
//! | [`Utilisation`] | what a store tells of itself to callers upstream; they give it to [`LatencySlo`] |
//! | [`QueueWait`] | how long work waits in pools that are not lanes |
//! | [`Inflight`] | work in flight in the whole process, over several controllers and pools |
//! | [`WriteBytes`] | bytes of writes per second, against what the store carries off |
//! | [`HotKeys`] | keys that get more than their share, and who they are |
//! | [`HotTenants`] | tenants that ask for more than their share, and who they are |
//! | [`Retries`] | the share of requests that came before; it informs |
//! | `Tasks`, with the feature `tokio` | tasks of a tokio runtime |
//! | [`FollowerLag`] | how far followers are behind |
//! | [`Heartbeat`] | starvation of the processor, confirmed by latency |
//! | [`StallTime`] | the share of time lost to stalls, confirmed by latency |
//! | [`Cpu`] | how busy the cores are, and a cascade of what is not let in then |
//! | [`Pressure`] | time that tasks lose for want of a core, a disk or memory, as the kernel counts it |
//! | [`StealTime`] | time that the host gave to others |
//! | [`AcceptQueue`] | connections that wait to be accepted |
//! | [`Push`] | a gauge that others feed |
//! | [`Ramp`], [`LogRamp`] | from a gauge to a pressure, by a soft and a hard limit |
//! | [`Smoothed`], [`Debounced`], [`Hysteresis`], [`ConfirmedBy`], [`MaxOf`], [`StaleAfter`] | signals made of signals |
//!
//! Every signal documents what it measures, its unit, what one sample costs and when it lies.
//!
//! This crate depends on `cinnamon-core` and on nothing of ours besides. Sampling happens beside the control thread,
//! off the path of a request, so a slow or broken signal delays no verdict.

#![warn(clippy::print_stdout, clippy::print_stderr)]

#[cfg(test)]
mod calm;
mod combine;
mod common;
mod errors;
mod follower_lag;
mod heartbeat;
mod hot;
mod hot_keys;
mod hot_tenants;
mod inflight;
mod latency;
mod latency_slo;
mod least;
mod memory;
mod push;
mod queue_wait;
mod ramp;
mod retries;
mod setting;
mod share;
mod stall_time;
mod system;
#[cfg(feature = "tokio")]
mod tasks;
mod utilisation;
mod window;
mod world;
mod write_bytes;

pub use combine::{
    ConfirmedBy, DEBOUNCE_MAX, DWELL_MAX, Debounced, Hysteresis, MaxOf, SMOOTHING_MAX,
    SMOOTHING_MIN, STALE_AFTER_MAX, STALE_AFTER_MIN, Smoothed, StaleAfter,
};
pub use errors::{
    DEFAULT_ERROR_COMPLETIONS, DEFAULT_ERROR_SHARE, ERROR_TAU, ERROR_WINDOW, ERROR_WINDOW_MAX,
    Errors,
};
pub use follower_lag::{
    DEFAULT_LAG_DELAY, DEFAULT_LAG_SILENT_AFTER, DEFAULT_LAG_TARGET, Follower, FollowerLag,
    Followers, LagReport, LagStatistic,
};
pub use heartbeat::{
    DEFAULT_HEARTBEAT_P99, DEFAULT_HEARTBEAT_WINDOWS, HEARTBEAT_SLEEP, HEARTBEAT_WINDOW, Heartbeat,
};
pub use hot_keys::{
    DEFAULT_HOT_KEY_SHARE, HOT_KEY_PEERS, HOT_KEY_SHARE_MIN, HOT_KEYS_MAX, HotKeys, HotKeysHandle,
};
pub use hot_tenants::{
    DEFAULT_HOT_TENANT_SHARE, HOT_TENANT_PEERS, HOT_TENANTS_MAX, HotTenants, HotTenantsHandle,
};
pub use inflight::{INFLIGHT_TAU, Inflight, InflightBudget, InflightPool, InflightWork};
pub use latency::{CONFIRM_FAST, CONFIRM_SLOW, DEFAULT_CONFIRM_FACTOR, LaneLatency, Latency};
pub use latency_slo::{
    DEFAULT_SLO_MAX_SHARE, DEFAULT_SLO_TARGET_SHARE, LatencySlo, SLO_COMPLETIONS, SLO_REPORT_VALID,
    SLO_WINDOW, SLOS_MAX, Slo, SloHandle, SloUtilisation,
};
pub use memory::{
    CgroupUsage, DEFAULT_CGROUP_HARD, DEFAULT_CGROUP_SOFT, DEFAULT_MEMORY_TAU, Memory,
    MemoryBuilder, MemoryError, MemoryUsage,
};
pub use push::{Push, PushHandle};
pub use queue_wait::{
    DEFAULT_QUEUE_WAIT_PERIOD, DEFAULT_QUEUE_WAIT_TARGET, QUEUE_WAIT_STANDS, QueueWait,
    QueueWaitHandle, QueuedWork,
};
pub use ramp::{LogRamp, Ramp, RampError};
pub use retries::{DEFAULT_RETRY_SHARE, RETRY_OFFERS, RETRY_WINDOW, Retries};
pub use setting::SettingError;
pub use stall_time::{
    DEFAULT_STALL_TIERS, STALL_TIERS_MAX, STALL_WINDOW, StallHandle, StallTier, StallTime,
};
pub use system::{
    ACCEPT_QUEUE_WINDOW, AcceptQueue, CPU_STANDS, CPU_WINDOW, Cpu, DEFAULT_ACCEPT_QUEUE_PERIOD,
    DEFAULT_ACCEPT_QUEUE_SHARE, DEFAULT_CPU_FROM, DEFAULT_CPU_PRESSURE, DEFAULT_CPU_TO,
    DEFAULT_IO_PRESSURE, DEFAULT_MEMORY_PRESSURE, DEFAULT_STEAL_SHARE, PRESSURE_WINDOW, Pressure,
    STEAL_WINDOW, StealTime,
};
#[cfg(feature = "tokio")]
pub use tasks::{TASKS_TAU, Tasks};
pub use utilisation::{LatencyShares, ServiceShares, SystemShares, Utilisation};
pub use write_bytes::{
    AdmittedWrite, SUSTAINED_MEMORY, Sustained, WRITE_BYTES_WINDOW, WriteBytes, WriteBytesHandle,
};
