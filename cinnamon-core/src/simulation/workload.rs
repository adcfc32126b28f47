//! Who comes, when, and with how much work.

use std::time::Duration;

use crate::clock::Instant;
use crate::permit::Outcome;
use crate::priority::{Priority, TIERS, Tier, mix64};
use crate::request::{Class, Request, Tenant};
use crate::simulation::Rng;
use crate::simulation::policy::{Done, priority_of};
use crate::simulation::scenario::{
    Arrivals, Ends, KeySpace, Keys, Phase, Scenario, Shape, Tell, TenantLoad,
};
use crate::simulation::store::seconds;

/// What is drawn for a request, whatever becomes of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    pub(super) tier: Tier,
    pub(super) key: u64,
    pub(super) class: u16,
    /// Seconds at full speed.
    pub(super) work_s: f64,
    /// 1 for a write where there are any, else 0.
    pub(super) lane: usize,
    /// By its place in the scenario.
    pub(super) tenant: Option<u16>,
    /// On the key that comes on top.
    pub(super) hot: bool,
}

/// The key that comes on top of the others.
const HOT_KEY: u64 = 0x9e37_79b9_7f4a_7c15;

/// Draws requests and the times at which they come.
#[derive(Debug)]
pub(super) struct Workload<'a> {
    scenario: &'a Scenario,
    rng: Rng,
    ends_s: Vec<f64>,
    /// Where the stream of open arrivals stands.
    at_s: f64,
    /// How many more come at `at_s`.
    left_in_batch: u32,
    /// When the requests of the bursts come, last first.
    extra_s: Vec<(f64, Option<u16>)>,
    classes: Vec<f64>,
    class_mean_s: Vec<f64>,
    cost_unit_s: f64,
    /// Of each key, the share of all that are no rarer.
    keys: Vec<f64>,
}

impl<'a> Workload<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let mut end_s = 0.0;
        let ends = scenario.phases.iter().map(|phase| {
            end_s += phase.seconds;
            end_s
        });
        let mut extra_s: Vec<(f64, Option<u16>)> = Vec::new();
        for burst in &scenario.bursts {
            let step_s = burst.within_s / f64::from(burst.requests);
            let at_s = |i: u32| burst.at_s + f64::from(i) * step_s;
            extra_s.extend((0..burst.requests).map(|i| (at_s(i), burst.class)));
        }
        extra_s.sort_by(|a, b| b.0.total_cmp(&a.0));
        let work = &scenario.service.work;
        let classes: Vec<f64> = work.iter().map(|class| class.share).collect();
        let shares: f64 = classes.iter().sum();
        let mean_times = work
            .iter()
            .map(|class| class.share / shares * class.times)
            .sum::<f64>();
        let mean_s = scenario.service.mean_s;
        let class_mean_s: Vec<f64> = if work.is_empty() {
            vec![mean_s]
        } else {
            work.iter()
                .map(|class| mean_s * class.times / mean_times)
                .collect()
        };
        let cost_unit_s = class_mean_s.iter().copied().fold(f64::INFINITY, f64::min);
        Self {
            scenario,
            rng: Rng::new(scenario.seed),
            ends_s: ends.collect(),
            at_s: 0.0,
            left_in_batch: 0,
            extra_s,
            classes,
            class_mean_s,
            cost_unit_s,
            keys: scenario.key_space.map_or_else(Vec::new, shares_of_keys),
        }
    }

    /// The phase at this time; the last one after its end.
    pub(super) fn phase_at(&self, now_s: f64) -> usize {
        let phase = self.ends_s.partition_point(|&end_s| end_s <= now_s);
        phase.min(self.ends_s.len().saturating_sub(1))
    }

    /// When the last phase ends, seconds.
    pub(super) fn end_s(&self) -> f64 {
        self.ends_s.last().copied().unwrap_or(0.0)
    }

    /// The next request that comes of itself, and when. In the order of time.
    pub(super) fn next(&mut self) -> Option<(Instant, Draw)> {
        let open_s = self.next_open();
        let extra_s = self.extra_s.last().copied();
        let extra_s = extra_s.filter(|&(s, _)| s < self.end_s());
        let at_s = match (open_s, extra_s) {
            (None, None) => return None,
            (Some(open), Some((extra, _))) if open <= extra => self.take_open(open),
            (Some(open), None) => self.take_open(open),
            (_, Some((extra, class))) => {
                self.extra_s.pop();
                if let Some(class) = class {
                    return Some((seconds(extra), self.draw_of(extra, class)));
                }
                extra
            }
        };
        Some((seconds(at_s), self.draw(at_s)))
    }

    /// How many clients a closed loop has in this phase.
    pub(super) fn clients(&self, phase: usize) -> usize {
        let Arrivals::Closed { think_s } = self.scenario.arrivals else {
            return 0;
        };
        let service = &self.scenario.service;
        let saturating = service.capacity_per_s() * (service.mean_s + think_s);
        (saturating * self.scenario.phases[phase].load).round() as usize
    }

    /// A client's time between an answer and its next request, seconds.
    pub(super) fn think_s(&mut self) -> f64 {
        let Arrivals::Closed { think_s } = self.scenario.arrivals else {
            return f64::INFINITY;
        };
        self.rng.exponential(think_s)
    }

    pub(super) fn draw(&mut self, now_s: f64) -> Draw {
        let class = if self.classes.len() > 1 {
            self.rng.weighted(&self.classes)
        } else {
            0
        };
        self.draw_of(now_s, class as u16)
    }

    fn draw_of(&mut self, now_s: f64, class: u16) -> Draw {
        let phase = self.phase_at(now_s);
        let weights = self.weights(&self.scenario.phases[phase], now_s);
        let tier = Tier::ALL[self.rng.weighted(&weights)];
        let key = self.rng.bits();
        let work_s = self.class_mean_s[usize::from(class)] * self.scatter();
        let hot = &self.scenario.phases[phase].hot;
        let hot = *hot > 0.0 && self.rng.unit() < hot / (1.0 + hot);
        let draw = Draw {
            tier,
            key: if hot { HOT_KEY } else { self.key(key) },
            class,
            work_s,
            lane: 0,
            tenant: self.tenant(phase),
            hot,
        };
        match &self.scenario.writes {
            Some(writes) if self.rng.unit() < writes.share => Draw {
                work_s: draw.work_s * writes.mean_s / self.scenario.service.mean_s,
                lane: 1,
                ..draw
            },
            _ => draw,
        }
    }

    fn tenant(&mut self, phase: usize) -> Option<u16> {
        if self.scenario.tenants.is_empty() {
            return None;
        }
        let weights = self.tenant_weights(phase);
        Some(self.rng.weighted(&weights) as u16)
    }

    /// Offers of each tenant, relative to one another.
    fn tenant_weights(&self, phase: usize) -> Vec<f64> {
        let times = &self.scenario.phases[phase].tenants;
        let tenants = self.scenario.tenants.iter().enumerate();
        let weight =
            |(i, tenant): (usize, &TenantLoad)| tenant.share * times.get(i).unwrap_or(&1.0);
        tenants.map(weight).collect()
    }

    /// The key for 64 random bits.
    fn key(&self, bits: u64) -> u64 {
        if self.keys.is_empty() {
            return bits;
        }
        let at = (bits >> 11) as f64 / (1u64 << 53) as f64;
        mix64(self.keys.partition_point(|&share| share <= at) as u64)
    }

    /// The request as it is offered, and the priority it says it has.
    pub(super) fn request(&self, draw: &Draw) -> (Request, Priority) {
        let by_tier = priority_of(draw.tier, draw.key);
        let (request, priority) = match self.scenario.keys {
            Keys::Random => {
                let tenant = draw
                    .tenant
                    .map(|tenant| self.scenario.tenants[usize::from(tenant)]);
                let tier = tenant.and_then(|tenant| tenant.claims).unwrap_or(draw.tier);
                (Request::new(tier), priority_of(tier, draw.key))
            }
            Keys::OneLevel { priority } => {
                let priority = Priority::from_number(priority).unwrap_or(by_tier);
                (Request::at(priority), priority)
            }
            Keys::Untagged => {
                let tier = crate::config::DEFAULT_UNTAGGED_TIER;
                (Request::untagged(), priority_of(tier, draw.key))
            }
        };
        let mut request = request.key(draw.key);
        if let Some(tenant) = draw.tenant {
            request = request.tenant(Tenant(tenant.into()));
        }
        if self.scenario.clients.never_wait {
            request = request.max_wait(Duration::ZERO);
        }
        match self.tell(draw) {
            Tell::Nothing => {}
            Tell::Class => request = request.class(Class(draw.class)),
            Tell::Cost => {
                request = request.cost(self.units(self.class_mean_s[usize::from(draw.class)]));
            }
        }
        (request, priority)
    }

    /// What the request turned out to cost, if that is told.
    pub(super) fn done(&self, draw: &Draw) -> Done {
        let class = self.scenario.service.work.get(usize::from(draw.class));
        Done {
            cost: (self.tell(draw) != Tell::Nothing).then(|| self.units(draw.work_s)),
            outcome: match class.map_or(Ends::Success, |class| class.ends) {
                Ends::Success => Some(Outcome::Success),
                Ends::Failure => Some(Outcome::Failure),
                Ends::Overloaded => Some(Outcome::Overloaded),
                Ends::Abandoned => None,
            },
        }
    }

    fn tell(&self, draw: &Draw) -> Tell {
        let class = self.scenario.service.work.get(usize::from(draw.class));
        class.map_or(Tell::Nothing, |class| class.tell)
    }

    fn units(&self, work_s: f64) -> u32 {
        ((work_s / self.cost_unit_s).round() as u32).max(1)
    }

    /// One draw of the distribution with mean 1.
    fn scatter(&mut self) -> f64 {
        match self.scenario.service.shape {
            Shape::Constant => 1.0,
            Shape::Exponential => self.rng.exponential(1.0),
            Shape::Lognormal { cv } => {
                let variance = (1.0 + cv * cv).ln();
                (variance.sqrt() * self.rng.normal() - 0.5 * variance).exp()
            }
            Shape::Bimodal { share, times } => {
                let short = 1.0 / (1.0 - share + share * times);
                if self.rng.unit() < share {
                    short * times
                } else {
                    short
                }
            }
        }
    }

    fn take_open(&mut self, at_s: f64) -> f64 {
        self.left_in_batch -= 1;
        at_s
    }

    /// When the next open arrival comes: draws a batch if none is left. Poisson arrivals have no
    /// memory, so a gap that reaches beyond a change of the rate is drawn again at the next rate.
    fn next_open(&mut self) -> Option<f64> {
        if self.left_in_batch > 0 {
            return Some(self.at_s).filter(|&at_s| at_s < self.end_s());
        }
        let batch = match self.scenario.arrivals {
            Arrivals::Closed { .. } => return None,
            Arrivals::Batches { size } => size,
            Arrivals::Poisson | Arrivals::OnOff { .. } => 1,
        };
        while self.at_s < self.end_s() {
            let (rate, until_s) = self.segment(self.at_s);
            let gap_s = self.rng.exponential(f64::from(batch) / rate);
            if self.at_s + gap_s < until_s {
                self.at_s += gap_s;
                self.left_in_batch = batch;
                return Some(self.at_s);
            }
            self.at_s = until_s;
        }
        None
    }

    /// Open arrivals per second at this time, and until when.
    fn segment(&self, now_s: f64) -> (f64, f64) {
        let index = self.phase_at(now_s);
        let phase = &self.scenario.phases[index];
        let mut until_s = self.ends_s[index];
        let full = self.scenario.service.capacity_per_s();
        let base: f64 = self.mix(phase, now_s).iter().sum();
        let mut rate = full * phase.load * self.weights(phase, now_s).iter().sum::<f64>() / base;
        rate *= 1.0 + phase.hot;
        if !self.scenario.tenants.is_empty() {
            let usual: f64 = self
                .scenario
                .tenants
                .iter()
                .map(|tenant| tenant.share)
                .sum();
            rate *= self.tenant_weights(index).iter().sum::<f64>() / usual;
        }
        if let Arrivals::OnOff { on_s, off_s } = self.scenario.arrivals {
            let cycle_s = on_s + off_s;
            let cycle = (now_s / cycle_s).floor();
            // A boundary, computed, may lie a hair before the time that is meant to be past it.
            let on = now_s < cycle * cycle_s + on_s - 1e-9;
            let change_s = cycle * cycle_s + if on { on_s } else { cycle_s };
            until_s = until_s.min(change_s.max(now_s + 1e-9));
            rate *= if on { cycle_s / on_s } else { 0.0 };
        }
        if let Some((every_s, _)) = self.scenario.alternate {
            let change_s = ((now_s / every_s).floor() + 1.0) * every_s;
            until_s = until_s.min(change_s.max(now_s + 1e-9));
        }
        (rate, until_s)
    }

    fn mix(&self, phase: &'a Phase, now_s: f64) -> &'a [f64; TIERS] {
        match &self.scenario.alternate {
            Some((every_s, mix)) if (now_s / every_s).floor() % 2.0 == 1.0 => mix,
            _ => phase.mix.as_ref().unwrap_or(&self.scenario.mix),
        }
    }

    /// Offers per tier, relative to the mix.
    fn weights(&self, phase: &'a Phase, now_s: f64) -> [f64; TIERS] {
        let mut weights = *self.mix(phase, now_s);
        weights[3..]
            .iter_mut()
            .for_each(|weight| *weight *= phase.low_tiers);
        weights
    }
}

/// Of each key by Zipf's law, most frequent first, the share of all requests that go to it or to a more frequent one.
fn shares_of_keys(space: KeySpace) -> Vec<f64> {
    let mut sum = 0.0;
    let mut shares: Vec<f64> = (1..=space.keys)
        .map(|rank| {
            sum += f64::from(rank).powf(-space.exponent);
            sum
        })
        .collect();
    shares.iter_mut().for_each(|share| *share /= sum);
    // Rounding must not leave a gap at the end.
    if let Some(last) = shares.last_mut() {
        *last = 1.0;
    }
    shares
}
