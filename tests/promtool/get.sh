#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Prints the path of promtool, as the only line on standard output. Where none is installed, the package `prometheus` of a Debian or Ubuntu is
# downloaded once (19 MB) and unpacked into a cache; nothing is installed. Ends with 3 where there is no way to get one.
#
#   PROMTOOL              an executable to use instead
#   PACER_PROMTOOL_CACHE  the cache (${XDG_CACHE_HOME:-~/.cache}/pacer/promtool)
set -eu

say() { printf 'promtool: %s\n' "$*" >&2; }

if [ -n "${PROMTOOL:-}" ]; then
    [ -x "$PROMTOOL" ] || { say "error: PROMTOOL is no executable: $PROMTOOL"; exit 1; }
    printf '%s\n' "$PROMTOOL"
    exit 0
fi
if command -v promtool; then
    exit 0
fi

cache=${PACER_PROMTOOL_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME, XDG_CACHE_HOME or PACER_PROMTOOL_CACHE must be set}/.cache}/pacer/promtool}
case $cache in /*) ;; *) say "error: the cache's path must be absolute: $cache"; exit 1 ;; esac
if [ -x "$cache/promtool" ]; then
    printf '%s\n' "$cache/promtool"
    exit 0
fi

if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
    say 'not installed, and this is no Debian: set PROMTOOL to an executable'
    exit 3
fi
mkdir -p "$cache"
new=$cache/.new.$$
trap 'rm -rf "$new"' EXIT
mkdir "$new"
say "downloading the package prometheus (19 MB) into $cache"
if ! (cd "$new" && apt-get -qq download prometheus >&2) || ! dpkg -x "$new"/prometheus_*.deb "$new"; then
    say 'apt-get download prometheus failed; run apt-get update, or set PROMTOOL to an executable'
    exit 3
fi
mv -f "$new/usr/bin/promtool" "$cache/promtool"
printf '%s\n' "$cache/promtool"
