#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds the registry of the tests from its published Go module and prints the path of the executable, as the only line on standard output. It lies
# in a cache under a hash of the sources, so this builds once, in seconds, and answers at once from then on.
#
#   PACER_REGISTRY_CACHE  the cache (${XDG_CACHE_HOME:-~/.cache}/pacer/registry)
set -eu

say() { printf 'registry: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

cd -- "$(dirname -- "$0")"
cache=${PACER_REGISTRY_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME, XDG_CACHE_HOME or PACER_REGISTRY_CACHE must be set}/.cache}/pacer/registry}
case $cache in /*) ;; *) die "the cache's path must be absolute: $cache" ;; esac

if command -v sha256sum >/dev/null; then sum=sha256sum
elif command -v shasum >/dev/null; then sum='shasum -a 256'
else die 'neither sha256sum nor shasum is installed'
fi
key=$({ printf '%s\n' "$(uname -sm)"; $sum go.mod go.sum ./*.go; } | $sum | cut -c1-16)
dir=$cache/$key
if [ -x "$dir/registry" ]; then
    printf '%s\n' "$dir/registry"
    exit 0
fi

command -v go >/dev/null || die "go is not installed: install Go $(sed -n 's/^go \([0-9.]*\)$/\1/p' go.mod) or newer"
mkdir -p "$dir"
if command -v flock >/dev/null; then
    exec 9>"$cache/$key.lock"
    flock 9
    if [ -x "$dir/registry" ]; then
        printf '%s\n' "$dir/registry"
        exit 0
    fi
fi

new=$dir/.new.$$
trap 'rm -f "$new"' EXIT
unset GOOS GOARCH
CGO_ENABLED=0 GOWORK=off go build -mod=readonly -buildvcs=false -trimpath -ldflags '-s -w' -o "$new" . >&2 9>&- || die 'the build failed'
mv -f "$new" "$dir/registry"
printf '%s\n' "$dir/registry"
