//! Every file of the fuzz target's corpus of scenarios, replayed by the function that the target calls.

#![allow(
    unreachable_pub,
    clippy::expect_used,
    reason = "the function is that of the fuzz target"
)]

use std::fs;
use std::path::Path;

#[path = "../../fuzz/src/scenario.rs"]
mod scenario;

#[test]
fn scenario_files_are_refused_or_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/scenario");
    let mut files = 0;
    for entry in fs::read_dir(folder).expect("the corpus is there") {
        let path = entry.expect("it can be read").path();
        // Shown when it fails.
        println!("{}", path.display());
        scenario::check(&fs::read(&path).expect("it can be read"));
        files += 1;
    }
    assert!(files > 3, "{files} files");
}
