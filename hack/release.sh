#!/usr/bin/env bash
# Packages the chart of a release, which names the images by digest:
# HELM=helm hack/release.sh VERSION REGISTRY MANAGER_DIGEST AGENT_DIGEST GATEWAY_DIGEST FOLDER
set -euo pipefail

version=$1 registry=$2 manager=$3 agent=$4 offload=$5 out=$6
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || { echo "release: VERSION is \"$version\", not such as v1.2.3" >&2; exit 1; }
[[ -n $registry ]] || { echo "release: REGISTRY is not set" >&2; exit 1; }
for digest in "$manager" "$agent" "$offload"; do
  [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "release: \"$digest\" is no digest of an image: make release-images writes them" >&2; exit 1; }
done

staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT
cp -r charts/joulevirt "$staging"
chart=$staging/joulevirt
for part in manager:manager agent:agent offload:gateway; do
  value=${part%:*} image=${part#*:}
  sed -i "/^$value:/,/digest:/{s|repository: .*|repository: $registry/$image|;s|digest: .*|digest: ${!value}|}" "$chart/values.yaml"
done
# Without a digest nodes may run different builds.
sed -i 's/\^sha256:\[0-9a-f\]{64}\$|^\$/^sha256:[0-9a-f]{64}$/' "$chart/values.schema.json"

mkdir -p "$out"
"$HELM" lint --quiet "$chart"
"$HELM" package "$chart" --version "${version#v}" --app-version "$version" --destination "$out"
