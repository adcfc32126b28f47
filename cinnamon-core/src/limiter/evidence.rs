//! What is known of the store, of late: how fast it answers, how much that scatters, and how it did with few
//! slots in use.

use std::collections::VecDeque;

use super::auto::STRETCH_EVENTS;
use super::trial::{NOISE, Stretch};

/// So many stretches with the present number are compared with. Once a number was settled on, so many must be full
/// one after the other before another is tried: in calm weather a pool is full for a moment now and then.
const HOME_STRETCHES: usize = 8;
/// What share of a stretch's completions must have been timed for a comparison of service times.
const SAMPLES_SHARE: f64 = 0.5;
/// Scatter below which completions are not believed to be more regular.
const SCATTER_MIN: f64 = 0.5;
/// Scatter above which they are not believed to be wilder: a trial must come to an end.
const SCATTER_MAX: f64 = 50.0;
/// Weight of one more stretch in how much their throughputs differ …
const DISPERSION_GAIN: f64 = 0.1;
/// … of which one says no more than this many times what is known.
const DISPERSION_TIMES: f64 = 4.0;
/// Memory of the scatter, completions: of a heavy tail some hundred look harmless.
const SCATTER_EVENTS: f64 = 1_000.0;
/// Stretches with slots to spare that are kept, to tell a crowded store from an empty one.
const SPARE_STRETCHES: usize = 24;
/// A look down is not due while work takes no longer (a logarithm) than it did with at most this share of the
/// present slots in use, known to an error of no more than the third.
const SPARE: f64 = 0.8;
const UNCROWDED: f64 = 0.15;
const UNCROWDED_ERROR: f64 = 0.2;
/// A store that answered with at most this share of the present slots in use …
const ROOMY: f64 = 0.6;
/// … over so many stretches …
const ROOMY_STRETCHES: u32 = 2;
/// … so much faster that its knee must lie below this share of them, by so many standard errors, is crowded.
const CROWDED: f64 = 0.7;
const CROWDED_ERRORS: f64 = 4.0;
/// … or so many in the first search, which has to begin somewhere.
const CROWDED_ERRORS_FIRST: f64 = 3.0;
/// No growth while the service time is this many times that of the healthy store …
const SICK: f64 = 4.0;
/// … whose memory follows upward by a doubling in so many seconds, so that ten minutes of 5 s calls that took
/// 1 ms before do not teach it, and a store that is slower for good is taken for healthy after a few.
const HEALTHY_DOUBLES_S: f64 = 60.0;
/// … and downward by this share, in logarithms, with each stretch: one lucky one is not believed.
const HEALTHY_FALLS: f64 = 0.1;

/// See the module.
#[derive(Debug)]
pub(super) struct Evidence {
    /// How much evidence one completion is not: the greater of `shape` and `dispersion`.
    pub(super) scatter: f64,
    /// Variance of the service time over its squared mean.
    shape: f64,
    shape_events: f64,
    /// What stretches with the same slots differ by, over what independent completions would.
    dispersion: f64,
    /// The last stretches with slots to spare.
    pub(super) spare: VecDeque<Stretch>,
    /// The last ones without, since the last one with, and with the present number.
    pub(super) full: VecDeque<Stretch>,
    /// Mean service time of late, seconds.
    pub(super) service_s: f64,
    /// That of the healthy store, seconds …
    healthy_s: f64,
    /// … and the slots it had.
    pub(super) healthy_slots: u32,
}

impl Evidence {
    pub(super) fn new(slots: u32) -> Self {
        Self {
            scatter: 1.0,
            shape: 1.0,
            // So much is believed without evidence.
            shape_events: 4.0 * STRETCH_EVENTS,
            dispersion: 1.0,
            spare: VecDeque::with_capacity(SPARE_STRETCHES),
            full: VecDeque::with_capacity(HOME_STRETCHES),
            service_s: 0.0,
            healthy_s: 0.0,
            healthy_slots: slots,
        }
    }

    /// A stretch with so many slots, full or not.
    pub(super) fn note(&mut self, stretch: &Stretch, slots: u32) {
        let service_s = stretch.service_s();
        if service_s > 0.0 && service_s.is_finite() {
            self.service_s = service_s;
            self.note_health(service_s, stretch.seconds, slots);
        }
        self.note_shape(stretch);
    }

    /// One with slots to spare.
    pub(super) fn note_spare(&mut self, stretch: Stretch) {
        self.full.clear();
        push(&mut self.spare, stretch, SPARE_STRETCHES);
    }

    /// One without.
    pub(super) fn note_full(&mut self, stretch: Stretch) {
        self.note_dispersion(&stretch);
        push(&mut self.full, stretch, HOME_STRETCHES);
    }

    /// Whether enough of it were timed for a stretch, or so many, to be compared by service times: of a lane with thousands a
    /// second few are.
    pub(super) fn knows_times(&self, stretch: &Stretch, stretches: f64) -> bool {
        stretch.samples >= SAMPLES_SHARE * stretches * STRETCH_EVENTS * self.scatter
    }

    /// All full ones together, and whether they are many.
    pub(super) fn home(&self) -> (Stretch, bool) {
        let mut home = Stretch::default();
        self.full.iter().for_each(|full| home.add(full));
        (home, self.full.len() >= HOME_STRETCHES)
    }

    /// The store is sick: no more slots than it had in health.
    pub(super) fn is_sick(&self) -> bool {
        self.service_s > SICK * self.healthy_s
    }

    /// Mean residual life of work that takes so long.
    pub(super) fn residual_s(&self, service_s: f64) -> f64 {
        service_s * (1.0 + self.scatter).max(2.0) / 2.0
    }

    /// How much service times scatter.
    fn note_shape(&mut self, stretch: &Stretch) {
        let events = stretch.samples;
        let scatter = stretch.timed * stretch.squares_s2 / (stretch.sum_s * stretch.sum_s) - 1.0;
        if scatter.is_finite() {
            // A stretch may be of more than are remembered: then it is all that is known.
            self.shape_events = (self.shape_events + events).min(SCATTER_EVENTS.max(events));
            self.shape += events / self.shape_events * (scatter - self.shape);
            self.mix_scatter();
        }
    }

    /// How much stretches with the same slots differ.
    fn note_dispersion(&mut self, stretch: &Stretch) {
        let Some(before) = self.full.back() else {
            return;
        };
        let by = (stretch.throughput() / before.throughput()).ln();
        let events = 1.0 / (1.0 / stretch.count + 1.0 / before.count);
        // What a store's stretches differ by anyway is no scatter of its requests: of 100,000 it would look like 50.
        let by_squared = (by * by - 2.0 * NOISE * NOISE).max(0.0);
        let dispersion = (by_squared * events).min(DISPERSION_TIMES * self.dispersion.max(1.0));
        if dispersion.is_finite() {
            self.dispersion += DISPERSION_GAIN * (dispersion - self.dispersion);
            self.mix_scatter();
        }
    }

    fn mix_scatter(&mut self) {
        let scatter = self.shape.max(self.dispersion);
        self.scatter = scatter.clamp(SCATTER_MIN, SCATTER_MAX);
    }

    fn note_health(&mut self, service_s: f64, seconds: f64, slots: u32) {
        if self.healthy_s <= 0.0 {
            self.healthy_s = service_s;
        } else if service_s < self.healthy_s {
            self.healthy_s *= (service_s / self.healthy_s).powf(HEALTHY_FALLS);
        } else {
            let risen = self.healthy_s * (seconds / HEALTHY_DOUBLES_S).exp2();
            self.healthy_s = risen.min(service_s);
        }
        if service_s <= SICK * self.healthy_s {
            self.healthy_slots = slots;
        }
    }

    /// Where the service time puts the knee, if that is far below what is in use: at so many slots, less by as
    /// much as work takes longer now than it did with few.
    pub(super) fn guess(&self, stretch: &Stretch, searching: bool) -> Option<f64> {
        let (longer, error) = self.longer(stretch, ROOMY)?;
        let errors = if searching {
            CROWDED_ERRORS_FIRST
        } else {
            CROWDED_ERRORS
        };
        let crowded = longer - errors * error > -CROWDED.ln();
        crowded.then(|| stretch.in_use() * (-longer).exp())
    }

    /// Whether it is known that work takes no longer than with few in use.
    pub(super) fn is_uncrowded(&self, stretch: &Stretch) -> bool {
        let known = self.longer(stretch, SPARE);
        known.is_some_and(|(longer, error)| longer < UNCROWDED && error < UNCROWDED_ERROR)
    }

    /// By how much longer work takes than with at most this share of the slots in use, and the standard error of
    /// that; both logarithms.
    fn longer(&self, stretch: &Stretch, roomy_share: f64) -> Option<(f64, f64)> {
        let in_use = stretch.in_use();
        let mut roomy = Stretch::default();
        for past in &self.spare {
            // One that was short for how wild the store turned out to be is no measure of it.
            let enough = self.knows_times(past, 1.0);
            if enough && past.in_use() <= roomy_share * in_use {
                roomy.add(past);
            }
        }
        if roomy.parts < ROOMY_STRETCHES || in_use < 1.5 {
            return None;
        }
        let longer = (stretch.service_s() / roomy.service_s()).ln();
        let error = (self.scatter * (1.0 / stretch.samples + 1.0 / roomy.samples)).sqrt();
        longer.is_finite().then_some((longer, error))
    }
}

fn push(to: &mut VecDeque<Stretch>, stretch: Stretch, most: usize) {
    if to.len() == most {
        to.pop_front();
    }
    to.push_back(stretch);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So much was served, each timed, with a coefficient of variation of 1.
    fn stretch(count: f64) -> Stretch {
        Stretch {
            seconds: 1.0,
            count,
            cost: count,
            timed: count,
            samples: count,
            sum_s: 0.02 * count,
            squares_s2: 2.0 * 0.02 * 0.02 * count,
            parts: 1,
            ..Stretch::default()
        }
    }

    #[test]
    fn a_stretch_of_more_than_is_remembered_does_not_throw_the_scatter_off() {
        let mut known = Evidence::new(20);
        for i in 0..20 {
            let mut wilder = stretch(90_000.0);
            wilder.squares_s2 *= if i % 2 == 0 { 1.02 } else { 0.98 };
            known.note(&wilder, 20);
            // Each time: what diverges goes to and fro, and its lower half is cut off.
            assert!((known.scatter - 1.0).abs() < 0.1, "{}", known.scatter);
        }
    }

    #[test]
    fn what_the_stretches_of_any_store_differ_by_is_no_scatter_of_its_requests() {
        let mut known = Evidence::new(20);
        for i in 0..40 {
            // 3 % from one to the next, 90,000 requests or none the less.
            let sign = if i % 2 == 0 { 1.0 } else { -1.0 };
            known.note_full(stretch(90_000.0 * (1.0 + 0.5 * NOISE * sign)));
        }
        assert!((known.scatter - 1.0).abs() < 0.01, "{}", known.scatter);
    }
}
