//! What comes out: judged figures, and pictures' worth of data.

use cinnamon_core::{CodelState, TIERS};
use serde::Serialize;

/// One figure against its bar. What `--json` prints, one a line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The scenario's name.
    pub scenario: String,
    /// `10rps`, `1000rps`, `32000rps` or `320000rps`.
    pub service: &'static str,
    /// The arm's name.
    pub arm: &'static str,
    /// The phase's name, `all` for the whole run.
    pub phase: String,
    /// The bar's name.
    pub bar: &'static str,
    /// The figure that is judged.
    pub value: f64,
    /// What it is held to; `null` when it is only reported.
    pub bound: Option<f64>,
    /// Whether it holds; `null` when it is only reported.
    pub pass: Option<bool>,
    /// Runs behind it.
    pub seeds: usize,
    /// Least figure of a run.
    pub min: f64,
    /// Median figure of a run.
    pub median: f64,
    /// Greatest figure of a run.
    pub max: f64,
}

/// One run of one arm, drawn over time.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The scenario's name.
    pub scenario: String,
    /// What it shows, a sentence.
    pub about: String,
    /// The service's label.
    pub service: &'static str,
    /// The arm's name.
    pub arm: &'static str,
    /// The phases: name, start and end in seconds.
    pub phases: Vec<(String, f64, f64)>,
    /// What happened in equal stretches of time, from 0 on.
    pub bins: Vec<Bin>,
    /// Seconds per bin.
    pub bin_s: f64,
    /// Work that the store can do per second at full speed over that offered at load 1: requests per
    /// second.
    pub capacity_per_s: f64,
    /// Per phase and tier: requests, and those answered in time.
    pub tiers: Vec<[(u64, u64); TIERS]>,
    /// Per phase and tier: those that the oracle answered in time.
    pub oracle: Vec<[u64; TIERS]>,
    /// Verdicts over the whole run: a word and how often, most frequent first.
    pub verdicts: Vec<(&'static str, u64)>,
    /// The plants that signals measure, by name.
    pub plants: Vec<String>,
}

/// A stretch of time.
#[derive(Clone, Debug, Default)]
pub struct Bin {
    /// Offers, by arrival.
    pub offered: [u64; TIERS],
    /// Of these, answered in time.
    pub good: [u64; TIERS],
    /// Of these, answered in time by the oracle.
    pub oracle: u64,
    /// The store's speed as a share of full.
    pub speed: f64,
    /// Median and 99th percentile of the time in the queue of those that began to run, seconds.
    pub wait_s: [f64; 2],
    /// The threshold in levels, 768 when open: least and greatest.
    pub threshold: [f64; 2],
    /// Slots: those that were settled on, at the end, and the least and the most in force, trials too.
    pub limit: [u32; 3],
    /// The backlog that the law saw and the one it wants, seconds of work.
    pub backlog_s: [f64; 2],
    /// CoDel's state at the end.
    pub codel: CodelState,
    /// Whether the newest went first at any time.
    pub newest_first: bool,
    /// What bound the threshold at the end.
    pub binding: &'static str,
    /// Mean pressure of the first plants.
    pub pressure: [f64; PLANTS],
}

/// So many plants are drawn.
pub const PLANTS: usize = 2;
