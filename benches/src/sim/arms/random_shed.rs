//! The control that sheds the right share of the wrong requests.
//!
//! It cheats: it reads the present load and the present speed of the store out of the scenario. So
//! nothing is wrong with how much it sheds, only with whom: a bar that it passes does not ask for
//! whom. It knows neither bursts, nor retries, nor the on and off within a phase: those meet its
//! queue. While the store stops it sheds everybody, though the queue could bear a short stop.

use cinnamon_core::simulation::{Answer, Done, Offer, Phase, Policy, Rng, Scenario, Speed};
use cinnamon_core::{Instant, Reason, TIERS, Tier};

use super::always_admit::queue_len_max;
use super::slots::{Next, Slots};
use super::{Arm, Kind};

pub(super) const ARM: Arm = Arm {
    name: "random-shed",
    about: "control: sheds the right share at random, known from the scenario; waits of up to 1 s",
    kind: Kind::Control,
    build: |scenario| Ok(Box::new(RandomShed::new(scenario))),
};

/// Longest wait, ns: an answer is wanted within a second in most scenarios.
const TIMEOUT_NS: u64 = 1_000_000_000;
/// Told apart from the draws of the workload, which begin with the seed as it is. "shed".
const SEED: u64 = 0x7368_6564;

/// What is offered in a phase, as multiples of the full capacity.
#[derive(Debug)]
struct Demand {
    end_s: f64,
    load: f64,
    /// While the second mix has its turn.
    alternate_load: f64,
}

#[derive(Debug)]
struct RandomShed {
    slots: Slots,
    rng: Rng,
    speed: Speed,
    demands: Vec<Demand>,
    /// How often the mixes take turns, seconds.
    alternate_s: Option<f64>,
}

impl RandomShed {
    fn new(scenario: &Scenario) -> Self {
        let parallelism = scenario.service.parallelism;
        let demand = |(i, phase): (usize, &Phase)| {
            let mix = phase.mix.as_ref().unwrap_or(&scenario.mix);
            let alternate = scenario.alternate.as_ref().map_or(mix, |(_, mix)| mix);
            Demand {
                end_s: scenario.phase_start_s(i + 1),
                load: offered(phase, mix),
                alternate_load: offered(phase, alternate),
            }
        };
        Self {
            slots: Slots::new(parallelism).queue_len_max(queue_len_max(parallelism)),
            rng: Rng::new(scenario.seed ^ SEED),
            speed: Speed::of(scenario),
            demands: scenario.phases.iter().enumerate().map(demand).collect(),
            alternate_s: scenario.alternate.map(|(every_s, _)| every_s),
        }
    }

    /// The share of the present offers that the store cannot serve: 1 - capacity / load.
    fn share(&self, now: Instant) -> f64 {
        let now_s = now.as_nanos() as f64 * 1e-9;
        let phase = self.demands.partition_point(|demand| demand.end_s <= now_s);
        // After the last phase only retries come.
        let load = self.demands.get(phase).map_or(0.0, |demand| {
            let turns = self
                .alternate_s
                .map_or(0.0, |every_s| (now_s / every_s).floor());
            if turns % 2.0 == 1.0 {
                demand.alternate_load
            } else {
                demand.load
            }
        });
        let speed = self.speed.at(now_s);
        if load > speed {
            1.0 - speed / load
        } else {
            0.0
        }
    }
}

/// What a phase offers with this mix, as a multiple of the full capacity.
fn offered(phase: &Phase, mix: &[f64; TIERS]) -> f64 {
    let (high, low) = mix.split_at(Tier::T3.index());
    let [high, low] = [high, low].map(|shares| shares.iter().sum::<f64>());
    phase.load * (high + low * phase.low_tiers) / (high + low)
}

impl Policy for RandomShed {
    fn offer(&mut self, now: Instant, offer: &Offer) -> Answer {
        if self.rng.unit() < self.share(now) {
            return Answer::Refuse(Reason::Shed);
        }
        self.slots.offer(offer.token, now.after_nanos(TIMEOUT_NS))
    }

    fn cancel(&mut self, _now: Instant, token: u32) -> bool {
        self.slots.cancel(token)
    }

    fn finish(&mut self, now: Instant, _token: u32, _done: Done) {
        self.slots.finish(now, Next::Oldest);
    }

    fn take_answers(&mut self, out: &mut Vec<(u32, Answer)>) {
        self.slots.take_answers(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{overload, run};
    use super::*;
    use cinnamon_core::simulation::PhaseReport;

    fn at_s(s: f64) -> Instant {
        Instant::from_nanos((s * 1e9) as u64)
    }

    #[test]
    fn the_share_follows_load_low_tiers_speed_and_mix() {
        let low = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0];
        let arm = RandomShed::new(&Scenario {
            phases: vec![
                Phase::new("calm", 1.0, 0.7),
                Phase::new("overload", 1.0, 4.0),
                Phase::new("slow", 1.0, 0.8).capacity(0.4),
                Phase::new("surge", 4.0, 1.0).low_tiers(7.0),
            ],
            alternate: Some((5.0, low)),
            ..Scenario::default()
        });
        // The mix has half its offers in t3 to t5, the second mix all of them.
        for (s, share) in [
            (0.5, 0.0),
            (1.5, 0.75),
            (2.5, 0.5),
            (4.5, 0.75),
            (5.5, 6.0 / 7.0),
            (9.0, 0.0),
        ] {
            assert!((arm.share(at_s(s)) - share).abs() < 1e-9, "at {s} s");
        }
    }

    #[test]
    fn it_sheds_that_share_of_every_tier() {
        let (report, _) = run(&ARM, &overload(4.0, 20.0));
        let phase: &PhaseReport = &report.phases[0];
        let shed = phase.refused_at_gate as f64 / phase.offers() as f64;
        assert!((shed - 0.75).abs() < 0.01, "{shed}");
        let share = |tier: usize| phase.good[tier] as f64 / phase.offered[tier] as f64;
        assert!((share(1) - share(5)).abs() < 0.05);
    }
}
