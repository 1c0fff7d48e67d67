#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh SUITE...: runs suites, SUITES_AT_ONCE of them at a time, in this order, then those of QUIET and the tests of TIMED that are ignored before,
# since they bound seconds and requests, two at a time. Tests wait for much of their time: SUITE_THREADS of each suite at a time keep two cores busy,
# and the make targets BESIDE take what is left of them, before the suites that bound seconds begin. What each says is in target/suites; what a failed
# one says is printed when all are over. Operators record traces, and at the end the simulator's rules have to come to the numbers that were recorded.
# Those of QUIET and TIMED do not: a recorder reads the nodes that have runners.
set -euo pipefail
cd "$(dirname "$0")/../.."
logs=target/suites
rm -rf "$logs"
export PACER_TRACES="$PWD/$logs/traces"
mkdir -p "$PACER_TRACES"
# To start a control plane takes two seconds of a processor; those of a suite use them one after the other.
export PACER_CONTROLPLANES=reused

# Cargo would wait with each suite for whatever cargo does BESIDE. Lines of it: "  Executable tests/flows.rs (target/debug/deps/flows-0a1b2c3d)".
cargo test --workspace ${LOCKED:-} --no-run --test '*' 2>&1 | tee "$logs/executables" | grep -v '^ *Executable' || [[ ${PIPESTATUS[0]} = 0 ]]

# reports WHAT LOG COMMAND...: runs a command with its output in a log, and says how it went.
reports() {
  local what=$1 log=target/suites/$2
  shift 2
  if "$@" >"$log.log" 2>&1; then
    echo "$what passed in $SECONDS s"
  else
    echo "$what FAILED after $SECONDS s"
    mv "$log.log" "$log.failed"
  fi
}

# What cargo does for a test, without cargo; in a shell of its own, since whoever calls it stays where it is.
of_cargo() (
  executable=$(sed -n "s|^ *Executable tests/$1\.rs (\(.*\))$|\1|p" target/suites/executables)
  executable=$(realpath "$executable")
  cd tests/suites
  CARGO_MANIFEST_DIR=$PWD "$executable" "${@:2}"
)

run() { reports "suite $1${2:+ $2}" "$1${2:-}" of_cargo "$1" --test-threads="${SUITE_THREADS:-3}" ${2:-}; }
export -f reports of_cargo run

# The least of priorities: no suite waits for it.
beside=
if [[ -n ${BESIDE:-} ]]; then
  (SECONDS=0 && reports "$BESIDE" beside nice -n 19 env -u MAKEFLAGS -u MAKELEVEL make $BESIDE) &
  beside=$!
fi
printf '%s\n' "$@" | xargs -r -P "${SUITES_AT_ONCE:-4}" -I{} bash -c 'run {}'
export -n PACER_TRACES PACER_CONTROLPLANES
[[ -z $beside ]] || wait "$beside"
# Their bounds hold beside three other tests.
export SUITE_THREADS=2
for suite in ${QUIET:-}; do echo "$suite"; done >"$logs/quiet"
for suite in ${TIMED:-}; do echo "$suite --ignored"; done >>"$logs/quiet"
xargs -r -P 2 -I{} bash -c 'run {}' <"$logs/quiet"

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
