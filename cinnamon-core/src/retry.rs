//! When a refused caller should come back.
//!
//! Uber's second generation refused everyone at once and got everyone back at once. So the time is
//! spread by a hash over half to one and a half times its mean, and the mean is longer the less the
//! work matters and the more often it was tried.

use std::fmt;
use std::time::Duration;

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

/// The advice for one refusal. `salt` spreads callers who were refused for the same reason.
pub(crate) fn advise(reason: Reason, rank: Rank, attempt: u8, salt: u32) -> Retry {
    match reason {
        Reason::Hopeless => Retry::Never,
        Reason::Closed => Retry::Elsewhere,
        Reason::Shed | Reason::Busy | Reason::Evicted | Reason::Expired | Reason::Capped => {
            let tier = rank.priority().tier().index() as f64;
            let doublings = i32::from(attempt.min(RETRY_DOUBLINGS_MAX));
            // 0.5..1.5 from the upper half of the hash.
            let jitter = 0.5 + (mix64(u64::from(salt)) >> 32) as f64 / f64::from(u32::MAX);
            Retry::After(RETRY_AFTER_BASE.mul_f64((1.0 + tier) * 2f64.powi(doublings) * jitter))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::priority::{Cohort, Priority, Tier};

    fn wait_ms(tier: Tier, attempt: u8, salt: u32) -> f64 {
        let rank = Rank::new(Priority::new(tier, Cohort::new(0).unwrap()), 0);
        match advise(Reason::Shed, rank, attempt, salt) {
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
}
