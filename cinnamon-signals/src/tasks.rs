//! Tasks of a tokio runtime: [`Tasks`].

use std::time::Duration;

use cinnamon_core::{Authority, Dynamics, Instant, Reading, Signal, View};
use tokio::runtime::{Handle, RuntimeMetrics};

use crate::common::{Common, common_answers, common_setters};
use crate::setting::{SettingError, within};

/// How fast the number of tasks follows what is let in: the time of a request. A second covers slow ones, and too long a
/// time is the cheaper error.
pub const TASKS_TAU: Duration = Duration::from_secs(1);

/// Tasks that are alive in a tokio runtime, against how many the process bears: each holds memory, its buffers and
/// whatever it has locked. Uber's Docstore watches its goroutines so; under overload they went from 10,000 to 150,000.
///
/// - **Measures** the tasks that were spawned and have not ended, `num_alive_tasks` of the runtime's metrics (tokio's stable
///   interface), over the limit.
/// - **A sample costs** two atomic loads, or a sum over some tens of shards.
/// - **Lies** about tasks that have nothing to do with requests: timers, connections that are idle, one for each of ten
///   thousand subscribers. Set the limit over those. Blocking work (`spawn_blocking`) counts only while it is tracked as a
///   task. It is a length, so for what tasks wait for see [`QueueWait`](crate::QueueWait).
/// - **Dynamics** are settling, with [`TASKS_TAU`]. **Authority** is [`Authority::Measuring`].
/// - **Target**: the limit. It has no default; it depends on what a task holds.
///
/// It needs the feature `tokio`, and keeps the runtime's metrics alive, not the runtime.
///
/// ```
/// use cinnamon_signals::Tasks;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// let tasks = Tasks::of(runtime.handle(), 20_000)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct Tasks {
    common: Common,
    metrics: RuntimeMetrics,
    most: f64,
}

impl Tasks {
    /// A signal called `tasks` of the runtime of this handle, with pressure 1.0 at so many tasks.
    ///
    /// # Errors
    ///
    /// When `most` is 0.
    pub fn of(runtime: &Handle, most: u64) -> Result<Self, SettingError> {
        let bound = "at least 1";
        Ok(Self {
            common: Common::new("tasks", Authority::Measuring),
            metrics: runtime.metrics(),
            most: within("tasks.most", most as f64, 1.0..=f64::MAX, bound)?,
        })
    }

    common_setters!();
}

impl Signal for Tasks {
    common_answers!();

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(TASKS_TAU)
    }

    fn sample(&mut self, _now: Instant, _view: &View) -> Reading {
        let alive = self.metrics.num_alive_tasks();
        let queued = self.metrics.global_queue_depth();
        Reading::pressure(alive as f64 / self.most)
            .note(format!("{alive} alive, {queued} in the global queue"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_count_from_spawn_to_end() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let mut signal = Tasks::of(runtime.handle(), 10).unwrap();
        let mut pressure = || signal.sample(Instant::ZERO, &View::default()).value();
        assert_eq!(pressure(), Some(0.0));
        let tasks: Vec<_> = (0..15).map(|_| runtime.spawn(async {})).collect();
        assert_eq!(pressure(), Some(1.5));
        runtime.block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(pressure(), Some(0.0));
        drop(runtime);
        assert_eq!(pressure(), Some(0.0), "the runtime is gone");
    }

    #[test]
    fn no_limit_is_refused_by_name() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let error = Tasks::of(runtime.handle(), 0).unwrap_err().to_string();
        assert_eq!(error, "`tasks.most` is 0 but must be at least 1");
    }
}
