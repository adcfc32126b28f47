//! Models of the lock-free parts of `cinnamon-core`, one file each under `tests/`, and what they share.
//!
//! An ordinary build compiles no model. To run them:
//!
//! ```text
//! tools/loom.sh              # all of them
//! tools/loom.sh --broken     # each with the code under it broken, which it must notice
//! ```
//!
//! They run the lane's own code, with loom in the place of `std::sync`: every order in which two or three threads can meet, and
//! every value that a load may see. A model has a constant clock, for loom cannot model time. One that cannot fail proves
//! nothing: `breaks/` has a patch for each, with which it must fail.

#[cfg(cinnamon_loom)]
mod fixture;
#[cfg(cinnamon_loom)]
pub use fixture::*;
