# shellcheck shell=bash
# What scripts/bench.sh measures without a GPU. It sources this file and sets: root, target, bench, figures,
# have_valgrind. Programs run on the simulated driver, unmodified, with the library preloaded.
# shellcheck disable=SC2154

TRACES=(gpt resnet unet)
PACKED=(rnn mixed) # few large blocks, of sizes that do not come again: only their memory is looked at
SIZES=(512 65536 1048576 16777216)
ROUTES=(driver shared static)
PAIRS=2000 # of each size, where instructions are counted: a whole number of rotations, so that the mean is steady

machine() { echo "$(nproc) cores of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"; }

build() {
    cargo build --quiet --release --lib
    CARGO_PROFILE_RELEASE_LTO=off cargo build --quiet --release -p simcuda
    library=$target/release/libgpucache.so
    mkdir -p "$bench"/{lib,bin,obj,profile}
    cp "$target/release/libsimcuda.so" "$bench/lib/libcuda.so.1"
    local cc=("${CC:-cc}" -std=gnu11 -O2 -g -Wall -Wextra -Werror -pthread -Itests/include) name
    for name in pair replay threads held; do
        "${cc[@]}" -o "$bench/bin/$name" "benches/host/$name.c" -L"$bench/lib" -l:libcuda.so.1
    done
    local runtime=("${cc[@]}" -DMOCKRT_VERSION=13000 -DCUDART_VERSION=13000 -DROUTE_RUNTIME)
    local units=(tests/mockrt/{resolve,memory,stream_forms}.c)
    "${runtime[@]}" -fvisibility=hidden -o "$bench/bin/pair.static" benches/host/pair.c "${units[@]}" -ldl
    sed 's/@VERSION@/libcudart.so.13/' tests/mockrt/exports.map >"$bench/obj/exports.map"
    "${runtime[@]}" -fPIC -shared -Wl,-soname,libcudart.so.13 -Wl,--version-script="$bench/obj/exports.map" \
        -o "$bench/lib/libcudart.so.13" "${units[@]}" -ldl
    "${runtime[@]}" -o "$bench/bin/pair.shared" benches/host/pair.c "$bench/lib/libcudart.so.13" -ldl
    mv "$bench/bin/pair" "$bench/bin/pair.driver"
    for name in "${TRACES[@]}" "${PACKED[@]}"; do
        gzip -dc "benches/traces/$name.trace.gz" >"$bench/obj/$name"
    done
}

figure() {
    # An empty or zero figure would lie below every limit.
    [[ $2 =~ ^[0-9.]+$ && $2 =~ [1-9] ]] || { echo "bench.sh: $1 could not be measured ('$2')" >&2; exit 1; }
    printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$figures"
}
known() { awk -F '\t' -v name="$1" '$1 == name { print $2; exit }' "$figures"; }
calc() { awk "BEGIN { printf \"${2:-%.2f}\", $1 }"; }
# with [VAR=VALUE…] COMMAND…: preloaded, on a device that holds the largest trace.
with() {
    env LD_LIBRARY_PATH="$bench/lib" LD_PRELOAD="$library" GPUCACHE_REPORT="${report:-off}" SIMCUDA_MEMORY=16GiB "$@"
}
without() { env LD_LIBRARY_PATH="$bench/lib" "$@"; }

# profile NAME COMMAND…: runs it preloaded under callgrind; leaves a file for each call of its function `measured`.
profile() {
    local name=$1
    shift
    rm -f "$bench/profile/$name" "$bench/profile/$name".*
    with valgrind -q --tool=callgrind --callgrind-out-file="$bench/profile/$name" --toggle-collect=measured \
        --dump-after=measured --compress-strings=no --compress-pos=no "$@" >"$bench/profile/$name.out"
}
# instructions NAME PART: executed within that call, without those of the simulated driver, which no GPU machine has.
instructions() {
    awk '/^ob=/ { mine = !/libcuda\.so/ }
         /^calls=/ { getline; next }
         mine && /^[0-9]/ && NF == 2 { sum += $2 }
         END { if (!sum) exit 1; printf "%.0f\n", sum }' "$bench/profile/$1.$2"
}
# driver_calls NAME PART: calls from outside the driver into it, for each pair. Instructions do not show what they cost. The
# profiler counts calls outside of `measured` too, so these are of all pairs up to the end of that call, the first ones included.
driver_calls() {
    awk '/^fn=/ { alloc = /=gpu_alloc$/ }
         /^cob=/ { driver = /libcuda\.so/ }
         /^calls=/ { split($1, count, "="); if (driver) sum += count[2]; else if (alloc) pairs += count[2]; driver = 0 }
         END { if (!pairs) exit 1; printf "%.3f\n", sum / pairs }' "$bench/profile/$1.$2"
}

count_pairs() {
    local route i
    for route in "${ROUTES[@]}"; do
        profile "pair.$route" "$bench/bin/pair.$route" $PAIRS
        for i in "${!SIZES[@]}"; do
            figure "pair.$route.${SIZES[i]}" "$(calc "$(instructions "pair.$route" $((i + 1))) / $PAIRS" %.1f)" instructions
        done
    done
    # With call sites sampled: a pair that meets no sample, and one where both ends are one.
    GPUCACHE_CONF=sites:True profile pair.sites "$bench/bin/pair.driver" $PAIRS
    figure pair.sites.512 "$(calc "$(instructions pair.sites 1) / $PAIRS" %.1f)" instructions
    GPUCACHE_CONF=sites:1 profile pair.sampled "$bench/bin/pair.driver" $PAIRS
    figure pair.sampled.512 "$(calc "$(instructions pair.sampled 1) / $PAIRS" %.1f)" instructions
    malloc_instructions=()
    for i in "${!SIZES[@]}"; do
        figure "calls.pair.${SIZES[i]}" "$(driver_calls pair.driver $((i + 1)))" calls
        malloc_instructions+=("$(calc "$(instructions pair.driver $((i + 1 + ${#SIZES[@]}))) / $PAIRS" %.1f)")
    done
}

# The same with a history: what is below history_min costs what it costs without, the rest two events more.
count_history() {
    local i
    GPUCACHE_CONF=history:4096 profile history "$bench/bin/pair.driver" $PAIRS
    for i in "${!SIZES[@]}"; do
        figure "history.${SIZES[i]}" "$(calc "$(instructions history $((i + 1))) / $PAIRS" %.1f)" instructions
    done
}

# The same without the live file, with alarms, and with figures for Prometheus: a pair of 512 B and one of 1 MiB.
count_watching() {
    local name settings
    for name in "no_live_file GPUCACHE_CONF=live_file:False" \
        "alarms GPUCACHE_CONF=alert:[held:0.9,fragmentation:0.9,growth:8GiB,leak:10]" \
        "prometheus GPUCACHE_PROM=$bench/obj/pair.prom"; do
        settings=${name#* } name=${name%% *}
        (export "${settings?}" && profile "watch.$name" "$bench/bin/pair.driver" $PAIRS)
        figure "watch.$name.512" "$(calc "$(instructions "watch.$name" 1) / $PAIRS" %.1f)" instructions
        figure "watch.$name.1048576" "$(calc "$(instructions "watch.$name" 3) / $PAIRS" %.1f)" instructions
    done
}

trace_pairs() { awk '$1 == "pairs" { print $2 }' "$bench/profile/$1.out"; }
# trace_instructions TRACE ALLOCATOR: for each pair of the second phase.
trace_instructions() {
    profile "$1.$2" "$bench/bin/replay" "$bench/obj/$1" "$2" half
    calc "$(instructions "$1.$2" 1) / $(trace_pairs "$1.$2")" %.1f
}
count_traces() {
    local trace
    for trace in "${TRACES[@]}"; do
        figure "trace.$trace" "$(trace_instructions "$trace" gpu)" instructions
        figure "calls.trace.$trace" "$(driver_calls "$trace.gpu" 1)" calls
    done
}

# peak FILE: most bytes that the pool had reserved, from a report.
peak() { awk '/"reserved_bytes": \{/ { inside = 1 } inside && /"peak":/ { gsub(/[^0-9]/, ""); print; exit }' "$1"; }
# pack TRACE True|False: peak of reserved over peak of live memory, with expandable segments or without.
pack() {
    local report=$bench/obj/report.json out=$bench/obj/pack
    rm -f "$report"
    if ! with GPUCACHE_CONF="expandable_segments:$2" "$bench/bin/replay" "$bench/obj/$1" gpu >"$out" 2>"$out.err"; then
        cat "$out.err" >&2
        echo failed
        return
    fi
    calc "$(peak "$report") / $(awk '$1 == "live" { print $2 }' "$out")" %.3f
}
pack_traces() {
    local trace
    for trace in "${TRACES[@]}" "${PACKED[@]}"; do
        figure "memory.$trace.segments" "$(pack "$trace" False)" ratio
        figure "memory.$trace.expandable" "$(pack "$trace" True)" ratio
    done
}
# A target folder of its own: the library without its exports must not take the place of the one that tests preload.
pack_lags() {
    local backing trace lag wait ratio
    CARGO_PROFILE_TEST_OPT_LEVEL=1 CARGO_PROFILE_DEV_OPT_LEVEL=1 cargo test --quiet --no-default-features --bench traces \
        --target-dir "$bench/cargo" -- ratios >"$bench/obj/lags"
    while IFS=$'\t' read -r backing trace lag wait ratio; do
        figure "memory.$trace.$backing.lag$lag.wait$wait" "$ratio" ratio
    done <"$bench/obj/lags"
}

# pair_ns gpu|malloc BYTES ROUTE, from the output of that route's program.
pair_ns() { awk -v what="$1" -v bytes="$2" '$1 == what && $2 == bytes { print $3 }' "$bench/obj/pair.$3"; }
pair_table() {
    local i route line
    ((!have_valgrind)) || count_pairs
    echo
    echo "One allocation and its free: instructions (with the runtime's, without the driver's), and x those of glibc malloc + free;"
    echo "and calls to the driver, of any kind"
    printf '%10s %18s %18s %18s %10s %8s\n' bytes "${ROUTES[@]}" malloc calls
    for i in "${!SIZES[@]}"; do
        ((have_valgrind)) || break
        line=$(printf '%10s' "${SIZES[i]}")
        for route in "${ROUTES[@]}"; do
            local count
            count=$(known "pair.$route.${SIZES[i]}")
            line+=$(printf ' %10.0f %5.1f x' "$count" "$(calc "$count / ${malloc_instructions[i]}")")
        done
        printf '%s %10.0f %8s\n' "$line" "${malloc_instructions[i]}" "$(known "calls.pair.${SIZES[i]}")"
    done
    echo "ns, on this machine, with the simulated driver's calls in them"
    for route in "${ROUTES[@]}"; do
        with "$bench/bin/pair.$route" 300000 >"$bench/obj/pair.$route"
    done
    for i in "${!SIZES[@]}"; do
        line=$(printf '%10s' "${SIZES[i]}")
        for route in "${ROUTES[@]}"; do
            line+=$(printf ' %18s' "$(pair_ns gpu "${SIZES[i]}" "$route")")
        done
        printf '%s %10s\n' "$line" "$(pair_ns malloc "${SIZES[i]}" driver)"
    done
    echo "Each call by the clock, whose own cost is taken off, by the driver's interface; none takes memory from the driver; ns"
    printf '%10s  %8s %6s %6s %7s  %8s %6s %6s %7s   malloc %6s %6s %7s   free %6s %6s %7s\n' bytes alloc p50 p99 p99.9 \
        free p50 p99 p99.9 p50 p99 p99.9 p50 p99 p99.9
    with "$bench/bin/pair.driver" 200000 times >"$bench/obj/times"
    for i in "${SIZES[@]}"; do
        awk -v s="$i" '{ key[$1] = $0 }
            END { split(key["gpu." s ".alloc"], a, " "); split(key["gpu." s ".free"], f, " ")
                  split(key["malloc." s ".alloc"], m, " "); split(key["malloc." s ".free"], g, " ")
                  form = "%10s  %8s %6s %6s %7s  %8s %6s %6s %7s          %6s %6s %7s        %6s %6s %7s\n"
                  printf form, s, a[2], a[3], a[4], a[5], f[2], f[3], f[4], f[5], m[3], m[4], m[5], g[3], g[4], g[5] }' \
            "$bench/obj/times"
    done
}

trace_table() {
    local trace allocator count times memory live
    ((!have_valgrind)) || count_traces
    pack_traces
    echo
    echo "Traces of training jobs, second repetition, against allocators that people write themselves (benches/host/simple.h;"
    echo "they do not know when the GPU is done) and glibc malloc. memory: peak reserved over peak live. instr.: for each pair,"
    echo "and x malloc's. Times in ns, the clock's own taken off, with the simulated driver's calls"
    printf '%-7s %-18s %7s %8s %6s  %7s %6s %6s %7s  %7s %6s %6s %7s\n' trace allocator memory instr. 'x' \
        alloc p50 p99 p99.9 free p50 p99 p99.9
    for trace in "${TRACES[@]}"; do
        local base=-
        for allocator in malloc gpu exact powers buddy; do
            with "$bench/bin/replay" "$bench/obj/$trace" $allocator times >"$bench/obj/times"
            live=$(awk '$1 == "live" { print $2 }' "$bench/obj/times")
            memory=$(awk -v live="$live" '$1 == "reserved" { printf $2 ? "%.2f" : "-", $2 / live }' "$bench/obj/times")
            [[ $allocator != gpu ]] || memory=$(known "memory.$trace.segments")
            count=-
            if ((have_valgrind)); then
                count=$(known "trace.$trace")
                [[ $allocator == gpu ]] || count=$(trace_instructions "$trace" $allocator)
                [[ $allocator != malloc ]] || base=$count
            fi
            times=$(awk '$1 == "alloc" || $1 == "free" { printf "  %7s %6s %6s %7s", $2, $3, $4, $5 }' "$bench/obj/times")
            local factor=-
            [[ $count == - ]] || factor=$(calc "$count / $base" %.1f)
            printf '%-7s %-18s %7s %8s %6s%s\n' "$trace" "${allocator/gpu/this library}" "$memory" "${count%.*}" \
                "$factor" "$times"
        done
        if [[ $(known "memory.$trace.expandable") ]]; then
            printf '%-7s %-18s %7s\n' "$trace" "  expandable" "$(known "memory.$trace.expandable")"
        fi
    done
    for trace in "${PACKED[@]}"; do
        for memory in segments expandable; do
            printf '%-7s %-18s %7s\n' "$trace" "$memory" "$(known "memory.$trace.$memory")"
        done
    done
}

lag_table() {
    pack_lags
    echo
    echo "Memory where the GPU is N frees behind (the heap with a model of the ladder above it): peak reserved over peak live"
    sed -n 's/^memory\.\([a-z]*\)\.\([a-z]*\)\.lag\([0-9]*\)\.wait\([a-z0-9]*\)\t\([0-9.]*\).*/\1 \2 \3 \4 \5/p' "$figures" |
        awk '{ printf "%-7s %-10s lag %-5s wait %-6s %s\n", $1, $2, $3, $4, $5 }'
}

thread_table() {
    local kind count what rate
    echo
    echo "Threads: millions of pairs a second in all, and x one thread ($(nproc) cores; 512 B to 1 MiB, malloc at most 64 KiB)"
    printf '%-7s %8s %18s %18s\n' frees threads 'this library' malloc
    for kind in own cross; do
        for count in 1 2 4 16; do
            printf '%-7s %8s' $kind $count
            for what in gpu malloc; do
                rate=$(with "$bench/bin/threads" $count $kind $what)
                [[ $count != 1 ]] || local "one_$what=$rate"
                local one=one_$what
                printf ' %9.2f %6.2f x' "$rate" "$(calc "$rate / ${!one}")"
            done
            echo
        done
    done
}

small_table() {
    local bytes report=$bench/obj/report.json
    echo
    echo "Host memory of 100,000 live blocks: bytes for each, without the library (the simulated driver's books) and with it"
    for bytes in 512 65536; do
        printf '%10s B blocks %10s %10s\n' $bytes "$(without "$bench/bin/held" 100000 $bytes)" \
            "$(with "$bench/bin/held" 100000 $bytes 2>/dev/null)"
    done
    with "$bench/bin/held" 1 4096 >/dev/null 2>&1
    echo "A program with one block of 4 KiB reserves $(peak "$report") B"
}
