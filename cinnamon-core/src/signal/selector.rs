//! All signals of a controller, and the one that binds.
//!
//! Every signal has a budget or none; each budget is a threshold over all that is offered to the lanes that
//! the signal bears on; a lane's gate is the least of its own, of those of the other lanes in its scope, and
//! of its signals'. Never a sum and never a mean: the least, with the name of whose it is.

use crate::arrivals::Levels;
use crate::clock::Instant;
use crate::distress::Shown;
use crate::explain::SignalDecision;
use crate::priority::Rank;
use crate::signal::law::Flow;
use crate::signal::precise::{Named, Precise, ThrottleFigures};
use crate::signal::supervised::{Change, Supervised};
use crate::signal::{Mode, Reading, SignalFault, SignalSnapshot};
use crate::sync::Arc;
use crate::throttle::Throttle;
use crate::verdict::Binding;

/// A late tick is not evidence of as much as it spans.
const DT_MAX_S: f64 = 0.25;

/// How one lane stands after its own step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneFlow {
    pub(crate) admitted: f64,
    pub(crate) offered: f64,
    pub(crate) capacity: f64,
    pub(crate) shown: Shown,
}

/// All signals of a controller.
#[derive(Debug, Default)]
pub(crate) struct Selector {
    signals: Vec<Supervised>,
    /// What held each lane's gate after the last step.
    bound: Vec<Binding>,
    levels: Option<Levels>,
    changes: Vec<(usize, Change)>,
    precise: Precise,
}

impl Selector {
    pub(crate) fn new(signals: Vec<Supervised>, lanes: usize) -> Self {
        Self {
            levels: (!signals.is_empty()).then(Levels::new),
            signals,
            bound: vec![Binding::Nothing; lanes],
            changes: Vec::new(),
            precise: Precise::default(),
        }
    }

    pub(crate) fn signal_mut(&mut self, index: usize) -> Option<&mut Supervised> {
        self.signals.get_mut(index)
    }

    /// Takes in what a sample of this signal brought that was asked for at `asked_at`.
    pub(crate) fn read(
        &mut self,
        index: usize,
        now: Instant,
        asked_at: Instant,
        reading: Result<Reading, SignalFault>,
    ) {
        if let Some(signal) = self.signals.get_mut(index)
            && signal.mode() != Mode::Off
        {
            signal.read(now, asked_at, reading);
        }
    }

    /// Whether any signal has a grip or is losing one: then ticks are needed.
    pub(crate) fn is_idle(&self) -> bool {
        self.precise.is_idle() && self.signals.iter().all(|signal| !signal.has_grip())
    }

    /// One step of `dt_s` seconds. `add_levels` adds what is offered to a lane.
    pub(crate) fn tick(
        &mut self,
        dt_s: f64,
        lanes: &[LaneFlow],
        mut add_levels: impl FnMut(usize, &mut Levels),
    ) {
        let Some(levels) = &mut self.levels else {
            return;
        };
        let mut added = 0;
        for (index, signal) in self.signals.iter_mut().enumerate() {
            let mask = signal.profile().lanes;
            let mut flow = Flow::default();
            let mut bound = (false, false);
            let mut shown = Shown::default();
            for (lane, of) in lanes.iter().enumerate().filter(|&(i, _)| bears_on(mask, i)) {
                flow.admitted += of.admitted;
                flow.offered += of.offered;
                flow.capacity += of.capacity;
                shown = shown.and(of.shown);
                match self.bound[lane] {
                    Binding::Nothing => {}
                    Binding::Signal { index: i } if usize::from(i) == index => bound.0 = true,
                    _ => bound.1 = true,
                }
            }
            flow.confirmed = shown.confirm(signal.profile().symptom);
            flow.binds = bound.0;
            flow.other_binds = bound == (false, true);
            let mut merge = |levels: &mut Levels| {
                if added != mask {
                    added = mask;
                    levels.clear();
                    let lanes = (0..lanes.len()).filter(|&i| bears_on(mask, i));
                    lanes.for_each(|lane| add_levels(lane, levels));
                }
            };
            let cut = signal.cut().map(|cut| {
                merge(levels);
                levels.below(cut)
            });
            if let Some(change) = signal.tick(dt_s.min(DT_MAX_S), &flow, cut) {
                self.changes.push((index, change));
            }
            if signal.has_grip() {
                merge(levels);
                signal.set_threshold(|budget| levels.threshold(budget));
            }
            let settle_s = signal.settle_s();
            if let Some((pressure, culprits)) = signal.take_named() {
                let named = Named {
                    signal: index,
                    lanes: mask,
                    pressure,
                    culprits,
                    settle_s,
                };
                self.precise.name(&named, lanes);
            }
        }
        let signals = &self.signals;
        let faded = |index: usize| signals.get(index)?.faded();
        self.precise.tick(dt_s.min(DT_MAX_S), lanes, faded);
    }

    /// The throttles for the lanes, if there are others than when this was last asked.
    pub(crate) fn take_throttles(&mut self) -> Option<Vec<Arc<Throttle>>> {
        self.precise.take_changed()
    }

    pub(crate) fn throttles(&self) -> impl Iterator<Item = ThrottleFigures> {
        self.precise.figures()
    }

    /// Where the gate of `lane` belongs and what holds it there. `thresholds` are what each lane needs for
    /// itself; `in_scope` says which of them share a scope with it.
    pub(crate) fn gate(
        &self,
        lane: usize,
        thresholds: &[Rank],
        in_scope: impl Fn(usize) -> bool,
    ) -> (Rank, Binding) {
        let mut least = (thresholds[lane], Binding::Backlog { lane: lane as u8 });
        for (other, &threshold) in thresholds.iter().enumerate() {
            if threshold < least.0 && in_scope(other) {
                least = (threshold, Binding::Backlog { lane: other as u8 });
            }
        }
        for (index, signal) in self.signals.iter().enumerate() {
            let counts = signal.mode() == Mode::Enforce && bears_on(signal.profile().lanes, lane);
            if counts && signal.threshold() < least.0 {
                least = (signal.threshold(), Binding::Signal { index: index as u8 });
            }
        }
        if least.0.is_open() {
            least.1 = Binding::Nothing;
        }
        least
    }

    /// Notes what holds each lane's gate, and that it did for `dt_s` seconds.
    pub(crate) fn bind(&mut self, bound: &[Binding], dt_s: f64) {
        for (index, signal) in self.signals.iter_mut().enumerate() {
            let mine = Binding::Signal { index: index as u8 };
            signal.bind(bound.contains(&mine), dt_s);
        }
        self.bound.copy_from_slice(bound);
    }

    /// What has changed since this was last asked.
    pub(crate) fn take_changes(&mut self, mut tell: impl FnMut(usize, Change)) {
        for (index, change) in self.changes.drain(..) {
            tell(index, change);
        }
    }

    /// The pressures of the signals that have a say.
    pub(crate) fn pressures(&self) -> impl Iterator<Item = f64> {
        self.signals.iter().filter_map(Supervised::say)
    }

    /// What each signal has to say, for the record of a tick.
    pub(crate) fn decide(&self, out: &mut Vec<SignalDecision>) {
        out.clear();
        out.extend(self.signals.iter().map(Supervised::decision));
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let name = |signal: &Supervised| signal.profile().name.clone();
        self.signals.iter().map(name).collect()
    }

    /// Each with the names of the lanes that it bears on.
    pub(crate) fn snapshots(&self, lane_names: &[&str]) -> Vec<SignalSnapshot> {
        let snapshot = |signal: &Supervised| {
            let mask = signal.profile().lanes;
            let lanes = lane_names.iter().enumerate();
            let lanes = lanes.filter(|&(lane, _)| bears_on(mask, lane));
            SignalSnapshot {
                lanes: lanes.map(|(_, name)| (*name).to_owned()).collect(),
                ..signal.snapshot()
            }
        };
        self.signals.iter().map(snapshot).collect()
    }
}

const fn bears_on(mask: u64, lane: usize) -> bool {
    mask >> lane & 1 == 1
}
