//! Every file of the fuzz targets' corpora of this crate, replayed by the functions that the targets call.

#![allow(
    unreachable_pub,
    clippy::expect_used,
    reason = "the functions are those of the fuzz targets"
)]

use std::fs;
use std::path::Path;

#[path = "../../fuzz/src/config.rs"]
mod config;
#[path = "../../fuzz/src/overrides.rs"]
mod overrides;

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let mut files = 0;
    for entry in fs::read_dir(folder.join(target)).expect("the corpus is there") {
        let path = entry.expect("it can be read").path();
        // Shown when it fails.
        println!("{}", path.display());
        check(&fs::read(&path).expect("it can be read"));
        files += 1;
    }
    assert!(files > 3, "{files} files");
}

#[test]
fn configurations_are_refused_or_run() {
    replay("config", config::check);
}

#[test]
fn override_files_are_refused_or_in_force() {
    replay("overrides", overrides::check);
}
