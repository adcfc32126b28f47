//! What became of whom, request by request.

use cinnamon_core::Instant;
use cinnamon_core::simulation::{End, Fate, View, Witness};

/// Keeps every fate.
#[derive(Debug, Default)]
pub struct Look {
    /// In the order in which they ended.
    pub fates: Vec<Fate>,
    /// When somebody was first throttled, seconds.
    pub throttled_s: Option<f64>,
}

impl Witness for Look {
    fn ended(&mut self, fate: &Fate) {
        self.fates.push(*fate);
    }

    fn woken(&mut self, now: Instant, view: &View) {
        if view.throttled > 0 {
            self.throttled_s.get_or_insert(seconds(now));
        }
    }
}

/// Seconds since the start.
#[must_use]
pub fn seconds(at: Instant) -> f64 {
    at.as_nanos() as f64 * 1e-9
}

impl Look {
    /// Offers that came between two times and are of interest.
    pub fn between(
        &self,
        from_s: f64,
        to_s: f64,
        of: impl Fn(&Fate) -> bool,
    ) -> impl Iterator<Item = &Fate> {
        self.fates.iter().filter(move |fate| {
            let at_s = seconds(fate.offered_at);
            at_s >= from_s && at_s < to_s && of(fate)
        })
    }

    /// Share of these that were refused, at once or after waiting.
    pub fn refused(&self, from_s: f64, to_s: f64, of: impl Fn(&Fate) -> bool) -> f64 {
        share(self.between(from_s, to_s, of), |fate| {
            matches!(fate.end, End::Refused(_) | End::Lost(_))
        })
    }

    /// Share of these that were answered in time.
    pub fn good(&self, from_s: f64, to_s: f64, of: impl Fn(&Fate) -> bool) -> f64 {
        share(self.between(from_s, to_s, of), |fate| fate.end == End::Good)
    }

    /// The 99th percentile of the time from offer to answer of those that were answered, seconds.
    pub fn p99_s(&self, from_s: f64, to_s: f64, of: impl Fn(&Fate) -> bool) -> f64 {
        let answered = self.between(from_s, to_s, of);
        let answered = answered.filter(|fate| matches!(fate.end, End::Good | End::Late));
        let mut times: Vec<f64> = answered
            .map(|fate| seconds(fate.ended_at) - seconds(fate.offered_at))
            .collect();
        times.sort_by(f64::total_cmp);
        let index = (times.len() as f64 * 0.99) as usize;
        times.get(index).copied().unwrap_or(0.0)
    }

    /// Jain's index of what tenants got: 1 when all got the same.
    pub fn jain(&self, from_s: f64, to_s: f64, tenants: usize) -> f64 {
        let mut got = vec![0.0_f64; tenants];
        for fate in self.between(from_s, to_s, |fate| fate.end == End::Good) {
            if let Some(tenant) = fate.tenant {
                got[usize::from(tenant)] += fate.work_s;
            }
        }
        let sum: f64 = got.iter().sum();
        let squares: f64 = got.iter().map(|x| x * x).sum();
        if squares > 0.0 {
            sum * sum / (tenants as f64 * squares)
        } else {
            0.0
        }
    }
}

fn share<'a>(fates: impl Iterator<Item = &'a Fate>, is: impl Fn(&Fate) -> bool) -> f64 {
    let (mut all, mut such) = (0u64, 0u64);
    for fate in fates {
        all += 1;
        such += u64::from(is(fate));
    }
    such as f64 / all.max(1) as f64
}
