#!/usr/bin/env bash
# Runs the benchmarks; arguments go to cargo bench.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! compgen -G 'benches/benches/*.rs' >/dev/null; then
    echo "There are no benchmarks yet: none was run, nothing was measured."
    exit 0
fi
tools/setup.sh
tools/rocksdb.sh
exec tools/cargo-rocks.sh bench --locked -p cinnamon-lab "$@"
