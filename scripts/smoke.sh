#!/usr/bin/env bash
# Runs test programs on a build of the library other than the one that `cargo test` made, on the simulated GPU, with and
# without it: status and output must not differ, and it must have seen their allocations.
#
#   scripts/smoke.sh LIBRARY
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
library=$(realpath "${1:?a library}")
target=$(realpath "${CARGO_TARGET_DIR:-target}")
programs=$target/programs
if [[ ! -e $programs/stamp ]]; then
    # The harness builds the programs when the first test asks for one.
    cargo test --quiet --test routes >/dev/null
fi
unset LD_PRELOAD "${!GPUCACHE_@}" "${!SIMCUDA_@}" "${!PYTORCH_@}" 2>/dev/null || true
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

# try NAME ARGS…: compares, and demands a report with allocations in it.
try() {
    local program=$programs/bin/$1 without=0 with=0
    export LD_LIBRARY_PATH=$programs/lib
    "$program" "${@:2}" >"$folder/without" 2>/dev/null || without=$?
    rm -f "$folder/report"
    GPUCACHE_REPORT=$folder/report LD_PRELOAD=$library "$program" "${@:2}" >"$folder/with" 2>"$folder/stderr" || with=$?
    unset LD_LIBRARY_PATH
    if [[ $without != "$with" ]] || ! diff "$folder/without" "$folder/with"; then
        echo "smoke: $*: other than without the library (status $without, $with)"
        cat "$folder/stderr"
    elif ! grep -Eq '"alloc": *[1-9]' "$folder/report" 2>/dev/null; then
        echo "smoke: $*: no allocations in its report"
        cat "$folder/stderr"
    else
        return 0
    fi
    failed=1
}
for program in route_static route_static_11 route_shared route_shared_12 route_driver route_dlsym route_procaddr; do
    try "$program"
done
try train 20
for way in return _exit quick_exit; do
    try ends "$way"
done
# A process without CUDA: nothing on any stream.
if [[ $(LD_PRELOAD=$library bash -c 'echo out' 2>&1) != out ]]; then
    echo "smoke: a process without CUDA is not left alone"
    failed=1
fi
((failed == 0)) && echo "smoke: programs do the same with $1, and are seen by it"
exit "$failed"
