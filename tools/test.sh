#!/usr/bin/env bash
# All that must pass, part by part, for `make test`. Seconds of each part go to build/part-seconds; pytest prints them
# with its own at its end, because its closing line is the last of the run.
# Types (one core for a minute, cold) run beside parts that compute little, and the second Python (mostly pip, which uses
# one core) beside these and the first tests; what it says is in build/second-python.log, and here when it fails.
set -euo pipefail
cd "$(dirname "$0")/.."
make=${MAKE:-make}
unset PYTHONDONTWRITEBYTECODE # images set it; here hundreds of processes import the same modules
unset VIRTUAL_ENV # of an activated shell: IPython warns where another environment runs, and the second Python is one
seconds=$PWD/build/part-seconds # whole, as tests run pytest in other folders
mkdir -p build
: >"$seconds"

part() {
  local from=$SECONDS
  "$make" --no-print-directory "$1" || return
  echo "$1 $((SECONDS - from))" >>"$seconds"
}

parts() {
  local name
  for name in "$@"; do part "$name" || return; done
}

parts install browser postgresql promtool kube
part types &
types=$!
log=build/second-python.log
part second-python >"$log" 2>&1 &
second_python=$!
failed=
parts lint imports structure docs || failed=yes
wait "$types" || failed=yes # both are awaited, so that none goes on after a failure of another
left=$((${MINUTES:-20} * 60 - SECONDS))
export DLROVER_NB_PART_SECONDS="$seconds" LONG_MINUTES=$((left > 0 ? left / 60 : 0))
DLROVER_NB_TEST_SEED=$(git rev-parse HEAD 2>/dev/null || true) # other long tests come first with each commit
export DLROVER_NB_TEST_SEED
[ -n "$failed" ] || "$make" --no-print-directory unit || failed=yes
wait "$second_python" || { cat "$log" && failed=yes; }
[ -z "$failed" ]
