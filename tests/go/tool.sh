# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# What the scripts have in common that build one Go program for the tests, sourced in the directory of its go.mod:
#
#   find_tool NAME CACHE SUM...  looks for NAME in the directory CACHE, under a hash of the machine, go.mod, go.sum and the lines SUM; prints its path and ends
#                                the script where it was built before. Otherwise waits for its turn to build it, and looks once more.
#   build_tool PACKAGE LDFLAGS   builds what was not found, and prints its path.
#
# CURE says what helps where go is missing, beside installing it.

say() { printf '%s: %s\n' "${tool:-go}" "$*" >&2; }
die() { say "error: $*"; exit 1; }

# The directory where programs of this name are kept, unless one is given.
cache_of() {
    cache=${2:-${XDG_CACHE_HOME:-${HOME:?HOME or XDG_CACHE_HOME must be set}/.cache}/pacer/$1}
    case $cache in /*) ;; *) die "the cache's path must be absolute: $cache" ;; esac
}

found() {
    [ -x "$dir/$tool" ] || return 0
    printf '%s\n' "$dir/$tool"
    exit 0
}

find_tool() {
    tool=$1
    cache_of "$1" "$2"
    shift 2
    if command -v sha256sum >/dev/null; then sum=sha256sum
    elif command -v shasum >/dev/null; then sum='shasum -a 256'
    else die 'neither sha256sum nor shasum is installed'
    fi
    key=$({ printf '%s\n' "$@" "$(uname -sm)"; $sum go.mod go.sum; } | $sum | cut -c1-16)
    dir=$cache/$key
    found
    command -v go >/dev/null || die "go is not installed: install Go $(sed -n 's/^go \([0-9.]*\)$/\1/p' go.mod) or newer${CURE:-}"
    mkdir -p "$dir"
    if command -v flock >/dev/null; then
        exec 9>"$cache/$key.lock"
        flock 9
        found
    fi
}

build_tool() {
    new=$dir/.new.$$
    trap 'rm -f "$new"' EXIT
    unset GOOS GOARCH
    # The same flags as for the control plane, so that what both are made of is compiled once.
    CGO_ENABLED=0 GOWORK=off go build -mod=readonly -buildvcs=false -trimpath -gcflags=all=-dwarf=false -ldflags "$2" -o "$new" "$1" >&2 9>&- ||
        die 'the build failed'
    mv -f "$new" "$dir/$tool"
    printf '%s\n' "$dir/$tool"
}
