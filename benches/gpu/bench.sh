#!/usr/bin/env bash
# The library against its peers on a real GPU, in one run: `scripts/bench.sh --gpu` calls this. Needs an NVIDIA GPU that
# nobody else uses, and nvcc; PyTorch and RMM for their rows. Needs no Rust where the library is given.
#
#   bench.sh [--only NAME…] [--out FOLDER]    the named steps, or all, the most important first
#   bench.sh --list                           the steps, and about how many seconds each takes on an H200
#
# Tables go to stdout; FOLDER (default target/bench/gpu) gets a TSV file for each table, machine.tsv, logs and reports.
#
# Environment:
#   GPUCACHE_LIB         the library; default target/release/libgpucache.so, built with cargo if missing
#   GPUCACHE_UNSAFE_LIB  a build with --features unsafe-no-barrier, for what the safety costs (optional)
#   GPUCACHE_RMM         folder into which the wheels librmm-cu13 and rapids-logger were unpacked (optional)
#   GPUCACHE_COMMIT      what the library was built from; default this folder's commit
#   GPUCACHE_GPU_ARCH    nvcc's -arch; default that of the first GPU
#   GPUCACHE_SECONDS     no step begins after so many; default 420
#   PYTHON               the Python that has PyTorch; default python3
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
root=$PWD
programs=$root/tests/gpu
# shellcheck source=tests/gpu/steps.sh
. "$programs/steps.sh"
# shellcheck source=benches/gpu/steps.sh
. benches/gpu/steps.sh

# name, seconds on an H200, programs (comma-separated, - for none), what it shows
table='
replay-gpt     25  replay,replay.torch,replay.rmm    a job'"'"'s allocations through each allocator: time, memory, driver calls
replay-resnet  20  replay,replay.torch,replay.rmm    the same
replay-unet    20  replay,replay.torch,replay.rmm    the same
pair           6   pair                              one pair against cudaMalloc and glibc malloc
job-gpt        60  watch                             a PyTorch job: ms a step and driver memory
job-resnet     60  watch                             the same
job-unet       55  watch                             the same
job-generate   75  watch                             the same
job-rnn        50  watch                             the same
job-mixed      50  watch                             the same
threads        25  threads,threads.torch             1, 4 and 16 threads, own and cross-thread frees
overlap        5   overlap                           streams that overlap, with an allocation around each kernel
race           25  race                              many threads and streams: what the safety costs
churn          10  churn                             a thrust program
jobs-off       40  watch                             the PyTorch jobs without any cache
'
field() { awk -v step="$1" -v at="$2" '$1 == step { print $at }' <<<"$table"; }
all=$(awk 'NF { print $1 }' <<<"$table")

only=()
out=${GPUCACHE_GPU_OUT:-$root/target/bench/gpu}
while [ $# -gt 0 ]; do
    case $1 in
    --list)
        awk 'NF { text = ""; for (i = 4; i <= NF; i++) text = text " " $i; sum += $2; printf "%-14s %3d s %s\n", $1, $2, text }
             END { printf "%-14s %3d s, and the time to compile\n", "all", sum }' <<<"$table"
        exit
        ;;
    --out) out=${2:?--out names a folder} && shift ;;
    --only) ;;
    *)
        if [ -z "$(field "$1" 1)" ]; then
            echo "bench.sh: no step is called '$1'; scripts/bench.sh --gpu --list names them" >&2
            exit 2
        fi
        only+=("$1")
        ;;
    esac
    shift
done
# In the table's order, whatever that of the arguments.
steps=$(for step in $all; do
    if [ ${#only[@]} = 0 ] || [[ " ${only[*]} " == *" $step "* ]]; then echo "$step"; fi
done)

library=${GPUCACHE_LIB:-$root/target/release/libgpucache.so}
unsafe_library=${GPUCACHE_UNSAFE_LIB-} rmm=${GPUCACHE_RMM-} arch=${GPUCACHE_GPU_ARCH-} seconds=${GPUCACHE_SECONDS:-420}
commit=${GPUCACHE_COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
python=${PYTHON:-python3}
# Nothing of the caller's settings may decide a comparison.
unset LD_PRELOAD "${!GPUCACHE_@}" "${!PYTORCH_@}" 2>/dev/null
if [ ! -e "$library" ] && [ "$library" = "$root/target/release/libgpucache.so" ] && command -v cargo >/dev/null; then
    cargo build --release --lib || exit 2
fi
for file in "$library" ${unsafe_library:+"$unsafe_library"}; do
    if [ ! -e "$file" ]; then
        echo "bench.sh: no library at $file; build it with 'cargo build --release' or set GPUCACHE_LIB" >&2
        exit 2
    fi
done
library=$(readlink -f "$library")
[ -z "$unsafe_library" ] || unsafe_library=$(readlink -f "$unsafe_library")
if [ -n "$rmm" ] && [ ! -d "$rmm/librmm/include" ]; then
    echo "bench.sh: GPUCACHE_RMM=$rmm has no librmm/include; RMM is left out" >&2
    rmm=
fi
if [[ $(nvidia-smi -L 2>/dev/null) != GPU* ]]; then
    echo "bench.sh: nvidia-smi finds no GPU" >&2
    exit 2
fi
mkdir -p "$out" || exit 2
out=$(readlink -f "$out")
logs=$out/logs reports=$out/reports results=$out/results
rm -rf "$logs" "$reports" "$results" "$out"/*.tsv
mkdir -p "$logs" "$reports" "$results"
bin=$(mktemp -d) # not among the results, which may be carried elsewhere
trap 'rm -rf "$bin"' EXIT
export PYTHONDONTWRITEBYTECODE=1

version_of() { "$python" -c "import importlib.metadata as m; print(m.version('$1'))" 2>/dev/null || echo none; }
{
    nvidia-smi -i 0 --query-gpu=name,driver_version,memory.total --format=csv,noheader |
        awk -F ', ' '{ printf "gpu\t%s\ndriver\t%s\nmemory\t%s\n", $1, $2, $3 }'
    printf 'cuda\t%s\n' "$(nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
    printf 'torch\t%s\n' "$(version_of torch)"
    printf 'rmm\t%s\n' "$([ -z "$rmm" ] || cat "$rmm/librmm/VERSION" 2>/dev/null)"
    printf 'cpu\t%s cores, %s\n' "$(nproc)" "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
    printf 'commit\t%s\nlibrary\t%s\ndate\t%s\n' "$commit" "$(basename "$library")" "$(date -u +%Y-%m-%d)"
} >"$out/machine.tsv"
cat "$out/machine.tsv"

needed=$(for step in $steps; do field "$step" 3; done | tr , '\n' | grep -v '^-$' | sort -u)
for name in $needed; do compile "$name" & done
# The compilers would disturb what is measured.
wait
for trace in gpt resnet unet; do gzip -dc "benches/traces/$trace.trace.gz" >"$bin/$trace"; done
echo "compiled after $SECONDS s"

for step in $steps; do
    begun=$SECONDS
    if [ "$SECONDS" -gt "$seconds" ]; then
        echo "SKIP $SECONDS s are over" >"$results/$step"
    else
        # A step adds its rows as it gets them, so that one that dies leaves what it had.
        (
            set -u
            "step_${step//-/_}"
            pass ""
        ) >"$logs/$step" 2>&1 </dev/null
        [ -s "$results/$step" ] || echo "FAIL died; see $logs/$step" >"$results/$step"
    fi
    echo
    echo "== $step: $(cat "$results/$step") ($((SECONDS - begun)) s)"
    show "$step"
    grep -q ^PASS "$results/$step" || tail -n 25 "$logs/$step" 2>/dev/null | sed 's/^/    | /'
done
echo
echo "$SECONDS s; tables, logs and reports in $out"
! grep -lq ^FAIL "$results"/*
