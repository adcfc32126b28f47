//! Whose turn it is among the waiters of a tier: tenants take turns.
//!
//! Each tenant with somebody waiting in a tier is a *flow* of its own; work without a tenant is one flow. Flows take
//! turns by surplus round robin (Adiseshu, Parulkar and Varghese, 1996): a flow whose turn it is serves until what it
//! was served in cost has used its quantum, the mean cost of a waiter, and what it took too much it owes the next round.
//! So a flood by one tenant delays its own work, and nobody else's by more than its share. The same idea with one
//! contested waiter per tenant is known as *valves*, from Vitess. When there is no room, who leaves is of the longest
//! flow, or of one at least half as long.
//!
//! Every operation is O(1); a turn is O(1) in the mean, as each quantum given was owed for work that was served.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::list::{Links, List};
use crate::priority::{TIERS, mix64};
use crate::request::Tenant;

/// Lengths from `2^i` to below `2^(i + 1)` are of class `i`.
const LENGTH_CLASSES: usize = 32;
/// What a flow may owe, in quanta: one request that costs more than that many others must not lock its tenant out.
const OWED_QUANTA: i64 = 64;

/// One tenant's waiters in one tier.
#[derive(Debug)]
struct Flow {
    tier: u8,
    tenant: Option<Tenant>,
    entries: List,
    len: u32,
    /// Cost that it may still be served in this turn; below zero what it owes.
    surplus: i64,
}

/// Hashes a number that says who somebody is.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix64(self.0 ^ u64::from(byte));
        }
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = mix64(self.0 ^ u64::from(id));
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = mix64(self.0 ^ id);
    }
}

/// A map by numbers that the embedder gives out, or that are hashes already.
pub(crate) type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// All flows of a queue.
#[derive(Debug)]
pub(crate) struct Flows {
    flows: Vec<Flow>,
    free: Vec<u32>,
    /// The flow of each tenant, by tier and id; those without a tenant are in `nobodys`.
    of_tenant: IdMap<u64, u32>,
    nobodys: [Option<u32>; TIERS],
    /// Entries of a flow, by the indices of the queue's slab.
    entry_links: Links,
    /// Which flow an entry is on.
    flow_of: Vec<u32>,
    /// Flows of a tier, whose turn it is first.
    turns: [List; TIERS],
    turn_links: Links,
    /// Flows of a tier by the class of their length.
    by_length: [[List; LENGTH_CLASSES]; TIERS],
    /// Bit `i` is set when class `i` is not empty.
    lengths: [u32; TIERS],
    length_links: Links,
}

impl Flows {
    pub(crate) fn new() -> Self {
        Self {
            flows: Vec::new(),
            free: Vec::new(),
            of_tenant: IdMap::default(),
            nobodys: [None; TIERS],
            entry_links: Links::new(),
            flow_of: Vec::new(),
            turns: [List::EMPTY; TIERS],
            turn_links: Links::new(),
            by_length: [[List::EMPTY; LENGTH_CLASSES]; TIERS],
            lengths: [0; TIERS],
            length_links: Links::new(),
        }
    }

    /// Whether anybody waits in this tier.
    pub(crate) fn is_empty(&self, tier: usize) -> bool {
        self.turns[tier].is_empty()
    }

    /// Makes room for entries below `len`.
    pub(crate) fn grow(&mut self, len: usize) {
        self.entry_links.grow(len);
        if self.flow_of.len() < len {
            self.flow_of.resize(len, 0);
        }
    }

    /// An entry comes.
    pub(crate) fn push(&mut self, tier: usize, tenant: Option<Tenant>, entry: u32) {
        let flow = match self.find(tier, tenant) {
            Some(flow) => flow,
            None => self.open(tier, tenant),
        };
        self.flow_of[entry as usize] = flow;
        let of = &mut self.flows[flow as usize];
        self.entry_links.push_back(&mut of.entries, entry);
        of.len += 1;
        let len = of.len;
        self.move_length(flow, len - 1, len);
    }

    /// An entry leaves.
    pub(crate) fn remove(&mut self, entry: u32) {
        let flow = self.flow_of[entry as usize];
        let of = &mut self.flows[flow as usize];
        self.entry_links.unlink(&mut of.entries, entry);
        of.len -= 1;
        let len = of.len;
        self.move_length(flow, len + 1, len);
        if len == 0 {
            self.close(flow);
        }
    }

    /// Whose turn it is in this tier: that flow's oldest entry, or its newest. `quantum` is the mean cost of a waiter,
    /// at least 1. The entry must be removed, and [`Flows::served`] told before.
    pub(crate) fn next(&mut self, tier: usize, newest: bool, quantum: i64) -> Option<u32> {
        let quantum = quantum.max(1);
        while !self.turns[tier].is_empty() {
            let flow = self.turns[tier].front();
            let alone = self.turns[tier].back() == flow;
            let of = &mut self.flows[flow as usize];
            if alone {
                // Nobody to whom it could owe anything.
                of.surplus = quantum;
            }
            // What is owed was dear when the mean was; now that it is not, it must not be paid off in a thousand turns.
            of.surplus = of.surplus.max(-quantum.saturating_mul(OWED_QUANTA));
            if of.surplus > 0 {
                return Some(if newest {
                    of.entries.back()
                } else {
                    of.entries.front()
                });
            }
            of.surplus += quantum;
            self.turn_links.unlink(&mut self.turns[tier], flow);
            self.turn_links.push_back(&mut self.turns[tier], flow);
        }
        None
    }

    /// The entry given by [`Flows::next`] runs, at this cost.
    pub(crate) fn served(&mut self, entry: u32, cost: u32, quantum: i64) {
        let flow = self.flow_of[entry as usize];
        let of = &mut self.flows[flow as usize];
        let owed = quantum.max(1).saturating_mul(OWED_QUANTA);
        of.surplus = (of.surplus - i64::from(cost)).max(-owed);
    }

    /// Who has to leave instead of `entry`, of the same tier, so that the longest flow pays: its oldest entry. `None`
    /// when that flow is no longer than `entry`'s own, or less than twice as long.
    pub(crate) fn instead_of(&self, entry: u32) -> Option<u32> {
        let of = &self.flows[self.flow_of[entry as usize] as usize];
        let tier = usize::from(of.tier);
        let longest = (31 - self.lengths[tier].leading_zeros()) as usize;
        if length_class(of.len) == Some(longest) {
            return None;
        }
        let flow = self.by_length[tier][longest].front();
        Some(self.flows[flow as usize].entries.front())
    }

    fn find(&self, tier: usize, tenant: Option<Tenant>) -> Option<u32> {
        match tenant {
            Some(tenant) => self.of_tenant.get(&name(tier, tenant)).copied(),
            None => self.nobodys[tier],
        }
    }

    fn open(&mut self, tier: usize, tenant: Option<Tenant>) -> u32 {
        let flow = Flow {
            tier: tier as u8,
            tenant,
            entries: List::EMPTY,
            len: 0,
            // Its turn comes after those who are here, and then it serves one.
            surplus: 1,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.flows[index as usize] = flow;
                index
            }
            None => {
                self.flows.push(flow);
                self.turn_links.grow(self.flows.len());
                self.length_links.grow(self.flows.len());
                self.flows.len() as u32 - 1
            }
        };
        match tenant {
            Some(tenant) => {
                self.of_tenant.insert(name(tier, tenant), index);
            }
            None => self.nobodys[tier] = Some(index),
        }
        self.turn_links.push_back(&mut self.turns[tier], index);
        index
    }

    fn close(&mut self, index: u32) {
        let of = &self.flows[index as usize];
        let tier = usize::from(of.tier);
        match of.tenant {
            Some(tenant) => {
                self.of_tenant.remove(&name(tier, tenant));
            }
            None => self.nobodys[tier] = None,
        }
        self.turn_links.unlink(&mut self.turns[tier], index);
        self.free.push(index);
    }

    fn move_length(&mut self, flow: u32, from: u32, to: u32) {
        let (from, to) = (length_class(from), length_class(to));
        if from == to {
            return;
        }
        let tier = usize::from(self.flows[flow as usize].tier);
        let lists = &mut self.by_length[tier];
        if let Some(class) = from {
            self.length_links.unlink(&mut lists[class], flow);
            if lists[class].is_empty() {
                self.lengths[tier] &= !(1 << class);
            }
        }
        if let Some(class) = to {
            self.length_links.push_back(&mut lists[class], flow);
            self.lengths[tier] |= 1 << class;
        }
    }
}

const fn length_class(len: u32) -> Option<usize> {
    match len.checked_ilog2() {
        Some(class) => Some(class as usize),
        None => None,
    }
}

const fn name(tier: usize, tenant: Tenant) -> u64 {
    (tier as u64) << 32 | tenant.0 as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Serves the next of tier 3, with quantum 1.
    fn serve(flows: &mut Flows, cost: impl Fn(u32) -> u32, quantum: i64) -> Option<u32> {
        let entry = flows.next(3, false, quantum)?;
        flows.served(entry, cost(entry), quantum);
        flows.remove(entry);
        Some(entry)
    }

    fn push(flows: &mut Flows, tenant: Option<u32>, entries: std::ops::Range<u32>) {
        flows.grow(entries.end as usize);
        entries.for_each(|entry| flows.push(3, tenant.map(Tenant), entry));
    }

    #[test]
    fn tenants_take_turns_however_many_each_has() {
        let mut flows = Flows::new();
        push(&mut flows, Some(7), 0..1_000);
        push(&mut flows, Some(8), 1_000..1_004);
        push(&mut flows, None, 1_004..1_008);
        let first: Vec<u32> = (0..12)
            .filter_map(|_| serve(&mut flows, |_| 1, 1))
            .collect();
        let of = |range: std::ops::Range<u32>| first.iter().filter(|e| range.contains(e)).count();
        assert_eq!(
            [of(0..1_000), of(1_000..1_004), of(1_004..1_008)],
            [4; 3],
            "{first:?}"
        );
    }

    #[test]
    fn turns_are_worth_cost_and_not_requests() {
        let mut flows = Flows::new();
        push(&mut flows, Some(1), 0..400);
        push(&mut flows, Some(2), 400..800);
        let cost = |entry: u32| if entry < 400 { 8 } else { 1 };
        let mut served = [0u32; 2];
        for _ in 0..360 {
            let entry = serve(&mut flows, cost, 4).unwrap();
            served[usize::from(entry >= 400)] += cost(entry);
        }
        let ratio = f64::from(served[0]) / f64::from(served[1]);
        assert!((0.9..=1.1).contains(&ratio), "{served:?}");
    }

    #[test]
    fn what_was_dear_is_not_paid_off_in_a_thousand_million_turns() {
        let mut flows = Flows::new();
        push(&mut flows, Some(1), 0..2);
        push(&mut flows, Some(2), 2..4);
        let dear = 1_000_000_000;
        for _ in 0..2 {
            serve(&mut flows, |_| dear, i64::from(dear)).unwrap();
        }
        // Now the mean is one; both owe far more.
        assert!(serve(&mut flows, |_| 1, 1).is_some());
        assert!(serve(&mut flows, |_| 1, 1).is_some());
    }

    #[test]
    fn the_longest_flow_pays_and_a_flow_alone_pays_as_it_did() {
        let mut flows = Flows::new();
        push(&mut flows, Some(1), 0..100);
        assert_eq!(flows.instead_of(57), None);
        push(&mut flows, Some(2), 100..103);
        assert_eq!(flows.instead_of(101), Some(0));
        assert_eq!(flows.instead_of(57), None);
        push(&mut flows, Some(2), 103..180);
        assert_eq!(
            flows.instead_of(101),
            None,
            "less than twice as long is alike"
        );
    }

    proptest! {
        /// Whatever comes and goes: everybody is served once, and turns differ by no more than one among
        /// those who had somebody waiting all the time.
        #[test]
        fn everybody_is_served_once(ops in proptest::collection::vec((0..5u32, 0..4u8), 1..300)) {
            let mut flows = Flows::new();
            let mut waiting: Vec<(u32, u32)> = Vec::new();
            for (entry, (tenant, op)) in ops.into_iter().enumerate() {
                let entry = entry as u32;
                match op {
                    0 if !waiting.is_empty() => {
                        let (gone, _) = waiting.remove(tenant as usize % waiting.len());
                        flows.remove(gone);
                    }
                    1 => {
                        let next = serve(&mut flows, |e| e % 7 + 1, 3);
                        prop_assert_eq!(next.is_some(), !waiting.is_empty());
                        if let Some(next) = next {
                            let index = waiting.iter().position(|&(e, _)| e == next).unwrap();
                            let (_, tenant) = waiting.remove(index);
                            prop_assert!(!waiting.iter().any(|&(e, t)| t == tenant && e < next));
                        }
                    }
                    _ => {
                        push(&mut flows, (tenant > 0).then_some(tenant), entry..entry + 1);
                        waiting.push((entry, tenant));
                    }
                }
                prop_assert_eq!(flows.is_empty(3), waiting.is_empty());
                if let Some(&(entry, tenant)) = waiting.first() {
                    let len = |t: u32| waiting.iter().filter(|w| w.1 == t).count();
                    let longest = (0..5).map(len).max().unwrap();
                    match flows.instead_of(entry) {
                        None => prop_assert!(2 * len(tenant) > longest),
                        Some(other) => {
                            let payer = waiting.iter().find(|w| w.0 == other).unwrap().1;
                            prop_assert!(2 * len(payer) > longest && payer != tenant);
                        }
                    }
                }
            }
        }
    }
}
