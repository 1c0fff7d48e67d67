#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh SUITE...: runs suites, SUITES_AT_ONCE of them at a time, in this order, then those of ALONE one after the other, then the tests of TIMED that
# are ignored before, since they bound seconds, and then the suites of QUIETEST side by side. Suites wait for much of their time: five at once keep two
# cores busy. What each says is in target/suites; what a failed one says is printed when all are over. Operators record traces, and at the end the
# simulator's rules have to come to the numbers that were recorded. Those of ALONE, TIMED and QUIETEST do not: they bound requests and seconds, and a
# recorder reads the nodes that have runners.
set -euo pipefail
cd "$(dirname "$0")/../.."
logs=target/suites
rm -rf "$logs"
export PACER_TRACES="$PWD/$logs/traces"
mkdir -p "$PACER_TRACES"

run() {
  local log="target/suites/$1${2:-}"
  if cargo test --workspace --test "$1" ${LOCKED:-} -- --test-threads="${SUITE_THREADS:-2}" ${2:-} >"$log.log" 2>&1; then
    echo "suite $1${2:+ $2} passed in $SECONDS s"
  else
    echo "suite $1${2:+ $2} FAILED after $SECONDS s"
    mv "$log.log" "$log.failed"
  fi
}
export -f run

printf '%s\n' "$@" | xargs -r -P "${SUITES_AT_ONCE:-5}" -I{} bash -c 'run {}'
export -n PACER_TRACES
printf '%s\n' ${ALONE:-} | xargs -r -I{} bash -c 'run {}'
printf '%s\n' ${TIMED:-} | xargs -r -I{} bash -c 'run {} --ignored'
printf '%s\n' ${QUIETEST:-} | xargs -r -P 2 -I{} bash -c 'run {}'

failed=$(find "$logs" -name '*.failed' | sort)
if [[ -n $failed ]]; then
  for log in $failed; do
    echo "==> $log"
    cat "$log"
  done
  echo "failed: $(basename -s .failed $failed | xargs)" >&2
  exit 1
fi

# An operator that was killed before it could write has none.
mapfile -t traces < <(find "$PACER_TRACES" -type f -printf '%h\n' | sort -u)
if ((${#traces[@]})); then
  # A record says when something was so, and not when exactly the operator knew of it: of a burst on a full machine, a number may differ.
  "$PACER_BIN" trace replay --compared-at-least "${COMPARED_AT_LEAST:-0}" --differing-at-most 5 "${traces[@]}"
fi
