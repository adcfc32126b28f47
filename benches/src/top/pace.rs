//! When to ask next: [`Pace`].

use std::time::Duration;

use cinnamon_core::Instant;

/// From news to the next question. A controller emits once a second or a little later. Whoever asks as seldom as
/// that, or a little more seldom, falls behind, and one day finds two emissions in one answer: twice the rate.
/// So the first question comes too soon, and brings no news.
pub(super) const PERIOD: Duration = Duration::from_millis(900);
/// From an answer without news to the next question: so the time between two pieces of news is known to a tenth
/// of a second, and rates to a tenth.
pub(super) const RETRY: Duration = Duration::from_millis(100);
/// So many times. An idle controller emits every 1.25 s at the most; one that is later still will not be hurried.
pub(super) const RETRIES_MAX: u32 = 5;

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

/// Asks right after there is something new.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    retries: u32,
}

impl Pace {
    /// When to ask next, given the answer to what was asked at `asked`. How long the answer took makes no
    /// difference.
    pub(super) fn next(&mut self, asked: Instant, answer: Answer) -> Instant {
        if answer == Answer::Same && self.retries < RETRIES_MAX {
            self.retries += 1;
            return asked.after(RETRY);
        }
        // Where nothing comes for long, it is not asked for ten times a second.
        if answer == Answer::News {
            self.retries = 0;
        }
        asked.after(PERIOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_before_there_can_be_news_and_again_until_there_is() {
        let mut pace = Pace::default();
        let start = Instant::ZERO;
        let wait_ms = |pace: &mut Pace, answer| pace.next(start, answer).as_nanos() / 1_000_000;
        assert_eq!(wait_ms(&mut pace, Answer::News), 900);
        assert_eq!(wait_ms(&mut pace, Answer::Same), 100);
        assert_eq!(wait_ms(&mut pace, Answer::Same), 100);
        assert_eq!(wait_ms(&mut pace, Answer::News), 900);
        assert_eq!(wait_ms(&mut pace, Answer::Failed), 900);
        for _ in 0..RETRIES_MAX {
            assert_eq!(wait_ms(&mut pace, Answer::Same), 100);
        }
        // A control thread that stands still is not asked ten times a second.
        assert_eq!(wait_ms(&mut pace, Answer::Same), 900);
        assert_eq!(wait_ms(&mut pace, Answer::Same), 900);
        assert_eq!(wait_ms(&mut pace, Answer::News), 900);
        assert_eq!(wait_ms(&mut pace, Answer::Same), 100);
    }

    #[test]
    fn it_never_misses_an_emission() {
        // The worst that may come: emissions every second and a bit, seen first at any moment after one.
        for (period_ms, behind_ms) in [(1_000, 0), (1_000, 999), (1_020, 500), (1_250, 1_249)] {
            let mut pace = Pace::default();
            let (mut asked, mut seen) = (Instant::from_nanos(behind_ms * 1_000_000), 0);
            for _ in 0..10_000 {
                let emission = asked.as_nanos() / 1_000_000 / period_ms;
                assert!(emission <= seen + 1, "{period_ms} ms, {behind_ms} ms");
                let is_news = emission > seen;
                seen = emission;
                let answer = if is_news { Answer::News } else { Answer::Same };
                // The screen looks up to 20 ms late.
                asked = pace.next(asked, answer).after(Duration::from_millis(20));
            }
        }
    }
}
