//! The simulated store: how fast it is, and who is in it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::clock::Instant;
use crate::simulation::Rng;
use crate::simulation::scenario::Scenario;

/// The store's speed over time, 1.0 at full capacity: piecewise constant, the last piece for ever. It
/// follows from the scenario and its seed alone, whatever a policy does.
#[derive(Clone, Debug)]
pub struct Speed {
    pieces: Vec<Piece>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    from_s: f64,
    speed: f64,
    /// Seconds of full-speed work that fit before `from_s`.
    done_s: f64,
}

impl Speed {
    /// The speed in this scenario.
    #[must_use]
    pub fn of(scenario: &Scenario) -> Self {
        let end_s: f64 = scenario.phase_start_s(scenario.phases.len());
        // (when, what: 0 phase, 1 pause, 2 slowness; its speed from then on)
        let mut changes: Vec<(f64, usize, f64)> = Vec::new();
        let mut at_s = 0.0;
        for phase in &scenario.phases {
            changes.push((at_s, 0, phase.capacity));
            at_s += phase.seconds;
        }
        if let Some(pauses) = &scenario.service.pauses {
            let mut rng = Rng::new(scenario.seed ^ 0x7061_7573_6573);
            let mut period_s = 0.0;
            while period_s < end_s {
                let slack_s = pauses.every_s - pauses.length_s;
                let from_s = period_s + rng.unit() * slack_s;
                changes.push((from_s, 1, 0.0));
                changes.push((from_s + pauses.length_s, 1, 1.0));
                period_s += pauses.every_s;
            }
        }
        if let Some(slowness) = &scenario.service.slowness {
            let mut rng = Rng::new(scenario.seed ^ 0x736c_6f77_6e65_7373);
            let mut at_s = rng.exponential(slowness.every_s);
            while at_s < end_s {
                changes.push((at_s, 2, slowness.speed));
                at_s += rng.exponential(slowness.length_s);
                changes.push((at_s, 2, 1.0));
                at_s += rng.exponential(slowness.every_s);
            }
        }
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut factors = [1.0; 3];
        let mut pieces: Vec<Piece> = Vec::new();
        for (from_s, what, factor) in changes {
            factors[what] = factor;
            let speed = factors.iter().product();
            let done_s = pieces
                .last()
                .map_or(0.0, |p| p.done_s + (from_s - p.from_s) * p.speed);
            pieces.push(Piece {
                from_s,
                speed,
                done_s,
            });
        }
        if pieces.is_empty() {
            pieces.push(Piece {
                from_s: 0.0,
                speed: 1.0,
                done_s: 0.0,
            });
        }
        Self { pieces }
    }

    /// The speed at this time.
    #[must_use]
    pub fn at(&self, now_s: f64) -> f64 {
        self.piece(|p| p.from_s <= now_s).speed
    }

    /// Seconds of full-speed work that one slot does before this time.
    #[must_use]
    pub fn done_by(&self, now_s: f64) -> f64 {
        let piece = self.piece(|p| p.from_s <= now_s);
        piece.done_s + (now_s - piece.from_s) * piece.speed
    }

    /// When one slot has done so many seconds of full-speed work; infinite if never.
    #[must_use]
    pub fn when_done(&self, done_s: f64) -> f64 {
        // Of several pieces that begin with the same work done (a pause), the work is done when the
        // first of them begins.
        let piece = self.piece(|p| p.done_s < done_s);
        if done_s <= piece.done_s {
            return piece.from_s;
        }
        piece.from_s + (done_s - piece.done_s) / piece.speed
    }

    /// When the speed changes, in order.
    pub(super) fn changes(&self) -> impl Iterator<Item = (Instant, f64)> {
        self.pieces
            .iter()
            .map(|piece| (seconds(piece.from_s), piece.speed))
    }

    /// The last piece for which this holds; the first if it holds for none.
    fn piece(&self, holds: impl Fn(&Piece) -> bool) -> Piece {
        let after = self.pieces.partition_point(holds);
        self.pieces[after.saturating_sub(1)]
    }
}

pub(super) fn seconds(s: f64) -> Instant {
    Instant::ZERO.after(Duration::try_from_secs_f64(s.max(0.0)).unwrap_or(Duration::MAX))
}

/// Requests in the store share its speed evenly once there are more than it has room for.
#[derive(Debug)]
pub(super) struct Store {
    parallelism: u32,
    /// The room that there is now, as a multiple of `parallelism`.
    room: f64,
    speed: f64,
    /// Seconds of full-speed work that each request in the store has been given since the beginning.
    progress_s: f64,
    /// How far `progress_s` must come, as the bits of a positive float, which sort like the number.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    at: Instant,
    next_done: Instant,
}

impl Store {
    pub(super) const fn new(parallelism: u32) -> Self {
        Self {
            parallelism,
            room: 1.0,
            speed: 1.0,
            progress_s: 0.0,
            due: BinaryHeap::new(),
            at: Instant::ZERO,
            next_done: Instant::FAR_FUTURE,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// When the next one is done.
    pub(super) const fn next_done(&self) -> Instant {
        self.next_done
    }

    pub(super) fn set_speed(&mut self, now: Instant, speed: f64) {
        self.advance(now);
        self.speed = speed;
        self.plan();
    }

    pub(super) fn set_room(&mut self, now: Instant, times: f64) {
        self.advance(now);
        self.room = times;
        self.plan();
    }

    pub(super) fn begin(&mut self, now: Instant, token: u32, work_s: f64) {
        self.advance(now);
        let due = (self.progress_s + work_s).to_bits();
        self.due.push(Reverse((due, token)));
        self.plan();
    }

    /// Takes the one that is done.
    pub(super) fn pop(&mut self, now: Instant) -> Option<u32> {
        self.advance(now);
        let Reverse((_, token)) = self.due.pop()?;
        self.plan();
        Some(token)
    }

    fn rate(&self) -> f64 {
        let crowd = self.due.len() as f64 / (f64::from(self.parallelism) * self.room);
        self.speed / crowd.max(1.0)
    }

    fn advance(&mut self, now: Instant) {
        self.progress_s += now.nanos_since(self.at) as f64 * 1e-9 * self.rate();
        self.at = now;
    }

    fn plan(&mut self) {
        self.next_done = match self.due.peek() {
            None => Instant::FAR_FUTURE,
            Some(_) if self.speed <= 0.0 => Instant::FAR_FUTURE,
            Some(&Reverse((due, _))) => {
                let left_s = (f64::from_bits(due) - self.progress_s).max(0.0) / self.rate();
                self.at.after_nanos((left_s * 1e9).ceil() as u64)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::{Pauses, Phase, Service};

    #[test]
    fn more_than_it_has_room_for_share_the_speed() {
        let mut store = Store::new(2);
        let at = |s: f64| seconds(s);
        store.begin(at(0.0), 1, 1.0);
        store.begin(at(0.0), 2, 2.0);
        assert_eq!(store.next_done(), at(1.0));
        // From 0.5 s on four share the room of two: the first has 0.5 s left at half speed.
        store.begin(at(0.5), 3, 9.0);
        store.begin(at(0.5), 4, 9.0);
        assert_eq!(store.next_done(), at(1.5));
        assert_eq!(store.pop(at(1.5)), Some(1));
        // A stop moves everything back by its length.
        store.set_speed(at(2.0), 0.0);
        assert_eq!(store.next_done(), Instant::FAR_FUTURE);
        store.set_speed(at(3.0), 1.0);
        assert_eq!(store.pop(store.next_done()), Some(2));
    }

    #[test]
    fn speed_and_its_integral_agree() {
        let scenario = Scenario {
            service: Service {
                pauses: Some(Pauses {
                    every_s: 2.0,
                    length_s: 0.5,
                }),
                ..Service::new(4, 0.01)
            },
            phases: vec![
                Phase::new("a", 4.0, 1.0),
                Phase::new("b", 4.0, 1.0).capacity(0.5),
            ],
            ..Scenario::default()
        };
        let speed = Speed::of(&scenario);
        assert_eq!(speed.done_by(8.0), 1.5 * 2.0 + 0.75 * 2.0);
        for done_s in [0.1, 1.0, 1.5, 2.9, 3.5, 4.4] {
            let at_s = speed.when_done(done_s);
            assert!((speed.done_by(at_s) - done_s).abs() < 1e-9, "{done_s}");
            assert!(speed.done_by(at_s - 1e-6) < done_s, "not a moment before");
        }
        assert_eq!(speed.at(1e9), 0.5, "the last piece holds for ever");
    }
}
