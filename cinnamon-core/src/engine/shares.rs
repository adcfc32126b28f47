//! Slots that are one tier's: see [`ShareSettings`](crate::ShareSettings).
//!
//! | a free slot | may be taken by |
//! |---|---|
//! | of a hard share that its tier does not use | that tier |
//! | any other | everybody, best tier first; but first who waits in a tier that has fewer than its share |
//!
//! What a tier has by its share, the gate and the sweep leave alone. So with shares strict priority ends where a share
//! begins: a better tier may lose what a reserved one is given, and no more than that.

use std::cell::Cell;

use crate::config::{LaneSettings, SHARES_MAX, ShareKind};
use crate::priority::TIERS;

#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    /// Share of the limit and whether it is hard, by tier.
    of: [Option<(f64, bool)>; TIERS],
    any: bool,
    /// Slots taken less slots given back, by tier.
    taken: [i64; TIERS],
    /// What is reserved of this limit.
    fitted: Cell<(u32, [u32; TIERS])>,
}

impl Shares {
    pub(crate) fn new(settings: &LaneSettings) -> Self {
        let mut shares = Self::default();
        shares.reconfigure(settings);
        shares
    }

    pub(crate) fn reconfigure(&mut self, settings: &LaneSettings) {
        self.of = [None; TIERS];
        for share in &settings.shares {
            self.of[share.tier.index()] = Some((share.share, share.kind == ShareKind::Hard));
        }
        self.any = !settings.shares.is_empty();
        self.fitted.set((0, [0; TIERS]));
    }

    /// Whether any slots are reserved.
    pub(crate) const fn any(&self) -> bool {
        self.any
    }

    pub(crate) const fn started(&mut self, tier: usize) {
        self.taken[tier] += 1;
    }

    pub(crate) const fn ended(&mut self, tier: usize) {
        self.taken[tier] -= 1;
    }

    /// So many had a slot and so many gave one back without the engine, and it has just heard of it.
    pub(crate) const fn moved(&mut self, tier: usize, started: u64, ended: u64) {
        self.taken[tier] += started as i64 - ended as i64;
    }

    /// Slots in use by this tier.
    pub(crate) fn in_use(&self, tier: usize) -> u32 {
        // Of one that was had without the engine the end may be known before the start.
        u32::try_from(self.taken[tier].max(0)).unwrap_or(u32::MAX)
    }

    /// Slots reserved for a tier. A share is rounded down; a stealable one that comes to nothing is one slot, as long as that
    /// leaves some of the lane to everybody, better tiers first.
    pub(crate) fn reserved(&self, tier: usize, limit: u32) -> u32 {
        if self.fitted.get().0 != limit {
            self.fitted.set((limit, self.fit(limit)));
        }
        self.fitted.get().1[tier]
    }

    fn fit(&self, limit: u32) -> [u32; TIERS] {
        let whole = |share: f64| (share * f64::from(limit)) as u32;
        let mut slots = self.of.map(|of| of.map_or(0, |(share, _)| whole(share)));
        let most = whole(SHARES_MAX).min(limit.saturating_sub(1));
        let mut all: u32 = slots.iter().sum();
        for (tier, slots) in slots.iter_mut().enumerate() {
            if *slots == 0 && all < most && matches!(self.of[tier], Some((_, false))) {
                *slots = 1;
                all += 1;
            }
        }
        slots
    }

    /// Whether a tier runs less than its share.
    pub(crate) fn is_owed(&self, tier: usize, limit: u32) -> bool {
        self.in_use(tier) < self.reserved(tier, limit)
    }

    /// Whether a request more of this tier is within its share, with so many waiting.
    pub(crate) fn guarantees(&self, tier: usize, waiting: u32, limit: u32) -> bool {
        self.any && self.in_use(tier) + waiting < self.reserved(tier, limit)
    }

    /// Whether all who wait in this tier do so within its share.
    pub(crate) fn shields(&self, tier: usize, waiting: u32, limit: u32) -> bool {
        self.any && self.in_use(tier) + waiting <= self.reserved(tier, limit)
    }

    /// Idle slots that others than `tier` may not have.
    pub(crate) fn held_from(&self, tier: Option<usize>, limit: u32) -> u32 {
        if !self.any {
            return 0;
        }
        let hard = |&i: &usize| Some(i) != tier && matches!(self.of[i], Some((_, true)));
        let idle = |i: usize| self.reserved(i, limit).saturating_sub(self.in_use(i));
        (0..TIERS).filter(hard).map(idle).sum()
    }

    /// Whether this tier may have one of `free` slots.
    pub(crate) fn may_start(&self, tier: usize, free: u32, limit: u32) -> bool {
        // Its own hard slots are kept for it; a stealable share is of what others may have, too.
        let hard = matches!(self.of[tier], Some((_, true)));
        free > 0
            && (!self.any
                || (hard && self.is_owed(tier, limit))
                || free > self.held_from(Some(tier), limit))
    }

    /// The tier that has the next of `free` slots, of those for which `waits`.
    pub(crate) fn next_tier(
        &self,
        free: u32,
        limit: u32,
        waits: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let may = |&tier: &usize| waits(tier) && self.may_start(tier, free, limit);
        let owed = (0..TIERS).find(|tier| may(tier) && self.is_owed(*tier, limit));
        owed.or_else(|| (0..TIERS).find(may))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ShareSettings;
    use crate::priority::Tier;

    fn shares(of: &[ShareSettings]) -> Shares {
        let mut lane = LaneSettings::new("main", 10);
        lane.shares = of.to_vec();
        Shares::new(&lane)
    }

    #[test]
    fn a_hard_share_stays_free_and_a_stealable_one_is_lent() {
        let hard = shares(&[ShareSettings::hard(Tier::T0, 0.25)]);
        assert_eq!(hard.reserved(0, 10), 2);
        assert!(hard.may_start(3, 3, 10) && !hard.may_start(3, 2, 10));
        assert!(hard.may_start(0, 1, 10));
        let lent = shares(&[ShareSettings::stealable(Tier::T4, 0.25)]);
        assert!(lent.may_start(0, 1, 10));
    }

    #[test]
    fn who_is_owed_a_slot_has_the_next_one() {
        let mut shares = shares(&[ShareSettings::stealable(Tier::T4, 0.2)]);
        let all = |_: usize| true;
        assert_eq!(shares.next_tier(1, 10, all), Some(4));
        shares.started(4);
        assert_eq!(shares.next_tier(1, 10, all), Some(4));
        shares.started(4);
        assert_eq!(shares.next_tier(1, 10, all), Some(0), "it has its share");
        assert_eq!(shares.next_tier(0, 10, all), None);
        shares.ended(4);
        assert_eq!(shares.next_tier(1, 10, |tier| tier != 4), Some(0));
    }

    #[test]
    fn of_one_slot_nothing_is_reserved() {
        let shares = shares(&[
            ShareSettings::hard(Tier::T0, 0.5),
            ShareSettings::stealable(Tier::T4, 0.4),
        ]);
        assert_eq!([shares.reserved(0, 1), shares.reserved(4, 1)], [0, 0]);
        assert!(shares.may_start(3, 1, 1));
        // And of two only one.
        assert_eq!([shares.reserved(0, 2), shares.reserved(4, 2)], [1, 0]);
        assert_eq!([shares.reserved(0, 10), shares.reserved(4, 10)], [5, 4]);
    }

    #[test]
    fn what_is_rounded_up_leaves_some_of_the_lane_to_everybody() {
        let shares = shares(
            &[Tier::T2, Tier::T3, Tier::T4, Tier::T5]
                .map(|tier| ShareSettings::stealable(tier, 0.05)),
        );
        let all = |limit| {
            (0..TIERS)
                .map(|tier| shares.reserved(tier, limit))
                .sum::<u32>()
        };
        assert_eq!([1, 2, 4, 10, 40].map(all), [0, 1, 3, 4, 8]);
    }

    #[test]
    fn a_stealable_share_is_not_of_another_tiers_hard_one() {
        let mut shares = shares(&[
            ShareSettings::hard(Tier::T0, 0.2),
            ShareSettings::stealable(Tier::T4, 0.2),
        ]);
        (0..8).for_each(|_| shares.started(1));
        assert!(shares.is_owed(4, 10) && !shares.may_start(4, 2, 10));
        assert_eq!(shares.next_tier(2, 10, |tier| tier == 4), None);
        assert!(shares.may_start(0, 2, 10));
    }

    #[test]
    fn a_share_is_guaranteed_only_as_far_as_it_goes() {
        let mut shares = shares(&[ShareSettings::stealable(Tier::T4, 0.2)]);
        shares.started(4);
        assert!(shares.guarantees(4, 0, 10) && !shares.guarantees(4, 1, 10));
        assert!(shares.shields(4, 1, 10) && !shares.shields(4, 2, 10));
        assert!(!shares.guarantees(3, 0, 10));
    }
}
