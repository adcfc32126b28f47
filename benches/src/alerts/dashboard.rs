//! The expressions of a Grafana dashboard, as `promtool` can evaluate them.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// What Grafana fills in for its variables, and what stands for it here: all instances, controllers and lanes, four scrapes.
const VARIABLES: &[(&str, &str)] = &[
    ("$__rate_interval", "1m"),
    ("$instance", ".*"),
    ("$controller", ".*"),
    ("$lane", ".*"),
];

/// The dashboard cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DashboardError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is no JSON.
    #[error("{}: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: serde_json::Error,
    },
    /// A variable stands in an expression that is not known here.
    #[error("{title}: {expr} has a variable that is none of {known}")]
    Variable {
        /// The panel.
        title: String,
        /// The expression.
        expr: String,
        /// Those that are known.
        known: String,
    },
}

/// One expression of a panel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The panel's title.
    pub title: String,
    /// The expression, with variables filled in.
    pub expr: String,
}

/// Reads every expression of the dashboard in this file.
///
/// # Errors
///
/// When it cannot be read, is no JSON, or has an unknown variable.
pub fn queries(path: &Path) -> Result<Vec<Query>, DashboardError> {
    let text = std::fs::read_to_string(path).map_err(|source| DashboardError::Read {
        path: path.to_owned(),
        source,
    })?;
    let dashboard: Value = serde_json::from_str(&text).map_err(|source| DashboardError::Parse {
        path: path.to_owned(),
        source,
    })?;
    let mut found = Vec::new();
    collect(&dashboard, "", &mut found);
    for query in &mut found {
        for (variable, value) in VARIABLES {
            query.expr = query.expr.replace(variable, value);
        }
        if query.expr.contains('$') {
            let known: Vec<&str> = VARIABLES.iter().map(|(variable, _)| *variable).collect();
            return Err(DashboardError::Variable {
                title: query.title.clone(),
                expr: query.expr.clone(),
                known: known.join(", "),
            });
        }
    }
    Ok(found)
}

/// Wherever an `expr` stands, under the nearest `title` above it.
fn collect(value: &Value, title: &str, found: &mut Vec<Query>) {
    match value {
        Value::Array(all) => all.iter().for_each(|value| collect(value, title, found)),
        Value::Object(all) => {
            let own = all.get("title").or_else(|| all.get("name"));
            let title = own.and_then(Value::as_str).unwrap_or(title);
            if let Some(expr) = all.get("expr").and_then(Value::as_str) {
                found.push(Query {
                    title: title.to_owned(),
                    expr: expr.to_owned(),
                });
            }
            all.values().for_each(|value| collect(value, title, found));
        }
        _ => {}
    }
}

/// Where the dashboard of this checkout is, for tests.
#[must_use]
pub fn dashboard_of_the_book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/grafana.json")
}
