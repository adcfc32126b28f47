//! Prometheus' own evaluation of the rules: unit-test files for `promtool`, and what it says of them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::dashboard::Query;
use super::record::{Recording, SCRAPE_S};
use super::scenario::Script;

/// The program; Debian has it in the package `prometheus`.
pub const PROMTOOL: &str = "promtool";
/// Which alerts ever fired, and where. Longer than any scenario.
const FIRED: &str =
    "group by (alertname, instance) (max_over_time(ALERTS{alertstate=\"firing\"}[1d]))";
/// Where the scenario happens.
const HERE: &str = "db-1:9100";
/// Where nothing happens meanwhile.
const ELSEWHERE: &str = "db-2:9100";

/// Why it did not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// It is not there.
    #[error("{PROMTOOL} is not installed; Debian and Ubuntu have it in the package prometheus")]
    Missing,
    /// A file cannot be read or written, or the program not be started.
    #[error("{what}: {source}")]
    Io {
        /// What was to be done.
        what: String,
        /// Why it was not.
        source: std::io::Error,
    },
    /// It says something that is not understood.
    #[error("{PROMTOOL} failed in a way that is not known: {said}")]
    Said {
        /// What it says.
        said: String,
    },
}

/// The texts of what fired.
#[derive(Debug, Default)]
pub struct Texts {
    /// An alert each, as somebody would read it.
    pub alerts: Vec<String>,
    /// Those that could not be filled in.
    pub faults: Vec<String>,
}

/// `promtool`, and where its files are.
#[derive(Debug)]
pub struct Promtool {
    rules: PathBuf,
    folder: PathBuf,
    /// Removes the folder in the end.
    _temporary: Option<TempDir>,
}

impl Promtool {
    /// Looks whether it is there, and whether it takes the rules.
    ///
    /// # Errors
    ///
    /// When it is not, does not, or the folder for its files cannot be made.
    pub fn find(rules: &Path, keep: Option<&Path>) -> Result<Self, ToolError> {
        let rules = std::fs::canonicalize(rules)
            .map_err(|source| io(&rules.display().to_string(), source))?;
        let checked = promtool(&["check", "rules"], std::slice::from_ref(&rules))?;
        if !checked.status.success() {
            let said = said(&checked);
            return Err(ToolError::Said { said });
        }
        let (folder, temporary) = match keep {
            Some(folder) => (folder.to_owned(), None),
            None => {
                let made = TempDir::new().map_err(|source| io("a temporary folder", source))?;
                (made.path().to_owned(), Some(made))
            }
        };
        std::fs::create_dir_all(&folder)
            .map_err(|source| io(&folder.display().to_string(), source))?;
        Ok(Self {
            rules,
            folder,
            _temporary: temporary,
        })
    }

    /// Writes the tests of a scenario: that the one alert fired and no other did, nor any for the neighbour, and two that fail on purpose,
    /// because `promtool` shows an alert's text, and what an expression yields, only where it did not expect it.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub fn write(
        &self,
        script: &Script,
        recording: &Recording,
        neighbour: &Recording,
        queries: &[Query],
    ) -> Result<(), ToolError> {
        let end = format!("{}s", recording.end_s());
        let here = recording.in_notation(HERE, recording.scrapes());
        let elsewhere = neighbour.in_notation(ELSEWHERE, recording.scrapes());
        let series = here
            .chain(elsewhere)
            .map(|(series, values)| json!({"series": series, "values": values}));
        let series: Vec<Value> = series.collect();
        let fired = script.fires.map(|alert| {
            let labels = format!("{{alertname={alert:?}, instance={HERE:?}}}");
            json!({"labels": labels, "value": 1})
        });
        let fired: Vec<Value> = fired.into_iter().collect();
        let expected = json!([{"expr": FIRED, "eval_time": end, "exp_samples": fired}]);
        self.write_test(
            &self.test_of(script),
            &series,
            "promql_expr_test",
            &expected,
        )?;
        if let Some(alert) = script.fires {
            let text = json!([{"alertname": alert, "eval_time": end, "exp_alerts": []}]);
            self.write_test(&self.text_of(script), &series, "alert_rule_test", &text)?;
        }
        let nothing =
            |query: &Query| json!({"expr": query.expr, "eval_time": end, "exp_samples": []});
        let shown: Value = queries.iter().map(nothing).collect();
        self.write_test(&self.shown_of(script), &series, "promql_expr_test", &shown)
    }

    fn write_test(
        &self,
        path: &Path,
        series: &[Value],
        kind: &str,
        test: &Value,
    ) -> Result<(), ToolError> {
        let interval = format!("{SCRAPE_S}s");
        // JSON is YAML too.
        let file = json!({
            "rule_files": [self.rules],
            "evaluation_interval": interval,
            "tests": [{"interval": interval, "input_series": series, kind: test}],
        });
        std::fs::write(path, file.to_string())
            .map_err(|source| io(&path.display().to_string(), source))
    }

    fn test_of(&self, script: &Script) -> PathBuf {
        self.folder.join(format!("{}.yml", script.name))
    }

    fn text_of(&self, script: &Script) -> PathBuf {
        self.folder.join(format!("{}.text.yml", script.name))
    }

    fn shown_of(&self, script: &Script) -> PathBuf {
        self.folder.join(format!("{}.shown.yml", script.name))
    }

    /// Evaluates the rules on every scenario. What did not go as it should, as `promtool` puts it.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn test(&self, scripts: &[&Script]) -> Result<Vec<String>, ToolError> {
        let mut faults = Vec::new();
        for script in scripts {
            let output = promtool(&["test", "rules"], &[self.test_of(script)])?;
            if !output.status.success() {
                faults.push(format!("{}:\n{}", script.name, said(&output)));
            }
        }
        Ok(faults)
    }

    /// The texts of the alerts that fire at the end of these scenarios.
    ///
    /// # Errors
    ///
    /// When it cannot be started, or says something that is not understood.
    pub fn texts(&self, scripts: &[&Script]) -> Result<Texts, ToolError> {
        let mut texts = Texts::default();
        for script in scripts {
            let Some(alert) = script.fires else { continue };
            let output = promtool(&["test", "rules"], &[self.text_of(script)])?;
            let said = said(&output);
            let got = said.split("got:[").nth(1);
            let Some((_, got)) = got.and_then(|got| got.split_once("Annotations:")) else {
                texts.faults.push(format!("{alert} has no text:\n{said}"));
                continue;
            };
            let text = got.lines().next().unwrap_or_default();
            if SPOILT.iter().any(|mark| text.contains(mark)) {
                texts
                    .faults
                    .push(format!("{alert} is not filled in: {text}"));
            }
            texts.alerts.push(format!("{alert} {text}"));
        }
        Ok(texts)
    }

    /// What is wrong with these expressions, as `promtool` puts it.
    ///
    /// # Errors
    ///
    /// When a file cannot be written or it cannot be started.
    pub fn wrong(&self, queries: &[Query]) -> Result<Option<String>, ToolError> {
        let rules = queries.iter().enumerate().map(|(i, query)| {
            let title = &query.title;
            json!({"record": format!("panel:{i}"), "expr": query.expr, "labels": {"panel": title}})
        });
        let rules: Vec<Value> = rules.collect();
        let file = json!({"groups": [{"name": "dashboard", "rules": rules}]});
        let path = self.folder.join("dashboard.rules.yml");
        std::fs::write(&path, file.to_string())
            .map_err(|source| io(&path.display().to_string(), source))?;
        let output = promtool(&["check", "rules"], &[path])?;
        Ok((!output.status.success()).then(|| said(&output)))
    }

    /// Those expressions that yield nothing at the end of any scenario.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn empty(&self, scripts: &[&Script], queries: &[Query]) -> Result<Vec<String>, ToolError> {
        let mut all = String::new();
        for script in scripts {
            all += &said(&promtool(&["test", "rules"], &[self.shown_of(script)])?);
        }
        let shown = |query: &&Query| all.contains(&format!("expr: {:?}", query.expr));
        let empty = queries.iter().filter(|query| !shown(query));
        let fault = |query: &Query| format!("{} shows nothing: {}", query.title, query.expr);
        Ok(empty.map(fault).collect())
    }
}

/// What stands in a text whose template could not be filled in, or had nothing to be filled in with.
const SPOILT: &[&str] = &["<error", "<no value>", "%!", "NaN", "unknown", "  "];

fn promtool(arguments: &[&str], files: &[PathBuf]) -> Result<Output, ToolError> {
    let mut command = Command::new(PROMTOOL);
    let output = command.args(arguments).args(files).output();
    output.map_err(|source| match source.kind() {
        ErrorKind::NotFound => ToolError::Missing,
        _ => io(PROMTOOL, source),
    })
}

fn said(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    format!("{}{}", out.trim_end(), err.trim_end())
}

fn io(what: &str, source: std::io::Error) -> ToolError {
    ToolError::Io {
        what: what.to_owned(),
        source,
    }
}
