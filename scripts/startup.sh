#!/usr/bin/env bash
# What the library costs a process that does not use CUDA: the median time of /bin/true without and with it, in ms.
#
#   scripts/startup.sh [RUNS]    default 300; with the library at target/release, built if it is missing
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
runs=${1:-300}
[[ $runs =~ ^[1-9][0-9]*$ ]] || { echo "startup.sh: RUNS is a number, not '$runs'" >&2; exit 2; }
library=${CARGO_TARGET_DIR:-$PWD/target}/release/libgpucache.so
[[ -e $library ]] || cargo build --quiet --release --lib --no-default-features --features exports

# once [VAR=VALUE]: microseconds of one run
once() {
    local begin=${EPOCHREALTIME/[.,]/}
    env "$@" /bin/true
    echo $((${EPOCHREALTIME/[.,]/} - begin))
}
median() { sort -n | awk '{ a[NR] = $1 } END { printf "%.3f", a[int((NR + 1) / 2)] / 1000 }'; }

without=() with=()
for ((i = 0; i < runs; i++)); do # in turn, so that a busy moment of the machine meets both
    without+=("$(once UNUSED=1)")
    with+=("$(once LD_PRELOAD="$library")")
done
before=$(printf '%s\n' "${without[@]}" | median) after=$(printf '%s\n' "${with[@]}" | median)
echo "/bin/true, median of $runs: $before ms without, $after ms with, $(awk "BEGIN { printf \"%.3f\", $after - $before }") ms more"
