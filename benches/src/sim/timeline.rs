//! A run drawn over time.

use std::collections::BTreeMap;

use cinnamon_core::TIERS;
use cinnamon_core::simulation::{Speed, View};

use super::outcome::{Bin, Chart, PLANTS};
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
    pressures(&mut bins, record, bin_of);
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
        plants: scenario
            .plants
            .iter()
            .map(|plant| plant.name.clone())
            .collect(),
    }
}

/// Fills in the plants' pressures. A stretch without a reading has that of the one before.
fn pressures(bins: &mut [Bin], record: &Record, bin_of: impl Fn(f64) -> usize) {
    let mut sums = vec![[(0.0, 0u32); PLANTS]; bins.len()];
    for of in &record.pressures {
        if let Some((sum, count)) = sums[bin_of(of.at_s)].get_mut(usize::from(of.plant)) {
            *sum += f64::from(of.pressure);
            *count += 1;
        }
    }
    let mut last = [0.0; PLANTS];
    for (bin, sums) in bins.iter_mut().zip(&sums) {
        for (last, &(sum, count)) in last.iter_mut().zip(sums) {
            if count > 0 {
                *last = sum / f64::from(count);
            }
        }
        bin.pressure = last;
    }
}

/// Fills in how the policy stood. A stretch in which it was not woken stands as the one before ended.
fn stands(bins: &mut [Bin], record: &Record, bin_of: impl Fn(f64) -> usize) {
    let mut next = record.stands.iter().peekable();
    let mut last = View::default();
    for (i, bin) in bins.iter_mut().enumerate() {
        let mut threshold: Option<[f64; 2]> = None;
        let (mut fewest, mut most) = (last.limit, last.limit);
        while let Some(stand) = next.next_if(|stand| bin_of(stand.at_s) <= i) {
            last = stand.view;
            if most == 0 {
                (fewest, most) = (last.limit, last.limit);
            }
            (fewest, most) = (fewest.min(last.limit), most.max(last.limit));
            let [least, most] = threshold.unwrap_or([last.threshold; 2]);
            threshold = Some([least.min(last.threshold), most.max(last.threshold)]);
            bin.newest_first |= last.newest_first;
        }
        bin.threshold = threshold.unwrap_or([last.threshold; 2]);
        bin.limit = [last.limit_settled, fewest, most];
        bin.backlog_s = [last.wait_s, last.wait_target_s];
        bin.codel = last.codel;
        bin.binding = last.binding;
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Stand;
    use super::*;

    #[test]
    fn a_stretch_without_a_wake_up_stands_as_the_one_before_ended() {
        let stand = |at_s, threshold| Stand {
            at_s,
            view: View {
                threshold,
                // A trial of twice the slots where the threshold is low.
                limit: if threshold < 200.0 { 40 } else { 20 },
                limit_settled: 20,
                ..View::default()
            },
        };
        let record = Record {
            stands: vec![stand(0.5, 768.0), stand(0.9, 100.0), stand(2.5, 300.0)],
            ..Record::default()
        };
        let mut bins = vec![Bin::default(); 4];
        stands(&mut bins, &record, |at_s| at_s as usize);
        let thresholds: Vec<[f64; 2]> = bins.iter().map(|bin| bin.threshold).collect();
        assert_eq!(
            thresholds,
            [[100.0, 768.0], [100.0; 2], [300.0; 2], [300.0; 2]]
        );
        let limits: Vec<[u32; 3]> = bins.iter().map(|bin| bin.limit).collect();
        assert_eq!(
            limits,
            [[20, 20, 40], [20, 40, 40], [20, 20, 40], [20, 20, 20]]
        );
    }
}
