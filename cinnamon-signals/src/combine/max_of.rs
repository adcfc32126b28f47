//! The greatest of several pressures: [`MaxOf`].

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use cinnamon_core::{
    Authority, DEFAULT_PERIOD, Dynamics, Instant, Reading, Remedy, Scope, Signal, View,
};

use super::noted;
use crate::setting::SettingError;

/// Several gauges of one resource as one signal: the greatest pressure counts, and the reading's note says whose it is
/// and what is not known of the others.
///
/// For gauges that answer to the load alike. Others are better given to the controller one by one: each has its own
/// law there, and the lowest budget holds. One that is unavailable, or says what cannot be, is left out; with none left
/// it is unavailable itself.
///
/// Dynamics, lanes and name are those given. It is sampled as often as the quickest of them, and each of them when it is
/// due; its authority is [`Authority::Inferring`] as soon as one of them only infers. One that panics fails the whole.
///
/// Culprits, cut and time are those of the greatest. The remedy is asked for once, and not of each reading: it is that of
/// the members if they agree, else [`Remedy::PreciseFirst`], which has a little of all. So one that is never to move a
/// threshold ([`Remedy::Precise`]) belongs beside its like, or to the controller by itself.
///
/// ```
/// use cinnamon_core::Dynamics;
/// use cinnamon_signals::{MaxOf, Push};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), cinnamon_signals::SettingError> {
/// let debt = Dynamics::integrating(Duration::from_secs(10));
/// let (files, files_handle) = Push::new("l0-files", debt);
/// let (bytes, bytes_handle) = Push::new("pending-bytes", debt);
/// let debt = MaxOf::new("debt", debt, vec![Box::new(files), Box::new(bytes)])?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a signal does nothing until a controller has it"]
pub struct MaxOf {
    name: String,
    dynamics: Dynamics,
    scope: Scope,
    members: Vec<Member>,
}

struct Member {
    signal: Box<dyn Signal>,
    due: Instant,
    last: Option<Reading>,
}

impl fmt::Debug for MaxOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.members.iter().map(|one| one.signal.name()).collect();
        f.debug_struct("MaxOf")
            .field("name", &self.name)
            .field("members", &names)
            .finish_non_exhaustive()
    }
}

impl MaxOf {
    /// A signal of this name and these dynamics, made of `signals`.
    ///
    /// # Errors
    ///
    /// When there are none.
    pub fn new(
        name: &str,
        dynamics: Dynamics,
        signals: Vec<Box<dyn Signal>>,
    ) -> Result<Self, SettingError> {
        if signals.is_empty() {
            return Err(SettingError::Nothing {
                setting: "max_of",
                wanted: "one signal or more",
            });
        }
        let member = |signal| Member {
            signal,
            due: Instant::ZERO,
            last: None,
        };
        Ok(Self {
            name: name.to_owned(),
            dynamics,
            scope: Scope::All,
            members: signals.into_iter().map(member).collect(),
        })
    }

    /// The lanes whose load it bears on. Default: all. Those of its members do not count.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }
}

impl Signal for MaxOf {
    fn name(&self) -> &str {
        &self.name
    }

    fn dynamics(&self) -> Dynamics {
        self.dynamics
    }

    fn range(&self) -> RangeInclusive<f64> {
        let ranges = self.members.iter().map(|member| member.signal.range());
        let widest = ranges.reduce(|a, b| a.start().min(*b.start())..=a.end().max(*b.end()));
        widest.unwrap_or(0.0..=1.0)
    }

    fn scope(&self) -> Scope {
        self.scope.clone()
    }

    fn authority(&self) -> Authority {
        let infers = |member: &Member| member.signal.authority() == Authority::Inferring;
        if self.members.iter().any(infers) {
            Authority::Inferring
        } else {
            Authority::Measuring
        }
    }

    fn remedy(&self) -> Remedy {
        let mut remedies = self.members.iter().map(|member| member.signal.remedy());
        let first = remedies.next().unwrap_or_default();
        if remedies.all(|remedy| remedy == first) {
            first
        } else {
            Remedy::PreciseFirst
        }
    }

    fn period(&self) -> Duration {
        let periods = self.members.iter().map(|member| member.signal.period());
        periods.min().unwrap_or(DEFAULT_PERIOD)
    }

    fn sample(&mut self, now: Instant, view: &View) -> Reading {
        let mut greatest: Option<(f64, &str, &Reading)> = None;
        let mut unknown = Vec::new();
        for member in &mut self.members {
            member.sample(now, view);
            let (name, reading) = (member.signal.name(), &member.last);
            match reading.as_ref().map(|reading| (reading, reading.value())) {
                Some((reading, Some(pressure))) if member.signal.range().contains(&pressure) => {
                    if greatest.is_none_or(|(other, ..)| pressure > other) {
                        greatest = Some((pressure, name, reading));
                    }
                }
                Some((_, Some(pressure))) => unknown.push(format!("{name}: {pressure} cannot be")),
                _ => unknown.push(format!("{name}: unavailable")),
            }
        }
        match greatest {
            Some((_, name, reading)) => {
                unknown.insert(0, name.to_owned());
                noted(reading.clone(), unknown.join("; "))
            }
            None => Reading::unavailable(unknown.join("; ")),
        }
    }
}

impl Member {
    fn sample(&mut self, now: Instant, view: &View) {
        let period = self.signal.period();
        // A plan further ahead than a period was made before the clock was set back.
        if self.due <= now || self.due.since(now) > period {
            self.due = now.after(period);
            self.last = Some(self.signal.sample(now, view));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Script, at, full, only_the_pressure_differs};
    use super::*;

    fn boxed(name: &'static str, says: impl IntoIterator<Item = Reading>) -> Box<dyn Signal> {
        Box::new(Script {
            name,
            ..Script::of(says)
        })
    }

    fn max_of(signals: Vec<Box<dyn Signal>>) -> MaxOf {
        MaxOf::new("both", Dynamics::settling(Duration::from_secs(1)), signals).unwrap()
    }

    #[test]
    fn the_greatest_counts_and_is_named() {
        let a = boxed("a", [0.2, 1.4].map(Reading::pressure));
        let b = boxed("b", [0.7, 0.1].map(Reading::pressure));
        let mut signal = max_of(vec![a, b]);
        let mut sample = |ms| signal.sample(at(ms), &View::default());
        assert_eq!(sample(0), Reading::pressure(0.7).note("b"));
        assert_eq!(sample(100), Reading::pressure(0.7).note("b"), "not due yet");
        assert_eq!(sample(200), Reading::pressure(1.4).note("a"));
    }

    #[test]
    fn who_is_lost_or_lies_is_left_out_and_named() {
        let a = boxed("a", [Reading::pressure(f64::NAN), Reading::pressure(9.0)]);
        let b = boxed("b", [Reading::pressure(0.3)]);
        let mut signal = max_of(vec![a, b]);
        let mut sample = |ms| signal.sample(at(ms), &View::default());
        assert_eq!(
            sample(0),
            Reading::pressure(0.3).note("b; a: NaN cannot be")
        );
        let none = sample(200);
        assert_eq!(none, Reading::unavailable("a: 9 cannot be; b: unavailable"));
    }

    #[test]
    fn all_that_the_greatest_says_is_said() {
        let (a, b) = (
            boxed("a", [Reading::pressure(0.9)]),
            boxed("b", [full(1.3)]),
        );
        let said = max_of(vec![a, b]).sample(at(0), &View::default());
        only_the_pressure_differs(&said, 1.3, "b");
    }

    #[test]
    fn members_that_disagree_on_the_remedy_get_a_little_of_each() {
        let gauge = || Box::new(crate::Push::new("gauge", Dynamics::binary(Duration::ZERO)).0);
        assert_eq!(gauge().remedy(), Remedy::PreciseFirst);
        let alike = max_of(vec![boxed("a", []), boxed("b", [])]);
        assert_eq!(alike.remedy(), Remedy::Precise);
        assert_eq!(
            max_of(vec![boxed("a", []), gauge()]).remedy(),
            Remedy::PreciseFirst
        );
        assert_eq!(
            max_of(vec![gauge(), boxed("a", [])]).remedy(),
            Remedy::PreciseFirst
        );
    }

    #[test]
    fn it_is_as_its_members_are() {
        let signal = max_of(vec![boxed("a", []), boxed("b", [])]);
        assert_eq!(signal.period(), Duration::from_millis(200));
        assert_eq!(signal.authority(), Authority::Measuring);
        assert_eq!(signal.range(), 0.0..=4.0);
        assert_eq!(Signal::scope(&signal), Scope::All);
        let error = MaxOf::new("none", Dynamics::binary(Duration::ZERO), vec![]).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("`max_of` has nothing to measure")
        );
    }
}
