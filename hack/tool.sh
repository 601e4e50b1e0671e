#!/usr/bin/env bash
# Builds a Go program at a pinned version: hack/tool.sh FILE PACKAGE@VERSION, from the checkout's folder
set -euo pipefail

file=$1 package=$2 name=${2##*/}

mkdir -p "$(dirname "$file")"
staging=$(mktemp -d "$file.XXXXXX")
trap 'rm -rf "$staging"' EXIT

go build -o dist/hack/step ./hack/step
# Settings of the caller's module must not reach another one.
GOFLAGS='' GOWORK=off CGO_ENABLED=0 GOBIN="$staging" dist/hack/step "build ${name%@*}" \
  go install -trimpath -ldflags '-s -w' "$package"
mv "$staging"/* "$file"
