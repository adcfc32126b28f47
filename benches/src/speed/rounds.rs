//! Rounds in which all subjects take turns, so that a machine that is slow for a while is slow for all of them.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use cinnamon_core::{Clock, MonotonicClock};

/// A run is made longer until it takes at least this share of the time it is to take: the first ones are cold.
const CALIBRATED_SHARE: u64 = 2;
/// A run grows by this factor while its length is being found.
const CALIBRATION_STEP: u64 = 2;
/// Most operations in a run: a subject that the compiler has removed altogether must not go on for ever.
const BATCH_MAX: u64 = 1 << 24;

/// Two threads have run at once if they did so for this share of the time from the first start to the last end.
const TOGETHER_SHARE: f64 = 0.9;
/// A run of two threads is made anew until they did, at most so often.
const RACES_MAX: usize = 3;
/// A length that seems to be found is tried so often, and the shortest time believed.
const CALIBRATION_TRIES: usize = 3;

/// Does so many operations and says how many nanoseconds they took.
pub type Run = Box<dyn FnMut(u64) -> Result<u64, Miss>>;

/// A run that is no figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// An operation was not what it was to be, such as an admission that was refused.
    Astray,
    /// Two threads were to run at once, and did not, on a machine with other things to do: each had the lane to itself,
    /// and the figure would be that of one thread. It took so many nanoseconds.
    Apart(u64),
}

/// Something to be measured.
pub struct Subject {
    /// Its name in the table.
    pub name: String,
    /// How it is run.
    pub run: Run,
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Subject {
    /// A subject that keeps the time itself, because not all that it does is to be measured. `None` says that an
    /// operation went astray.
    pub fn timed(name: &str, mut run: impl FnMut(u64) -> Option<u64> + 'static) -> Self {
        Self::with(name, move |times| run(times).ok_or(Miss::Astray))
    }

    fn with(name: &str, run: impl FnMut(u64) -> Result<u64, Miss> + 'static) -> Self {
        Self {
            name: name.to_owned(),
            run: Box::new(run),
        }
    }

    /// An operation that is done over and over; it says whether it was what it was to be.
    pub fn new(name: &str, mut op: impl FnMut() -> bool + 'static) -> Self {
        let clock = MonotonicClock::new();
        Self::timed(name, move |times| repeat(&clock, times, &mut op))
    }

    /// The same operation on two threads at once: each does all of them. The time is that of the slower thread, so a
    /// figure is what one thread waits for one operation.
    pub fn twice<Op>(name: &str, make: impl Fn() -> Op + Sync + 'static) -> Self
    where
        Op: FnMut() -> bool,
    {
        let clock = MonotonicClock::new();
        Self::with(name, move |times| {
            let mut ran = race(&clock, times, &make)?.ns();
            for _ in 1..RACES_MAX {
                if ran.is_ok() {
                    break;
                }
                ran = race(&clock, times, &make)?.ns();
            }
            ran
        })
    }

    /// One run as it comes, for a tool with rounds of its own: also of two threads that did not run at once.
    ///
    /// # Errors
    ///
    /// When an operation was not what it was to be.
    pub fn lasts(&mut self, times: u64) -> Result<Duration, Astray> {
        match (self.run)(times) {
            Ok(ns) | Err(Miss::Apart(ns)) => Ok(Duration::from_nanos(ns)),
            Err(Miss::Astray) => Err(Astray(self.name.clone())),
        }
    }
}

/// When each of two threads ran.
#[derive(Clone, Copy, Debug)]
struct Race([Span; 2]);

/// From when to when, ns.
type Span = (u64, u64);

impl Race {
    /// The slower one's time, if they ran at once.
    fn ns(self) -> Result<u64, Miss> {
        let [(from, to), (other_from, other_to)] = self.0;
        let whole = to.max(other_to) - from.min(other_from);
        let together = to.min(other_to).saturating_sub(from.max(other_from));
        if (together as f64) < TOGETHER_SHARE * whole as f64 {
            return Err(Miss::Apart(whole));
        }
        Ok((to - from).max(other_to - other_from))
    }
}

/// Lets two threads go, once both are there.
fn race<Op>(
    clock: &MonotonicClock,
    times: u64,
    make: &(impl Fn() -> Op + Sync),
) -> Result<Race, Miss>
where
    Op: FnMut() -> bool,
{
    let there = AtomicUsize::new(0);
    let run = || {
        let mut op = make();
        there.fetch_add(1, Ordering::AcqRel);
        // Spinning: a thread that has to be woken comes late.
        while there.load(Ordering::Acquire) < 2 {
            thread::yield_now();
        }
        let from = clock.now().as_nanos();
        let took = repeat(clock, times, &mut op)?;
        Some((from, from + took))
    };
    thread::scope(|scope| {
        let other = scope.spawn(run);
        let mine = run();
        let others = other.join().ok().flatten();
        let both = mine.zip(others).map(|(a, b)| Race([a, b]));
        both.ok_or(Miss::Astray)
    })
}

/// Times a loop. Not inlined into its callers: each loop then has a function to itself, aligned like all others.
#[inline(never)]
pub fn repeat(clock: &MonotonicClock, times: u64, mut op: impl FnMut() -> bool) -> Option<u64> {
    let began = clock.now();
    let mut good = true;
    for _ in 0..times {
        good &= black_box(op());
    }
    let took_ns = clock.now().nanos_since(began);
    good.then_some(took_ns)
}

/// What a subject took, per operation, by round; without the rounds in which two threads did not run at once.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Its name.
    pub name: String,
    /// Nanoseconds per operation, least first.
    pub ns: Vec<f64>,
}

impl Figures {
    /// The least.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.ns.first().copied().unwrap_or(f64::NAN)
    }

    /// The median; of an even number the upper one.
    #[must_use]
    pub fn median(&self) -> f64 {
        let middle = self.ns.get(self.ns.len() / 2);
        middle.copied().unwrap_or(f64::NAN)
    }
}

/// A subject did something else than it was to.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` did not do what is measured: an operation was refused, or let in, against what was expected"
)]
pub struct Astray(pub String);

/// Runs all subjects in turn, `rounds` times, each run about `run_ns` long.
///
/// Each round begins with another subject, so that none is always the one after a particular other.
///
/// # Errors
///
/// When a subject did not do what it was to.
pub fn measure(
    subjects: &mut [Subject],
    rounds: usize,
    run_ns: u64,
) -> Result<Vec<Figures>, Astray> {
    let mut batches = Vec::with_capacity(subjects.len());
    for subject in subjects.iter_mut() {
        batches.push(calibrate(subject, run_ns)?);
    }
    let figures = |subject: &Subject| Figures {
        name: subject.name.clone(),
        ns: Vec::with_capacity(rounds),
    };
    let mut all: Vec<Figures> = subjects.iter().map(figures).collect();
    for round in 0..rounds {
        for turn in 0..subjects.len() {
            let index = (round + turn) % subjects.len();
            if let Some(ns) = run(&mut subjects[index], batches[index])? {
                all[index].ns.push(ns as f64 / batches[index] as f64);
            }
        }
    }
    for figures in &mut all {
        figures.ns.sort_by(f64::total_cmp);
    }
    Ok(all)
}

/// Finds how many operations take about `run_ns`; warms the subject up on the way.
fn calibrate(subject: &mut Subject, run_ns: u64) -> Result<u64, Astray> {
    let mut batch = 1;
    loop {
        let mut least_ns = u64::MAX;
        for _ in 0..CALIBRATION_TRIES {
            // A run that is no figure still says that so much is not too little.
            let took = subject.lasts(batch)?;
            least_ns = least_ns.min(took.as_nanos() as u64);
            if least_ns < run_ns / CALIBRATED_SHARE {
                break;
            }
        }
        if least_ns >= run_ns / CALIBRATED_SHARE || batch >= BATCH_MAX {
            let wanted = batch as f64 * run_ns as f64 / least_ns.max(1) as f64;
            return Ok((wanted as u64).clamp(1, BATCH_MAX));
        }
        batch *= CALIBRATION_STEP;
    }
}

/// A run's time; `None` when there is no figure this time.
fn run(subject: &mut Subject, batch: u64) -> Result<Option<u64>, Astray> {
    match (subject.run)(batch) {
        Ok(ns) => Ok(Some(ns)),
        Err(Miss::Apart(_)) => Ok(None),
        Err(Miss::Astray) => Err(Astray(subject.name.clone())),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// A subject that takes `ns` an operation by its own account, and writes down each of its runs.
    fn scripted(name: &str, ns: u64, log: &Rc<RefCell<Vec<String>>>) -> Subject {
        let (log, of) = (Rc::clone(log), name.to_owned());
        Subject::timed(name, move |times| {
            log.borrow_mut().push(of.clone());
            Some(ns * times)
        })
    }

    #[test]
    fn subjects_take_turns_and_figures_are_per_operation() {
        let log = Rc::default();
        let mut subjects = [scripted("a", 5, &log), scripted("b", 70, &log)];
        let figures = measure(&mut subjects, 3, 1_000).unwrap();
        let medians: Vec<f64> = figures.iter().map(Figures::median).collect();
        assert_eq!(medians, [5.0, 70.0]);
        let runs = log.borrow();
        let measured = &runs[runs.len() - 6..];
        assert_eq!(measured, ["a", "b", "b", "a", "a", "b"]);
    }

    #[test]
    fn an_operation_that_goes_astray_is_no_figure() {
        let mut odd = 0;
        let mut subjects = [Subject::new("odd", move || {
            odd += 1;
            odd % 7 != 0
        })];
        let astray = measure(&mut subjects, 1, 1_000_000).unwrap_err();
        assert!(astray.to_string().contains("`odd`"), "{astray}");
    }

    #[test]
    fn on_two_threads_each_does_all_of_it() {
        use std::sync::Arc;
        use std::sync::atomic::AtomicU64;

        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let mut subject = Subject::twice("both", move || {
            let count = Arc::clone(&counted);
            move || {
                count.fetch_add(1, Ordering::Relaxed);
                true
            }
        });
        let ran = (subject.run)(10);
        assert_ne!(ran, Err(Miss::Astray));
        // As often as it took for the two to meet.
        let done = count.load(Ordering::Relaxed);
        assert!(done >= 20 && done.is_multiple_of(20), "{done}");
    }

    #[test]
    fn threads_that_ran_one_after_the_other_are_not_taken_for_two_at_once() {
        let met = Race([(0, 1_000), (50, 990)]);
        assert_eq!(met.ns(), Ok(1_000));
        let missed = Race([(0, 1_000), (1_000, 2_000)]);
        assert_eq!(missed.ns(), Err(Miss::Apart(2_000)));
    }
}
