//! What happens: a scenario for each alert, and some in which none may fire.

use std::time::Duration;

use cinnamon_core::simulation::{Keys, Phase, Scenario, Service};
use cinnamon_core::{Action, Mode, Settings, Tier};

/// The lane of all scenarios.
pub const LANE: &str = "read";
/// The signal of all scenarios.
pub const SIGNAL: &str = "follower-lag";

/// Slots of the lane, and what its store works on at once.
const SLOTS: u32 = 8;
/// Mean service time: 100 requests a second, so that an hour is 360,000.
const SERVICE_S: f64 = 0.08;
const MINUTE_S: f64 = 60.0;
/// A fixed limit is its own bounds: that it may rise from where it stands is made up.
const MAY_RISE: &[(&str, f64)] = &[
    (
        "cinnamon_limit_min{controller=\"default\",lane=\"read\"}",
        8.0,
    ),
    (
        "cinnamon_limit_max{controller=\"default\",lane=\"read\"}",
        64.0,
    ),
];

/// One scenario.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// Its name.
    pub name: &'static str,
    /// What happens.
    pub about: &'static str,
    /// The one alert that fires; it still does at the end.
    pub fires: Option<&'static str>,
    /// Stretches of load: minutes, and multiples of the capacity.
    load: &'static [(f64, f64)],
    /// Who comes.
    who: Who,
    /// What the signal says from when on, seconds; `None`: that it does not know.
    pub(super) says: &'static [(f64, Option<f64>)],
    /// What else is done, seconds from the start, in order of time.
    pub(super) steps: &'static [(f64, Step)],
    /// Series that this controller cannot be brought to emit, and what they are to be instead.
    pub(super) pretend: &'static [(&'static str, f64)],
}

/// Who comes.
#[derive(Clone, Copy, Debug)]
enum Who {
    /// 2/28/20/20/15/15 %, t0 to t5.
    All,
    /// Nobody but t1.
    OnlyT1,
    /// As `All`, but nobody says so.
    Untagged,
}

/// What an operator, a bug or a starved machine does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The controller's mode is changed.
    Mode(Mode),
    /// This is forced upon the controller for so long.
    Override(Action, Duration),
    /// The control thread comes only so often.
    TickEvery(Duration),
    /// It does not come any more.
    StopTicking,
    /// The lane's engine panics.
    BreakEngine,
}

impl Script {
    /// How long it lasts.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.load
            .iter()
            .map(|(minutes, _)| minutes * MINUTE_S)
            .sum()
    }

    pub(super) fn settings(&self) -> Settings {
        Settings::one_lane(LANE, SLOTS)
    }

    pub(super) fn scenario(&self) -> Scenario {
        let only_t1 = [0.0, 1.0, 0.0, 0.0, 0.0, 0.0];
        let phase = |&(minutes, load): &(f64, f64)| Phase::new("phase", minutes * MINUTE_S, load);
        let default = Scenario::default();
        Scenario {
            service: Service::new(SLOTS, SERVICE_S),
            phases: self.load.iter().map(phase).collect(),
            mix: match self.who {
                Who::OnlyT1 => only_t1,
                Who::All | Who::Untagged => default.mix,
            },
            keys: match self.who {
                Who::Untagged => Keys::Untagged,
                Who::All | Who::OnlyT1 => Keys::Random,
            },
            ..default
        }
    }
}

/// Nothing happens.
pub const CALM: Script = Script {
    name: "calm",
    about: "two hours at half of the capacity",
    fires: None,
    load: &[(120.0, 0.5)],
    who: Who::All,
    says: &[(0.0, Some(0.4))],
    steps: &[],
    pretend: &[],
};

/// Every scenario.
pub const SCENARIOS: &[Script] = &[
    CALM,
    Script {
        name: "surge",
        about: "seven minutes at twice the capacity: t3 to t5 are refused, and that is no alert",
        load: &[(3.0, 0.6), (7.0, 2.0), (10.0, 0.6)],
        ..CALM
    },
    Script {
        name: "signal-holds",
        about: "a signal is over its target for three minutes and holds the gate: no alert either",
        load: &[(4.0, 0.8)],
        says: &[(0.0, Some(0.4)), (60.0, Some(1.3))],
        ..CALM
    },
    Script {
        name: "protected-refused",
        about: "t1 alone asks for twice the capacity",
        fires: Some("CinnamonProtectedRefused"),
        load: &[(2.0, 0.6), (6.0, 2.0)],
        who: Who::OnlyT1,
        ..CALM
    },
    Script {
        name: "failed",
        about: "the lane's engine panics",
        fires: Some("CinnamonFailed"),
        load: &[(5.0, 0.5)],
        steps: &[(120.0, Step::BreakEngine)],
        ..CALM
    },
    Script {
        name: "stopped",
        about: "the control thread ends",
        fires: Some("CinnamonStopped"),
        load: &[(8.0, 0.5)],
        steps: &[(180.0, Step::StopTicking)],
        ..CALM
    },
    Script {
        name: "ticks-late",
        about: "the control thread comes ten times a second instead of fifty",
        fires: Some("CinnamonTicksLate"),
        load: &[(10.0, 0.5)],
        steps: &[(180.0, Step::TickEvery(Duration::from_millis(100)))],
        ..CALM
    },
    Script {
        name: "engaged-long",
        about: "twenty minutes at twice the capacity",
        fires: Some("CinnamonEngagedLong"),
        load: &[(2.0, 0.6), (20.0, 2.0)],
        ..CALM
    },
    Script {
        name: "signal-lost",
        about: "the signal's gauge is gone",
        fires: Some("CinnamonSignalLost"),
        load: &[(8.0, 0.5)],
        says: &[(0.0, Some(0.4)), (120.0, None)],
        ..CALM
    },
    Script {
        name: "limit-at-bound",
        about: "a limit that may move stands at its least, and its slots are in use",
        fires: Some("CinnamonLimitAtBound"),
        load: &[(25.0, 0.85)],
        pretend: MAY_RISE,
        ..CALM
    },
    Script {
        name: "limit-at-rest",
        about: "a limit that may move stands at its least, and half of its slots are enough",
        load: &[(25.0, 0.5)],
        pretend: MAY_RISE,
        ..CALM
    },
    Script {
        name: "untagged",
        about: "nobody says how important the request is",
        fires: Some("CinnamonUntagged"),
        load: &[(20.0, 0.5)],
        who: Who::Untagged,
        ..CALM
    },
    Script {
        name: "not-enforcing",
        about: "the controller only monitors for more than an hour, through an overload that would cost t1",
        fires: Some("CinnamonNotEnforcing"),
        load: &[(5.0, 0.5), (12.0, 1.5), (2.0, 4.0), (56.0, 0.3)],
        steps: &[(120.0, Step::Mode(Mode::Monitor))],
        ..CALM
    },
    Script {
        name: "override-active",
        about: "somebody has t4 and t5 refused for ten minutes",
        fires: Some("CinnamonOverrideActive"),
        load: &[(5.0, 0.5)],
        steps: &[(
            120.0,
            Step::Override(Action::Shed(Tier::T4), Duration::from_secs(600)),
        )],
        ..CALM
    },
];
