//! The overload laboratory: the measuring stick for the control law.
//!
//! [`sim`] runs the engine in virtual time against a perfect shedder and against the systems it
//! replaces. [`alerts`] sees that alerts fire when they should. The program `lab` is their command line.

pub mod alerts;
pub mod endpoint;
pub mod sim;
