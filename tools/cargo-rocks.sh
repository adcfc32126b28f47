#!/usr/bin/env bash
# cargo for the packages that need RocksDB, linked with the library that tools/rocksdb.sh keeps:
# tools/cargo-rocks.sh test --release -p cinnamon-rocks
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

dir=$(rocksdb_lib_dir)
if [ ! -f "$dir/librocksdb.a" ]; then
    echo "no compiled RocksDB at $dir: run 'make rocksdb'" >&2
    exit 1
fi
# An environment that asks for a build from source would win over the directory.
unset ROCKSDB_COMPILE
export ROCKSDB_LIB_DIR="$dir" ROCKSDB_STATIC=1
exec cargo "$@"
