# shellcheck shell=bash
# The steps of scripts/gpu.sh, which sources this file and sets: step, library, unsafe_library, programs, bin, logs,
# reports, results, python. Each step runs in a subshell of its own and ends by pass, fail or skip.
# shellcheck disable=SC2154

GIB=$((1 << 30))

verdict() {
    echo "$1 $2" | tee "$results/$step"
    exit 0
}
pass() { verdict PASS "$*"; }
fail() { verdict FAIL "$*"; }
skip() { verdict SKIP "$*"; }

# run NAME LIBRARY [VAR=VALUE…] -- COMMAND…: output to LOGS/STEP.NAME.{out,err}; gives the command's status.
# LIBRARY is empty for a run without. `limit` is the seconds that the command may take.
run() {
    local name=$1 preload=$2 settings=() code
    shift 2
    if [ -n "$preload" ]; then
        settings+=("LD_PRELOAD=$preload" "GPUCACHE_REPORT=$reports/$step.$name.json")
    fi
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    shift
    echo "+ $name: ${settings[*]} $*"
    timeout -k 5 "${limit:-90}" env "${settings[@]}" "$@" >"$logs/$step.$name.out" 2>"$logs/$step.$name.err"
    code=$?
    sed "s/^fact/fact [$name]/" "$logs/$step.$name.out"
    tail -n 12 "$logs/$step.$name.err"
    [ $code != 124 ] || echo "took longer than ${limit:-90} s"
    return $code
}
bare() {
    local name=$1
    shift
    run "$name" "" "$@" || fail "$name: status $? without the library"
}
with() {
    local name=$1
    shift
    run "$name" "$library" "$@" || fail "$name: status $? with the library"
}

# value NAME KEY [FIELD]: what a run printed in the line that begins with KEY.
value() { awk -v key="$2" -v at="${3:-2}" '$1 == key { print $at; exit }' "$logs/$step.$1.out"; }
calc() { awk "BEGIN { printf \"${2:-%.2f}\", $1 }"; }
holds() { awk "BEGIN { exit !($1) }"; }
figure() { "$python" "$programs/report.py" "$reports/$step.$1.json" "${@:2}"; }
# The report shows that the library saw the program's memory.
seen() {
    local number
    number=$(figure "$1" intercepted) || fail "$1: no report"
    figure "$1"
    [ "$number" -gt 0 ] || fail "$1: nothing was intercepted"
}
# same_result ONE TWO [VAR=VALUE…] -- COMMAND…: the RESULT lines of two runs are there and equal. If not, the command
# that made ONE runs once more, without the library, to see whether it agrees with itself.
same_result() {
    local first=$1 second=$2 one two again=""
    shift 2
    one=$(grep ^RESULT "$logs/$step.$first.out") || fail "$first: no result"
    two=$(grep ^RESULT "$logs/$step.$second.out") || fail "$second: no result"
    [ "$one" = "$two" ] && return
    if run "$first-again" "" "$@" && [ "$(grep ^RESULT "$logs/$step.$first-again.out")" != "$one" ]; then
        again=" (but the job does not agree with itself either)"
    fi
    fail "results differ$again: $first [$one] $second [$two]"
}
has() { "$python" -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('$1'))"; }
need() {
    local module
    for module in "$@"; do
        has "$module" || skip "no $module"
    done
}
better() { calc "($1 < $2) ? $1 : $2"; }

step_pair() {
    local base ours host
    bare bare -- "$bin/pair"
    with with -- "$bin/pair"
    seen with
    # API SIZE CASE: nanoseconds without → with
    awk '$1 == "spread" { if (NR != FNR) printf "fact %s %s %s one by one: p50 %s, p99 %s, p99.9 %s ns\n", $2, $3, $4, $5, $6, $7; next }
         NR == FNR { bare[$1 " " $2 " " $3] = $4; next }
         { key = $1 " " $2 " " $3; printf "fact %s: %.0f -> %.0f ns, %.1f x\n", key, bare[key], $4, bare[key] / $4 }' \
        "$logs/pair.bare.out" "$logs/pair.with.out"
    pick() { awk -v api="$2" '$1 == api && $2 == 1048576 && $3 == "alone" { print $4 }' "$logs/pair.$1.out"; }
    base=$(pick bare cudaMalloc) ours=$(pick with cudaMalloc) host=$(pick with malloc)
    local text
    text="$(calc "$base / $ours" %.0f) x at 1 MiB: $base -> $ours ns (glibc malloc $host ns)"
    text+="; one by one, the highest p99.9 of all sizes $(awk '$1 == "spread" && $7 > most { most = $7 } END { print most }' "$logs/pair.with.out") ns"
    # By what the same processor takes for malloc: how fast its clock runs just then differs by half and more.
    holds "$ours <= 12 * $host" && pass "$text"
    fail "$text, above 12 x malloc"
}

thrust() {
    local program=$1 base ours
    for round in 1 2; do
        bare "bare$round" -- "$bin/$program"
        with "with$round" -- "$bin/$program"
        [ "$(value "bare$round" sum)" = "$(value "with$round" sum)" ] || fail "sums differ"
    done
    seen with1
    [ "$(figure with1 counts.alloc)" -gt 0 ] || fail "the pool served nothing"
    base=$(better "$(value bare1 ms)" "$(value bare2 ms)") ours=$(better "$(value with1 ms)" "$(value with2 ms)")
    holds "$ours < $base" && pass "$base -> $ours ms, $(figure with1 counts.alloc) allocations served"
    fail "not faster: $base -> $ours ms"
}
step_thrust_static() { thrust churn_static; }
step_thrust_shared() { thrust churn_shared; }

step_race() {
    local text shown="unsafe build not given"
    bare bare -- "$bin/race" 8 2000
    [ "$(value bare wrong)" = 0 ] || fail "the program is wrong without the library: $(value bare wrong) words"
    with with -- "$bin/race" 8 40000
    seen with
    # Little memory: what is handed out has only just been freed.
    with tight GPUCACHE_CONF=memory_limit:64MiB -- "$bin/race" 8 10000
    if [ -n "$unsafe_library" ]; then
        run unsafe "$unsafe_library" -- "$bin/race" 8 20000 || fail "unsafe: status $?"
        run unsafe-tight "$unsafe_library" GPUCACHE_CONF=memory_limit:64MiB -- "$bin/race" 8 10000 ||
            fail "unsafe-tight: status $?"
        shown="unsafe build: $(value unsafe wrong) and $(value unsafe-tight wrong) wrong, $(value unsafe us) and $(value unsafe-tight us) us"
        [ $(($(value unsafe wrong) + $(value unsafe-tight wrong))) -gt 0 ] || fail "reuse without safety shows no wrong word: the test proves nothing"
    fi
    text="$(value with wrong) wrong words in $(value with pairs) pairs, $(value tight wrong) in $(value tight pairs) under 64 MiB"
    text+="; us an iteration: bare $(value bare us), library $(value with us), 64 MiB $(value tight us); $shown"
    for name in with tight; do
        [ "$(value $name wrong)" = 0 ] || fail "$text"
        [ "$(value $name failures)" = 0 ] || fail "$(value $name failures) allocations failed ($name); $text"
    done
    pass "$text"
}

step_overlap() {
    local none base ours text
    bare bare -- "$bin/overlap"
    with with -- "$bin/overlap"
    seen with
    none=$(value bare none_ms) base=$(value bare around_ms) ours=$(value with around_ms)
    text="ms: no allocation $none, cudaMalloc $base, library $ours ($(figure with counts.barrier) barriers)"
    holds "$ours <= 1.5 * $none" && pass "$text"
    fail "$text: the streams no longer overlap"
}

step_contexts() {
    local summary="" bad=0 section codes
    for section in errors ranges reset two; do
        run "$section.bare" "" -- "$bin/semantics" $section
        codes=$?
        run "$section.with" "$library" -- "$bin/semantics" $section
        codes+=" $?"
        if [ "$codes" != "0 0" ]; then
            summary+="$section status $codes; " bad=1
        elif ! diff <(grep -v ^fact "$logs/contexts.$section.bare.out") \
            <(grep -v ^fact "$logs/contexts.$section.with.out") >"$logs/contexts.$section.diff"; then
            summary+="$section differs; " bad=1
        else
            summary+="$section same; "
        fi
    done
    run capture.bare "" -- "$bin/capture" && run capture.with "$library" -- "$bin/capture"
    codes=$?
    # A capture that survives, and replays right, must do so with the library. The other way round is no fault.
    awk -F ': ' 'NR == FNR { bare[$1] = $2; next }
        { alive = bare[$1] ~ /survives 1.*right 1/; ours = $2 ~ /survives 1.*right 1/; seen++
          if (alive && !ours) { lost++; print "LOST " $0 " (without: " bare[$1] ")" }
          else if (ours && !alive) { more++; print "fact survives only with the library: " $0 " (without: " bare[$1] ")" }
          else if (bare[$1] != $2) { print "fact codes differ: " $0 " (without: " bare[$1] ")" } }
        END { printf "cases %d\nlost %d\nmore %d\n", seen, lost, more }' \
        "$logs/contexts.capture.bare.out" "$logs/contexts.capture.with.out" >"$logs/contexts.captures.out"
    cat "$logs/contexts.captures.out"
    summary+="captures: $(value captures lost) of $(value captures cases) lost, $(value captures more) survive that do not otherwise"
    if [ $codes != 0 ] || [ "$(value captures lost)" != 0 ] || [ "$(value captures cases)" != 48 ]; then bad=1; fi
    grep . "$logs"/contexts.*.diff | sed 's/^[^:]*contexts\.//'
    [ $bad = 0 ] && pass "$summary"
    fail "$summary"
}

step_ipc() {
    bare bare -- "$bin/ipc" handles
    with with -- "$bin/ipc"
    seen with
    local wrong refused
    grep -q ': open .*own 0' "$logs/ipc.bare.out" && fail "wrong data without the library"
    wrong=$(grep -c '^same .*own 0' "$logs/ipc.with.out")
    [ "$wrong" = 0 ] || fail "$wrong blocks wrong in an importer with the library"
    wrong=$(grep -c '^plain .*open 0, own 0' "$logs/ipc.with.out")
    [ "$wrong" = 0 ] || fail "$wrong blocks show other data in an importer without the library"
    grep -q '^same close [^0]' "$logs/ipc.with.out" && fail "an imported block does not close"
    refused=$(grep -c '^plain .*: open [^0]' "$logs/ipc.with.out")
    [ "$refused" -gt 0 ] || fail "no block lay inside a region: nothing was tested"
    pass "importer with the library: own data in all $(grep -c '^same .*own 1' "$logs/ipc.with.out"); without: $refused refused, no other data"
}

step_procaddress() {
    bare bare -- "$bin/procaddress"
    with with -- "$bin/procaddress"
    awk '{ if ($2 == "dlsym") { at[$1] = $4 } else if ($4 != "absent") { places[$1] = places[$1] " " $2 "=" $4
             if ($4 == at[$1]) equal[$1] = 1 } }
         END { for (name in places) if (!equal[name]) print "fact dlsym leads elsewhere than every query: " name \
               " " at[name] "," places[name] }' "$logs/procaddress.bare.out" | sort
    awk 'NR == FNR { bare[$1 " " $2] = $4; next }
         { was = bare[$1 " " $2]; query = $2 ~ /^query/
           if ($3 == "untouched" ? $4 != was : (was == "absent") != ($4 == "absent")) { bad++; print "DIFFERS " $0 " was " was }
           else if ($3 == "hooked" && was != "absent") {
               hooked++
               if ($4 !~ /^libgpucache/) { bad++; print "NOT HOOKED " $0 " was " was }
               if (query && (was in ours) && ours[was] != $4) { bad++; print "TWO HOOKS " $0 " was " was }
               if (query && ($4 in theirs) && theirs[$4] != was) { bad++; print "TWO ABIS " $0 " was " was " and " theirs[$4] }
               if (query) { ours[was] = $4; theirs[$4] = was }
           } else untouched++ }
         END { printf "hooked %d\nuntouched %d\nbad %d\n", hooked, untouched, bad }' \
        "$logs/procaddress.bare.out" "$logs/procaddress.with.out" >"$logs/procaddress.places.out"
    cat "$logs/procaddress.places.out"
    local text
    text="$(value places hooked) lookups hooked, $(value places untouched) untouched, $(value places bad) wrong"
    [ "$(value places bad)" = 0 ] && [ "$(value places hooked)" -gt 0 ] && pass "$text"
    fail "$text"
}

# Better of a job's two passes, ms a step.
job_ms() { better "$(awk -v job="$2" '$1 == "TIME" && $2 == job { print $3 }' "$logs/$1.out")" \
    "$(awk -v job="$2" '$1 == "TIME" && $2 == job { print $4 }' "$logs/$1.out")"; }

step_torch_cached() {
    need torch numpy
    local limit=100 jobs=("$python" "$programs/torch_jobs.py" gpt:20 streams:20)
    bare bare -- "${jobs[@]}"
    with with -- "${jobs[@]}"
    same_result bare with -- "${jobs[@]}"
    seen with
    grep -q 'wrong=0' "$logs/$step.with.out" || fail "wrong sums on side streams"
    pass "gpt $(job_ms "$step.bare" gpt) -> $(job_ms "$step.with" gpt) ms a step, streams $(job_ms "$step.bare" streams) -> $(job_ms "$step.with" streams); MiB reserved $(value bare MEMORY) -> from the driver $(figure with driver_mib)"
}

step_torch_uncached() {
    need torch numpy
    local limit=150 jobs=("$python" "$programs/torch_jobs.py" gpt:20 streams:20) native=torch-cached.bare
    if ! grep -qs '^TIME streams' "$logs/$native.out"; then
        native=torch-uncached.native
        bare native -- "${jobs[@]}"
    fi
    bare bare PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "${jobs[@]}"
    with with PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "${jobs[@]}"
    same_result bare with PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "${jobs[@]}"
    seen with
    grep -q 'wrong=0' "$logs/$step.with.out" || fail "wrong sums on side streams"
    local base ours text
    base=$(job_ms "$native" gpt) ours=$(job_ms "$step.with" gpt)
    text="gpt ms a step: native cache $base, none $(job_ms "$step.bare" gpt), library $ours ($(calc "$ours / $base") x native)"
    text+="; streams $(job_ms "$native" streams), $(job_ms "$step.bare" streams), $(job_ms "$step.with" streams)"
    text+="; MiB: native $(awk '$1 == "MEMORY" { print $2 }' "$logs/$native.out"), library $(figure with driver_mib)"
    holds "$ours <= 1.10 * $base" && pass "$text"
    fail "$text: above 1.10 x"
}

step_torch_graph() {
    need torch numpy
    local job=("$python" "$programs/torch_graph.py") off
    bare bare -- "${job[@]}"
    with with -- "${job[@]}"
    same_result bare with -- "${job[@]}"
    seen with
    if run off.bare "" PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "${job[@]}"; then
        with off.with PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "${job[@]}"
        same_result off.bare off.with PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "${job[@]}"
        off="cache off: same"
    else
        off="cache off: not possible without the library either"
    fi
    pass "cache on: same; $off"
}

# framework NAME [VAR=VALUE…] -- JOB: the same job without and with, the same result. Seconds in `timing`.
timing=""
framework() {
    local name=$1
    shift
    bare "$name.bare" "$@"
    with "$name.with" "$@"
    same_result "$name.bare" "$name.with" "$@"
    seen "$name.with"
    timing+="$name: $(value "$name.bare" TIME) -> $(value "$name.with" TIME) s, $(figure "$name.with" counts.alloc) served, $(($(figure "$name.with" external_bytes.total_allocated) >> 20)) MiB counted outside; "
}
step_cupy() {
    need cupy
    framework cupy -- "$python" "$programs/cupy_job.py"
    pass "${timing%; }"
}
step_jax() {
    need jax
    # Algorithms chosen by timing would change the results from run to run.
    local settings=("XLA_FLAGS=--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true" XLA_PYTHON_CLIENT_PREALLOCATE=false)
    framework default "${settings[@]}" -- "$python" "$programs/jax_job.py"
    framework platform "${settings[@]}" XLA_PYTHON_CLIENT_ALLOCATOR=platform -- "$python" "$programs/jax_job.py"
    pass "${timing%; }"
}
step_numba() {
    need numba numpy
    framework numba -- "$python" "$programs/numba_job.py"
    pass "${timing%; }"
}

# cap NAME FRAMEWORK ERROR [VAR=VALUE…]: stopped at 8 GiB by the framework's own ERROR (a pattern). Text in `capped`.
capped=""
cap() {
    local name=$1 framework=$2 error=$3 got peak device stopped
    shift 3
    with "$name" GPUCACHE_CONF=memory_limit:8GiB "$@" -- "$python" "$programs/cap.py" "$framework"
    got=$(value "$name" GOT) device=$(value "$name" DEVICE)
    stopped=$(sed -n 's/^STOPPED //p' "$logs/$step.$name.out")
    [ -e "$reports/$step.$name.json" ] || fail "$name: no report"
    peak=$(figure "$name" in_use_peak)
    figure "$name"
    [ "$(figure "$name" limit_bytes)" = $((8 * GIB)) ] || fail "$name: the report's limit is $(figure "$name" limit_bytes)"
    [[ "$stopped" =~ $error ]] || fail "$name: not the framework's own error: $stopped"
    if [ "$got" -lt $((6 * GIB)) ] || [ "$got" -gt $((8 * GIB)) ]; then fail "$name: got $got bytes, then $stopped"; fi
    if [ "$peak" -gt $((8 * GIB)) ] || [ "$peak" -lt "$got" ]; then fail "$name: in use at most $peak, got $got"; fi
    # From outside; the process's context takes its share on top.
    [ "$device" -le $((8192 + 2048)) ] || fail "$name: the device's used memory grew by $device MiB"
    [ "$(value "$name" AGAIN)" = 1 ] || fail "$name: nothing to be had after a part was given back"
    capped+="$name: $((got >> 20)) MiB, headroom $(($(figure "$name" headroom_bytes) >> 20)) MiB, ${stopped:0:90}; "
}
step_cap_torch_native() {
    need torch
    cap native torch OutOfMemoryError
    pass "${capped%; }"
}
step_cap_torch_expandable() {
    need torch
    cap expandable torch OutOfMemoryError PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    pass "${capped%; }"
}
step_cap_torch_async() {
    need torch
    cap async torch OutOfMemoryError PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync
    pass "${capped%; }"
}
step_cap_cupy() {
    need cupy
    cap cupy cupy OutOfMemoryError
    pass "${capped%; }"
}
step_cap_jax() {
    need jax
    # All of what the device reports, so that it is the cap which ends the growth.
    cap default jax RESOURCE_EXHAUSTED XLA_PYTHON_CLIENT_PREALLOCATE=false XLA_PYTHON_CLIENT_MEM_FRACTION=1.0
    cap platform jax RESOURCE_EXHAUSTED XLA_PYTHON_CLIENT_PREALLOCATE=false XLA_PYTHON_CLIENT_ALLOCATOR=platform
    pass "${capped%; }"
}

step_datasets_fork() {
    need torch
    local count
    mkdir -p "$reports/datasets-fork"
    bare bare -- "$python" "$programs/torch_loader.py"
    with with "GPUCACHE_REPORT=$reports/datasets-fork/%p.json" -- "$python" "$programs/torch_loader.py"
    same_result bare with -- "$python" "$programs/torch_loader.py"
    count=$(find "$reports/datasets-fork" -type f | wc -l)
    [ "$count" = 1 ] || fail "$count reports"
    cp "$reports"/datasets-fork/*.json "$reports/$step.with.json"
    seen with
    pass "one report, same result"
}
