//! The book's links lead somewhere: pages, headings, pictures, and files of the checkout. Its code is compiled with
//! the documentation tests of `cinnamon-examples`.
#![allow(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files with this ending in a folder, by name.
fn files(folder: &str, ending: &str) -> BTreeMap<String, String> {
    let folder = std::fs::read_dir(checkout().join(folder)).expect("the folder is in the checkout");
    let paths = folder.map(|entry| entry.expect("an entry").path());
    let wanted = paths.filter(|path| path.extension().is_some_and(|found| found == ending));
    wanted
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy();
            let text = std::fs::read_to_string(&path).expect("text");
            (name.into_owned(), text)
        })
        .collect()
}

/// The text without blocks of code.
fn prose(page: &str) -> String {
    page.split("```").step_by(2).collect()
}

/// What mdBook makes of a heading; the second of a name gets `-1`, and so on.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let page = prose(page);
    let headings = page.lines().filter(|line| line.starts_with('#'));
    for heading in headings {
        let text = heading.trim_start_matches('#').trim();
        let anchor: String = text
            .chars()
            .filter_map(|c| match c {
                c if c.is_whitespace() => Some('-'),
                c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c.to_ascii_lowercase()),
                _ => None,
            })
            .collect();
        let numbered = (1..).map(|n| format!("{anchor}-{n}"));
        let mut names = std::iter::once(anchor.clone()).chain(numbered);
        let free = names.find(|name| !found.contains(name));
        found.insert(free.expect("there is no end of numbers"));
    }
    found
}

/// The targets of links and pictures, those out of the checkout left out.
fn links(page: &str) -> Vec<String> {
    let page = prose(page);
    let targets = page.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    let internal = targets.filter(|target| !target.contains("://"));
    internal.map(str::to_owned).collect()
}

#[test]
fn every_link_leads_to_a_page_a_heading_or_a_picture_that_there_is() {
    let book = files("docs/src", "md");
    for (name, page) in &book {
        for link in links(page) {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { name } else { path };
            if target.starts_with("img/") {
                let picture = checkout().join("docs/src").join(target);
                assert!(picture.exists(), "{name}: there is no picture {target}");
                continue;
            }
            assert!(
                book.contains_key(target),
                "{name}: there is no page {target}"
            );
            let known = anchor.is_empty() || anchors(&book[target]).contains(anchor);
            assert!(known, "{name}: {target} has no heading #{anchor}");
        }
    }
}

#[test]
fn every_page_is_in_the_summary_and_every_picture_in_a_page() {
    let book = files("docs/src", "md");
    let summary: BTreeSet<String> = links(&book["SUMMARY.md"]).into_iter().collect();
    let pages = book.keys().filter(|name| *name != "SUMMARY.md");
    assert_eq!(summary, pages.cloned().collect());
    let linked: BTreeSet<String> = book.values().flat_map(|page| links(page)).collect();
    for picture in files("docs/src/img", "svg").keys() {
        assert!(linked.contains(&format!("img/{picture}")), "{picture}");
    }
}

/// Paths of the checkout stand in code spans, from its root.
#[test]
fn every_file_that_is_named_is_there() {
    const ROOTS: &[&str] = &["docs/", "tools/", "examples/", "benches/", "cinnamon-"];
    for (name, page) in files("docs/src", "md") {
        let page = prose(&page);
        let spans = page.split('`').skip(1).step_by(2);
        let file = |span: &&str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
            ROOTS.iter().any(|root| span.starts_with(root))
                && span.contains('/')
                && span.chars().all(plain)
        };
        for path in spans.filter(file) {
            let there = checkout().join(path).exists() || path.contains("NNNN");
            assert!(there, "{name}: there is no {path}");
        }
    }
}

/// The runbook of an alert is an anchor: `CinnamonFailed` is `#cinnamonfailed`.
#[test]
fn headings_become_anchors_as_in_the_book() {
    let page =
        "# Words\n## `lab sim`\n## Reading a snapshot at 3 a.m.\n```text\n# no\n```\n## Words\n";
    let expected = ["words", "lab-sim", "reading-a-snapshot-at-3-am", "words-1"];
    assert_eq!(anchors(page), expected.map(str::to_owned).into());
}
