//! Runnable embeddings of Cinnamon, each a page long and one file beside this package's `Cargo.toml`.
//!
//! ```text
//! cargo run --release -p cinnamon-examples --example NAME
//! ```
//!
//! This library holds only what several examples share, so that each one reads from top to bottom by itself.
