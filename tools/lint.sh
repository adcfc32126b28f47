#!/usr/bin/env bash
# Everything that is checked without running it. All checks run, whichever fail; the failed ones are named at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=()
check() {
    local name=$1
    shift
    echo "--- $name"
    "$@" || failed+=("$name")
}

rocks=(-p cinnamon-rocks -p cinnamon-lab -p cinnamon-examples)

clippy() { tools/cargo.sh clippy --locked "$@" -- -D warnings; }
clippy_rocks() { tools/cargo-rocks.sh clippy --locked --release "${rocks[@]}" --all-targets --all-features -- -D warnings; }
rustdoc() { RUSTDOCFLAGS=-Dwarnings "tools/$1" doc --locked --no-deps "${@:2}"; }

# Needs the network for its database; to be without it is no fault of the code.
advisories() {
    local said
    if said=$(tools/cargo.sh deny --locked -L error check advisories 2>&1); then return 0; fi
    case $said in
    *"failed to fetch advisory database"*) echo "SKIPPED: the database of advisories cannot be reached" ;;
    *) echo "$said"; return 1 ;;
    esac
}

check "formatting" tools/cargo.sh fmt --all --check
check "formatting, fuzz" tools/cargo.sh fmt --manifest-path fuzz/Cargo.toml --check
check "clippy" clippy --all-targets --all-features
check "clippy, no features" clippy -p cinnamon-core -p cinnamon-signals --no-default-features
check "clippy, lab without RocksDB" clippy -p cinnamon-lab --no-default-features --all-targets
check "clippy, with RocksDB" clippy_rocks
check "rustdoc" rustdoc cargo.sh -p cinnamon-core -p cinnamon-signals --all-features
check "rustdoc, with RocksDB" rustdoc cargo-rocks.sh --release -p cinnamon-rocks -p cinnamon-lab

scripts=(tools/*.sh .ci/run)
for script in "${scripts[@]}"; do
    check "bash -n $script" bash -n "$script"
done
if command -v shellcheck >/dev/null; then
    check "shellcheck" shellcheck -x "${scripts[@]}"
else
    echo "--- shellcheck: SKIPPED, not installed"
fi
if tools/cargo.sh deny --version >/dev/null 2>&1; then
    check "licences, bans and sources" tools/cargo.sh deny --locked check --hide-inclusion-graph licenses bans sources
    check "advisories" advisories
else
    echo "--- licences, bans, sources, advisories: SKIPPED, cargo-deny is not installed ('cargo install --locked cargo-deny')"
fi

if [ "${#failed[@]}" -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}" >&2
    exit 1
fi
echo "lint: all checks passed"
