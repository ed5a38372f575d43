# shellcheck shell=bash
# The steps of benches/gpu/bench.sh, which sources this file after tests/gpu/steps.sh (run, value, figure, …) and sets
# besides what that one asks for: root, out, rmm, arch. A row of a table that cannot be had is left out, and said in the
# step's verdict.
# Variables are set for, and by, the other files; $1 in single quotes is awk's.
# shellcheck disable=SC2154,SC2034,SC2016

# A toolkit's or a Python package's CUDA runtime, whichever PyTorch uses if it has its own.
cuda_home() { dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")"; }
torch_home() {
    "$python" -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")'
}
shared_runtime() {
    local cuda torch place
    cuda=$(cuda_home) torch=$(torch_home)
    for place in ${torch:+"$torch"/../nvidia/cu*/lib "$torch"/../nvidia/cuda_runtime/lib "$torch"/lib} \
        "$cuda/lib64" "$cuda/targets/$(uname -m)-linux/lib" "$cuda/lib"; do
        ls "$place"/libcudart.so.1[2-9] 2>/dev/null
    done | head -n 1
}

# Compiles one program and leaves its status in BIN/NAME.rc.
compile() {
    {
        if ! command -v nvcc >/dev/null && [ "$1" != watch ]; then
            echo "no nvcc"
            false
        else
            compile_one "$1"
        fi
    } >"$logs/compile.$1" 2>&1
    echo $? >"$bin/$1.rc"
}
compile_one() {
    local name=$1 source=$root/benches/gpu/${1%.*}.cpp flags=(-O2 -std=c++17) torch runtime
    case $name in
    watch) "${CXX:-g++}" -O2 -std=c++17 -o "$bin/$name" "$source" -ldl ;;
    replay | threads) nvcc "${flags[@]}" -Xcompiler -pthread -cudart static -o "$bin/$name" "$source" -lcuda -ldl ;;
    *.torch)
        torch=$(torch_home) runtime=$(shared_runtime)
        [ -n "$torch" ] || { echo "no torch"; return 1; }
        "${CXX:-g++}" -O2 -std=c++20 -DWITH_TORCH -I"$torch/include" -I"$torch/include/torch/csrc/api/include" \
            -I"$(cuda_home)/include" -o "$bin/$name" "$source" -L"$torch/lib" -lc10_cuda -lc10 "$runtime" \
            -Wl,-rpath,"$torch/lib:$(dirname "$runtime")" -ldl -pthread
        ;;
    *.rmm)
        [ -n "$rmm" ] || { echo "no RMM: GPUCACHE_RMM is not set"; return 1; }
        runtime=$(shared_runtime)
        "${CXX:-g++}" -O2 -std=c++20 -DWITH_RMM -I"$rmm/librmm/include" -I"$rmm/librmm/include/rapids" \
            -I"$rmm/rapids_logger/include" -I"$(cuda_home)/include" -o "$bin/$name" "$source" -L"$rmm/librmm/lib64" \
            -L"$rmm/rapids_logger/lib64" -lrmm -lrapids_logger "$runtime" \
            -Wl,-rpath,"$rmm/librmm/lib64:$rmm/rapids_logger/lib64:$(dirname "$runtime")" -ldl -pthread
        ;;
    *)
        if [ -z "$arch" ]; then
            # Not by nvcc's own `native`: that needs a driver library on the default path.
            arch=sm_$(nvidia-smi -i 0 --query-gpu=compute_cap --format=csv,noheader | tr -dc 0-9)
        fi
        nvcc "${flags[@]}" "-arch=$arch" -cudart static -o "$bin/$name" "$programs/$name.cu" -lcuda
        ;;
    esac
}
# there PROGRAM: it compiled; otherwise the verdict will say that it did not.
missing=()
there() {
    [ "$(cat "$bin/$1.rc" 2>/dev/null)" = 0 ] && return
    missing+=("$1: $(tail -n 1 "$logs/compile.$1")")
    tail -n 15 "$logs/compile.$1"
    return 1
}
# pass "" ends a step that has its rows; steps.sh's verdict would not say what is missing.
pass() {
    local kind=PASS one
    for one in ${missing[@]+"${missing[@]}"}; do
        # What is not installed is no failure; what does not compile or run is.
        [[ $one == *': no '* ]] || kind=FAIL
    done
    verdict $kind "$(IFS=';' && echo "${*}${missing[*]+missing: ${missing[*]}}")"
}
row() {
    local file=$out/$1.tsv
    shift
    (IFS=$'\t' && echo "$*") >>"$file"
}
header() { [ -e "$out/$1.tsv" ] || row "$@"; }
# measure NAME LIBRARY …: run, or remember that it failed.
measure() {
    run "$@" && return
    missing+=("$1 failed with status $?")
    return 1
}
# Whether the library has expandable segments, as the named run under that setting shows.
expandable() { ! grep -qs 'expandable_segments.*not supported' "$logs/$step.$1.err"; }
EXPANDABLE=GPUCACHE_CONF=expandable_segments:True
TORCH_EXPANDABLE=PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

# replayed TRACE ALLOCATOR NAME [yardstick]: the row of a finished run. Where NVML was not to be had and the library was preloaded, its own
# report must say what it took: cudaMemGetInfo tells the pool's view.
replayed() {
    local name=$3 live driver source calls ratio
    live=$(value "$name" live) driver=$(value "$name" driver) source=$(value "$name" driver 3) calls=$(value "$name" calls)
    if [ -e "$reports/$step.$name.json" ] && [ "$source" != nvml ]; then
        driver=$(($(figure "$name" driver_mib) << 20)) source=report
    fi
    ratio=$(calc "$driver / $live" %.3f)
    # Host memory, or none.
    [ -z "${4-}" ] || ratio=- source=-
    [ "$2" != cudaMalloc ] || calls=$(awk 'END { print 4 * n } $1 == "a" { n++ }' "$bin/$1")
    row replay "$1" "$2" "$(calc "$(value "$name" alloc 2) + $(value "$name" free 2)" %.0f)" \
        "$(value "$name" alloc 3)" "$(value "$name" alloc 4)" "$(value "$name" alloc 5)" \
        "$(value "$name" free 3)" "$(value "$name" free 4)" "$(value "$name" free 5)" \
        "$ratio" "$source" "${calls/#-1/-}" "$(value "$name" clock)" \
        "$(of_still 3)" "$(of_still 4)" "$(of_still 5)"
}
# Of the row's pairs for which the pool neither took nor gave memory, as far as that can be told.
of_still() {
    local figure
    figure=$(value "$name" still_pair "$1")
    echo "${figure:--}"
}
replay() {
    local trace=$1 limit=40
    header replay trace allocator pair_ns alloc_p50 alloc_p99 alloc_p999 free_p50 free_p99 free_p999 \
        memory_ratio memory_from driver_calls clock_ns still_pair_p50 still_pair_p99 still_pair_p999
    if there replay; then
        measure library "$library" -- "$bin/replay" "$bin/$trace" driver && replayed "$trace" gpucache library
        measure static "$library" -- "$bin/replay" "$bin/$trace" runtime && replayed "$trace" "gpucache by cudaMalloc" static
        measure expandable "$library" $EXPANDABLE -- "$bin/replay" "$bin/$trace" driver && expandable expandable &&
            replayed "$trace" "gpucache expandable" expandable
    fi
    if there replay.torch; then
        measure torch "" -- "$bin/replay.torch" "$bin/$trace" torch && replayed "$trace" PyTorch torch
        measure torch-expandable "" $TORCH_EXPANDABLE -- "$bin/replay.torch" "$bin/$trace" torch &&
            replayed "$trace" "PyTorch expandable" torch-expandable
    fi
    if there replay; then
        measure async "" -- "$bin/replay" "$bin/$trace" async && replayed "$trace" cudaMallocAsync async
        measure cuda "" -- "$bin/replay" "$bin/$trace" runtime && replayed "$trace" cudaMalloc cuda
        measure malloc "" -- "$bin/replay" "$bin/$trace" whole && replayed "$trace" "glibc malloc" malloc yardstick
        measure nothing "" -- "$bin/replay" "$bin/$trace" nothing && replayed "$trace" nothing nothing yardstick
    fi
    if there replay.rmm; then
        measure rmm "" -- "$bin/replay.rmm" "$bin/$trace" rmm && replayed "$trace" "RMM pool" rmm
    fi
}
step_replay_gpt() { replay gpt; }
step_replay_resnet() { replay resnet; }
step_replay_unet() { replay unet; }

step_pair() {
    local limit=30 name
    header pair allocator interface bytes held ns
    header spread allocator interface bytes held p50_ns p99_ns p999_ns
    there pair || return
    for name in without with; do
        measure $name "$([ $name = without ] || echo "$library")" -- "$bin/pair" || continue
        awk -v allocator="$([ $name = with ] && echo gpucache || echo driver)" -v OFS='\t' \
            '$1 == "spread" { $1 = allocator; print }' "$logs/$step.$name.out" >>"$out/spread.tsv"
        while read -r interface bytes held ns; do
            [ "$interface" != spread ] || continue
            if [ "$interface" = malloc ]; then
                [ $name = with ] && row pair "glibc malloc" malloc "$bytes" "$held" "$ns"
            else
                row pair "$([ $name = with ] && echo gpucache || echo driver)" "$interface" "$bytes" "$held" "$ns"
            fi
        done <"$logs/$step.$name.out"
    done
}

# threads_of ALLOCATOR LIBRARY PROGRAM BACKEND PAIRS: so many that sixteen threads take a tenth of a second, for pools and caches fill at first.
threads_of() {
    local limit=40 kind count rate name=${1// /-}
    measure "$name" "$2" -- "$bin/$3" "$4" "$5" || return
    while read -r kind count rate; do
        row threads "$1" "$kind" "$count" "$rate"
    done <"$logs/$step.$name.out"
}
step_threads() {
    header threads allocator frees threads million_pairs_per_s
    if there threads; then
        threads_of gpucache "$library" threads runtime 4000000
        threads_of cudaMallocAsync "" threads async 300000
        threads_of cudaMalloc "" threads runtime 16384
        threads_of "glibc malloc" "" threads malloc 8000000
    fi
    if there threads.torch; then threads_of PyTorch "" threads.torch torch 1000000; fi
}

step_overlap() {
    local limit=30
    header programs program what without gpucache unsafe
    there overlap || return
    measure bare "" -- "$bin/overlap" && measure with "$library" -- "$bin/overlap" &&
        row programs overlap "ms, no allocation $(value bare none_ms)" "$(value bare around_ms)" "$(value with around_ms)" -
}
step_race() {
    local limit=60 unsafe=-
    header programs program what without gpucache unsafe
    there race || return
    measure bare "" -- "$bin/race" 8 2000 && measure with "$library" -- "$bin/race" 8 20000 || return
    if [ -n "$unsafe_library" ]; then
        measure unsafe "$unsafe_library" -- "$bin/race" 8 20000 && unsafe=$(value unsafe us)
        row programs race "wrong words" "$(value bare wrong)" "$(value with wrong)" "$(value unsafe wrong)"
    fi
    row programs race "us an iteration" "$(value bare us)" "$(value with us)" "$unsafe"
}
step_churn() {
    local limit=60
    header programs program what without gpucache unsafe
    there churn || return
    measure bare "" -- "$bin/churn" && measure with "$library" -- "$bin/churn" &&
        row programs thrust ms "$(value bare ms)" "$(value with ms)" -
}

# job JOB STEPS ALLOCATOR NAME LIBRARY [VAR=VALUE…]
job() {
    local job=$1 steps=$2 allocator=$3 name=$4 preload=$5 driver=- settings=("${@:6}")
    local limit=75
    local command=("$python" "$root/benches/gpu/jobs.py" "$job" "$steps")
    if [ "$(cat "$bin/watch.rc" 2>/dev/null)" = 0 ]; then
        measure "$name" "$preload" "${settings[@]}" -- "$bin/watch" "$bin/peak" "${command[@]}" || return
        driver=$(cat "$bin/peak")
    else
        measure "$name" "$preload" "${settings[@]}" -- "${command[@]}" || return
    fi
    if [[ " ${settings[*]-} " == *" $EXPANDABLE "* ]] && ! expandable "$name"; then return; fi
    [ "$driver" = - ] || driver=$((driver >> 20))
    row jobs "$job" "$allocator" "$(value "$name" TIME 3)" "$(value "$name" TIME 2)" "$driver" \
        "$(value "$name" MEMORY)" "$(value "$name" LOSS)"
}
jobs_header() { header jobs job allocator ms_a_step first_pass_ms driver_mib torch_reserved_mib loss; }
jobs_of() {
    local off=PYTORCH_NO_CUDA_MEMORY_CACHING=1
    jobs_header
    need torch numpy
    job "$1" "$2" "PyTorch's cache" native ""
    job "$1" "$2" "gpucache, cache off" pool "$library" $off
    job "$1" "$2" "gpucache expandable, cache off" pool-expandable "$library" $off $EXPANDABLE
    job "$1" "$2" "gpucache under PyTorch's cache" beside "$library"
    job "$1" "$2" "PyTorch expandable" expandable "" $TORCH_EXPANDABLE
}
step_job_gpt() { jobs_of gpt 12; }
step_job_resnet() { jobs_of resnet 16; }
step_job_unet() { jobs_of unet 20; }
step_job_generate() { jobs_of generate 6; }
step_job_rnn() { jobs_of rnn 20; }
step_job_mixed() { jobs_of mixed 60; }
step_jobs_off() {
    jobs_header
    need torch numpy
    job gpt 12 "cache off" gpt "" PYTORCH_NO_CUDA_MEMORY_CACHING=1
    job resnet 16 "cache off" resnet "" PYTORCH_NO_CUDA_MEMORY_CACHING=1
    job unet 20 "cache off" unet "" PYTORCH_NO_CUDA_MEMORY_CACHING=1
}

# show STEP: its rows, for the reader.
show() {
    local file=$1 filter='1'
    case $1 in
    replay-*) file=replay filter="\$1 == \"${1#replay-}\"" ;;
    job-*) file=jobs filter="\$1 == \"${1#job-}\"" ;;
    jobs-off) file=jobs filter='$2 == "cache off"' ;;
    overlap | race) file=programs filter="\$1 == \"$1\"" ;;
    churn) file=programs filter='$1 == "thrust"' ;;
    esac
    [ -e "$out/$file.tsv" ] || return 0
    awk -F '\t' "NR == 1 || $filter" "$out/$file.tsv" |
        awk -F '\t' '
            { for (i = 1; i <= NF; i++) { cell[NR, i] = $i; if (length($i) > wide[i]) wide[i] = length($i) }
              n = NF > n ? NF : n }
            END { for (r = 1; r <= NR; r++) {
                      line = ""
                      for (i = 1; i <= n; i++) line = line sprintf("%-" wide[i] + 2 "s", cell[r, i])
                      sub(/ +$/, "", line)
                      print "  " line } }'
    [ "$1" != pair ] || show spread
}
