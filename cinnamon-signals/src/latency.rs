//! What latency says of a firing: [`Latency`], and the arithmetic of [`ConfirmedBy`](crate::ConfirmedBy).

use std::time::Duration;

use cinnamon_core::{Instant, Scope, View};

use crate::setting::{SettingError, within};

/// The fast mean must be so many times the slow one. LinkedIn's Hodor has such a factor and does not tell it; at
/// 1.5 a store whose latency scatters by a third from second to second confirms nothing by itself.
pub const DEFAULT_CONFIRM_FACTOR: f64 = 1.5;
/// Time constant of the fast mean: shorter than the shortest firing, longer than a pause of some hundred milliseconds.
pub const CONFIRM_FAST: Duration = Duration::from_secs(2);
/// Time constant of the slow one: a minute of usual days.
pub const CONFIRM_SLOW: Duration = Duration::from_secs(60);

/// Until the slow mean is made of so much it is no yardstick, and confirms nothing: the first requests of a process
/// are not like the others.
const LEAST_S: f64 = 10.0;
/// While latency is raised the slow mean learns so many times more slowly: an incident of minutes must not become its
/// own yardstick, and what is slower for good must become one.
const RAISED_SLOWNESS: f64 = 10.0;
/// After so long without a look what was seen is another time's.
const GAP: Duration = Duration::from_secs(30);
/// Least and greatest factor: less is within the scatter of a usual day, more no overload shows.
const FACTORS: std::ops::RangeInclusive<f64> = 1.05..=100.0;

/// How long requests take now: what confirms the firing of a detector that only infers.
///
/// A closure that returns seconds is one, and so is [`LaneLatency`].
pub trait Latency: Send {
    /// Seconds, over the last second or so; nothing when it is not known or nothing was done.
    fn latency_s(&mut self, now: Instant, view: &View) -> Option<f64>;
}

impl<F: FnMut() -> Option<f64> + Send> Latency for F {
    fn latency_s(&mut self, _now: Instant, _view: &View) -> Option<f64> {
        self()
    }
}

impl Latency for Box<dyn Latency> {
    fn latency_s(&mut self, now: Instant, view: &View) -> Option<f64> {
        (**self).latency_s(now, view)
    }
}

/// The latency of the controller's own lanes: mean service time and backlog, weighted by what each of them lets in.
///
/// It is what the requests feel of this node, and it costs nothing beside the view that a signal gets anyway. A lane that
/// serves nothing at the moment has no weight. It does not see time that requests spend before they are offered.
#[derive(Clone, Debug, Default)]
pub struct LaneLatency {
    scope: Scope,
}

impl LaneLatency {
    /// Of all lanes.
    #[must_use]
    pub const fn new() -> Self {
        Self { scope: Scope::All }
    }

    /// Of these lanes.
    #[must_use]
    pub const fn of(scope: Scope) -> Self {
        Self { scope }
    }
}

impl Latency for LaneLatency {
    fn latency_s(&mut self, _now: Instant, view: &View) -> Option<f64> {
        let lanes = view.lanes.iter().filter(|lane| self.scope.covers(lane));
        let (mut sum, mut weights) = (0.0, 0.0);
        for lane in lanes.filter(|lane| lane.service_mean_s > 0.0) {
            sum += lane.admitted_per_s * (lane.service_mean_s + lane.wait_s);
            weights += lane.admitted_per_s;
        }
        (weights > 0.0).then(|| sum / weights)
    }
}

/// A fast mean over a slow mean times a factor.
#[derive(Clone, Debug)]
pub(crate) struct Confirmation {
    factor: f64,
    fast_s: f64,
    slow_s: f64,
    /// What the slow mean is made of, seconds.
    age_s: f64,
    seen_at: Option<Instant>,
    raised: bool,
}

impl Confirmation {
    pub(crate) const fn new() -> Self {
        Self {
            factor: DEFAULT_CONFIRM_FACTOR,
            fast_s: 0.0,
            slow_s: 0.0,
            age_s: 0.0,
            seen_at: None,
            raised: false,
        }
    }

    pub(crate) fn set_factor(&mut self, factor: f64) -> Result<(), SettingError> {
        self.factor = within("confirm_factor", factor, FACTORS, "from 1.05 to 100")?;
        Ok(())
    }

    /// Whether latency is raised, after this look at it.
    pub(crate) fn look(&mut self, now: Instant, latency_s: Option<f64>) -> bool {
        let Some(latency_s) = latency_s.filter(|s| s.is_finite() && *s >= 0.0) else {
            // It was raised when it was last seen, or it was not; but not for ever.
            let lost = self.seen_at.is_none_or(|at| now.since(at) > GAP);
            return self.raised && !lost;
        };
        let since = self.seen_at.filter(|at| now >= *at);
        let dt_s = since.map(|at| now.since(at));
        self.seen_at = Some(now);
        match dt_s {
            Some(dt) if dt <= GAP => self.learn(dt.as_secs_f64(), latency_s),
            _ => {
                *self = Self {
                    factor: self.factor,
                    fast_s: latency_s,
                    slow_s: latency_s,
                    seen_at: Some(now),
                    ..Self::new()
                }
            }
        }
        self.raised = self.age_s >= LEAST_S && self.fast_s > self.factor * self.slow_s;
        self.raised
    }

    fn learn(&mut self, dt_s: f64, latency_s: f64) {
        let gain = |tau_s: f64| 1.0 - (-dt_s / tau_s).exp();
        self.fast_s += gain(CONFIRM_FAST.as_secs_f64()) * (latency_s - self.fast_s);
        let slowness = if self.raised { RAISED_SLOWNESS } else { 1.0 };
        self.age_s += dt_s;
        // The plain mean while it is young.
        let tau_s = CONFIRM_SLOW.as_secs_f64().min(self.age_s) * slowness;
        self.slow_s += gain(tau_s) * (latency_s - self.slow_s);
    }

    /// Both means, for people.
    pub(crate) fn text(&self) -> String {
        format!(
            "latency {:.3} ms, usually {:.3} ms",
            self.fast_s * 1e3,
            self.slow_s * 1e3
        )
    }
}

#[cfg(test)]
mod tests {
    use cinnamon_core::LaneView;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(ms))
    }

    /// So many seconds of this latency, ten looks a second; how many of them found it raised.
    fn run(confirmation: &mut Confirmation, ms: &mut u64, seconds: u64, latency_s: f64) -> usize {
        let mut look = || {
            *ms += 100;
            confirmation.look(at(*ms), Some(latency_s))
        };
        (0..10 * seconds).filter(|_| look()).count()
    }

    #[test]
    fn it_is_raised_within_seconds_and_for_as_long_as_an_incident_lasts() {
        let (mut confirmation, mut ms) = (Confirmation::new(), 0);
        assert_eq!(run(&mut confirmation, &mut ms, 60, 0.010), 0);
        let raised = run(&mut confirmation, &mut ms, 10, 0.030);
        assert!((90..100).contains(&raised), "{raised}");
        // Five minutes later it still is.
        assert!(run(&mut confirmation, &mut ms, 300, 0.030) > 2_900);
        let after = run(&mut confirmation, &mut ms, 30, 0.010);
        assert!(after < 60, "{after}");
    }

    #[test]
    fn what_is_slower_for_good_becomes_the_yardstick() {
        let (mut confirmation, mut ms) = (Confirmation::new(), 0);
        run(&mut confirmation, &mut ms, 60, 0.010);
        run(&mut confirmation, &mut ms, 3_600, 0.030);
        assert_eq!(run(&mut confirmation, &mut ms, 60, 0.030), 0);
    }

    #[test]
    fn a_pause_and_a_young_process_do_not_confirm() {
        let (mut confirmation, mut ms) = (Confirmation::new(), 0);
        run(&mut confirmation, &mut ms, 5, 0.001);
        assert_eq!(run(&mut confirmation, &mut ms, 4, 0.030), 0, "too young");
        let (mut confirmation, mut ms) = (Confirmation::new(), 0);
        run(&mut confirmation, &mut ms, 60, 0.010);
        // Half a second at twice the latency.
        for _ in 0..5 {
            ms += 100;
            assert!(!confirmation.look(at(ms), Some(0.020)));
        }
    }

    #[test]
    fn what_is_not_known_teaches_nothing_and_is_not_remembered_for_ever() {
        let (mut confirmation, mut ms) = (Confirmation::new(), 0);
        run(&mut confirmation, &mut ms, 60, 0.010);
        run(&mut confirmation, &mut ms, 10, 0.050);
        for bad in [None, Some(f64::NAN), Some(f64::INFINITY), Some(-1.0)] {
            assert!(confirmation.look(at(ms), bad), "it was raised a moment ago");
        }
        assert!(!confirmation.look(at(ms + 31_000), None));
        assert!(!confirmation.look(at(ms + 60_000), Some(9.0)), "begun anew");
        assert!(!confirmation.look(at(0), Some(9.0)), "a clock set back");
    }

    #[test]
    fn lanes_weigh_by_what_they_let_in() {
        let mut read = LaneView::new("read", "disk");
        read.admitted_per_s = 300.0;
        read.service_mean_s = 0.001;
        let mut write = LaneView::new("write", "disk");
        write.admitted_per_s = 100.0;
        write.service_mean_s = 0.010;
        write.wait_s = 0.003;
        let view = View::of(vec![read, write, LaneView::new("idle", "disk")]);
        let mut all = LaneLatency::new();
        let mean_s = (0.3 + 1.3) / 400.0;
        let latency_s = all.latency_s(Instant::ZERO, &view).unwrap();
        assert!((latency_s - mean_s).abs() < 1e-12);
        let idle = LaneLatency::of(Scope::Lane("idle".to_owned())).latency_s(at(0), &view);
        assert_eq!(idle, None);
    }
}
