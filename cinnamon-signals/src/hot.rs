//! What [`HotKeys`](crate::HotKeys) and [`HotTenants`](crate::HotTenants) are both made of.

pub(crate) mod generations;
pub(crate) mod rings;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cinnamon_core::{Culprit, Instant, Reading, Scope, View};

use crate::combine::HELD_BACK;
use rings::Rings;

/// A share is believed but for so many standard errors of it.
pub(crate) const SIGMAS: f64 = 3.0;
/// And a peer is taken for so many standard errors more.
pub(crate) const PEER_SIGMAS: f64 = 2.0;
/// A throttle is for the sake of the others: where less of the load than this is theirs, it would only empty the lanes.
pub(crate) const OTHERS_MIN: f64 = 0.01;

/// Lanes are busy when in this share of the last looks they were full or somebody waited. A lane of ten slots that is four
/// fifths used looks full in four of ten looks.
const BUSY: f64 = 0.75;
/// The mean over those looks: overload is seen after 0.7 s of it, and once it is over the lanes are busy for 0.15 s more.
const BUSY_MEMORY: Duration = Duration::from_millis(500);

/// What the threads of requests tell, and of which lanes.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) rings: Rings,
    /// Bit per lane in scope; all of them until the first sample.
    lanes: AtomicU64,
}

impl Told {
    pub(crate) fn new() -> Self {
        Self {
            rings: Rings::new(),
            lanes: AtomicU64::new(u64::MAX),
        }
    }

    /// Whether the lane of this index is in scope.
    pub(crate) fn concerns(&self, lane: usize) -> bool {
        let bit = 1_u64.checked_shl(lane as u32).unwrap_or(0);
        self.lanes.load(Ordering::Relaxed) & bit != 0
    }

    /// Lanes and their scopes never change, but an observer learns of them only here.
    pub(crate) fn learn_lanes(&self, scope: &Scope, view: &View) {
        let lanes = view.lanes.iter().take(64).enumerate();
        let lanes = lanes.filter(|(_, lane)| scope.covers(lane));
        let mask = lanes.fold(0_u64, |mask, (i, _)| mask | 1 << i);
        self.lanes.store(mask, Ordering::Relaxed);
    }
}

/// Whether lanes have no slot free most of the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy {
    share: f64,
    looked_at: Option<Instant>,
}

impl Busy {
    pub(crate) fn look(&mut self, now: Instant, scope: &Scope, view: &View) -> bool {
        let mut lanes = view.lanes.iter().filter(|lane| scope.covers(lane));
        let full =
            lanes.any(|lane| lane.waiting > 0 || (lane.limit > 0 && lane.in_use >= lane.limit));
        let dt = self.looked_at.map_or(Duration::ZERO, |at| now.since(at));
        self.looked_at = Some(now);
        let gain = 1.0 - (-dt.as_secs_f64() / BUSY_MEMORY.as_secs_f64()).exp();
        self.share += gain * (f64::from(u8::from(full)) - self.share);
        self.share > BUSY
    }
}

/// These culprits, and the pressure as far as it counts: not while the lanes are not busy, and not while nobody else comes.
pub(crate) fn reading(pressure: f64, culprits: Vec<Culprit>, busy: bool) -> Reading {
    let theirs: f64 = culprits.iter().map(|culprit| culprit.share).sum();
    let why = match () {
        () if pressure < 1.0 => None,
        () if !busy => Some("the lanes are not busy"),
        () if 1.0 - theirs < OTHERS_MIN => Some("nobody else comes"),
        () => None,
    };
    let reading = match why {
        Some(why) => Reading::pressure(HELD_BACK).note(why),
        None => Reading::pressure(pressure),
    };
    reading.culprits(culprits)
}

/// In a list of so many, in order, where the median of all but the one at `index` stands.
pub(crate) fn median_of_others(len: usize, index: usize) -> Option<usize> {
    let others = len.checked_sub(1).filter(|others| *others > 0)?;
    let middle = others / 2;
    Some(if middle >= index { middle + 1 } else { middle })
}

#[cfg(test)]
mod tests {
    use cinnamon_core::LaneView;

    use super::*;

    #[test]
    fn the_median_is_of_the_others() {
        let medians = [
            (0, 0),
            (1, 0),
            (2, 0),
            (2, 1),
            (3, 0),
            (5, 1),
            (5, 4),
            (4, 1),
        ];
        let medians = medians.map(|(len, index)| median_of_others(len, index));
        let expected = [
            None,
            None,
            Some(1),
            Some(0),
            Some(2),
            Some(3),
            Some(2),
            Some(2),
        ];
        assert_eq!(medians, expected);
    }

    #[test]
    fn lanes_out_of_scope_are_not_told_of_and_make_nobody_busy() {
        let told = Told::new();
        assert!(told.concerns(0) && told.concerns(63) && !told.concerns(64));
        let mut view = View::of(vec![LaneView::new("a", "x"), LaneView::new("b", "y")]);
        let scope = Scope::Lane("b".to_owned());
        told.learn_lanes(&scope, &view);
        assert_eq!(
            [0, 1, 2].map(|lane| told.concerns(lane)),
            [false, true, false]
        );
        let at = |ms| Instant::ZERO.after(Duration::from_millis(ms));
        view.lanes[0].waiting = 1;
        let mut busy = Busy::default();
        assert!((0..50).all(|i| !busy.look(at(100 * i), &scope, &view)));
        view.lanes[1].waiting = 1;
        let after = (50..).find(|i| busy.look(at(100 * i), &scope, &view));
        assert_eq!(after, Some(56), "seven tenths of a second");
        view.lanes[1].waiting = 0;
        view.lanes[1].limit = 2;
        (57..100).for_each(|i| _ = busy.look(at(100 * i), &scope, &view));
        assert!(!busy.look(at(10_000), &scope, &view), "it has free slots");
        view.lanes[1].in_use = 2;
        assert!(busy.look(at(11_000), &scope, &view), "it has none");
    }
}
