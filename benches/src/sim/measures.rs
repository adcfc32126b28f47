//! From a run and the oracle's answer to the figures that are judged.

use std::collections::{BTreeMap, BTreeSet};

use cinnamon_core::simulation::{Scenario, Speed};
use cinnamon_core::{TIERS, Tier};

use super::oracle::Oracle;
use super::record::{Pressure, Record, Stand, Trial};

/// t0 and t1 count as protected where they ask for no more than this share of the capacity.
pub const PROTECTED_FIT: f64 = 0.9;
/// The beginning of a phase in which the threshold may still be on its way, seconds; at most a fifth
/// of the phase.
const SETTLING_S: f64 = 2.0;
/// Right after an overload: this long, seconds, at most a quarter of the phase …
const SOON_S: f64 = 2.0;
/// … and, where a request a tenth of a second is all there is, this long.
const SOON_QUIET_S: f64 = 5.0;
/// Below this many requests per second a service is quiet.
pub const QUIET_PER_S: f64 = 100.0;
/// Inversions are looked for within stretches of so many service times, at least a tenth of a second:
/// what is lost while other work is served.
const INVERSION_SERVICES: f64 = 10.0;
const INVERSION_MIN_S: f64 = 0.1;
/// Ranks probed for flips of their verdict: four a level.
const PROBES: usize = 4 * 768;
/// Window in which a key's verdict may flip once, seconds.
const FLIP_WINDOW_S: f64 = 10.0;

/// One phase of one run, in numbers. Requests are credited to the phase they first arrived in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Length, seconds.
    pub seconds: f64,
    /// Requests per tier.
    pub offered: [u64; TIERS],
    /// Requests per tier answered in time.
    pub good: [u64; TIERS],
    /// Requests per tier that the oracle answers in time.
    pub oracle: [u64; TIERS],
    /// Work answered in time, over the best that is known to be possible; at most 1. 1 when nothing
    /// was possible. Without the requests that come within a deadline of the phase's end.
    pub goodput: f64,
    /// By how much the run's work exceeds the oracle's, as a share; at least 0.
    pub excess: f64,
    /// Whether t0 and t1 fit, by the load that is offered.
    pub protected_fit: bool,
    /// Whether t0 fits.
    pub t0_fits: bool,
    /// t0 refused by the gate.
    pub t0_shed: u64,
    /// Share of t0 and t1 answered in time, of as many as the oracle answers; not a number if none.
    /// (On a quiet service chance fills every slot now and then for as long as anybody can wait.)
    pub protected: f64,
    /// Work of higher tiers lost while work of lower tiers was served, as a share of capacity.
    pub inversions: f64,
    /// The same by the tier that was served in their place.
    pub served_instead: [f64; TIERS],
    /// Per tier: work that the oracle answers in time and the run does not, as a share of capacity.
    pub regret: [f64; TIERS],
    /// Requests refused in any way, over all attempts.
    pub refused: u64,
    /// Of these, after they had waited.
    pub lost_in_queue: u64,
    /// Requests refused before the phase was over: who came at its very end and had to go for what came
    /// next was not refused in this weather.
    pub refused_within: u64,
    /// Attempts over requests.
    pub amplification: f64,
    /// Share of the requests of the first two seconds (at most a quarter of the phase) that were refused.
    pub refused_soon: f64,
    /// Requests refused later than that (5 s on a quiet service).
    pub refused_later: u64,
    /// Median, 99th percentile and maximum of the time in the queue, seconds, of those that ran.
    pub wait_s: [f64; 3],
    /// Mean move of the threshold per wake-up once settled, levels.
    pub step: f64,
    /// Share of keys whose verdict flips more than once in ten seconds; not a number if too short.
    pub flipping: f64,
    /// From the start of the phase until the gate closes, seconds; not a number if it does not.
    pub engage_s: f64,
    /// From then until the backlog is first back at its target, seconds …
    pub converge_s: f64,
    /// … and in ticks; as many as the phase has if it never is, or the gate never closes.
    pub converge_ticks: f64,
    /// From the start of the phase until the gate is open for good, seconds; not a number if it is
    /// never closed or stays so.
    pub release_s: f64,
    /// Share of engaged ticks with the trim at a bound; not a number if never engaged.
    pub saturated: f64,
    /// How far the mean pressure of the first plant is off its target of 1.0; not a number without plants.
    pub off_target: f64,
    /// The greatest pressure of the first plant.
    pub peak_pressure: f64,
    /// Offers that the gate refused while a signal held it …
    pub signal_shed: u64,
    /// … and those of them that came later than 2 s into the phase.
    pub signal_shed_later: u64,
    /// Answers in time over what the first lane can serve at full speed.
    pub served: f64,
    /// Reads of t3 to t5 let through by the gate between two ticks between which it refused writes of t1.
    pub crossed: u64,
    /// Verdicts by word.
    pub verdicts: BTreeMap<&'static str, u64>,
}

impl Figures {
    /// Share of the attempts that got this verdict.
    #[must_use]
    pub fn share(&self, word: &str) -> f64 {
        let all: u64 = self.verdicts.values().sum();
        self.verdicts.get(word).copied().unwrap_or(0) as f64 / all.max(1) as f64
    }

    /// What was made of the oracle's answer is no figure where it has none.
    fn forget_the_oracle(&mut self) {
        self.goodput = f64::NAN;
        self.excess = f64::NAN;
        self.protected = f64::NAN;
        self.inversions = f64::NAN;
        self.served_instead = [f64::NAN; TIERS];
        self.regret = [f64::NAN; TIERS];
    }

    /// Share of this tier's requests answered in time; 1 when there were none.
    #[must_use]
    pub fn success(&self, tier: Tier) -> f64 {
        let tier = tier.index();
        if self.offered[tier] == 0 {
            return 1.0;
        }
        self.good[tier] as f64 / self.offered[tier] as f64
    }
}

/// The figures of each phase.
#[must_use]
pub fn figures(scenario: &Scenario, record: &Record, oracle: &Oracle) -> Vec<Figures> {
    let speed = Speed::of(scenario);
    let mut phases: Vec<Tally<'_>> = (0..scenario.phases.len())
        .map(|phase| Tally::new(scenario, &speed, phase))
        .collect();
    let mut trials = record.trials.iter().peekable();
    while let Some(trial) = trials.next() {
        let tally = &mut phases[usize::from(trial.phase)];
        tally.attempt(trial);
        // The last attempt decides: `trials` is in the order of requests and attempts.
        if trials
            .peek()
            .is_none_or(|next| next.request != trial.request)
        {
            let request = trial.request as usize;
            tally.request(trial, oracle.answered[request], oracle.afresh[request]);
        }
    }
    let mut figures: Vec<Figures> = phases
        .into_iter()
        .map(|tally| tally.close(record))
        .collect();
    for (phase, figures) in figures.iter_mut().enumerate() {
        let start_s = scenario.phase_start_s(phase);
        let pressures = |at_s: f64| record.pressures.partition_point(|p| p.at_s < at_s);
        let within = pressures(start_s)..pressures(start_s + figures.seconds);
        pressure_figures(figures, &record.pressures[within]);
        let good: u64 = figures.good.iter().sum();
        let most = scenario.service.capacity_per_s() * figures.seconds;
        figures.served = good as f64 / most.max(f64::MIN_POSITIVE);
    }
    for trial in record.trials.iter().filter(|trial| trial.is_shed()) {
        let phase = usize::from(trial.phase);
        if held_by_signal(record, trial.ended_s) {
            figures[phase].signal_shed += 1;
            let later = trial.arrived_s - scenario.phase_start_s(phase) >= SOON_S;
            figures[phase].signal_shed_later += u64::from(later);
        }
    }
    if scenario.writes.is_some() {
        for (phase, crossed) in crossed(record) {
            figures[phase].crossed = crossed;
        }
        figures.iter_mut().for_each(Figures::forget_the_oracle);
    }
    figures
}

/// Whether a signal held the gate at this time: since the last wake-up before it.
fn held_by_signal(record: &Record, at_s: f64) -> bool {
    let after = record.stands.partition_point(|stand| stand.at_s <= at_s);
    let before = after.checked_sub(1).and_then(|i| record.stands.get(i));
    before.is_some_and(|stand| stand.view.signal.is_some())
}

fn pressure_figures(figures: &mut Figures, pressures: &[Pressure]) {
    let first = pressures.iter().filter(|p| p.plant == 0);
    let first = first.map(|p| f64::from(p.pressure));
    let mean = first.clone().sum::<f64>() / first.clone().count() as f64;
    figures.off_target = (mean - 1.0).abs();
    figures.peak_pressure = first.fold(f64::NAN, f64::max);
}

/// Per phase: reads of low tiers that passed in a stretch between two ticks in which writes of t1 did not.
fn crossed(record: &Record) -> BTreeMap<usize, u64> {
    let stretch = |trial: &&Trial| record.stands.partition_point(|s| s.at_s <= trial.arrived_s);
    let cut: BTreeSet<usize> = record
        .trials
        .iter()
        .filter(|trial| trial.lane == 1 && trial.tier() == Tier::T1 && trial.is_shed())
        .map(|trial| stretch(&trial))
        .collect();
    let mut crossed = BTreeMap::new();
    let passed = record
        .trials
        .iter()
        .filter(|trial| trial.lane == 0 && trial.tier() >= Tier::T3 && !trial.is_shed());
    for trial in passed.filter(|trial| cut.contains(&stretch(trial))) {
        *crossed.entry(usize::from(trial.phase)).or_default() += 1;
    }
    crossed
}

/// A phase while it is counted.
struct Tally<'a> {
    scenario: &'a Scenario,
    speed: &'a Speed,
    start_s: f64,
    figures: Figures,
    work: [f64; TIERS],
    oracle_work: [f64; TIERS],
    afresh_work: f64,
    afresh_protected: u64,
    soon: u64,
    soon_refused: u64,
    attempts: u64,
    waits_s: Vec<f32>,
    /// Requests that come later can still be answered in the next phase by whoever lets them wait so
    /// long; what the oracle does with them says nothing of this phase.
    judged_until_s: f64,
    /// Work lost and served per tier in the open stretch, and its number.
    stretch: usize,
    lost: [f64; TIERS],
    served: [f64; TIERS],
    inverted: [f64; TIERS],
}

impl<'a> Tally<'a> {
    fn new(scenario: &'a Scenario, speed: &'a Speed, phase: usize) -> Self {
        let described = &scenario.phases[phase];
        let mix = described.mix.as_ref().unwrap_or(&scenario.mix);
        let total: f64 = mix.iter().sum();
        let fits = |tiers: usize| {
            let share = mix[..tiers].iter().sum::<f64>() / total;
            share * described.load <= PROTECTED_FIT * described.capacity
        };
        Self {
            scenario,
            speed,
            start_s: scenario.phase_start_s(phase),
            figures: Figures {
                seconds: described.seconds,
                t0_fits: fits(1),
                protected_fit: fits(2),
                ..Figures::default()
            },
            work: [0.0; TIERS],
            oracle_work: [0.0; TIERS],
            afresh_work: 0.0,
            afresh_protected: 0,
            soon: 0,
            soon_refused: 0,
            attempts: 0,
            waits_s: Vec::new(),
            judged_until_s: scenario.phase_start_s(phase + 1)
                - scenario.deadline.base_s.min(0.5 * described.seconds),
            stretch: 0,
            lost: [0.0; TIERS],
            served: [0.0; TIERS],
            inverted: [0.0; TIERS],
        }
    }

    fn soon_s(&self) -> f64 {
        SOON_S.min(0.25 * self.figures.seconds)
    }

    /// From then on it is no longer soon.
    fn later_s(&self) -> f64 {
        if self.scenario.service.capacity_per_s() < QUIET_PER_S {
            SOON_QUIET_S
        } else {
            self.soon_s()
        }
    }

    /// Every attempt counts as a verdict.
    fn attempt(&mut self, trial: &Trial) {
        self.attempts += 1;
        *self.figures.verdicts.entry(trial.word()).or_default() += 1;
        self.figures.refused += u64::from(trial.is_refused());
        self.figures.lost_in_queue += u64::from(trial.is_lost_in_queue());
        let within = trial.ended_s < self.start_s + self.figures.seconds;
        self.figures.refused_within += u64::from(trial.is_refused() && within);
        if trial.is_shed() && trial.tier() == Tier::T0 {
            self.figures.t0_shed += 1;
        }
        if !trial.waited_s.is_nan() {
            self.waits_s.push(trial.waited_s);
        }
    }

    /// The last attempt is what became of the request.
    fn request(&mut self, trial: &Trial, by_oracle: bool, afresh: bool) {
        let tier = trial.tier().index();
        let work_s = f64::from(trial.work_s);
        let stretch_s = (INVERSION_SERVICES * self.scenario.service.mean_s).max(INVERSION_MIN_S);
        let stretch = ((trial.arrived_s - self.start_s) / stretch_s) as usize;
        if stretch != self.stretch {
            self.close_stretch();
            self.stretch = stretch;
        }
        self.figures.offered[tier] += 1;
        self.afresh_protected += u64::from(afresh && tier <= Tier::T1.index());
        self.figures.oracle[tier] += u64::from(by_oracle);
        self.figures.good[tier] += u64::from(trial.is_good());
        if trial.arrived_s < self.judged_until_s {
            if by_oracle {
                self.oracle_work[tier] += work_s;
            }
            if afresh {
                self.afresh_work += work_s;
            }
            if trial.is_good() {
                self.work[tier] += work_s;
                self.served[tier] += work_s;
            } else if by_oracle {
                // What nobody could have answered is not lost to anybody.
                self.lost[tier] += work_s;
            }
        }
        let after_s = trial.arrived_s - self.start_s;
        if after_s < self.soon_s() {
            self.soon += 1;
            self.soon_refused += u64::from(trial.is_refused());
        }
        if after_s >= self.later_s() {
            self.figures.refused_later += u64::from(trial.is_refused());
        }
    }

    /// Higher work that was lost is matched with lower work that was served.
    fn close_stretch(&mut self) {
        let mut lost_above = 0.0;
        for tier in 0..TIERS {
            let inverted = self.served[tier].min(lost_above);
            self.inverted[tier] += inverted;
            lost_above += self.lost[tier] - inverted;
        }
        self.lost = [0.0; TIERS];
        self.served = [0.0; TIERS];
    }

    fn close(mut self, record: &Record) -> Figures {
        self.close_stretch();
        let (work, oracle_work): (f64, f64) =
            (self.work.iter().sum(), self.oracle_work.iter().sum());
        let by_oracle = oracle_work.max(self.afresh_work);
        let possible = work.max(by_oracle);
        let figures = &mut self.figures;
        figures.goodput = if possible > 0.0 { work / possible } else { 1.0 };
        figures.excess = if by_oracle > 0.0 {
            (work / by_oracle - 1.0).max(0.0)
        } else {
            0.0
        };
        let protected = |of: &[u64; TIERS]| (of[0] + of[1]) as f64;
        let answerable = protected(&figures.oracle).max(self.afresh_protected as f64);
        // Not a number when there were none.
        figures.protected = (protected(&figures.good) / answerable).min(1.0);
        let (start_s, until_s) = (self.start_s, self.judged_until_s);
        let speed = self.speed.done_by(until_s) - self.speed.done_by(start_s);
        let slot_s = f64::from(self.scenario.service.parallelism) * speed;
        let slot_s = slot_s.max(f64::MIN_POSITIVE);
        figures.served_instead = self.inverted.map(|work_s| work_s / slot_s);
        figures.inversions = figures.served_instead.iter().sum();
        for tier in 0..TIERS {
            figures.regret[tier] = (self.oracle_work[tier] - self.work[tier]).max(0.0) / slot_s;
        }
        let requests: u64 = figures.offered.iter().sum();
        figures.amplification = self.attempts as f64 / requests.max(1) as f64;
        figures.refused_soon = self.soon_refused as f64 / self.soon.max(1) as f64;
        figures.wait_s = quantiles(&mut self.waits_s);
        let end_s = self.start_s + figures.seconds;
        let within = |at_s: f64| record.stands.partition_point(|stand| stand.at_s < at_s);
        let stands = &record.stands[within(self.start_s)..within(end_s)];
        gate_figures(figures, self.start_s, stands);
        self.figures
    }
}

fn gate_figures(figures: &mut Figures, start_s: f64, stands: &[Stand]) {
    figures.step = 0.0;
    figures.engage_s = f64::NAN;
    figures.converge_s = f64::NAN;
    figures.converge_ticks = stands.len() as f64;
    figures.release_s = f64::NAN;
    figures.saturated = f64::NAN;
    figures.flipping = f64::NAN;
    if let Some(first) = stands.iter().position(|stand| stand.view.engaged) {
        let engaged_s = stands[first].at_s;
        figures.engage_s = engaged_s - start_s;
        let back = stands[first..]
            .iter()
            .position(|stand| stand.view.wait_s <= stand.view.wait_target_s);
        if let Some(ticks) = back {
            figures.converge_ticks = ticks as f64;
            figures.converge_s = stands[first + ticks].at_s - engaged_s;
        }
        let last = stands
            .iter()
            .rposition(|stand| stand.view.threshold < 768.0);
        let release = last.and_then(|last| stands.get(last + 1));
        figures.release_s = release.map_or(f64::NAN, |stand| stand.at_s - start_s);
        let engaged = stands.iter().filter(|stand| stand.view.engaged);
        let saturated = engaged.clone().filter(|stand| stand.view.saturated).count();
        figures.saturated = saturated as f64 / engaged.count().max(1) as f64;
    }
    let settled_s = start_s + SETTLING_S.min(0.2 * figures.seconds);
    let settled = &stands[stands.partition_point(|stand| stand.at_s < settled_s)..];
    let moves = settled
        .windows(2)
        .filter(|pair| pair.iter().any(|stand| stand.view.threshold < 768.0));
    let (mut sum, mut count) = (0.0, 0u32);
    for pair in moves {
        sum += (pair[1].view.threshold - pair[0].view.threshold).abs();
        count += 1;
    }
    figures.step = sum / f64::from(count.max(1));
    figures.flipping = flipping(settled);
}

/// Share of keys (ranks, evenly spread) whose verdict flips more than once in ten seconds, on average
/// over the windows of ten seconds that fit.
fn flipping(stands: &[Stand]) -> f64 {
    let (Some(first), Some(last)) = (stands.first(), stands.last()) else {
        return f64::NAN;
    };
    let windows = ((last.at_s - first.at_s) / FLIP_WINDOW_S).floor() as usize;
    if windows == 0 {
        return f64::NAN;
    }
    let probe = |threshold: f64| (threshold * (PROBES / 768) as f64).floor() as usize;
    let mut flips = vec![0i32; PROBES + 2];
    let (mut restless, mut window) = (0usize, 0usize);
    for pair in stands.windows(2) {
        if ((pair[1].at_s - first.at_s) / FLIP_WINDOW_S) as usize != window {
            restless += count_restless(&mut flips);
            window += 1;
            if window == windows {
                break;
            }
        }
        let (a, b) = (probe(pair[0].view.threshold), probe(pair[1].view.threshold));
        // A difference array: every rank between the two thresholds flips.
        flips[a.min(b).min(PROBES)] += 1;
        flips[a.max(b).min(PROBES)] -= 1;
    }
    if window < windows {
        restless += count_restless(&mut flips);
    }
    restless as f64 / (windows * PROBES) as f64
}

fn count_restless(flips: &mut [i32]) -> usize {
    let mut sum = 0;
    let mut restless = 0;
    for flip in flips.iter_mut() {
        sum += std::mem::take(flip);
        restless += usize::from(sum > 1);
    }
    restless
}

fn quantiles(waits_s: &mut [f32]) -> [f64; 3] {
    if waits_s.is_empty() {
        return [0.0; 3];
    }
    let last = waits_s.len() - 1;
    let mut at = |q: f64| {
        let nth = (q * last as f64).round() as usize;
        f64::from(*waits_s.select_nth_unstable_by(nth, f32::total_cmp).1)
    };
    [at(0.5), at(0.99), at(1.0)]
}

#[cfg(test)]
mod tests;
