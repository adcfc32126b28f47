//! The overload laboratory: the measuring stick for the control law.
//!
//! [`sim`] runs the engine in virtual time against a perfect shedder and against the systems it
//! replaces. [`alerts`] sees that alerts fire when they should. [`top`] shows a running controller through
//! the metrics that its process exports, and [`endpoint`] exports them. [`speed`] is what the benches measure. The program
//! `lab` is the command line.

pub mod alerts;
pub mod each;
pub mod endpoint;
pub mod fair;
pub mod limits;
pub mod sim;
pub mod speed;
pub mod top;
