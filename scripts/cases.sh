#!/usr/bin/env bash
# Faults that users reported of systems which do part of this job: puts each into a copy of the source in turn, and demands
# that the test which holds the right behaviour fails. Every case is a file in tests/cases.
#
#   scripts/cases.sh [CASE...]   these cases, or all
#   scripts/cases.sh --list      names them, and their tests
#   scripts/cases.sh --check     looks whether tests exist and faults apply, without building them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1-} in
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit ;;
esac
unset LD_PRELOAD "${!GPUCACHE_@}" "${!SIMCUDA_@}" "${!PYTORCH_@}"
exec cargo run --quiet --package cases -- "$@"
