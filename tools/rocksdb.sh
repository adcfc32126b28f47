#!/usr/bin/env bash
# Compiles RocksDB once a machine and keeps the library.
#
# cargo runs librocksdb-sys's build script, 20 CPU-minutes of C++, whenever the profile, the target directory or the
# features of any of its build dependencies change. So it is compiled here once, copied to a place that depends only on
# what the library depends on, and linked from there by tools/cargo-rocks.sh. When it is there, this does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

version=$(rocksdb_version)
compiler=$(compiler_id)
features=$(rocksdb_features)
dir=$(rocksdb_lib_dir)

# ${1}: a finished library. Copied under another name first: an interrupted copy leaves nothing half done.
keep() {
    mkdir -p "$dir"
    local part="$dir/librocksdb.a.$$"
    # Now, not when it fires: `part` is gone by then.
    # shellcheck disable=SC2064
    trap "rm -f '$part'" EXIT
    cp "$1" "$part"
    mv "$part" "$dir/librocksdb.a"
    echo "RocksDB $version ($compiler) is kept at $dir"
}

# The compiler that wrote the objects of library ${1}, in the form of compiler_id; nothing where objects do not say.
compiled_by() {
    LC_ALL=C grep -a -o -m1 -E 'clang version [0-9]+|GCC: \([^)]*\) [0-9]+' "$1" |
        sed -n '1{s/^clang version /clang-/;s/^GCC: .* /gcc-/;p;}'
}

# Prints a finished library of this version, compiler and features that cargo has compiled before, if there is one.
# Whatever cannot be proved by what cargo left behind is passed over: that costs time, a wrong library costs more.
find_compiled() {
    local library said
    while IFS= read -r library; do
        said=${library%/out/librocksdb.a}/output
        # When a build script has succeeded cargo writes down what it said, dated with its start; a stamp of a later start
        # means that one is still running, or failed.
        if [ ! -f "$said" ] || [ "${said%/output}/invoked.timestamp" -nt "$said" ]; then continue; fi
        grep -q "^cargo:cargo_manifest_dir=.*librocksdb-sys-$version\$" "$said" || continue
        # Compiled from source, rather than linked from elsewhere with an older library left lying.
        grep -q '^cargo:rustc-link-search=native=.*/out$' "$said" || continue
        [ "$(compiled_by "$library")" = "$compiler" ] || continue
        [ "$(features_of "$library")" = "$features" ] || continue
        echo "$library"
        return
    done < <(ls -t "$CARGO_TARGET_DIR"/release/build/librocksdb-sys-*/out/librocksdb.a 2>/dev/null)
}

# The features that library ${1} was compiled with, in the form of rocksdb_features, told by a call that each one adds.
# The features that add none (jemalloc, lto and the like) are never told, so a build that wants one compiles anew.
features_of() {
    local pair
    for pair in bzip2=BZ2_bzCompress lz4=LZ4_compress snappy=snappy zlib=deflateInit zstd=ZSTD_compress; do
        if LC_ALL=C grep -a -q "${pair#*=}" "$1"; then echo "${pair%%=*}"; fi
    done | paste -s -d' ' -
}

if [ -f "$dir/librocksdb.a" ]; then
    exit 0
fi

library=$(find_compiled)
if [ -n "$library" ]; then
    keep "$library"
    exit 0
fi

echo "Compiling RocksDB $version with $compiler: once on this machine, and about 20 minutes on two cores."
unset ROCKSDB_LIB_DIR ROCKSDB_STATIC
status=0
said=$(cargo build --release --locked -p cinnamon-rocks --message-format=json-render-diagnostics) || status=$?
# Printed also when our own Rust, compiled after RocksDB, has an error.
out=$(printf '%s\n' "$said" |
    sed -n '/"reason":"build-script-executed"/{/librocksdb-sys[@#]/s/.*"out_dir":"\([^"]*\)".*/\1/p;}')
if [ -z "$out" ] || [ ! -f "$out/librocksdb.a" ]; then
    echo "RocksDB was not compiled" >&2
    exit "$((status == 0 ? 1 : status))"
fi
keep "$out/librocksdb.a"
