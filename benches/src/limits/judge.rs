//! One case under one limiter: what the limit did, and what that cost.

use std::fmt::Write;

use cinnamon_core::simulation::{End, Fate, Scenario, View, VirtualController, Witness};
use cinnamon_core::{ConfigError, Instant, LaneSettings, Settings};

use super::Row;
use super::case::{Bar, Case};
use super::rules::Rule;
use crate::sim::{self, oracle::Oracle};

/// How far from the store's room the limit may be.
const NEAR: f64 = 0.2;
/// … for this share of the time.
const NEAR_SHARE: f64 = 0.85;

/// What a limiter did in a run.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Of each phase, what its bar is about: the mean of the settled limit over the room and the share of the time
    /// that it was near, after the deadline; or the limit at the end over that at the beginning and 1; or the most
    /// it came to and 1.
    pub phases: Vec<(f64, f64)>,
    /// Kleinrock's power lost while the store was full or should have been: 1 less the mean of throughput over its best and of
    /// unloaded over present service time, whichever the limit spoils. 0 at the room.
    pub regret: f64,
    /// Answers in time over what the store could have given, or over what the perfect shedder would have.
    pub goodput: f64,
}

#[derive(Debug, Default)]
struct Record {
    /// When, the limit in force, the settled limit.
    limits: Vec<(f64, u32, u32)>,
    good: Vec<u64>,
    /// All of it, where the oracle is asked.
    whole: Option<sim::record::Record>,
}

impl Witness for Record {
    fn ended(&mut self, fate: &Fate) {
        if let Some(whole) = &mut self.whole {
            whole.ended(fate);
        }
        let phase = usize::from(fate.phase);
        if self.good.len() <= phase {
            self.good.resize(phase + 1, 0);
        }
        self.good[phase] += u64::from(fate.end == End::Good);
    }

    fn woken(&mut self, now: Instant, view: &View) {
        let now_s = now.as_nanos() as f64 * 1e-9;
        let same = |last: &(f64, u32, u32)| (last.1, last.2) == (view.limit, view.limit_settled);
        if !self.limits.last().is_some_and(same) {
            self.limits.push((now_s, view.limit, view.limit_settled));
        }
    }
}

impl Record {
    /// `f` of the limits in force from `from_s` to `to_s`, averaged over the time.
    fn mean(&self, from_s: f64, to_s: f64, f: impl Fn(u32, u32) -> f64) -> f64 {
        let mut sum = 0.0;
        for (i, &(at_s, limit, settled)) in self.limits.iter().enumerate() {
            let until_s = self.limits.get(i + 1).map_or(to_s, |next| next.0);
            let length_s = until_s.min(to_s) - at_s.max(from_s);
            if length_s > 0.0 {
                sum += length_s * f(limit, settled);
            }
        }
        sum / (to_s - from_s)
    }

    fn settled_at(&self, at_s: f64) -> u32 {
        let after = self.limits.partition_point(|limit| limit.0 <= at_s);
        self.limits[after.saturating_sub(1)].2
    }
}

/// The policy of a case: the product with this rule on its lane.
///
/// # Errors
///
/// When a setting is out of bounds.
pub fn policy(
    scenario: &Scenario,
    rule: &Rule,
    start: u32,
) -> Result<VirtualController, ConfigError> {
    let lane = LaneSettings::new("read", 1).limit((rule.limit)(start));
    let mut settings = Settings::default().lane(lane);
    settings
        .classes
        .resize_with(scenario.service.work.len().max(1), Default::default);
    VirtualController::new(settings)
}

/// Runs a case with one seed.
///
/// # Errors
///
/// When a figure of it is out of bounds.
pub fn run(case: &Case, rule: &Rule, seed: u64, trace: bool) -> Result<Figures, ConfigError> {
    let scenario = Scenario {
        seed,
        ..case.scenario.clone()
    };
    let mut record = Record {
        whole: case.by_oracle.map(|_| sim::record::Record::default()),
        ..Record::default()
    };
    let mut lane = policy(&scenario, rule, case.start)?;
    scenario.run(&mut lane, &mut record)?;
    if trace {
        for (at_s, limit, settled) in &record.limits {
            eprintln!(
                "{} {} {at_s:.3} s: {limit} ({settled})",
                case.name, rule.name
            );
        }
    }
    let mut figures = judge(case, &record);
    if let (Some(phase), Some(mut whole)) = (case.by_oracle, record.whole) {
        whole.finish();
        let oracle = Oracle::of(&scenario, &whole.trials);
        figures.goodput = sim::measures::figures(&scenario, &whole, &oracle)[phase].goodput;
    }
    Ok(figures)
}

fn judge(case: &Case, record: &Record) -> Figures {
    let scenario = &case.scenario;
    let full = scenario.service.capacity_per_s();
    let room = f64::from(scenario.service.parallelism);
    let mut figures = Figures::default();
    let (mut lost, mut busy_s) = (0.0, 0.0);
    let (mut good, mut possible) = (0.0, 0.0);
    for (i, (phase, bar)) in scenario.phases.iter().zip(&case.bars).enumerate() {
        let from_s = scenario.phase_start_s(i);
        let to_s = from_s + phase.seconds;
        let room = room * phase.parallelism;
        let capacity = phase.capacity * phase.parallelism;
        let regret = |limit: u32, _| {
            let limit = f64::from(limit);
            1.0 - (limit / room).min(room / limit)
        };
        if phase.load > 0.95 * capacity {
            lost += phase.seconds * record.mean(from_s, to_s, regret);
            busy_s += phase.seconds;
            good += record.good.get(i).copied().unwrap_or(0) as f64;
            possible += full * capacity * phase.seconds;
        }
        figures.phases.push(match *bar {
            Bar::Free => (1.0, 1.0),
            Bar::Finds { after_s } => {
                let from_s = from_s + after_s;
                let mean = record.mean(from_s, to_s, |_, settled| f64::from(settled));
                let near = |_, settled: u32| {
                    let off = (f64::from(settled) - room).abs();
                    // A whole slot is the least there is.
                    f64::from(u8::from(off <= (NEAR * room).max(1.0) + 1e-9))
                };
                (mean / room, record.mean(from_s, to_s, near))
            }
            Bar::Holds { .. } => {
                let (before, after) = (record.settled_at(from_s), record.settled_at(to_s));
                (f64::from(after) / f64::from(before), 1.0)
            }
            Bar::Below { .. } => {
                let during = |limit: &&(f64, u32, u32)| (from_s..to_s).contains(&limit.0);
                let most = record.limits.iter().filter(during).map(|limit| limit.1);
                let most = most.chain([record.settled_at(to_s)]).max();
                (f64::from(most.unwrap_or(0)), 1.0)
            }
        });
    }
    figures.regret = if busy_s > 0.0 { lost / busy_s } else { 0.0 };
    figures.goodput = if possible > 0.0 { good / possible } else { 1.0 };
    figures
}

/// What the medians over some runs of a case miss; empty when every bar is held.
#[must_use]
pub fn misses(case: &Case, runs: &[Figures]) -> Vec<String> {
    let mut misses = Vec::new();
    for (i, (phase, bar)) in case.scenario.phases.iter().zip(&case.bars).enumerate() {
        let (figure, share) = medians(runs, i);
        let held = match *bar {
            Bar::Free => true,
            Bar::Finds { .. } => (figure - 1.0).abs() <= NEAR && share >= NEAR_SHARE,
            Bar::Holds { least } => figure >= least && figure <= 1.0 / least,
            Bar::Below { slots } => figure < f64::from(slots),
        };
        if !held {
            let percent = share * 100.0;
            misses.push(format!(
                "{}: {bar:?}: {figure:.2}, near for {percent:.0} %",
                phase.name
            ));
        }
    }
    misses
}

/// Medians of the two figures of a phase.
#[must_use]
pub fn medians(runs: &[Figures], phase: usize) -> (f64, f64) {
    let median = |of: fn(&(f64, f64)) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(|run| of(&run.phases[phase])).collect();
        all.sort_by(f64::total_cmp);
        let middle = all.len() / 2;
        match all.len() % 2 {
            0 => f64::midpoint(all[middle - 1], all[middle]),
            _ => all[middle],
        }
    };
    (median(|figures| figures.0), median(|figures| figures.1))
}

/// The table: a line for each case, a column for each rule.
#[must_use]
pub fn table(rows: &[Row], rules: &[&'static Rule]) -> String {
    let mut text = format!("{:<22}", "limit/room, regret/goodput");
    for rule in rules {
        let _ = write!(text, "{:>18}", rule.name);
    }
    text.push('\n');
    let mut notes = String::new();
    for of_case in rows.chunks(rules.len().max(1)) {
        let _ = write!(text, "{:<22}", of_case[0].case);
        for row in of_case {
            let mark = if row.misses.is_empty() { ' ' } else { '!' };
            let cell = format!(
                "{:.2} {:.3}/{:.3}{mark}",
                row.ratio, row.regret, row.goodput
            );
            let _ = write!(text, "{cell:>18}");
            if row.rule == "auto" {
                for miss in &row.misses {
                    let _ = writeln!(notes, "auto missed {}: {miss}", row.case);
                }
            }
        }
        text.push('\n');
    }
    text + &notes
}
