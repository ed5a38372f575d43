#!/usr/bin/env bash
# Shows the library at work: a small training-like program in C, unmodified, first without and then with it, under a cap;
# then the report. On a real GPU where there is one (and a CUDA runtime library), else on a simulated one.
#
#   scripts/demo.sh [STEPS]
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
steps=${1:-200}
CAP=320MiB
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
library=$target/release/libgpucache.so
demo=$target/demo
unset LD_PRELOAD "${!GPUCACHE_@}" "${!PYTORCH_@}" 2>/dev/null || true
mkdir -p "$demo/lib"

# The newest CUDA runtime library on this machine, if any: of a toolkit, of the system, or of a Python package.
cuda_runtime() {
    {
        ls -d "${CUDA_HOME:-/usr/local/cuda}"/lib64/libcudart.so.1[2-9] /usr/local/cuda*/lib64/libcudart.so.1[2-9]
        ldconfig -p | sed -nE 's/.*=> (.*libcudart\.so\.1[2-9])$/\1/p'
        python3 -c 'import site, glob
for folder in site.getsitepackages() + [site.getusersitepackages()]:
    print(*glob.glob(folder + "/nvidia/*/lib/libcudart.so.1[2-9]"), sep="\n")'
    } 2>/dev/null | grep . | head -1
}

read -ra cc <<<"${CC:-cc}"
cc+=(-std=gnu11 -O1 -pthread)
runtime=
if nvidia-smi -L 2>/dev/null | grep -q GPU; then
    runtime=$(cuda_runtime || true)
    [[ $runtime ]] || echo "There is a GPU here, but no CUDA runtime library (libcudart.so.12 or later) was found."
fi
echo "Building …"
cargo build --quiet --release --lib --no-default-features --features exports
if [[ $runtime ]] && ! "${cc[@]}" -Itests/include -o "$demo/train" tests/programs/train.c "$runtime" \
    -Wl,-rpath,"$(dirname "$runtime")"; then
    echo "The program does not link with $runtime (12.5 or later is needed)."
    runtime=
fi
if [[ $runtime ]]; then
    where="on $(nvidia-smi --query-gpu=name --format=csv,noheader | head -1), with $runtime"
else
    where="on a simulated GPU"
    # The simulated device computes on real bytes, so it is built with an optimiser too.
    CARGO_PROFILE_RELEASE_LTO=off cargo build --quiet --release -p simcuda
    cp "$target/release/libsimcuda.so" "$demo/lib/libcuda.so.1"
    "${cc[@]}" -DMOCKRT_VERSION=13000 -DCUDART_VERSION=13000 -fvisibility=hidden -Itests/include -o "$demo/train" \
        tests/mockrt/{resolve,memory,stream_forms}.c tests/programs/train.c -ldl
    export LD_LIBRARY_PATH=$demo/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

echo
echo "A training-like program, $steps steps, $where."
echo
# run LABEL: the program's output, then what it and the library wrote to stderr; the order is lost in a terminal otherwise.
run() {
    local status=0
    "$demo/train" "$steps" >"$demo/$1" 2>"$demo/stderr" || status=$?
    cat "$demo/$1" "$demo/stderr"
    echo
    return "$status"
}
echo "\$ train"
run without
echo "\$ GPUCACHE_CONF=memory_limit:$CAP LD_PRELOAD=libgpucache.so train"
GPUCACHE_CONF=memory_limit:$CAP LD_PRELOAD=$library run with
cmp "$demo/without" "$demo/with"
echo "Same output with and without. With your own program:"
echo "    GPUCACHE_CONF=memory_fraction:0.9 LD_PRELOAD=$library YOUR-PROGRAM"
