//! A gauge that others feed: [`Push`].

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cinnamon_core::{
    Authority, DEFAULT_PERIOD, DEFAULT_PRESSURE_MAX, Dynamics, Instant, Reading, Scope, Signal,
    View,
};

/// Said while nobody has pushed anything.
const NOTHING_YET: &str = "nothing has been pushed yet";
/// Said once the last handle is gone.
const NOBODY: &str = "nobody feeds it any more";

/// A signal whose pressure others push, by a [`PushHandle`]: for what is known by an event listener, a
/// background task, or a thread that owns the gauge.
///
/// - **Measures** whatever is pushed, as a pressure: 1.0 is at target. It has no target of its own.
/// - **A sample costs** one uncontended lock, some tens of nanoseconds; so does a push.
/// - **Lies** for as long as its feeder is wrong. A feeder that stops is noticed: the same value again is
///   the same reading, and once it is older than the signal's horizon (its `T`, or three periods if that
///   is longer) its grip fades. So push again, changed or not, at least so often; where pushes come less
///   often by design, declare a longer `T`, or set `horizon_ms` of the
///   [`SignalSettings`](cinnamon_core::SignalSettings).
/// - **Dynamics** are those given. **Authority** is [`Authority::Inferring`] unless said otherwise.
///
/// Of several pushes between two samples the last counts. With nothing pushed yet, and once all handles
/// are dropped, it is unavailable.
///
/// ```
/// use cinnamon_core::{Authority, Config, Controller, Dynamics, Settings};
/// use cinnamon_signals::Push;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let target = Duration::from_secs(2);
/// let (lag, handle) = Push::new("follower-lag", Dynamics::integrating(target));
/// let config = Config::new(Settings::one_lane("write", 2))?;
/// let controller = Controller::builder(config)
///     .signal(lag.authority(Authority::Measuring))
///     .build()?;
///
/// // Wherever an answer of the follower comes in:
/// let lag_s = 0.7;
/// handle.push(lag_s / target.as_secs_f64());
/// # drop(controller);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct Push {
    name: String,
    dynamics: Dynamics,
    range: RangeInclusive<f64>,
    scope: Scope,
    authority: Authority,
    period: Duration,
    /// Gone with the last handle.
    said: Weak<Mutex<Said>>,
    /// The number of the last push that was seen, and when that was.
    seen: u64,
    seen_at: Instant,
}

/// Feeds a [`Push`]. Clones feed the same one.
#[derive(Clone, Debug)]
pub struct PushHandle {
    said: Arc<Mutex<Said>>,
}

/// What was pushed last.
#[derive(Debug)]
struct Said {
    /// Counts pushes: the same value pushed again is another reading.
    number: u64,
    pressure: Result<f64, Cow<'static, str>>,
    /// When it was true, if the feeder said so.
    at: Option<Instant>,
}

fn lock(said: &Mutex<Said>) -> MutexGuard<'_, Said> {
    // Nothing here panics while it holds the lock, and a value that was written is whole.
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Push {
    /// A signal of this name, and the handle that feeds it.
    pub fn new(name: &str, dynamics: Dynamics) -> (Self, PushHandle) {
        let said = Arc::new(Mutex::new(Said {
            number: 0,
            pressure: Err(Cow::Borrowed(NOTHING_YET)),
            at: None,
        }));
        let push = Self {
            name: name.to_owned(),
            dynamics,
            range: 0.0..=DEFAULT_PRESSURE_MAX,
            scope: Scope::default(),
            authority: Authority::default(),
            period: DEFAULT_PERIOD,
            said: Arc::downgrade(&said),
            seen: 0,
            seen_at: Instant::ZERO,
        };
        (push, PushHandle { said })
    }

    /// Pressures that can be; one outside counts as a fault of the gauge. Default 0 to
    /// [`DEFAULT_PRESSURE_MAX`].
    pub const fn range(mut self, range: RangeInclusive<f64>) -> Self {
        self.range = range;
        self
    }

    /// The lanes whose load it measures. Default: all.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// How much it may take by itself. Default: [`Authority::Inferring`].
    pub const fn authority(mut self, authority: Authority) -> Self {
        self.authority = authority;
        self
    }

    /// Time between two looks at what was pushed. Default [`DEFAULT_PERIOD`].
    pub const fn period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }
}

impl Signal for Push {
    fn name(&self) -> &str {
        &self.name
    }

    fn dynamics(&self) -> Dynamics {
        self.dynamics
    }

    fn range(&self) -> RangeInclusive<f64> {
        self.range.clone()
    }

    fn scope(&self) -> Scope {
        self.scope.clone()
    }

    fn authority(&self) -> Authority {
        self.authority
    }

    fn period(&self) -> Duration {
        self.period
    }

    fn sample(&mut self, now: Instant, _view: &View) -> Reading {
        let Some(said) = self.said.upgrade() else {
            return Reading::unavailable(NOBODY);
        };
        let said = lock(&said);
        if said.number != self.seen {
            self.seen = said.number;
            self.seen_at = now;
        }
        // A value is no younger than the first look at it: neither when the feeder's time lies ahead,
        // nor when the clock was set back since.
        self.seen_at = self.seen_at.min(now);
        let at = said.at.map_or(self.seen_at, |at| at.min(self.seen_at));
        match &said.pressure {
            Ok(pressure) => Reading::pressure(*pressure).taken_at(at),
            Err(why) => Reading::unavailable(why.clone()),
        }
    }
}

impl PushHandle {
    /// This is the pressure. It counts as true when the signal first sees it, a period later at most.
    pub fn push(&self, pressure: f64) {
        self.say(Ok(pressure), None);
    }

    /// This was the pressure at `at`, by [`Controller::clock`](cinnamon_core::Controller::clock). The same
    /// time again is the same reading.
    pub fn push_at(&self, pressure: f64, at: Instant) {
        self.say(Ok(pressure), Some(at));
    }

    /// The pressure is not known, and why. It stays so until the next push.
    pub fn unavailable(&self, why: impl Into<Cow<'static, str>>) {
        self.say(Err(why.into()), None);
    }

    fn say(&self, pressure: Result<f64, Cow<'static, str>>, at: Option<Instant>) {
        let mut said = lock(&self.said);
        said.number = said.number.wrapping_add(1);
        said.pressure = pressure;
        said.at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(ms))
    }

    fn push() -> (Push, PushHandle) {
        Push::new("gauge", Dynamics::settling(Duration::from_secs(1)))
    }

    fn sample(push: &mut Push, ms: u64) -> Reading {
        push.sample(at(ms), &View::default())
    }

    #[test]
    fn a_value_is_as_old_as_the_first_look_at_it() {
        let (mut signal, handle) = push();
        handle.push(0.5);
        let first = sample(&mut signal, 100);
        assert_eq!(first, Reading::pressure(0.5).taken_at(at(100)));
        assert_eq!(sample(&mut signal, 200), first, "nobody pushed since");
        handle.clone().push(0.5);
        let again = sample(&mut signal, 300);
        assert_eq!(again, Reading::pressure(0.5).taken_at(at(300)));
    }

    #[test]
    fn a_time_that_was_given_is_kept_unless_it_lies_ahead() {
        let (mut signal, handle) = push();
        handle.push_at(2.0, at(40));
        let first = sample(&mut signal, 100);
        assert_eq!(first, Reading::pressure(2.0).taken_at(at(40)));
        handle.push_at(2.0, at(40));
        assert_eq!(sample(&mut signal, 200), first, "the same time again");
        handle.push_at(3.0, at(10_000));
        let ahead = sample(&mut signal, 300);
        assert_eq!(ahead, Reading::pressure(3.0).taken_at(at(300)));
        assert_eq!(sample(&mut signal, 400), ahead, "and it does not stay new");
        let set_back = sample(&mut signal, 50);
        assert_eq!(set_back, Reading::pressure(3.0).taken_at(at(50)));
    }

    #[test]
    fn what_is_not_known_says_why() {
        let (mut signal, handle) = push();
        assert_eq!(sample(&mut signal, 0), Reading::unavailable(NOTHING_YET));
        handle.push(1.0);
        handle.unavailable("the follower is gone");
        let lost = Reading::unavailable("the follower is gone");
        assert_eq!(sample(&mut signal, 100), lost);
        handle.push(1.0);
        assert_eq!(sample(&mut signal, 200).value(), Some(1.0));
        let twin = handle.clone();
        drop(handle);
        assert_eq!(sample(&mut signal, 300).value(), Some(1.0));
        drop(twin);
        assert_eq!(sample(&mut signal, 400), Reading::unavailable(NOBODY));
    }

    #[test]
    fn it_says_of_itself_what_it_was_told() {
        const fn shared<T: Clone + Send + Sync>() {}
        shared::<PushHandle>();
        let (signal, _handle) = push();
        let signal = signal
            .range(0.0..=5.0)
            .scope(Scope::Lane("write".to_owned()))
            .authority(Authority::Measuring)
            .period(Duration::from_millis(20));
        assert_eq!(signal.name(), "gauge");
        assert_eq!(Signal::range(&signal), 0.0..=5.0);
        assert_eq!(Signal::scope(&signal), Scope::Lane("write".to_owned()));
        assert_eq!(Signal::authority(&signal), Authority::Measuring);
        assert_eq!(Signal::period(&signal), Duration::from_millis(20));
    }
}
