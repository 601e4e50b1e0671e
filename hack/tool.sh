#!/usr/bin/env bash
# Builds a Go program at a pinned version: hack/tool.sh FILE PACKAGE@VERSION
set -euo pipefail

file=$1 package=$2

mkdir -p "$(dirname "$file")"
staging=$(mktemp -d "$file.XXXXXX")
trap 'rm -rf "$staging"' EXIT

# Settings of the caller's module must not reach another one.
GOFLAGS='' GOWORK=off CGO_ENABLED=0 GOBIN="$staging" ROUGH=2m "${0%/*}/step.sh" "build ${package##*/}" \
  go install -trimpath -ldflags '-s -w' "$package"
mv "$staging"/* "$file"
