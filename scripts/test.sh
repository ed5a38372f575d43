#!/usr/bin/env bash
# The whole test suite in one command. Needs Rust (with rustfmt and clippy) and a C compiler; the GPU is simulated.
#
#   scripts/test.sh           everything but what takes long
#   scripts/test.sh --quick   leaves out the checks of the released build and of feature combinations
#   scripts/test.sh --long    adds long random runs, the sanitizers, the fuzzer, and puts in the faults of tests/cases
#
# Every check is a function below. All of them run, also after a failure; the end says what ran, what failed, and
# what was skipped and why. A check says why it cannot run by calling `skip`.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

mode=normal
case ${1:-} in
    '') ;;
    --quick) mode=quick ;;
    --long) mode=long ;;
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test.sh: '$1' is not known; --help says what is" >&2; exit 2 ;;
esac
target=${CARGO_TARGET_DIR:-target}
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
# A user's own settings must not reach the tests.
unset LD_PRELOAD "${!GPUCACHE_@}" "${!SIMCUDA_@}" "${!PYTORCH_@}" 2>/dev/null

SKIPPED=77
skip() {
    echo "$*" >"$target/skip-reason"
    return $SKIPPED
}

shell_syntax() {
    local scripts=(.ci/run scripts/*.sh benches/*/*.sh) script
    [[ -d tests/gpu ]] && scripts+=(tests/gpu/*.sh)
    for script in "${scripts[@]}"; do
        bash -n "$script" || return 1
    done
    if command -v shellcheck >/dev/null; then
        shellcheck "${scripts[@]}"
    else
        echo "syntax only: shellcheck is not installed"
    fi
}
# Every script says what it is for, at once and with success.
script_help() {
    local script text
    for script in scripts/*.sh; do
        text=$(timeout 10 "$script" --help </dev/null) || { echo "$script --help: status $?"; return 1; }
        [[ $text == *"$script"* && $(wc -l <<<"$text") -ge 2 ]] || { echo "$script --help says: $text"; return 1; }
    done
}
layers() { scripts/check-layers.sh; }
layers_can_fail() { scripts/check-layers.sh --self-test; }
format() { cargo fmt --all --check; }
lints() { cargo clippy --quiet --keep-going --workspace --all-targets -- -D warnings; }
lints_without_exports() {
    cargo clippy --quiet --keep-going --workspace --all-targets --no-default-features -- -D warnings
}
documentation() { RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps --document-private-items; }
tests() { cargo test --workspace --no-fail-fast; }
# The parts without locks, in every order of their threads' steps. Other compiler flags, so a target folder of its own.
model_checker() {
    local log=$target/model-checker.log part
    RUSTFLAGS="${RUSTFLAGS:-} --cfg loom" CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        cargo test --release --lib --target-dir "$target/loom" -- gate::model epochs::model record::model ring::model history::model 2>&1 |
        tee "$log"
    ((PIPESTATUS[0] == 0)) || return 1
    # A filter that matches nothing passes.
    for part in gate epochs record ring history; do
        grep -q "$part::model::.* ok" "$log" || { echo "no model of $part was run"; return 1; }
    done
}
# Rounds of new random cases and new timings, begun until eight minutes are over. A failure prints its seed, or leaves
# its case in proptest-regressions/.
long_runs() {
    [[ $mode == long ]] || { skip "only with --long"; return; }
    local end=$((SECONDS + 480)) rounds=0
    while ((SECONDS < end)); do
        if ! {
            PROPTEST_CASES=500 cargo test --quiet --lib &&
                cargo test --quiet --test races --test cap --test process
        } >"$target/long-runs.log" 2>&1; then
            cat "$target/long-runs.log"
            return 1
        fi
        rounds=$((rounds + 1))
    done
    echo "$rounds rounds without a failure"
}
# Valgrind over a few programs; with --long over more, and the sanitizers.
sanitizers() {
    if [[ $mode == long ]]; then
        scripts/sanitize.sh
        return
    fi
    scripts/sanitize.sh --can-run >"$target/sanitize-reason" || { skip "$(cat "$target/sanitize-reason")"; return; }
    scripts/sanitize.sh --quick
}
fuzzing() {
    [[ $mode == long ]] || { skip "only with --long; the same actions run in the tests"; return; }
    scripts/fuzz.sh --can-run >"$target/fuzz-reason" || { skip "$(cat "$target/fuzz-reason")"; return; }
    scripts/fuzz.sh 120
}
# That the cases are whole and their faults still apply is among the tests; this builds each fault and runs its tests.
faults_are_found() {
    [[ $mode == long ]] || { skip "only with --long, or by scripts/cases.sh"; return; }
    scripts/cases.sh
}
exports() {
    # Library and tool of one build: that nothing of one is in the other.
    cargo build --quiet || return 1
    scripts/check-exports.sh "$target/debug/libgpucache.so" && scripts/check-exports.sh --tool "$target/debug/gpucache"
}
exports_can_fail() {
    [[ -e $target/debug/libgpucache.so && -e $target/debug/gpucache ]] || { echo "not built"; return 1; }
    scripts/check-exports.sh --self-test "$target/debug/libgpucache.so" "$target/debug/gpucache"
}
released_build() {
    scripts/package.sh --can-run >"$target/package-reason" || { skip "$(cat "$target/package-reason")"; return; }
    scripts/package.sh
}
bench_limits() {
    command -v valgrind >/dev/null || { skip "valgrind is not installed: INSTRUCTIONS WERE NOT COUNTED"; return; }
    scripts/bench.sh --check
}
cargo_deny() { # prints the command, if there is one
    local tool
    for tool in "$target/tools/bin/cargo-deny" "$(command -v cargo-deny)"; do
        [[ -x $tool ]] && { echo "$tool"; return; }
    done
    return 1
}
licences_and_sources() {
    local tool
    tool=$(cargo_deny) || { skip "cargo-deny is not installed: cargo install --locked cargo-deny"; return; }
    "$tool" --log-level warn check licenses bans sources
}
advisories() {
    local tool output
    tool=$(cargo_deny) || { skip "cargo-deny is not installed: cargo install --locked cargo-deny"; return; }
    output=$(GIT_TERMINAL_PROMPT=0 timeout 120 "$tool" --log-level warn check advisories 2>&1) && { echo "no advisories"; return; }
    if grep -q 'failed to fetch advisory database\|failed to load advisory database' <<<"$output"; then
        skip "the advisory database cannot be reached: ADVISORIES WERE NOT CHECKED"
        return
    fi
    echo "$output"
    return 1
}

checks=(shell_syntax script_help layers layers_can_fail format lints lints_without_exports documentation tests
    model_checker long_runs sanitizers fuzzing faults_are_found exports exports_can_fail released_build bench_limits licences_and_sources
    advisories)
not_quick=' sanitizers layers_can_fail lints_without_exports exports_can_fail model_checker released_build bench_limits advisories '

mkdir -p "$target"
passed=() failed=() skipped=()
begin=$SECONDS
for name in "${checks[@]}"; do
    if [[ $mode == quick && $not_quick == *" $name "* ]]; then
        skipped+=("$name: left out by --quick")
        continue
    fi
    echo "== $name"
    started=$SECONDS
    "$name"
    status=$?
    took="$((SECONDS - started)) s"
    case $status in
        0) passed+=("$name ($took)") ;;
        "$SKIPPED")
            reason=$(cat "$target/skip-reason")
            echo "skipped: $reason"
            skipped+=("$name: $reason")
            ;;
        *)
            echo "FAILED: $name"
            failed+=("$name ($took)")
            ;;
    esac
done
skipped+=("a real GPU: scripts/gpu.sh")
command -v chromium chromium-browser google-chrome >/dev/null || skipped+=("the page in a browser: chromium is not installed")

echo
echo "== summary, after $((SECONDS - begin)) s"
list() {
    local head=$1
    shift
    (($# == 0)) || printf "$head: %s\n" "$@"
}
list "passed " "${passed[@]}"
list "skipped" "${skipped[@]}"
list "FAILED " "${failed[@]}"
((${#failed[@]} == 0))
