//! Cinnamon that is given no signals: what they are worth.

use cinnamon_core::Instant;
use cinnamon_core::simulation::{Answer, Done, Offer, Policy, View, VirtualController};

use super::{Arm, Kind, cinnamon};

pub(super) const ARM: Arm = Arm {
    name: "no-signals",
    about: "Cinnamon without the scenario's signals",
    kind: Kind::Variant,
    build: |scenario| {
        let settings = cinnamon::settings(scenario);
        Ok(Box::new(Deaf(VirtualController::new(settings)?)))
    },
};

/// Passes everything on but the signals.
#[derive(Debug)]
struct Deaf(VirtualController);

impl Policy for Deaf {
    fn offer(&mut self, now: Instant, offer: &Offer) -> Answer {
        self.0.offer(now, offer)
    }

    fn cancel(&mut self, now: Instant, token: u32) -> bool {
        self.0.cancel(now, token)
    }

    fn finish(&mut self, now: Instant, token: u32, done: Done) {
        self.0.finish(now, token, done);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.0.next_wakeup()
    }

    fn wake(&mut self, now: Instant) {
        self.0.wake(now);
    }

    fn take_answers(&mut self, out: &mut Vec<(u32, Answer)>) {
        self.0.take_answers(out);
    }

    fn view(&self) -> View {
        self.0.view()
    }
}
