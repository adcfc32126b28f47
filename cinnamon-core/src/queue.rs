//! The queue of a lane: 768 levels and six tiers over one slab, every operation O(1).
//!
//! Each entry is on up to four lists: its tenant's in its tier (who is next), its level's (who must go), one by age
//! (who has waited longer than the timeout in force), and, when it has a deadline of its own, the timing
//! wheel's. A two-word bitmap walk finds the worst occupied level.

pub(crate) mod flows;

use crate::clock::Instant;
use crate::list::{Links, List, NIL};
use crate::priority::{PRIORITIES, Rank, TIERS};
use crate::request::Tenant;
use crate::wheel::Wheel;
use flows::Flows;

/// One waiting request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) rank: Rank,
    pub(crate) cost: u32,
    pub(crate) bytes: u32,
    pub(crate) class: u16,
    pub(crate) tenant: Option<Tenant>,
    /// It is in its tenant's account.
    pub(crate) counted: bool,
    pub(crate) key: Option<u64>,
    pub(crate) attempt: u8,
    pub(crate) salt: u32,
    /// Whoever waits, in the caller's numbering.
    pub(crate) token: u32,
    pub(crate) enqueued_at: Instant,
    /// The entry's own deadline, [`Instant::FAR_FUTURE`] without one.
    pub(crate) expires_at: Instant,
}

impl Entry {
    /// Whether it says itself when waiting is over.
    pub(crate) fn has_deadline(&self) -> bool {
        self.expires_at < Instant::FAR_FUTURE
    }
}

/// The longest that anybody may wait, and whether that holds for those with a deadline of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeout {
    pub(crate) nanos: u64,
    pub(crate) for_all: bool,
}

impl Timeout {
    /// Whether this entry, which has waited for `waited_ns`, has waited too long.
    pub(crate) fn ends(self, entry: &Entry, waited_ns: u64) -> bool {
        (self.for_all || !entry.has_deadline()) && waited_ns >= self.nanos
    }
}

/// Names a waiting entry; stale once the entry has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaiterId {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
struct Node {
    generation: u32,
    /// Its slot on the wheel when it has a deadline of its own.
    wheel_slot: Option<u16>,
    entry: Option<Entry>,
}

const WORDS: usize = PRIORITIES / 64;

#[derive(Debug)]
pub(crate) struct Queue {
    nodes: Vec<Node>,
    free: Vec<u32>,
    levels: Box<[List; PRIORITIES]>,
    level_links: Links,
    /// Every tier's entries, by tenant.
    flows: Flows,
    /// Bit `i` of word `w` is set when level `64 w + i` is occupied.
    occupied: [u64; WORDS],
    /// Bit `w` is set when word `w` is not zero.
    occupied_words: u64,
    /// Those without a deadline of their own, and those with one; oldest first.
    by_age: [List; 2],
    age_links: Links,
    wheel: Wheel,
    due: Vec<u32>,
    len: u32,
    cost: u64,
    bytes: u64,
    tier_len: [u32; TIERS],
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            levels: Box::new([List::EMPTY; PRIORITIES]),
            level_links: Links::new(),
            flows: Flows::new(),
            occupied: [0; WORDS],
            occupied_words: 0,
            by_age: [List::EMPTY; 2],
            age_links: Links::new(),
            wheel: Wheel::new(),
            due: Vec::new(),
            len: 0,
            cost: 0,
            bytes: 0,
            tier_len: [0; TIERS],
        }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Cost of all entries, work units.
    pub(crate) const fn cost(&self) -> u64 {
        self.cost
    }

    /// Bytes held by all entries.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Entries per tier.
    pub(crate) const fn tier_len(&self) -> &[u32; TIERS] {
        &self.tier_len
    }

    pub(crate) fn push(&mut self, entry: Entry) -> WaiterId {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.nodes.len();
            self.nodes.push(Node {
                generation: 0,
                wheel_slot: None,
                entry: None,
            });
            self.level_links.grow(index + 1);
            self.flows.grow(index + 1);
            self.age_links.grow(index + 1);
            index as u32
        });
        let level = entry.rank.priority().level();
        self.level_links.push_back(&mut self.levels[level], index);
        let tier = entry.rank.priority().tier().index();
        self.flows.push(tier, entry.tenant, index);
        self.occupied[level / 64] |= 1 << (level % 64);
        self.occupied_words |= 1 << (level / 64);
        let by_age = &mut self.by_age[usize::from(entry.has_deadline())];
        self.age_links.push_back(by_age, index);
        let node = &mut self.nodes[index as usize];
        if entry.has_deadline() {
            node.wheel_slot = Some(self.wheel.insert(index, entry.expires_at));
        }
        node.entry = Some(entry);
        self.len += 1;
        self.cost += u64::from(entry.cost);
        self.bytes += u64::from(entry.bytes);
        self.tier_len[entry.rank.priority().tier().index()] += 1;
        WaiterId {
            index,
            generation: node.generation,
        }
    }

    /// Takes the best entry: of the best occupied tier, and of the tenant whose turn it is there, the oldest, or the
    /// newest. Among the waiters of a tier
    /// the cohort does not count: it says who is let in when not all can be, and whoever was let in and
    /// then overtaken by every better cohort waited in vain (21 % of those refused at 1.4x; 14 % so).
    pub(crate) fn pop_best(&mut self, newest_first: bool) -> Option<Entry> {
        let tier = (0..TIERS).find(|&tier| !self.flows.is_empty(tier))?;
        self.pop_of(tier, newest_first)
    }

    /// The same of this tier.
    pub(crate) fn pop_of(&mut self, tier: usize, newest_first: bool) -> Option<Entry> {
        let quantum = self.cost.checked_div(u64::from(self.len)).unwrap_or(1) as i64;
        let index = self.flows.next(tier, newest_first, quantum)?;
        if let Some(entry) = &self.nodes[index as usize].entry {
            self.flows.served(index, entry.cost, quantum);
        }
        self.take(index)
    }

    /// The oldest entry of the worst occupied level.
    pub(crate) fn worst(&self) -> Option<&Entry> {
        let list = self.levels[self.worst_level()?];
        self.nodes[list.front() as usize].entry.as_ref()
    }

    /// The oldest entry of this tier's worst occupied level.
    pub(crate) fn worst_of(&self, tier: usize) -> Option<&Entry> {
        let list = self.levels[self.worst_level_of(tier)?];
        self.nodes[list.front() as usize].entry.as_ref()
    }

    /// Takes the oldest entry of the worst occupied level.
    pub(crate) fn pop_worst(&mut self) -> Option<Entry> {
        let list = self.levels[self.worst_level()?];
        self.take(list.front())
    }

    /// Takes who has to make room in this tier: the oldest entry of its worst occupied level; or, so that a flood by one tenant does
    /// not push the others out, the oldest of the tenant with the most waiters there.
    pub(crate) fn pop_victim(&mut self, tier: usize) -> Option<Entry> {
        let worst = self.levels[self.worst_level_of(tier)?].front();
        self.take(self.flows.instead_of(worst).unwrap_or(worst))
    }

    /// Takes an entry that has waited longer than the timeout allows.
    pub(crate) fn pop_overdue(&mut self, now: Instant, timeout: Timeout) -> Option<Entry> {
        let overdue = self.oldest().find(|entry| {
            let waited_ns = now.nanos_since(entry.1.enqueued_at);
            timeout.ends(entry.1, waited_ns)
        });
        let index = overdue?.0;
        self.take(index)
    }

    /// Takes every entry whose own deadline has come, up to `now`, into `out`.
    pub(crate) fn pop_due(&mut self, now: Instant, out: &mut Vec<Entry>) {
        let mut due = std::mem::take(&mut self.due);
        let nodes = &self.nodes;
        let deadline = |index: u32| {
            let entry = nodes[index as usize].entry.as_ref();
            entry.map_or(Instant::FAR_FUTURE, |entry| entry.expires_at)
        };
        self.wheel.advance(now, deadline, &mut due);
        out.extend(due.drain(..).filter_map(|index| self.take(index)));
        self.due = due;
    }

    /// Takes the named entry if it still waits.
    pub(crate) fn remove(&mut self, id: WaiterId) -> Option<Entry> {
        let node = self.nodes.get(id.index as usize)?;
        if node.generation != id.generation {
            return None;
        }
        self.take(id.index)
    }

    /// When the next entry may run out of time, given the timeout in force; `None` when nobody waits.
    pub(crate) fn next_wakeup(&self, timeout: Timeout) -> Option<Instant> {
        if self.is_empty() {
            return None;
        }
        let own = self.wheel.next_wakeup();
        let bound = self
            .oldest()
            .filter(|(_, entry)| timeout.for_all || !entry.has_deadline());
        let by_age = bound.map(|(_, entry)| entry.enqueued_at.after_nanos(timeout.nanos));
        by_age.chain(own).min()
    }

    /// The oldest entry without a deadline of its own, and the oldest with one.
    fn oldest(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.by_age.iter().filter_map(|list| {
            let index = list.front();
            let entry = self.nodes.get(index as usize)?.entry.as_ref()?;
            Some((index, entry))
        })
    }

    fn take(&mut self, index: u32) -> Option<Entry> {
        if index == NIL {
            return None;
        }
        let node = &mut self.nodes[index as usize];
        let entry = node.entry.take()?;
        node.generation = node.generation.wrapping_add(1);
        if let Some(slot) = node.wheel_slot.take() {
            self.wheel.remove(index, slot);
        }
        let level = entry.rank.priority().level();
        self.level_links.unlink(&mut self.levels[level], index);
        self.flows.remove(index);
        if self.levels[level].is_empty() {
            self.occupied[level / 64] &= !(1 << (level % 64));
            if self.occupied[level / 64] == 0 {
                self.occupied_words &= !(1 << (level / 64));
            }
        }
        let by_age = &mut self.by_age[usize::from(entry.has_deadline())];
        self.age_links.unlink(by_age, index);
        self.free.push(index);
        self.len -= 1;
        self.cost -= u64::from(entry.cost);
        self.bytes -= u64::from(entry.bytes);
        self.tier_len[entry.rank.priority().tier().index()] -= 1;
        Some(entry)
    }

    /// The worst occupied level of this tier.
    fn worst_level_of(&self, tier: usize) -> Option<usize> {
        // A tier is two words.
        let words = [2 * tier + 1, 2 * tier];
        let word = words.into_iter().find(|&word| self.occupied[word] != 0)?;
        Some(word * 64 + 63 - self.occupied[word].leading_zeros() as usize)
    }

    fn worst_level(&self) -> Option<usize> {
        if self.occupied_words == 0 {
            return None;
        }
        let word = 63 - self.occupied_words.leading_zeros() as usize;
        Some(word * 64 + 63 - self.occupied[word].leading_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::priority::Priority;
    use proptest::prelude::*;

    fn entry(level: u16, token: u32, at: u64) -> Entry {
        Entry {
            rank: Rank::new(Priority::from_number(level).unwrap(), 0),
            cost: token % 5 + 1,
            bytes: token,
            class: 0,
            tenant: None,
            counted: false,
            key: None,
            attempt: 0,
            salt: 0,
            token,
            enqueued_at: Instant::from_nanos(at),
            expires_at: Instant::FAR_FUTURE,
        }
    }

    #[test]
    fn best_first_oldest_first_and_worst_oldest_leaves() {
        let mut queue = Queue::new();
        for (token, level) in [500, 3, 500, 3, 767, 0].into_iter().enumerate() {
            queue.push(entry(level, token as u32, token as u64));
        }
        assert_eq!(queue.pop_worst().unwrap().token, 4);
        assert_eq!(queue.worst().unwrap().token, 0);
        let served: Vec<u32> = std::iter::from_fn(|| queue.pop_best(false))
            .map(|e| e.token)
            .collect();
        assert_eq!(served, [1, 3, 5, 0, 2], "tier by tier, oldest first");
        assert_eq!((queue.len(), queue.cost(), queue.bytes()), (0, 0, 0));
    }

    #[test]
    fn newest_first_only_reorders_within_a_tier() {
        let mut queue = Queue::new();
        for (token, level) in [200, 130, 9, 8].into_iter().enumerate() {
            queue.push(entry(level, token as u32, token as u64));
        }
        let served: Vec<u32> = std::iter::from_fn(|| queue.pop_best(true))
            .map(|e| e.token)
            .collect();
        assert_eq!(served, [3, 2, 1, 0]);
    }

    #[test]
    fn a_stale_name_removes_nobody() {
        let mut queue = Queue::new();
        let first = queue.push(entry(1, 1, 0));
        assert_eq!(queue.remove(first).unwrap().token, 1);
        let second = queue.push(entry(1, 2, 0));
        assert!(queue.remove(first).is_none());
        assert_eq!(queue.remove(second).unwrap().token, 2);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Push { level: u16, patience: Option<u64> },
        Best { newest: bool },
        Worst,
        Remove { nth: usize },
        Advance { ns: u64 },
        Overdue { age: u64, for_all: bool },
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0..768u16, proptest::option::of(0..3_000_000_000u64))
                .prop_map(|(level, patience)| Op::Push { level, patience }),
            2 => any::<bool>().prop_map(|newest| Op::Best { newest }),
            1 => Just(Op::Worst),
            1 => (0..64usize).prop_map(|nth| Op::Remove { nth }),
            2 => (0..400_000_000u64).prop_map(|ns| Op::Advance { ns }),
            1 => (0..2_000_000_000u64, any::<bool>()).prop_map(|(age, for_all)| Op::Overdue { age, for_all }),
        ]
    }

    proptest! {
        /// The queue against an obvious model: a vector searched from end to end.
        #[test]
        #[cfg_attr(miri, ignore = "so is its model, for each of thousands of steps")]
        fn behaves_like_a_list_searched_end_to_end(ops in proptest::collection::vec(op(), 1..200)) {
            let mut queue = Queue::new();
            let mut model: Vec<(WaiterId, Entry)> = Vec::new();
            let mut now = 0u64;
            let level = |e: &Entry| e.rank.priority().number();
            for (token, op) in ops.into_iter().enumerate() {
                match op {
                    Op::Push { level, patience } => {
                        let mut entry = entry(level, token as u32, now);
                        if let Some(patience) = patience {
                            entry.expires_at = Instant::from_nanos(now + patience);
                        }
                        model.push((queue.push(entry), entry));
                    }
                    Op::Best { newest } => {
                        let tier = |e: &Entry| e.rank.priority().tier();
                        let best = model.iter().map(|(_, e)| tier(e)).min();
                        let mut of_best = (0..model.len()).filter(|&i| Some(tier(&model[i].1)) == best);
                        let expected = if newest { of_best.next_back() } else { of_best.next() };
                        let expected = expected.map(|i| model.remove(i).1.token);
                        prop_assert_eq!(queue.pop_best(newest).map(|e| e.token), expected);
                    }
                    Op::Worst => {
                        let worst = model.iter().map(|(_, e)| level(e)).max();
                        let expected = model.iter().position(|(_, e)| Some(level(e)) == worst);
                        let expected = expected.map(|i| model.remove(i).1.token);
                        prop_assert_eq!(queue.pop_worst().map(|e| e.token), expected);
                    }
                    Op::Remove { nth } => {
                        if !model.is_empty() {
                            let (id, entry) = model.remove(nth % model.len());
                            prop_assert_eq!(queue.remove(id).map(|e| e.token), Some(entry.token));
                            prop_assert!(queue.remove(id).is_none());
                        }
                    }
                    Op::Advance { ns } => {
                        now += ns;
                        let mut due = Vec::new();
                        queue.pop_due(Instant::from_nanos(now), &mut due);
                        let mut due: Vec<u32> = due.iter().map(|e| e.token).collect();
                        due.sort_unstable();
                        let is_due = |e: &Entry| e.expires_at.as_nanos() <= now;
                        let expected: Vec<u32> =
                            model.iter().filter(|(_, e)| is_due(e)).map(|(_, e)| e.token).collect();
                        model.retain(|(_, e)| !is_due(e));
                        prop_assert_eq!(due, expected);
                    }
                    Op::Overdue { age, for_all } => {
                        let timeout = Timeout { nanos: age, for_all };
                        let overdue = |e: &Entry| {
                            (for_all || e.expires_at == Instant::FAR_FUTURE)
                                && now - e.enqueued_at.as_nanos() >= age
                        };
                        let taken = queue.pop_overdue(Instant::from_nanos(now), timeout);
                        let expected = model.iter().any(|(_, e)| overdue(e));
                        prop_assert_eq!(taken.is_some(), expected);
                        if let Some(taken) = taken {
                            prop_assert!(overdue(&taken));
                            model.retain(|(_, e)| e.token != taken.token);
                        }
                    }
                }
                prop_assert_eq!(queue.len() as usize, model.len());
                prop_assert_eq!(queue.cost(), model.iter().map(|(_, e)| u64::from(e.cost)).sum::<u64>());
                prop_assert_eq!(queue.tier_len().iter().sum::<u32>(), queue.len());
                let timeout = Timeout { nanos: 1_000, for_all: true };
                prop_assert_eq!(queue.next_wakeup(timeout).is_some(), !model.is_empty());
            }
        }
    }
}
