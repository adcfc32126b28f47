//! Slots that are one tier's: see [`ShareSettings`](crate::ShareSettings).
//!
//! | a free slot | may be taken by |
//! |---|---|
//! | of a hard share that its tier does not use | that tier |
//! | any other | everybody, best tier first; but first who waits in a tier that has fewer than its share |
//!
//! What a tier has by its share, the gate and the sweep leave alone. So with shares strict priority ends where a share
//! begins: a better tier may lose what a reserved one is given, and no more than that.

use crate::config::{LaneSettings, ShareKind};
use crate::priority::TIERS;

#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    /// Share of the limit and whether it is hard, by tier.
    of: [Option<(f64, bool)>; TIERS],
    any: bool,
    /// Slots in use, by tier.
    in_use: [u32; TIERS],
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
    }

    /// Whether any slots are reserved.
    pub(crate) const fn any(&self) -> bool {
        self.any
    }

    pub(crate) const fn started(&mut self, tier: usize) {
        self.in_use[tier] += 1;
    }

    pub(crate) const fn ended(&mut self, tier: usize) {
        self.in_use[tier] -= 1;
    }

    /// Slots in use, by tier.
    pub(crate) const fn in_use(&self) -> &[u32; TIERS] {
        &self.in_use
    }

    /// Slots reserved for a tier.
    pub(crate) fn reserved(&self, tier: usize, limit: u32) -> u32 {
        match self.of[tier] {
            Some((share, true)) => (share * f64::from(limit)) as u32,
            // The only slot of a lane cannot be somebody's.
            Some((share, false)) if limit > 1 => ((share * f64::from(limit)) as u32).max(1),
            _ => 0,
        }
    }

    /// Whether a tier runs less than its share.
    pub(crate) fn is_owed(&self, tier: usize, limit: u32) -> bool {
        self.in_use[tier] < self.reserved(tier, limit)
    }

    /// Whether a request more of this tier is within its share, with so many waiting.
    pub(crate) fn guarantees(&self, tier: usize, waiting: u32, limit: u32) -> bool {
        self.any && self.in_use[tier] + waiting < self.reserved(tier, limit)
    }

    /// Whether all who wait in this tier do so within its share.
    pub(crate) fn shields(&self, tier: usize, waiting: u32, limit: u32) -> bool {
        self.any && self.in_use[tier] + waiting <= self.reserved(tier, limit)
    }

    /// Idle slots that others than `tier` may not have.
    pub(crate) fn held_from(&self, tier: Option<usize>, limit: u32) -> u32 {
        if !self.any {
            return 0;
        }
        let hard = |&i: &usize| Some(i) != tier && matches!(self.of[i], Some((_, true)));
        let idle = |i: usize| self.reserved(i, limit).saturating_sub(self.in_use[i]);
        (0..TIERS).filter(hard).map(idle).sum()
    }

    /// Whether this tier may have one of `free` slots.
    pub(crate) fn may_start(&self, tier: usize, free: u32, limit: u32) -> bool {
        free > 0
            && (!self.any || self.is_owed(tier, limit) || free > self.held_from(Some(tier), limit))
    }

    /// The tier that has the next of `free` slots, of those for which `waits`.
    pub(crate) fn next_tier(
        &self,
        free: u32,
        limit: u32,
        waits: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let owed = (0..TIERS).find(|&tier| waits(tier) && self.is_owed(tier, limit));
        let any = || (0..TIERS).find(|&tier| waits(tier) && self.may_start(tier, free, limit));
        owed.filter(|_| free > 0).or_else(any)
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
        assert_eq!([shares.reserved(0, 2), shares.reserved(4, 2)], [1, 1]);
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
