//! What happens to whom: the description of a run.

use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, within};
use crate::priority::{PRIORITIES, TIERS, Tier};
use crate::simulation::plant::Plant;
use crate::simulation::policy::Policy;
use crate::simulation::report::{Report, Witness};
use crate::simulation::world::World;

/// A simulated store: it works on `parallelism` requests at full speed; more share that speed
/// evenly.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Requests it works on at once at full speed.
    pub parallelism: u32,
    /// Mean service time at full speed in seconds, over all classes of work.
    pub mean_s: f64,
    /// How service times scatter within a class of work.
    pub shape: Shape,
    /// Classes of work; empty means one.
    pub work: Vec<Work>,
    /// Regular stops.
    pub pauses: Option<Pauses>,
    /// Stretches in which everything is slower at once.
    pub slowness: Option<Slowness>,
}

impl Service {
    /// Exponential service times, one class of work, no pauses.
    #[must_use]
    pub const fn new(parallelism: u32, mean_s: f64) -> Self {
        Self {
            parallelism,
            mean_s,
            shape: Shape::Exponential,
            work: Vec::new(),
            pauses: None,
            slowness: None,
        }
    }

    /// Requests per second at full speed.
    #[must_use]
    pub fn capacity_per_s(&self) -> f64 {
        f64::from(self.parallelism) / self.mean_s
    }
}

/// The distribution of service times within a class of work; its mean is the class's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Shape {
    /// Every request takes the mean.
    Constant,
    /// Coefficient of variation 1.
    #[default]
    Exponential,
    /// A heavy tail.
    Lognormal {
        /// Coefficient of variation.
        cv: f64,
    },
    /// Few that take long, many that do not; constant within each kind.
    Bimodal {
        /// Share of the long ones.
        share: f64,
        /// How many times as long as the short ones they take.
        times: f64,
    },
}

/// A class of work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// Its share of the requests, relative to the other classes.
    pub share: f64,
    /// Its mean service time, relative to the other classes.
    pub times: f64,
    /// What its requests say of it.
    pub tell: Tell,
    /// What comes of it.
    #[serde(default)]
    pub ends: Ends,
}

/// What comes of work that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ends {
    /// What was asked for.
    #[default]
    Success,
    /// Nothing: not found, not allowed.
    Failure,
    /// Nothing, for something it needs is overloaded.
    Overloaded,
    /// The client has gone, and the permit was dropped.
    Abandoned,
}

/// What a request says of its cost. The unit of cost is the mean of the cheapest class of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tell {
    /// Nothing, neither before nor after.
    #[default]
    Nothing,
    /// Its class before, and what it cost after.
    Class,
    /// The mean cost of its class before, and what it cost after.
    Cost,
}

/// Stops of the whole store, one at a random time in each period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pauses {
    /// The period, seconds.
    pub every_s: f64,
    /// How long each lasts, seconds.
    pub length_s: f64,
}

/// Stretches of correlated slowness, at random.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slowness {
    /// Mean time from the end of one to the next, seconds.
    pub every_s: f64,
    /// Mean length, seconds.
    pub length_s: f64,
    /// Speed meanwhile, as a share of the phase's.
    pub speed: f64,
}

/// A stretch of constant load.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its name in reports.
    pub name: String,
    /// Its length in seconds.
    pub seconds: f64,
    /// Offered load as a multiple of the full capacity, before `low_tiers` is applied.
    pub load: f64,
    /// The store's speed as a share of its full capacity.
    pub capacity: f64,
    /// The store's room as a multiple of its parallelism; where it is not 1 there is no oracle.
    pub parallelism: f64,
    /// Multiple of the offers of t3 to t5.
    pub low_tiers: f64,
    /// Share of offers per tier at `low_tiers` 1, if other than the scenario's.
    pub mix: Option<[f64; TIERS]>,
    /// Multiple of each tenant's offers, in the scenario's order; 1 where the list ends.
    pub tenants: Vec<f64>,
    /// Requests on one key, on top, as a share of the others.
    pub hot: f64,
}

impl Phase {
    /// A phase of `load` times the capacity.
    #[must_use]
    pub fn new(name: &str, seconds: f64, load: f64) -> Self {
        Self {
            name: name.to_owned(),
            seconds,
            load,
            capacity: 1.0,
            parallelism: 1.0,
            low_tiers: 1.0,
            mix: None,
            tenants: Vec::new(),
            hot: 0.0,
        }
    }

    /// The same while the store is slower or faster.
    #[must_use]
    pub const fn capacity(mut self, capacity: f64) -> Self {
        self.capacity = capacity;
        self
    }

    /// The same while the store has room for more or fewer.
    #[must_use]
    pub const fn parallelism(mut self, parallelism: f64) -> Self {
        self.parallelism = parallelism;
        self
    }

    /// The same with this many times the offers of each tenant.
    #[must_use]
    pub fn tenants(mut self, times: &[f64]) -> Self {
        self.tenants = times.to_vec();
        self
    }

    /// The same with so many requests on one key, on top.
    #[must_use]
    pub const fn hot(mut self, share: f64) -> Self {
        self.hot = share;
        self
    }

    /// The same with this many times the offers of t3 to t5.
    #[must_use]
    pub const fn low_tiers(mut self, low_tiers: f64) -> Self {
        self.low_tiers = low_tiers;
        self
    }
}

/// How requests arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Arrivals {
    /// Independently of one another.
    #[default]
    Poisson,
    /// So many at the same instant, batches independently of one another.
    Batches {
        /// Requests in a batch.
        size: u32,
    },
    /// Poisson while on, nobody while off; the mean is the phase's load.
    OnOff {
        /// Length of an on stretch, seconds.
        on_s: f64,
        /// Length of an off stretch, seconds.
        off_s: f64,
    },
    /// Clients that wait for an answer, think, and ask again: as many as would ask for `load` times
    /// the capacity if nobody had to wait.
    Closed {
        /// Mean time from an answer (or a refusal) to the next request, seconds.
        think_s: f64,
    },
}

/// Requests that come on top, evenly spread over a short time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// When it begins, seconds.
    pub at_s: f64,
    /// How many come.
    pub requests: u32,
    /// Within which time, seconds.
    pub within_s: f64,
    /// The class of work they all are, by index; drawn like any other if absent.
    #[serde(default)]
    pub class: Option<u16>,
}

/// How clients behave when the answer does not come, or is no.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clients {
    /// After so many seconds in the queue they give up (and say so); never, if `None`.
    pub patience_s: Option<f64>,
    /// They ask for a slot now or not at all, and never wait.
    pub never_wait: bool,
    /// A refused request is tried again up to so many times …
    pub retries: u8,
    /// … after this many seconds.
    pub retry_after_s: f64,
    /// What they make of the advice that comes with a refusal.
    pub heed: Heed,
}

/// What clients make of the advice that comes with a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Heed {
    /// Nothing.
    #[default]
    Nothing,
    /// Who is told never to come back does not; the others come when they like.
    Never,
    /// All of it: they wait as long as they are told, and who is sent elsewhere goes.
    All,
}

/// A tenant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantLoad {
    /// Its share of the requests, relative to the other tenants'.
    pub share: f64,
    /// The tier that all its requests claim, whatever they are worth.
    #[serde(default)]
    pub claims: Option<Tier>,
}

/// How often each key comes: by Zipf's law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySpace {
    /// So many different keys.
    pub keys: u32,
    /// The exponent; 0 makes all alike, and 0.99 is YCSB's.
    pub exponent: f64,
}

/// When an answer comes too late to be of use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deadline {
    /// Seconds after arrival …
    pub base_s: f64,
    /// … and so many times the request's own service time at full speed.
    pub services: f64,
    /// Whether requests carry it.
    pub told: bool,
}

/// What requests say of their importance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Keys {
    /// Tier by the mix, every request from another caller.
    #[default]
    Random,
    /// All at one priority.
    OneLevel {
        /// Its number.
        priority: u16,
    },
    /// Nothing; the tier by the mix is what the request is really worth.
    Untagged,
}

/// A share of the requests are writes: they have a lane and a store of their own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writes {
    /// So many of all requests.
    pub share: f64,
    /// Writes the store can work on at once.
    pub parallelism: u32,
    /// Mean service time at full speed, seconds.
    pub mean_s: f64,
}

/// One or two lanes with a store each, a sequence of phases.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Everything random follows from it.
    pub seed: u64,
    /// The store.
    pub service: Service,
    /// What happens, in order.
    pub phases: Vec<Phase>,
    /// Share of offers per tier at `low_tiers` 1.
    pub mix: [f64; TIERS],
    /// A second mix that takes turns with the first every so many seconds.
    pub alternate: Option<(f64, [f64; TIERS])>,
    /// What requests say of themselves.
    pub keys: Keys,
    /// Whose they are; nobody's, if there are none.
    pub tenants: Vec<TenantLoad>,
    /// Which keys come; every request another, if `None`.
    pub key_space: Option<KeySpace>,
    /// How they arrive.
    pub arrivals: Arrivals,
    /// What comes on top.
    pub bursts: Vec<Burst>,
    /// How clients behave.
    pub clients: Clients,
    /// When an answer is too late.
    pub deadline: Deadline,
    /// Writes, if they are apart. Loads are still told in capacities of `service`.
    pub writes: Option<Writes>,
    /// What signals measure.
    pub plants: Vec<Plant>,
}

impl Default for Scenario {
    /// 1,000 requests a second on 20 slots, no phases, the mix 2/28/20/20/15/15 %, answers wanted
    /// within a second.
    fn default() -> Self {
        Self {
            seed: 1,
            service: Service::new(20, 0.02),
            phases: Vec::new(),
            mix: [0.02, 0.28, 0.2, 0.2, 0.15, 0.15],
            alternate: None,
            keys: Keys::Random,
            tenants: Vec::new(),
            key_space: None,
            arrivals: Arrivals::Poisson,
            bursts: Vec::new(),
            clients: Clients::default(),
            deadline: Deadline {
                base_s: 1.0,
                services: 0.0,
                told: false,
            },
            writes: None,
            plants: Vec::new(),
        }
    }
}

impl Scenario {
    /// Runs `policy` through it to the end of the last phase, and on until everybody who came has an
    /// answer. `witness` is told what became of each offer and how the policy stood after each of its
    /// wake-ups; `&mut ()` does not look.
    ///
    /// # Errors
    ///
    /// When a figure of the scenario is out of bounds, or a signal is not what it must be.
    pub fn run(
        &self,
        policy: &mut dyn Policy,
        witness: &mut dyn Witness,
    ) -> Result<Report, ConfigError> {
        self.check()?;
        Ok(World::new(self, policy, witness)?.run())
    }

    /// Checks every figure.
    ///
    /// # Errors
    ///
    /// The first one out of bounds, with its name, its value and the bound.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_service(&self.service)?;
        check_mix("mix", &self.mix)?;
        if let Some((every_s, mix)) = &self.alternate {
            within("alternate.every_s", *every_s, 1e-6, SECONDS_MAX)?;
            check_mix("alternate.mix", mix)?;
        }
        if let Keys::OneLevel { priority } = self.keys {
            within("keys.priority", priority, 0, PRIORITIES as u16 - 1)?;
        }
        match self.arrivals {
            Arrivals::Poisson => {}
            Arrivals::Batches { size } => within("arrivals.size", size, 1, 1_000_000)?,
            Arrivals::OnOff { on_s, off_s } => {
                within("arrivals.on_s", on_s, 1e-6, SECONDS_MAX)?;
                within("arrivals.off_s", off_s, 0.0, SECONDS_MAX)?;
            }
            Arrivals::Closed { think_s } => within("arrivals.think_s", think_s, 1e-6, SECONDS_MAX)?,
        }
        for (i, burst) in self.bursts.iter().enumerate() {
            within(&format!("bursts[{i}].at_s"), burst.at_s, 0.0, SECONDS_MAX)?;
            within(
                &format!("bursts[{i}].requests"),
                burst.requests,
                1,
                10_000_000,
            )?;
            if let Some(class) = burst.class {
                let last = self.service.work.len().saturating_sub(1);
                within(&format!("bursts[{i}].class"), usize::from(class), 0, last)?;
            }
            within(
                &format!("bursts[{i}].within_s"),
                burst.within_s,
                0.0,
                SECONDS_MAX,
            )?;
        }
        for (i, tenant) in self.tenants.iter().enumerate() {
            within(&format!("tenants[{i}].share"), tenant.share, 0.0, 1e6)?;
        }
        within("tenants.len", self.tenants.len(), 0, 1_000)?;
        if let Some(space) = &self.key_space {
            within("key_space.keys", space.keys, 1, 10_000_000)?;
            within("key_space.exponent", space.exponent, 0.0, 4.0)?;
        }
        if let Some(patience_s) = self.clients.patience_s {
            within("clients.patience_s", patience_s, 1e-6, SECONDS_MAX)?;
        }
        within("clients.retries", self.clients.retries, 0, 100)?;
        within(
            "clients.retry_after_s",
            self.clients.retry_after_s,
            0.0,
            SECONDS_MAX,
        )?;
        if let Some(writes) = &self.writes {
            within("writes.share", writes.share, 0.0, 1.0)?;
            within("writes.parallelism", writes.parallelism, 1, u32::MAX)?;
            within("writes.mean_s", writes.mean_s, 1e-9, 1e6)?;
        }
        for (i, plant) in self.plants.iter().enumerate() {
            plant.check(&format!("plants[{i}]"))?;
        }
        within("deadline.base_s", self.deadline.base_s, 1e-6, SECONDS_MAX)?;
        within("deadline.services", self.deadline.services, 0.0, 1e6)?;
        for (i, phase) in self.phases.iter().enumerate() {
            within(
                &format!("phases[{i}].seconds"),
                phase.seconds,
                0.0,
                SECONDS_MAX,
            )?;
            within(&format!("phases[{i}].load"), phase.load, 0.0, 1e6)?;
            within(&format!("phases[{i}].capacity"), phase.capacity, 1e-6, 1e6)?;
            within(
                &format!("phases[{i}].parallelism"),
                phase.parallelism,
                1e-6,
                1e6,
            )?;
            within(&format!("phases[{i}].low_tiers"), phase.low_tiers, 0.0, 1e6)?;
            within(&format!("phases[{i}].hot"), phase.hot, 0.0, 1e6)?;
            for (j, &times) in phase.tenants.iter().enumerate() {
                within(&format!("phases[{i}].tenants[{j}]"), times, 0.0, 1e6)?;
            }
            if let Some(mix) = &phase.mix {
                check_mix(&format!("phases[{i}].mix"), mix)?;
            }
        }
        Ok(())
    }

    /// Where the phase with this index begins, seconds.
    #[must_use]
    pub fn phase_start_s(&self, phase: usize) -> f64 {
        self.phases.iter().take(phase).map(|p| p.seconds).sum()
    }
}

const SECONDS_MAX: f64 = 1e9;

fn check_service(service: &Service) -> Result<(), ConfigError> {
    within("service.parallelism", service.parallelism, 1, u32::MAX)?;
    within("service.mean_s", service.mean_s, 1e-9, 1e6)?;
    match service.shape {
        Shape::Constant | Shape::Exponential => {}
        Shape::Lognormal { cv } => within("service.shape.cv", cv, 0.0, 100.0)?,
        Shape::Bimodal { share, times } => {
            within("service.shape.share", share, 0.0, 1.0)?;
            within("service.shape.times", times, 1.0, 1e6)?;
        }
    }
    for (i, work) in service.work.iter().enumerate() {
        within(&format!("service.work[{i}].share"), work.share, 1e-9, 1e9)?;
        within(&format!("service.work[{i}].times"), work.times, 1e-9, 1e9)?;
    }
    if let Some(pauses) = &service.pauses {
        within(
            "service.pauses.length_s",
            pauses.length_s,
            1e-9,
            SECONDS_MAX,
        )?;
        within(
            "service.pauses.every_s",
            pauses.every_s,
            pauses.length_s,
            SECONDS_MAX,
        )?;
    }
    if let Some(slowness) = &service.slowness {
        within(
            "service.slowness.every_s",
            slowness.every_s,
            1e-6,
            SECONDS_MAX,
        )?;
        within(
            "service.slowness.length_s",
            slowness.length_s,
            1e-6,
            SECONDS_MAX,
        )?;
        within("service.slowness.speed", slowness.speed, 1e-6, 1e6)?;
    }
    Ok(())
}

fn check_mix(name: &str, mix: &[f64; TIERS]) -> Result<(), ConfigError> {
    for (tier, &share) in mix.iter().enumerate() {
        within(&format!("{name}[{tier}]"), share, 0.0, 1e9)?;
    }
    within(
        &format!("{name}.sum"),
        mix.iter().sum(),
        f64::MIN_POSITIVE,
        1e9,
    )
}
