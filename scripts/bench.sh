#!/usr/bin/env bash
# Benchmarks that anyone can run. Without a GPU, on the simulated driver:
#
#   scripts/bench.sh                          everything, as tables; also target/bench/results/host.tsv
#   scripts/bench.sh --check                  instructions, driver calls and memory ratios against benches/limits.tsv
#   scripts/bench.sh --update                 writes benches/limits.tsv anew: what was measured, and three per cent
#
# With an NVIDIA GPU, nvcc and PyTorch (each missing part is left out and named), about seven minutes:
#
#   scripts/bench.sh --gpu [--only NAME…]     the peers in one run, as tables and as TSV files
#   scripts/bench.sh --gpu --list             what there is to choose from
#   scripts/bench.sh --plots FOLDER [INTO]    pictures for the README from such a folder (needs matplotlib)
#
# What is measured, and how: benches/NOTES.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

mode=tables
case ${1-} in
    '') ;;
    --check | --update) mode=${1#--} ;;
    --gpu) exec benches/gpu/bench.sh "${@:2}" ;;
    --plots) exec "${PYTHON:-python3}" benches/plots.py "${@:2}" ;;
    -h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit ;;
    *) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
bench=$target/bench
results=$bench/results
limits=$root/benches/limits.tsv
unset LD_PRELOAD LD_LIBRARY_PATH "${!GPUCACHE_@}" "${!SIMCUDA_@}" "${!PYTORCH_@}" 2>/dev/null || true
# shellcheck source=benches/host/measure.sh
. benches/host/measure.sh

have_valgrind=1
if ! command -v valgrind >/dev/null; then
    have_valgrind=0
    [[ $mode == tables ]] || { echo "bench.sh: valgrind is not installed, and counts instructions" >&2; exit 77; }
fi
mkdir -p "$results"
build
figures=$results/host.tsv
printf 'figure\tvalue\tunit\n' >"$figures"

if [[ $mode == tables ]]; then
    echo "$(git rev-parse --short HEAD 2>/dev/null || echo "no commit"), $(rustc --version), $(machine), simulated driver"
    ((have_valgrind)) || echo "valgrind is not installed: instructions are left out"
    pair_table
    trace_table
    lag_table
    thread_table
    small_table
    echo
    echo "Counts and ratios: $figures. Time of the pool by itself: cargo bench --no-default-features --bench traces"
    exit
fi

count_pairs
count_history
count_watching
count_traces
pack_traces
pack_lags
if [[ $mode == update ]]; then
    awk -F '\t' -v OFS='\t' '
        BEGIN { print "# Written by scripts/bench.sh --update: the most that scripts/bench.sh --check lets pass."
                print "figure", "limit", "unit" }
        NR > 1 { print $1, sprintf($3 == "instructions" ? "%.0f" : "%.3f", $2 * 1.03), $3 }' "$figures" >"$limits"
    echo "wrote $limits: $(($(wc -l <"$limits") - 2)) limits"
    exit
fi
awk -F '\t' '
    FNR == 1 { file++ }
    /^#/ || $1 == "figure" { next }
    file == 1 { limit[$1] = $2; next }
    { measured[$1] = 1; seen++
      if (!($1 in limit)) { printf "no limit yet   %-34s %10s\n", $1, $2; next }
      held++
      if ($2 + 0 > limit[$1] + 0) { bad++; printf "ABOVE ITS LIMIT %-33s %10s, limit %s\n", $1, $2, limit[$1] }
      else if ($2 < 0.85 * limit[$1]) printf "far below limit %-33s %10s, limit %s\n", $1, $2, limit[$1] }
    END { for (name in limit) if (!(name in measured)) { bad++; print "NOT MEASURED    " name }
          printf "%d figures held against their limits, %d bad\n", held, bad
          if (bad) print "if that is meant: scripts/bench.sh --update, and say why in the commit"
          exit bad > 0 || held == 0 }' "$limits" "$figures"
