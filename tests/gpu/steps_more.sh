# shellcheck shell=bash
# Further steps of scripts/gpu.sh: reuse at scale, tools, processes that share, fork and reset, several GPUs. Sourced
# after steps.sh, whose functions they use.
# shellcheck disable=SC2154

# Of a job of several processes, which write a report each.
# with_each NAME COUNT [VAR=VALUE…] -- COMMAND…: exactly COUNT processes report, and the library saw memory in each.
with_each() {
    local name=$1 count=$2 file found=0
    shift 2
    mkdir -p "$reports/$step.$name"
    with "$name" "GPUCACHE_REPORT=$reports/$step.$name/%p.json" "$@"
    for file in "$reports/$step.$name"/*; do
        [ -e "$file" ] || continue
        found=$((found + 1))
        "$python" "$programs/report.py" "$file" || fail "$name: no report in $file"
        [ "$("$python" "$programs/report.py" "$file" intercepted)" -gt 0 ] || fail "$name: nothing was intercepted ($file)"
    done
    [ "$found" = "$count" ] || fail "$name: $found reports of $count processes"
}
# total NAME KEY: a figure summed over the reports of with_each.
total() {
    local file sum=0
    for file in "$reports/$step.$1"/*; do
        sum=$((sum + $("$python" "$programs/report.py" "$file" "$2")))
    done
    echo "$sum"
}

step_race_million() {
    local limit=150 text shown="unsafe build not given" reused name
    with wide -- "$bin/race" 16 25000 8
    seen wide
    # Little memory: what is handed out has only just been freed.
    with tight GPUCACHE_CONF=memory_limit:512MiB -- "$bin/race" 16 70000 8
    seen tight
    if [ -n "$unsafe_library" ]; then
        run unsafe "$unsafe_library" GPUCACHE_CONF=memory_limit:512MiB -- "$bin/race" 16 8000 8 ||
            fail "unsafe: status $?"
        shown="unsafe build: $(value unsafe wrong) wrong in $(value unsafe reused) reuses"
        [ "$(value unsafe wrong)" -gt 0 ] || fail "reuse without safety shows no wrong word: the test proves nothing"
    fi
    reused=$(($(value wide reused) + $(value tight reused)))
    text="$(($(value wide wrong) + $(value tight wrong))) wrong words in $reused reuses, 16 threads, 128 streams"
    text+="; us an iteration: $(value wide us), under 512 MiB $(value tight us); $shown"
    for name in wide tight; do
        [ "$(value $name wrong)" = 0 ] || fail "$text"
        [ "$(value $name failures)" = 0 ] || fail "$(value $name failures) allocations failed ($name); $text"
    done
    [ "$reused" -ge 1000000 ] && pass "$text"
    fail "$text: fewer than a million"
}

step_sanitizer() {
    local limit=120 tool cuda place errors=() name
    tool=$(command -v compute-sanitizer)
    if [ -z "$tool" ] && command -v nvcc >/dev/null; then
        cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
        for place in "$cuda/bin" "$cuda/compute-sanitizer"; do
            [ -x "$place/compute-sanitizer" ] && tool=$place/compute-sanitizer
        done
    fi
    [ -n "$tool" ] || skip "no compute-sanitizer"
    local checked=("$tool" --tool memcheck --error-exitcode 9 "$bin/race" 4 250 2)
    summary() { cat "$logs/$step.$1".{out,err} | sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p' | tail -n 1; }
    run bare "" -- "${checked[@]}"
    if grep -qi 'not supported' "$logs/$step.bare".{out,err}; then
        skip "compute-sanitizer does not support this device or system"
    fi
    [ -n "$(summary bare)" ] || skip "compute-sanitizer does not work here, with or without the library"
    run with "$library" -- "${checked[@]}"
    if [ ! -e "$reports/$step.with.json" ]; then
        # A launcher that sets LD_PRELOAD itself: added from within.
        # shellcheck disable=SC2016
        run with "" "GPUCACHE_REPORT=$reports/$step.with.json" "WITH=$library" -- "$tool" --tool memcheck \
            --error-exitcode 9 --target-processes all \
            sh -c 'LD_PRELOAD="$WITH${LD_PRELOAD:+:$LD_PRELOAD}" exec "$@"' sh "$bin/race" 4 250 2
    fi
    seen with
    for name in bare with; do
        errors+=("$(summary $name)")
        [ "$(value $name pairs)" = 1000 ] || fail "$name: the program did not come to its end"
        [ "$(value $name wrong)" = 0 ] || fail "$name: $(value $name wrong) wrong words"
    done
    [ "${errors[1]}" = 0 ] || [ "${errors[1]}" = "${errors[0]}" ] ||
        fail "memcheck: ${errors[1]:-no} errors with the library, ${errors[0]} without"
    pass "memcheck: ${errors[1]} errors in $(figure with counts.alloc) allocations and their kernels, ${errors[0]} without the library"
}

step_torch_mp() {
    need torch
    local limit=150 job=("$python" "$programs/torch_mp.py") off
    bare bare -- "${job[@]}"
    with_each with 3 -- "${job[@]}"
    same_result bare with -- "${job[@]}"
    if run off.bare "" PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "${job[@]}"; then
        with_each off.with 3 PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "${job[@]}"
        same_result off.bare off.with PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "${job[@]}"
        off="cache off: same, $(total off.with counts.alloc) allocations in $(total off.with counts.driver_alloc) regions"
    else
        off="cache off: this PyTorch cannot share without the library either"
    fi
    pass "cache on: same, $(total with counts.alloc) allocations in $(total with counts.driver_alloc) regions; $off"
}

# parts SCRIPT PART:REPORTS…: each part of the script without and with the library, the same results. Text in `compared`.
compared=""
parts() {
    local script=$1 entry part code lines raised command=()
    for entry in "${@:2}"; do
        part=${entry%:*}
        command=("$python" "$programs/$script" "$part")
        run "$part.bare" "" -- "${command[@]}"
        code=$?
        # Says that it cannot (7), or ends by a signal or not at all, as a framework may that does not expect a reset.
        if [ $code = 7 ] || [ $code = 124 ] || [ $code -ge 128 ]; then
            compared+="$part: not possible without the library either (status $code); "
            echo "fact $part: status $code without the library"
            continue
        fi
        [ $code = 0 ] || fail "$part: status $code without the library"
        with_each "$part.with" "${entry#*:}" -- "${command[@]}"
        same_result "$part.bare" "$part.with" -- "${command[@]}"
        lines=$(grep -c '^RESULT ' "$logs/$step.$part.bare.out")
        raised=$(grep -c '^RESULT [^ ]* raises ' "$logs/$step.$part.bare.out")
        # What the framework refuses anyway.
        sed -n "s/^RESULT \([^ ]* raises .*\)/fact $part: \1, with the library too/p" "$logs/$step.$part.bare.out"
        [ "$raised" -lt "$lines" ] || fail "$part: nothing works without the library: nothing was compared"
        compared+="$part: $lines same"
        [ "$raised" = 0 ] || compared+=" ($raised of them errors)"
        compared+=", $(total "$part.with" counts.alloc) allocations in $(total "$part.with" counts.driver_alloc) regions; "
    done
}
step_cupy_more() {
    need cupy numpy
    local limit=120
    parts cupy_more.py streams:1 ipc:3 reset:1 contexts:1 memory:1
    pass "${compared%; }"
}
step_numba_more() {
    need numba numpy
    local limit=120
    parts numba_more.py streams:1 ipc:2 close:1 reset:1
    pass "${compared%; }"
}

step_fork_cuda() {
    need torch
    local job=("$python" "$programs/torch_fork.py") pid
    bare bare -- "${job[@]}"
    with_each with 1 -- "${job[@]}"
    same_result bare with -- "${job[@]}"
    pid=$(value with PID)
    [ -e "$reports/$step.with/$pid.json" ] || fail "the report is not that of the parent, $pid"
    pass "$(grep -m 1 '^RESULT quiet' "$logs/$step.with.out" | cut -d' ' -f2-), $(grep '^RESULT busy' "$logs/$step.with.out" | cut -d' ' -f2-): same; one report, the parent's"
}

step_corners() {
    local limit=60 part text="" held mib=1048576
    for part in thread retained green; do
        bare "$part.bare" -- "$bin/corners" $part
        grep ^fact "$logs/$step.$part.bare.out"
        grep ^RESULT "$logs/$step.$part.bare.out" | sed 's/^RESULT/fact/'
        with "$part.with" -- "$bin/corners" $part
        same_result "$part.bare" "$part.with" -- "$bin/corners" $part
        held=$(($(figure "$part.with" reserved_bytes.peak) / mib))
        text+="$part: same, $held MiB held by loops that free 8 GiB without waiting; "
        # A driver that goes on refusing barriers for an ended thread's capture leaves nothing to reuse. The green part holds
        # a block of 1 GiB itself.
        [ $part = thread ] || [ "$held" -le 1536 ] || fail "no memory is reused: $text"
    done
    pass "${text%; }"
}

step_threads_end() {
    local few many held text name mib=1048576
    bare bare -- "$bin/threads_end" 2
    with few -- "$bin/threads_end" 2
    with many -- "$bin/threads_end" 20
    seen many
    held=$(value many held) few=$(figure few reserved_bytes.peak) many=$(figure many reserved_bytes.peak)
    text="MiB reserved: $((few / mib)) after 2 rounds of 64 threads, $((many / mib)) after 20, $((held / mib)) held at once"
    text+="; ms a round $(value bare ms) -> $(value many ms)"
    for name in bare few many; do
        [ "$(value $name wrong)" = 0 ] || fail "$(value $name wrong) wrong words ($name); $text"
        [ "$(value $name failures)" = 0 ] || fail "$(value $name failures) allocations failed ($name); $text"
    done
    [ "$few" -ge "$held" ] || fail "the pool held less than the program: $text"
    holds "$many <= 1.25 * $few + 16 * $mib" && pass "$text"
    fail "reserved memory creeps: $text"
}

# shellcheck disable=SC2034
step_multi_gpu() {
    local limit=120 mode text="" count unsafe=0 tested=0 name setting=GPUCACHE_CONF=memory_limit:128MiB
    count=$(nvidia-smi -L | grep -c ^GPU)
    [ "$count" -ge 2 ] || skip "$count GPU; needs two"
    for mode in copies kernels; do
        run "$mode.bare" "" -- "$bin/peers" "$mode" 300
        local code=$?
        [ "$(value "$mode.bare" devices)" != 1 ] || skip "the process sees one GPU; needs two"
        if [ $code = 0 ] && [ -z "$(value "$mode.bare" pairs)" ]; then
            text+="$mode: no peer access; "
            continue
        elif [ $code != 0 ] || [ "$(value "$mode.bare" wrong)" != 0 ]; then
            echo "fact $mode: status $code and $(value "$mode.bare" wrong) wrong words without the library"
            text+="$mode: not right without the library; "
            continue
        fi
        tested=$((tested + 1))
        with "$mode.with" -- "$bin/peers" "$mode" 6000
        seen "$mode.with"
        with "$mode.tight" "$setting" -- "$bin/peers" "$mode" 6000
        text+="$mode: $(value "$mode.with" wrong) and $(value "$mode.tight" wrong) wrong words in 2 x $(value "$mode.with" pairs) pairs"
        if [ -n "$unsafe_library" ]; then
            run "$mode.unsafe" "$unsafe_library" "$setting" -- "$bin/peers" "$mode" 6000 || fail "unsafe: status $?; $text"
            unsafe=$((unsafe + $(value "$mode.unsafe" wrong)))
            text+=", unsafe build $(value "$mode.unsafe" wrong)"
        fi
        text+=", us $(value "$mode.bare" us) -> $(value "$mode.with" us); "
        for name in with tight; do
            [ "$(value "$mode.$name" wrong)" = 0 ] || fail "$text"
            [ "$(value "$mode.$name" failures)" = 0 ] || fail "$(value "$mode.$name" failures) allocations failed ($name); $text"
        done
    done
    [ -z "$unsafe_library" ] || [ $tested = 0 ] || [ $unsafe -gt 0 ] ||
        fail "reuse without safety shows no wrong word: the test proves nothing; $text"
    if has torch && has numpy; then
        parts torch_ranks.py parallel:1 ranks:2
        text+=$compared
    else
        text+="no PyTorch; "
    fi
    pass "${text%; }"
}
