//! One lane inside the controller: what is read before the lock, and what lies behind it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::admission::Admission;
use crate::clock::{Clock, Instant, read};
use crate::effects::{Effect, Ticket};
use crate::gate::{Gate, Published};
use crate::metrics::LaneSnapshot;
use crate::priority::{KeyHash, Rank};
use crate::shards::Shards;
use crate::slots::SlotWord;
use crate::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, lock};
use crate::waiter::Waiters;

/// One lane inside the controller.
#[derive(Debug)]
pub(crate) struct LaneCore {
    name: String,
    clock: Arc<dyn Clock>,
    /// Read before the lock, by everybody who comes.
    pub(super) gate: Gate,
    pub(super) slots: SlotWord,
    pub(super) shards: Shards,
    pub(super) state: Mutex<LaneState>,
    failed: AtomicBool,
    /// The log has it.
    told: AtomicBool,
    /// Running requests that were admitted after the lane failed, without its engine.
    pub(super) outside: AtomicU32,
    /// All that ever were.
    outside_total: AtomicU64,
}

/// Whether a step takes in what was counted without the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    Taken,
    Left,
}

#[derive(Debug)]
#[repr(align(128))]
pub(super) struct LaneState {
    engine: Admission,
    waiters: Waiters,
    effects: Vec<Effect>,
    /// What the gate shows.
    published: (Published, KeyHash),
}

impl LaneCore {
    pub(crate) fn new(name: &str, clock: Arc<dyn Clock>, engine: Admission) -> Self {
        Self {
            name: name.to_owned(),
            clock,
            state: Mutex::new(LaneState {
                engine,
                waiters: Waiters::default(),
                effects: Vec::new(),
                published: (Published::SHUT_OFF, KeyHash::new(0, 0)),
            }),
            gate: Gate::new(),
            slots: SlotWord::new(),
            shards: Shards::new(),
            failed: AtomicBool::new(false),
            told: AtomicBool::new(false),
            outside: AtomicU32::new(0),
            outside_total: AtomicU64::new(0),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Running requests that the engine of a failed lane does not know of.
    pub(crate) fn outside(&self) -> u32 {
        self.outside.load(Ordering::Acquire)
    }

    /// Runs `act` on the engine under the lock at `now` (the engine's last time if the clock could
    /// not be read), then wakes whom it concerned. `None` when the lane has failed.
    pub(crate) fn with<R>(
        &self,
        now: Option<Instant>,
        act: impl FnOnce(&mut Admission, &mut Waiters, Instant) -> R,
    ) -> Option<R> {
        let mut wakers = Vec::new();
        let result = self.step(lock(&self.state), now, &mut wakers, Counts::Left, act);
        self.tell(wakers);
        result
    }

    /// After a step: wakes, and writes down a failure.
    pub(super) fn tell(&self, wakers: Vec<Waker>) {
        if !wakers.is_empty() {
            wake_all(wakers);
        }
        self.log_failure();
    }

    /// Like [`LaneCore::with`], for a caller that holds another lock: it must pass `wakers` to
    /// [`wake_all`] once that is released.
    pub(crate) fn with_wakers<R>(
        &self,
        now: Option<Instant>,
        wakers: &mut Vec<Waker>,
        act: impl FnOnce(&mut Admission, &mut Waiters, Instant) -> R,
    ) -> Option<R> {
        self.step(lock(&self.state), now, wakers, Counts::Left, act)
    }

    /// Like [`LaneCore::with_wakers`]; the engine first takes in what was counted without it, as who controls it must.
    pub(crate) fn with_counts<R>(
        &self,
        now: Option<Instant>,
        wakers: &mut Vec<Waker>,
        act: impl FnOnce(&mut Admission, &mut Waiters, Instant) -> R,
    ) -> Option<R> {
        self.step(lock(&self.state), now, wakers, Counts::Taken, act)
    }

    /// One step of the engine.
    pub(super) fn step<R>(
        &self,
        mut state: MutexGuard<'_, LaneState>,
        now: Option<Instant>,
        wakers: &mut Vec<Waker>,
        counts: Counts,
        act: impl FnOnce(&mut Admission, &mut Waiters, Instant) -> R,
    ) -> Option<R> {
        if self.failed() {
            // Perhaps while we stood at the lock; nobody would wake a newcomer.
            return None;
        }
        let step = catch_unwind(AssertUnwindSafe(|| {
            let LaneState {
                engine,
                waiters,
                effects,
                published,
            } = &mut *state;
            let mut now = now.unwrap_or_else(|| engine.last_reading());
            if counts == Counts::Taken {
                // While nobody is kept from the slots: the counters of many threads take a while to read.
                let until = self.slots.is_free().then(|| read(&*self.clock)).flatten();
                engine.take_in(&self.shards);
                // What was counted until now came in the time until now. (Of a control thread that was held up after it read the
                // clock, two ticks' events in one tick's time look like twice the capacity.)
                now = until.map_or(now, |until| now.max(until));
            }
            if let Some(in_use) = self.slots.hold() {
                engine.resume(in_use);
            }
            if engine.steps_back(now) {
                // An old reading of a thread that was held up, or a clock that was set back? Under
                // the lock nobody is held up.
                now = read(&*self.clock).unwrap_or(now);
            }
            let result = act(engine, waiters, now);
            let shows = (engine.published(), engine.hash());
            if shows != *published {
                self.gate.publish(shows.0, shows.1);
                *published = shows;
            }
            engine.publish_costs(&self.gate);
            // Mostly there is nobody to tell, and to find that out must cost nothing.
            if engine.has_effects() {
                engine.take_effects(effects);
                let told = effects
                    .drain(..)
                    .filter_map(|effect| waiters.resolve(effect.token, effect.result));
                wakers.extend(told);
            }
            self.let_go(engine);
            result
        }));
        if step.is_err() {
            self.failed.store(true, Ordering::Release);
            self.gate.publish(Published::SHUT_OFF, KeyHash::new(0, 0));
            wakers.extend(state.waiters.take_wakers());
        }
        drop(state);
        step.ok()
    }

    /// The last of a step: leaves the slots to whoever comes, if there is nothing to decide.
    fn let_go(&self, engine: &Admission) {
        if engine.runs_free() {
            self.gate.let_go_at(engine.last_reading());
            self.slots.release(&engine.lets_go());
        }
    }

    /// Says in the log that the lane has failed, once. Not where it is noticed: another lock may be held there.
    pub(crate) fn log_failure(&self) {
        if self.failed() && !self.told.swap(true, Ordering::AcqRel) {
            tracing::error!(
                lane = %self.name,
                "admission engine panicked; the lane now admits everything without a decision"
            );
        }
    }

    pub(crate) fn snapshot(&self) -> LaneSnapshot {
        let mut snapshot = {
            let mut state = lock(&self.state);
            let engine = &mut state.engine;
            if let Some(in_use) = self.slots.hold() {
                engine.resume(in_use);
            }
            engine.take_in(&self.shards);
            let snapshot = engine.snapshot(&self.name);
            if !self.failed() {
                self.let_go(engine);
            }
            snapshot
        };
        snapshot.failed = self.failed();
        snapshot.failed_open_in_use = self.outside();
        snapshot.failed_open = self.outside_total.load(Ordering::Relaxed);
        snapshot
    }

    /// Admits past a failed engine.
    pub(super) fn admit_outside(&self, rank: Rank) -> Ticket {
        self.outside.fetch_add(1, Ordering::AcqRel);
        self.outside_total.fetch_add(1, Ordering::Relaxed);
        Ticket {
            outside: true,
            ..Ticket::open(rank)
        }
    }
}

/// Wakes waiters. A waker is the embedder's code: a panic in it must not keep the others asleep, nor
/// hit whoever happened to give a slot back.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
            tracing::error!("a waiter's waker panicked");
        }
    }
}
