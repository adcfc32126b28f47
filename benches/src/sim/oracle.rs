//! The perfect shedder: strict priority, deadline-aware, non-preemptive, on the trace of a run.
//!
//! It sees what no controller can: how much work a request is before it begins, and how fast the
//! store will be. Whenever a slot is free it starts the best request that still can be answered in
//! time, by priority and then the newest, and never one that cannot; a request waits as long as its
//! deadline allows. It never idles while there is work worth doing and never does work in vain.
//!
//! It answers twice. Once for the whole run, and once for each phase as if nothing had come before: right
//! after an overload it still has a queue that whoever refused in time has not, and is no measure.
//!
//! No greedy schedule is the best of all for every trace: which of two long requests runs last in a
//! phase decides some thousandths. So the measure takes, as the best that is known to be possible, the
//! greatest of what the oracle achieved either way and what the run itself achieved; a ratio to it cannot
//! exceed 1. [`Figures::excess`](super::measures::Figures::excess) keeps what was cut off, and a test bounds
//! it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use cinnamon_core::simulation::{Scenario, Speed};

use super::record::Trial;

const LEVELS: usize = 768;

/// What the oracle answers in time: for each request, in the order of arrival.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// In the whole run.
    pub answered: Vec<bool>,
    /// If nothing had come before the request's phase.
    pub afresh: Vec<bool>,
}

impl Oracle {
    /// The oracle's answer to the requests of this run.
    #[must_use]
    pub fn of(scenario: &Scenario, trials: &[Trial]) -> Self {
        let requests: Vec<&Trial> = trials.iter().filter(|trial| trial.attempt == 0).collect();
        let speed = Speed::of(scenario);
        let slots = scenario.service.parallelism as usize;
        // Requests are in the order of arrival, so those of a phase stand together.
        let mut afresh = Vec::with_capacity(requests.len());
        for of_phase in requests.chunk_by(|a, b| a.phase == b.phase) {
            afresh.extend(schedule(slots, &speed, of_phase));
        }
        Self {
            answered: schedule(slots, &speed, &requests),
            afresh,
        }
    }
}

impl Oracle {
    /// Where there are two stores the oracle has nothing to say: the run is its own measure.
    #[must_use]
    pub fn none(trials: &[Trial]) -> Self {
        // The last attempt decides: `trials` is in the order of requests and attempts.
        let requests = trials.chunk_by(|a, b| a.request == b.request);
        let answered: Vec<bool> = requests
            .map(|attempts| attempts.last().is_some_and(Trial::is_good))
            .collect();
        Self {
            afresh: answered.clone(),
            answered,
        }
    }
}

fn schedule(slots: usize, speed: &Speed, requests: &[&Trial]) -> Vec<bool> {
    let mut waiting = Waiting::new();
    let mut answered = vec![false; requests.len()];
    // When running requests are done, as the bits of a positive float, which sort like the number.
    let mut running: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let mut next = 0;
    loop {
        let arrival_s = requests.get(next).map_or(f64::INFINITY, |r| r.arrived_s);
        let done_s = running
            .peek()
            .map_or(f64::INFINITY, |Reverse(at)| f64::from_bits(*at));
        let now_s = arrival_s.min(done_s);
        if now_s == f64::INFINITY {
            return answered;
        }
        if done_s <= arrival_s {
            running.pop();
        } else {
            waiting.push(usize::from(requests[next].level), next);
            next += 1;
        }
        let done_before = speed.done_by(now_s);
        while running.len() < slots {
            let Some(index) = waiting.pop() else { break };
            let request = requests[index];
            let done_s = speed.when_done(done_before + f64::from(request.work_s));
            if done_s <= request.arrived_s + f64::from(request.allowed_s) {
                answered[index] = true;
                running.push(Reverse(done_s.to_bits()));
            }
        }
    }
}

/// Waiting requests by level, oldest first; the newest is taken, see above.
struct Waiting {
    levels: Vec<VecDeque<usize>>,
    occupied: [u64; LEVELS / 64],
}

impl Waiting {
    fn new() -> Self {
        Self {
            levels: vec![VecDeque::new(); LEVELS],
            occupied: [0; LEVELS / 64],
        }
    }

    fn push(&mut self, level: usize, index: usize) {
        self.levels[level].push_back(index);
        self.occupied[level / 64] |= 1 << (level % 64);
    }

    fn pop(&mut self) -> Option<usize> {
        let word = self.occupied.iter().position(|&word| word != 0)?;
        let level = word * 64 + self.occupied[word].trailing_zeros() as usize;
        let index = self.levels[level].pop_back();
        if self.levels[level].is_empty() {
            self.occupied[word] &= !(1 << (level % 64));
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnamon_core::simulation::{End, Phase, Service};

    fn trial(request: u32, arrived_s: f64, level: u16, work_s: f32) -> Trial {
        Trial {
            arrived_s,
            ended_s: arrived_s,
            work_s,
            allowed_s: 1.0,
            waited_s: f32::NAN,
            request,
            level,
            phase: 0,
            lane: 0,
            attempt: 0,
            end: End::Late,
        }
    }

    fn one_slot() -> Scenario {
        Scenario {
            service: Service::new(1, 1.0),
            phases: vec![Phase::new("all", 100.0, 1.0)],
            ..Scenario::default()
        }
    }

    #[test]
    fn the_best_that_can_be_in_time_goes_first_and_nothing_is_begun_in_vain() {
        let trials = [
            trial(0, 0.0, 500, 0.4),
            trial(1, 0.1, 300, 0.7), // would end at 1.1: in time by a hair, it came at 0.1
            trial(2, 0.2, 100, 0.5), // best, ends at 0.9
            trial(3, 0.3, 400, 0.2), // after it, ends at 1.1
            trial(4, 0.4, 0, 1.1),   // longer than its deadline: not worth a start
        ];
        assert_eq!(
            Oracle::of(&one_slot(), &trials).answered,
            [true, false, true, true, false]
        );
    }

    #[test]
    fn a_pause_of_the_store_is_foreseen() {
        let mut scenario = one_slot();
        scenario.phases = vec![Phase::new("slow", 100.0, 1.0).capacity(0.5)];
        let trials = [trial(0, 0.0, 0, 0.6), trial(1, 0.0, 1, 0.4)];
        assert_eq!(Oracle::of(&scenario, &trials).answered, [false, true]);
    }

    #[test]
    fn retries_are_not_requests() {
        let mut again = trial(0, 0.0, 0, 0.1);
        again.attempt = 1;
        assert_eq!(
            Oracle::of(&one_slot(), &[trial(0, 0.0, 0, 0.1), again])
                .answered
                .len(),
            1
        );
    }

    #[test]
    fn afresh_means_without_what_came_before_the_phase() {
        let mut scenario = one_slot();
        scenario.phases = vec![Phase::new("a", 1.0, 1.0), Phase::new("b", 9.0, 1.0)];
        let mut second = trial(1, 1.0, 0, 0.9);
        second.phase = 1;
        let oracle = Oracle::of(&scenario, &[trial(0, 0.9, 0, 0.9), second]);
        assert_eq!(oracle.answered, [true, false], "still busy with the first");
        assert_eq!(oracle.afresh, [true, true]);
    }
}
