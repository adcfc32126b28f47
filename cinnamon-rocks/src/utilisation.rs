//! What the store says of itself to callers upstream: how much of what is asked of a column family it serves as
//! promised.
//!
//! A call is timed from its *offer* until it is done: that is what its caller waits for, in the queue or on the disk. The
//! slot is given back first and the call is counted afterwards, so that nobody waits for that.
//!
//! All threads count in the same words. Counting takes 20 ns beside the look at the clock, 40 ns with two threads that do
//! nothing else, on two cores; a `get` from memory takes 600 to 1,000 ns and scatters by more. So the words are not
//! sharded. (`cargo test --release -p cinnamon-rocks --lib what_it_costs -- --ignored --nocapture`, six rounds.)

mod counts;

use std::sync::Arc;
use std::time::Duration;

use cinnamon_core::{Clock, Instant, Reason};
use cinnamon_signals::{ServiceShares, Utilisation};

use crate::options::{FAMILIES_MAX, SloOptions};
use crate::store::{Inner, Store};

use counts::{Counts, End};
pub use counts::{UTILISATION_CALLS, UTILISATION_WINDOW, UTILISATION_WINDOW_MAX};

/// What was promised in each column family, and how it went. It knows nothing of the database, so an admission that
/// somebody keeps does not keep that open.
#[derive(Debug)]
pub(crate) struct Ledger {
    clock: Arc<dyn Clock>,
    families: Box<[Promises]>,
}

/// What reads and writes of a column family were promised.
#[derive(Debug)]
struct Promises {
    reads: Option<Promise>,
    writes: Option<Promise>,
}

/// A promise, and how many calls ended within it and beyond.
#[derive(Debug)]
struct Promise {
    target: Duration,
    max: Duration,
    counts: Counts,
}

/// Column families that a call touches: a bit each. A batch may touch all that there are, and knows them without
/// memory of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Touched([u64; WORDS]);

const WORD_BITS: usize = u64::BITS as usize;
/// Those of the options, and `default`.
const WORDS: usize = (FAMILIES_MAX + 1).div_ceil(WORD_BITS);

/// How a call that was let in ended, for its promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// It was done.
    Done,
    /// It failed for load, and was not served in any time.
    Overloaded,
    /// It failed for a reason that says nothing of load, fast or slow.
    Failed,
}

impl Promises {
    fn new([reads, writes]: [Option<SloOptions>; 2]) -> Self {
        Self {
            reads: reads.map(Promise::new),
            writes: writes.map(Promise::new),
        }
    }

    const fn of(&self, reads: bool) -> Option<&Promise> {
        if reads {
            self.reads.as_ref()
        } else {
            self.writes.as_ref()
        }
    }
}

impl Promise {
    fn new(slo: SloOptions) -> Self {
        Self {
            target: Duration::from_micros(slo.target_us),
            max: Duration::from_micros(slo.max_us),
            counts: Counts::new(),
        }
    }

    /// A call that was let in ended so, this long after its offer.
    fn ended(&self, now: Instant, residence: Duration, served: Served) {
        match served {
            Served::Done => self.counts.count(now, self.judge(residence)),
            Served::Overloaded => self.counts.count(now, End::OverMax),
            Served::Failed => {}
        }
    }

    /// A caller went away while it waited. Were it not counted, those who have the least patience would make a slow store
    /// look quick; but of one who left before the target nothing is known.
    fn left(&self, now: Instant, waited: Duration) {
        let end = self.judge(waited);
        if end != End::InTime {
            self.counts.count(now, end);
        }
    }

    fn refused(&self, now: Instant) {
        self.counts.count(now, End::Refused);
    }

    fn judge(&self, time: Duration) -> End {
        if time > self.max {
            End::OverMax
        } else if time > self.target {
            End::OverTarget
        } else {
            End::InTime
        }
    }
}

impl Touched {
    pub(crate) fn one(family: usize) -> Self {
        let mut touched = Self::default();
        touched.add(family);
        touched
    }

    pub(crate) fn add(&mut self, family: usize) {
        self.0[family / WORD_BITS] |= 1 << (family % WORD_BITS);
    }

    fn families(self) -> impl Iterator<Item = usize> {
        let words = self.0.into_iter().enumerate();
        words.flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(word * WORD_BITS + bit)
            })
        })
    }
}

impl Ledger {
    /// Of families whose reads and writes are promised this.
    pub(crate) fn new(
        clock: &Arc<dyn Clock>,
        slos: impl Iterator<Item = [Option<SloOptions>; 2]>,
    ) -> Self {
        Self {
            clock: Arc::clone(clock),
            families: slos.map(Promises::new).collect(),
        }
    }

    /// When a call that touches these families is offered; nothing where nothing was promised, and the clock is not read.
    pub(crate) fn offered_at(&self, touched: Touched, reads: bool) -> Option<Instant> {
        let promised = self.promises(touched, reads).next().is_some();
        promised.then(|| self.clock.now())
    }

    /// A call that was let in ended; `since` is its offer. Of one with a plain permit of the lane that is not known; then all
    /// that can be said of it is whether the store had room.
    pub(crate) fn ended(
        &self,
        touched: Touched,
        reads: bool,
        since: Option<Instant>,
        served: Served,
    ) {
        if since.is_none() && matches!(served, Served::Done) {
            return;
        }
        let mut promises = self.promises(touched, reads).peekable();
        if promises.peek().is_some() {
            let now = self.clock.now();
            let residence = now.since(since.unwrap_or(now));
            promises.for_each(|promise| promise.ended(now, residence, served));
        }
    }

    /// A call was refused. Only want of room says something of how the store is: not that it is closed, that the deadline
    /// had passed at the offer, or that a tenant may not.
    pub(crate) fn refused(&self, touched: Touched, reads: bool, reason: Reason) {
        if matches!(
            reason,
            Reason::Shed | Reason::Busy | Reason::Evicted | Reason::Expired
        ) {
            let mut promises = self.promises(touched, reads).peekable();
            if promises.peek().is_some() {
                let now = self.clock.now();
                promises.for_each(|promise| promise.refused(now));
            }
        }
    }

    /// The caller of an offer went away.
    pub(crate) fn left(&self, touched: Touched, reads: bool, since: Instant) {
        let now = self.clock.now();
        self.promises(touched, reads)
            .for_each(|promise| promise.left(now, now.since(since)));
    }

    fn promises(&self, touched: Touched, reads: bool) -> impl Iterator<Item = &Promise> {
        touched
            .families()
            .filter_map(move |family| self.families[family].of(reads))
    }

    /// Of reads and of writes.
    fn shares(&self, family: usize, now: Instant) -> [Option<ServiceShares>; 2] {
        let of = |reads| self.families[family].of(reads);
        [true, false].map(|reads| of(reads).map(|promise| promise.counts.shares(now)))
    }
}

impl Inner {
    fn utilisation_of(&self, family: usize, now: Instant) -> Utilisation {
        let [reads, writes] = self.ledger().shares(family, now);
        let mut utilisation = Utilisation::of(self.name_of(family)).with(reads, writes);
        utilisation.system.storage = self.stall().and_then(|stall| stall.storage(family, now));
        utilisation
    }
}

impl Store {
    /// How each column family is served, for callers upstream, in the order of the options: `default` first. It
    /// travels in answers, and a caller gives it to [`SloHandle::report`](cinnamon_signals::SloHandle::report) of its own
    /// [`LatencySlo`](cinnamon_signals::LatencySlo).
    ///
    /// All of it are shares, 0..=1. Those of [`Utilisation::latency`] are of the calls that were *served* within the last
    /// [`UTILISATION_WINDOW`], or as far back as [`UTILISATION_CALLS`] of them reach, up to [`UTILISATION_WINDOW_MAX`];
    /// the time of a call is that from its offer until it is done, the wait included. [`Utilisation::overall`] is of those
    /// that were *asked*: a refused call is not slow, and is not served as promised either. Without promises
    /// ([`StoreOptions::read_slo`](crate::StoreOptions::read_slo),
    /// [`write_slo`](crate::StoreOptions::write_slo), or those of the family) nothing is counted, and they are 0.
    ///
    /// [`SystemShares::storage`](cinnamon_signals::SystemShares::storage) is how far the family is on its way to a write
    /// stall: 0.5 where [`WriteStall`](crate::WriteStall) begins to shed, 1 where RocksDB delays or stops writes. It is
    /// not in `overall`, for it is no share of calls: writes that RocksDB holds back are slow.
    ///
    /// It holds up no call, and takes a fifth of a microsecond a family
    /// ([`family_utilisation`](Store::family_utilisation) of one of them goes with an answer). Each call that has a promise
    /// pays for two looks at the clock and one addition, 60 ns; those without pay nothing.
    #[must_use]
    pub fn utilisation(&self) -> Vec<Utilisation> {
        let inner = self.inner();
        let now = inner.ledger().clock.now();
        let families = 0..inner.ledger().families.len();
        families
            .map(|family| inner.utilisation_of(family, now))
            .collect()
    }

    /// [`Store::utilisation`] of the column family of this handle.
    #[must_use]
    pub fn family_utilisation(&self) -> Utilisation {
        let inner = self.inner();
        inner.utilisation_of(self.family_index(), inner.ledger().clock.now())
    }
}

#[cfg(test)]
mod tests;
