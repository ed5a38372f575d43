#!/usr/bin/env bash
# Builds library and tool as they are released: for glibc 2.17, whatever this machine has. Checks what came out, runs
# programs on it, and leaves it in target/package/.
#
# The linker and the old C library come from zig, through cargo-zigbuild; both are installed from PyPI into a virtual
# environment under target/.
#
#   scripts/package.sh            builds, checks, runs
#   scripts/package.sh --can-run  only says whether this machine can, or what is missing
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."

GLIBC=2.17
target=${CARGO_TARGET_DIR:-target}
venv=$target/tools/zig
triple=$(rustc -vV | sed -n 's/^host: //p')

missing() {
    echo "the released build was not made: $1"
    exit 1
}
ready() { [[ -x $venv/bin/cargo-zigbuild ]] && "$venv/bin/python" -c 'import ziglang' 2>/dev/null; }

[[ $triple == *-linux-gnu ]] || missing "this is $triple, not Linux with glibc"
if ! ready; then
    command -v python3 >/dev/null || missing "python3 is missing (it brings cargo-zigbuild and zig)"
    python3 -c 'import venv, ensurepip' 2>/dev/null || missing "python3 has no venv or pip (package python3-venv)"
    mkdir -p "$target/tools"
    log=$target/tools/zig.log
    { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet 'cargo-zigbuild>=0.20,<1' 'ziglang>=0.13,<1'; } \
        >"$log" 2>&1 || missing "cargo-zigbuild and ziglang could not be installed from PyPI, see $log"
    ready || missing "cargo-zigbuild does not start, see $log"
fi
[[ ${1:-} == --can-run ]] && exit 0

PATH="$PWD/$venv/bin:$PATH"
[[ $venv == /* ]] && PATH="$venv/bin:$PATH"
# The library by itself first: what it is made of is then what cargo resolves for it alone.
cargo zigbuild --quiet --release --lib --no-default-features --features exports --target "$triple.$GLIBC"
built=$target/$triple/release/libgpucache.so
scripts/check-exports.sh "$built" "$GLIBC"
mkdir -p "$target/package"
cp "$built" "$target/package/"
cargo zigbuild --quiet --release --bin gpucache --target "$triple.$GLIBC"
tool=$target/$triple/release/gpucache
scripts/check-exports.sh --tool "$tool"

# What the tests' programs do, with and without it, must be the same.
built=$target/package/libgpucache.so
scripts/smoke.sh "$built"

cp "$tool" LICENSE-MIT LICENSE-APACHE README.md CHANGELOG.md "$target/package/"
found=$("$target/package/gpucache" path)
[[ $found -ef $built ]] || { echo "the tool finds $found, not the library beside it"; exit 1; }
"$target/package/gpucache" man --into "$target/package"
echo "$built: $(stat -c %s "$built") bytes, for glibc $GLIBC and later"
