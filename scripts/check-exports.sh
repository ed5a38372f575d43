#!/usr/bin/env bash
# Looks at the built library as the dynamic linker of another machine will:
#   - it exports exactly the functions of the hook table, the runtime's three, dlsym, the process endings, and
#     those of include/gpucache.h;
#   - it needs no CUDA library, so that it loads where there is none;
#   - it needs nothing private of glibc, and says which version it needs at least;
#   - nothing of what only the command-line tool depends on is in it.
# And at the tool: nothing of the library's exports, constructor or layers with unsafe code is in it.
#
#   scripts/check-exports.sh LIBRARY [HIGHEST_GLIBC]   for example: target/release/libgpucache.so 2.17
#   scripts/check-exports.sh --tool TOOL               for example: target/release/gpucache
#   scripts/check-exports.sh --self-test LIBRARY TOOL  demands that wrong ones are refused
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
    echo "$1" >&2
    exit 1
}
command -v readelf >/dev/null || fail "readelf is missing; it comes with binutils"

expected() {
    # Rows of the table: `    cuMemAlloc_v2 ["cuMemAlloc" @ 3020 legacy] (…`
    sed -nE 's/^ +(cu[A-Za-z0-9_]+) \[".*/\1/p' src/abi/table.rs
    sed -nE 's/^GPUCACHE_WEAK [^(]*[ *](gpucache_[a-z_]+)\(.*/\1/p' include/gpucache.h
    printf '%s\n' cudaMalloc cudaFree cudaMemGetInfo dlsym _exit _Exit
}

exported() {
    readelf --wide --dyn-syms "$1" |
        awk '$7 != "UND" && ($5 == "GLOBAL" || $5 == "WEAK") && $8 != "" && $4 != "SECTION" { sub(/@.*/, "", $8); print $8 }'
}

# Packages of the tool that leave their names in whatever links them (object and rustc-demangle are in the standard library, too).
TOOL_ONLY='clap_builder|clap_complete|clap_mangen|cpp_demangle|askama|crossterm|ratatui|signal_hook|rustix'

check() {
    local library=$1 limit=$2 difference needed highest
    [[ -e $library ]] || fail "$library: no such file"
    difference=$(diff <(expected | sort -u) <(exported "$library" | sort -u) | grep '^[<>]' || true)
    if [[ -n $difference ]]; then
        echo "$library: exports differ (< missing, > not expected):" >&2
        echo "$difference" >&2
        return 1
    fi
    needed=$(readelf --wide --dynamic "$library" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')
    if grep -Eiq '^lib(cu|nv)' <<<"$needed"; then
        echo "$library: needs $(tr '\n' ' ' <<<"$needed")" >&2
        return 1
    fi
    if readelf --wide --syms "$library" | grep -Eq "$TOOL_ONLY"; then
        echo "$library: has in it what only the tool may depend on:" >&2
        readelf --wide --syms "$library" | grep -Eo "$TOOL_ONLY" | sort | uniq -c >&2
        return 1
    fi
    local versions thread_local
    thread_local=$(readelf --wide --program-headers "$library" | awk '$1 == "TLS" { print $6 }')
    if [[ -n $thread_local && $((thread_local)) -gt 1024 ]]; then
        echo "$library: $((thread_local)) bytes of thread-local storage, more than 1024: loaded late, it may find no room" >&2
        return 1
    fi
    versions=$(readelf --wide --version-info "$library" | grep -oE 'GLIBC_(PRIVATE|[0-9.]+)' | sort -u)
    if grep -q PRIVATE <<<"$versions"; then
        echo "$library: uses GLIBC_PRIVATE" >&2
        return 1
    fi
    highest=$(sort -V <<<"${versions//GLIBC_/}" | tail -1)
    if [[ -n $limit && $(printf '%s\n' "$highest" "$limit" | sort -V | tail -1) != "$limit" ]]; then
        echo "$library: needs glibc $highest, more than $limit:" >&2
        readelf --wide --dyn-syms "$library" | grep "@GLIBC_$highest" | awk '{ print "  " $8 }' >&2
        return 1
    fi
    echo "$library: $(expected | sort -u | wc -l) exports as listed; needs glibc $highest and $(tr '\n' ' ' <<<"$needed")"
}

# Crate and module stand in a symbol with their lengths before them.
LIBRARY_ONLY='8gpucache(3abi|4life|6driver|4pool)'

check_tool() {
    local tool=$1 symbols interposed
    [[ -e $tool ]] || fail "$tool: no such file"
    symbols=$(readelf --wide --syms "$tool")
    # A tool without symbols would pass whatever is in it.
    if ! grep -q '8gpucache' <<<"$symbols"; then
        echo "$tool: has no symbols to look at" >&2
        return 1
    fi
    interposed=$(awk '$5 == "GLOBAL" && $7 != "UND" { sub(/@.*/, "", $8); print $8 }' <<<"$symbols" |
        sort -u | comm -12 - <(expected | sort -u))
    if [[ -n $interposed ]]; then
        echo "$tool: defines what the library interposes: $(tr '\n' ' ' <<<"$interposed")" >&2
        return 1
    fi
    if grep -Eq "$LIBRARY_ONLY" <<<"$symbols"; then
        echo "$tool: the library is linked into it; see src/bin/gpucache/main.rs" >&2
        return 1
    fi
    echo "$tool: nothing of the library's exports, constructor or unsafe layers is in it"
}

self_test() {
    local library=$1 tool=$2 folder failed=0
    folder=$(mktemp -d)
    # A library with one export too few and one too many, a CUDA library among its needs.
    expected | sed 's/^\(.*\)$/void \1(void) {}/' >"$folder/all.c"
    echo 'void surplus(void) {}' >"$folder/surplus.c"
    echo 'void needed(void) {}' >"$folder/cuda.c"
    echo 'void _ZN12clap_builder5parse17h0E(void) {}' >"$folder/clap.c"
    echo 'void *dlsym(void) { return 0; } void _ZN8gpucache6policy1f17h0E(void) {} int main(void) { return 0; }' >"$folder/own.c"
    echo 'void _ZN8gpucache4life7process6loaded17h0E(void) {} int main(void) { return 0; }' >"$folder/linked.c"
    { echo '{ global:'; expected | sed 's/$/;/'; echo 'local: *; };'; } >"$folder/exports.map"
    local cc=(cc -shared -fPIC -ffreestanding -w)
    "${cc[@]}" -o "$folder/libcuda.so.1" -Wl,-soname,libcuda.so.1 "$folder/cuda.c"
    "${cc[@]}" -o "$folder/good.so" "$folder/all.c"
    "${cc[@]}" -o "$folder/surplus.so" "$folder/all.c" "$folder/surplus.c"
    grep -v cudaFree "$folder/all.c" >"$folder/few.c"
    "${cc[@]}" -o "$folder/few.so" "$folder/few.c"
    "${cc[@]}" -o "$folder/clap.so" "$folder/all.c" "$folder/clap.c" -Wl,--version-script="$folder/exports.map"
    cc -w -fno-builtin -o "$folder/own" "$folder/own.c"
    cc -w -o "$folder/linked" "$folder/linked.c"
    cc -w -s -o "$folder/stripped" "$folder/linked.c"
    "${cc[@]}" -o "$folder/needs.so" "$folder/all.c" -Wl,--no-as-needed "$folder/libcuda.so.1"
    refuse() {
        if "${check:-check}" "$2" "${3:-}" >/dev/null 2>&1; then
            echo "self-test: not refused: $1"
            failed=1
        else
            echo "self-test: refused: $1"
        fi
    }
    if ! check "$folder/good.so" ""; then
        echo "self-test: a good library was refused"
        failed=1
    fi
    refuse 'an export too many' "$folder/surplus.so"
    refuse 'an export too few' "$folder/few.so"
    refuse 'a CUDA library among its needs' "$folder/needs.so"
    refuse 'a newer glibc than allowed' "$library" 2.0
    refuse 'a package of the tool in the library' "$folder/clap.so"
    local check=check_tool
    refuse 'a tool with a dlsym of its own' "$folder/own"
    refuse "a tool with the library's code" "$folder/linked"
    refuse 'a tool that hides what is in it' "$folder/stripped"
    if ! check_tool "$tool"; then
        echo "self-test: a good tool was refused"
        failed=1
    fi
    rm -rf "$folder"
    return "$failed"
}

case ${1:-} in
    --self-test) self_test "${2:?a library}" "${3:?a tool}" ;;
    --tool) check_tool "${2:?a tool}" ;;
    *) check "${1:?a library}" "${2:-}" ;;
esac
