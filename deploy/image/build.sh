#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# build.sh BINARY DIRECTORY: writes an OCI layout with the program into DIRECTORY and a table of its files (path, mode, bytes, SHA-256) into
# DIRECTORY-files.tsv, unpacks its root into DIRECTORY-root, for the Dockerfile, and runs it there. Neither directory may exist. Needs Go and a Debian
# whose glibc the program was linked against, no container engine. The same program on the same machine gives the same bytes.
#
#   ARCH               platform of the program, amd64 or arm64 (this machine's). For another one Debian's cross compiler for it has to be
#                      installed, whose libraries the image gets
#   RUN                what runs a program of that platform here, such as "qemu-aarch64-static -L /usr/aarch64-linux-gnu"; without it, what is
#                      for another platform is not run
#   SOURCE_DATE_EPOCH  time of all files (that of the last commit)
set -eu

binary=${1:?usage: build.sh BINARY DIRECTORY} out=${2:?usage: build.sh BINARY DIRECTORY}
image=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$image/../.." && pwd)
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
case $(uname -m) in
    x86_64) here=amd64 ;;
    aarch64) here=arm64 ;;
    *) here=$(uname -m) ;;
esac
arch=${ARCH:-$here}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
(cd "$image/oci" && CGO_ENABLED=0 GOWORK=off go build -mod=readonly -buildvcs=false -trimpath -o "$scratch/oci" .)
# The program compiles for its own platform, in processes that an emulator can't start.
interpreter=
if [ "$arch" = "$here" ]; then
    interpreter=$scratch/pacer.interpreter
    "$binary" policy precompile -o "$interpreter" >/dev/null
fi
"$scratch/oci" --binary "$binary" --interpreter "$interpreter" --out "$out" --manifest "$root/Cargo.toml" --version "$version" --epoch "$epoch" --arch "$arch"

# What is in it runs alone, as the user that it names, on a root that it may not write.
layer=
for blob in "$out"/blobs/sha256/*; do
    if gzip -t "$blob" 2>/dev/null; then layer=$blob; fi
done
unpacked=$out-root
mkdir -m 755 "$unpacked"
tar -xzpf "$layer" -C "$unpacked"
(cd "$unpacked" && find . -type f | sed 's#^\./##' | LC_ALL=C sort) >"$scratch/unpacked"
tail -n +2 "$out-files.tsv" | cut -f 1 | cmp - "$scratch/unpacked" || { echo "image: its table of files is another image's" >&2; exit 1; }
tail -n +2 "$out-files.tsv" | awk -F '\t' '{ print $4 "  " $1 }' | (cd "$unpacked" && sha256sum --quiet --check)
# The Dockerfile's context is this directory.
sed -n 's/^COPY \(.*\) .*/\1/p' "$image/Dockerfile" | while read -r copied; do
    [ -n "$(ls -A "$unpacked/$copied")" ] || { echo "image: the Dockerfile copies $copied, which is not in $unpacked" >&2; exit 1; }
done
programs=$(cd "$unpacked" && find . -type f -perm -u+x ! -name '*.so*' | sort)
[ "$programs" = ./usr/local/bin/pacer ] || { echo "image: unexpected programs: $programs" >&2; exit 1; }
if [ "$arch" != "$here" ]; then
    [ -n "${RUN:-}" ] || { echo "image: not run, because this machine is $here" >&2; exit 0; }
    # No other root than this machine's for an emulator: its libraries are those of the image.
    set -- ${RUN%% *} -L "$unpacked" "$unpacked/usr/local/bin/pacer"
    "$@" crds >"$scratch/crds"
    "$@" version | grep -q " $version\$" || { echo "image: the program is not version $version" >&2; exit 1; }
    [ -s "$scratch/crds" ]
    exit 0
fi
[ "$("$binary" version)" = "pacer $version" ] || { echo "image: the program is not version $version" >&2; exit 1; }
# Where users may not make namespaces of their own, the superuser lends its own.
if [ "$(id -u)" = 0 ]; then
    set -- chroot --userspec=65532:65532
elif unshare --map-root-user true 2>/dev/null; then
    set -- unshare --map-root-user chroot
else
    set -- sudo -n chroot --userspec=65532:65532
fi
"$@" "$unpacked" /usr/local/bin/pacer crds >"$scratch/crds"
"$binary" crds | cmp - "$scratch/crds"
started=$(date +%s%N)
"$@" "$unpacked" /usr/local/bin/pacer version >/dev/null
echo "$arch: the program starts and ends in $((($(date +%s%N) - started) / 1000000)) ms"
