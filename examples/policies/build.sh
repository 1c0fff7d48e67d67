#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a policy of every template by `pacer policy new`, and runs the commands of its README where the toolchain is here: they build it and
# run the cases of this directory against it. Says what was skipped and why.
# Usage: build.sh PACER OUT, where PACER is the binary and OUT the directory for what is built.
set -euo pipefail
pacer=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
mkdir -p "$2"
out=$(cd "$2" && pwd)
export PATH="$(dirname "$pacer"):$PATH"
# Shared by all runs; otherwise every one would build the SDK anew.
export CARGO_TARGET_DIR="$out/cargo"
passed=0 skipped=0

# What keeps a language from being built here; nothing when all is there.
missing() {
    case $1 in
    wat) ;;
    rust) command -v cargo >/dev/null || echo "there is no cargo" ;;
    go) command -v go >/dev/null || echo "there is no go (1.24 or newer)" ;;
    js) command -v npm >/dev/null || echo "there is no npm" ;;
    c)
        if ! command -v clang >/dev/null; then echo "there is no clang (Debian: clang and lld)"
        elif ! clang --print-targets | grep -q wasm32; then echo "this clang makes no WebAssembly"
        elif ! command -v wasm-ld >/dev/null; then echo "there is no wasm-ld (Debian: lld)"
        fi ;;
    esac
}

for language in wat c go js rust; do
    why=$(missing $language)
    name=example-in-$language
    rm -rf "${out:?}/$name"
    "$pacer" policy new --lang $language --directory "$out" "$name" >/dev/null
    if [ $language = js ] && [ -z "$why" ] && ! (cd "$out/$name" && npm install --no-audit --no-fund --loglevel=error >/dev/null); then
        why="npm could not install componentize-qjs"
    fi
    if [ -n "$why" ]; then
        echo "skipped $language: $why"
        skipped=$((skipped + 1))
        continue
    fi
    echo "== $language"
    sed -n '/^```sh$/,/^```$/p' "$out/$name/README.md" | sed '1d;$d' |
        sed "s|\(componentize \)target/|\1$CARGO_TARGET_DIR/|" > "$out/$name/build.sh"
    (cd "$out/$name" && bash -euo pipefail build.sh)
    passed=$((passed + 1))
done
echo "$passed passed, 0 failed, $skipped skipped"
