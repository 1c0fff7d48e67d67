#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds etcd, kube-apiserver, kube-controller-manager and kubectl as one
# executable and prints the directory that holds it under these four names, as
# the only line on standard output. The directory has the layout of
# KUBEBUILDER_ASSETS, and lies in a cache under a hash of the sources, so this
# builds once and answers at once from then on.
#
#   KUBEBUILDER_ASSETS        a directory to use instead: nothing is built
#   PACER_CONTROLPLANE_CACHE  the cache (${XDG_CACHE_HOME:-~/.cache}/pacer/controlplane)
set -eu

components='etcd kube-apiserver kube-controller-manager kubectl'
# What a change to this script must add to the key; the linker flags are in it.
build='CGO_ENABLED=0 -mod=readonly -buildvcs=false -trimpath -gcflags=all=-dwarf=false'

say() { printf 'controlplane: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
    assets=$(cd -- "$KUBEBUILDER_ASSETS" 2>/dev/null && pwd) ||
        die "KUBEBUILDER_ASSETS is no directory: $KUBEBUILDER_ASSETS"
    missing=
    for name in $components; do
        [ -x "$assets/$name" ] || missing="$missing $name"
    done
    [ -z "$missing" ] ||
        die "KUBEBUILDER_ASSETS ($assets) lacks:$missing. envtest's own assets have no kube-controller-manager: add what is missing there, or unset KUBEBUILDER_ASSETS to have all of it built"
    printf '%s\n' "$assets"
    exit 0
fi

cd -- "$(dirname -- "$0")"
cache=${PACER_CONTROLPLANE_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME, XDG_CACHE_HOME or PACER_CONTROLPLANE_CACHE must be set}/.cache}/pacer/controlplane}
case $cache in /*) ;; *) die "the cache's path must be absolute: $cache" ;; esac

# Without these, the components call themselves v0.0.0-master.
version=$(sed -n 's#^[[:space:]]*\(require \)\{0,1\}k8s\.io/kubernetes \(v[^ ]*\).*#\2#p' go.mod)
major=${version#v} minor=${version#*.}
major=${major%%.*} minor=${minor%%.*}
ldflags='-s -w'
for package in k8s.io/client-go/pkg/version k8s.io/component-base/version; do
    ldflags="$ldflags -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor"
    ldflags="$ldflags -X $package.gitCommit= -X $package.gitTreeState=clean"
done

if command -v sha256sum >/dev/null; then sum=sha256sum
elif command -v shasum >/dev/null; then sum='shasum -a 256'
else die 'neither sha256sum nor shasum is installed'
fi
key=$({ printf '%s\n' "$build" "$ldflags" "$(uname -sm)"; $sum go.mod go.sum ./*.go; } | $sum | cut -c1-16)
dir=$cache/$key

# The executable's name appears last, and only when all else is in place.
ready() { [ -x "$dir/controlplane" ]; }
if ready; then
    printf '%s\n' "$dir"
    exit 0
fi

need=$(sed -n 's/^go \([0-9.]*\)$/\1/p' go.mod)
install="install Go $need or newer (https://go.dev/doc/install), or set KUBEBUILDER_ASSETS to a directory with: $components"
command -v go >/dev/null || die "go is not installed: $install"
# Inside the module, so that a toolchain that go fetches for it counts.
have=$(GOWORK=off go env GOVERSION 2>&1) || die "go is too old or does not work ($have): $install"
awk -v have="${have#go}" -v need="$need" 'BEGIN {
    split(have, h, /[^0-9]+/); split(need, n, /[^0-9]+/)
    for (i = 1; i <= 3; i++) if (h[i] + 0 != n[i] + 0) exit h[i] + 0 < n[i] + 0
}' || die "$have is too old: $install"

mkdir -p "$dir"
if command -v flock >/dev/null; then
    exec 9>"$cache/$key.lock"
    flock -n 9 || { say 'another process is building it: waiting'; flock 9; }
    if ready; then
        printf '%s\n' "$dir"
        exit 0
    fi
fi

new=$dir/.new.$$
ticker=
# shellcheck disable=SC2317,SC2329
cleanup() {
    [ -z "$ticker" ] || kill "$ticker" 2>/dev/null || :
    rm -f "$new" "$new.link"
    rmdir "$dir" 2>/dev/null || : # of a build that failed
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

start=$(date +%s)
elapsed() { echo "$(($(date +%s) - start)) s"; }
say "building Kubernetes $version into $dir"
say 'the first time, this takes five to ten minutes on two idle cores'
(
    trap 'kill "$nap" 2>/dev/null; exit' TERM
    while :; do
        sleep 30 & nap=$!
        wait "$nap"
        say "still building after $(elapsed)"
    done
) >/dev/null 9>&- &
ticker=$!

# go as a child in the background, or a signal would have to wait for it. The linker leaves out what debuggers need (-s -w), so that it need not be
# compiled either.
unset GOOS GOARCH
CGO_ENABLED=0 GOWORK=off \
    go build -mod=readonly -buildvcs=false -trimpath -gcflags=all=-dwarf=false -ldflags "$ldflags" -o "$new" . >&2 9>&- &
go=$!
trap 'kill "$go" 2>/dev/null; exit 130' INT
trap 'kill "$go" 2>/dev/null; exit 143' TERM
wait "$go" || die "the build failed after $(elapsed)"

for name in $components; do
    ln -s controlplane "$new.link"
    mv -f "$new.link" "$dir/$name"
done
mv -f "$new" "$dir/controlplane"
say "built in $(elapsed)"
printf '%s\n' "$dir"
