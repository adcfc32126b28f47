//! The cases.

use std::fmt;
use std::sync::Arc;

use cinnamon_core::simulation::{
    Clients, End, Fate, Heed, KeySpace, Keys, Phase, Report, Scenario, Service, TenantLoad,
    VirtualController,
};
use cinnamon_core::{
    ConfigError, Observer, Reason, Settings, Signal, TenantSettings, Tier, TierBudget,
};
use cinnamon_signals::{HotKeys, HotTenants};

use super::look::Look;

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// No less.
    AtLeast(f64),
    /// No more.
    AtMost(f64),
}

impl Bound {
    /// Whether a value is within it.
    #[must_use]
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, ">= {least}"),
            Self::AtMost(most) => write!(f, "<= {most}"),
        }
    }
}

/// One figure of a run.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// What it is.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// What it must be; nothing for one that is only shown.
    pub bound: Option<Bound>,
}

fn least(name: &'static str, value: f64, least: f64) -> Figure {
    Figure {
        name,
        value,
        bound: Some(Bound::AtLeast(least)),
    }
}

fn most(name: &'static str, value: f64, most: f64) -> Figure {
    Figure {
        name,
        value,
        bound: Some(Bound::AtMost(most)),
    }
}

fn shown(name: &'static str, value: f64) -> Figure {
    Figure {
        name,
        value,
        bound: None,
    }
}

/// Something that one caller does, or many.
#[derive(Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// What happens.
    pub about: &'static str,
    /// Runs it with this seed, with what is made for it or without.
    pub run: fn(u64, bool) -> Result<Vec<Figure>, ConfigError>,
}

/// All of them.
pub const CASES: &[Case] = &[
    Case {
        name: "hot-key",
        about: "a key at some hundred times its peers, among a million by Zipf's law, for five minutes",
        run: hot_key,
    },
    Case {
        name: "hot-tenant",
        about: "one of ten tenants asks for ten times its share, for five minutes",
        run: hot_tenant,
    },
    Case {
        name: "return",
        about: "twenty tenants alike at twice the capacity, one of whom comes back after a minute",
        run: comes_back,
    },
    Case {
        name: "one-tier",
        about: "everything is t3, at twice the capacity",
        run: one_tier,
    },
    Case {
        name: "untagged",
        about: "nobody says how important anything is, at twice the capacity",
        run: untagged,
    },
    Case {
        name: "all-t0",
        about: "everything claims t0, at twice the capacity",
        run: all_t0,
    },
    Case {
        name: "liar",
        about: "a tenant claims t0 for its batch work, 1.5 times the capacity of it",
        run: liar,
    },
    Case {
        name: "retry-storm",
        about: "at twice the capacity whoever is refused tries again at once, up to three times",
        run: retry_storm,
    },
    Case {
        name: "lock-step",
        about: "ten thousand clients are refused in the same instant",
        run: lock_step,
    },
];

/// What every case has unless it says otherwise: 1,000 requests a second on 20 slots of 20 ms.
fn usual(seed: u64) -> Scenario {
    Scenario {
        seed,
        ..Scenario::default()
    }
}

fn settings(scenario: &Scenario) -> Settings {
    Settings::one_lane("main", scenario.service.parallelism)
}

fn run(scenario: &Scenario, mut policy: VirtualController) -> Result<(Report, Look), ConfigError> {
    let mut look = Look::default();
    let report = scenario.run(&mut policy, &mut look)?;
    Ok((report, look))
}

/// When a culprit begins …
const FROM_S: f64 = 20.0;
/// … and for how long it goes on. In a minute its first second, in which nobody knows of it yet, would be more than the
/// hundredth beyond a 99th percentile.
const TROUBLE_S: f64 = 300.0;
const TO_S: f64 = FROM_S + TROUBLE_S;

const KEYS: KeySpace = KeySpace {
    keys: 1_000_000,
    exponent: 0.99,
};

fn hot_key(seed: u64, guarded: bool) -> Result<Vec<Figure>, ConfigError> {
    let phases = |hot: f64| {
        vec![
            Phase::new("calm", FROM_S, 0.65),
            Phase::new("hot", TROUBLE_S, 0.65).hot(hot),
            Phase::new("after", 20.0, 0.65),
        ]
    };
    let with = |hot| Scenario {
        phases: phases(hot),
        key_space: Some(KEYS),
        ..usual(seed)
    };
    let scenario = with(0.8);
    let plain = || VirtualController::new(settings(&scenario));
    let policy = if guarded {
        let (signal, seen) = HotKeys::with_seed(seed);
        watched(plain()?, signal, seen)?
    } else {
        plain()?
    };
    let (_, look) = run(&scenario, policy)?;
    let (_, cool) = run(&with(0.0), plain()?)?;
    let others = |fate: &Fate| !fate.hot;
    let cold = look.between(FROM_S, TO_S + 20.0, others);
    let capped = cold.filter(|fate| matches!(fate.end, End::Refused(Reason::Capped)));
    let cold_throttled =
        capped.count() as f64 / look.between(FROM_S, TO_S + 20.0, others).count() as f64;
    Ok(vec![
        most(
            "named and throttled after, s",
            look.throttled_s.map_or(TROUBLE_S, |at| at - FROM_S),
            1.0,
        ),
        most("others refused", look.refused(FROM_S, TO_S, others), 0.001),
        most(
            "others' p99 over that without the key",
            look.p99_s(FROM_S, TO_S, others) / cool.p99_s(FROM_S, TO_S, others),
            1.1,
        ),
        most("cold keys throttled", cold_throttled, 1e-4),
        shown(
            "the key refused",
            look.refused(FROM_S + 1.0, TO_S, |fate| fate.hot),
        ),
        most(
            "anybody refused later than 2 s after",
            look.refused(TO_S + 2.0, TO_S + 20.0, |_| true),
            0.0,
        ),
    ])
}

fn watched(
    policy: VirtualController,
    signal: impl Signal + 'static,
    seen: impl Observer + 'static,
) -> Result<VirtualController, ConfigError> {
    policy.watched_by(vec![Box::new(signal)], vec![Arc::new(seen)])
}

const TENANTS: usize = 20;
/// So few that one at ten times its share is more than the lane has room for.
const FEW: usize = 10;

fn tenants() -> Vec<TenantLoad> {
    vec![
        TenantLoad {
            share: 1.0,
            claims: None,
        };
        TENANTS
    ]
}

fn hot_tenant(seed: u64, guarded: bool) -> Result<Vec<Figure>, ConfigError> {
    let with = |times: f64| {
        let mut floods = vec![1.0; FEW];
        floods[0] = times;
        Scenario {
            phases: vec![
                Phase::new("calm", FROM_S, 0.7),
                Phase::new("flood", TROUBLE_S, 0.7).tenants(&floods),
                Phase::new("after", 20.0, 0.7),
            ],
            tenants: tenants()[..FEW].to_vec(),
            ..usual(seed)
        }
    };
    let scenario = with(10.0);
    let plain = || VirtualController::new(settings(&scenario));
    let policy = if guarded {
        let (signal, seen) = HotTenants::new();
        watched(plain()?, signal, seen)?
    } else {
        plain()?
    };
    let (_, look) = run(&scenario, policy)?;
    let (_, cool) = run(&with(1.0), plain()?)?;
    let others = |fate: &Fate| fate.tenant != Some(0);
    Ok(vec![
        most(
            "named and throttled after, s",
            look.throttled_s.map_or(TROUBLE_S, |at| at - FROM_S),
            1.0,
        ),
        most("others refused", look.refused(FROM_S, TO_S, others), 0.001),
        most(
            "others' p99 over that without the flood",
            look.p99_s(FROM_S, TO_S, others) / cool.p99_s(FROM_S, TO_S, others),
            1.1,
        ),
        shown(
            "the flood refused",
            look.refused(FROM_S + 1.0, TO_S, |fate| fate.tenant == Some(0)),
        ),
        most(
            "anybody refused later than 2 s after",
            look.refused(TO_S + 2.0, TO_S + 20.0, |_| true),
            0.0,
        ),
    ])
}

fn comes_back(seed: u64, guarded: bool) -> Result<Vec<Figure>, ConfigError> {
    // With enough requests that a second's chance does not hide what is to be seen: 1,600 of each tenant.
    let mut away = vec![1.0; TENANTS];
    away[0] = 0.0;
    // Without: its idleness is no figure of speech, and another takes its place with as much again.
    let mut back = vec![1.0; TENANTS];
    if !guarded {
        back[1] = 2.0;
        back[0] = 0.0;
    }
    let scenario = Scenario {
        service: Service::new(64, 0.002),
        phases: vec![
            Phase::new("all", 5.0, 2.0),
            Phase::new("away", 60.0, 2.0).tenants(&away),
            Phase::new("back", 5.0, 2.0).tenants(&back),
        ],
        tenants: tenants(),
        mix: [0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
        ..usual(seed)
    };
    let (_, look) = run(&scenario, VirtualController::new(settings(&scenario))?)?;
    Ok(vec![
        least(
            "Jain's index, first second",
            look.jain(65.0, 66.0, TENANTS),
            0.98,
        ),
        least(
            "Jain's index, after that",
            look.jain(66.0, 70.0, TENANTS),
            0.98,
        ),
    ])
}

/// Twice the capacity for 20 s, of tags that say little; without: no gate at all, so that all are late.
fn blind(
    seed: u64,
    guarded: bool,
    change: impl Fn(&mut Scenario),
) -> Result<Vec<Figure>, ConfigError> {
    let mut scenario = Scenario {
        phases: vec![Phase::new("calm", 10.0, 0.7), Phase::new("2x", 20.0, 2.0)],
        ..usual(seed)
    };
    change(&mut scenario);
    let mut settings = settings(&scenario);
    if !guarded {
        settings.mode = cinnamon_core::Mode::Off;
    }
    let (report, look) = run(&scenario, VirtualController::new(settings)?)?;
    let goodput = report.phase("2x").map_or(0.0, |phase| phase.goodput);
    Ok(vec![
        least("goodput", goodput, 0.97),
        most("refused in calm", look.refused(0.0, 10.0, |_| true), 0.0),
    ])
}

fn one_tier(seed: u64, guarded: bool) -> Result<Vec<Figure>, ConfigError> {
    blind(seed, guarded, |scenario| {
        scenario.mix = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0];
    })
}

fn untagged(seed: u64, guarded: bool) -> Result<Vec<Figure>, ConfigError> {
    blind(seed, guarded, |scenario| scenario.keys = Keys::Untagged)
}

fn all_t0(seed: u64, guarded: bool) -> Result<Vec<Figure>, ConfigError> {
    blind(seed, guarded, |scenario| {
        scenario.mix = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    })
}

fn liar(seed: u64, guarded: bool) -> Result<Vec<Figure>, ConfigError> {
    // Nine are honest and fit; the tenth has 1.5 times the capacity of batch work, and calls it t0.
    let mut load = tenants();
    load.truncate(10);
    load[9] = TenantLoad {
        share: 1.0,
        claims: Some(Tier::T0),
    };
    let mut times = vec![1.0; 10];
    times[9] = 20.0;
    let scenario = Scenario {
        phases: vec![
            Phase::new("calm", 10.0, 0.75),
            Phase::new("lies", 20.0, 0.75).tenants(&times),
        ],
        tenants: load,
        ..usual(seed)
    };
    let mut settings = settings(&scenario);
    if guarded {
        // What an honest tenant needs at most, ten times over: a twentieth of the capacity at t0, a fifth at t1.
        settings = settings.tenant(
            TenantSettings::new("*")
                .budget(TierBudget::share(Tier::T0, 0.02))
                .budget(TierBudget::share(Tier::T1, 0.2)),
        );
    }
    let policy = VirtualController::new(settings)?;
    let (report, look) = run(&scenario, policy)?;
    let honest = |fate: &Fate| fate.tenant != Some(9) && fate.tier <= Tier::T1;
    let goodput = report.phase("lies").map_or(0.0, |phase| phase.goodput);
    Ok(vec![
        least("goodput", goodput, 0.97),
        least(
            "honest tenants' t0 and t1",
            look.good(10.0, 30.0, honest),
            0.999,
        ),
        shown(
            "the liar's work",
            look.good(10.0, 30.0, |fate| fate.tenant == Some(9)),
        ),
    ])
}

fn retry_storm(seed: u64, guarded: bool) -> Result<Vec<Figure>, ConfigError> {
    let scenario = Scenario {
        phases: vec![
            Phase::new("calm", 10.0, 0.7),
            Phase::new("storm", 20.0, 2.0),
            Phase::new("after", 10.0, 0.7),
        ],
        clients: Clients {
            retries: 3,
            retry_after_s: 0.0,
            heed: if guarded { Heed::Never } else { Heed::Nothing },
            ..Clients::default()
        },
        ..usual(seed)
    };
    let (report, look) = run(&scenario, VirtualController::new(settings(&scenario))?)?;
    let offers = |attempts: fn(u8) -> bool| {
        let of = look.between(10.0, 30.0, |fate| attempts(fate.attempt));
        of.count() as f64
    };
    let goodput = report.phase("storm").map_or(0.0, |phase| phase.goodput);
    Ok(vec![
        most(
            "offers per request",
            offers(|_| true) / offers(|n| n == 0),
            1.1,
        ),
        least("goodput", goodput, 0.97),
        most(
            "refused later than 2 s after",
            look.refused(32.0, 40.0, |_| true),
            0.0,
        ),
    ])
}

/// Clients that come in the same instant.
const LOCK_STEP: u32 = 10_000;

fn lock_step(seed: u64, guarded: bool) -> Result<Vec<Figure>, ConfigError> {
    let scenario = Scenario {
        service: Service::new(64, 0.002),
        phases: vec![Phase::new("calm", 20.0, 0.5)],
        bursts: vec![cinnamon_core::simulation::Burst {
            at_s: 5.0,
            requests: LOCK_STEP,
            within_s: 0.0,
            class: None,
        }],
        clients: Clients {
            retries: 20,
            retry_after_s: 0.5,
            heed: if guarded { Heed::All } else { Heed::Nothing },
            ..Clients::default()
        },
        ..usual(seed)
    };
    let capacity_per_s = scenario.service.capacity_per_s();
    let (_, look) = run(&scenario, VirtualController::new(settings(&scenario))?)?;
    // The heaviest 10 ms of retries, over what can be served in them.
    let mut slots = vec![0u32; 2_000];
    for fate in look.between(5.0, 20.0, |fate| fate.attempt > 0) {
        let at = super::look::seconds(fate.offered_at);
        if let Some(slot) = slots.get_mut((at * 100.0) as usize) {
            *slot += 1;
        }
    }
    let heaviest = f64::from(slots.iter().copied().max().unwrap_or(0));
    Ok(vec![
        most(
            "heaviest 10 ms of retries over capacity",
            heaviest / (0.01 * capacity_per_s),
            1.0,
        ),
        shown("refused of all attempts", look.refused(5.0, 20.0, |_| true)),
        least("answered in the end", answered(&look), 0.99),
    ])
}

/// Share of the requests of which some attempt was answered in time.
fn answered(look: &Look) -> f64 {
    let requests = look
        .fates
        .iter()
        .map(|fate| fate.request)
        .max()
        .map_or(1, |last| last + 1);
    let good = look
        .fates
        .iter()
        .filter(|fate| matches!(fate.end, End::Good | End::Late));
    good.count() as f64 / requests as f64
}
