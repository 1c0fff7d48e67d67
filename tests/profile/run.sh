#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run.sh BUILD SCENE DIRECTORY: where the operator's processor time and memory go in a scene of the benchmark. BUILD has pacer and fleet-benchmark
# with the names of functions. Writes DIRECTORY/SCENE-cpu.txt with perf and DIRECTORY/SCENE-heap.txt with heaptrack, and what they were made from. The
# scene runs once for each of the two; its own figures are worthless meanwhile. Of the children that run policies nothing is recorded.
set -eu

build=$(realpath "${1:?usage: run.sh BUILD SCENE DIRECTORY}") scene=${2:?usage: run.sh BUILD SCENE DIRECTORY}
mkdir -p "${3:?usage: run.sh BUILD SCENE DIRECTORY}"
out=$(realpath "$3")
preload=$(find /usr/lib /usr/local/lib -name libheaptrack_preload.so 2>/dev/null | head -n 1)
interpret=$(find /usr/lib /usr/local/lib -name heaptrack_interpret 2>/dev/null | head -n 1)

# Stands in for the operator's program; what it starts has the operator's process id.
cat >"$out/pacer" <<EOF
#!/bin/sh
if [ "\${1:-}" = run ]; then
    case \$PROFILE in
    cpu) perf record --quiet --freq 499 --pid \$\$ --output "$out/$scene-cpu.\$\$.data" & ;;
    heap) export LD_PRELOAD="$preload" DUMP_HEAPTRACK_OUTPUT="$out/$scene-heap.\$\$.raw" ;;
    esac
fi
exec "$build/pacer" "\$@"
EOF
chmod +x "$out/pacer"

# A scene that misses a limit, as it may with a profiler at work, is no failure here.
measure() {
    PROFILE=$1 PACER_BIN="$out/pacer" "$build/fleet-benchmark" --scenes "$scene" >"$out/$scene-$1.log" 2>&1 || true
}

# The newest of what was recorded: each operator of the scene has its own.
newest() {
    find "$out" -maxdepth 1 -name "$1" -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2
}

rm -f "$out/$scene"-*
if command -v perf >/dev/null; then
    measure cpu
    data=$(newest "$scene-cpu.*.data")
    [ -n "$data" ] || { echo "profile: perf recorded nothing; see $out/$scene-cpu.log and kernel.perf_event_paranoid" >&2; exit 1; }
    perf report --input "$data" --stdio --sort symbol --percent-limit 0.3 >"$out/$scene-cpu.txt" 2>/dev/null
    echo "processor time: $out/$scene-cpu.txt"
else
    echo "SKIPPED: processor time, which takes perf (apt-get install linux-perf)" >&2
fi
if [ -n "$preload" ] && [ -n "$interpret" ]; then
    measure heap
    raw=$(newest "$scene-heap.*.raw")
    [ -n "$raw" ] || { echo "profile: heaptrack recorded nothing; see $out/$scene-heap.log" >&2; exit 1; }
    "$interpret" <"$raw" | gzip >"$out/$scene-heap.gz"
    heaptrack_print --print-peaks=1 --print-allocators=1 --print-leaks=0 --print-temporary=0 "$out/$scene-heap.gz" >"$out/$scene-heap.txt" 2>/dev/null
    echo "memory: $out/$scene-heap.txt"
else
    echo "SKIPPED: memory, which takes heaptrack (apt-get install heaptrack)" >&2
fi
