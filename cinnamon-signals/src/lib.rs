//! Ready-made signals for the Cinnamon admission controller, and the parts to build your own.
//!
//! A *signal* measures one symptom of overload and reports it as a *pressure*: 1.0 is "at target", whatever the
//! unit underneath. The controller turns the pressure into a budget of admitted work; a signal never sheds by itself.
//!
//! What lives here:
//!
//! - **Signals**: requests in flight, write bytes, memory, follower lag, task count, hot keys, errors, latency
//!   against an objective, heartbeat, stalled time, operating-system pressure.
//! - **Combinators**: the largest of several (the reason is kept), a ramp from a gauge to a pressure by soft and hard
//!   limit, a rate from a monotone counter, hysteresis, confirmation of one signal by another.
//! - **Scripted readings**, for tests of your own wiring.
//!
//! Every signal documents what it measures, its unit, what one sample costs and when it lies.
//!
//! This crate depends on `cinnamon-core` and on nothing of ours besides. Sampling happens beside the control thread,
//! off the path of a request, so a slow or broken signal delays no verdict.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod ramp;

pub use ramp::{LogRamp, Ramp, RampError};
