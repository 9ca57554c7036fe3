#!/usr/bin/env bash
# tests.sh PYTHON [ARGS]: all tests, in two runs of pytest. Those that start no cluster take turns in
# WORKERS processes; a cluster wants the cores for itself, so those of Ray come one after the other.
# Files keep their order: with those of most tests first, the slow ones would be left for the end.
set -uo pipefail
cd "$(dirname "$0")/.."
python=$1
shift
none=5 # pytest's status when ARGS chose no test

"$python" -m pytest -n "${WORKERS:-2}" --dist loadfile --no-loadscope-reorder -m "not ray" "$@"
apart=$?
"$python" -m pytest -m ray "$@"
cluster=$?

((apart == 0 || apart == none)) || exit "$apart"
((cluster == 0 || cluster == none)) || exit "$cluster"
((apart == 0 || cluster == 0)) || exit "$none"
