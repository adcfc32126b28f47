#!/usr/bin/env bash
# Measures the speed, prints the table, and writes docs/performance.md and docs/performance.json; needs no RocksDB, and
# a machine with nothing else to do. With arguments it runs one of the other benches, with criterion:
# tools/bench.sh shed
# tools/bench.sh admit -- 'cinnamon.*owned'
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

bench() { cargo bench --locked -p cinnamon-lab --no-default-features --bench "$@"; }

if [ "$#" -gt 0 ]; then
    bench "$@"
    exit
fi
# The locked versions of whom it is measured beside: "governor 0.10.4, tokio 1.54.1".
versions() {
    awk -F'"' -v wanted=" $* " '
        /^name = / { name = $2 }
        /^version = / && index(wanted, " " name " ") { print name " " $2 }
    ' Cargo.lock | paste -s -d, - | sed 's/,/, /g'
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Compiled first: nothing else is to run while times are measured.
bench speed --no-run
cargo build --release --locked -p cinnamon-lab --no-default-features --example footprint --example hot_path
cargo run --quiet --release --locked -p cinnamon-lab --no-default-features --example footprint >"$scratch/footprint"
# Its verdict is that of `make test`; here the counts are wanted either way.
tools/instructions.sh >"$scratch/instructions" || true
# (cargo runs a bench in the folder of its package.)
bench speed -- --markdown "$scratch/speed" --pool "$scratch/pool" --json "$PWD/docs/performance.json"

{
    echo "<!-- Written by tools/bench.sh ('make bench'). -->"
    printf '\n## Time\n\n'
    cat "$scratch/speed"
    printf '\nBeside: %s.\n' \
        "$(versions governor throttle-net tokio tower tower-resilience-adaptive)"
    cat "$scratch/pool"
    if [ -s "$scratch/instructions" ]; then
        printf '\n## Instructions\n\n'
        cat "$scratch/instructions"
    fi
    printf '\n## Memory\n\n'
    cat "$scratch/footprint"
} >docs/performance.md
echo "written: docs/performance.md, docs/performance.json"
