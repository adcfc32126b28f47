//! What an admission costs: subjects, rounds in which they take turns, and the table that comes of it.
//!
//! The subjects here are Cinnamon's; those it is measured beside are in `benches/benches/peers.rs`, for they are
//! dependencies of the benches only. The bench `speed` runs all of them and prints the table; the other benches
//! dig into one question each, with criterion.

pub mod fixture;
pub mod ours;
pub mod pool;
pub mod report;
pub mod rounds;
