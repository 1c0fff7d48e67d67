#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds the registry of the tests from its published Go module and prints the path of the executable, as the only line on standard output. It lies
# in a cache under a hash of the sources, so this builds once, in seconds, and answers at once from then on.
#
#   PACER_REGISTRY_CACHE  the cache (${XDG_CACHE_HOME:-~/.cache}/pacer/registry)
set -eu

cd -- "$(dirname -- "$0")"
. ../go/tool.sh

find_tool registry "${PACER_REGISTRY_CACHE:-}" "$(cat ./*.go)"
build_tool . '-s -w'
