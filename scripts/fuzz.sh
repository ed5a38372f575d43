#!/usr/bin/env bash
# Fuzzes the pool for as long as you like: random programs, guided towards code that they have not reached yet, with every
# invariant checked after each action and the address sanitizer underneath. What the actions are is in src/pool/model.rs
# (the heap against a naive one) and src/driver/world.rs (two contexts on a model device: segments or ranges, captures, resets, failing driver
# calls, other allocators, a cap). Needs nightly Rust and cargo-fuzz; no GPU.
#
#   scripts/fuzz.sh [SECONDS] [TARGET…]   default: 60 seconds for each of: heap driver
#   scripts/fuzz.sh --can-run             only says whether this machine can, or what is missing
#
# What was found on the way stays in fuzz/corpus/ and is where the next run begins. A failure leaves its input in
# fuzz/artifacts/TARGET/ and says how to run it again: cargo +nightly fuzz run TARGET INPUT. The released library knows
# nothing of all this: it is compiled under cfg(fuzzing) and cfg(test) only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
PATH="$target/tools/bin:$PATH"

missing() {
    echo "not fuzzed: $1"
    exit 1
}
cargo +nightly --version >/dev/null 2>&1 || missing "nightly Rust is not installed: rustup toolchain install nightly"
command -v cargo-fuzz >/dev/null || missing "cargo-fuzz is not installed: cargo install --locked cargo-fuzz"
[[ ${1:-} != --can-run ]] || exit 0

seconds=${1:-60}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "fuzz.sh: SECONDS is a number, not '$seconds'" >&2; exit 2; }
targets=("${@:2}")
((${#targets[@]})) || targets=(heap driver)
for name in "${targets[@]}"; do
    mkdir -p "fuzz/corpus/$name"
    log=$target/fuzz-$name.log
    # Without the leak check: what lasts for ever in the library is left behind on purpose.
    if ! ASAN_OPTIONS=detect_leaks=0 cargo +nightly fuzz run --target-dir "$target/fuzz" "$name" "fuzz/corpus/$name" "fuzz/seeds/$name" -- \
        -max_total_time="$seconds" -max_len=1600 -rss_limit_mb=4096 -print_final_stats=1 \
        >"$log" 2>&1; then
        grep -vE '^(#|INFO)' "$log" | tail -60
        echo "fuzz.sh: $name FAILED; all of it is in $log"
        exit 1
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "$name: $runs programs in $seconds s without a failure, $(find "fuzz/corpus/$name" -type f | wc -l) kept"
done
