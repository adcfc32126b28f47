//! Scenario files: TOML, checked like any configuration.
//!
//! A file describes one scenario for one or more of the four services; lengths of phases are in
//! seconds of the 1,000 rps service and are stretched or shortened for the others. Files in
//! `benches/scenarios/` are built in; `lab sim` also takes a path.

use std::path::Path;

use cinnamon_core::simulation::{
    Arrivals, Burst, Clients, Deadline, KeySpace, Keys, Pauses, Phase, Plant, Scenario, Service,
    Shape, Slowness, TenantLoad, Work, Writes,
};
use cinnamon_core::{ConfigError, TIERS};
use serde::Deserialize;

use super::bars;

/// A service of the standard set: what runs, and how long a phase of one second lasts for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standard {
    /// Its label: requests per second at full speed.
    pub label: &'static str,
    /// Slots of the store.
    pub parallelism: u32,
    /// Mean service time, seconds.
    pub mean_s: f64,
    /// Factor on the length of phases and on the deadline. A slow service needs longer to show anything;
    /// on a fast one a run would have millions of requests, and a deadline of a second would be as long
    /// as a phase.
    pub stretch: f64,
}

/// The four services of every bar, from 10 to 320,000 requests per second.
pub const STANDARDS: [Standard; 4] = [
    Standard {
        label: "10rps",
        parallelism: 5,
        mean_s: 0.5,
        stretch: 4.0,
    },
    Standard {
        label: "1000rps",
        parallelism: 20,
        mean_s: 0.02,
        stretch: 1.0,
    },
    Standard {
        label: "32000rps",
        parallelism: 64,
        mean_s: 0.002,
        stretch: 0.2,
    },
    Standard {
        label: "320000rps",
        parallelism: 16,
        mean_s: 0.00005,
        stretch: 0.1,
    },
];

/// What a phase is for: which bars it is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Nobody should be refused.
    Calm,
    /// More is asked than can be done.
    Overload,
    /// The same, for long enough that the threshold should stand still.
    Steady,
    /// The same, entered by a step from calm that is to be answered at once.
    Step,
    /// Right after an overload.
    After,
    /// Only reported.
    Free,
}

/// A scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// What it shows, one sentence.
    pub about: String,
    /// The services it runs on, by label.
    pub services: Vec<String>,
    /// Only run when asked for by name, or with `--long`.
    #[serde(default)]
    pub long: bool,
    /// Other arms than Cinnamon that run by default; all baselines if absent.
    #[serde(default)]
    pub arms: Option<Vec<String>>,
    #[serde(default)]
    store: StoreFile,
    #[serde(default)]
    mix: Option<[f64; TIERS]>,
    #[serde(default)]
    alternate: Option<AlternateFile>,
    #[serde(default)]
    keys: Keys,
    /// Whose requests they are.
    #[serde(default)]
    tenants: Vec<TenantLoad>,
    #[serde(default)]
    key_space: Option<KeySpace>,
    #[serde(default)]
    arrivals: Arrivals,
    #[serde(default)]
    bursts: Vec<Burst>,
    #[serde(default)]
    clients: Clients,
    #[serde(default)]
    deadline: DeadlineFile,
    /// A lane of its own for writes.
    #[serde(default)]
    writes: Option<Writes>,
    /// What signals measure; their times are not stretched.
    #[serde(default)]
    plants: Vec<Plant>,
    phases: Vec<PhaseFile>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StoreFile {
    /// Slots, if other than the service's; the capacity stays, so the service time changes.
    parallelism: Option<u32>,
    shape: Shape,
    work: Vec<Work>,
    pauses: Option<Pauses>,
    slowness: Option<Slowness>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlternateFile {
    every_s: f64,
    mix: [f64; TIERS],
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DeadlineFile {
    /// Seconds; default: a second times the service's stretch, or six service times if that is less.
    base_s: Option<f64>,
    /// So many times the request's own service time on top; default [`OWN_SERVICES`].
    services: Option<f64>,
    told: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseFile {
    name: String,
    role: Role,
    seconds: f64,
    load: f64,
    #[serde(default = "one")]
    capacity: f64,
    #[serde(default = "one")]
    parallelism: f64,
    #[serde(default = "one")]
    low_tiers: f64,
    #[serde(default)]
    tenants: Vec<f64>,
    #[serde(default)]
    hot: f64,
    #[serde(default)]
    mix: Option<[f64; TIERS]>,
    #[serde(default)]
    bounds: Vec<Exception>,
}

/// Bounds of this phase that are not the usual ones, and why.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// The bars.
    pub bars: Vec<String>,
    /// The bound here; the figures are only reported if there is none.
    pub bound: Option<f64>,
    /// Only for this service.
    pub service: Option<String>,
    /// Why the usual bound cannot be meant here.
    pub because: String,
}

/// A request may take so many times its own service time on top of the deadline: the deadline is for
/// waiting. How long the work itself takes is no controller's doing, and none can know it before; in the
/// slowest phases (0.4 of the speed) an exponential service time would be longer than the whole
/// deadline for a third of the work.
const OWN_SERVICES: f64 = 3.0;

fn default_deadline_s(standard: &Standard, mean_s: f64) -> f64 {
    standard.stretch.min((6.0 * mean_s).max(1.0))
}

const fn one() -> f64 {
    1.0
}

/// One scenario on one service, ready to run with any seed.
#[derive(Clone, Debug)]
pub struct Case {
    /// The scenario's name: that of its file.
    pub scenario: String,
    /// What it shows.
    pub about: String,
    /// The service's label.
    pub service: &'static str,
    /// What each phase is for.
    pub roles: Vec<Role>,
    /// Exceptions from the bars, per phase.
    pub exceptions: Vec<Vec<Exception>>,
    /// What happens, with seed 1.
    pub run: Scenario,
}

/// A scenario file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The path as given.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// It is not what a scenario file must be.
    #[error("scenario {scenario}: {source}")]
    Parse {
        /// The scenario's name.
        scenario: String,
        /// What is wrong, and where.
        source: Box<toml::de::Error>,
    },
    /// A figure is out of bounds.
    #[error("scenario {scenario} on {service}: {source}")]
    Figure {
        /// The scenario's name.
        scenario: String,
        /// The service's label.
        service: &'static str,
        /// The figure, its value and its bound.
        source: ConfigError,
    },
    /// A name that does not exist.
    #[error("scenario {scenario}: {what} {name:?} is unknown; known are {known}")]
    Unknown {
        /// The scenario's name.
        scenario: String,
        /// What kind of name.
        what: &'static str,
        /// The name.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// Something is missing.
    #[error("scenario {scenario}: {what}")]
    Missing {
        /// The scenario's name.
        scenario: String,
        /// What is missing.
        what: &'static str,
    },
}

/// A scenario: its name and its file.
#[derive(Clone, Debug)]
pub struct Named {
    /// The file's name without its ending.
    pub name: String,
    /// What it says.
    pub file: File,
}

impl Named {
    /// Reads a scenario from a file.
    ///
    /// # Errors
    ///
    /// When it cannot be read or is not what a scenario file must be.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path).map_err(|source| ScenarioError::Read {
            path: path.display().to_string(),
            source,
        })?;
        let name = path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned());
        Self::parse(&name.unwrap_or_default(), &text)
    }

    /// Takes a scenario from the text of its file and checks all of it.
    ///
    /// # Errors
    ///
    /// What is wrong, by name, value and bound.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let file: File = toml::from_str(text).map_err(|source| ScenarioError::Parse {
            scenario: name.to_owned(),
            source: Box::new(source),
        })?;
        let named = Self {
            name: name.to_owned(),
            file,
        };
        named.cases()?;
        Ok(named)
    }

    /// The scenario on each of its services.
    ///
    /// # Errors
    ///
    /// As for [`Named::parse`].
    pub fn cases(&self) -> Result<Vec<Case>, ScenarioError> {
        let missing = |what| ScenarioError::Missing {
            scenario: self.name.clone(),
            what,
        };
        if self.file.services.is_empty() {
            return Err(missing("`services` names no service"));
        }
        if self.file.phases.is_empty() {
            return Err(missing("`phases` has no phase"));
        }
        let exceptions = self.file.phases.iter().flat_map(|phase| &phase.bounds);
        for service in exceptions.clone().filter_map(|e| e.service.as_ref()) {
            if !self.file.services.contains(service) {
                return Err(self.unknown("service", service, &self.file.services.join(", ")));
            }
        }
        for name in exceptions.flat_map(|exception| &exception.bars) {
            if bars::BARS.iter().all(|bar| bar.name != name) {
                let known: Vec<&str> = bars::BARS.iter().map(|bar| bar.name).collect();
                return Err(self.unknown("bar", name, &known.join(", ")));
            }
        }
        self.file
            .services
            .iter()
            .map(|label| self.case(label))
            .collect()
    }

    fn unknown(&self, what: &'static str, name: &str, known: &str) -> ScenarioError {
        ScenarioError::Unknown {
            scenario: self.name.clone(),
            what,
            name: name.to_owned(),
            known: known.to_owned(),
        }
    }

    fn case(&self, label: &str) -> Result<Case, ScenarioError> {
        let file = &self.file;
        let standard = STANDARDS.iter().find(|standard| standard.label == label);
        let standard = standard.ok_or_else(|| {
            self.unknown(
                "service",
                label,
                &STANDARDS.map(|standard| standard.label).join(", "),
            )
        })?;
        let parallelism = file.store.parallelism.unwrap_or(standard.parallelism);
        let mean_s = standard.mean_s * f64::from(parallelism) / f64::from(standard.parallelism);
        let phases = file.phases.iter().map(|phase| Phase {
            name: phase.name.clone(),
            seconds: phase.seconds * standard.stretch,
            load: phase.load,
            capacity: phase.capacity,
            parallelism: phase.parallelism,
            low_tiers: phase.low_tiers,
            mix: phase.mix,
            tenants: phase.tenants.clone(),
            hot: phase.hot,
        });
        let defaults = Scenario::default();
        let run = Scenario {
            seed: 1,
            service: Service {
                shape: file.store.shape,
                work: file.store.work.clone(),
                pauses: file.store.pauses,
                slowness: file.store.slowness,
                ..Service::new(parallelism, mean_s)
            },
            phases: phases.collect(),
            mix: file.mix.unwrap_or(defaults.mix),
            alternate: file.alternate.as_ref().map(|a| (a.every_s, a.mix)),
            keys: file.keys,
            tenants: file.tenants.clone(),
            key_space: file.key_space,
            arrivals: file.arrivals,
            bursts: file.bursts.clone(),
            clients: file.clients,
            deadline: Deadline {
                base_s: file
                    .deadline
                    .base_s
                    .unwrap_or_else(|| default_deadline_s(standard, mean_s)),
                services: file.deadline.services.unwrap_or(OWN_SERVICES),
                told: file.deadline.told,
            },
            writes: file.writes,
            plants: file.plants.clone(),
        };
        run.check().map_err(|source| ScenarioError::Figure {
            scenario: self.name.clone(),
            service: standard.label,
            source,
        })?;
        let of_service = |exception: &&Exception| {
            exception
                .service
                .as_deref()
                .is_none_or(|service| service == label)
        };
        let exceptions = file.phases.iter();
        let exceptions = exceptions.map(|p| p.bounds.iter().filter(of_service).cloned().collect());
        Ok(Case {
            scenario: self.name.clone(),
            about: file.about.clone(),
            service: standard.label,
            roles: file.phases.iter().map(|phase| phase.role).collect(),
            exceptions: exceptions.collect(),
            run,
        })
    }
}

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        /// The built-in scenario files: name and text.
        pub const BUILT_IN: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../scenarios/", $name, ".toml"))),)*
        ];
    };
}

built_in!(
    "phases",
    "near-capacity",
    "cold-start",
    "one-level",
    "untagged",
    "all-t0",
    "mix-change",
    "batches",
    "on-off",
    "closed-loop",
    "retries",
    "try-only",
    "lockstep",
    "burst",
    "newest-first",
    "pauses-10",
    "pauses-50",
    "pauses-100",
    "pauses-400",
    "slowness",
    "stall",
    "heavy-tail",
    "bimodal",
    "dear",
    "dear-untold",
    "quiet",
    "huge",
    "long-100x",
    "long-100x-busy",
    "calm-days",
    "lag",
    "lag-late",
    "lag-short",
    "lag-as-late",
    "lag-t-long",
    "lag-t-short",
    "lag-t-shorter",
    "memory",
    "stall-detector",
    "two-signals",
    "both-lanes",
    "stuck-under",
    "stuck-absurd",
    "stuck-over",
    "stuck-inferring",
    "broken-gauge",
    "telemetry-lost",
);

/// The built-in scenarios.
///
/// # Errors
///
/// None, unless a committed file is wrong; a test reads them all.
pub fn built_in() -> Result<Vec<Named>, ScenarioError> {
    BUILT_IN
        .iter()
        .map(|(name, text)| Named::parse(name, text))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_file_is_in_order_and_every_file_is_built_in() {
        let mut names: Vec<String> = built_in()
            .unwrap()
            .into_iter()
            .map(|named| named.name)
            .collect();
        names.sort();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let files = std::fs::read_dir(folder).unwrap();
        let stem =
            |path: std::path::PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
        let mut files: Vec<String> = files.map(|entry| stem(entry.unwrap().path())).collect();
        files.sort();
        assert_eq!(names, files);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_value_and_its_bound() {
        let text = |services: &str, load: &str, more: &str| {
            format!(
                "about = \"a test\"\nservices = [{services}]\n{more}\n[[phases]]\nname = \"a\"\nrole = \"calm\"\n\
                 seconds = 1\nload = {load}\n"
            )
        };
        let error = |text: String| Named::parse("test", &text).unwrap_err().to_string();
        assert_eq!(
            error(text("\"1000rps\"", "-1.0", "")),
            "scenario test on 1000rps: `phases[0].load` is -1 but must be between 0 and 1000000"
        );
        assert_eq!(
            error(text("\"999rps\"", "1.0", "")),
            "scenario test: service \"999rps\" is unknown; known are 10rps, 1000rps, 32000rps, 320000rps"
        );
        assert_eq!(
            error(text("", "1.0", "")),
            "scenario test: `services` names no service"
        );
        let typo = error(text("\"10rps\"", "1.0", "arrivls = { kind = \"poisson\" }"));
        assert!(typo.contains("unknown field `arrivls`"), "{typo}");
        let kind = error(text("\"10rps\"", "1.0", "arrivals = { kind = \"burts\" }"));
        assert!(kind.contains("burts"), "{kind}");
        assert!(Named::read(Path::new("/nowhere/a.toml")).is_err());
    }
}
