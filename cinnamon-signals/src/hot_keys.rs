//! Keys that get more than their share: [`HotKeys`].

mod rings;
mod sketch;

use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use cinnamon_core::{
    Authority, Culprit, DEFAULT_PRESSURE_MAX, Dynamics, Instant, Reading, Signal, View, Who,
};

use crate::combine::HELD_BACK;
use crate::common::{Common, common_answers, common_setters};
use crate::setting::{SettingError, within};
use rings::{Cursor, Rings};
use sketch::{Sketch, Top};

/// Share of the load that one key has at pressure 1.0: from a tenth on FoundationDB throttles a tag, and here no one is
/// throttled for being the most popular of a few.
pub const DEFAULT_HOT_KEY_SHARE: f64 = 0.2;
/// A key is named from this share on: less of it than a hundredth is not worth a refusal.
pub const HOT_KEY_SHARE_MIN: f64 = 0.01;
/// And when it comes so many times as often as its peers, the median of the 64 most frequent keys. Of keys with Zipf's
/// distribution and an exponent of 1 the first is 32 times that, and no culprit.
pub const HOT_KEY_PEERS: f64 = 50.0;
/// Most keys named at once.
pub const HOT_KEYS_MAX: usize = 8;

/// With fewer keys in the last second nothing is said: a share of them is chance.
const KEYS_MIN: u64 = 500;
/// A share is believed but for so many standard errors of it.
const SIGMAS: f64 = 3.0;
/// And a peer is taken for so many standard errors more.
const PEER_SIGMAS: f64 = 2.0;
/// Lanes are busy when in this share of the last looks they were full or somebody waited.
const BUSY: f64 = 0.5;
/// The mean over those looks.
const BUSY_MEMORY: Duration = Duration::from_secs(1);
/// How fast the share of a key follows what is let in: the two generations of the sketch.
const TAU: Duration = Duration::from_secs(1);

/// Keys that get far more requests than their peers, and who they are.
///
/// - **Measures** how often each key came in the last half to whole second, by a sketch of bounded memory (HeavyKeeper, 250
///   KiB in all, whatever keys come). A key is *named* as a culprit, with its share, from [`HOT_KEY_SHARE_MIN`] of all
///   requests and [`HOT_KEY_PEERS`] times its peers on. Pressure is the share of the first of them over
///   [`DEFAULT_HOT_KEY_SHARE`]; but held under 1.0 while the lanes of its scope are not busy: one key that gets all of
///   a load that is no load does not hurt. With [`rate_max`](Self::rate_max) it is the key's rate over that, busy or not.
/// - **A sample costs** about 50 ns for each key since the last one, 33,000 at most, of more the latest count; so 0.25 % of a
///   core at 50,000 requests a second, and 1.6 % at most. A request costs an addition and a store, a few nanoseconds.
/// - **Lies** when many keys are hot alike (then they are each other's peers, and it is overload like any), when the load
///   of a key is not its number of requests, and about which of several threads' keys came first. The sketch never counts
///   a key too often but by a collision of 64-bit hashes, whose seed is drawn anew in each process.
/// - **Dynamics** are settling. **Authority** is [`Authority::Inferring`]: what to do about a key is to throttle that key;
///   the broad gate is what is left when nobody does.
/// - **Target**: [`DEFAULT_HOT_KEY_SHARE`].
///
/// With fewer than 500 keys in that time its pressure is 0.
///
/// ```
/// use cinnamon_core::{Config, Controller, Request, Settings, Tier};
/// use cinnamon_signals::HotKeys;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (hot_keys, seen) = HotKeys::new();
/// let config = Config::new(Settings::one_lane("main", 16))?;
/// let controller = Controller::builder(config).signal(hot_keys).build()?;
/// let lane = controller.lane("main")?;
///
/// let partition = 0x5ca1ab1e;
/// seen.key(partition); // for every request, let in or not
/// let permit = lane.try_admit(&Request::new(Tier::T2).key(partition))?;
/// # drop(permit);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct HotKeys {
    common: Common,
    target_share: f64,
    rate_max: Option<f64>,
    rings: Arc<Rings>,
    cursor: Cursor,
    sketch: Sketch,
    busy: f64,
    looked_at: Option<Instant>,
}

/// Tells a [`HotKeys`] of the keys that come. Clones tell the same one.
#[derive(Clone, Debug)]
pub struct HotKeysHandle {
    rings: Arc<Rings>,
}

impl HotKeysHandle {
    /// A request on this key has come: the hash that is given to [`Request::key`](cinnamon_core::Request::key). Say so
    /// before it is offered; what is refused is load, too.
    pub fn key(&self, key: u64) {
        self.rings.push(key);
    }
}

impl HotKeys {
    /// A signal called `hot-keys`, and the handle that tells it of keys.
    pub fn new() -> (Self, HotKeysHandle) {
        Self::seeded(RandomState::new().hash_one(0))
    }

    fn seeded(seed: u64) -> (Self, HotKeysHandle) {
        let rings = Arc::new(Rings::new());
        let signal = Self {
            common: Common::new("hot-keys", Authority::Inferring),
            target_share: DEFAULT_HOT_KEY_SHARE,
            rate_max: None,
            rings: Arc::clone(&rings),
            cursor: Cursor::default(),
            sketch: Sketch::new(seed),
            busy: 0.0,
            looked_at: None,
        };
        (signal, HotKeysHandle { rings })
    }

    common_setters!();

    /// The share of one key at pressure 1.0. Default [`DEFAULT_HOT_KEY_SHARE`].
    ///
    /// # Errors
    ///
    /// Unless it is from 0.01 to 1.
    pub fn target_share(mut self, share: f64) -> Result<Self, SettingError> {
        let (range, bound) = (HOT_KEY_SHARE_MIN..=1.0, "from 0.01 to 1");
        self.target_share = within("hot_keys.target_share", share, range, bound)?;
        Ok(self)
    }

    /// What one key can bear, requests per second, where that is known (a partition's lock, a log's fsync): pressure 1.0 is
    /// there, whatever the share, and a key over it is named whatever its peers do. Default: none.
    ///
    /// # Errors
    ///
    /// Unless it is a number from 1 on.
    pub fn rate_max(mut self, per_s: f64) -> Result<Self, SettingError> {
        let bound = "a number, at least 1";
        self.rate_max = Some(within("hot_keys.rate_max", per_s, 1.0..=f64::MAX, bound)?);
        Ok(self)
    }

    /// Whether the lanes had no slot free for most of the last second.
    fn look_at_lanes(&mut self, now: Instant, view: &View) -> bool {
        let scope = &self.common.scope;
        let mut lanes = view.lanes.iter().filter(|lane| scope.covers(lane));
        let full =
            lanes.any(|lane| lane.waiting > 0 || (lane.limit > 0 && lane.in_use >= lane.limit));
        let dt = self.looked_at.map_or(Duration::ZERO, |at| now.since(at));
        self.looked_at = Some(now);
        let gain = 1.0 - (-dt.as_secs_f64() / BUSY_MEMORY.as_secs_f64()).exp();
        self.busy += gain * (f64::from(u8::from(full)) - self.busy);
        self.busy > BUSY
    }

    /// The culprits, worst first, and the pressure of the first.
    fn judge(&self, top: &Top) -> (Vec<Culprit>, f64) {
        let seen = top.seen as f64;
        if top.seen < KEYS_MIN || top.seconds <= 0.0 {
            return (Vec::new(), 0.0);
        }
        let per_s = top.all as f64 / top.seconds;
        let mut culprits = Vec::new();
        let mut pressure = 0.0_f64;
        for (i, &(key, count)) in top.keys.iter().enumerate().take(HOT_KEYS_MAX) {
            let share = (count as f64 / seen).min(1.0);
            let sure = share - SIGMAS * (share * (1.0 - share) / seen).sqrt();
            // Few come of each peer: of their count as much is believed as chance may have hidden.
            let peers = peers(&top.keys, i);
            let stands_out = count as f64 >= HOT_KEY_PEERS * (peers + PEER_SIGMAS * peers.sqrt());
            let named = stands_out && sure >= HOT_KEY_SHARE_MIN;
            let of_rate = self.rate_max.map_or(0.0, |most| sure * per_s / most);
            if !named && of_rate < 1.0 {
                continue;
            }
            let who = Who::Key(key);
            culprits.push(Culprit { who, share });
            let of_share = if self.rate_max.is_none() {
                sure / self.target_share
            } else {
                of_rate
            };
            pressure = pressure.max(of_share);
        }
        (culprits, pressure)
    }
}

/// The median count of the most frequent keys but that at `index`; 1 when there are none: a key that comes once.
fn peers(keys: &[(u64, u64)], index: usize) -> f64 {
    let others = keys.len().saturating_sub(1);
    // They are in order.
    let middle = others / 2;
    let middle = if middle >= index { middle + 1 } else { middle };
    let median = keys.get(middle).filter(|_| others > 0);
    median.map_or(1.0, |(_, count)| *count as f64).max(1.0)
}

impl Signal for HotKeys {
    common_answers!();

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(TAU)
    }

    fn range(&self) -> RangeInclusive<f64> {
        match self.rate_max {
            Some(_) => 0.0..=DEFAULT_PRESSURE_MAX,
            None => 0.0..=1.0 / self.target_share,
        }
    }

    fn sample(&mut self, now: Instant, view: &View) -> Reading {
        let sketch = &mut self.sketch;
        let all = self.rings.drain(&mut self.cursor, |key| sketch.add(key));
        self.sketch.came(all);
        // Judged before it turns: the present generation is never empty then.
        let top = self.sketch.top(now);
        self.sketch.turn(now);
        let busy = self.look_at_lanes(now, view);
        let (culprits, pressure) = self.judge(&top);
        let counts = busy || self.rate_max.is_some() || pressure < 1.0;
        let reading = if counts {
            Reading::pressure(pressure)
        } else {
            Reading::pressure(HELD_BACK).note("the lanes are not busy")
        };
        reading.culprits(culprits)
    }
}

#[cfg(test)]
mod tests;
