#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# push.sh FILES POLICIES: signs what build.sh wrote into FILES, and pushes image, chart and the components of POLICIES to REGISTRY, signed. Needs
# crane, oras, helm and cosign; cosign asks for an identity, which in a workflow is that of the workflow.
#
#   REGISTRY        the registry and its path, such as ghcr.io/example; capitals are made small, because names in registries have none
#   REGISTRY_TOKEN  with which to push; without it, what is logged in already has to do
#   REGISTRY_USER   whose token that is
set -eu

usage='usage: push.sh FILES POLICIES'
files=${1:?$usage} policies=${2:?$usage}
registry=$(printf %s "${REGISTRY:?the registry and its path, such as ghcr.io/example}" | tr '[:upper:]' '[:lower:]')
helm=$(sh "$(dirname -- "$0")/../../tests/helm/build.sh")
chart=$(echo "$files"/pacer-chart-*.tgz)
version=${chart##*/pacer-chart-}
version=${version%.tgz}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# All four programs read what crane writes. The token goes there by standard input, because arguments are seen by every process of the machine.
if [ -n "${REGISTRY_TOKEN:-}" ]; then
    user=${REGISTRY_USER:?whose token REGISTRY_TOKEN is}
    mkdir -m 700 "$scratch/login"
    export DOCKER_CONFIG="$scratch/login"
    printf %s "$REGISTRY_TOKEN" | crane auth login "${registry%%/*}" --username "$user" --password-stdin
    unset REGISTRY_TOKEN
fi

# The checksums cover every other file, the provenance among them.
cosign sign-blob --yes --bundle "$files/SHA256SUMS.sigstore.json" "$files/SHA256SUMS"

# An image for each platform, and one name for them all, behind which a node finds its own.
set --
for packed in "$files"/pacer-"$version"-image-linux-*.tar; do
    arch=${packed##*-linux-}
    arch=${arch%.tar}
    mkdir "$scratch/$arch"
    tar -xf "$packed" -C "$scratch/$arch"
    set -- "$@" --manifest "$(crane push "$scratch/$arch" "$registry/pacer:$version-$arch")"
done
# Signed with what it names, as an admission policy may look at either.
cosign sign --yes --recursive "$(crane index append "$@" --tag "$registry/pacer:$version")"
"$helm" push "$chart" "oci://$registry/charts"
cosign sign --yes "$registry/charts/pacer@$(crane digest "$registry/charts/pacer:$version")"

cd "$policies"
for policy in *.wasm; do
    name=$registry/pacer-policies/${policy%.wasm}
    oras push "$name:$version" "$policy:application/wasm"
    cosign sign --yes "$name@$(crane digest "$name:$version")"
done
