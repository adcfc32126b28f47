//! What the arms without an engine share: a limit, who runs, and a line of who waits.

use std::collections::VecDeque;

use cinnamon_core::simulation::Answer;
use cinnamon_core::{Instant, Reason};

/// The dead are weeded out once they outnumber the living by so many: rare, so that it costs little
/// per cancellation.
const WEED_MIN: usize = 64;

/// Which end of the line is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Oldest,
    Newest,
}

/// One who waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) token: u32,
    /// After this instant it is not worth serving.
    until: Instant,
    number: u64,
}

impl Waiter {
    /// Whether it has waited too long. Who is served at the last instant is served in time.
    fn expired(&self, now: Instant) -> bool {
        self.until < now
    }
}

/// Waiters in the order in which they came.
///
/// Who gives up is only marked, since finding it would cost the length of the line; its entry goes
/// when it is met. Every call is O(1), averaged over calls.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Oldest first, with those who gave up among them.
    waiters: VecDeque<Waiter>,
    /// By token: the number of the entry that counts, 0 if none. Tokens are used again, so an entry
    /// with another number is dead.
    numbers: Vec<u64>,
    pushed: u64,
    len: usize,
}

impl Line {
    /// How many wait.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a waiter at the end.
    pub(super) fn push(&mut self, token: u32, until: Instant) {
        let index = token as usize;
        if self.numbers.len() <= index {
            self.numbers.resize(index + 1, 0);
        }
        self.pushed += 1;
        self.numbers[index] = self.pushed;
        self.len += 1;
        self.waiters.push_back(Waiter {
            token,
            until,
            number: self.pushed,
        });
    }

    /// Takes one out.
    pub(super) fn pop(&mut self, next: Next) -> Option<Waiter> {
        loop {
            let waiter = match next {
                Next::Oldest => self.waiters.pop_front()?,
                Next::Newest => self.waiters.pop_back()?,
            };
            if self.is_alive(&waiter) {
                self.forget(waiter.token);
                return Some(waiter);
            }
        }
    }

    /// Takes out the oldest if it has waited too long.
    fn pop_expired(&mut self, now: Instant) -> Option<Waiter> {
        while let Some(&waiter) = self.waiters.front() {
            let alive = self.is_alive(&waiter);
            if alive && !waiter.expired(now) {
                return None;
            }
            self.waiters.pop_front();
            if alive {
                self.forget(waiter.token);
                return Some(waiter);
            }
        }
        None
    }

    /// Takes out the waiter with this token. `false` if it does not wait.
    pub(super) fn cancel(&mut self, token: u32) -> bool {
        let waits = self.numbers.get(token as usize).is_some_and(|&n| n != 0);
        if waits {
            self.forget(token);
            if self.waiters.len() > 2 * self.len + WEED_MIN {
                let numbers = &self.numbers;
                self.waiters
                    .retain(|waiter| numbers[waiter.token as usize] == waiter.number);
            }
        }
        waits
    }

    fn is_alive(&self, waiter: &Waiter) -> bool {
        self.numbers[waiter.token as usize] == waiter.number
    }

    fn forget(&mut self, token: u32) {
        self.numbers[token as usize] = 0;
        self.len -= 1;
    }
}

/// A limit on who runs, and a line before it.
#[derive(Debug)]
pub(super) struct Slots {
    limit: u32,
    queue_len_max: usize,
    running: u32,
    line: Line,
    answers: Vec<(u32, Answer)>,
}

impl Slots {
    /// `limit` run at once; any number wait.
    pub(super) fn new(limit: u32) -> Self {
        Self {
            limit,
            queue_len_max: usize::MAX,
            running: 0,
            line: Line::default(),
            answers: Vec::new(),
        }
    }

    /// The same; one too many makes the oldest go.
    pub(super) const fn queue_len_max(mut self, queue_len_max: usize) -> Self {
        self.queue_len_max = queue_len_max;
        self
    }

    /// How many wait.
    pub(super) const fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Runs it if there is room, or lets it wait, not beyond `until`.
    pub(super) fn offer(&mut self, token: u32, until: Instant) -> Answer {
        if self.running < self.limit && self.line.is_empty() {
            self.running += 1;
            return Answer::Run;
        }
        self.line.push(token, until);
        if self.line.len() > self.queue_len_max
            && let Some(oldest) = self.line.pop(Next::Oldest)
        {
            self.refuse(oldest, Reason::Evicted);
        }
        Answer::Wait
    }

    /// A waiter gives up. `false` if it does not wait.
    pub(super) fn cancel(&mut self, token: u32) -> bool {
        self.line.cancel(token)
    }

    /// One that ran is done: the slot goes to whom `next` names and who has not waited too long.
    pub(super) fn finish(&mut self, now: Instant, next: Next) {
        self.running = self.running.saturating_sub(1);
        while self.running < self.limit
            && let Some(waiter) = self.line.pop(next)
        {
            if waiter.expired(now) {
                self.refuse(waiter, Reason::Expired);
            } else {
                self.running += 1;
                self.answers.push((waiter.token, Answer::Run));
            }
        }
    }

    /// Refuses the oldest as long as they have waited too long.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(waiter) = self.line.pop_expired(now) {
            self.refuse(waiter, Reason::Expired);
        }
    }

    /// Moves the answers to waiters into `out`.
    pub(super) fn take_answers(&mut self, out: &mut Vec<(u32, Answer)>) {
        out.append(&mut self.answers);
    }

    fn refuse(&mut self, waiter: Waiter, reason: Reason) {
        self.answers.push((waiter.token, Answer::Refuse(reason)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn answers(slots: &mut Slots) -> Vec<(u32, Answer)> {
        let mut out = Vec::new();
        slots.take_answers(&mut out);
        out
    }

    #[test]
    fn a_token_that_gave_up_and_comes_again_waits_once_and_at_the_end() {
        let mut line = Line::default();
        for token in 0..3 {
            line.push(token, Instant::FAR_FUTURE);
        }
        assert!(line.cancel(0));
        assert!(!line.cancel(0));
        line.push(0, Instant::FAR_FUTURE);
        let mut order = Vec::new();
        while let Some(waiter) = line.pop(Next::Oldest) {
            order.push(waiter.token);
        }
        assert_eq!((order, line.len()), (vec![1, 2, 0], 0));
        assert!(!line.cancel(9), "never seen");
    }

    #[test]
    fn those_who_gave_up_do_not_pile_up() {
        let mut line = Line::default();
        line.push(0, Instant::FAR_FUTURE);
        for token in 1..100_000 {
            line.push(token % 7 + 1, Instant::FAR_FUTURE);
            assert!(line.cancel(token % 7 + 1));
        }
        assert_eq!(line.len(), 1);
        assert!(line.waiters.len() <= 2 + WEED_MIN);
        assert_eq!(line.pop(Next::Newest).unwrap().token, 0);
    }

    #[test]
    fn a_slot_goes_to_the_end_asked_for_and_the_late_are_told() {
        let mut slots = Slots::new(1);
        assert_eq!(slots.offer(0, at(0)), Answer::Run);
        for token in 1..=4 {
            assert_eq!(slots.offer(token, at(u64::from(token))), Answer::Wait);
        }
        slots.finish(at(2), Next::Oldest);
        let expired = Answer::Refuse(Reason::Expired);
        assert_eq!(answers(&mut slots), [(1, expired), (2, Answer::Run)]);
        slots.finish(at(3), Next::Newest);
        assert_eq!(answers(&mut slots), [(4, Answer::Run)]);
        slots.expire(at(3));
        assert_eq!(slots.waiting(), 1, "3 may wait until now");
        slots.expire(at(4));
        assert_eq!(answers(&mut slots), [(3, expired)]);
    }

    #[test]
    fn a_full_line_lets_the_oldest_go() {
        let mut slots = Slots::new(1).queue_len_max(2);
        for token in 0..4 {
            slots.offer(token, Instant::FAR_FUTURE);
        }
        assert_eq!(answers(&mut slots), [(1, Answer::Refuse(Reason::Evicted))]);
        assert_eq!(slots.waiting(), 2);
    }
}
