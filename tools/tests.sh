#!/usr/bin/env bash
# tests.sh PYTHON [ARGS]: runs all tests except the slow ones (with SLOW set, only the slow ones) in
# two runs of pytest. Tests without a cluster run in WORKERS parallel processes (3 by default, on
# two cores, since many wait). Ray tests run one after the other, since a cluster needs all cores.
# Files keep their order: sorted by their number of tests, the slow ones would run last.
set -uo pipefail
cd "$(dirname "$0")/.."
python=$1
shift
part=${SLOW:+slow}
part="${part:-not slow} and not large"
export PYTHONDONTWRITEBYTECODE= # else each process that a test starts compiles the code again
none=5 # pytest's exit status when ARGS selects no test

"$python" -m pytest -n "${WORKERS:-3}" --dist loadfile --no-loadscope-reorder -m "not ray and $part" "$@"
apart=$?
"$python" -m pytest -m "ray and $part" "$@"
cluster=$?

((apart == 0 || apart == none)) || exit "$apart"
((cluster == 0 || cluster == none)) || exit "$cluster"
((apart == 0 || cluster == 0)) || exit "$none"
