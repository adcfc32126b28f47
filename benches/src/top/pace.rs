//! When to ask next: [`Pace`].

use std::time::Duration;

use cinnamon_core::Instant;

/// A controller emits so often, and not more often is it asked.
pub(super) const PERIOD: Duration = Duration::from_secs(1);
/// Where an answer brought no news, what was asked for is late, and the next try comes soon: so the time between
/// two pieces of news is known to a tenth of a second, and rates to a tenth.
pub(super) const RETRY: Duration = Duration::from_millis(100);
/// So many times. An idle controller emits every 1.25 s at the most; one that is later still will not be hurried.
pub(super) const RETRIES_MAX: u32 = 4;

/// What became of the last question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// New figures.
    News,
    /// The figures of before.
    Same,
    /// None.
    Failed,
}

/// Asks once a second, right after there is something new.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    retries: u32,
}

impl Pace {
    /// When to ask next, given the answer that came at `now`.
    pub(super) fn next(&mut self, now: Instant, answer: Answer) -> Instant {
        if answer == Answer::Same && self.retries < RETRIES_MAX {
            self.retries += 1;
            return now.after(RETRY);
        }
        // Where nothing comes for long, it is asked for once a second.
        if answer == Answer::News {
            self.retries = 0;
        }
        now.after(PERIOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_once_a_second_and_soon_again_where_there_was_no_news() {
        let mut pace = Pace::default();
        let start = Instant::ZERO;
        let wait_ms = |pace: &mut Pace, answer| pace.next(start, answer).as_nanos() / 1_000_000;
        assert_eq!(wait_ms(&mut pace, Answer::News), 1_000);
        assert_eq!(wait_ms(&mut pace, Answer::Same), 100);
        assert_eq!(wait_ms(&mut pace, Answer::Same), 100);
        assert_eq!(wait_ms(&mut pace, Answer::News), 1_000);
        assert_eq!(wait_ms(&mut pace, Answer::Failed), 1_000);
        for _ in 0..RETRIES_MAX {
            assert_eq!(wait_ms(&mut pace, Answer::Same), 100);
        }
        // A control thread that stands still is not asked ten times a second.
        assert_eq!(wait_ms(&mut pace, Answer::Same), 1_000);
        assert_eq!(wait_ms(&mut pace, Answer::Same), 1_000);
        assert_eq!(wait_ms(&mut pace, Answer::News), 1_000);
        assert_eq!(wait_ms(&mut pace, Answer::Same), 100);
    }
}
