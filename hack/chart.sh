#!/usr/bin/env bash
# Copies the manifests that the Helm chart installs as they are into the chart, for Helm
# reads no files outside of it: hack/chart.sh [CHART]
#
# Manager, agents, gateways, what mounts shares, and the Job of a removal have templates of their own, where values go.
set -euo pipefail

cd "$(dirname "$0")/.."
files=${1:-charts/joulevirt}/files
rm -rf "$files"
mkdir -p "$files"/{crds,base,mutation,prometheus,openshift,grafana,removal,policies,offload,shared-memory,openshift/shared-memory,host-power/metal3,host-power/redfish}
# manifests FOLDER prints the manifests of a folder, one a line.
manifests() { find "$1" -maxdepth 1 -name '*.yaml' ! -name kustomization.yaml; }
cp $(manifests config/crd/bases) "$files/crds/"
cp $(manifests config/rbac) $(manifests config/admission) "$files/base/"
cp $(manifests config/mutation) "$files/mutation/"
cp config/manager/{disruption_budget,metrics_service}.yaml "$files/base/"
for program in manager agent; do
  cp "config/$program/priority_class.yaml" "$files/base/${program}_priority_class.yaml"
done
cp $(manifests config/prometheus) "$files/prometheus/"
cp $(manifests config/openshift/scc) "$files/openshift/"
cp config/grafana/*.json "$files/grafana/"
for folder in host-power host-power/metal3 host-power/redfish shared-memory openshift/shared-memory; do
  cp $(manifests "config/$folder") "$files/$folder/"
done
rm "$files/shared-memory/daemonset.yaml"
cp config/removal/rights.yaml "$files/removal/"
cp config/offload/{gateways,priority_class,rights}.yaml "$files/offload/"
cp policies/observe.yaml "$files/policies/"
