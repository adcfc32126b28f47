#!/usr/bin/env bash
# Runs the models of the lock-free parts under loom: every order in which their threads can meet, up to a number of
# preemptions.
#
# tools/loom.sh              all of them
# tools/loom.sh --broken     each patch of loom-tests/breaks applied to a copy, which its model must notice
# LOOM_MAX_PREEMPTIONS=6 tools/loom.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

# Whatever flags an ordinary build has, these builds are kept apart from it.
export RUSTFLAGS="--cfg cinnamon_loom" CARGO_TARGET_DIR="$CARGO_TARGET_DIR/loom"

models() { cargo test --locked --profile loom -p loom-tests "$@"; }

if [ "${1:-}" != --broken ]; then
    models "$@"
    exit
fi

# Apart from what is whole: cargo tells a copy from its original by nothing but the age of the files.
export CARGO_TARGET_DIR="$CARGO_TARGET_DIR-broken"
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
status=0
for patch in loom-tests/breaks/*.patch; do
    # Its first line names the model that must fail.
    model=$(sed -n '1s/^model: //p' "$patch")
    rm -rf "$copy/tree"
    mkdir "$copy/tree"
    git ls-files -z | tar --null --create --files-from=- | tar --extract --touch --directory "$copy/tree"
    if ! (cd "$copy/tree" && patch --quiet --strip=1) <"$patch"; then
        echo "loom: $patch no longer applies" >&2
        status=1
        continue
    fi
    if ! (cd "$copy/tree" && models --no-run) >"$copy/built" 2>&1; then
        cat "$copy/built" >&2
        echo "loom: with $patch nothing compiles" >&2
        status=1
    elif (cd "$copy/tree" && RUST_BACKTRACE=0 models "$model") >"$copy/said" 2>&1; then
        echo "loom: $model does not notice $patch" >&2
        status=1
    elif ! grep -q "^thread '$model'.* panicked at" "$copy/said"; then
        cat "$copy/said" >&2
        echo "loom: $model did not run with $patch" >&2
        status=1
    else
        echo "loom: $model notices $(basename "$patch" .patch)"
    fi
done
exit "$status"
