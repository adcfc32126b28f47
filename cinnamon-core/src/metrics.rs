//! What can be seen: [`Snapshot`], plain data with the unit last in each name.

use serde::Serialize;

use crate::codel::CodelState;
use crate::health::Health;
use crate::histogram::Histogram;
use crate::limiter::LimitChange;
use crate::overrides::OverrideSnapshot;
use crate::priority::{TIERS, Tier};
use crate::request::Tenant;
use crate::signal::{Mode, SignalSnapshot, Who};
use crate::verdict::{AdmitKind, Binding, Reason, Verdict};

/// Verdicts of a lane since it was built, by tier. Sums of rows and columns are exact: every offered
/// request is counted once, in one cell, or still waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerdictCounts {
    counts: [[u64; Verdict::COUNT]; TIERS],
}

impl VerdictCounts {
    pub(crate) fn count(&mut self, tier: Tier, verdict: Verdict) {
        self.counts[tier.index()][verdict.index()] += 1;
    }

    pub(crate) fn count_many(&mut self, tier: Tier, verdict: Verdict, requests: u64) {
        self.counts[tier.index()][verdict.index()] += requests;
    }

    /// Requests of this tier that got this verdict.
    #[must_use]
    pub const fn get(&self, tier: Tier, verdict: Verdict) -> u64 {
        self.counts[tier.index()][verdict.index()]
    }

    /// Requests of all tiers that got this verdict.
    #[must_use]
    pub fn total(&self, verdict: Verdict) -> u64 {
        self.counts.iter().map(|row| row[verdict.index()]).sum()
    }

    /// Requests admitted, however they run.
    #[must_use]
    pub fn admitted(&self) -> u64 {
        let kinds = [AdmitKind::Slot, AdmitKind::Exempt, AdmitKind::Open];
        kinds
            .iter()
            .map(|&kind| self.total(Verdict::Admit(kind)))
            .sum()
    }

    /// Requests refused, for whatever reason.
    #[must_use]
    pub fn refused(&self) -> u64 {
        Reason::ALL
            .iter()
            .map(|&reason| self.total(Verdict::Refuse(reason)))
            .sum()
    }

    /// All verdicts given.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.counts.iter().flatten().sum()
    }

    /// Every verdict that occurred, by tier, with its word and its count.
    pub fn iter(&self) -> impl Iterator<Item = (Tier, &'static str, u64)> {
        let named = [
            (Verdict::Admit(AdmitKind::Slot), "admit_slot"),
            (Verdict::Admit(AdmitKind::Exempt), "admit_exempt"),
            (Verdict::Admit(AdmitKind::Open), "admit_open"),
            (Verdict::Cancel, "cancel"),
        ];
        let refusals = Reason::ALL.map(|reason| (Verdict::Refuse(reason), reason.as_str()));
        let all: Vec<_> = named.into_iter().chain(refusals).collect();
        Tier::ALL
            .into_iter()
            .flat_map(move |tier| {
                all.clone()
                    .into_iter()
                    .map(move |(verdict, word)| (tier, verdict, word))
            })
            .map(|(tier, verdict, word)| (tier, word, self.get(tier, verdict)))
            .filter(|(_, _, count)| *count > 0)
    }
}

impl Serialize for VerdictCounts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Cell {
            tier: Tier,
            verdict: &'static str,
            requests: u64,
        }
        serializer.collect_seq(self.iter().map(|(tier, verdict, requests)| Cell {
            tier,
            verdict,
            requests,
        }))
    }
}

/// Work that a lane's gate refused for one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShedWork {
    /// What held the gate.
    pub cause: Binding,
    /// The same as a word: `backlog`, `override`, or the signal's name.
    pub by: String,
    /// Cost refused so far, work units.
    pub cost: u64,
}

/// What a tenant claimed of one lane since it was built, and what became of it: who is honest can be seen from it. See
/// [`Controller::tenants`](crate::Controller::tenants).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TenantSnapshot {
    /// The lane's name.
    pub lane: String,
    /// Who; `None` for all together of whom no account is kept.
    pub tenant: Option<Tenant>,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Requests running in slots.
    pub running: u32,
    /// Requests waiting.
    pub waiting: u32,
    /// Requests offered.
    pub offered: u64,
    /// Cost offered by the tier that was claimed, t0 first; untagged work counts under the tier it got.
    pub claimed_cost: [u64; TIERS],
    /// Cost that ran, or was refused, in a lower tier than it claimed.
    pub demoted_cost: u64,
    /// Requests refused for its cap.
    pub capped: u64,
}

/// A tenant or a key that is throttled, because a signal named it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ThrottleSnapshot {
    /// Who.
    pub who: Who,
    /// The signal, by name.
    pub by: String,
    /// Its share of the load when it was named last.
    pub share: f64,
    /// Cost per second that is let in.
    pub rate_per_s: f64,
    /// Cost per second that comes.
    pub offered_per_s: f64,
    /// Cost refused so far.
    pub refused_cost: u64,
}

/// The controller at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The controller's name.
    pub name: String,
    /// The lanes, in the order of the settings.
    pub lanes: Vec<LaneSnapshot>,
    /// The signals, in the order in which they were given to the builder.
    pub signals: Vec<SignalSnapshot>,
    /// Whether decisions count, for all lanes.
    pub mode: Mode,
    /// What is forced upon the controller for a time.
    pub overrides: Vec<OverrideSnapshot>,
    /// What is wrong with the override file, if anything is.
    pub override_file_error: Option<String>,
    /// Who is throttled, because a signal named them.
    pub throttles: Vec<ThrottleSnapshot>,
    /// Whether protected tiers are served.
    pub health: Health,
    /// Control steps taken.
    pub ticks: u64,
    /// Control steps that came later than one period after they were due.
    pub ticks_late: u64,
    /// Whether the control thread's step panicked, or a lane's engine did; such lanes admit all.
    pub failed: bool,
    /// Whether the controller was closed or is draining.
    pub closed: bool,
}

impl Snapshot {
    /// The lane of this name.
    #[must_use]
    pub fn lane(&self, name: &str) -> Option<&LaneSnapshot> {
        self.lanes.iter().find(|lane| lane.name == name)
    }

    /// The signal of this name.
    #[must_use]
    pub fn signal(&self, name: &str) -> Option<&SignalSnapshot> {
        self.signals.iter().find(|signal| signal.name == name)
    }
}

/// One lane at one moment. Cost is in work units.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LaneSnapshot {
    /// Its name.
    pub name: String,
    /// Whether its decisions count: the lesser of its own mode and the controller's. Under
    /// [`Mode::Monitor`] slots, waiters and verdicts are what they would be.
    pub mode: Mode,
    /// Slots.
    pub limit: u32,
    /// Requests that hold a slot; above the limit for a while after it was lowered.
    pub in_use: u32,
    /// The least that the limit may become by itself; the limit while it is fixed.
    pub limit_min: u32,
    /// The most that it may become by itself.
    pub limit_max: u32,
    /// What decides on the limit: `fixed`, or the name of a [`Limiter`](crate::Limiter).
    pub limit_rule: String,
    /// The limit is another for a moment, to see what that does.
    pub limit_trial: bool,
    /// How often the limit changed for good.
    pub limit_moves: u64,
    /// … the last time, and why.
    pub limit_moved: Option<LimitChange>,
    /// Free slots, `limit - in_use`, 0 while above the limit.
    pub free: u32,
    /// Requests running without a slot because they are exempt.
    pub exempt_in_use: u32,
    /// Requests running without a slot because decisions do not count, or the controller has failed.
    pub open_in_use: u32,
    /// Of [`in_use`](Self::in_use), those that hold a slot only in the shadow of [`Mode::Monitor`]; in truth
    /// they run without one, or are done.
    pub shadow_in_use: u32,
    /// Of [`waiting`](Self::waiting), those that wait only there.
    pub shadow_waiting: u32,
    /// Requests that hold a slot, by tier.
    pub in_use_by_tier: [u32; TIERS],
    /// Requests waiting.
    pub waiting: u32,
    /// Requests waiting, by tier.
    pub waiting_by_tier: [u32; TIERS],
    /// Most requests that ever waited at once.
    pub waiting_peak: u32,
    /// Their cost.
    pub waiting_cost: u64,
    /// Bytes that waiting requests hold, by their own account.
    pub waiting_bytes: u64,
    /// Requests offered so far; equals `verdicts.sum() + waiting`.
    pub offered: u64,
    /// Offered requests that did not say their importance.
    pub untagged: u64,
    /// Offered requests that had come before: later attempts.
    pub retried: u64,
    /// Later attempts per first attempt, over the last seconds; above
    /// [`RETRY_BUDGET`](crate::RETRY_BUDGET) nobody is told to try again.
    pub retry_share: f64,
    /// Refusals that said "do not retry" because more retries came than the lane bears.
    pub retry_denied: u64,
    /// Verdicts by tier.
    pub verdicts: VerdictCounts,
    /// Cost that the gate refused, by what held it then.
    pub shed: Vec<ShedWork>,
    /// How long those who got a slot had waited for it.
    pub waited: Histogram,
    /// How long slots were held. Of a lane with thousands a second one in sixteen or fewer is timed, and counts as so many.
    pub served: Histogram,
    /// Whether the gate is engaged; dormant otherwise.
    pub engaged: bool,
    /// For how long the gate was ever held, by whatever, seconds.
    pub engaged_s: f64,
    /// The gate's threshold, such as `t3.64+0.25`, or `open`.
    pub threshold: String,
    /// The threshold on the scale 0 (nothing admitted) to 768 (open).
    pub threshold_levels: f64,
    /// What holds it there.
    pub binding: Binding,
    /// The same in words, with the name of the lane or the signal.
    pub bound_by: String,
    /// Admitted cost per second that the law allows; `None` while the gate is open.
    pub budget_per_s: Option<f64>,
    /// `C`: cost per second that the lane can serve, 0 while unknown.
    pub capacity_per_s: f64,
    /// `A`: cost per second offered.
    pub offered_per_s: f64,
    /// `W`: the backlog, seconds of work.
    pub wait_s: f64,
    /// `W*`: its target.
    pub wait_target_s: f64,
    /// The law's error, -1..=1.
    pub error: f64,
    /// The proportional term.
    pub p: f64,
    /// The integral term.
    pub i: f64,
    /// The derivative term.
    pub d: f64,
    /// CoDel's state.
    pub codel: CodelState,
    /// Whether the newest of a tier is served first now.
    pub newest_first: bool,
    /// The longest anybody may wait now, seconds; while not engaged it is for requests without a
    /// deadline or patience of their own.
    pub timeout_s: f64,
    /// Mean service time, seconds.
    pub service_mean_s: f64,
    /// Median service time, seconds.
    pub service_p50_s: f64,
    /// 90th percentile of the service time, seconds.
    pub service_p90_s: f64,
    /// Whether the lane's engine panicked: it admits everything until it is rebuilt, and what this
    /// snapshot says of its engine is how things stood when it did.
    pub failed: bool,
    /// Requests running that a failed lane admitted without its engine.
    pub failed_open_in_use: u32,
    /// Requests that a failed lane ever admitted without its engine.
    pub failed_open: u64,
}
