# shellcheck shell=bash
# Sourced by the scripts beside it, from the root of the checkout. One place says where things are built and with what;
# whatever is already set in the environment wins.

cinnamon_cache="${XDG_CACHE_HOME:-${HOME:-$(cd ~ && pwd)}/.cache}/cinnamon"

# Outside the checkout, so that every clone on a machine shares the compiled dependencies.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$cinnamon_cache/target}"

# rustup installs here, and a shell that has not read its profile does not know it.
if ! command -v cargo >/dev/null && [ -x "${CARGO_HOME:-${HOME:-}/.cargo}/bin/cargo" ]; then
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    export PATH
fi

# What tools/setup.sh fetches for this project only.
export PATH="$PATH:$cinnamon_cache/bin"

# clang compiles RocksDB faster than g++ does, and bindgen needs its library anyway.
if [ -z "${CC:-}${CXX:-}" ] && command -v clang >/dev/null && command -v clang++ >/dev/null; then
    export CC=clang CXX=clang++
fi

# The C++ compiler's family and major version: clang-14, gcc-12.
compiler_id() {
    local version family=gcc
    # Unquoted: CXX may hold a launcher too, as in "ccache clang++".
    # shellcheck disable=SC2086
    version=$(${CXX:-c++} --version 2>/dev/null) || return 1
    case $version in *clang*) family=clang ;; esac
    # shellcheck disable=SC2086
    version=$(${CXX:-c++} -dumpversion) || return 1
    echo "$family-${version%%.*}"
}

# The locked version of librocksdb-sys, which names RocksDB's own after the plus sign: 0.19.0+11.8.1.
rocksdb_version() {
    awk -F'"' '$0 == "name = \"librocksdb-sys\"" { getline; print $2; found = 1; exit } END { exit !found }' Cargo.lock
}

# The features that Cargo.toml asks of rocksdb, sorted, less those that do not reach the C++: "lz4", "lz4 zstd".
rocksdb_features() {
    sed -n 's/^rocksdb = .*features = \[\([^]]*\)\].*/\1/p' Cargo.toml |
        tr -d '" ' | tr ',' '\n' | sed '/^bindgen-/d' | sort | paste -s -d' ' -
}

# Where the finished library is kept: one for each version, compiler and set of features.
rocksdb_lib_dir() {
    local version compiler features
    version=$(rocksdb_version) || { echo "Cargo.lock names no librocksdb-sys" >&2; return 1; }
    compiler=$(compiler_id) || { echo "no C++ compiler: run 'make setup'" >&2; return 1; }
    features=$(rocksdb_features)
    echo "$cinnamon_cache/rocksdb/$version-$compiler${features:+-${features// /-}}"
}
