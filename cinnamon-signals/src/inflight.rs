//! Work in flight in the whole process: [`Inflight`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cinnamon_core::{Authority, Dynamics, Instant, Reading, Signal, View};

use crate::common::{Common, common_answers, common_setters};
use crate::setting::{SettingError, within};

/// How fast what is in flight follows what is let in: the time of a request. A second covers slow ones, and too long a
/// time is the cheaper error.
pub const INFLIGHT_TAU: Duration = Duration::from_secs(1);

/// A controller that has not been heard of for so long is not counted: its signal is off, or it is gone.
const SILENT_AFTER: Duration = Duration::from_secs(5);

/// Work that may be in flight in the whole process at once, over several controllers and pools that know nothing of each
/// other: what bounds memory, file descriptors, or the connections to something they share.
///
/// Each controller gets a [signal](Self::signal) of it; other pools count by a [handle](Self::pool).
///
/// ```
/// use cinnamon_core::{Config, Controller, Settings};
/// use cinnamon_signals::InflightBudget;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let budget = InflightBudget::new(10_000)?;
/// let config = |name: &str| Config::new(Settings::one_lane(name, 4_000));
/// let reads = Controller::builder(config("read")?).signal(budget.signal()).build()?;
/// let writes = Controller::builder(config("write")?).signal(budget.signal()).build()?;
/// // And in a pool that no controller guards:
/// let pool = budget.pool();
/// let running = pool.enter(1);
/// drop(running);
/// # drop((reads, writes));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct InflightBudget {
    board: Arc<Board>,
    most: f64,
}

/// The signal of an [`InflightBudget`] for one controller.
///
/// - **Measures** the requests that hold a slot in the lanes of its scope, in those of the other controllers of the budget
///   as of their last sample, and what its pools have in flight, over the budget.
/// - **A sample costs** a lock, and a walk over lanes and controllers, below a microsecond. Entering and leaving a pool cost
///   an atomic addition each.
/// - **Lies** by up to a period about the other controllers, and about requests of unlike size; count their bytes in a pool
///   of another budget then. A controller whose signal is off, or has not been sampled for five seconds, does not count.
/// - **Dynamics** are settling, with [`INFLIGHT_TAU`]. **Authority** is [`Authority::Measuring`].
/// - **Target**: the budget. It has no default; it depends on what it is to protect.
#[derive(Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct Inflight {
    common: Common,
    budget: InflightBudget,
    id: u64,
    /// Of each other controller the last version that was seen, and when.
    seen: HashMap<u64, (u64, Instant)>,
}

/// Counts what a pool has in flight against an [`InflightBudget`]. Clones count for the same one.
#[derive(Clone, Debug)]
pub struct InflightPool {
    board: Arc<Board>,
}

/// Work in flight, until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the work"]
pub struct InflightWork {
    board: Arc<Board>,
    count: u64,
}

#[derive(Debug, Default)]
struct Board {
    pools: AtomicU64,
    controllers: Mutex<Controllers>,
}

#[derive(Debug, Default)]
struct Controllers {
    next_id: u64,
    counts: HashMap<u64, Count>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    in_use: u64,
    /// Counts samples.
    version: u64,
}

impl Board {
    fn controllers(&self) -> MutexGuard<'_, Controllers> {
        // Nothing here panics while it holds the lock.
        self.controllers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl InflightBudget {
    /// So much may be in flight.
    ///
    /// # Errors
    ///
    /// When it is 0.
    pub fn new(most: u64) -> Result<Self, SettingError> {
        let bound = "at least 1";
        Ok(Self {
            board: Arc::default(),
            most: within("inflight.most", most as f64, 1.0..=f64::MAX, bound)?,
        })
    }

    /// A signal for one controller, called `inflight`.
    pub fn signal(&self) -> Inflight {
        let mut controllers = self.board.controllers();
        let id = controllers.next_id;
        controllers.next_id += 1;
        controllers.counts.insert(id, Count::default());
        Inflight {
            common: Common::new("inflight", Authority::Measuring),
            budget: self.clone(),
            id,
            seen: HashMap::new(),
        }
    }

    /// A handle for a pool that no controller guards.
    #[must_use]
    pub fn pool(&self) -> InflightPool {
        InflightPool {
            board: Arc::clone(&self.board),
        }
    }
}

impl InflightPool {
    /// So much work has begun: requests, or whatever the budget counts.
    pub fn enter(&self, count: u32) -> InflightWork {
        let count = u64::from(count);
        self.board.pools.fetch_add(count, Ordering::Relaxed);
        InflightWork {
            board: Arc::clone(&self.board),
            count,
        }
    }
}

impl Drop for InflightWork {
    fn drop(&mut self) {
        self.board.pools.fetch_sub(self.count, Ordering::Relaxed);
    }
}

impl Inflight {
    common_setters!();
}

impl Drop for Inflight {
    fn drop(&mut self) {
        self.budget.board.controllers().counts.remove(&self.id);
    }
}

impl Signal for Inflight {
    common_answers!();

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(INFLIGHT_TAU)
    }

    fn sample(&mut self, now: Instant, view: &View) -> Reading {
        let scope = &self.common.scope;
        let lanes = view.lanes.iter().filter(|lane| scope.covers(lane));
        let own: u64 = lanes.map(|lane| u64::from(lane.in_use)).sum();
        let mut controllers = self.budget.board.controllers();
        let (mut others, mut silent) = (0_u64, 0_u32);
        self.seen
            .retain(|id, _| controllers.counts.contains_key(id));
        for (id, count) in &mut controllers.counts {
            if *id == self.id {
                count.in_use = own;
                count.version += 1;
                continue;
            }
            let (version, at) = self.seen.entry(*id).or_insert((count.version, now));
            if *version != count.version || *at > now {
                (*version, *at) = (count.version, now);
            }
            if now.since(*at) < SILENT_AFTER {
                others = others.saturating_add(count.in_use);
            } else {
                silent += 1;
            }
        }
        drop(controllers);
        let pools = self.budget.board.pools.load(Ordering::Relaxed);
        let all = own as f64 + others as f64 + pools as f64;
        let note = match silent {
            0 => format!("{own} here, {others} in other controllers, {pools} in pools"),
            _ => format!(
                "{own} here, {others} in other controllers ({silent} of them silent), {pools} in pools"
            ),
        };
        Reading::pressure(all / self.budget.most).note(note)
    }
}

#[cfg(test)]
mod tests {
    use cinnamon_core::{LaneView, Scope};

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(ms))
    }

    fn view(in_use: &[u32]) -> View {
        let lane = |(i, in_use): (usize, &u32)| {
            let mut lane = LaneView::new(&format!("lane{i}"), "disk");
            lane.in_use = *in_use;
            lane
        };
        View::of(in_use.iter().enumerate().map(lane).collect())
    }

    #[test]
    fn controllers_and_pools_count_together() {
        let budget = InflightBudget::new(100).unwrap();
        let (mut a, mut b) = (budget.signal(), budget.signal());
        let pool = budget.pool();
        assert_eq!(a.sample(at(0), &view(&[10, 20])).value(), Some(0.3));
        assert_eq!(b.sample(at(0), &view(&[40])).value(), Some(0.7));
        let work = pool.enter(50);
        assert_eq!(a.sample(at(100), &view(&[10, 20])).value(), Some(1.2));
        drop(work);
        assert_eq!(a.sample(at(200), &view(&[0, 0])).value(), Some(0.4));
        drop(b);
        assert_eq!(a.sample(at(300), &view(&[5])).value(), Some(0.05));
        let mut lane = budget.signal().scope(Scope::Lane("lane1".to_owned()));
        assert_eq!(lane.sample(at(0), &view(&[9, 20])).value(), Some(0.25));
    }

    #[test]
    fn a_controller_that_is_silent_does_not_count() {
        let budget = InflightBudget::new(100).unwrap();
        let (mut a, mut b) = (budget.signal(), budget.signal());
        assert!(b.sample(at(0), &view(&[90])).value().is_some());
        assert_eq!(a.sample(at(1_000), &view(&[10])).value(), Some(1.0));
        let said = a.sample(at(7_000), &view(&[10]));
        assert_eq!(said.value(), Some(0.1));
        assert!(format!("{said:?}").contains("1 of them silent"));
        // Clocks of controllers do not compare, and may be set back.
        assert!(b.sample(at(50), &view(&[80])).value().is_some());
        assert_eq!(a.sample(at(7_100), &view(&[10])).value(), Some(0.9));
        assert_eq!(a.sample(at(5), &view(&[10])).value(), Some(0.9));
    }

    #[test]
    fn no_count_is_too_great_and_nothing_is_no_budget() {
        let budget = InflightBudget::new(1).unwrap();
        let pool = budget.pool();
        let works: Vec<_> = (0..100).map(|_| pool.enter(u32::MAX)).collect();
        let mut signal = budget.signal();
        let pressure = signal.sample(at(0), &view(&[u32::MAX])).value().unwrap();
        assert!(pressure.is_finite() && !signal.range().contains(&pressure));
        drop(works);
        assert_eq!(signal.sample(at(0), &view(&[])).value(), Some(0.0));
        let error = InflightBudget::new(0).unwrap_err().to_string();
        assert_eq!(error, "`inflight.most` is 0 but must be at least 1");
    }
}
