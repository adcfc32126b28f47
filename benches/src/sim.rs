//! Overload in virtual time: scenarios × arms × seeds, judged by an oracle.

pub mod arms;
pub mod outcome;
