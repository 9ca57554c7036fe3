#!/usr/bin/env bash
# tests.sh PYTHON [ARGS]: runs all tests except the slow ones (with SLOW set, only the slow ones).
# Tests without a cluster run in WORKERS parallel processes (3 by default, on two cores, since many
# wait). Then tests on the cluster that tests share run beside those that start a service of their
# own: both use half of two cores. Slow ones need all cores and run one after the other.
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
services=$none
if [[ -n ${SLOW-} ]]; then
	"$python" -m pytest -m "ray and $part" "$@"
	cluster=$?
else
	output=$(mktemp)
	"$python" -m pytest -m "ray and not cluster and $part" "$@" >"$output" 2>&1 &
	services=$!
	trap 'kill "$services" 2>/dev/null; rm -f "$output"' EXIT
	"$python" -m pytest -m "ray and cluster and $part" "$@"
	cluster=$?
	wait "$services"
	services=$?
	cat "$output"
	rm "$output"
	trap - EXIT
fi

for status in "$apart" "$cluster" "$services"; do
	((status == 0 || status == none)) || exit "$status"
done
((apart == 0 || cluster == 0 || services == 0)) || exit "$none"
