# shellcheck shell=bash
# Steps of scripts/gpu.sh that compare times, by turns.py: what PyTorch costs on the pool, beside it, and watched. Sourced
# after steps.sh, whose functions they use.
# shellcheck disable=SC2154

# What a setting of turns.py is, with the library: a line each.
library_on() { printf '%s\n' "LD_PRELOAD=$library" "GPUCACHE_REPORT=$reports/$step.$1.json"; }

# in_turns [OPTION VALUE]… SETTING [VAR=VALUE…]… -- COMMAND…: its figures for the reader, and the comparisons in `compared`.
in_turns() {
    # shellcheck disable=SC2034 # of `run`, which takes it from here
    local limit=150
    bare turns -- "$python" "$programs/turns.py" "$@"
    awk '$1 == "ms" { ms[$2] = $3; low[$2] = $4 }
         $1 == "noise" { printf "fact %s: %s ms (lowest %s), %s %% between rounds, turns %s %% off their median\n", \
                                $2, ms[$2], low[$2], $3, $4 }' "$logs/$step.turns.out"
    compared=$(awk '$1 == "ratio" { split($2, of, "/"); half = 100 * ($5 - $4) / 2
        printf "%s is %+.2f %% of %s, noise %.2f %%, %s; ", of[1], 100 * ($3 - 1), of[2], half, $6 }
        $1 == "round" { rounds++ } END { print rounds " rounds" }' "$logs/$step.turns.out")
}
# The step has failed if a bound is shown to be broken; it says nothing if the noise hides that.
hold_bounds() {
    ! grep -q '^ratio .* above$' "$logs/$step.turns.out" || fail "$1"
    ! grep -q '^ratio .* unclear$' "$logs/$step.turns.out" || skip "too noisy to tell: $1"
}
said() { awk -v name="$1" -v key="$2" '$1 == "said" && $2 == name && $3 == key { print $4 }' "$logs/$step.turns.out"; }
turn_ms() { awk -v name="$1" '$1 == "ms" && $2 == name { print $3 }' "$logs/$step.turns.out"; }

# cost JOB STEPS TURNS, each of one of the steps: a PyTorch job on its own cache, on that with the library beneath, and on the pool alone.
cost() {
    need torch numpy
    local text native pool times beside_on pool_on off=PYTORCH_NO_CUDA_MEMORY_CACHING=1
    mapfile -t beside_on < <(library_on beside)
    mapfile -t pool_on < <(library_on pool)
    in_turns --seconds 90 --rounds 6 --turns "$3" --pieces "$2" --at-most pool/native:1.02 --at-most beside/native:1.01 \
        native beside "${beside_on[@]}" pool $off "${pool_on[@]}" -- "$python" "$root/benches/gpu/jobs.py" "$1" "$2" turns
    seen pool
    seen beside
    # What each has from the driver at most, contexts and code left out.
    native=$(said native MEMORY) pool=$(figure pool driver_mib)
    times=$(calc "$pool / $native" %.3f)
    text="ms a step: native $(turn_ms native), beside $(turn_ms beside), pool $(turn_ms pool); $compared"
    text+="; driver memory: native $native MiB, beside $(figure beside driver_mib) MiB, pool $pool MiB ($times x)"
    [ "$(figure beside driver_mib)" -ge "$(said beside MEMORY)" ] ||
        fail "PyTorch beside the library reserved $(said beside MEMORY) MiB, more than it saw; $text"
    hold_bounds "$text"
    pass "$text"
}
step_cost_gpt() { cost gpt 10 80; }
step_cost_resnet() { cost resnet 16 128; }
step_cost_unet() { cost unet 16 128; }
step_cost_streams() { cost streams 10 80; }

# watched_cost PIECES TURNS CONF JOB…, a job of so many different pieces: what a setting that watches costs a job whose every tensor the library sees.
watched_cost() {
    local pieces=$1 turns=$2 conf=$3 on off hidden=PYTORCH_NO_CUDA_MEMORY_CACHING=1
    shift 3
    mapfile -t on < <(library_on on)
    mapfile -t off < <(library_on off)
    in_turns --seconds 75 --rounds 6 --turns "$turns" --pieces "$pieces" --at-most on/off:1.02 \
        off $hidden "${off[@]}" on $hidden "${on[@]}" "GPUCACHE_CONF=$conf" -- "$python" "$@"
    seen on
    timed="ms a step: $(turn_ms off) -> $(turn_ms on); $compared"
}

# What it costs to be watched, with everything on.
step_watch_cost() {
    need torch
    watched_cost 10 100 history:20000,sites:True "$root/benches/gpu/jobs.py" gpt 10 turns
    timed+="; $("$python" -c 'import json, sys
report = json.load(open(sys.argv[1]))
print(report["history"]["recorded"], "events,", report["devices"][0]["sites"]["all"]["samples"], "samples")' "$reports/$step.on.json")" ||
        fail "the report lacks history or sites; $timed"
    hold_bounds "$timed"
    pass "$timed"
}

# Frames of Python are read from 3.13 on; before, PyTorch has given the interpreter's lock back, and only the amount can be
# held.
step_torch_sites() {
    need torch
    local name text
    watched_cost 0 40 sites:True "$programs/torch_sites.py" turns 5
    with exact PYTORCH_NO_CUDA_MEMORY_CACHING=1 GPUCACHE_CONF=sites:1 -- "$python" "$programs/torch_sites.py" 20
    seen exact
    for name in on exact; do
        bare "check-$name" -- "$python" "$programs/torch_sites.py" check "$reports/$step.$name.json"
    done
    text="$timed; leak of 2048 MiB: $(value check-on leak_mib) MiB by $(value check-on samples) samples, $(value check-exact leak_mib) MiB exactly"
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 13))'; then
        [ "$(value check-exact leak_mib)" = 2048 ] || fail "$text"
    fi
    hold_bounds "$text"
    pass "$text; $(value check-exact python) of $(value check-exact samples) samples with Python"
}
