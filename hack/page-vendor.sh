#!/usr/bin/env bash
# Gets the third-party files of the built-in page, and of its tests, anew from their npm
# packages, and checks what they should be: hack/page-vendor.sh
#
# Versions and checksums stand here and, of what the page embeds, in hack/sbom/vendored.json.
# To take another version, change both.
set -euo pipefail

cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# unpack NAME VERSION SHA512 (as npm has it, base64)
unpack() {
  (cd "$work" && npm pack --silent "$1@$2" >/dev/null)
  local archive="$work/$1-$2.tgz"
  local sum
  sum=$(openssl dgst -sha512 -binary "$archive" | base64 --wrap=0)
  if [[ "$sum" != "$3" ]]; then
    echo "$1@$2 has checksum $sum, want $3: it is not used" >&2
    exit 1
  fi
  mkdir "$work/$1"
  tar --extract --gzip --file="$archive" --directory="$work/$1" --strip-components=1
}

# What the page embeds is in its program's bill of materials too, from the same list.
of() { node --print "require('./hack/sbom/vendored.json').find(p => p.name === '$1').$2"; }
unpack uplot "$(of uplot version)" "$(of uplot sha512)"
vendor=internal/page/assets/vendor
mkdir -p "$vendor"
cp "$work/uplot/dist/uPlot.iife.min.js" "$work/uplot/dist/uPlot.min.css" "$vendor/"
cp "$work/uplot/LICENSE" "$vendor/uPlot.LICENSE.txt"

# Finds faults of accessibility in tests. It is no part of the product.
unpack axe-core 4.14.1 FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==
cp "$work/axe-core/axe.min.js" test/page/testdata/
cp "$work/axe-core/LICENSE" test/page/testdata/axe-core.LICENSE.txt
