//! Keys that get more than their share: [`HotKeys`].

mod sketch;

use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use cinnamon_core::{
    Authority, Culprit, DEFAULT_PRESSURE_MAX, Dynamics, Instant, Observer, OfferEvent, Reading,
    Remedy, Signal, View, Who,
};

use crate::common::{Common, common_answers, common_setters};
use crate::hot::rings::Cursor;
use crate::hot::{self, Busy, PEER_SIGMAS, SIGMAS, Told};
use crate::setting::{SettingError, within};
use sketch::{Sketch, Top};

/// Share of the load that one key has at pressure 1.0: from a tenth on FoundationDB throttles a tag.
pub const DEFAULT_HOT_KEY_SHARE: f64 = 0.1;
/// A key is named from this share on: less of it than a hundredth is not worth a refusal.
pub const HOT_KEY_SHARE_MIN: f64 = 0.01;
/// And when it comes so many times as often as its peers, the median of the 64 most frequent keys. Of keys with Zipf's
/// distribution and an exponent of 1 the first is 32 times that, and no culprit.
pub const HOT_KEY_PEERS: f64 = 50.0;
/// Most keys named at once.
pub const HOT_KEYS_MAX: usize = 8;

/// With fewer keys in the last second nothing is said: a share of them is chance.
const KEYS_MIN: u64 = 500;
/// How fast the share of a key follows what is let in: the two generations of the sketch.
const TAU: Duration = Duration::from_secs(1);

/// Keys that get far more requests than their peers, and who they are: they are throttled, and nobody else.
///
/// - **Measures** how often each key came in the last half to whole second, by a sketch of bounded memory (HeavyKeeper, 250
///   KiB in all, whatever keys come). A key is *named* as a culprit, with its share, from [`HOT_KEY_SHARE_MIN`] of all
///   requests and [`HOT_KEY_PEERS`] times its peers on. Pressure is the share of the first of them over
///   [`DEFAULT_HOT_KEY_SHARE`]; but held under 1.0 while the lanes of its scope are not busy, or next to nobody else comes:
///   one key that gets all of a load that is no load does not hurt, and to throttle it would help nobody. With
///   [`rate_max`](Self::rate_max) it is the key's rate over that, busy or not.
/// - **A sample costs** about 50 ns for each key since the last one, 33,000 at most, of more the latest count; so 0.25 % of a
///   core at 50,000 requests a second, and 1.6 % at most. A request costs an addition and a store, a few nanoseconds; as an
///   observer 15 ns.
/// - **Lies** when many keys are hot alike (then they are each other's peers, and it is overload like any), when the load
///   of a key is not its number of requests, and about which of several threads' keys came first. Of little it cannot tell
///   much: at 1,000 requests a second a key is named from some 15 to 25 % of them on. An observer cannot tell exempt work
///   from other, so that counts too. The sketch never counts a key too often but by a collision of 64-bit hashes, whose
///   seed is drawn anew in each process.
/// - **Dynamics** are settling. **Remedy** is [`Remedy::Precise`]: it never moves a threshold, so its **authority**,
///   [`Authority::Inferring`], is of no account.
/// - **Target**: [`DEFAULT_HOT_KEY_SHARE`].
///
/// With fewer than 500 keys in that time its pressure is 0. What is refused counts too, so the share of a key that is
/// throttled stays what it was; but the lanes are then not busy any more, the pressure is held back, and the controller
/// lets the key in again, bit by bit, until they are.
///
/// Given as an observer, its handle sees every offer, let in or not, of the lanes in its scope:
///
/// ```
/// use std::sync::Arc;
/// use cinnamon_core::{Config, Controller, Request, Settings, Tier};
/// use cinnamon_signals::HotKeys;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (hot_keys, handle) = HotKeys::new();
/// let config = Config::new(Settings::one_lane("main", 16))?;
/// let controller = Controller::builder(config)
///     .signal(hot_keys)
///     .observer(Arc::new(handle))
///     .build()?;
/// let lane = controller.lane("main")?;
///
/// let partition = 0x5ca1ab1e;
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
    told: Arc<Told>,
    cursor: Cursor,
    sketch: Sketch,
    busy: Busy,
}

/// Tells a [`HotKeys`] of the keys that come, as an [`Observer`] or by hand, not both. Clones tell the same one.
#[derive(Clone, Debug)]
pub struct HotKeysHandle {
    told: Arc<Told>,
}

impl HotKeysHandle {
    /// A request on this key has come: the hash that is given to [`Request::key`](cinnamon_core::Request::key). Say so
    /// before it is offered; what is refused is load, too.
    pub fn key(&self, key: u64) {
        self.told.rings.push(key);
    }
}

impl Observer for HotKeysHandle {
    fn on_offer(&self, offer: &OfferEvent<'_>) {
        if !self.told.concerns(offer.lane) {
            return;
        }
        match offer.request.get_key() {
            Some(key) => self.key(key),
            // Part of the load of which a key has a share.
            None => self.told.rings.push_nameless(1),
        }
    }
}

impl HotKeys {
    /// A signal called `hot-keys`, and the handle that tells it of keys.
    pub fn new() -> (Self, HotKeysHandle) {
        Self::with_seed(RandomState::new().hash_one(0))
    }

    /// The same with a hash of this seed, for tests: whoever knows it could choose keys that collide.
    pub fn with_seed(seed: u64) -> (Self, HotKeysHandle) {
        let told = Arc::new(Told::new());
        let signal = Self {
            common: Common::new("hot-keys", Authority::Inferring),
            target_share: DEFAULT_HOT_KEY_SHARE,
            rate_max: None,
            told: Arc::clone(&told),
            cursor: Cursor::default(),
            sketch: Sketch::new(seed),
            busy: Busy::default(),
        };
        (signal, HotKeysHandle { told })
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

    /// The culprits, worst first, and the pressure of the first.
    fn judge(&self, top: &Top) -> (Vec<Culprit>, f64) {
        let (seen, all) = (top.sums.seen as f64, top.sums.all as f64);
        if top.sums.seen < KEYS_MIN || top.seconds <= 0.0 {
            return (Vec::new(), 0.0);
        }
        let per_s = all / top.seconds;
        let with_key = all / (all + top.sums.nameless as f64);
        let mut culprits = Vec::new();
        let mut pressure = 0.0_f64;
        for (i, &(key, count)) in top.keys.iter().enumerate().take(HOT_KEYS_MAX) {
            let share = (count as f64 / seen).min(1.0);
            let sure = share - SIGMAS * (share * (1.0 - share) / seen).sqrt();
            // Few come of each peer: of their count as much is believed as chance may have hidden.
            let peers = peers(&top.keys, i);
            let stands_out = count as f64 >= HOT_KEY_PEERS * (peers + PEER_SIGMAS * peers.sqrt());
            let named = stands_out && sure * with_key >= HOT_KEY_SHARE_MIN;
            let of_rate = self.rate_max.map_or(0.0, |most| sure * per_s / most);
            if !named && of_rate < 1.0 {
                continue;
            }
            culprits.push(Culprit {
                who: Who::Key(key),
                share: share * with_key,
            });
            let of_share = if self.rate_max.is_none() {
                sure * with_key / self.target_share
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
    let median = hot::median_of_others(keys.len(), index).and_then(|at| keys.get(at));
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

    fn remedy(&self) -> Remedy {
        Remedy::Precise
    }

    fn sample(&mut self, now: Instant, view: &View) -> Reading {
        let (told, sketch) = (&self.told, &mut self.sketch);
        told.learn_lanes(&self.common.scope, view);
        let came = told.rings.drain(&mut self.cursor, |key| sketch.add(key));
        sketch.came(came);
        // Judged before it turns: the present generation is never empty then.
        let top = sketch.top(now);
        sketch.turn(now);
        let busy = self.busy.look(now, &self.common.scope, view);
        let (culprits, pressure) = self.judge(&top);
        if self.rate_max.is_some() {
            Reading::pressure(pressure).culprits(culprits)
        } else {
            hot::reading(pressure, culprits, busy)
        }
    }
}

#[cfg(test)]
mod tests;
