//! The book's chapter "Faults of others" against the tests that there are.

#![allow(
    clippy::expect_used,
    reason = "a helper of tests may end the test that calls it"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const BOOK: &str = include_str!("../../docs/src/faults.md");

/// Every fault that was collected. What is left out between them was about something else.
const NUMBERS: &[u32] = &[
    1, 2, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 16, 17, 18, 19, 20, 22, 23, 24, 26, 27, 28, 29, 30, 31,
    32, 33, 34, 36, 37, 38, 39, 40, 42, 43, 44, 45, 46, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 59,
    60, 62, 63, 64, 65, 66, 68, 70, 71, 72, 73, 75, 76, 77, 78, 79, 81, 82,
];

fn core() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What stands in backquotes and names a test: its file and its function.
fn named() -> Vec<(&'static str, &'static str)> {
    let quoted = BOOK.split('`').skip(1).step_by(2);
    quoted.filter_map(|it| it.split_once(".rs::")).collect()
}

/// A file as the book names it: of the core, unless it begins with another crate.
fn source(file: &str) -> String {
    let root = if file.starts_with("cinnamon-") {
        core().join("..")
    } else {
        core().to_path_buf()
    };
    fs::read_to_string(root.join(format!("{file}.rs"))).expect(file)
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("it is a folder") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_test_that_the_book_names_is_there() {
    let named = named();
    assert!(named.len() > 100, "{} tests are named", named.len());
    for (file, test) in named {
        let source = source(file);
        let declared = source.contains(&format!("fn {test}("));
        assert!(declared, "{file}.rs has no test {test}");
    }
}

#[test]
fn every_test_of_a_fault_is_named_in_the_book() {
    let named: BTreeSet<&str> = named().into_iter().map(|(_, test)| test).collect();
    let mut files = Vec::new();
    for folder in ["src", "tests"] {
        rust_files(&core().join(folder), &mut files);
    }
    for path in files {
        let source = fs::read_to_string(&path).expect("it can be read");
        for after in source.split("fn bug_").skip(1) {
            let end = after.find('(').expect("it is a function");
            let test = format!("bug_{}", &after[..end]);
            // This file's own words are none.
            let is_test = test.starts_with(|c: char| c.is_ascii_lowercase())
                && after.starts_with(|c: char| c.is_ascii_digit());
            assert!(
                !is_test || named.contains(test.as_str()),
                "{}: {test} is not in docs/src/faults.md",
                path.display()
            );
        }
    }
}

#[test]
fn every_number_is_in_the_book() {
    let numbers: BTreeSet<u32> = BOOK
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .flat_map(|cell| cell.split(", "))
        .filter_map(|number| number.parse().ok())
        .collect();
    assert_eq!(numbers, NUMBERS.iter().copied().collect());
}
