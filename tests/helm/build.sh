#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds helm at the version that go.mod pins and prints the path of the executable, as the only line on standard output. It lies in a cache
# under a hash of the sources, so this builds once and answers at once from then on.
#
#   HELM              an executable to use instead: nothing is built
#   PACER_HELM_CACHE  the cache (${XDG_CACHE_HOME:-~/.cache}/pacer/helm)
set -eu

tool=helm
. "$(dirname -- "$0")/../go/tool.sh"

if [ -n "${HELM:-}" ]; then
    [ -x "$HELM" ] || die "HELM is no executable: $HELM"
    printf '%s\n' "$HELM"
    exit 0
fi

cd -- "$(dirname -- "$0")"
version=$(sed -n 's#^[[:space:]]*helm\.sh/helm/v3 \(v[^ ]*\).*#\1#p' go.mod)
# As in helm's own build: without these, charts are told that the cluster is Kubernetes 1.20.
minor=$(sed -n 's#^[[:space:]]*k8s\.io/client-go v0\.\([0-9]*\).*#\1#p' go.mod)
ldflags="-s -w -X helm.sh/helm/v3/internal/version.version=$version"
for package in helm.sh/helm/v3/pkg/lint/rules helm.sh/helm/v3/pkg/chartutil; do
    ldflags="$ldflags -X $package.k8sVersionMajor=1 -X $package.k8sVersionMinor=$minor"
done
CURE=', or set HELM to an executable'
find_tool helm "${PACER_HELM_CACHE:-}" "$ldflags"
say "building helm $version into $dir; the first time, this takes some minutes on two cores"
build_tool helm.sh/helm/v3/cmd/helm "$ldflags"
