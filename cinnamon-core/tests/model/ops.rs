//! What may happen to a controller, as data: a case is a setting and a list of these.

use std::sync::OnceLock;
use std::time::Duration;

use cinnamon_core::{KeyHash, Mode, Order, Outcome, Priority, Rank, Request, Tenant, Tier};
use proptest::prelude::*;

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;

/// A controller and what happens to it.
#[derive(Clone, Debug)]
pub struct Case {
    pub lanes: Vec<LaneCase>,
    /// Whether both lanes are of one scope.
    pub one_scope: bool,
    pub order: Order,
    /// Whether modes may be *monitor*; then the order is a fixed one: who of a shadow queue is next cannot be seen
    /// from outside.
    pub monitors: bool,
    /// Whether there is a signal, which says what [`Op::Pressure`] says.
    pub signal: bool,
    pub ops: Vec<Op>,
}

#[derive(Clone, Debug)]
pub struct LaneCase {
    pub limit: u32,
    pub queue_len_max: Option<u32>,
    pub queue_bytes_max: u64,
}

/// What is said of its importance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tag {
    Tier(usize),
    Priority(u16),
    Untagged,
    Exempt,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub tag: Tag,
    pub key: Option<u64>,
    pub tenant: Option<u32>,
    /// Of the clock from now, ns; may have passed.
    pub deadline: Option<i64>,
    /// ns.
    pub time_left: Option<u64>,
    /// ns.
    pub max_wait: Option<u64>,
    pub cost: Option<u32>,
    pub attempt: u8,
    pub bytes: u32,
}

impl Ask {
    pub const fn of(tier: usize, key: u64) -> Self {
        Self {
            tag: Tag::Tier(tier),
            key: Some(key),
            tenant: None,
            deadline: None,
            time_left: None,
            max_wait: None,
            cost: None,
            attempt: 0,
            bytes: 0,
        }
    }

    /// The deadline by the clock, which reads `clock`.
    pub fn deadline_at(&self, clock: u64) -> Option<u64> {
        let own = self
            .deadline
            .map(|from_now| clock.saturating_add_signed(from_now));
        let left = self.time_left.map(|left| clock + left);
        own.into_iter().chain(left).min()
    }

    pub fn request(&self, clock: u64) -> Request {
        let mut request = match self.tag {
            Tag::Tier(tier) => Request::new(Tier::ALL[tier]),
            Tag::Priority(number) => Request::at(Priority::from_number(number).expect("below 768")),
            Tag::Untagged => Request::untagged(),
            Tag::Exempt => Request::exempt(),
        };
        if let Some(key) = self.key {
            request = request.key(key);
        }
        if let Some(tenant) = self.tenant {
            request = request.tenant(Tenant(tenant));
        }
        if let Some(from_now) = self.deadline {
            let at = clock.saturating_add_signed(from_now);
            request = request.deadline(cinnamon_core::Instant::from_nanos(at));
        }
        if let Some(left) = self.time_left {
            request = request.time_left(Duration::from_nanos(left));
        }
        if let Some(wait) = self.max_wait {
            request = request.max_wait(Duration::from_nanos(wait));
        }
        if let Some(cost) = self.cost {
            request = request.cost(cost);
        }
        request.attempt(self.attempt).bytes(self.bytes)
    }
}

/// By which handle a request is offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    Try,
    TryOwned,
    Future,
    FutureOwned,
    /// Where it would wait, a future takes its place: nothing here may block.
    Blocking,
    BlockingOwned,
    /// A future that is dropped before it is polled: no offer at all.
    NotPolled,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    Controller,
    Lane(usize),
    Tenant(u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Force {
    Shed(usize),
    Mode(Mode),
}

#[derive(Clone, Debug)]
pub enum Op {
    Offer {
        lane: usize,
        how: How,
        ask: Ask,
    },
    /// Looks again, with another waker or the same.
    Poll {
        nth: usize,
        fresh: bool,
    },
    Cancel {
        nth: usize,
    },
    Finish {
        nth: usize,
        outcome: Outcome,
        cost: Option<u32>,
    },
    Drop {
        nth: usize,
        panics: bool,
    },
    IntoOwned {
        nth: usize,
    },
    Nested {
        nth: usize,
    },
    Advance {
        ns: u64,
    },
    SetBack {
        ns: u64,
    },
    Tick,
    Limit {
        lane: usize,
        limit: u32,
    },
    LaneMode {
        lane: usize,
        mode: Mode,
    },
    Mode {
        mode: Mode,
    },
    Force {
        target: Target,
        force: Force,
        ttl: u64,
    },
    Clear {
        target: Target,
    },
    Reconfigure {
        lane: usize,
        to: LaneCase,
        mode: Mode,
    },
    Explain {
        lane: usize,
        ask: Ask,
    },
    Pressure {
        value: f64,
    },
    /// So many rounds of ten milliseconds in which more comes than a lane can do, each with a tick.
    Storm {
        lane: usize,
        rounds: u32,
        per_round: u32,
        key: u64,
    },
    /// A drain whose time is over at once.
    Drain,
    Close,
}

/// A time below so many milliseconds: any, or, so that it comes to the very instant of something else, a whole number.
fn some_ms(most: u64) -> impl Strategy<Value = u64> {
    prop_oneof![0..most * MS, (0..most).prop_map(|ms| ms * MS)]
}

/// A key that lies at the very beginning of each level, in the first epoch.
fn first_key() -> u64 {
    static KEY: OnceLock<u64> = OnceLock::new();
    let (hash, priority) = (
        KeyHash::new(0, 0),
        Priority::from_number(0).expect("the first"),
    );
    let is_first = |key: &u64| hash.rank_at(priority, *key) == Rank::new(priority, 0);
    *KEY.get_or_init(|| (0..).find(is_first).expect("one in 65,536"))
}

fn ask() -> impl Strategy<Value = Ask> {
    let first = (0..6u16, any_ask()).prop_map(|(tier, ask)| Ask {
        tag: Tag::Priority(128 * tier),
        key: Some(first_key()),
        ..ask
    });
    prop_oneof![30 => any_ask(), 1 => first]
}

fn any_ask() -> impl Strategy<Value = Ask> {
    let tag = prop_oneof![
        12 => (0..6usize).prop_map(Tag::Tier),
        3 => (0..768u16).prop_map(Tag::Priority),
        1 => Just(Tag::Untagged),
        1 => Just(Tag::Exempt),
    ];
    (
        (
            tag,
            proptest::option::weighted(0.8, 0..40u64),
            proptest::option::weighted(0.1, 0..3u32),
        ),
        proptest::option::weighted(
            0.15,
            prop_oneof![
                -30 * MS as i64..200 * MS as i64,
                (-3..200i64).prop_map(|ms| ms * MS as i64),
            ],
        ),
        proptest::option::weighted(0.15, some_ms(200)),
        prop_oneof![
            6 => Just(None),
            1 => Just(Some(0)),
            2 => some_ms(300).prop_map(Some),
        ],
        (
            proptest::option::weighted(0.3, 0..20u32),
            prop_oneof![4 => Just(0u8), 1 => 1..20u8],
            prop_oneof![3 => Just(0u32), 1 => 1..120u32],
        ),
    )
        .prop_map(
            |((tag, key, tenant), deadline, time_left, max_wait, (cost, attempt, bytes))| Ask {
                tag,
                key,
                tenant,
                deadline,
                time_left,
                max_wait,
                cost,
                attempt,
                bytes,
            },
        )
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        3 => Just(How::Try),
        1 => Just(How::TryOwned),
        8 => Just(How::Future),
        3 => Just(How::FutureOwned),
        1 => Just(How::Blocking),
        1 => Just(How::BlockingOwned),
        1 => Just(How::NotPolled),
    ]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        2 => Just(Mode::Enforce),
        2 => Just(Mode::Monitor),
        1 => Just(Mode::Off),
    ]
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => Just(0),
        // Whole milliseconds, so that two things come due at once.
        8 => (1..60u64).prop_map(|ms| ms * MS),
        4 => 1..100 * MS,
        2 => (1..40u64).prop_map(|tenths| tenths * 100 * MS),
        1 => (1..7_200u64).prop_map(|s| s * SECOND),
    ]
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        1 => Just(Target::Controller),
        2 => (0..2usize).prop_map(Target::Lane),
        1 => (0..3u32).prop_map(Target::Tenant),
    ]
}

fn lane_case() -> impl Strategy<Value = LaneCase> {
    (
        1..6u32,
        prop_oneof![1 => Just(None), 3 => (0..8u32).prop_map(Some)],
        prop_oneof![1 => Just(1u64 << 20), 1 => 50..250u64],
    )
        .prop_map(|(limit, queue_len_max, queue_bytes_max)| LaneCase {
            limit,
            queue_len_max,
            queue_bytes_max,
        })
}

fn op() -> impl Strategy<Value = Op> {
    let lane = || 0..2usize;
    let nth = || 0..32usize;
    let outcome = prop_oneof![
        3 => Just(Outcome::Success),
        1 => Just(Outcome::Failure),
        1 => Just(Outcome::Overloaded),
        1 => Just(Outcome::Ignored),
    ];
    let force = prop_oneof![
        2 => (0..6usize).prop_map(Force::Shed),
        1 => mode().prop_map(Force::Mode),
    ];
    prop_oneof![
        30 => (lane(), how(), ask()).prop_map(|(lane, how, ask)| Op::Offer { lane, how, ask }),
        8 => (nth(), any::<bool>()).prop_map(|(nth, fresh)| Op::Poll { nth, fresh }),
        5 => nth().prop_map(|nth| Op::Cancel { nth }),
        14 => (nth(), outcome, proptest::option::weighted(0.3, 0..20u32))
            .prop_map(|(nth, outcome, cost)| Op::Finish { nth, outcome, cost }),
        3 => (nth(), any::<bool>()).prop_map(|(nth, panics)| Op::Drop { nth, panics }),
        1 => nth().prop_map(|nth| Op::IntoOwned { nth }),
        2 => nth().prop_map(|nth| Op::Nested { nth }),
        12 => time().prop_map(|ns| Op::Advance { ns }),
        2 => time().prop_map(|ns| Op::SetBack { ns }),
        8 => Just(Op::Tick),
        3 => (lane(), 1..7u32).prop_map(|(lane, limit)| Op::Limit { lane, limit }),
        1 => (lane(), mode()).prop_map(|(lane, mode)| Op::LaneMode { lane, mode }),
        1 => mode().prop_map(|mode| Op::Mode { mode }),
        2 => (target(), force, 1..3_000u64)
            .prop_map(|(target, force, ms)| Op::Force { target, force, ttl: ms * MS }),
        1 => target().prop_map(|target| Op::Clear { target }),
        1 => (lane(), lane_case(), prop_oneof![3 => Just(Mode::Enforce), 1 => mode()])
            .prop_map(|(lane, to, mode)| Op::Reconfigure { lane, to, mode }),
        3 => (lane(), ask()).prop_map(|(lane, ask)| Op::Explain { lane, ask }),
        1 => prop_oneof![4 => 0.0..3.0f64, 1 => Just(f64::NAN)]
            .prop_map(|value| Op::Pressure { value }),
    ]
}

/// A few steps, or one that is rare in life and dear to run.
fn stretch() -> impl Strategy<Value = Vec<Op>> {
    let end = prop_oneof![1 => Just(Op::Drain), 2 => Just(Op::Close)];
    let storm =
        (0..2usize, 5..60u32, 2..10u32, any::<u64>()).prop_map(|(lane, rounds, per_round, key)| {
            Op::Storm {
                lane,
                rounds,
                per_round,
                key,
            }
        });
    prop_oneof![
        60 => proptest::collection::vec(op(), 1..12),
        3 => storm.prop_map(|op| vec![op]),
        1 => end.prop_map(|op| vec![op]),
    ]
}

pub fn case() -> impl Strategy<Value = Case> {
    (
        prop_oneof![
            2 => proptest::collection::vec(lane_case(), 1),
            1 => proptest::collection::vec(lane_case(), 2),
        ],
        any::<bool>(),
        prop_oneof![
            2 => Just(Order::Adaptive),
            1 => Just(Order::Fifo),
            1 => Just(Order::Lifo)
        ],
        proptest::bool::weighted(0.3),
        proptest::bool::weighted(0.2),
        proptest::collection::vec(stretch(), 1..16),
    )
        .prop_map(
            |(lanes, one_scope, order, monitors, signal, stretches)| Case {
                lanes,
                one_scope,
                order: match order {
                    Order::Adaptive if monitors => Order::Fifo,
                    order => order,
                },
                monitors,
                signal,
                ops: stretches.into_iter().flatten().collect(),
            },
        )
}
