//! What each fuzz target does with its bytes: parse, and if that is accepted, hold it to what it promises. The
//! tests that replay the corpora on the stable toolchain include these files, so that both judge alike.

pub mod config;
pub mod overrides;
pub mod scenario;
