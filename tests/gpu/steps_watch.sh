# shellcheck shell=bash
# Steps of scripts/gpu.sh that look at programs while they run and afterwards: the tool, the live file, the history, the
# functions for programs. Sourced after steps.sh, whose functions they use.
# shellcheck disable=SC2154

# tool NAME ARGUMENTS…: the tool's output to LOGS/STEP.NAME.{out,err}; gives its status.
tool() {
    local name=$1
    shift
    echo "+ $tool $*"
    GPUCACHE_LIB=$library timeout -k 5 60 "$tool" "$@" >"$logs/$step.$name.out" 2>"$logs/$step.$name.err"
}
asks() {
    local name=$1
    tool "$@" || fail "gpucache $2: status $?: $(tail -n 3 "$logs/$step.$name.err")"
}
need_tool() { [ -x "$tool" ] || skip "no tool at $tool; build it with 'cargo build --release' or set GPUCACHE_TOOL"; }

# watched NAME COMMAND…: runs it under the tool with everything on, asks it while it runs, and looks at what it leaves.
watched() {
    local name=$1 page=$out/$step.$1.html json=$reports/$step.$1.json pid shown=0 answered=0
    shift
    rm -f "$page" "$json"
    GPUCACHE_LIB=$library timeout -k 5 "${limit:-90}" "$tool" run --conf history:20000,sites:8MiB --report "$json" --html "$page" \
        -- "$@" >"$logs/$step.$name.out" 2>"$logs/$step.$name.err" &
    local job=$!
    for _ in {1..120}; do
        sleep 0.25
        kill -0 $job 2>/dev/null || break
        tool "$name.top" top --once --json || true
        grep -q '"reserved_bytes": *[1-9]' "$logs/$step.$name.top.out" || continue
        shown=1
        pid=$("$python" "$programs/watched.py" pid "$logs/$step.$name.top.out") || continue
        tool "$name.ctl" ctl "$pid" --wait 2 reset-peak && answered=1
        tool "$name.now" report "$pid" && break
    done
    wait $job || fail "$name: status $?: $(tail -n 5 "$logs/$step.$name.err")"
    [ $shown = 1 ] || fail "$name: gpucache top never showed it"
    # JAX takes its pool once: a process that makes no calls answers when it does.
    [ $answered = 1 ] || [ "$name" = jax ] || fail "$name: gpucache ctl got no answer ($(cat "$logs/$step.$name.ctl.err"))"
    grep -q 'reserved' "$logs/$step.$name.now.out" || fail "$name: no report while it ran"
    asks "$name.viz" report "$json" --memory-viz "$out/$step.$name.pickle"
    asks "$name.trace" report "$json" --trace "$out/$step.$name.trace.json"
    asks "$name.leaks" report "$json" --leaks
    bare "$name.check" -- "$python" "$programs/watched.py" check "$json" "$page" "$out/$step.$name.pickle" "$out/$step.$name.trace.json"
    echo "fact [$name] $(value "$name.check" summary | tr _ ' ')"
}

step_doctor() {
    need_tool
    asks doctor doctor "$(command -v "$python")"
    sed 's/^/fact /' "$logs/$step.doctor.out" | head -n 20
    pass "$(grep -c '^ok' "$logs/$step.doctor.out") checks are good, for $(basename "$(command -v "$python")")"
}

step_watch_torch() {
    need_tool
    need torch
    local limit=90
    watched torch env PYTORCH_NO_CUDA_MEMORY_CACHING=1 "$python" "$programs/torch_jobs.py" gpt:30
    pass "$(value torch.check summary | tr _ ' ')"
}

step_watch_cupy() {
    need_tool
    need cupy
    local limit=90
    watched cupy "$python" "$programs/watched.py" cupy
    pass "$(value cupy.check summary | tr _ ' ')"
}

step_watch_jax() {
    need_tool
    need jax
    local limit=90
    watched jax env XLA_PYTHON_CLIENT_PREALLOCATE=false "$python" "$programs/watched.py" jax
    pass "$(value jax.check summary | tr _ ' ')"
}

# A process that is killed leaves a report all the same.
step_watch_killed() {
    need_tool
    need torch
    local limit=60 pid
    run killed "$library" PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "$python" "$programs/watched.py" killed && fail "it was not killed"
    pid=$(value killed pid)
    asks report report "$pid"
    grep -q 'killed' "$logs/$step.report.out" || fail "the report does not say that it was killed"
    grep -q '3.00 GiB' "$logs/$step.report.out" || fail "the report lacks what was held: $(grep 'at the end' "$logs/$step.report.out")"
    pass "a report of process $pid from its live file: $(grep -o 'at the end .*' "$logs/$step.report.out")"
}

# The functions for programs, from Python, in a process with PyTorch.
step_watch_api() {
    need torch
    local limit=60
    with api PYTORCH_NO_CUDA_MEMORY_CACHING=1 "PYTHONPATH=$root/python" -- "$python" "$programs/watched.py" api
    [ "$(value api RESULT)" = good ] || fail "$(cat "$logs/$step.api.out")"
    pass "figures, phases, peaks, a lowered cap and an emptied cache agree with PyTorch's tensors"
}

# Alarms and figures for Prometheus of several programs at once, as on a node that is monitored: all leave them in one folder.
step_fleet() {
    # shellcheck disable=SC2034 # of `run`, which takes it from here
    local limit=90 folder=$out/fleet name kind text="" jobs=(driver managed) loud quiet settings running=()
    has torch && jobs+=(torch torch-off)
    has cupy && jobs+=(cupy)
    has jax && jobs+=(jax)
    rm -rf "$folder"
    for name in "${jobs[@]}"; do
        mkdir -p "$folder/$name.commands"
        kind=${name%-off}
        loud=held:0.25 quiet=held:0.9,growth:64MiB,leak:3,reserved:6GiB settings=()
        # With a cache of its own, how the memory lies below is that cache's doing.
        case $name in
        torch) loud+=,allocated:1GiB,reserved:1536MiB ;;
        torch-off) settings=(PYTORCH_NO_CUDA_MEMORY_CACHING=1) ;&
        driver | cupy) loud+=,allocated:1GiB,reserved:1536MiB,fragmentation:0.5 ;;
        jax) settings=(XLA_PYTHON_CLIENT_PREALLOCATE=false) ;;
        esac
        echo "${loud//,/ } -- ${quiet//,/ }" >"$folder/$name.alarms"
        run "$name" "$library" "${settings[@]}" "GPUCACHE_CONF=memory_limit:8GiB,alert:[$loud,$quiet]" \
            "GPUCACHE_REPORT=$folder/$name.json" "GPUCACHE_PROM=$folder/$name.prom" "GPUCACHE_ALERT_FILE=$folder/$name.jsonl" \
            FLEET=kept "FLEET_FOLDER=$folder/$name.commands" \
            "GPUCACHE_ALERT_COMMAND={ env; echo DONE=1; } >\"\$FLEET_FOLDER/\$ALERT_NAME-\$\$\"" \
            -- "$python" "$programs/fleet.py" job "$kind" &
        running+=($!)
    done
    for name in "${jobs[@]}"; do
        wait "${running[0]}" || fail "$name: status $?: $(tail -n 3 "$logs/$step.$name.err")"
        running=("${running[@]:1}")
        cp "$logs/$step.$name.err" "$folder/$name.err"
        read -r -a quiet <"$folder/$name.alarms"
        run "$name.check" "" -- "$python" "$programs/fleet.py" check "$folder" "$name" "${quiet[@]}" ||
            fail "$(tail -n 1 "$logs/$step.$name.check.err")"
        text+="$name: $(sed -n 's/^summary //p' "$logs/$step.$name.check.out"); "
    done
    bare together -- "$python" "$programs/prom_file.py" "$folder"/*.prom
    text+="$(cat "$logs/$step.together.out")"
    if command -v promtool >/dev/null; then
        for name in "${jobs[@]}"; do
            promtool check metrics <"$folder/$name.prom" || fail "promtool does not like $name.prom: $text"
        done
        text+=", as promtool likes them"
    fi
    pass "$text"
}
