//! When a refused caller should come back, and whether.
//!
//! Uber's second generation refused everyone at once and got everyone back at once. So the time is
//! spread by a hash over half to one and a half times its mean, and the mean is longer the less the
//! work matters and the more often it was tried.

use std::fmt;
use std::time::Duration;

use crate::sync::lone::{AtomicI64, Ordering};

use crate::priority::{Rank, mix64};
use crate::verdict::Reason;

/// Mean time a refused t0 request is asked to stay away on its first attempt. A step in load is
/// answered within some ticks of at most 20 ms, so 100 ms later the gate stands where it will stay.
pub const RETRY_AFTER_BASE: Duration = Duration::from_millis(100);
/// Attempts after which the wait no longer doubles: 2^6 times the base is 6.4 s for t0, 38 s for t5.
pub const RETRY_DOUBLINGS_MAX: u8 = 6;

/// Advice to a refused caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Try again after this time.
    After(Duration),
    /// Another instance may serve it; this one will not.
    Elsewhere,
    /// Do not try again: the answer would be worthless.
    Never,
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(wait) => write!(f, "retry after {} ms", wait.as_millis()),
            Self::Elsewhere => f.write_str("retry elsewhere"),
            Self::Never => f.write_str("do not retry"),
        }
    }
}

/// What a refusal says of trying again, before the reason and the tier have their say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Here, later.
    Wait,
    /// At another instance.
    Elsewhere,
    /// Not at all: more retries come than the lane bears.
    Never,
}

impl Advice {
    /// By number; what is not one means the last.
    pub(crate) const ALL: [Self; 16] = {
        let mut all = [Self::Never; 16];
        all[0] = Self::Wait;
        all[1] = Self::Elsewhere;
        all
    };
}

/// The advice for one refusal. `salt` spreads callers who were refused for the same reason.
pub(crate) fn advise(reason: Reason, advice: Advice, rank: Rank, attempt: u8, salt: u32) -> Retry {
    match (reason, advice) {
        (Reason::Hopeless, _) => Retry::Never,
        (Reason::Closed, _) => Retry::Elsewhere,
        (_, Advice::Never) => Retry::Never,
        // What its tenant or its key has run into, it runs into everywhere.
        (Reason::Shed | Reason::Busy | Reason::Evicted | Reason::Expired, Advice::Elsewhere) => {
            Retry::Elsewhere
        }
        _ => {
            let tier = rank.priority().tier().index() as f64;
            let doublings = i32::from(attempt.min(RETRY_DOUBLINGS_MAX));
            // 0.5..1.5 from the upper half of the hash.
            let jitter = 0.5 + (mix64(u64::from(salt)) >> 32) as f64 / f64::from(u32::MAX);
            Retry::After(RETRY_AFTER_BASE.mul_f64((1.0 + tier) * 2f64.powi(doublings) * jitter))
        }
    }
}

/// Retries that a lane bears, per first attempt: from a tenth on they are part of the trouble (Google's SRE book gives
/// each client that much), and those that are on their way when it says so come on top.
pub const RETRY_BUDGET: f64 = 0.09;
/// The memory of what came, seconds: a few waits of a refused caller, and shorter than a storm.
const SEEN_S: f64 = 2.0;
/// With fewer retries than this in that time there is no storm.
const STORM_RETRIES_MIN: f64 = 10.0;

/// What a lane may tell its callers of trying again: anything while few retries come, never once they are more than it
/// bears. So a storm of retries ends by itself, as far as callers do as they are told.
#[derive(Clone, Debug)]
pub(crate) struct ServerBudget {
    /// Of the last seconds, fading.
    firsts: f64,
    retries: f64,
    /// Arrivals that were no first attempt, and refusals that said never for that reason, ever.
    pub(crate) retried: u64,
    pub(crate) denied: u64,
}

impl ServerBudget {
    pub(crate) const fn new() -> Self {
        Self {
            firsts: 0.0,
            retries: 0.0,
            retried: 0,
            denied: 0,
        }
    }

    /// A request came.
    pub(crate) const fn arrived(&mut self, attempt: u8) {
        if attempt > 0 {
            self.retried += 1;
            self.retries += 1.0;
        } else {
            self.firsts += 1.0;
        }
    }

    /// So many requests came of which so many were later attempts; all of them were refused, or none.
    pub(crate) fn arrived_many(&mut self, requests: u64, retried: u64, refused: bool) {
        self.denied += if refused && self.storms() {
            requests
        } else {
            0
        };
        self.retried += retried;
        self.retries += retried as f64;
        self.firsts += requests.saturating_sub(retried) as f64;
    }

    /// So many seconds have passed.
    pub(crate) fn pass(&mut self, dt_s: f64) {
        let left = (-dt_s / SEEN_S).exp();
        self.firsts *= left;
        self.retries *= left;
    }

    /// Retries per first attempt in the last seconds.
    pub(crate) const fn share(&self) -> f64 {
        self.retries / self.firsts.max(1.0)
    }

    /// Whether more retries come than the lane bears.
    pub(crate) fn storms(&self) -> bool {
        self.retries >= STORM_RETRIES_MIN && self.retries > RETRY_BUDGET * self.firsts
    }

    /// Whether one who is refused now may be told to try again.
    pub(crate) fn grant(&mut self) -> bool {
        let storms = self.storms();
        self.denied += u64::from(storms);
        !storms
    }
}

/// Retries of one client, thousandths; see [`RetryBudget`].
const MILLI: i64 = 1_000;
/// A client keeps ten retries: a page of requests that fails at once may be tried again. (finagle allows ten a second in any case.)
const CLIENT_KEEPS: i64 = 10 * MILLI;
/// And gains a tenth of one with each request.
const CLIENT_GAINS: i64 = MILLI / 10;

/// The budget of a client: retries that it may make, for all requests that it makes. Keep one for each server that
/// is called, and share it between threads.
///
/// It begins with ten retries, keeps no more than that, and gains a tenth of one with each request. A server in trouble then sees a tenth more requests, not three times as many.
///
/// ```
/// use cinnamon_core::{Retry, RetryBudget};
///
/// let budget = RetryBudget::new();
/// budget.request(); // for each request, not for its retries
/// // … it was refused, and `rejected.retry()` says:
/// let advice = Retry::After(std::time::Duration::from_millis(80));
/// if let Some(wait) = budget.retry(advice) {
///     // wait, and try again
/// #   let _ = wait;
/// }
/// ```
#[derive(Debug)]
pub struct RetryBudget {
    milli: AtomicI64,
}

impl RetryBudget {
    /// A full one.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            milli: AtomicI64::new(CLIENT_KEEPS),
        }
    }

    /// A request is made for the first time.
    pub fn request(&self) {
        self.change(|milli| Some((milli + CLIENT_GAINS).min(CLIENT_KEEPS)));
    }

    /// Takes one retry, if the server's advice and the budget allow one, and says how long to wait before it: not at
    /// all before another instance is asked.
    pub fn retry(&self, advice: Retry) -> Option<Duration> {
        let wait = match advice {
            Retry::After(wait) => wait,
            Retry::Elsewhere => Duration::ZERO,
            Retry::Never => return None,
        };
        let taken = self.change(|milli| (milli >= MILLI).then_some(milli - MILLI));
        taken.then_some(wait)
    }

    fn change(&self, by: impl Fn(i64) -> Option<i64>) -> bool {
        // Nothing else is published with it.
        let order = Ordering::Relaxed;
        self.milli.fetch_update(order, order, by).is_ok()
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::priority::{Cohort, Priority, Tier};

    fn wait_ms(tier: Tier, attempt: u8, salt: u32) -> f64 {
        let rank = Rank::new(Priority::new(tier, Cohort::new(0).unwrap()), 0);
        match advise(Reason::Shed, Advice::Wait, rank, attempt, salt) {
            Retry::After(wait) => wait.as_secs_f64() * 1e3,
            other => panic!("{other:?}"),
        }
    }

    fn mean_ms(tier: Tier, attempt: u8) -> f64 {
        (0..1_000)
            .map(|salt| wait_ms(tier, attempt, salt))
            .sum::<f64>()
            / 1e3
    }

    #[test]
    fn less_important_and_repeated_work_stays_away_longer() {
        let means: Vec<f64> = Tier::ALL.iter().map(|&tier| mean_ms(tier, 0)).collect();
        assert!(means.windows(2).all(|pair| pair[0] < pair[1]), "{means:?}");
        assert!(mean_ms(Tier::T3, 1) > 1.8 * mean_ms(Tier::T3, 0));
        assert!(wait_ms(Tier::T5, 255, 3) < 60_000.0);
    }

    #[test]
    fn callers_refused_together_do_not_come_back_together() {
        let mut by_tenth = [0u32; 10];
        for salt in 0..10_000 {
            let share = wait_ms(Tier::T0, 0, salt) / 100.0 - 0.5;
            by_tenth[((share * 10.0) as usize).min(9)] += 1;
        }
        assert!(
            by_tenth.iter().all(|&n| (850..1150).contains(&n)),
            "{by_tenth:?}"
        );
    }

    #[test]
    fn who_is_refused_and_comes_back_at_once_makes_at_most_a_tenth_more_requests() {
        // Everybody is refused, and whoever may tries again at once, up to three times.
        let mut budget = ServerBudget::new();
        let (mut firsts, mut came) = (0u32, 0u32);
        let mut later: Vec<u8> = Vec::new();
        for _ in 0..1_000 {
            budget.pass(0.01);
            let mut now: Vec<u8> = std::mem::take(&mut later);
            now.extend([0; 10]);
            firsts += 10;
            for attempt in now {
                came += 1;
                budget.arrived(attempt);
                if budget.grant() && attempt < 3 {
                    later.push(attempt + 1);
                }
            }
        }
        let times = f64::from(came) / f64::from(firsts);
        assert!((1.05..=1.1).contains(&times), "{times}");
    }

    #[test]
    fn a_storm_of_those_who_do_not_obey_is_told_never_and_forgotten_when_it_is_over() {
        let mut budget = ServerBudget::new();
        for i in 0..4_000u32 {
            budget.arrived((i % 4) as u8);
            budget.pass(0.001);
        }
        assert!(!budget.grant(), "{budget:?}");
        assert_eq!((budget.retried, budget.denied), (3_000, 1));
        for _ in 0..10_000 {
            budget.arrived(0);
            budget.pass(0.001);
        }
        assert!(budget.grant(), "{budget:?}");
    }

    #[test]
    fn few_retries_are_no_storm() {
        let mut budget = ServerBudget::new();
        for _ in 0..9 {
            budget.arrived(1);
        }
        assert!(budget.grant() && budget.denied == 0);
        budget.arrived(1);
        assert!(!budget.grant());
    }

    #[test]
    fn a_client_obeys_the_server_and_its_own_budget() {
        let budget = RetryBudget::new();
        let wait = Duration::from_millis(5);
        assert_eq!(budget.retry(Retry::Never), None);
        assert_eq!(budget.retry(Retry::Elsewhere), Some(Duration::ZERO));
        for _ in 0..9 {
            assert_eq!(budget.retry(Retry::After(wait)), Some(wait));
        }
        assert_eq!(budget.retry(Retry::After(wait)), None);
        (0..10).for_each(|_| budget.request());
        assert_eq!(budget.retry(Retry::After(wait)), Some(wait));
        assert_eq!(budget.retry(Retry::After(wait)), None);
    }

    #[test]
    fn elsewhere_is_for_what_this_instance_has_run_into() {
        let rank = Rank::OPEN;
        let says = |reason, advice| advise(reason, advice, rank, 0, 1);
        assert_eq!(says(Reason::Shed, Advice::Elsewhere), Retry::Elsewhere);
        assert_eq!(says(Reason::Shed, Advice::Never), Retry::Never);
        assert_eq!(says(Reason::Closed, Advice::Never), Retry::Elsewhere);
        assert_eq!(says(Reason::Hopeless, Advice::Elsewhere), Retry::Never);
        assert!(matches!(
            says(Reason::Capped, Advice::Elsewhere),
            Retry::After(_)
        ));
    }
}
