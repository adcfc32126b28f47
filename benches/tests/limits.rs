//! The limit that finds itself holds the cases of `lab limits` that a test has the time for, and limits that do not
//! look fail them. All cases: `lab limits`.

use cinnamon_lab::limits::case::{Case, cases};
use cinnamon_lab::limits::measure;
use cinnamon_lab::limits::rules::{Kind, RULES, Rule};

const SEEDS: u64 = 5;

fn of(names: &[&str]) -> Vec<Case> {
    let wanted = |case: &Case| names.contains(&case.name.as_str());
    let found: Vec<Case> = cases().into_iter().filter(wanted).collect();
    assert_eq!(found.len(), names.len(), "{names:?}");
    found
}

fn rules(kind: Kind) -> Vec<&'static Rule> {
    RULES.iter().filter(|rule| rule.kind == kind).collect()
}

#[test]
fn auto_holds_from_bad_beginnings_and_through_misbehaving_clients() {
    let cases = of(&[
        "start-5-1000rps",
        "start-20-1000rps",
        "start-1-320000rps",
        "application-limited",
        "disconnect-storm",
        "one-outlier",
        "fast-failures",
        "fast-cancels",
        "stable-timeout",
    ]);
    let rows = measure(&cases, &rules(Kind::Product), SEEDS, None).unwrap();
    for row in rows {
        assert!(row.misses.is_empty(), "seeds 1 to {SEEDS}: {row:?}");
    }
}

#[test]
fn limits_that_do_not_look_fail_the_same_cases() {
    let cases = of(&["start-5-1000rps", "one-outlier"]);
    let rows = measure(&cases, &rules(Kind::Control), 1, None).unwrap();
    assert_eq!(rows.len(), 2 * 3);
    for row in rows {
        assert!(!row.misses.is_empty(), "{row:?}");
    }
}
