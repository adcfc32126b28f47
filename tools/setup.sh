#!/usr/bin/env bash
# Makes a machine ready to build everything: checks for cargo, a C++ compiler and libclang, and installs what a package
# manager can install. Asks nothing; does nothing, and quickly, when all is there.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

have() { command -v "$1" >/dev/null; }

# True if a file matches one of the patterns.
any_file() {
    local pattern
    for pattern in "$@"; do
        if compgen -G "$pattern" >/dev/null; then return 0; fi
    done
    return 1
}

have_linker() { have cc || have gcc; }

have_cxx() { compiler_id >/dev/null; }

# bindgen loads libclang at run time, and libclang needs its own headers (stddef.h) beside it.
have_libclang() { find_libclang && find_clang_headers; }

find_libclang() {
    local dir config
    if [ -n "${LIBCLANG_PATH:-}" ]; then
        # Set: bindgen looks nowhere else.
        [ -f "$LIBCLANG_PATH" ] || any_file "$LIBCLANG_PATH"/libclang*.{so*,dylib}
        return
    fi
    for config in llvm-config "${LLVM_CONFIG_PATH:-llvm-config}"; do
        if dir=$("$config" --libdir 2>/dev/null) && any_file "$dir"/libclang{,-*}.{so*,dylib}; then return 0; fi
    done
    for config in ldconfig /sbin/ldconfig; do
        if "$config" -p 2>/dev/null | grep -E 'libclang(-[0-9.]+)?\.so' >/dev/null; then return 0; fi
    done
    any_file /usr/lib/llvm-*/lib/libclang{,-*}.so* /usr/lib{,64}/libclang{,-*}.so* /usr/lib/*-linux-*/libclang{,-*}.so* \
        /usr/lib64/llvm*/lib{,64}/libclang.so* /usr/local/llvm*/lib/libclang.so* \
        /Library/Developer/CommandLineTools/usr/lib/libclang.dylib {/opt/homebrew,/usr/local}/opt/llvm/lib/libclang.dylib
}

find_clang_headers() {
    have clang && [ -f "$(clang -print-resource-dir 2>/dev/null)/include/stddef.h" ] && return
    any_file /usr/lib{,64}/{llvm-*/lib/,}clang/*/include/stddef.h \
        {/opt/homebrew,/usr/local}/opt/llvm/lib/clang/*/include/stddef.h
}

missing() {
    have_linker || echo "a C compiler"
    have_cxx || echo "a C++ compiler"
    have_libclang || echo "libclang"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif ! have sudo; then
        echo "not root, and no sudo to become it" >&2
        return 1
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}

install_missing() {
    if have apt-get; then
        local packages=(clang libclang-dev)
        have_linker || packages+=(gcc)
        as_root apt-get update -q </dev/null &&
            as_root env DEBIAN_FRONTEND=noninteractive \
                apt-get install -y -q --no-install-recommends "${packages[@]}" </dev/null
    elif have dnf; then
        as_root dnf install -y clang clang-devel </dev/null
    elif have brew; then
        brew install llvm </dev/null
    else
        echo "no apt-get, dnf or brew here" >&2
        return 1
    fi
}

# promtool evaluates alert rules. Debian has it only in the package of the whole server, which would be started: so the
# one program is taken out of the package. Nothing else needs it, and without it only tools/alerts.sh is skipped.
fetch_promtool() {
    local folder status=0
    have apt-get && have dpkg-deb && folder=$(mktemp -d) || return 1
    (
        cd "$folder" &&
            download_prometheus &&
            dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool &&
            mkdir -p "$cinnamon_cache/bin" &&
            mv usr/bin/promtool "$cinnamon_cache/bin/promtool"
    ) || status=$?
    rm -rf "$folder"
    return "$status"
}

# The lists of packages may be missing, or too old to name what there is.
download_prometheus() {
    apt-get download -q prometheus </dev/null 2>/dev/null ||
        { as_root apt-get update -q </dev/null && apt-get download -q prometheus </dev/null; }
}

# valgrind counts instructions for tools/instructions.sh, which is skipped without it. It wants the symbols of the C
# library, where that is stripped.
fetch_valgrind() {
    have apt-get || return 1
    install_valgrind || { as_root apt-get update -q </dev/null && install_valgrind; }
}

install_valgrind() {
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends valgrind libc6-dbg </dev/null
}

lines() { paste -s -d, - | sed 's/,/, /g'; }

if ! have cargo; then
    cat >&2 <<'EOF'
cargo is missing. Install Rust (stable) with rustup, as https://rustup.rs describes, open a new shell and run this again.
EOF
    exit 1
fi
for component in fmt clippy; do
    if cargo "$component" --version >/dev/null 2>&1; then continue; fi
    name=${component/fmt/rustfmt}
    if ! have rustup || ! rustup component add "$name"; then
        echo "cargo $component is missing: install $name beside cargo ('rustup component add $name')" >&2
        exit 1
    fi
done

if ! have promtool; then
    echo "setup: fetching promtool"
    if ! fetch_promtool; then
        echo "setup: no promtool; alerts will not be tested (it comes with Prometheus)" >&2
    fi
fi

if ! have valgrind; then
    echo "setup: installing valgrind"
    if ! fetch_valgrind; then
        echo "setup: no valgrind; the instructions of the hottest paths will not be counted" >&2
    fi
fi

if [ -z "$(missing)" ]; then
    echo "setup: all there ($(cargo --version | cut -d' ' -f1-2), $(compiler_id), libclang)"
    exit 0
fi
echo "setup: installing $(missing | lines)"
install_missing || true
# What was just installed may be the better compiler.
. tools/env.sh
if [ -n "$(missing)" ]; then
    cat >&2 <<EOF
Still missing: $(missing | lines). Install it by hand and run this again:
  Debian, Ubuntu   apt-get install clang libclang-dev gcc
  Fedora           dnf install clang clang-devel
  macOS            xcode-select --install; brew install llvm
  elsewhere        clang with its C++ compiler, its headers and libclang; LIBCLANG_PATH names libclang's directory
EOF
    exit 1
fi
echo "setup: ready"
