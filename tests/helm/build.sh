#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds helm at the version that go.mod pins and prints the path of the executable, as the only line on standard output. It lies in a cache
# under a hash of the sources, so this builds once and answers at once from then on.
#
#   HELM              an executable to use instead: nothing is built
#   PACER_HELM_CACHE  the cache (${XDG_CACHE_HOME:-~/.cache}/pacer/helm)
set -eu

say() { printf 'helm: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

if [ -n "${HELM:-}" ]; then
    [ -x "$HELM" ] || die "HELM is no executable: $HELM"
    printf '%s\n' "$HELM"
    exit 0
fi

cd -- "$(dirname -- "$0")"
cache=${PACER_HELM_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME, XDG_CACHE_HOME or PACER_HELM_CACHE must be set}/.cache}/pacer/helm}
case $cache in /*) ;; *) die "the cache's path must be absolute: $cache" ;; esac

version=$(sed -n 's#^[[:space:]]*helm\.sh/helm/v3 \(v[^ ]*\).*#\1#p' go.mod)
# As in helm's own build: without these, charts are told that the cluster is Kubernetes 1.20.
minor=$(sed -n 's#^[[:space:]]*k8s\.io/client-go v0\.\([0-9]*\).*#\1#p' go.mod)
ldflags="-s -w -X helm.sh/helm/v3/internal/version.version=$version"
for package in helm.sh/helm/v3/pkg/lint/rules helm.sh/helm/v3/pkg/chartutil; do
    ldflags="$ldflags -X $package.k8sVersionMajor=1 -X $package.k8sVersionMinor=$minor"
done
if command -v sha256sum >/dev/null; then sum=sha256sum
elif command -v shasum >/dev/null; then sum='shasum -a 256'
else die 'neither sha256sum nor shasum is installed'
fi
key=$({ printf '%s\n' "$ldflags" "$(uname -sm)"; $sum go.mod go.sum; } | $sum | cut -c1-16)
dir=$cache/$key
if [ -x "$dir/helm" ]; then
    printf '%s\n' "$dir/helm"
    exit 0
fi

command -v go >/dev/null || die "go is not installed: install Go $(sed -n 's/^go \([0-9.]*\)$/\1/p' go.mod) or newer, or set HELM to an executable"
mkdir -p "$dir"
if command -v flock >/dev/null; then
    exec 9>"$cache/$key.lock"
    flock 9
    if [ -x "$dir/helm" ]; then
        printf '%s\n' "$dir/helm"
        exit 0
    fi
fi

say "building helm $version into $dir; the first time, this takes some minutes on two cores"
new=$dir/.new.$$
trap 'rm -f "$new"' EXIT
unset GOOS GOARCH
CGO_ENABLED=0 GOWORK=off \
    go build -mod=readonly -buildvcs=false -trimpath -ldflags "$ldflags" -o "$new" helm.sh/helm/v3/cmd/helm >&2 9>&- ||
    die 'the build failed'
mv -f "$new" "$dir/helm"
printf '%s\n' "$dir/helm"
