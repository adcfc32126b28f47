//! Fewer slots without a trial: most work ends overloaded, or takes longer than it may.

use super::trial::Stretch;

/// One cut for a stretch in which most work ended overloaded, or took too long.
const CUT: f64 = 0.9;
const OVERLOADED_SHARE: f64 = 0.5;
/// After each so many cuts to get below the ceiling (to six tenths of the slots) …
const CUTS_MAX: u32 = 5;
/// … the P90 must be down to this share of what it was, or the slots are not why it is high.
const CUT_HELPS: f64 = 0.9;
/// So many cuts stand for having given up.
const GIVEN_UP: u32 = u32::MAX;

/// The P90 is one over this time, and that of a trial of more slots is theirs, not the present ones': four times as many show a P90 four
/// times as long, and as it fell again each row of cuts seemed to have helped, down to one slot.
const P90_MEMORY_S: f64 = 1.0;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    pub(super) to: u32,
    pub(super) rule: &'static str,
    /// The stretch has said all it has to say; not so where the slots come back.
    pub(super) again: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Distress {
    /// Nine in ten requests are to take no longer, seconds.
    ceiling_s: Option<f64>,
    /// Slots and P90 before the first of a row of cuts, and how many there were.
    cuts: Option<(u32, f64, u32)>,
    /// Until this time, seconds, it says nothing of the present slots.
    unknown_until_s: f64,
}

impl Distress {
    pub(super) const fn new(ceiling_s: Option<f64>) -> Self {
        Self {
            ceiling_s,
            cuts: None,
            unknown_until_s: 0.0,
        }
    }

    /// A trial has ended.
    pub(super) fn tried(&mut self, now_s: f64) {
        self.unknown_until_s = now_s + P90_MEMORY_S;
    }

    /// Looks at a stretch with so many slots, of which `least` stay.
    pub(super) fn look(
        &mut self,
        stretch: &Stretch,
        (now_s, p90_s): (f64, f64),
        base: u32,
        least: u32,
    ) -> Option<Cut> {
        let overloaded = stretch.overloaded > OVERLOADED_SHARE * stretch.finished();
        let slow = self.ceiling_s.is_some_and(|most| p90_s > most);
        if !overloaded && !slow {
            self.cuts = None;
            return None;
        }
        if !overloaded && (now_s < self.unknown_until_s || !stretch.is_full(base)) {
            // Fewer slots than are used would change nothing.
            return None;
        }
        let (mut before, mut p90_before_s, mut cuts) = *self.cuts.get_or_insert((base, p90_s, 0));
        if !overloaded && cuts == GIVEN_UP {
            return None;
        }
        if !overloaded && cuts >= CUTS_MAX {
            if p90_s > CUT_HELPS * p90_before_s {
                // It is no slower for the slots: they come back, and stay until it is fast enough again.
                self.cuts = Some((before, p90_before_s, GIVEN_UP));
                return Some(Cut {
                    to: before,
                    rule: "ceiling out of reach",
                    again: false,
                });
            }
            (before, p90_before_s, cuts) = (base, p90_s, 0);
        }
        self.cuts = Some((before, p90_before_s, cuts.saturating_add(1)));
        let used = base.min(stretch.peak.max(1));
        let cut = ((f64::from(used) * CUT).floor() as u32).max(least);
        Some(Cut {
            to: cut.min(base),
            rule: if overloaded { "overloaded" } else { "ceiling" },
            again: true,
        })
    }
}
