//! A lane in trouble of every kind at once, seeded: callers that give up and panic, clocks that jump, stand still and
//! fail, ticks that do not come, operators that change everything, signals that lie. After each step the sums are
//! right; and when the trouble is over, so is what it did.
//!
//! A failure names its seed, and `CINNAMON_PROOF_SEED=…` runs that one alone; `CINNAMON_PROOF_SEEDS=100000` so many.
#![allow(
    clippy::expect_used,
    unreachable_pub,
    reason = "a test in several files: helpers outside of the test function, and shared between the files"
)]

mod support;

#[path = "fault_simulation/faults.rs"]
mod faults;
#[path = "fault_simulation/parts.rs"]
mod parts;
#[path = "fault_simulation/store.rs"]
mod store;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use store::{MS, Store};

/// What is checked, or what is wrong.
type Checked<T = ()> = Result<T, String>;

/// Leaves with what is wrong.
macro_rules! ensure {
    ($holds:expr, $($what:tt)*) => {{
        let holds: bool = $holds;
        if !holds {
            return Err(format!($($what)*));
        }
    }};
}
use ensure;

/// A step while there is trouble, and one in calm.
const STEP: (u64, u64) = (2 * MS, 5 * MS);
/// For how long all is well at first, and for how long there is trouble.
const WELL: u64 = 300 * MS;
const TROUBLE: u64 = 2_000 * MS;
/// So long after the last trouble all is well again, at the latest. Mostly it is a second or two; but what was learned in
/// the trouble is forgotten in its own time, and on two slots it may close the gate once more, by a little.
const MENDED_MAX: u64 = 20_000 * MS;
/// All is well once the gates have been open for so long, and nobody was refused.
const CALM: u64 = 3_000 * MS;

fn seeds() -> std::ops::Range<u64> {
    let asked = |name| {
        let value = std::env::var(name).ok()?;
        Some(value.parse::<u64>().expect("a number"))
    };
    match (asked("CINNAMON_PROOF_SEED"), asked("CINNAMON_PROOF_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, seeds) => 0..seeds.unwrap_or(1_000),
    }
}

/// Plays the seeds that are this thread's; what is wrong with the first that fails.
fn try_seeds(seeds: impl Iterator<Item = u64>) -> Option<(u64, String)> {
    for seed in seeds {
        let mut past = Vec::new();
        let played = catch_unwind(AssertUnwindSafe(|| play(seed, &mut past)));
        let why = match played {
            Ok(Ok(())) => continue,
            Ok(Err(why)) => why,
            Err(_) => "a panic, see above".to_owned(),
        };
        let last = past.split_off(past.len().saturating_sub(30));
        return Some((seed, format!("{why}\nafter {last:#?}")));
    }
    None
}

#[test]
fn whatever_goes_wrong_nothing_is_lost_and_all_is_well_again() {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let failed = thread::scope(|scope| {
        let start = |thread| scope.spawn(move || try_seeds(seeds().skip(thread).step_by(threads)));
        let running: Vec<_> = (0..threads).map(start).collect();
        let failed = running
            .into_iter()
            .filter_map(|thread| thread.join().expect("caught"));
        failed.min()
    });
    if let Some((seed, why)) = failed {
        panic!(
            "seed {seed}: {why}\nagain with CINNAMON_PROOF_SEED={seed} cargo test -p cinnamon-core --all-features --test \
             fault_simulation"
        );
    }
}

/// Plays one seed, and notes in `past` what went wrong when.
fn play(seed: u64, past: &mut Vec<String>) -> Checked {
    let mut store = Store::new(seed);
    while store.true_ns < WELL {
        store.step(STEP.0)?;
    }
    while store.true_ns < WELL + TROUBLE {
        if let Some(fault) = store.maybe_fault() {
            past.push(format!("{:.3} s: {fault}", store.true_ns as f64 * 1e-9));
        }
        store.step(STEP.0)?;
    }
    store.mend()?;
    past.push(format!("{:.3} s: mended", store.true_ns as f64 * 1e-9));
    let (mended, mut calm_since, mut refused) = (store.true_ns, store.true_ns, store.refused());
    while store.true_ns < calm_since + CALM {
        store.step(STEP.1)?;
        let now_refused = store.refused();
        let why = match store.is_calm() {
            Ok(()) if now_refused == refused => continue,
            Ok(()) => format!("{} were refused", now_refused - refused),
            Err(why) => why,
        };
        (calm_since, refused) = (store.true_ns, now_refused);
        ensure!(
            calm_since < mended + MENDED_MAX,
            "long after all trouble {why}"
        );
    }
    store.come_to_rest()
}
