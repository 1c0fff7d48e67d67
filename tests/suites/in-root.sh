#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# in-root.sh ARGUMENT...: runs the program of an unpacked image as its pod does: as the image's user, on the image's root, which nobody may write. In
# suites it stands for the program: PACER_BIN=tests/suites/in-root.sh. Takes the superuser, for mounts that nobody else sees.
#
# It is the process that a suite starts, watches and kills from the beginning to the end, as a container of a runtime would not be. What a runtime
# adds to the image is added here: /proc, a few devices, and the files that arguments name, at the same places.
#
#   PACER_IMAGE_ROOT  what `make image` has unpacked (target/image-root)
set -eu

self=$(realpath -- "$0")
root=$(realpath -- "${PACER_IMAGE_ROOT:-$(dirname -- "$self")/../../target/image-root}")
[ -x "$root/usr/local/bin/pacer" ] || { echo "in-root: no image in $root: run make image" >&2; exit 1; }
if [ "${PACER_IN_ROOT:-}" != mounting ]; then
    PACER_IN_ROOT=mounting exec unshare --mount --propagation private "$self" "$@"
fi
unset PACER_IN_ROOT

new=/mnt
mount -t tmpfs -o mode=755 tmpfs "$new"
for part in "$root"/*; do
    inside=$new/${part##*/}
    # Files of the suites lie in the one directory that everybody may write elsewhere; nothing of the image is in it.
    if [ "$inside" = "$new/tmp" ]; then
        [ -z "$(ls -A "$part")" ] || { echo "in-root: the image has files in /tmp" >&2; exit 1; }
        mkdir -m 1777 "$inside"
        continue
    fi
    mkdir "$inside"
    mount --bind "$part" "$inside"
    mount -o remount,bind,ro "$inside"
done
mkdir "$new/proc" "$new/dev"
mount --bind /proc "$new/proc"
for device in null zero random urandom; do
    : >"$new/dev/$device"
    mount --bind "/dev/$device" "$new/dev/$device"
done

add() { install -D -m 644 -- "$1" "$new$1"; }
for argument in "$@"; do
    file=${argument#--*=}
    case $file in /*) [ -f "$file" ] || continue ;; *) continue ;; esac
    add "$file"
    # What a kubeconfig of the suites names.
    authority=$(sed -n 's/.*"certificate-authority":"\([^"]*\)".*/\1/p' "$file")
    [ -z "$authority" ] || add "$authority"
done
mount -o remount,ro "$new"
exec chroot --userspec=65532:65532 --groups=65532 "$new" /usr/local/bin/pacer "$@"
