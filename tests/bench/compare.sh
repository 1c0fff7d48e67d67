#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# compare.sh BENCHMARK NOW BEFORE ROUNDS ARGS...: measures the operator of commit BEFORE and the one at NOW in turns, both with this tree's BENCHMARK, and
# prints their figures side by side. Fails when a figure is more than 5 % above that of BEFORE.
set -euo pipefail
cd "$(dirname "$0")/../.."
benchmark=$1 now=$2 commit=$(git rev-parse --verify "$3^{commit}") rounds=$4
shift 4

out=target/compare
source="$PWD/$out/source"
rm -rf "$out"/*.json "$source"
mkdir -p "$out"
git worktree prune
git worktree add --detach --force "$source" "$commit" >/dev/null
trap 'git worktree remove --force "$source"' EXIT
# With the features of the whole workspace, as NOW has them.
(cd "$source" && PACER_OWN_GLIBC=1 CARGO_TARGET_DIR="$source/../build" cargo build --release -p pacer -p pacer-suites --locked)

for round in $(seq "$rounds"); do
  for side in before now; do
    program=$now
    [[ $side = now ]] || program=$out/build/release/pacer
    echo "round $round of $rounds: $side" >&2
    # A missed limit is no reason not to compare; without figures there is nothing to compare.
    PACER_BIN=$(realpath "$program") "$benchmark" --json "$@" >"$out/$side-$round.json" || [[ -s $out/$side-$round.json ]]
  done
done
list() { printf '%s\n' "$out/$1"-*.json | paste -sd,; }
"$benchmark" --before "$(list before)" --now "$(list now)"
