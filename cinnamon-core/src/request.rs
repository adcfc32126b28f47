//! What a caller offers: [`Request`].

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Serialize;

use crate::clock::Instant;
use crate::priority::{KeyHash, Priority, Rank, Tier, keyless_position, ring_rank};

/// A caller's tenant, interned by the embedder. Strings are never hashed on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Tenant(pub u32);

/// A kind of request: index into [`Settings::classes`](crate::Settings::classes). Requests of a
/// class share a cost model and a default tier. A number beyond the configured classes is treated
/// as class 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Class(pub u16);

/// One request to run, described in the words the decision needs. Small and `Copy`; building one
/// allocates nothing and reads no clock.
///
/// ```
/// use std::time::Duration;
/// use cinnamon_core::{Request, Tier};
///
/// let user_id = 4711;
/// let request = Request::new(Tier::T1)
///     .key(user_id)
///     .max_wait(Duration::from_millis(50))
///     .cost(8);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a request does nothing until it is offered to a lane"]
pub struct Request {
    pub(crate) tag: Tag,
    pub(crate) key: Option<u64>,
    pub(crate) tenant: Option<Tenant>,
    pub(crate) class: Class,
    pub(crate) cost: Option<NonZeroU32>,
    pub(crate) bytes: u32,
    pub(crate) deadline: Option<Instant>,
    pub(crate) time_left: Option<Duration>,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) attempt: u8,
}

/// What the request says of its importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    Tier(Tier),
    Priority(Priority),
    Untagged,
    Exempt,
}

impl Request {
    /// A request of this tier. Its cohort comes from its [`key`](Self::key); without a key, from an
    /// even sequence.
    pub const fn new(tier: Tier) -> Self {
        Self::with_tag(Tag::Tier(tier))
    }

    /// A request whose priority was decided upstream and travelled with it.
    pub const fn at(priority: Priority) -> Self {
        Self::with_tag(Tag::Priority(priority))
    }

    /// A request that says nothing of its importance. It takes its class's default tier, else
    /// [`Settings::untagged_tier`](crate::Settings::untagged_tier), never t0 or t1, and is counted.
    pub const fn untagged() -> Self {
        Self::with_tag(Tag::Untagged)
    }

    /// A request that is always admitted at once, without a slot: health checks, control traffic,
    /// cancellations. It is counted, and teaches nothing. Keep such work rare and cheap: nothing
    /// bounds it.
    pub const fn exempt() -> Self {
        Self::with_tag(Tag::Exempt)
    }

    const fn with_tag(tag: Tag) -> Self {
        Self {
            tag,
            key: None,
            tenant: None,
            class: Class(0),
            cost: None,
            bytes: 0,
            deadline: None,
            time_left: None,
            max_wait: None,
            attempt: 0,
        }
    }

    /// A hash of whoever stands behind the request (user, session), so that the same caller meets
    /// the same fate. Any `u64`; it need not be well mixed.
    pub const fn key(mut self, key: u64) -> Self {
        self.key = Some(key);
        self
    }

    /// The tenant on whose behalf it runs. An [`Override`](crate::Override) may be of it.
    pub const fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// The kind of request.
    pub const fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Its cost in work units, at least 1 (0 counts as 1). Without one, the class's learned mean is
    /// used. What it really cost is said at [`Permit::finish`](crate::Permit::finish).
    pub const fn cost(mut self, units: u32) -> Self {
        self.cost = Some(match NonZeroU32::new(units) {
            Some(units) => units,
            None => NonZeroU32::MIN,
        });
        self
    }

    /// Memory in bytes that the caller holds while the request waits (its decoded body); counted
    /// against [`LaneSettings::queue_bytes_max`](crate::LaneSettings::queue_bytes_max).
    pub const fn bytes(mut self, bytes: u32) -> Self {
        self.bytes = bytes;
        self
    }

    /// The same, if less was said: for code between the caller and the lane that holds a copy.
    pub const fn bytes_at_least(mut self, bytes: u32) -> Self {
        if self.bytes < bytes {
            self.bytes = bytes;
        }
        self
    }

    /// The instant (of the controller's clock) after which the answer is worthless. Offered later
    /// than that it is refused as hopeless; waiting at that time it expires.
    pub const fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The deadline as time left from the moment of the offer. The earlier of this and
    /// [`deadline`](Self::deadline) counts.
    pub const fn time_left(mut self, time_left: Duration) -> Self {
        self.time_left = Some(time_left);
        self
    }

    /// The same request with its [`time_left`](Self::time_left) counted from `now` (by the controller's clock),
    /// rather than from each offer anew: for work that is offered in several pieces, and has one deadline for
    /// all of them.
    pub fn starting_at(mut self, now: Instant) -> Self {
        self.deadline = self.deadline_at(now);
        self.time_left = None;
        self
    }

    /// The longest it may wait in the queue; zero means "now or not at all".
    pub const fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }

    /// Which attempt this is: 0 for the first, 1 for the first retry, and so on. Later attempts are
    /// told to stay away longer.
    pub const fn attempt(mut self, attempt: u8) -> Self {
        self.attempt = attempt;
        self
    }

    /// Its tier, if it says one: none for untagged and exempt work.
    #[must_use]
    pub const fn claimed_tier(&self) -> Option<Tier> {
        match self.tag {
            Tag::Tier(tier) => Some(tier),
            Tag::Priority(priority) => Some(priority.tier()),
            Tag::Untagged | Tag::Exempt => None,
        }
    }

    /// What was given as [`key`](Self::key).
    #[must_use]
    pub const fn get_key(&self) -> Option<u64> {
        self.key
    }

    /// What was given as [`tenant`](Self::tenant).
    #[must_use]
    pub const fn get_tenant(&self) -> Option<Tenant> {
        self.tenant
    }

    /// What was given as [`class`](Self::class).
    #[must_use]
    pub const fn get_class(&self) -> Class {
        self.class
    }

    /// What was given as [`cost`](Self::cost), work units.
    #[must_use]
    pub const fn get_cost(&self) -> Option<u32> {
        match self.cost {
            Some(cost) => Some(cost.get()),
            None => None,
        }
    }

    /// What was given as [`bytes`](Self::bytes).
    #[must_use]
    pub const fn get_bytes(&self) -> u32 {
        self.bytes
    }

    /// What was given as [`attempt`](Self::attempt).
    #[must_use]
    pub const fn get_attempt(&self) -> u8 {
        self.attempt
    }

    /// The instant by which it must have been answered, if it has one.
    pub(crate) fn deadline_at(&self, now: Instant) -> Option<Instant> {
        let relative = self.time_left.map(|left| now.after(left));
        match (self.deadline, relative) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Whether all that it says of itself is what a gate can judge by: nothing of time.
    pub(crate) const fn is_plain(&self) -> bool {
        self.deadline.is_none() && self.time_left.is_none()
    }

    /// The same, but in no better tier than this; its cohort stays.
    pub(crate) const fn at_best(mut self, tier: Tier) -> Self {
        self.tag = match self.tag {
            Tag::Tier(claimed) if (claimed as u8) < tier as u8 => Tag::Tier(tier),
            Tag::Priority(claimed) if (claimed.tier() as u8) < tier as u8 => {
                Tag::Priority(Priority::new(tier, claimed.cohort()))
            }
            other => other,
        };
        self
    }

    /// The first rank that it may have, if it says its own tier.
    pub(crate) const fn first_rank(&self) -> Option<Rank> {
        match self.tag {
            Tag::Tier(tier) => Some(ring_rank(tier, 0)),
            Tag::Priority(priority) => Some(Rank::new(priority, 0)),
            Tag::Untagged | Tag::Exempt => None,
        }
    }

    /// Its rank, given the tier that untagged work takes and a running number for keyless work.
    pub(crate) fn rank(&self, hash: KeyHash, untagged: Tier, keyless: u64) -> Rank {
        let tier = match self.tag {
            Tag::Tier(tier) => tier,
            Tag::Untagged => untagged,
            // Exempt work is never compared with a threshold; its rank only labels it.
            Tag::Exempt => Tier::T0,
            Tag::Priority(priority) => {
                return match self.key {
                    Some(key) => hash.rank_at(priority, key),
                    None => Rank::new(priority, (keyless_position(keyless) >> 16) as u16),
                };
            }
        };
        match self.key {
            Some(key) => hash.rank(tier, key),
            None => ring_rank(tier, keyless_position(keyless)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_deadline_counts() {
        let now = Instant::from_nanos(1_000);
        let request = Request::new(Tier::T1)
            .deadline(Instant::from_nanos(5_000))
            .time_left(Duration::from_nanos(2_000));
        assert_eq!(request.deadline_at(now), Some(Instant::from_nanos(3_000)));
        assert_eq!(Request::new(Tier::T1).deadline_at(now), None);
    }

    #[test]
    fn time_left_is_counted_once_for_work_that_is_offered_in_pieces() {
        let at = Instant::from_nanos;
        let request = Request::new(Tier::T1)
            .time_left(Duration::from_nanos(2_000))
            .starting_at(at(1_000));
        assert_eq!(request.deadline_at(at(2_500)), Some(at(3_000)));
        let earlier = request.deadline(at(2_000)).starting_at(at(1_500));
        assert_eq!(earlier.deadline_at(at(9_000)), Some(at(2_000)));
        let endless = Request::new(Tier::T1).starting_at(at(1_000));
        assert_eq!(endless.deadline_at(at(9_000)), None);
    }

    #[test]
    fn keyless_work_at_one_priority_spreads_over_its_fractions() {
        let priority = Priority::from_number(300).unwrap();
        let hash = KeyHash::new(0, 0);
        let below_half = (0..1_000)
            .map(|n| Request::at(priority).rank(hash, Tier::T3, n))
            .filter(|rank| rank.priority() == priority && rank.fraction() < 0.5)
            .count();
        assert!((495..=505).contains(&below_half), "{below_half}");
    }

    #[test]
    fn zero_cost_counts_as_one() {
        assert_eq!(Request::new(Tier::T0).cost(0).cost, NonZeroU32::new(1));
    }
}
