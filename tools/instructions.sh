#!/usr/bin/env bash
# Counts the instructions of the hottest paths, and fails when one needs more than its ceiling. Instructions do not
# depend on who else uses the machine, so this can run where times cannot be measured.
#
# tools/instructions.sh             counts and checks; prints a table in Markdown
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

# path, ceiling, what it is. The ceilings are some 10 % above the count when they were last set: a compiler may move it
# by that much, a change of ours must not. Lower them when the count falls.
paths=(
    "admit 545 cinnamon admit+finish uncontended"
    "owned 560 cinnamon admit+finish owned"
    "shed 275 cinnamon shed"
)
# Of the path as often, and twice as often: the difference is without the start of the program. Often enough that what
# happens now and then (a list grows) is spread over many.
times=20000

if ! command -v valgrind >/dev/null; then
    echo "instructions: SKIPPED, valgrind is not installed ('make setup' installs it where there is apt-get)" >&2
    exit 0
fi
cargo build --quiet --release --locked -p cinnamon-lab --no-default-features --example hot_path
program=$CARGO_TARGET_DIR/release/examples/hot_path
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Instructions and atomic operations of ${1} done ${2} times.
count() {
    if ! valgrind --tool=callgrind --collect-bus=yes --callgrind-out-file="$scratch/out" "$program" "$1" "$2" \
        >"$scratch/said" 2>&1; then
        cat "$scratch/said" >&2
        return 1
    fi
    awk '/^(summary|totals):/ { print $2, $3 + 0; exit }' "$scratch/out"
}

status=0
printf '| path | instructions | ceiling | atomic read-modify-writes |\n|---|--:|--:|--:|\n'
for path in "${paths[@]}"; do
    read -r name ceiling what <<<"$path"
    once=$(count "$name" "$times")
    twice=$(count "$name" "$((2 * times))")
    read -r instructions atomics <<<"$(awk -v times="$times" -v a="$once" -v b="$twice" 'BEGIN {
        split(a, once); split(b, twice)
        printf "%.0f %.1f", (twice[1] - once[1]) / times, (twice[2] - once[2]) / times
    }')"
    printf '| %s | %s | %s | %s |\n' "$what" "$instructions" "$ceiling" "$atomics"
    if [ "$instructions" -gt "$ceiling" ]; then
        echo "instructions: $what takes $instructions, more than the $ceiling it may" >&2
        status=1
    fi
done
exit "$status"
