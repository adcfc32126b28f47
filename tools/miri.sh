#!/usr/bin/env bash
# The core's unit tests under Miri, which sees undefined behaviour, data races and leaks in whatever they run, dependencies
# too. Miri takes some thousand times as long as a processor: simulations, and tests that feed an estimator for seconds of
# load, are left out; integration tests too. What is left takes about half an hour.
#
# tools/miri.sh             all of them
# tools/miri.sh queue       those whose name contains this
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

missing() {
    cat >&2 <<EOF
miri: $1.
It is a component of nightly Rust, and wants the source of the standard library:
  rustup toolchain install nightly
  rustup component add --toolchain nightly miri rust-src
EOF
    exit 1
}
cargo +nightly --version >/dev/null 2>&1 || missing "there is no nightly Rust"
cargo +nightly miri --version >/dev/null 2>&1 || missing "nightly Rust has no Miri"
[ -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ] || missing "nightly Rust has no source (rust-src)"

# Modules without simulations, by the beginning of their tests' names.
modules=(clock codel config control event explain gate histogram overrides pid priority queue request retry seat sentinel service shards slots
    tenants verdict wheel engine::shares limiter::tests)
filters=("${modules[@]/%/::}")
if [ "$#" -gt 0 ]; then filters=("$@"); fi

# A few cases of what is drawn at random.
export PROPTEST_CASES="${PROPTEST_CASES:-4}"
# Files and the time of day are read by some tests: of the world, not of Miri's own.
export MIRIFLAGS="${MIRIFLAGS:--Zmiri-disable-isolation}"
export CARGO_TARGET_DIR="$CARGO_TARGET_DIR/miri"
cargo +nightly miri test --locked -p cinnamon-core --all-features --lib -- "${filters[@]}"
