//! The share of work that fails because something it needs is overloaded: [`Errors`].

use std::ops::RangeInclusive;
use std::time::Duration;

use cinnamon_core::{Authority, Dynamics, Instant, Reading, Scope, Signal, Symptom, View};

use crate::setting::SettingError;
use crate::share::{self, ShareWindow};

/// Share of overload-type outcomes at pressure 1.0: below it are the timeouts and conflicts of a normal
/// day. It is also the share from which a lane's errors confirm other signals.
pub const DEFAULT_ERROR_SHARE: f64 = 0.05;
/// Completions that a share is taken over, at least: with fewer, one unlucky request would be an overload.
pub const DEFAULT_ERROR_COMPLETIONS: u32 = 20;
/// How far back a share looks: long enough for a hundred completions at a hundred a second, short enough to
/// follow an overload.
pub const ERROR_WINDOW: Duration = share::WINDOW;
/// How far back it looks at most, while completions are few: what is older than a caller's patience is
/// another incident.
pub const ERROR_WINDOW_MAX: Duration = share::WINDOW_MAX;
/// The time constant it declares: twice its usual window, since the window grows where completions are few,
/// and too long a time is the cheaper error.
pub const ERROR_TAU: Duration = Duration::from_secs(2);

/// Least and greatest target: a request in a thousand, which takes three thousand completions to tell
/// from chance, and one in two.
const TARGET_SHARE: RangeInclusive<f64> = 1e-3..=0.5;

/// The share of requests that finish as [`Outcome::Overloaded`](cinnamon_core::Outcome::Overloaded), against
/// a target share.
///
/// - **Measures** overloaded completions over all completions (dropped permits included) of the lanes in
///   its scope, over the last [`ERROR_WINDOW`], or as far back as [`DEFAULT_ERROR_COMPLETIONS`] of them
///   reach, up to [`ERROR_WINDOW_MAX`]. Pressure is that share over the target share: 1.0 at
///   [`DEFAULT_ERROR_SHARE`].
/// - **A sample costs** a walk over the lanes of the view and at most a hundred marks, below a microsecond.
/// - **Lies** when callers report as overloaded what has another cause, such as a dependency that is down;
///   then letting in less does not help, and the controller finds it unresponsive. It sees nothing of
///   requests that never finish: those are for the lane's own backlog, or a heartbeat.
/// - **Dynamics** are settling, with [`ERROR_TAU`].
/// - **Authority** is [`Authority::Inferring`]: errors are a symptom. Waits or slow service in its lanes confirm
///   it; the errors themselves, which confirm other signals, do not ([`Symptom::Errors`]).
///
/// What chance explains is no overload: of a share over the target three standard errors are taken off,
/// down to the target at most. So with few completions it takes a good many errors to engage it, and what it
/// holds is the target or a little more.
///
/// # When little finishes
///
/// Completions that are missing from the least number count as successes. With none at all its pressure
/// is 0: an idle service has no errors, and a signal that called itself unavailable each night would only teach its
/// operators to overlook it. The price is that a service of fewer than four completions a second is
/// judged mildly.
///
/// ```
/// use cinnamon_core::{Config, Controller, Scope, Settings};
/// use cinnamon_signals::Errors;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let errors = Errors::new()
///     .target_share(0.02)?
///     .scope(Scope::Lane("write".to_owned()));
/// let config = Config::new(Settings::one_lane("write", 2))?;
/// let controller = Controller::builder(config).signal(errors).build()?;
/// # drop(controller);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct Errors {
    name: String,
    scope: Scope,
    target_share: f64,
    completions_min: u32,
    window: ShareWindow,
}

impl Errors {
    /// Over all lanes, called `errors`, with the defaults above.
    pub const fn new() -> Self {
        Self {
            name: String::new(),
            scope: Scope::All,
            target_share: DEFAULT_ERROR_SHARE,
            completions_min: DEFAULT_ERROR_COMPLETIONS,
            window: ShareWindow::new(),
        }
    }

    /// Its name, where a controller has several. Default `errors`.
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// The lanes whose outcomes it counts, and whose load it bears on. Default: all.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// The share of overload-type outcomes at pressure 1.0. Default [`DEFAULT_ERROR_SHARE`]. A lower one
    /// engages on what a normal day brings; a higher one lets callers feel the overload first.
    ///
    /// # Errors
    ///
    /// Unless it is from 0.001 to 0.5.
    pub fn target_share(mut self, share: f64) -> Result<Self, SettingError> {
        if !TARGET_SHARE.contains(&share) {
            return Err(SettingError::OutOfBounds {
                setting: "target_share",
                value: share,
                bound: "from 0.001 to 0.5",
            });
        }
        self.target_share = share;
        Ok(self)
    }

    /// Completions that a share is taken over, at least. Default [`DEFAULT_ERROR_COMPLETIONS`]. With more, a
    /// quiet service is judged more mildly; with fewer, few errors weigh much.
    ///
    /// # Errors
    ///
    /// Unless there is at least one.
    pub fn completions_min(mut self, completions: u32) -> Result<Self, SettingError> {
        if completions == 0 {
            return Err(SettingError::OutOfBounds {
                setting: "completions_min",
                value: 0.0,
                bound: "at least 1",
            });
        }
        self.completions_min = completions;
        Ok(self)
    }
}

impl Default for Errors {
    fn default() -> Self {
        Self::new()
    }
}

impl Signal for Errors {
    fn name(&self) -> &str {
        if self.name.is_empty() {
            "errors"
        } else {
            &self.name
        }
    }

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(ERROR_TAU)
    }

    fn range(&self) -> RangeInclusive<f64> {
        0.0..=1.0 / self.target_share
    }

    fn scope(&self) -> Scope {
        self.scope.clone()
    }

    fn authority(&self) -> Authority {
        Authority::Inferring
    }

    fn symptom(&self) -> Symptom {
        Symptom::Errors
    }

    fn sample(&mut self, now: Instant, view: &View) -> Reading {
        let lanes = view.lanes.iter().filter(|lane| self.scope.covers(lane));
        let (total, overloaded) = lanes.fold((0_u64, 0_u64), |(total, overloaded), lane| {
            let finished = lane.finished;
            (
                total.saturating_add(finished.total()),
                overloaded.saturating_add(finished.overloaded),
            )
        });
        let (least, target) = (self.completions_min, self.target_share);
        let share = self.window.share(now, total, overloaded, least, target);
        Reading::pressure(share / self.target_share)
    }
}

#[cfg(test)]
mod tests {
    use cinnamon_core::LaneView;

    use super::*;

    /// A signal, and a lane `write` (beside a lane `read` that always fails) to feed it.
    struct Bench {
        signal: Errors,
        view: View,
        now: Instant,
    }

    impl Bench {
        fn new(signal: Errors) -> Self {
            let view = View::of(vec![
                LaneView::new("read", "cores"),
                LaneView::new("write", "disk"),
            ]);
            Self {
                signal,
                view,
                now: Instant::from_nanos(7),
            }
        }

        fn writes() -> Self {
            Self::new(Errors::new().scope(Scope::Lane("write".to_owned())))
        }

        /// `seconds` at ten samples a second, with so many good and bad completions before each.
        fn run(&mut self, seconds: f64, good: u64, bad: u64) -> f64 {
            let mut pressure = f64::NAN;
            for _ in 0..(seconds * 10.0) as u32 {
                self.now = self.now.after(Duration::from_millis(100));
                self.view.lanes[0].finished.overloaded += 5;
                self.view.lanes[1].finished.success += good;
                self.view.lanes[1].finished.overloaded += bad;
                pressure = self.signal.sample(self.now, &self.view).value().unwrap();
            }
            pressure
        }
    }

    #[test]
    fn pressure_is_the_share_over_its_target_less_what_chance_explains() {
        let mut bench = Bench::writes();
        assert_eq!(bench.run(3.0, 100, 0), 0.0);
        // 990 good and 10 bad a second: one in a hundred, a fifth of the target.
        assert!((bench.run(3.0, 99, 1) - 0.2).abs() < 1e-9);
        assert_eq!(bench.run(3.0, 94, 6), 1.0, "6 % is 5 % and chance");
        // Half of a thousand, less three times 0.7 %.
        let half = bench.run(3.0, 50, 50);
        assert!((9.5..10.0).contains(&half), "{half}");
        assert_eq!(bench.run(1.1, 100, 0), 0.0, "gone with its window");
    }

    #[test]
    fn few_completions_accumulate_and_missing_ones_count_as_successes() {
        let mut bench = Bench::writes();
        assert_eq!(bench.run(60.0, 0, 0), 0.0, "an idle service has no errors");
        // One of one: not known to be more than chance.
        assert_eq!(bench.run(0.1, 0, 1), 1.0);
        assert!(bench.run(1.0, 0, 1) > 4.0, "eleven of eleven");
        assert_eq!(bench.run(6.0, 0, 0), 0.0, "forgotten after five seconds");
        // One of twenty is the target, and is not engaged on.
        let mut rare = Bench::writes();
        for _ in 0..30 {
            rare.run(1.9, 1, 0);
            assert!(rare.run(0.1, 0, 1) <= 1.0);
        }
    }

    #[test]
    fn only_the_lanes_in_scope_count() {
        let scopes = [
            (Scope::All, true),
            (Scope::Scope("cores".to_owned()), true),
            (Scope::Lane("read".to_owned()), true),
            (Scope::Scope("disk".to_owned()), false),
            (Scope::Lane("write".to_owned()), false),
        ];
        for (scope, sees_reads_fail) in scopes {
            let mut bench = Bench::new(Errors::new().scope(scope.clone()));
            let pressure = bench.run(2.0, 10, 0);
            assert_eq!(pressure > 1.0, sees_reads_fail, "{scope:?}: {pressure}");
        }
    }

    #[test]
    fn it_begins_anew_after_a_gap_a_lost_lane_or_a_clock_set_back() {
        let mut bench = Bench::writes();
        bench.run(2.0, 0, 50);
        bench.now = bench.now.after(Duration::from_secs(60));
        assert_eq!(bench.run(0.1, 0, 50), 0.0, "a minute is no window");
        assert!(bench.run(2.0, 0, 50) > 1.0);
        bench.view.lanes[1].finished = cinnamon_core::Finished::default();
        assert_eq!(bench.run(0.1, 0, 0), 0.0);
        assert!(bench.run(2.0, 0, 50) > 1.0);
        bench.now = Instant::ZERO;
        assert_eq!(bench.run(0.1, 0, 50), 0.0);
        assert!(bench.signal.window.len() <= 2);
    }

    #[test]
    fn it_keeps_no_more_than_it_needs() {
        let mut bench = Bench::writes();
        bench.run(60.0, 10, 0);
        assert!(bench.signal.window.len() <= 102, "five seconds of marks");
    }

    #[test]
    fn targets_out_of_bounds_are_refused_by_name() {
        for share in [0.0, 0.6, 5.0, -1.0, f64::NAN] {
            let error = Errors::new().target_share(share).unwrap_err();
            let text = format!("`target_share` is {share} but must be from 0.001 to 0.5");
            assert_eq!(error.to_string(), text);
        }
        assert!(Errors::new().completions_min(0).is_err());
        let defaults = Errors::new().target_share(DEFAULT_ERROR_SHARE);
        assert_eq!(Signal::range(&defaults.unwrap()), 0.0..=20.0);
        assert_eq!(Signal::name(&Errors::default()), "errors");
        assert_eq!(
            Signal::name(&Errors::new().name("write-errors")),
            "write-errors"
        );
    }
}
