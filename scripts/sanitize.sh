#!/usr/bin/env bash
# Looks for memory errors and data races with tools that watch the program run. What a tool needs and is missing is said,
# and that tool left out; nothing is skipped in silence.
#
#   scripts/sanitize.sh              everything
#   scripts/sanitize.sh --quick      valgrind over a few programs: under a minute on an idle machine
#   scripts/sanitize.sh --can-run    only says whether valgrind is here, or that it is missing
#
# | tool | over | needs |
# |---|---|---|
# | address and leak sanitizer | the unit tests | nightly Rust |
# | thread sanitizer | the unit tests | nightly Rust |
# | valgrind's memcheck | test programs with the library preloaded, on the simulated GPU | valgrind |
#
# What is not run, and why:
# - The preloaded library under a sanitizer: the sanitizer's runtime looks functions up by `dlsym` before its own memory is
#   set up; that is our `dlsym`, instrumented, and crashes. Valgrind stands in for it there.
# - Valgrind's helgrind and drd: they know pthread's locks and not those that Rust makes of atomics and futexes, so that
#   every correct access under such a lock is reported. The thread sanitizer and the model checker stand in for them.
# - The memory sanitizer: it needs the standard library built with it (component rust-src), or each value from there is
#   reported as uninitialised.
# - Miri: it needs its component and rust-src, and cannot run what the library is made of (dlsym, naked functions, fork).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
mode=${1:-}
[[ $mode =~ ^(|--quick|--can-run)$ ]] || { echo "sanitize.sh: '$mode' is not known; --help says what is" >&2; exit 2; }
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
unset LD_PRELOAD "${!GPUCACHE_@}" "${!SIMCUDA_@}" "${!PYTORCH_@}" 2>/dev/null
if [[ $mode == --can-run ]]; then
    command -v valgrind >/dev/null || { echo "valgrind is not installed"; exit 1; }
    exit 0
fi
failed=0

# sanitizer NAME FLAGS: the unit tests of a build with it.
sanitizer() {
    local name=$1 flags=$2 log=$target/sanitize-$1.log host
    host=$(rustc -vV | sed -n 's/^host: //p')
    if ! cargo +nightly --version >/dev/null 2>&1; then
        echo "$name sanitizer: not run, nightly Rust is not installed: rustup toolchain install nightly"
        return
    fi
    # A target given by name keeps the flags from build scripts. Frames of the tests' symbols need some debug information.
    if RUSTFLAGS="$flags" CARGO_PROFILE_DEV_OPT_LEVEL=1 cargo +nightly test --quiet --lib \
        --no-default-features --target "$host" --target-dir "$target/sanitize-$name" >"$log" 2>&1 &&
        grep -Eq '[1-9][0-9]* passed' "$log"; then
        echo "$name sanitizer: $(grep -Eo '[0-9]+ passed' "$log" | tail -1), nothing reported"
    else
        grep -E 'SUMMARY|panicked|^error' "$log" | sort | uniq -c | head -20
        echo "$name sanitizer: FAILED; all of it is in $log"
        failed=1
    fi
}

# memcheck NAME ARGS…: one program with the library preloaded. `more` is a file of suppressions for this program alone.
memcheck() {
    local log=$target/sanitize-memcheck.log status=0
    LD_LIBRARY_PATH=$target/programs/lib LD_PRELOAD=$library GPUCACHE_REPORT=off timeout 300 valgrind --quiet \
        --error-exitcode=99 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
        --suppressions=tests/sanitizers/memcheck.supp ${more:+--suppressions="$more"} "$target/programs/bin/$1" "${@:2}" >"$log" 2>&1 || status=$?
    if ((status != 0)); then
        head -60 "$log"
        echo "memcheck: $*: FAILED with status $status (99: something was reported)"
        failed=1
    else
        echo "memcheck: $*: nothing reported"
    fi
}

if command -v valgrind >/dev/null; then
    cargo build --quiet --lib || exit 1
    # The harness builds the programs when a test asks for one, and those that have changed anew.
    cargo test --quiet --test routes >/dev/null || exit 1
    library=$target/debug/libgpucache.so
    memcheck route_shared
    memcheck wrong_frees
    memcheck capture
    if [[ $mode != --quick ]]; then
        memcheck device_reset
        memcheck seq 'a1m*4 F a512*9 w F a3m i'
        memcheck mixture 1 2 100
        memcheck race 2 10
        memcheck lives reset 2 2 frees
        more=tests/sanitizers/forks.supp memcheck forks
        memcheck handles
        memcheck short_threads
    fi
else
    echo "memcheck: not run, valgrind is not installed"
fi
if [[ $mode != --quick ]]; then
    # What lasts for ever in the library, the tests leave behind too, each time anew: leaks of theirs are no finding.
    LSAN_OPTIONS=suppressions=$PWD/tests/sanitizers/lsan.supp:print_suppressions=0 sanitizer address -Zsanitizer=address
    TSAN_OPTIONS=suppressions=$PWD/tests/sanitizers/tsan.supp sanitizer thread \
        "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"
    echo "not run, see --help: sanitizers under the preloaded library, helgrind, drd, the memory sanitizer, Miri"
fi
exit "$failed"
