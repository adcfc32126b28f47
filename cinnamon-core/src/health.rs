//! Whether protected tiers are served, for load balancers and people.
//!
//! Not "is the limiter busy": shedding t4 is what it is there for. A node that sheds is *stressed*, and stays
//! in rotation; its weight falls with the share of protected work (t0, t1) that it refuses, never to nothing,
//! for the others have to take what it does not. It is *saturated* when protected work is refused for seconds on
//! end, or a canary fails. What is not known is no illness.
//!
//! | from | to | when, without a break for |
//! |---|---|---|
//! | healthy | stressed | something is refused, or headroom is under 0.20: 0.5 s |
//! | healthy | saturated | the canary failed: at once |
//! | stressed | saturated | over 1 % of the protected work is refused: 1 s; or the canary failed |
//! | saturated | stressed | less than that is, and the canary works: 3 s |
//! | stressed | healthy | nothing is refused and headroom is over 0.30: 3 s |

use serde::{Deserialize, Serialize};

use crate::metrics::VerdictCounts;
use crate::priority::Tier;
use crate::signal::selector::LaneFlow;
use crate::verdict::{AdmitKind, Reason, Verdict};

/// Headroom below which a node is stressed although it refuses nobody yet …
const HEADROOM_ENTER: f64 = 0.20;
/// … and above which it no longer is: apart, so that it does not flap between.
const HEADROOM_LEAVE: f64 = 0.30;
/// Memory of headroom and of the share of protected work that is refused.
const MEMORY_S: f64 = 1.0;
/// For so long things must be bad to count …
const ENTER_S: f64 = 0.5;
/// … protected work be refused …
const SATURATE_S: f64 = 1.0;
/// … and things be good again: six times as long as it took to see that they were bad, for traffic that comes
/// back at once is how a node falls over again.
const LEAVE_S: f64 = 3.0;
/// Share of the protected work that may be refused by accident.
const AT_RISK_MIN: f64 = 0.01;
/// A weight never falls below this: a node that gets nothing shows nothing, and the others get it all.
pub const WEIGHT_MIN: u8 = 10;

/// How a node is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum HealthState {
    /// Everybody is served.
    #[default]
    Healthy,
    /// Less important work is refused, or little more would have to be; protected work is served.
    Stressed,
    /// Protected work is refused, or the canary failed.
    Saturated,
}

impl HealthState {
    pub(crate) const ALL: [Self; 3] = [Self::Healthy, Self::Stressed, Self::Saturated];

    /// The word used in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Stressed => "stressed",
            Self::Saturated => "saturated",
        }
    }
}

/// How a node is, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// In one word.
    pub state: HealthState,
    /// The least of what is left of each dimension (each lane's capacity, each signal's target), smoothed, 0..=1.
    pub headroom: f64,
    /// For a load balancer, [`WEIGHT_MIN`]..=100: falls with the share of protected work that is refused.
    pub weight: u8,
    /// That share, smoothed, 0..=1.
    pub protected_refused: f64,
    /// Offered over capacity in the fullest lane: what an autoscaler should see, for what is let in hides it. 0
    /// while no capacity is known.
    pub demand: f64,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            state: HealthState::Healthy,
            headroom: 1.0,
            weight: 100,
            protected_refused: 0.0,
            demand: 0.0,
        }
    }
}

/// Requests of t0 and t1 that were answered, and those of them that were refused for want of capacity, or by an override; and
/// refusals of any tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusals {
    pub(crate) protected: u64,
    pub(crate) protected_refused: u64,
    pub(crate) refused: u64,
}

impl Refusals {
    /// Takes in what a lane has counted by now, and adds what is new to `sum` if it `counts`: what would be refused
    /// is refused to nobody.
    pub(crate) fn take(&mut self, verdicts: &VerdictCounts, counts: bool, sum: &mut Self) {
        let mut now = Self::default();
        now.add(verdicts);
        let before = std::mem::replace(self, now);
        if counts {
            sum.protected += now.protected - before.protected;
            sum.protected_refused += now.protected_refused - before.protected_refused;
            sum.refused += now.refused - before.refused;
        }
    }

    /// Adds what a lane counted. A deadline that had passed, and a closed lane, say nothing of capacity.
    pub(crate) fn add(&mut self, verdicts: &VerdictCounts) {
        const OVERLOAD: [Reason; 4] =
            [Reason::Shed, Reason::Busy, Reason::Evicted, Reason::Expired];
        for tier in Tier::ALL {
            let count = |verdict| verdicts.get(tier, verdict);
            let refused: u64 = OVERLOAD.iter().map(|&r| count(Verdict::Refuse(r))).sum();
            self.refused += refused;
            if tier <= Tier::T1 {
                self.protected_refused += refused;
                self.protected += refused + count(Verdict::Admit(AdmitKind::Slot));
            }
        }
    }
}

/// Watches over time.
#[derive(Debug, Default)]
pub(crate) struct Nurse {
    health: Health,
    seen: Refusals,
    bad_s: f64,
    good_s: f64,
    canary_failed: bool,
}

impl Nurse {
    pub(crate) const fn health(&self) -> Health {
        self.health
    }

    pub(crate) fn canary(&mut self, works: bool) {
        self.canary_failed = !works;
    }

    /// One step of `dt_s` seconds. `pressures` are those of the signals that have a say.
    pub(crate) fn tick(
        &mut self,
        dt_s: f64,
        refusals: Refusals,
        lanes: &[LaneFlow],
        pressures: impl Iterator<Item = f64>,
    ) {
        let gain = 1.0 - (-dt_s / MEMORY_S).exp();
        let known = lanes.iter().filter(|lane| lane.capacity > 0.0);
        let demands = known.map(|lane| lane.offered / lane.capacity);
        self.health.demand = demands.fold(0.0, f64::max);
        let fullest = pressures.fold(self.health.demand, f64::max);
        let headroom = (1.0 - fullest).clamp(0.0, 1.0);
        self.health.headroom += gain * (headroom - self.health.headroom);

        let before = std::mem::replace(&mut self.seen, refusals);
        let since = |of: fn(&Refusals) -> u64| of(&refusals).saturating_sub(of(&before)) as f64;
        let protected = since(|r| r.protected);
        let share = if protected > 0.0 {
            since(|r| r.protected_refused) / protected
        } else {
            0.0
        };
        self.health.protected_refused += gain * (share - self.health.protected_refused);
        let at_risk = self.health.protected_refused;
        let weight = (100.0 * (1.0 - at_risk)).round() as u8;
        self.health.weight = weight.clamp(WEIGHT_MIN, 100);

        let sheds = since(|r| r.refused) > 0.0;
        let fails = self.canary_failed || at_risk > AT_RISK_MIN;
        let (bad, after_s, good) = match self.health.state {
            HealthState::Healthy => (
                sheds || fails || self.health.headroom < HEADROOM_ENTER,
                ENTER_S,
                false,
            ),
            HealthState::Stressed => (
                fails,
                if self.canary_failed { 0.0 } else { SATURATE_S },
                !sheds && !fails && self.health.headroom > HEADROOM_LEAVE,
            ),
            HealthState::Saturated => (false, 0.0, !fails),
        };
        self.bad_s = if bad { self.bad_s + dt_s } else { 0.0 };
        self.good_s = if good { self.good_s + dt_s } else { 0.0 };
        let state = match self.health.state {
            HealthState::Healthy if self.canary_failed => HealthState::Saturated,
            HealthState::Healthy if bad && self.bad_s >= after_s => HealthState::Stressed,
            HealthState::Stressed if bad && self.bad_s >= after_s => HealthState::Saturated,
            HealthState::Stressed if self.good_s >= LEAVE_S => HealthState::Healthy,
            HealthState::Saturated if self.good_s >= LEAVE_S => HealthState::Stressed,
            same => same,
        };
        if state != self.health.state {
            self.health.state = state;
            (self.bad_s, self.good_s) = (0.0, 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ward {
        nurse: Nurse,
        refusals: Refusals,
    }

    impl Ward {
        fn new() -> Self {
            Self {
                nurse: Nurse::default(),
                refusals: Refusals::default(),
            }
        }

        /// So many seconds at this load, of whose protected work, and of whose rest, this share is refused.
        fn run(&mut self, seconds: f64, load: f64, protected: f64, rest: f64) -> HealthState {
            let lanes = [LaneFlow {
                offered: load * 1_000.0,
                capacity: 1_000.0,
                ..LaneFlow::default()
            }];
            for _ in 0..(seconds / 0.02) as u32 {
                self.refusals.protected += 100;
                self.refusals.protected_refused += (100.0 * protected) as u64;
                self.refusals.refused += (100.0 * (protected + rest)) as u64;
                self.nurse
                    .tick(0.02, self.refusals, &lanes, std::iter::empty());
            }
            self.nurse.health().state
        }
    }

    #[test]
    fn shedding_the_least_important_is_stress_at_full_weight() {
        let mut ward = Ward::new();
        assert_eq!(ward.run(5.0, 0.7, 0.0, 0.0), HealthState::Healthy);
        assert_eq!(
            ward.run(0.4, 2.0, 0.0, 0.5),
            HealthState::Healthy,
            "too short"
        );
        assert_eq!(ward.run(60.0, 2.0, 0.0, 0.5), HealthState::Stressed);
        let health = ward.nurse.health();
        assert_eq!((health.weight, health.demand), (100, 2.0));
        assert_eq!(
            ward.run(2.0, 0.5, 0.0, 0.0),
            HealthState::Stressed,
            "not at once"
        );
        assert_eq!(ward.run(3.0, 0.5, 0.0, 0.0), HealthState::Healthy);
    }

    #[test]
    fn refused_protected_work_saturates_and_moves_the_weight_but_never_to_nothing() {
        let mut ward = Ward::new();
        assert_eq!(ward.run(3.0, 5.0, 0.4, 1.0), HealthState::Saturated);
        assert!((60..=64).contains(&ward.nurse.health().weight));
        ward.run(10.0, 50.0, 1.0, 1.0);
        assert_eq!(ward.nurse.health().weight, WEIGHT_MIN);
        assert_eq!(ward.run(9.0, 2.0, 0.0, 0.5), HealthState::Stressed);
        assert_eq!(ward.nurse.health().weight, 100);
    }

    #[test]
    fn little_headroom_is_stress_before_anybody_is_refused_and_does_not_flap() {
        let mut ward = Ward::new();
        assert_eq!(ward.run(10.0, 0.85, 0.0, 0.0), HealthState::Stressed);
        assert_eq!(
            ward.run(60.0, 0.75, 0.0, 0.0),
            HealthState::Stressed,
            "between"
        );
        assert_eq!(ward.run(10.0, 0.65, 0.0, 0.0), HealthState::Healthy);
        assert_eq!(ward.run(60.0, 0.75, 0.0, 0.0), HealthState::Healthy);
    }

    #[test]
    fn a_failed_canary_saturates_at_once_and_ignorance_is_health() {
        let mut nurse = Nurse::default();
        for _ in 0..1_000 {
            nurse.tick(
                0.02,
                Refusals::default(),
                &[LaneFlow::default()],
                std::iter::empty(),
            );
        }
        assert_eq!(nurse.health().state, HealthState::Healthy);
        nurse.canary(false);
        nurse.tick(0.02, Refusals::default(), &[], std::iter::empty());
        assert_eq!(nurse.health().state, HealthState::Saturated);
        nurse.canary(true);
        for _ in 0..200 {
            nurse.tick(0.02, Refusals::default(), &[], std::iter::empty());
        }
        assert_eq!(nurse.health().state, HealthState::Stressed);
    }

    #[test]
    fn a_signal_at_its_target_leaves_no_headroom() {
        let mut nurse = Nurse::default();
        for _ in 0..500 {
            nurse.tick(0.02, Refusals::default(), &[], [0.3, 1.0].into_iter());
        }
        assert!(nurse.health().headroom < 0.01);
        assert_eq!(nurse.health().state, HealthState::Stressed);
    }
}
