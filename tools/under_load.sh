#!/usr/bin/env bash
# Run the tests with low priority beside busy processes: a test that fails here decides by time.
# usage: tools/under_load.sh [pytest arguments]; BUSY=8 processes, NICE=10, for LIMIT_S=14400 seconds at most.
set -uo pipefail
cd "$(dirname "$0")/.."
limit_s=${LIMIT_S:-14400}
busy=()
# `timeout` ends each of them even when this script is killed.
for _ in $(seq "${BUSY:-8}"); do
  timeout "$limit_s" bash -c 'while :; do :; done' &
  busy+=($!)
done
end() { kill "${busy[@]}" 2>/dev/null; }
trap end EXIT
trap 'exit 130' INT TERM
timeout --signal=INT "$limit_s" nice -n "${NICE:-10}" .venv/bin/python -m pytest -n "${WORKERS:-4}" --dist loadgroup "$@"
