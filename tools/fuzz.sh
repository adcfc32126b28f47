#!/usr/bin/env bash
# Feeds what operators write (configurations, override files, the lab's scenario files) to the parsers, mutated, and
# fails on the first text that breaks a promise. Stable Rust and a C++ compiler are enough: the instrumentation is the
# compiler's own, and our code has no unsafe part that would need a sanitizer.
#
# tools/fuzz.sh             every target for CINNAMON_FUZZ_SECONDS seconds (60)
# tools/fuzz.sh config      this target only
#
# What is found is kept in fuzz/artifacts/TARGET; put it into fuzz/corpus/TARGET once it is fixed. With
# CINNAMON_FUZZ_KEEP=1 the inputs that reach new code are kept beside the corpus, minimised, in the build folder.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

seconds=${CINNAMON_FUZZ_SECONDS:-60}
targets=("$@")
if [ "${#targets[@]}" -eq 0 ]; then targets=(config overrides scenario); fi

host=$(rustc -vV | sed -n 's/^host: //p')
built=$CARGO_TARGET_DIR/fuzz
# As cargo-fuzz sets them. With --target they do not reach build scripts and procedural macros.
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing"
if [ "$(uname)" = Linux ]; then flags="$flags -Cllvm-args=-sanitizer-coverage-stack-depth"; fi
RUSTFLAGS=$(echo "$flags" | tr -s ' \n' ' ') cargo build --release --locked --manifest-path fuzz/Cargo.toml \
    --target "$host" --target-dir "$built"

for target in "${targets[@]}"; do
    echo "--- $target: $seconds s"
    work=$built/corpus/$target
    mkdir -p "$work" "fuzz/artifacts/$target"
    options=(-max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1
        -artifact_prefix="fuzz/artifacts/$target/")
    if [ -f "fuzz/$target.dict" ]; then options+=(-dict="fuzz/$target.dict"); fi
    "$built/$host/release/$target" "${options[@]}" "$work" "fuzz/corpus/$target"
    if [ -n "${CINNAMON_FUZZ_KEEP:-}" ]; then
        mkdir -p "$built/minimised/$target"
        "$built/$host/release/$target" -merge=1 "$built/minimised/$target" "fuzz/corpus/$target" "$work"
    fi
done
echo "fuzz: nothing found"
