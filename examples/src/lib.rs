//! Runnable embeddings of Cinnamon, each a page long and one file beside this package's `Cargo.toml`.
//!
//! ```text
//! cargo run --release -p cinnamon-examples --example NAME
//! ```
//!
//! This library holds only what several examples share, so that each one reads from top to bottom by itself.

/// The book's code is compiled and run with the documentation tests.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../docs/src/getting-started.md")]
    struct GettingStarted;
    #[doc = include_str!("../../docs/src/embedding.md")]
    struct Embedding;
    #[doc = include_str!("../../docs/src/limit.md")]
    struct Limit;
    #[doc = include_str!("../../docs/src/refusals.md")]
    struct Refusals;
    #[doc = include_str!("../../docs/src/signals.md")]
    struct Signals;
    #[doc = include_str!("../../docs/src/detectors.md")]
    struct Detectors;
    #[doc = include_str!("../../docs/src/health.md")]
    struct Health;
    #[doc = include_str!("../../docs/src/metrics.md")]
    struct Metrics;
}
