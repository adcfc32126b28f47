//! The controller as it is seen: the view that signals get, snapshots, and names for what is known by number.

use super::Shared;
use crate::config::LaneSettings;
use crate::lane::{LaneCore, wake_all};
use crate::metrics::{LaneSnapshot, Snapshot, TenantSnapshot, ThrottleSnapshot};
use crate::signal::precise::ThrottleFigures;
use crate::signal::{LaneView, SignalSnapshot, View};
use crate::sync::{Arc, Ordering, lock};
use crate::verdict::Binding;

impl Shared {
    /// How the lanes stand, for signals.
    pub(crate) fn view(&self) -> View {
        let config = Arc::clone(&lock(&self.config));
        let mut wakers = Vec::new();
        let lane = |(lane, settings): (&LaneCore, &LaneSettings)| {
            let mut view = LaneView {
                name: settings.name.clone(),
                scope: settings.scope.clone(),
                ..LaneView::default()
            };
            // Of a lane that has failed nothing is known.
            lane.with_counts(None, &mut wakers, |engine, _, _| engine.show(&mut view));
            view
        };
        let lanes = self.lanes.iter().zip(&config.lanes).map(lane).collect();
        wake_all(wakers);
        View { lanes }
    }

    /// Everything at this moment; each lane is consistent in itself.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let now = self.read_clock();
        let control = lock(&self.control);
        let lane_names: Vec<&str> = self.lanes.iter().map(LaneCore::name).collect();
        let mut signals = control.selector.snapshots(&lane_names);
        let name = control.config.name.clone();
        let mode = control.mode_in_force();
        let health = control.nurse.health();
        let now = now.unwrap_or(control.last_tick);
        let overrides = control.overrides.snapshots(now);
        let override_file_error = control.override_file_error.clone();
        let name_of = |signal: usize| signals.get(signal).map_or("", |s| &s.name).to_owned();
        let throttle = |figures: ThrottleFigures| ThrottleSnapshot {
            who: figures.who,
            by: name_of(figures.signal),
            share: figures.share,
            rate_per_s: figures.per_s,
            offered_per_s: figures.came_per_s,
            refused_cost: figures.refused,
        };
        let throttles = control.selector.throttles().map(throttle).collect();
        drop(control);
        let lane = |i| self.lane_snapshot_with(i, &signals);
        let lanes: Vec<LaneSnapshot> = (0..self.lanes.len()).map(lane).collect();
        for work in lanes.iter().flat_map(|lane| &lane.shed) {
            if let Binding::Signal { index } = work.cause
                && let Some(signal) = signals.get_mut(usize::from(index))
            {
                signal.shed_cost += work.cost;
            }
        }
        Snapshot {
            name,
            lanes,
            signals,
            mode,
            overrides,
            override_file_error,
            throttles,
            health,
            ticks: self.ticks.load(Ordering::Relaxed),
            ticks_late: self.ticks_late.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Acquire) || self.lanes.iter().any(LaneCore::failed),
            closed: self.closed.load(Ordering::Acquire),
        }
    }

    /// What tenants claimed, of each lane.
    pub(crate) fn tenant_snapshots(&self) -> Vec<TenantSnapshot> {
        let mut all = Vec::new();
        for lane in &self.lanes {
            let of_lane = lane.with(None, |engine, _, _| engine.tenant_figures(lane.name()));
            all.extend(of_lane.unwrap_or_default());
        }
        for of in &mut all {
            of.name = of.tenant.and_then(|tenant| self.tenants.name(tenant));
        }
        all
    }

    pub(crate) fn lane_snapshot(&self, lane: usize) -> LaneSnapshot {
        let names = lock(&self.control).selector.names();
        let mut snapshot = self.lanes[lane].snapshot();
        self.name_all(&mut snapshot, &names);
        snapshot
    }

    pub(crate) fn lane_snapshot_with(
        &self,
        lane: usize,
        signals: &[SignalSnapshot],
    ) -> LaneSnapshot {
        let mut snapshot = self.lanes[lane].snapshot();
        let names: Vec<String> = signals.iter().map(|signal| signal.name.clone()).collect();
        self.name_all(&mut snapshot, &names);
        snapshot
    }

    /// Puts names to what the engine knows by number.
    fn name_all(&self, snapshot: &mut LaneSnapshot, signals: &[String]) {
        snapshot.bound_by = self.name_of(snapshot.binding, signals);
        for work in &mut snapshot.shed {
            work.by = match work.cause {
                Binding::Nothing | Binding::Backlog { .. } | Binding::Tenant => {
                    "backlog".to_owned()
                }
                Binding::Override => "override".to_owned(),
                Binding::Signal { index } => {
                    signals.get(usize::from(index)).cloned().unwrap_or_default()
                }
            };
        }
    }

    pub(crate) fn binding_name(&self, binding: Binding) -> String {
        let signals = lock(&self.control).selector.names();
        self.name_of(binding, &signals)
    }

    pub(crate) fn name_of(&self, binding: Binding, signals: &[String]) -> String {
        match binding {
            Binding::Nothing | Binding::Override | Binding::Tenant => binding.to_string(),
            Binding::Backlog { lane } => match self.lanes.get(usize::from(lane)) {
                Some(lane) => format!("backlog of lane {}", lane.name()),
                None => binding.to_string(),
            },
            Binding::Signal { index } => match signals.get(usize::from(index)) {
                Some(name) => format!("signal {name}"),
                None => binding.to_string(),
            },
        }
    }
}
