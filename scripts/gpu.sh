#!/usr/bin/env bash
# What must be shown on a real GPU, in one command: builds the programs of tests/gpu, runs each without and with the
# library, compares, and ends with a table. Needs an NVIDIA GPU; nvcc for the CUDA steps; PyTorch, CuPy, JAX, Numba
# for theirs (a step whose needs are missing is skipped and says so).
#
#   scripts/gpu.sh [STEP…]     the named steps, or all; status 1 if any fails
#   scripts/gpu.sh --list      the steps and about how many seconds each takes on an H200
#
# Environment:
#   GPUCACHE_LIB         the library; default target/release/libgpucache.so, built with cargo if missing
#   GPUCACHE_TOOL        the tool; default: gpucache beside the library
#   GPUCACHE_UNSAFE_LIB  a build with --features unsafe-no-barrier, to show that `race` can fail (optional)
#   GPUCACHE_GPU_OUT     folder for programs, logs and reports; default target/gpu
#   GPUCACHE_GPU_ARCH    nvcc's -arch; default that of the first GPU
#   PYTHON               the Python that has the frameworks; default python3
set -u -o pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/.." || exit 2
root=$PWD
programs=$root/tests/gpu
# shellcheck source=tests/gpu/steps.sh
. "$programs/steps.sh"
# shellcheck source=tests/gpu/steps_more.sh
. "$programs/steps_more.sh"
# shellcheck source=tests/gpu/steps_expandable.sh
. "$programs/steps_expandable.sh"
# shellcheck source=tests/gpu/steps_watch.sh
. "$programs/steps_watch.sh"
# shellcheck source=tests/gpu/steps_turns.sh
. "$programs/steps_turns.sh"

# name, seconds on an H200, programs to compile (comma-separated, - for none), what it shows
table='
pair             6   pair           allocation + free of 1 MiB at most 12 times glibc'"'"'s malloc
race             45  race           freed memory is never reused while it is in use
contexts         20  semantics,capture  contexts, reset, captures, ranges and error codes as without the library
thrust-static    10  churn_static   a thrust program with the static runtime: same result, faster
thrust-shared    10  churn_shared   the same with the shared runtime
overlap          5   overlap        streams still overlap with an allocation around each kernel
ipc              6   ipc            exported blocks: own data or an error, never other data
procaddress      2   procaddress    every way of looking up a function leads to the same place
torch-cached     55  -              PyTorch as it is: same results to the bit
torch-uncached   55  -              PyTorch without its cache: at most 10 % slower than with it
cap-torch-native 15  -              8 GiB cap, PyTorch: its own out-of-memory error
cap-torch-expandable 15 -           8 GiB cap, PyTorch with expandable segments
cap-torch-async  15  -              8 GiB cap, PyTorch on cudaMallocAsync
torch-sites      70  -              sampled call sites: the place of a leak in PyTorch, at less than 2 % more time
torch-graph      30  -              graph capture and replay in PyTorch, its cache on and off
cupy             20  -              CuPy without its pool: same results
jax              40  -              JAX with both allocators: same results
numba            15  -              Numba: same results
cap-cupy         10  -              8 GiB cap, CuPy
cap-jax          30  -              8 GiB cap, JAX with both allocators
datasets-fork    25  -              forked DataLoader workers: one report, the parent'"'"'s
race-million     60  race           a million reuses over 16 threads and 128 streams: none of memory in use
sanitizer        40  race           compute-sanitizer finds as little with the library as without
torch-mp         90  -              torch.multiprocessing: tensors shared and written on both sides, cache on and off
cupy-more        70  -              CuPy: streams, events, IPC, reset, contexts, pinned and managed memory
numba-more       70  -              Numba: streams, events, IPC, close and reset
fork-cuda        40  -              forks of a process that uses the GPU: same statuses, one report, the parent'"'"'s
threads-end      10  threads_end    memory that ended threads leave behind is used again
corners          10  corners        threads that end in a capture, contexts never made current, green contexts
mapping-facts    10  mapping        what expandable segments take for granted of the driver
expandable-race  45  race           the races again with expandable segments
expandable-torch 90  -              PyTorch without its cache on expandable segments: same results, less memory
expandable-graph 30  -              graph capture and replay in PyTorch on expandable segments
doctor           3   -              gpucache doctor on a real driver
watch-torch      40  -              PyTorch under gpucache run: top, ctl, report while it runs; page, snapshot, trace
watch-cupy       25  -              the same of CuPy
watch-jax        30  -              the same of JAX
watch-killed     10  -              a killed process leaves a report
watch-api        10  -              the functions for programs, from Python
fleet            40  -              alarms and figures for Prometheus, of PyTorch, CuPy, JAX and plain programs at once
watch-cost       80  -              history and sampled call sites cost a training step less than 2 %
cost-gpt         95  -              a language model: at most 2 % slower on the pool than on PyTorch'"'"'s cache
cost-resnet      95  -              a residual net: at most 2 % slower on the pool, 1 % with the pool below that cache
cost-unet        95  -              a U-Net: the same
cost-streams     95  -              side streams: the same
multi-gpu        120 peers          two GPUs: peer copies, peer access, DataParallel, NCCL (skipped with one)
'
field() { awk -v step="$1" -v at="$2" '$1 == step { print $at }' <<<"$table"; }
all=$(awk 'NF { print $1 }' <<<"$table")

if [ "${1-}" = --list ]; then
    awk 'NF { text = ""; for (i = 4; i <= NF; i++) text = text " " $i; sum += $2
              printf "%-21s %3d s %s\n", $1, $2, text }
         END { printf "%-21s %3d s  (programs compile meanwhile)\n", "all", sum }' <<<"$table"
    exit
fi
for step in "$@"; do
    if [ -z "$(field "$step" 1)" ]; then
        echo "gpu.sh: no step is called '$step'; scripts/gpu.sh --list names them" >&2
        exit 2
    fi
done
# In the table's order, whatever that of the arguments.
steps=$(for step in $all; do
    if [ $# = 0 ] || [[ " $* " == *" $step "* ]]; then echo "$step"; fi
done)

library=${GPUCACHE_LIB:-$root/target/release/libgpucache.so}
tool=${GPUCACHE_TOOL:-$(dirname "$library")/gpucache}
unsafe_library=${GPUCACHE_UNSAFE_LIB-}
out=${GPUCACHE_GPU_OUT:-$root/target/gpu}
arch=${GPUCACHE_GPU_ARCH-}
python=${PYTHON:-python3}
# Nothing of the caller's settings may decide a comparison, and the library warns of variables that it does not know.
unset LD_PRELOAD GPUCACHE_GPU_OUT GPUCACHE_GPU_ARCH GPUCACHE_LIB GPUCACHE_TOOL GPUCACHE_UNSAFE_LIB GPUCACHE_CONF GPUCACHE_REPORT GPUCACHE_LOG GPUCACHE_DISABLE
unset GPUCACHE_PROM GPUCACHE_ALERT_FILE GPUCACHE_ALERT_COMMAND
unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF PYTORCH_NO_CUDA_MEMORY_CACHING
unset XLA_PYTHON_CLIENT_PREALLOCATE XLA_PYTHON_CLIENT_ALLOCATOR XLA_PYTHON_CLIENT_MEM_FRACTION XLA_CLIENT_MEM_FRACTION

if [ ! -e "$library" ] && [ "$library" = "$root/target/release/libgpucache.so" ] && command -v cargo >/dev/null; then
    echo "building the library"
    cargo build --release --lib || exit 2
fi
if [ ! -e "$library" ]; then
    echo "gpu.sh: no library at $library; build it with 'cargo build --release' or set GPUCACHE_LIB" >&2
    exit 2
fi
library=$(readlink -f "$library")
if [ -n "$unsafe_library" ]; then
    if [ ! -e "$unsafe_library" ]; then
        echo "gpu.sh: GPUCACHE_UNSAFE_LIB names no file: $unsafe_library" >&2
        exit 2
    fi
    unsafe_library=$(readlink -f "$unsafe_library")
fi
if [[ $(nvidia-smi -L 2>/dev/null) != GPU* ]]; then
    echo "gpu.sh: nvidia-smi finds no GPU" >&2
    exit 2
fi
if [ -z "$arch" ]; then
    # Not by nvcc's own `native`: that needs a driver library on the default path.
    capability=$(nvidia-smi -i 0 --query-gpu=compute_cap --format=csv,noheader | tr -dc 0-9)
    arch=sm_$capability
    [ -n "$capability" ] || arch=native
fi
mkdir -p "$out" || exit 2
out=$(readlink -f "$out")
bin=$out/bin logs=$out/logs reports=$out/reports results=$out/results
rm -rf "$bin" "$logs" "$reports" "$results"
mkdir -p "$bin" "$logs" "$reports" "$results"
export CUPY_CACHE_DIR=$out/cupy CUBLAS_WORKSPACE_CONFIG=:4096:8 PYTHONDONTWRITEBYTECODE=1
echo "library $library"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

# Compiles one program and leaves its status in BIN/NAME.rc, for which the step that needs it waits.
compile() {
    local name=$1 cuda flags=(-O2 -std=c++17 "-arch=$arch")
    if [ "$name" = procaddress ]; then
        "${CXX:-g++}" -O2 -std=c++17 -o "$bin/$name" "$programs/$name.cpp" -ldl
    elif ! command -v nvcc >/dev/null; then
        echo "no nvcc"
        false
    else
        cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
        case $name in
        churn_static) flags+=(-cudart static "$programs/churn.cu") ;;
        churn_shared)
            flags+=(-cudart shared "$programs/churn.cu")
            for folder in "$cuda/lib64" "$cuda/targets/$(uname -m)-linux/lib" "$cuda/lib"; do
                flags+=(-Xlinker -rpath -Xlinker "$folder")
            done
            ;;
        *) flags+=(-cudart static "$programs/$name.cu" -lcuda) ;;
        esac
        nvcc "${flags[@]}" -o "$bin/$name"
    fi >"$logs/compile.$name" 2>&1
    echo $? >"$bin/$name.rc"
}
needed=$(for step in $steps; do field "$step" 3; done | tr , '\n' | grep -v '^-$' | sort -u)
for name in $needed; do compile "$name" & done
# The compilers would disturb what is measured.
wait

# Whether the programs of a step are there; otherwise says what is missing.
compiled() {
    local name
    for name in ${1//,/ }; do
        [ "$name" = - ] && continue
        until [ -e "$bin/$name.rc" ]; do sleep 0.2; done
        if [ "$(cat "$bin/$name.rc")" != 0 ]; then
            if grep -qx 'no nvcc' "$logs/compile.$name"; then
                echo "SKIP no nvcc"
            else
                echo "FAIL $name does not compile"
                tail -n 20 "$logs/compile.$name" >&2
            fi
            return 1
        fi
    done
}

started=$SECONDS
for step in $steps; do
    begun=$SECONDS
    printf '%s … ' "$step"
    if missing=$(compiled "$(field "$step" 3)"); then
        # A step reports by pass, fail or skip, which end its subshell; one that ends otherwise has failed.
        (
            set -u
            "step_${step//-/_}"
            fail "ended without a result"
        ) >"$logs/$step" 2>&1 </dev/null
        [ -s "$results/$step" ] || echo "FAIL died; see $logs/$step" >"$results/$step"
    else
        echo "$missing" >"$results/$step"
    fi
    echo "$(cut -d' ' -f1 "$results/$step") ($((SECONDS - begun)) s)"
    # What the driver does, for the reader: most of it is nowhere documented.
    grep -hs '^fact' "$logs/$step" | sort -u | sed 's/^/    /'
    if grep -q ^FAIL "$results/$step" && [ -e "$logs/$step" ]; then
        tail -n 40 "$logs/$step" | sed 's/^/    | /'
    fi
done
wait

echo
status=0
for step in $steps; do
    read -r verdict figure <"$results/$step"
    printf '%-21s %-4s  %s\n' "$step" "$verdict" "$figure"
    [ "$verdict" != FAIL ] || status=1
done
echo "$((SECONDS - started)) s; logs in $logs, reports in $reports"
exit $status
