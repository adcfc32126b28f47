//! A blocking token bucket at the store's nominal capacity.
//!
//! Callers wait for a token in the order in which they came, however long that takes; who has one
//! runs at once, however many run. The bucket knows the capacity that was written down, not the one
//! the store has now. A limiter that blocks is what Uber's storage replaced in 2026: those blocked
//! hold their memory.

use cinnamon_core::Instant;
use cinnamon_core::simulation::{Answer, Done, Offer, Policy, Scenario, View};

use super::slots::{Line, Next};
use super::{Arm, Kind};

pub(super) const ARM: Arm = Arm {
    name: "bucket",
    about: "a blocking token bucket at the nominal capacity, 100 ms of burst, an endless queue",
    kind: Kind::Baseline,
    build: |scenario| Ok(Box::new(Bucket::new(scenario))),
};

/// The bucket holds what it is filled with in this time, at least one token; seconds. Long beside
/// the random gaps between requests, so that it does not hold back a load that the store can bear;
/// at 10 requests a second it is that one token.
const BURST_S: f64 = 0.1;

/// Tokens, counted rather than added up, so that no rounding accumulates.
#[derive(Debug)]
struct Tokens {
    per_s: f64,
    /// How many it holds.
    burst: u64,
    /// A time at which it was full …
    full_at: Instant,
    /// … and how many were taken since.
    taken: u64,
}

impl Tokens {
    fn new(per_s: f64) -> Self {
        Self {
            per_s,
            burst: ((per_s * BURST_S) as u64).max(1),
            full_at: Instant::ZERO,
            taken: 0,
        }
    }

    /// The first instant at which so many have come since it was full.
    fn after(&self, tokens: u64) -> Instant {
        let nanos = (tokens as f64 * 1e9 / self.per_s).ceil();
        self.full_at.after_nanos(nanos as u64)
    }

    /// When the next one can be taken; past if it can be now.
    fn next_at(&self) -> Instant {
        self.after((self.taken + 1).saturating_sub(self.burst))
    }

    fn take(&mut self, now: Instant) -> bool {
        // Not in the very nanosecond in which it is full: the fraction that rounding added would be
        // lost, and with a burst of one at every token.
        if now > self.after(self.taken) {
            self.full_at = now;
            self.taken = 0;
        }
        let there = now >= self.next_at();
        self.taken += u64::from(there);
        there
    }
}

/// The limiter.
#[derive(Debug)]
struct Bucket {
    tokens: Tokens,
    line: Line,
    answers: Vec<(u32, Answer)>,
}

impl Bucket {
    fn new(scenario: &Scenario) -> Self {
        Self {
            tokens: Tokens::new(scenario.service.capacity_per_s()),
            line: Line::default(),
            answers: Vec::new(),
        }
    }
}

impl Policy for Bucket {
    fn offer(&mut self, now: Instant, offer: &Offer) -> Answer {
        if self.line.is_empty() && self.tokens.take(now) {
            return Answer::Run;
        }
        self.line.push(offer.token, Instant::FAR_FUTURE);
        Answer::Wait
    }

    fn cancel(&mut self, _now: Instant, token: u32) -> bool {
        self.line.cancel(token)
    }

    fn finish(&mut self, _now: Instant, _token: u32, _done: Done) {}

    fn next_wakeup(&self) -> Option<Instant> {
        (!self.line.is_empty()).then(|| self.tokens.next_at())
    }

    fn wake(&mut self, now: Instant) {
        while !self.line.is_empty() && self.tokens.take(now) {
            if let Some(waiter) = self.line.pop(Next::Oldest) {
                self.answers.push((waiter.token, Answer::Run));
            }
        }
    }

    fn take_answers(&mut self, out: &mut Vec<(u32, Answer)>) {
        out.append(&mut self.answers);
    }

    fn view(&self) -> View {
        let engaged = !self.line.is_empty();
        View {
            engaged,
            binding: if engaged { "tokens" } else { "nothing" },
            ..View::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{offer, overload, run};
    use super::*;
    use cinnamon_core::simulation::Service;

    /// 3 requests a second: no whole number of nanoseconds apart. The bucket holds one.
    fn three_a_second() -> Bucket {
        Bucket::new(&Scenario {
            service: Service::new(3, 1.0),
            ..Scenario::default()
        })
    }

    #[test]
    fn it_wakes_when_the_token_comes_and_not_a_nanosecond_before() {
        let mut bucket = three_a_second();
        let start = Instant::from_nanos(5_000_000_000);
        assert_eq!(bucket.offer(start, &offer(0)), Answer::Run);
        for token in 1..=300 {
            assert_eq!(bucket.offer(start, &offer(token)), Answer::Wait);
        }
        let mut out = Vec::new();
        for token in 1..=300 {
            let at = bucket.next_wakeup().unwrap();
            let thirds = u64::from(token) * 1_000_000_000;
            assert_eq!(at, start.after_nanos(thirds.div_ceil(3)));
            bucket.wake(Instant::from_nanos(at.as_nanos() - 1));
            bucket.take_answers(&mut out);
            assert_eq!(out, [], "too early");
            bucket.wake(at);
            bucket.take_answers(&mut out);
            assert_eq!(out, [(token, Answer::Run)]);
            assert!(bucket.next_wakeup().is_none_or(|next| next > at));
            out.clear();
        }
        assert_eq!(bucket.next_wakeup(), None);
    }

    #[test]
    fn a_full_bucket_holds_its_burst_and_no_more() {
        let mut tokens = Tokens::new(1_000.0);
        let take_all = |tokens: &mut Tokens, at_ms: u64| {
            let now = Instant::from_nanos(at_ms * 1_000_000);
            (0..1_000).filter(|_| tokens.take(now)).count()
        };
        assert_eq!(take_all(&mut tokens, 0), 100);
        assert_eq!(take_all(&mut tokens, 7), 7);
        assert_eq!(take_all(&mut tokens, 60_000), 100);
        assert_eq!(take_all(&mut tokens, 60_001), 1);
    }

    #[test]
    fn the_rate_is_never_exceeded_over_any_stretch() {
        let scenario = overload(2.0, 5.0);
        let (report, fates) = run(&ARM, &scenario);
        assert_eq!(report.phases[0].lost_in_queue, 0);
        let mut starts: Vec<u64> = fates
            .iter()
            .map(|fate| fate.started_at.unwrap().as_nanos())
            .collect();
        starts.sort_unstable();
        // Two starts so many apart in number lie at least as far apart in time as the tokens beyond
        // the burst take to come.
        for apart in [100, 101, 150, 1_000, 5_000] {
            let least = (apart + 1 - 100) as u64 * 1_000_000;
            assert!(
                starts
                    .windows(apart + 1)
                    .all(|w| w[apart] - w[0] + 1 >= least)
            );
        }
    }

    #[test]
    fn who_gave_up_takes_no_token() {
        let mut bucket = three_a_second();
        for token in 0..3 {
            bucket.offer(Instant::ZERO, &offer(token));
        }
        assert!(bucket.cancel(Instant::ZERO, 1));
        let at = bucket.next_wakeup().unwrap();
        bucket.wake(at);
        let mut out = Vec::new();
        bucket.take_answers(&mut out);
        assert_eq!(out, [(2, Answer::Run)]);
    }
}
