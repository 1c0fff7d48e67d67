#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# build.sh BINARY POLICIES DIRECTORY: writes everything that a release consists of into a directory that must not exist. BINARY is the program,
# POLICIES a directory of components. The same input gives the same bytes. Needs GNU tar, Go and helm (tests/helm).
#
#   SOURCE_DATE_EPOCH  time of all files (that of the last commit)
#   RELEASE_URL        where the files will lie, for the krew manifest and the provenance; without it there is no krew manifest
#   SOURCE_URL         the repository, for the provenance and the chart
#   REGISTRY           where the image will lie, for the chart
#   BUILDER            who builds, a URI, for the provenance (local)
#   ARCH, RUN          platform of the program, and what runs it here, as in deploy/image/build.sh
#   IMAGE_BINARY       the program of the image, which need not start with an older glibc than that of the image (BINARY)
#   SBOM               a CycloneDX document in JSON to add, as cargo-cyclonedx writes it
set -eu

usage='usage: build.sh BINARY POLICIES DIRECTORY'
binary=$(realpath -- "${1:?$usage}") policies=$(realpath -- "${2:?$usage}") out=${3:?$usage}
root=$(cd -- "$(dirname -- "$0")/../.." && pwd)
helm=$(sh "$root/tests/helm/build.sh")
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
commit=$(git -C "$root" rev-parse HEAD)
# Unquoted: it may be a program with arguments.
pacer() { ${RUN:-} "$binary" "$@"; }
version=$(pacer version | sed 's/^[^0-9]*//; s/ .*//')
case ${ARCH:-$(uname -m)} in
    amd64 | x86_64) arch=amd64 ;;
    arm64 | aarch64) arch=arm64 ;;
    *) echo "release: no name is known for this architecture: ${ARCH:-$(uname -m)}" >&2; exit 1 ;;
esac
export ARCH=$arch

charted=$(sed -n 's/^appVersion: *"\(.*\)"/\1/p' "$root/deploy/chart/Chart.yaml")
[ "$charted" = "$version" ] || { echo "release: the chart is for $charted and the program is $version" >&2; exit 1; }

umask 022
mkdir -p -- "$(dirname -- "$out")"
mkdir -- "$out"
out=$(realpath -- "$out")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# collect DIRECTORY: an archive of what is in it, the same bytes for the same content. Helm finds no chart below `./`.
collect() {
    (cd "$1" && tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" --format=gnu -- *)
}

pack() { collect "$1" | gzip -9n >"$2"; }

# The program, as a kubectl plugin as well.
program=$scratch/program
mkdir -p "$program/completions" "$program/man"
install -m 755 "$binary" "$program/pacer"
# What policies in JavaScript take beside it, or it is compiled in every command. An emulator can't start the processes that do it.
[ -n "${RUN:-}" ] || pacer policy precompile -o "$program/pacer.interpreter" >/dev/null
install -m 644 "$root/LICENSE" "$program/LICENSE"
for shell in bash fish zsh; do pacer completion "$shell" >"$program/completions/pacer.$shell"; done
pacer man "$program/man" >/dev/null
archive=pacer-$version-linux-$arch.tar.gz
pack "$program" "$out/$archive"

# The image, as an archive of the layout that any tool for images reads.
"$root/deploy/image/build.sh" "${IMAGE_BINARY:-$binary}" "$scratch/image"
collect "$scratch/image" >"$out/pacer-$version-image-linux-$arch.tar"
install -m 644 "$scratch/image-files.tsv" "$out/pacer-$version-image-linux-$arch-files.tsv"

# The chart, and what it renders with its defaults for those who use none. Helm itself writes the time into its archive.
mkdir "$scratch/chart"
cp -R "$root/deploy/chart" "$scratch/chart/pacer"
described=$scratch/chart/pacer/Chart.yaml
if [ -n "${REGISTRY:-}" ]; then
    registry=$(printf %s "$REGISTRY" | tr '[:upper:]' '[:lower:]')
    sed -i "s#^      image: pacer:#      image: $registry/pacer:#" "$described"
fi
if [ -n "${SOURCE_URL:-}" ]; then
    # Its annotations come last.
    cat >>"$described" <<CHART
  artifacthub.io/links: |
    - name: source
      url: $SOURCE_URL
    - name: documentation
      url: $SOURCE_URL/tree/v$version/docs
home: $SOURCE_URL
sources: [$SOURCE_URL]
CHART
fi
"$helm" lint --quiet "$scratch/chart/pacer" >&2
pack "$scratch/chart" "$out/pacer-chart-$version.tgz"
pacer crds >"$out/pacer-$version-crds.yaml"
"$helm" template pacer "$scratch/chart/pacer" --namespace actions-runner-system --include-crds >"$out/pacer-$version-install.yaml"

# The policy library.
mkdir "$scratch/policies"
cp "$policies"/*.wasm "$scratch/policies/"
pack "$scratch/policies" "$out/pacer-$version-policies.tar.gz"
[ -z "${SBOM:-}" ] || install -m 644 "$SBOM" "$out/pacer-$version.cdx.json"

sum() { sha256sum "$out/$1" | cut -d' ' -f1; }

if [ -n "${RELEASE_URL:-}" ]; then
    cat >"$out/krew.yaml" <<MANIFEST
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: pacer
spec:
  version: v$version
  shortDescription: Explains and prepares self-hosted GitHub Actions runners
  description: |
    Says why a runner was removed, kept or restarted, and why a pool has the number of runners that it has.
    Makes, checks, tests and measures policies for pacer.
  platforms:
    - selector:
        matchLabels: {os: linux, arch: $arch}
      uri: $RELEASE_URL/$archive
      sha256: $(sum "$archive")
      bin: pacer
MANIFEST
fi

# Where it all comes from: a statement of in-toto with a predicate of SLSA provenance v1.
subjects=$(cd "$out" && for file in *; do
    printf '%s{"name":"%s","digest":{"sha256":"%s"}}' "${comma-}" "$file" "$(sum "$file")"
    comma=,
done)
cat >"$out/provenance.json" <<STATEMENT
{"_type":"https://in-toto.io/Statement/v1",
"subject":[$subjects],
"predicateType":"https://slsa.dev/provenance/v1",
"predicate":{"buildDefinition":{"buildType":"${SOURCE_URL:-urn:pacer}#deploy/release/build.sh",
"externalParameters":{"version":"$version","platform":"linux/$arch"},
"resolvedDependencies":[{"uri":"${SOURCE_URL:+git+}${SOURCE_URL:-urn:pacer}","digest":{"gitCommit":"$commit"}}]},
"runDetails":{"builder":{"id":"${BUILDER:-local}"}}}}
STATEMENT
(cd "$out" && sha256sum -- * >"$scratch/sums" && mv "$scratch/sums" SHA256SUMS)
