# shellcheck shell=bash
# Steps of scripts/gpu.sh for `expandable_segments:True`, sourced after steps.sh, whose functions they use.
# shellcheck disable=SC2154

expandable=GPUCACHE_CONF=expandable_segments:True

# What the setting takes for granted of the driver.
step_mapping_facts() {
    bare facts -- "$bin/mapping"
    grep -q '^done' "$logs/$step.facts.out" || fail "ended early"
    pass "$(grep -c '^fact' "$logs/$step.facts.out") facts; $(grep '^fact capture_relaxed' "$logs/$step.facts.out")"
}

step_expandable_race() {
    local text name
    with wide "$expandable" -- "$bin/race" 8 40000
    seen wide
    with tight "$expandable,memory_limit:64MiB" -- "$bin/race" 8 10000
    text="$(value wide wrong) wrong words in $(value wide pairs) pairs, $(value tight wrong) in $(value tight pairs) under 64 MiB"
    for name in wide tight; do
        [ "$(value $name wrong)" = 0 ] || fail "$text"
        [ "$(value $name failures)" = 0 ] || fail "$(value $name failures) allocations failed ($name); $text"
    done
    pass "$text"
}

step_expandable_torch() {
    need torch numpy
    local limit=150 jobs=("$python" "$programs/torch_jobs.py" gpt:20 streams:20)
    bare bare PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "${jobs[@]}"
    with segments PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "${jobs[@]}"
    with with PYTORCH_NO_CUDA_MEMORY_CACHING=1 "$expandable" -- "${jobs[@]}"
    same_result bare with PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "${jobs[@]}"
    seen with
    grep -q 'wrong=0' "$logs/$step.with.out" || fail "wrong sums on side streams"
    pass "gpt ms a step: segments $(job_ms "$step.segments" gpt), expandable $(job_ms "$step.with" gpt); MiB: $(figure segments driver_mib), $(figure with driver_mib)"
}

step_expandable_graph() {
    need torch numpy
    # shellcheck disable=SC2034 # of `run`, which takes it from here
    local limit=120 job=("$python" "$programs/torch_graph.py")
    bare bare -- "${job[@]}"
    with with "$expandable" -- "${job[@]}"
    same_result bare with -- "${job[@]}"
    seen with
    pass "same"
}
