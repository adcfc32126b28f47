#!/usr/bin/env bash
# The API documentation of the libraries, and the book.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

cargo doc --locked --no-deps --all-features -p cinnamon-core -p cinnamon-signals
echo "API: $CARGO_TARGET_DIR/doc/cinnamon_core/index.html"
if ! command -v mdbook >/dev/null; then
    echo "installing mdbook: about a minute, once"
    # Without the server it has half of the dependencies, and unoptimised it is fast enough. Not in the shared target
    # directory, which is for the project's own.
    env -u CARGO_TARGET_DIR cargo install --locked --debug --no-default-features --features search mdbook ||
        echo "mdbook could not be installed" >&2
fi
if command -v mdbook >/dev/null; then
    mdbook build docs
    echo "book: docs/book/index.html"
else
    echo "book: SKIPPED, mdbook is not installed; its chapters read well in docs/src too"
fi
