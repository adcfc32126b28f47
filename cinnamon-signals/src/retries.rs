//! Requests that come again: [`Retries`].

use std::ops::RangeInclusive;
use std::time::Duration;

use cinnamon_core::{Authority, Dynamics, Instant, Reading, Remedy, Signal, View};

use crate::common::{Common, common_answers, common_setters};
use crate::least::Least;
use crate::setting::{SettingError, within};
use crate::share::ShareWindow;

/// Share of later attempts at pressure 1.0: what budgets of retries grant on a usual day (gRPC, Finagle, and a lane's own).
pub const DEFAULT_RETRY_SHARE: f64 = 0.1;
/// Requests that a share is taken over, at least; missing ones count as first attempts. Of a hundred a tenth can be told
/// from chance.
pub const RETRY_OFFERS: u32 = 100;
/// The least share within this counts. What a pause of 400 ms makes callers try again is out of sight after a second and a half.
pub const RETRY_WINDOW: Duration = Duration::from_secs(3);

/// The time constant it declares: the window of a share, and as much again.
const TAU: Duration = Duration::from_secs(2);
/// Half of the window in which the least counts.
const DELAY: Duration = Duration::from_millis(1_500);
/// Least and greatest target: one in a hundred, and one in two, which is everybody's second attempt.
const TARGET_SHARE: RangeInclusive<f64> = 0.01..=0.5;

/// The share of offered requests that came before: later attempts, against a target share.
///
/// - **Measures** requests with an [`attempt`](cinnamon_core::Request::attempt) over 0 among all that are offered to the lanes
///   in its scope, let in or not, in the last second or as far back as [`RETRY_OFFERS`] of them reach, up to five seconds;
///   what chance explains is taken off. The least share within [`RETRY_WINDOW`] counts. Pressure is that over
///   [`DEFAULT_RETRY_SHARE`].
/// - **A sample costs** a walk over the lanes and at most a hundred marks, below a microsecond; a request nothing.
/// - **Lies** where callers do not say which attempt it is: it sees none, and a proxy's own attempts look like first ones.
///   Where they say so, it also sees what this node's own refusals made them do: an echo of a gate, and no cause.
///   And it is late: what is tried again failed before, by the callers' timeout at least.
/// - **Dynamics** are settling. **Authority** is [`Authority::Inferring`].
/// - **Remedy** is [`Remedy::Precise`]. It names nobody, so by itself it is only shown: it informs. To let in less does not
///   cure retries: what is refused is tried again, and the share goes up. That is what a lane's budget of retries is for
///   ([`RetryBudget`](cinnamon_core::RetryBudget)), and callers that back off; the backlog is for the lane's gate.
/// - **Target**: [`DEFAULT_RETRY_SHARE`].
///
/// Use it for alerts, in mode `monitor` where it is new, and to see in a snapshot why a lane is asked for twice what its
/// callers want. Where retries are a sign of something that a lower load does cure, say so by
/// [`remedy`](Self::remedy), and have latency confirm it:
///
/// ```
/// use cinnamon_core::{Config, Controller, Remedy, Settings};
/// use cinnamon_signals::{ConfirmedBy, LaneLatency, Retries};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let shown = Retries::new();
/// let sheds = Retries::new().name("retries-felt").remedy(Remedy::Broad);
/// let sheds = ConfirmedBy::new(sheds, LaneLatency::new());
/// let config = Config::new(Settings::one_lane("main", 16))?;
/// let controller = Controller::builder(config).signal(shown).signal(sheds).build()?;
/// # drop(controller);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct Retries {
    common: Common,
    target_share: f64,
    remedy: Remedy,
    window: ShareWindow,
    least: Least,
}

impl Retries {
    /// Over all lanes, called `retries`.
    pub const fn new() -> Self {
        Self {
            common: Common::new("retries", Authority::Inferring),
            target_share: DEFAULT_RETRY_SHARE,
            remedy: Remedy::Precise,
            window: ShareWindow::new(),
            least: Least::new(RETRY_WINDOW),
        }
    }

    common_setters!();

    /// The share of later attempts at pressure 1.0. Default [`DEFAULT_RETRY_SHARE`]. A lower one tells of usual days.
    ///
    /// # Errors
    ///
    /// Unless it is from 0.01 to 0.5.
    pub fn target_share(mut self, share: f64) -> Result<Self, SettingError> {
        let bound = "from 0.01 to 0.5";
        self.target_share = within("retries.target_share", share, TARGET_SHARE, bound)?;
        Ok(self)
    }

    /// What is done about it. Default [`Remedy::Precise`]: nothing, for it names nobody. With any other it moves the
    /// threshold, and what is refused comes again.
    pub const fn remedy(mut self, remedy: Remedy) -> Self {
        self.remedy = remedy;
        self
    }
}

impl Default for Retries {
    fn default() -> Self {
        Self::new()
    }
}

impl Signal for Retries {
    common_answers!();

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(TAU).delayed(DELAY)
    }

    fn range(&self) -> RangeInclusive<f64> {
        0.0..=1.0 / self.target_share
    }

    fn remedy(&self) -> Remedy {
        self.remedy
    }

    fn sample(&mut self, now: Instant, view: &View) -> Reading {
        let lanes = view.lanes.iter();
        let lanes = lanes.filter(|lane| self.common.scope.covers(lane));
        let (offered, retried) = lanes.fold((0_u64, 0_u64), |(offered, retried), lane| {
            (
                offered.saturating_add(lane.offered),
                retried.saturating_add(lane.retried),
            )
        });
        let target = self.target_share;
        let share = (self.window).share(now, offered, retried, RETRY_OFFERS, target);
        match self.least.push(now, share) {
            Some(least) => {
                Reading::pressure(least / target).note(format!("{:.0} %", 100.0 * least))
            }
            None => Reading::unavailable("not watched for a whole window yet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use cinnamon_core::{LaneView, Scope};

    use super::*;

    /// A lane `write` beside a lane `read` whose requests all come again.
    struct Bench {
        signal: Retries,
        view: View,
        tenths: u64,
    }

    impl Bench {
        fn new(signal: Retries) -> Self {
            let lanes = ["read", "write"].map(|name| LaneView::new(name, "disk"));
            Self {
                signal: signal.scope(Scope::Lane("write".to_owned())),
                view: View::of(lanes.to_vec()),
                tenths: 0,
            }
        }

        /// So many tenths of a second with so many requests in each, of which these came before: the last pressure.
        fn run(&mut self, tenths: u64, offered: u64, retried: u64) -> Option<f64> {
            let mut last = None;
            for _ in 0..tenths {
                self.tenths += 1;
                let [read, write] = self.view.lanes.as_mut_slice() else {
                    panic!("two lanes");
                };
                read.offered += 100;
                read.retried += 100;
                write.offered += offered;
                write.retried += retried;
                let now = Instant::ZERO.after(Duration::from_millis(100 * self.tenths));
                last = self.signal.sample(now, &self.view).value();
            }
            last
        }
    }

    #[test]
    fn the_share_of_later_attempts_counts_once_it_has_stood() {
        let mut bench = Bench::new(Retries::new());
        assert_eq!(bench.run(29, 100, 5), None);
        let usual = bench.run(11, 100, 5).unwrap();
        assert!((usual - 0.5).abs() < 0.01, "{usual}");
        assert!(bench.run(20, 100, 40).unwrap() < 1.0, "not for long enough");
        let storm = bench.run(30, 100, 40).unwrap();
        // Of 1,000 requests three standard errors of a tenth are 0.028.
        assert!((storm - 3.715).abs() < 0.02, "{storm}");
        assert!(bench.run(11, 100, 0).unwrap() < 1.0, "over at once");
        assert_eq!(bench.run(40, 100, 0), Some(0.0));
    }

    #[test]
    fn a_burst_of_retries_after_a_pause_does_not_count() {
        let mut bench = Bench::new(Retries::new());
        for _ in 0..20 {
            assert!(bench.run(50, 100, 5).is_none_or(|pressure| pressure < 1.0));
            for _ in 0..4 {
                assert!(bench.run(1, 200, 150).is_none_or(|pressure| pressure < 1.0));
            }
            for _ in 0..40 {
                assert!(bench.run(1, 100, 5).is_none_or(|pressure| pressure < 1.0));
            }
        }
    }

    #[test]
    fn few_requests_say_little_and_none_says_nothing() {
        let mut bench = Bench::new(Retries::new());
        assert_eq!(bench.run(100, 0, 0), Some(0.0));
        // Ten in five seconds, and all come again: of a hundred that is a tenth.
        let mut greatest = 0.0_f64;
        for _ in 0..100 {
            bench.run(9, 0, 0);
            greatest = greatest.max(bench.run(1, 2, 2).unwrap());
        }
        assert!(greatest <= 1.0, "{greatest}");
    }

    #[test]
    fn it_informs_unless_told_otherwise() {
        let signal = Retries::default();
        assert_eq!(Signal::remedy(&signal), Remedy::Precise);
        assert_eq!(Signal::authority(&signal), Authority::Inferring);
        assert_eq!(Signal::range(&signal), 0.0..=10.0);
        assert_eq!(Signal::remedy(&signal.remedy(Remedy::Broad)), Remedy::Broad);
        let error = Retries::new().target_share(0.6).unwrap_err().to_string();
        let text = "`retries.target_share` is 0.6 but must be from 0.01 to 0.5";
        assert_eq!(error, text);
    }
}
