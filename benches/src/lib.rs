//! The overload laboratory: the measuring stick for the control law.
//!
//! [`sim`] runs the engine in virtual time against a perfect shedder and against the systems it
//! replaces. The program `lab` is its command line.

pub mod endpoint;
pub mod sim;
