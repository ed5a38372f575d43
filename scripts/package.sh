#!/usr/bin/env bash
# Builds library and tool as they are released: for glibc 2.17, whatever this machine has. Checks what came out, runs
# programs on it, and leaves it in target/package/, with what belongs to them:
#
#   libgpucache.so, gpucache      side by side, so that the tool finds the library
#   include/, python/             for programs that ask the library
#   man/man1/                     a page for each command of the tool
#   completions/                  for bash, zsh and fish
#   docs/, README.md, …           what there is to read
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
# Whatever an earlier version left would be shipped, too.
rm -rf "$target/package"
mkdir -p "$target/package"
cp "$built" "$target/package/"
cargo zigbuild --quiet --release --bin gpucache --target "$triple.$GLIBC"
tool=$target/$triple/release/gpucache
scripts/check-exports.sh --tool "$tool"

# What the tests' programs do, with and without it, must be the same.
built=$target/package/libgpucache.so
scripts/smoke.sh "$built"

package=$(realpath "$target/package")
built=$package/libgpucache.so
cp -r "$tool" LICENSE-MIT LICENSE-APACHE README.md CHANGELOG.md docs include "$package/"
mkdir -p "$package/python" "$package/man/man1" "$package/completions"
cp python/gpucache.py "$package/python/"
"$package/gpucache" man --into "$package/man/man1"
"$package/gpucache" completions bash >"$package/completions/gpucache.bash"
"$package/gpucache" completions zsh >"$package/completions/_gpucache"
"$package/gpucache" completions fish >"$package/completions/gpucache.fish"

# As one who has unpacked it uses it.
fail() {
    echo "the package is not whole: $1" >&2
    exit 1
}
found=$("$package/gpucache" path)
[[ $found -ef $built ]] || fail "the tool finds $found, not the library beside it"
for command in $("$package/gpucache" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'); do
    [[ $command == help ]] && continue
    grep -q '^\.TH' "$package/man/man1/gpucache-$command.1" 2>/dev/null || fail "no manual page of $command"
    for script in "$package"/completions/*; do
        grep -q -- "$command" "$script" || fail "$script does not know $command"
    done
done
[[ $(find "$package/man/man1" -name '*.1' | wc -l) -ge 8 ]] || fail "manual pages are missing"
bash -n "$package/completions/gpucache.bash" || fail "the completion for bash is no script"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '%s\n' '#include <gpucache.h>' '#include <stdio.h>' \
    'int main(void) { printf("%d\n", GPUCACHE_AVAILABLE() ? 1 : 0); return 0; }' >"$work/ask.c"
compile() {
    "$@" -Wall -Werror -I "$package/include" -o "$work/ask" || fail "$1 does not compile gpucache.h"
    [[ $("$work/ask") == 0 ]] || fail "$1: a program without the library takes it to be there"
    [[ $(LD_PRELOAD=$built "$work/ask") == 1 ]] || fail "$1: a program on the library does not find it"
}
compile "${CC:-cc}" "$work/ask.c"
if command -v "${CXX:-c++}" >/dev/null; then
    cp "$work/ask.c" "$work/ask.cpp"
    compile "${CXX:-c++}" "$work/ask.cpp"
fi
for preload in "" "$built"; do
    answer=$(LD_PRELOAD=$preload PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$package/python python3 -c \
        'import gpucache; print(1 if gpucache.available() else 0)')
    [[ $answer == "${preload:+1}" || $answer$preload == 0 ]] || fail "gpucache.py says $answer with LD_PRELOAD=$preload"
done
echo "$built: $(stat -c %s "$built") bytes, for glibc $GLIBC and later; $(find "$package" -type f | wc -l) files in $package"
