//! What stands between clients and the store.

use std::fmt::Debug;

use crate::clock::Instant;
use crate::codel::CodelState;
use crate::config::ConfigError;
use crate::permit::Outcome;
use crate::priority::{Priority, Tier};
use crate::request::Request;
use crate::retry::Retry;
use crate::simulation::plant::PlantSignal;
use crate::verdict::Reason;

/// One request as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Names the request until it has finished or was refused; small numbers, used again.
    pub token: u32,
    /// The request, for the engine.
    pub request: Request,
    /// The tier and cohort it would have, for policies that have no engine. What the request says of
    /// itself: untagged work comes at the default tier.
    pub priority: Priority,
    /// The lane it is for, by index: 1 for writes where there are any, else 0.
    pub lane: usize,
}

/// How a request that ran ended, as far as it is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Done {
    /// What it cost.
    pub cost: Option<u32>,
    /// What came of it; `None` when its permit was only dropped.
    pub outcome: Option<Outcome>,
}

impl Done {
    /// It did what was asked, at a cost that is not told.
    pub const SUCCESS: Self = Self {
        cost: None,
        outcome: Some(Outcome::Success),
    };
}

/// What a policy says to an offer, or later to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It runs now.
    Run,
    /// It waits; [`Policy::take_answers`] will tell.
    Wait,
    /// It will not run.
    Refuse(Reason),
}

/// How a policy stands; what it does not have stays at its default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// The slots of the first lane; 0 where there are none.
    pub limit: u32,
    /// The same without a trial that is on.
    pub limit_settled: u32,
    /// The threshold in levels, 768 when everything is let in.
    pub threshold: f64,
    /// Whether it holds anything back.
    pub engaged: bool,
    /// The time-averaged backlog, seconds of work.
    pub wait_s: f64,
    /// The backlog it wants, seconds of work.
    pub wait_target_s: f64,
    /// Whether a bound cut its output short.
    pub saturated: bool,
    /// CoDel's state.
    pub codel: CodelState,
    /// Newest first within a tier.
    pub newest_first: bool,
    /// What holds the threshold where it is, a word.
    pub binding: &'static str,
    /// The signal that does, by index.
    pub signal: Option<u8>,
    /// How many culprits are throttled.
    pub throttled: usize,
}

impl Default for View {
    fn default() -> Self {
        Self {
            limit: 0,
            limit_settled: 0,
            threshold: 768.0,
            engaged: false,
            wait_s: 0.0,
            wait_target_s: 0.0,
            saturated: false,
            codel: CodelState::Calm,
            newest_first: false,
            binding: "nothing",
            signal: None,
            throttled: 0,
        }
    }
}

/// Decides who runs, who waits and who does not. Time is an argument; equal calls, equal answers.
pub trait Policy: Debug + Send {
    /// A request comes.
    fn offer(&mut self, now: Instant, offer: &Offer) -> Answer;

    /// A waiter gives up. `false` when it waits no longer.
    fn cancel(&mut self, now: Instant, token: u32) -> bool;

    /// A request that ran is done.
    fn finish(&mut self, now: Instant, token: u32, done: Done);

    /// When [`Policy::wake`] wants to be called next. Later than the last call.
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }

    /// Its time has come.
    fn wake(&mut self, _now: Instant) {}

    /// Moves what waiters must be told into `out`: a token each, with [`Answer::Run`] or
    /// [`Answer::Refuse`]. Called after every other call.
    fn take_answers(&mut self, out: &mut Vec<(u32, Answer)>);

    /// What it told the request of this token, which it has just refused, of trying again.
    fn retry(&self, _token: u32) -> Option<Retry> {
        None
    }

    /// Gives it the scenario's signals, before anything happens. A policy without signals lets them lie.
    ///
    /// # Errors
    ///
    /// When a signal is not what it must be.
    fn attach(&mut self, _signals: Vec<PlantSignal>) -> Result<(), ConfigError> {
        Ok(())
    }

    /// How it stands.
    fn view(&self) -> View {
        View::default()
    }
}

/// The priority of a request of this tier and key in epoch 0, for policies without an engine.
pub(super) fn priority_of(tier: Tier, key: u64) -> Priority {
    crate::priority::KeyHash::new(0, 0)
        .rank(tier, key)
        .priority()
}
