//! What a snapshot and the model both say of a lane.

use std::collections::BTreeMap;

use cinnamon_core::{AdmitKind, LaneSnapshot, Mode, Reason, Tier, Verdict};

/// What a snapshot says that the model says too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub mode: Mode,
    pub limit: u32,
    pub in_use: u32,
    pub free: u32,
    pub in_use_by_tier: [u32; 6],
    pub exempt_in_use: u32,
    pub open_in_use: u32,
    pub shadow_in_use: u32,
    pub shadow_waiting: u32,
    pub waiting: u32,
    pub waiting_by_tier: [u32; 6],
    pub waiting_cost: u64,
    pub waiting_bytes: u64,
    pub offered: u64,
    pub untagged: u64,
    pub retried: u64,
    pub verdicts: BTreeMap<(usize, usize), u64>,
}

impl Figures {
    pub fn of(snapshot: &LaneSnapshot) -> Self {
        let mut verdicts = BTreeMap::new();
        for tier in Tier::ALL {
            for (number, verdict) in all_verdicts().into_iter().enumerate() {
                let count = snapshot.verdicts.get(tier, verdict);
                if count > 0 {
                    verdicts.insert((tier.index(), number), count);
                }
            }
        }
        Self {
            mode: snapshot.mode,
            limit: snapshot.limit,
            in_use: snapshot.in_use,
            free: snapshot.free,
            in_use_by_tier: snapshot.in_use_by_tier,
            exempt_in_use: snapshot.exempt_in_use,
            open_in_use: snapshot.open_in_use,
            shadow_in_use: snapshot.shadow_in_use,
            shadow_waiting: snapshot.shadow_waiting,
            waiting: snapshot.waiting,
            waiting_by_tier: snapshot.waiting_by_tier,
            waiting_cost: snapshot.waiting_cost,
            waiting_bytes: snapshot.waiting_bytes,
            offered: snapshot.offered,
            untagged: snapshot.untagged,
            retried: snapshot.retried,
            verdicts,
        }
    }
}

pub fn all_verdicts() -> Vec<Verdict> {
    let admits = [AdmitKind::Slot, AdmitKind::Exempt, AdmitKind::Open].map(Verdict::Admit);
    let refusals = Reason::ALL.map(Verdict::Refuse);
    admits
        .into_iter()
        .chain(refusals)
        .chain([Verdict::Cancel])
        .collect()
}
