#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.sh BINARY POLICIES: builds a release twice and looks at it as somebody who downloads it. Needs no network.
set -eu

usage='usage: check.sh BINARY POLICIES'
binary=$(realpath -- "${1:?$usage}") policies=$(realpath -- "${2:?$usage}")
here=$(cd -- "$(dirname -- "$0")" && pwd)
helm=$(sh "$here/../../tests/helm/build.sh")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# An image with what debuggers need would be larger than images may be.
strip --strip-debug -o "$scratch/pacer" "$binary"
binary=$scratch/pacer
fail() { echo "release: $*" >&2; exit 1; }

# The provenance names the bytes of every file here.
attested() {
    for file in *; do
        case $file in provenance.json | SHA256SUMS) continue ;; esac
        grep -qF "{\"name\":\"$file\",\"digest\":{\"sha256\":\"$(sha256sum "$file" | cut -d' ' -f1)\"}}" provenance.json ||
            fail "the provenance in $PWD lacks $file"
    done
}

export RELEASE_URL=https://example.com/pacer/releases/download SOURCE_URL=https://example.com/pacer REGISTRY=registry.example.com/Some
for run in first second; do sh "$here/build.sh" "$binary" "$policies" "$scratch/$run"; done
diff -r "$scratch/first" "$scratch/second" || fail 'two builds differ'

cd "$scratch/first"
sha256sum --quiet --check SHA256SUMS
for file in *; do
    [ "$file" = SHA256SUMS ] || grep -q "  $file\$" SHA256SUMS || fail "$file has no checksum"
done
(cd "$here/sbom" && GOWORK=off go test ./... >/dev/null) || fail 'the SBOM lacks what is embedded in the program'
version=$("$binary" version | sed 's/^[^0-9]*//; s/ .*//')

# The program runs from the archive, under the name that kubectl looks for as well.
archive=$(echo pacer-"$version"-linux-*.tar.gz)
mkdir "$scratch/program"
tar -xzf "$archive" -C "$scratch/program"
ln -s pacer "$scratch/program/kubectl-pacer"
[ "$("$scratch/program/kubectl-pacer" version)" = "$("$binary" version)" ] || fail 'the packed program is another one'
[ -s "$scratch/program/LICENSE" ] && [ -s "$scratch/program/man/pacer.1" ] && [ -s "$scratch/program/completions/pacer.bash" ] ||
    fail 'the archive lacks the licence, the man pages or the completions'
# Beside it lies what policies in JavaScript take, and it fits.
"$scratch/program/pacer" policy precompile | grep -q ' fits this program already$' || fail 'the archive lacks the native code of the interpreter'
"$scratch/program/pacer" crds | cmp - "pacer-$version-crds.yaml"

# The chart can be used as it was packed, and renders what lies beside it.
"$helm" show chart "pacer-chart-$version.tgz" | grep -q "^version: $version\$" || fail 'the chart has another version'
"$helm" template pacer "pacer-chart-$version.tgz" --namespace actions-runner-system --include-crds | cmp - "pacer-$version-install.yaml"
"$helm" show chart "pacer-chart-$version.tgz" >"$scratch/described"
for line in "home: $SOURCE_URL" "      url: $SOURCE_URL/tree/v$version/docs" "      image: registry.example.com/some/pacer:$version"; do
    grep -qxF -- "$line" "$scratch/described" || fail "the chart does not say: $line"
done

# The list of the image's files is that of the image.
listed=$(echo pacer-"$version"-image-linux-*-files.tsv)
grep -qF "$(sha256sum "$binary" | cut -d' ' -f1)" "$listed" || fail 'the list of files has another program'

# Every component of the library is accepted.
mkdir "$scratch/policies"
tar -xzf "pacer-$version-policies.tar.gz" -C "$scratch/policies"
for policy in "$scratch"/policies/*.wasm; do "$binary" policy check "$policy" >/dev/null; done

# The provenance and the plugin's manifest name the bytes that are there.
attested
grep -qF "\"resolvedDependencies\":[{\"uri\":\"git+$SOURCE_URL\"," provenance.json || fail 'the provenance names another source'
grep -qF "sha256: $(sha256sum "$archive" | cut -d' ' -f1)" krew.yaml || fail 'the plugin has another checksum'
grep -qF "uri: $RELEASE_URL/$archive" krew.yaml || fail 'the plugin has another address'

# Releases of two platforms are one. No other platform's program is there without a cross compiler: what build.sh writes for it is made of this one's.
cp -R "$scratch/first" "$scratch/other"
here_arch=$(echo "$archive" | sed 's/.*-linux-\(.*\)\.tar\.gz/\1/')
(cd "$scratch/other" && for file in *-linux-*; do
    printf x >>"$file"
    mv "$file" "$(echo "$file" | sed "s/-linux-$here_arch/-linux-other/")"
done
sed -i "s/linux-$here_arch/linux-other/; s/arch: $here_arch/arch: other/; s/^\( *sha256:\).*/\1 $(sha256sum pacer-*-linux-other.tar.gz | cut -d' ' -f1)/" krew.yaml
sed -i "s#linux/$here_arch#linux/other#" provenance.json
rm SHA256SUMS && sums=$(sha256sum -- *) && printf '%s\n' "$sums" >SHA256SUMS)
sh "$here/merge.sh" "$scratch/merged" "$scratch/first" "$scratch/other"
(
    cd "$scratch/merged"
    sha256sum --quiet --check SHA256SUMS
    [ "$(wc -l <SHA256SUMS)" = "$(($(ls | wc -l) - 1))" ] || fail 'a file of two platforms has no checksum'
    attested
    grep -qF "\"platform\":\"linux/$here_arch,linux/other\"" provenance.json || fail 'the provenance names other platforms'
    for arch in "$here_arch" other; do
        grep -qF "matchLabels: {os: linux, arch: $arch}" krew.yaml || fail "the plugin lacks $arch"
        grep -qF "sha256: $(sha256sum "pacer-$version-linux-$arch.tar.gz" | cut -d' ' -f1)" krew.yaml || fail "the plugin of $arch has another checksum"
    done
    [ "$(grep -c '^kind: Plugin' krew.yaml)" = 1 ] || fail 'the manifest of the plugin is two'
)
# One that has another chart is no part of the same release.
printf x >>"$scratch/other/pacer-chart-$version.tgz"
(cd "$scratch/other" && rm SHA256SUMS && sums=$(sha256sum -- *) && printf '%s\n' "$sums" >SHA256SUMS)
if sh "$here/merge.sh" "$scratch/mixed" "$scratch/first" "$scratch/other" 2>/dev/null; then fail 'two charts are taken for one'; fi

# What is damaged is found out.
printf x >>"$archive"
if sha256sum --quiet --check SHA256SUMS >/dev/null 2>&1; then fail 'a damaged archive passes'; fi
echo "release: $(ls | wc -l) files, reproducible"
