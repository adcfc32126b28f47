//! A run drawn over time.

use std::collections::BTreeMap;

use cinnamon_core::TIERS;
use cinnamon_core::simulation::Speed;

use super::outcome::{Bin, Chart};
use super::record::Record;
use super::scenario::Case;

/// Stretches of time in a picture: as many as a column is wide in pixels, about.
const BINS: usize = 240;

/// The picture of a run of `case` (with the run's seed) by this arm.
#[must_use]
pub fn chart(case: &Case, arm: &'static str, record: &Record, oracle: &[bool]) -> Chart {
    let scenario = &case.run;
    let end_s = scenario.phase_start_s(scenario.phases.len());
    let bin_s = end_s / BINS as f64;
    let bin_of = |at_s: f64| ((at_s / bin_s) as usize).min(BINS - 1);
    let mut bins = vec![Bin::default(); BINS];
    let mut waits: Vec<Vec<f32>> = vec![Vec::new(); BINS];
    let mut tiers = vec![[(0, 0); TIERS]; scenario.phases.len()];
    let mut by_oracle = vec![[0; TIERS]; scenario.phases.len()];
    let mut verdicts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for trial in &record.trials {
        let (phase, tier) = (usize::from(trial.phase), trial.tier().index());
        let at = bin_of(trial.arrived_s);
        *verdicts.entry(trial.word()).or_default() += 1;
        let good = u64::from(trial.is_good());
        bins[at].good[tier] += good;
        tiers[phase][tier].1 += good;
        if trial.attempt == 0 {
            let answered = u64::from(oracle[trial.request as usize]);
            bins[at].offered[tier] += 1;
            bins[at].oracle += answered;
            tiers[phase][tier].0 += 1;
            by_oracle[phase][tier] += answered;
        }
        if !trial.waited_s.is_nan() {
            waits[at].push(trial.waited_s);
        }
    }
    let speed = Speed::of(scenario);
    for (i, (bin, waits)) in bins.iter_mut().zip(&mut waits).enumerate() {
        let (from_s, to_s) = (i as f64 * bin_s, (i + 1) as f64 * bin_s);
        bin.speed = (speed.done_by(to_s) - speed.done_by(from_s)) / bin_s;
        waits.sort_unstable_by(f32::total_cmp);
        if let Some(last) = waits.len().checked_sub(1) {
            let at = |q: f64| f64::from(waits[(q * last as f64).round() as usize]);
            bin.wait_s = [at(0.5), at(0.99)];
        }
    }
    stands(&mut bins, record, bin_of);
    let mut verdicts: Vec<_> = verdicts.into_iter().collect();
    verdicts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let phases = scenario.phases.iter().enumerate().map(|(i, phase)| {
        let start_s = scenario.phase_start_s(i);
        (phase.name.clone(), start_s, start_s + phase.seconds)
    });
    Chart {
        scenario: case.scenario.clone(),
        about: case.about.clone(),
        service: case.service,
        arm,
        phases: phases.collect(),
        bins,
        bin_s,
        capacity_per_s: scenario.service.capacity_per_s(),
        tiers,
        oracle: by_oracle,
        verdicts,
    }
}

/// Fills in how the policy stood. A stretch in which it was not woken stands as the one before.
fn stands(bins: &mut [Bin], record: &Record, bin_of: impl Fn(f64) -> usize) {
    let mut next = record.stands.iter().peekable();
    let mut last = Bin {
        threshold: [768.0; 2],
        binding: "nothing",
        ..Bin::default()
    };
    for (i, bin) in bins.iter_mut().enumerate() {
        let mut threshold = [last.threshold[1]; 2];
        let mut newest_first = false;
        let mut woken = false;
        while let Some(stand) = next.next_if(|stand| bin_of(stand.at_s) <= i) {
            let view = &stand.view;
            if !woken {
                threshold = [view.threshold; 2];
            }
            woken = true;
            threshold = [
                threshold[0].min(view.threshold),
                threshold[1].max(view.threshold),
            ];
            newest_first |= view.newest_first;
            last.backlog_s = [view.wait_s, view.wait_target_s];
            last.codel = view.codel;
            last.binding = view.binding;
        }
        bin.threshold = threshold;
        bin.newest_first = newest_first;
        bin.backlog_s = last.backlog_s;
        bin.codel = last.codel;
        bin.binding = last.binding;
        last.threshold = threshold;
    }
}
