#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh SECONDS [WORD]: gives each decoder of foreign bytes that many seconds of libFuzzer, guided by the branches that inputs reach, one after the
# other; with WORD those whose name contains it, with CRATES="pacer-api ..." in the environment those of some crates, which are built sooner.
# Inputs that have reached something new are kept in target/fuzz/corpus for the next time.
#
# Targets are the tests that use pacer_fuzz. `cargo bolero` would do the same for one crate after the other, each with dependencies built for it alone,
# and lists the targets of a crate by running all of its tests; so this builds all of them at once, with the flags that `cargo bolero` gives.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:?seconds for each decoder}
word=${2:-}
triple=$(rustc -vV | sed -n 's/^host: //p')
work=$PWD/target/fuzz

if ! command -v "${CXX:-c++}" >/dev/null; then
  echo "SKIPPED: fuzzing of decoders, which takes a C++ compiler for libFuzzer (apt-get install g++)" >&2
  exit
fi

# Crates with decoders: one command, so that what they depend on is built once.
crates=() sources=()
for manifest in $(git grep --untracked -l '^pacer-fuzz\.workspace' -- '*/Cargo.toml'); do
  crate=$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -1)
  [[ " ${CRATES:-$crate} " == *" $crate "* ]] || continue
  crates+=(-p "$crate") sources+=("$(dirname "$manifest")")
done
kinds=(--lib)
[[ ! " ${crates[*]} " == *' pacer '* ]] || kinds+=(--bin pacer)
[[ ! " ${crates[*]} " == *' pacer-github '* ]] || kinds+=(--test decoders)

# As `cargo bolero test --engine libfuzzer --sanitizer NONE` builds: no crate but the libraries of C has anything for an address sanitizer to find.
export BOLERO_FUZZER=libfuzzer
RUSTFLAGS="--cfg fuzzing --cfg fuzzing_libfuzzer -Cpasses=sancov-module"
for option in inline-8bit-counters level=4 pc-table trace-compares stack-depth; do
  RUSTFLAGS+=" -Cllvm-args=-sanitizer-coverage-$option"
done
export RUSTFLAGS
build=(cargo test --no-run "${crates[@]}" "${kinds[@]}" --profile fuzz --target "$triple" --target-dir "$work/build")
# shellcheck disable=SC2086 # LOCKED is an option or nothing.
"${build[@]}" ${LOCKED:-}
binaries=$("${build[@]}" ${LOCKED:-} --message-format=json 2>/dev/null | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | sort -u)

# One JSON line for each: where it is, and what it is called.
targets=$(for binary in $binaries; do
  filter=decoders::
  [[ $(basename "$binary") != decoders-* ]] || filter=
  # shellcheck disable=SC2086
  CARGO_BOLERO_SELECT=all "$binary" --nocapture --test-threads=1 $filter | grep '^{"__bolero_target"' || true
done)
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" <<<"$2"; }

# One that lies elsewhere would never be run.
found=$(sort -u <<<"$targets" | wc -l)
written=$(git grep --untracked -hE 'pacer_fuzz::(bytes|text)!' -- "${sources[@]}" | wc -l)
if [[ $found != "$written" ]]; then
  echo "of $written decoders $found were found: their tests belong into a module \`decoders\`, or into the test target \`decoders\`" >&2
  exit 1
fi

failed=()
while read -r target; do
  name=$(field test_name "$target")
  label="$(field package_name "$target") $name"
  [[ $label == *"$word"* ]] || continue
  place="$work/corpus/$(field package_name "$target")/$(sed 's/::/__/g' <<<"$name")"
  tree=$(field work_dir "$target")
  mkdir -p "$place/found" "$place/messages" "$place/findings"
  options=("$place/found" "$place/messages")
  [[ ! -d $tree/crashes ]] || options+=("$tree/crashes")
  options+=("-artifact_prefix=$place/findings/" "-max_total_time=$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=65536 -verbosity=1 -print_final_stats=1)
  log="$place/log"
  if env -u RUSTFLAGS BOLERO_TEST_NAME="$name" BOLERO_LIBTEST_HARNESS=1 BOLERO_LIBFUZZER_ARGS="${options[*]}" PACER_FUZZ_SEEDS="$place/messages" \
    "$(field exe "$target")" "$name" --exact --nocapture --quiet --test-threads 1 >"$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    branches=$(grep -oE 'cov: [0-9]+' "$log" | tail -1)
    echo "$label: nothing found in ${runs:-no} inputs (${branches:-no branches}, $(find "$place/found" -type f | wc -l) kept)"
  else
    failed+=("$label")
    echo "$label: FAILED"
    grep -vE '^#[0-9]+\s' "$log" | tail -40
    cat >&2 <<MESSAGE
Inputs are in $place/findings. Copy the one that fails to
  $tree/crashes/
under a name that says what is wrong with it: \`cargo test\` gives it to $name from then on. Commit it with the correction.
MESSAGE
  fi
done <<<"$targets"

if ((${#failed[@]})); then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
