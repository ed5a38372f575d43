#!/usr/bin/env bash
# Holds the source to the rules that the compiler does not know:
#   - a layer of src/ uses only itself and the layers below it;
#   - `unsafe` appears only where it is allowed;
#   - the tool compiles no more of the library than the layers without unsafe code, and does not link it;
#   - no file is so long that it hides two subjects.
#
#   scripts/check-layers.sh [ROOT]       checks a source tree (default: this one)
#   scripts/check-layers.sh --self-test  plants violations in copies and demands that each is found
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

LAYERS=(abi life driver pool policy stats report sync) # top to bottom; a layer is a folder or a file of src/
TOOL=src/bin/gpucache
TOOL_SHARES='^(policy/mod|report/mod|stats/mod|sync)\.rs$'
UNSAFE_ALLOWED='^src/(abi/|life/|driver/real(\.rs$|/))'
MAX_LINES=450

# A source file without comments and the contents of strings, each line after its number.
code_of() {
    awk '{
        gsub(/\\\\/, ""); gsub(/\\"/, "");
        gsub(/"[^"]*"/, "\"\"");
        sub(/\/\/.*/, "");
        print FNR ": " $0
    }' "$1"
}

rank_of() {
    local i
    for i in "${!LAYERS[@]}"; do
        if [[ ${LAYERS[$i]} == "$1" ]]; then
            echo "$i"
            return
        fi
    done
    echo none
}

check() {
    local root=$1 bad=0 files=0 file layer code line used mine theirs
    complain() {
        echo "$1"
        bad=1
    }
    while IFS= read -r file; do
        files=$((files + 1))
        code=$(code_of "$root/$file")
        if [[ ! $file =~ $UNSAFE_ALLOWED ]]; then
            while IFS= read -r line; do
                complain "$file:${line%%:*}: unsafe is not allowed here"
            done < <(grep -w unsafe <<<"$code" || true)
        fi
        [[ $file != src/lib.rs ]] || continue
        if [[ $file == "$TOOL"/* ]]; then
            # Naming the crate links it, exports and constructor with it.
            while IFS= read -r line; do
                complain "$file:${line%%:*}: the tool must not name the crate gpucache"
            done < <(grep -E '(^|[^a-z_:])gpucache::|extern crate' <<<"$code" || true)
            while IFS= read -r used; do
                [[ $used =~ $TOOL_SHARES ]] || complain "$file: the tool must not compile src/$used"
            done < <(sed -nE 's|^ *#\[path = "../../(.*)"\]|\1|p' "$root/$file")
            continue
        fi
        layer=${file#src/}
        layer=${layer%%/*}
        layer=${layer%.rs}
        mine=$(rank_of "$layer")
        if [[ $mine == none ]]; then
            complain "$file: src/$layer is in no layer; give it a place in $0"
            continue
        fi
        while IFS=: read -r line used; do
            if [[ $used == '{' ]]; then
                complain "$file:$line: write one \`use crate::LAYER\` for each layer"
                continue
            fi
            theirs=$(rank_of "$used")
            if [[ $theirs == none ]]; then
                complain "$file:$line: crate::$used is in no layer"
            elif ((theirs < mine)); then
                complain "$file:$line: $layer uses $used, which lies above it"
            fi
        done < <(awk '{
            number = $1; rest = $0
            while (match(rest, /crate::([a-z_0-9]+|[{])/)) {
                print number substr(rest, RSTART + 7, RLENGTH - 7)
                rest = substr(rest, RSTART + RLENGTH)
            }
        }' <<<"$code")
    done < <(cd "$root" && find src -name '*.rs' | sort)
    if [[ -e $root/$TOOL/main.rs ]] && ! grep -q '^#!\[deny(unsafe_code)\]' "$root/$TOOL/main.rs"; then
        complain "$TOOL/main.rs: does not deny unsafe_code"
    fi
    while IFS= read -r file; do
        line=$(wc -l <"$root/$file")
        ((line <= MAX_LINES)) || complain "$file: $line lines, more than $MAX_LINES"
    done < <(cd "$root" && find src tests -path tests/simcuda/target -prune -o \
        \( -name '*.rs' -o -name '*.c' -o -name '*.h' -o -name '*.py' -o -name '*.cu' \) -print | sort)
    ((files > 0)) || complain "$root: no source found"
    return "$bad"
}

# Plants one violation in a copy of the source, and demands that the check names it.
plant() {
    local what=$1 file=$2 text=$3 expected=$4 copy output
    copy=$(mktemp -d)
    cp -r "$here/src" "$here/tests" "$copy/"
    mkdir -p "$(dirname "$copy/$file")"
    printf '%b' "$text" >>"$copy/$file"
    if output=$(check "$copy"); then
        echo "self-test: not found: $what"
        failed=1
    elif ! grep -qF -- "$expected" <<<"$output"; then
        printf 'self-test: %s: found something else:\n%s\n' "$what" "$output"
        failed=1
    else
        echo "self-test: found: $what"
    fi
    rm -rf "$copy"
}

if [[ ${1:-} == --self-test ]]; then
    failed=0
    plant 'a use of a layer above' src/pool/heap.rs 'use crate::driver::Gpu;\n' 'pool uses driver'
    plant 'a path to a layer above' src/report/units.rs 'fn f() { crate::stats::x() }\n' 'report uses stats'
    plant 'a grouped use' src/stats/kind.rs 'use crate::{abi, report};\n' 'for each layer'
    plant 'unsafe in a safe layer' src/policy/gc.rs 'fn f() { unsafe { g() } }\n' 'src/policy/gc.rs'
    plant 'unsafe in the pure part of driver' src/driver/gate.rs 'unsafe fn f() {}\n' 'src/driver/gate.rs'
    plant 'a folder without a layer' src/misc/mod.rs '//! Misc.\n' 'src/misc is in no layer'
    plant 'unsafe in the tool' src/bin/gpucache/load.rs 'fn f() { unsafe { g() } }\n' 'src/bin/gpucache/load.rs'
    plant 'the crate named in the tool' src/bin/gpucache/load.rs 'use gpucache::report;\n' 'must not name the crate'
    plant 'an unsafe layer in the tool' src/bin/gpucache/main.rs '#[path = "../../life/mod.rs"]\nmod life;\n' 'compile src/life'
    plant 'a long file' tests/long.rs "$(printf '%0.s//\\n' {1..500})" 'tests/long.rs: 500 lines'
    exit "$failed"
fi

if check "${1:-$here}"; then
    echo "layers, unsafe and file lengths are as they should be"
else
    exit 1
fi
