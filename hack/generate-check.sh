#!/usr/bin/env bash
# Fails when generated files differ from what the sources say now, and shows
# how: hack/generate-check.sh CONTROLLER_GEN
set -euo pipefail

controller_gen=$1
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

"$controller_gen" object crd paths=./api/... \
  output:object:dir="$fresh/object" output:crd:dir="$fresh/crd"
"$controller_gen" rbac:roleName=joulevirt-manager paths=./controllers/... output:rbac:dir="$fresh/rbac"
# In a folder of another name: what is generated does not depend on where.
programs=(internal/datapath/bpf test/datapathtest)
for folder in "${programs[@]}"; do
  mkdir -p "$fresh/$folder"
  cp "$folder"/*.[ch] "$fresh/$folder"
done
hack/generate-bpf.sh "$fresh"

stale=0
go mod tidy -diff || stale=1
diff -u api/v1alpha1/zz_generated.deepcopy.go "$fresh/object/zz_generated.deepcopy.go" || stale=1
diff -ur config/crd/bases "$fresh/crd" || stale=1
diff -u config/rbac/role.yaml "$fresh/rbac/role.yaml" || stale=1
hack/chart.sh "$fresh/chart"
diff -ur charts/joulevirt/files "$fresh/chart/files" || stale=1
for folder in "${programs[@]}"; do
  for file in "$fresh/$folder"/jv_bpf*; do
    # cmp shows that objects differ, diff how Go does.
    cmp "$folder/${file##*/}" "$file" || { diff -u "$folder/${file##*/}" "$file" || true; stale=1; }
  done
  for file in "$folder"/jv_bpf*; do
    [[ -e $fresh/$file ]] || { echo "$file is no longer generated: remove it"; stale=1; }
  done
done
if ((stale)); then
  echo "generated files are not up to date: run go mod tidy and make generate manifests chart, and commit what changes" >&2
  exit 1
fi
echo "generated files are up to date"
