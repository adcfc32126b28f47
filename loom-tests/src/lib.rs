//! Models of the lock-free parts of `cinnamon-core`, one file each under `tests/`; this library is empty.
//!
//! An ordinary build compiles no model. To run them:
//!
//! ```text
//! RUSTFLAGS="--cfg cinnamon_loom" LOOM_MAX_PREEMPTIONS=2 cargo test --profile loom -p loom-tests
//! ```
//!
//! A model has at most three threads and a constant clock, for loom cannot model time. A model that cannot fail proves
//! nothing: break the code under it once and see it fail before trusting it.
