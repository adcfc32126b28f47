//! The alerts and the dashboard name what there is: metrics, labels, pages of the book, scenarios. Whether they
//! work is seen by `lab alerts`, with Prometheus' own evaluation.
#![allow(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::collections::BTreeSet;
use std::path::Path;

use cinnamon_core::export::METRICS;
use cinnamon_lab::alerts::dashboard::{dashboard_of_the_book, queries};
use cinnamon_lab::alerts::scenario::SCENARIOS;
use cinnamon_lab::alerts::{record, rules_of_the_book};

/// Labels that all metrics have, of the controller's own and by the scrape.
const COMMON: &[&str] = &["controller", "instance", "job"];

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("the file is in the checkout")
}

/// The metrics that stand in a text, each with the labels that are asked of it.
fn asked(text: &str) -> Vec<(String, Vec<String>)> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let from = |at: usize| {
        let rest = &text[at..];
        let end = rest.find(word).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let matchers = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let matchers = matchers.map_or("", |(matchers, _)| matchers);
        let labels = matchers.split(',').filter_map(|matcher| {
            let label = matcher.split(['=', '!']).next()?.trim();
            (!label.is_empty()).then(|| label.to_owned())
        });
        (name.to_owned(), labels.collect())
    };
    let starts = text.match_indices("cinnamon_").map(|(at, _)| at);
    starts.map(from).collect()
}

fn assert_known(text: &str, whence: &str) {
    for (name, labels) in asked(text) {
        let metric = METRICS.iter().find(|metric| metric.name == name);
        assert!(metric.is_some(), "{whence}: there is no metric {name}");
        let own = metric.map_or([].as_slice(), |metric| metric.labels);
        for label in labels {
            let known = COMMON.iter().chain(own).any(|known| *known == label);
            assert!(known, "{whence}: {name} has no label {label}");
        }
    }
}

#[test]
fn rules_and_dashboard_ask_only_for_metrics_and_labels_that_there_are() {
    assert_known(&read(&rules_of_the_book()), "docs/alerts.yml");
    for query in queries(&dashboard_of_the_book()).expect("the dashboard is in order") {
        assert_known(&query.expr, &query.title);
    }
}

#[test]
fn the_dashboard_shows_every_metric() {
    let queries = queries(&dashboard_of_the_book()).expect("the dashboard is in order");
    let text: Vec<String> = queries.into_iter().map(|query| query.expr).collect();
    let shown: BTreeSet<String> = asked(&text.join("\n"))
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    for metric in METRICS {
        assert!(
            shown.contains(metric.name),
            "{} is in no panel",
            metric.name
        );
    }
}

#[test]
fn every_alert_has_a_scenario_a_severity_and_a_place_in_the_runbook() {
    let rules = read(&rules_of_the_book());
    let runbook = read(&rules_of_the_book().with_file_name("src/runbook.md"));
    let alerts: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    let mut named = BTreeSet::new();
    for alert in &alerts {
        let name = alert.lines().next().expect("a name");
        named.insert(name);
        for part in ["severity: ", "summary: ", "description: ", "expr: "] {
            assert!(alert.contains(part), "{name} has no {part}");
        }
        let anchor = format!("runbook: runbook.html#{}\n", name.to_lowercase());
        assert!(alert.contains(&anchor), "{name} should say {anchor}");
        let heading = format!("\n## {name}\n");
        assert!(
            runbook.contains(&heading),
            "the runbook should have {heading}"
        );
    }
    let fire: BTreeSet<&str> = SCENARIOS.iter().filter_map(|script| script.fires).collect();
    assert_eq!(named, fire, "an alert, a scenario");
    assert_eq!(named.len(), alerts.len(), "an alert, a name");
}

#[test]
fn a_recording_is_the_same_each_time_and_ends_with_the_scenario() {
    let script = SCENARIOS
        .iter()
        .find(|script| script.name == "protected-refused");
    let script = script.expect("there is such a scenario");
    let (one, other) = (
        record(script).expect("the scenario runs"),
        record(script).expect("the scenario runs"),
    );
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
    assert!((one.end_s() as f64 - script.seconds()).abs() <= 30.0);
    let shed = "cinnamon_verdicts_total{controller=\"default\",lane=\"read\",tier=\"t1\",verdict=\"shed\"}";
    assert!(one.series().any(|series| series == shed));
}
