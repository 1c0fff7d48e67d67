#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a policy of every template by `pacer policy new`, and runs the commands of its README where the toolchain is here: they build it and
# run the cases of this directory against it, as many templates at a time as there are cores. Says what was skipped and why. Where there is no Zig,
# or no clang that makes WebAssembly, the wheel `ziglang` of PyPI, which holds both, stands in.
# Usage: build.sh PACER OUT, where PACER is the binary and OUT the directory for what is built.
set -euo pipefail
pacer=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
mkdir -p "$2"
out=$(cd "$2" && pwd)
export PATH="$(dirname "$pacer"):$PATH"
# Shared by all runs; otherwise every one would build the SDK anew.
export CARGO_TARGET_DIR="$out/cargo"
ziglang=0.17.1
logs="$out/logs"
rm -rf "$logs"
mkdir "$logs"
passed=0 skipped=0

clang_makes_wasm() { clang --print-targets 2>/dev/null | grep -q wasm32 && command -v wasm-ld >/dev/null; }
zig_is_right() { [ "$(zig version 2>/dev/null)" = $ziglang ]; }

# Puts an executable that is not here into a directory at the front of PATH.
stand_in() {
    mkdir -p "$out/bin"
    printf '#!/bin/sh\n%s\n' "$2" > "$out/bin/$1"
    chmod +x "$out/bin/$1"
}

if ! clang_makes_wasm || ! zig_is_right; then
    wheel="$out/ziglang-$ziglang"
    if [ ! -d "$wheel" ] && python3 -m pip install --quiet --disable-pip-version-check --target "$wheel.part" "ziglang==$ziglang"; then
        mv "$wheel.part" "$wheel"
    fi
    rm -rf "$wheel.part" "$out/bin"
    if [ -d "$wheel" ]; then
        zig="PYTHONPATH='$wheel' exec python3 -m ziglang"
        zig_is_right || stand_in zig "$zig \"\$@\""
        clang_makes_wasm || stand_in clang "[ \"\$1\" = --target=wasm32 ] && shift && $zig cc -target wasm32-freestanding \"\$@\""
        export PATH="$out/bin:$PATH"
    fi
fi

# What keeps a language from being built here; nothing when all is there.
missing() {
    case $1 in
    wat | js-text) ;;
    rust) command -v cargo >/dev/null || echo "there is no cargo" ;;
    go) command -v go >/dev/null || echo "there is no go (1.24 or newer)" ;;
    js | ts) command -v npm >/dev/null || echo "there is no npm" ;;
    c) [ -x "$out/bin/clang" ] || clang_makes_wasm || echo "there is no clang that makes WebAssembly (Debian: clang and lld), and no Zig from PyPI" ;;
    zig) zig_is_right || echo "there is no Zig $ziglang (PyPI: ziglang)" ;;
    esac
}

# Makes the policy of a template, builds it, and runs its cases. Leaves the reason in NAME.skipped where the toolchain is missing.
make_template() {
    local language=${1%--all} name=example-in-${1/--/-} why
    why=$(missing "$language")
    rm -rf "${out:?}/$name"
    "$pacer" policy new --lang "$language" $([ "$language" = "$1" ] || echo --all) --directory "$out" "$name" >/dev/null
    if [[ $language = js || $language = ts ]] && [ -z "$why" ] && ! (cd "$out/$name" && npm install --no-audit --no-fund --loglevel=error >/dev/null); then
        why="npm could not install what package.json names"
    fi
    if [ -n "$why" ]; then
        echo "$why" > "$logs/$1.skipped"
        return
    fi
    sed -n '/^```sh$/,/^```$/p' "$out/$name/README.md" | sed '1d;$d' |
        sed "s|\(componentize \)target/|\1$CARGO_TARGET_DIR/|" > "$out/$name/build.sh"
    cd "$out/$name"
    bash -euo pipefail build.sh
}

test_text() { "$pacer" policy test "$texts/$1.js" "$texts/$1"; }

# Runs a step for a template or text. What it prints is in NAME.log; NAME.failed is there if it failed.
step() { bash -euo pipefail -c '"$@"' _ "$1" "$2" >"$logs/$2.log" 2>&1 || touch "$logs/$2.failed"; }

# Whether a template answers about 1,000 items in time. Fuel is the same on every machine. What a million units take is not, 0.15 to 0.7 ms, and changes
# from one second to the next: so the time is compared with that of the built-in policy, which is called in turns with it. Templates that use up to 95 %
# of their 120 million units, and texts that use up to 80 % of their 306 million, take up to seven times as long as the built-in policy.
quick_enough() {
    local module="$1/$2.wasm" most_of_fuel=95
    [ -f "$module" ] || { module="$1/policy.js" most_of_fuel=80; }
    "$pacer" policy bench "$module" --items 1000 --at-most-of-fuel $most_of_fuel --at-most-times-builtin 12 >"$out/bench.txt" 2>&1 && return
    cat "$out/bench.txt"
    return 1
}

# Each language twice: as the template that makes one decision, and as the one that makes all. Those that take longest begin first; the two of Rust
# share a directory of cargo's, which one at a time may use.
templates=(rust ts ts--all js-text--all js js--all js-text go rust--all go--all zig zig--all c c--all wat)
texts=$(cd "$(dirname "${BASH_SOURCE[0]}")/text" && pwd)
names=("${templates[@]}" $(basename -s .js "$texts"/*.js))
export pacer out logs texts ziglang
export -f make_template test_text step missing clang_makes_wasm zig_is_right
{
    printf 'make_template %s\n' "${templates[@]}"
    printf 'test_text %s\n' "${names[@]:${#templates[@]}}"
} | xargs -P "$(nproc)" -L 1 bash -c 'step "$@"' _

for name in "${names[@]}"; do
    directory="$out/example-in-${name/--/-}"
    echo "== ${name/--/ --}"
    if [ -f "$logs/$name.skipped" ]; then
        echo "skipped: $(cat "$logs/$name.skipped")"
        skipped=$((skipped + 1))
        continue
    fi
    cat "$logs/$name.log"
    if [ -f "$logs/$name.failed" ]; then
        echo "$name failed" >&2
        exit 1
    fi
    if [ -d "$directory" ]; then
        quick_enough "$directory" "$(basename "$directory")"
    fi
    passed=$((passed + 1))
done
echo "$passed passed, 0 failed, $skipped skipped"
