//! What goes wrong, one at a time, at random; and how it is put right again.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cinnamon_core::{Action, Config, Instant, Limit, Mode, Order, Override, Target, Tier};

use crate::parts::Says;
use crate::store::{MS, Store};
use crate::{Checked, ensure};

/// A fault comes with about every so many steps.
const EVERY: usize = 25;
/// How far a clock may jump.
const JUMPS: [u64; 6] = [
    MS,
    20 * MS,
    400 * MS,
    3_000 * MS,
    120_000 * MS,
    7_200_000 * MS,
];

impl Store {
    /// Now and then something goes wrong; what.
    pub fn maybe_fault(&mut self) -> Option<String> {
        if self.draw(EVERY) > 0 {
            return None;
        }
        let what = match self.draw(17) {
            0 => self.gives_up(false),
            1 => self.gives_up(true),
            2 => self.panics(),
            3 => self.clock_jumps(true),
            4 => self.clock_jumps(false),
            5 => {
                self.frozen_until = self.true_ns + self.below(2_000 * MS);
                format!("the clock stands until {}", self.frozen_until)
            }
            6 => {
                self.next_tick = self.true_ns + self.below(3_000 * MS);
                format!("no tick until {}", self.next_tick)
            }
            7 => self.limit_changes(),
            8 => self.mode_changes(),
            9 | 10 => self.signal_fails(),
            11 => self.reconfigures(),
            12 | 13 => self.forces(),
            14 => {
                let times = 1.0 + self.rng.unit() * 6.0;
                self.surge = (times, self.true_ns + self.below(1_000 * MS));
                format!("{times:.1} times as many come")
            }
            15 => {
                self.clockless_until = self.true_ns + self.below(500 * MS);
                format!("the clock panics until {}", self.clockless_until)
            }
            _ => {
                self.stalled_until = self.true_ns + self.below(1_000 * MS);
                format!("nothing is done until {}", self.stalled_until)
            }
        };
        Some(what)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.rng.bits() % most
    }

    fn any_lane(&mut self) -> usize {
        self.draw(self.lanes.len())
    }

    /// A caller gives up that waits, or that has its answer and has not looked.
    fn gives_up(&mut self, answered: bool) -> String {
        let all = self.waiting.iter().enumerate();
        let may: Vec<usize> = all
            .filter(|(_, w)| w.is_answered() == answered)
            .map(|(at, _)| at)
            .collect();
        if !may.is_empty() {
            let at = may[self.draw(may.len())];
            self.give_up(at);
        }
        format!("one of {} gives up, answered: {answered}", may.len())
    }

    fn panics(&mut self) -> String {
        if !self.running.is_empty() {
            let at = self.draw(self.running.len());
            let running = self.running.swap_remove(at);
            let work = catch_unwind(AssertUnwindSafe(move || {
                let _running = running;
                resume_unwind(Box::new("the work fails"));
            }));
            assert!(work.is_err(), "a panic got lost");
        }
        "the work panics".to_owned()
    }

    fn clock_jumps(&mut self, forward: bool) -> String {
        let most = JUMPS[self.draw(JUMPS.len())];
        let ns = 1 + self.below(most);
        self.set_clock(forward, ns);
        let way = if forward { "forward" } else { "back" };
        format!("the clock jumps {way} by {} ms", ns / MS)
    }

    fn limit_changes(&mut self) -> String {
        let lane = self.any_lane();
        let limit = (self.base_limit(lane) as usize * (1 + self.draw(16)) / 4).max(1);
        self.lanes[lane].set_limit(limit as u32).expect("in bounds");
        format!("the limit of {lane} is {limit}")
    }

    fn any_mode(&mut self) -> Mode {
        match self.draw(3) {
            0 => Mode::Enforce,
            1 if self.monitors => Mode::Monitor,
            _ => Mode::Off,
        }
    }

    fn mode_changes(&mut self) -> String {
        let (lane, mode) = (self.any_lane(), self.any_mode());
        self.modes_until = self.true_ns + self.below(800 * MS);
        if self.draw(2) == 0 {
            self.controller.set_mode(mode);
            return format!("all are {mode:?}");
        }
        self.lanes[lane].set_mode(mode);
        format!("{lane} is {mode:?}")
    }

    fn signal_fails(&mut self) -> String {
        let at = self.clock.now.load(Ordering::SeqCst);
        let says = match self.draw(9) {
            0 => Says::Nothing,
            1 => Says::Pressure(f64::NAN),
            2 => Says::Pressure(f64::INFINITY),
            3 => Says::Pressure(-1.0),
            4 => Says::Panics,
            5 => Says::Old(3.0, at),
            6 => Says::Pressure(1e9),
            _ => Says::Pressure(self.rng.unit() * 3.0),
        };
        *self.says.lock().unwrap_or_else(PoisonError::into_inner) = says;
        format!("the signal says {says:?}")
    }

    fn reconfigures(&mut self) -> String {
        let mut settings = self.settings.clone();
        let lane = self.any_lane();
        settings.kp = self.rng.unit() * 2.0;
        settings.tick_max_ms = 10 + self.draw(50) as u64;
        let of = &mut settings.lanes[lane];
        of.queue_len_max = Some((self.rng.bits() % 50) as u32);
        of.order = [Order::Adaptive, Order::Fifo, Order::Lifo][(self.rng.bits() % 3) as usize];
        if self.draw(3) == 0 {
            settings.lanes[lane].limit = Limit::fixed(1 + self.draw(12) as u32);
        }
        self.controller
            .reconfigure(Config::new(settings).expect("in bounds"))
            .expect("the same lanes");
        format!("{lane} is configured otherwise")
    }

    fn forces(&mut self) -> String {
        let target = match self.draw(3) {
            0 => Target::Controller,
            1 => Target::Signal("gauge".to_owned()),
            _ => {
                let lane = self.any_lane();
                Target::Lane(self.settings.lanes[lane].name.clone())
            }
        };
        let action = match (&target, self.draw(2)) {
            (Target::Signal(_), _) | (_, 0) => Action::Mode(self.any_mode()),
            _ => Action::Shed(Tier::ALL[self.draw(6)]),
        };
        let what = Override::new(
            target,
            action,
            Duration::from_nanos(MS + self.below(2_000 * MS)),
        );
        let text = what.to_string();
        // Where there is no such signal it is refused.
        let forced = self.controller.set_override(what).is_ok();
        format!("{text}: {forced}")
    }

    /// All trouble ends. What was forced upon it for a time is left to end by itself.
    pub fn mend(&mut self) -> Checked {
        (self.frozen_until, self.clockless_until, self.stalled_until) = (0, 0, 0);
        self.surge = (1.0, 0);
        self.impatient = false;
        self.clock.panics.store(false, Ordering::SeqCst);
        *self.says.lock().unwrap_or_else(PoisonError::into_inner) = Says::Pressure(0.3);
        self.enforce();
        for lane in 0..self.lanes.len() {
            self.lanes[lane]
                .set_limit(self.base_limit(lane))
                .map_err(|why| why.to_string())?;
        }
        let config = Config::new(self.settings.clone()).map_err(|why| why.to_string())?;
        self.controller
            .reconfigure(config)
            .map_err(|why| why.to_string())?;
        self.next_tick = self.true_ns;
        let now = Instant::from_nanos(self.clock.now.load(Ordering::SeqCst));
        ensure!(now >= Instant::ZERO, "the clock stands at {now:?}");
        Ok(())
    }
}
