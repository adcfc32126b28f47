#!/usr/bin/env bash
# The API documentation of the libraries, and the book.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

cargo doc --locked --no-deps --all-features -p cinnamon-core -p cinnamon-signals
echo "API: $CARGO_TARGET_DIR/doc/cinnamon_core/index.html"
if command -v mdbook >/dev/null; then
    mdbook build docs
    echo "book: docs/book/index.html"
else
    echo "book: SKIPPED, mdbook is not installed ('cargo install --locked mdbook'); its chapters read well in docs/src too"
fi
