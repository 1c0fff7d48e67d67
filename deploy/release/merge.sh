#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# merge.sh DIRECTORY RELEASE...: makes one release of those that build.sh wrote for each platform, in a directory that must not exist. What they have in
# common has to be the same in all of them, byte by byte; krew manifest, provenance and checksums are those of all files.
set -eu

usage='usage: merge.sh DIRECTORY RELEASE...'
out=${1:?$usage} first=${2:?$usage}
shift
fail() { echo "release: $*" >&2; exit 1; }

mkdir -- "$out"
out=$(realpath -- "$out")
for release in "$@"; do
    (cd "$release" && sha256sum --quiet --check SHA256SUMS) || fail "$release is damaged"
    for file in "$release"/*; do
        name=${file##*/}
        case $name in krew.yaml | provenance.json | SHA256SUMS) continue ;; esac
        if [ ! -e "$out/$name" ]; then
            # What only one of them has is of its platform.
            case $release:$name in "$first":* | *-linux-*) ;; *) fail "$first lacks $name" ;; esac
            cp -p -- "$file" "$out/$name"
        else
            cmp -s -- "$file" "$out/$name" || fail "$name is another one in $release than in $first"
        fi
    done
done
for file in "$out"/*; do
    name=${file##*/}
    case $name in *-linux-*) continue ;; esac
    for release in "$@"; do [ -e "$release/$name" ] || fail "$release lacks $name"; done
done

# The first one's, and the platforms of the others.
if [ -e "$first/krew.yaml" ]; then
    for release in "$@"; do
        [ "$release" = "$first" ] && cat "$release/krew.yaml" || sed '1,/^  platforms:$/d' "$release/krew.yaml"
    done >"$out/krew.yaml"
fi

subjects=$(cd "$out" && for file in *; do
    printf '%s{"name":"%s","digest":{"sha256":"%s"}}' "${comma-}" "$file" "$(sha256sum "$file" | cut -d' ' -f1)"
    comma=,
done)
platforms=$(for release in "$@"; do sed -n 's/.*"platform":"\([^"]*\)".*/\1/p' "$release/provenance.json"; done | paste -sd ,)
awk -v subjects="$subjects" -v platforms="$platforms" '
  /^"subject":/ { print "\"subject\":[" subjects "],"; next }
  { sub(/"platform":"[^"]*"/, "\"platform\":\"" platforms "\""); print }' "$first/provenance.json" >"$out/provenance.json"
(cd "$out" && sums=$(sha256sum -- *) && printf '%s\n' "$sums" >SHA256SUMS)
