#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# build.sh BINARY DIRECTORY: writes an OCI layout with the program into a directory that must not exist, then unpacks and runs it. Needs Go and
# a Debian whose glibc the program was linked against, no container engine. The same program on the same machine gives the same bytes.
#
#   SOURCE_DATE_EPOCH  time of all files (that of the last commit)
set -eu

binary=${1:?usage: build.sh BINARY DIRECTORY} out=${2:?usage: build.sh BINARY DIRECTORY}
image=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$image/../.." && pwd)
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
version=$("$binary" version | sed 's/^[^0-9]*//; s/ .*//')

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
(cd "$image/oci" && CGO_ENABLED=0 GOWORK=off go build -mod=readonly -buildvcs=false -trimpath -o "$scratch/oci" .)
"$scratch/oci" --binary "$binary" --out "$out" --manifest "$root/Cargo.toml" --version "$version" --epoch "$epoch"

# What is in it runs alone, as the user that it names, on a root that it may not write.
layer=
for blob in "$out"/blobs/sha256/*; do
    if gzip -t "$blob" 2>/dev/null; then layer=$blob; fi
done
mkdir "$scratch/root"
tar -xzf "$layer" -C "$scratch/root"
programs=$(cd "$scratch/root" && find . -type f -perm -u+x ! -name '*.so*' | sort)
[ "$programs" = ./usr/local/bin/pacer ] || { echo "image: unexpected programs: $programs" >&2; exit 1; }
if [ "$(id -u)" = 0 ]; then set -- chroot --userspec=65532:65532; else set -- unshare --map-root-user chroot; fi
"$@" "$scratch/root" /usr/local/bin/pacer crds >"$scratch/crds"
"$binary" crds | cmp - "$scratch/crds"
