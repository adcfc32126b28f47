//! CoDel, where it stays visible: the sojourn of the lowest occupied priority chooses the timeout in
//! force and the order among waiters of one tier.
//!
//! | state | entered when | timeout in force | order (adaptive) |
//! |---|---|---|---|
//! | `Calm` | the queue is empty, or the sojourn below target | the request's own deadline, else patient; strict while engaged | oldest first |
//! | `Above` | the sojourn reached the target | the same | oldest first |
//! | `Standing` | it stayed there for an interval | the same | newest first while engaged |
//!
//! The sojourn is that of the lowest occupied priority because the best is always served at once:
//! over the whole queue the minimum stays near zero while low priorities rot. There is no
//! square-root drop law: packets have congestion windows, requests do not. Newest first waits for
//! the gate to be engaged: before that the queue will drain, and oldest first is the fair order.
//! Target and interval follow the live P90 of the service time unless set (RFC 8289 wants the target
//! at 5 to 10 % of the interval).

use serde::{Deserialize, Serialize};

use crate::clock::Instant;
use crate::config::Order;
use crate::queue::Timeout;

/// An interval is this many targets unless set.
const INTERVAL_TARGETS: u64 = 10;
/// Patience while the gate is open: at least this, so that a random burst on a healthy small pool
/// costs nobody. (A rule of 5/100 ms lost 1.4 % at 0.7x on 10 rps.)
const PATIENT_MIN_NS: u64 = 500_000_000;
/// … and this many service times.
const PATIENT_SERVICES: f64 = 50.0;
/// … but no more than this: a wait must end, whatever the service time is taken for.
const TIMEOUT_MAX_NS: u64 = 60_000_000_000;
/// While engaged: this many P90s of the service time (flat between 2.5 and 10 mean service times) …
const STRICT_SERVICE_P90S: f64 = 5.0;
/// … or this many backlog targets: behind better work the tier at the boundary gets a fraction of the
/// slots, and waits that many times the target (with 5 P90s alone, 14 % of those refused at 1.4x on
/// 1,000 rps had waited first; with this, 10 %) …
const STRICT_TARGETS: f64 = 16.0;
/// … but neither longer than this: callers have deadlines of about a second, and five P90s of a slow
/// store are several (a fifth of what 5 slots of 1.25 s did was answered too late) …
const STRICT_MAX_S: f64 = 1.0;
/// … and in any case this many targets, since the target is what is wanted …
const STRICT_TARGETS_MIN: f64 = 2.0;
/// … and this many ticks: the law answers within a tick or two, and the queue covers the gap. (On a
/// service of 50 us two targets are a third of a tick.)
const STRICT_TICKS: f64 = 4.0;

/// CoDel's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CodelState {
    /// No standing queue.
    #[default]
    Calm,
    /// Above target, for less than an interval.
    Above,
    /// Above target for an interval: the queue stands.
    Standing,
}

/// The figures the timeouts are made of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Regime {
    pub(crate) engaged: bool,
    pub(crate) service_s: f64,
    pub(crate) service_p90_s: f64,
    /// The law's backlog target, `W*`.
    pub(crate) target_wait_s: f64,
    /// The tick.
    pub(crate) tick_s: f64,
}

#[derive(Debug)]
pub(crate) struct Codel {
    order: Order,
    fixed_target_ns: Option<u64>,
    fixed_interval_ns: Option<u64>,
    target_ns: u64,
    interval_ns: u64,
    above_since: Option<Instant>,
    state: CodelState,
    engaged: bool,
    timeout_ns: u64,
}

impl Codel {
    pub(crate) fn new(order: Order, target_us: Option<u64>, interval_us: Option<u64>) -> Self {
        let mut codel = Self {
            order,
            fixed_target_ns: target_us.map(|us| us * 1_000),
            fixed_interval_ns: interval_us.map(|us| us * 1_000),
            target_ns: 0,
            interval_ns: 0,
            above_since: None,
            state: CodelState::Calm,
            engaged: false,
            timeout_ns: PATIENT_MIN_NS,
        };
        codel.retune(&Regime::default());
        codel
    }

    pub(crate) const fn state(&self) -> CodelState {
        self.state
    }

    /// The longest anybody may wait now. In calm a caller's own deadline takes its place.
    pub(crate) const fn timeout(&self) -> Timeout {
        Timeout {
            nanos: self.timeout_ns,
            for_all: self.engaged,
        }
    }

    /// Whether the newest of a tier goes first now.
    pub(crate) fn newest_first(&self) -> bool {
        match self.order {
            Order::Fifo => false,
            Order::Lifo => true,
            Order::Adaptive => self.engaged && self.state == CodelState::Standing,
        }
    }

    /// Takes over settings that were changed while it runs.
    pub(crate) fn configure(
        &mut self,
        order: Order,
        target_us: Option<u64>,
        interval_us: Option<u64>,
    ) {
        self.order = order;
        self.fixed_target_ns = target_us.map(|us| us * 1_000);
        self.fixed_interval_ns = interval_us.map(|us| us * 1_000);
    }

    /// Takes over the live figures, once a tick.
    pub(crate) fn retune(&mut self, regime: &Regime) {
        self.engaged = regime.engaged;
        let p90_ns = (regime.service_p90_s * 1e9) as u64;
        self.target_ns = self.fixed_target_ns.unwrap_or(p90_ns).max(1);
        self.interval_ns = self
            .fixed_interval_ns
            .unwrap_or(self.target_ns.saturating_mul(INTERVAL_TARGETS));
        let timeout_ns = if regime.engaged {
            let by_service = STRICT_SERVICE_P90S * regime.service_p90_s;
            let by_target = STRICT_TARGETS * regime.target_wait_s;
            let least = STRICT_TARGETS_MIN * regime.target_wait_s;
            let by_tick = STRICT_TICKS * regime.tick_s;
            let timeout_s = by_service.max(by_target).min(STRICT_MAX_S);
            (timeout_s.max(least).max(by_tick) * 1e9) as u64
        } else {
            PATIENT_MIN_NS.max((PATIENT_SERVICES * regime.service_s * 1e9) as u64)
        };
        self.timeout_ns = timeout_ns.min(TIMEOUT_MAX_NS);
    }

    /// Observes how long the oldest of the lowest occupied priority has waited; `None` when nobody
    /// waits.
    pub(crate) fn observe(&mut self, now: Instant, sojourn_ns: Option<u64>) {
        match sojourn_ns {
            Some(sojourn) if sojourn >= self.target_ns => {
                let since = *self.above_since.get_or_insert(now);
                self.state = if now.nanos_since(since) >= self.interval_ns {
                    CodelState::Standing
                } else {
                    CodelState::Above
                };
            }
            _ => {
                self.above_since = None;
                self.state = CodelState::Calm;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn codel(order: Order) -> Codel {
        Codel::new(order, Some(5_000), Some(100_000))
    }

    fn engaged() -> Regime {
        Regime {
            engaged: true,
            service_s: 0.02,
            service_p90_s: 0.046,
            target_wait_s: 0.03,
            tick_s: 0.01,
        }
    }

    #[test]
    fn stands_only_after_a_whole_interval_above_target() {
        let mut codel = codel(Order::Adaptive);
        codel.retune(&engaged());
        let mut at = |ms: u64, sojourn_ms: u64| {
            codel.observe(Instant::from_nanos(ms * MS), Some(sojourn_ms * MS));
            (codel.state(), codel.newest_first())
        };
        assert_eq!(at(0, 4), (CodelState::Calm, false));
        assert_eq!(at(10, 5), (CodelState::Above, false));
        assert_eq!(at(109, 90), (CodelState::Above, false));
        assert_eq!(at(110, 90), (CodelState::Standing, true));
        assert_eq!(at(111, 4), (CodelState::Calm, false));
        assert_eq!(
            at(112, 50),
            (CodelState::Above, false),
            "the interval starts again"
        );
    }

    #[test]
    fn an_emptied_queue_is_calm_however_long_it_idled() {
        let mut codel = codel(Order::Adaptive);
        codel.retune(&engaged());
        codel.observe(Instant::from_nanos(0), Some(9 * MS));
        codel.observe(Instant::from_nanos(200 * MS), Some(9 * MS));
        codel.observe(Instant::from_nanos(201 * MS), None);
        codel.observe(Instant::from_nanos(3_600_000 * MS), Some(9 * MS));
        assert_eq!(
            (codel.state(), codel.newest_first()),
            (CodelState::Above, false)
        );
    }

    #[test]
    fn newest_first_waits_for_the_gate_unless_asked_for() {
        for (order, expected) in [
            (Order::Adaptive, false),
            (Order::Lifo, true),
            (Order::Fifo, false),
        ] {
            let mut codel = codel(order);
            codel.observe(Instant::from_nanos(0), Some(9 * MS));
            codel.observe(Instant::from_nanos(200 * MS), Some(9 * MS));
            assert_eq!(codel.state(), CodelState::Standing);
            assert_eq!(codel.newest_first(), expected);
        }
    }

    #[test]
    fn patient_while_open_strict_while_engaged() {
        let mut codel = Codel::new(Order::Adaptive, None, None);
        assert_eq!(codel.timeout().nanos, 500 * MS);
        codel.retune(&Regime {
            engaged: false,
            ..engaged()
        });
        assert_eq!(codel.timeout().nanos, 1_000 * MS);
        codel.retune(&engaged());
        assert_eq!(codel.timeout().nanos.div_ceil(MS), 480, "16 targets");
        let timeout_ms = |codel: &mut Codel, target_wait_s, service_p90_s, tick_s| {
            codel.retune(&Regime {
                target_wait_s,
                service_p90_s,
                tick_s,
                ..engaged()
            });
            codel.timeout().nanos.div_ceil(MS)
        };
        assert_eq!(timeout_ms(&mut codel, 0.1, 0.046, 0.01), 1_000, "a second");
        assert_eq!(timeout_ms(&mut codel, 0.9, 0.046, 0.01), 1_800, "2 targets");
        assert_eq!(timeout_ms(&mut codel, 0.01, 0.046, 0.01), 230, "5 P90s");
        assert_eq!(timeout_ms(&mut codel, 0.001, 0.0001, 0.005), 20, "4 ticks");
        codel.retune(&Regime {
            target_wait_s: 0.5,
            ..engaged()
        });
        assert_eq!(codel.timeout().nanos, 1_000 * MS);
    }

    #[test]
    fn target_and_interval_follow_the_service_time() {
        let mut codel = Codel::new(Order::Adaptive, None, None);
        codel.retune(&engaged());
        assert_eq!((codel.target_ns, codel.interval_ns), (46 * MS, 460 * MS));
    }
}
