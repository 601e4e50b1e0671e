#!/usr/bin/env bash
# Runs the tests below ONLY (default: all) and prints test2json, the input of
# gotestsum. `hack/test.sh unit` runs only the packages without a cluster, a VM
# or a need for root.
#
# Packages with VMs under load run one after the other: each of them keeps a
# small machine busy. Packages that run a guest, or mostly wait for an API
# server, run two at a time.
set -euo pipefail

only=${ONLY:-.}
timeout=${TEST_TIMEOUT:-20m}
# Screenshots of the manager's page and the like.
export JOULEVIRT_ARTIFACTS=${JOULEVIRT_ARTIFACTS:-$PWD/dist/artifacts}

# Packages that use a cluster or a VM import something below test/, those that
# make cgroups and network namespaces import hosttest. Those with VMs under load, and
# the one that takes longest, are known by name.
list='{{.ImportPath}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}'
packages=$(go list -f "$list" "${only%/}/...")
if [[ -z $packages ]]; then
  echo "test: no package below $only" >&2
  exit 1
fi
light=() rooted=() pairs=() heavy=() slowed=()
while read -r package imports; do
  if [[ "$package" == */test/nodevm ]]; then
    slowed+=("$package")
  elif [[ "$package" == */test/e2e || "$package" == */test/faults ]]; then
    heavy+=("$package")
  elif [[ "$package" == */test/e2e/traffic ]]; then
    pairs=("$package" "${pairs[@]}")
  elif [[ "$package $imports" =~ joulevirt/test/ ]]; then
    pairs+=("$package")
  elif [[ "$package $imports" =~ /internal/host/hosttest ]]; then
    rooted+=("$package")
  else
    light+=("$package")
  fi
done <<<"$packages"

if [[ ${1:-} == unit ]]; then
  echo "test: ${#light[@]} packages; left out: ${#rooted[@]} that need root, $((${#pairs[@]} + ${#heavy[@]} + ${#slowed[@]})) that use a cluster or a VM (make test runs them)" >&2
  ((${#light[@]})) || exit 1
  exec go test -json -timeout "$timeout" "${light[@]}"
fi

failed=0
if ((${#light[@]} + ${#rooted[@]})); then
  go test -json -timeout "$timeout" "${light[@]}" "${rooted[@]}" || failed=1
fi
# Never from the cache: Go does not know which programs these talk to.
if ((${#pairs[@]})); then
  go test -json -count=1 -timeout "${TEST_TIMEOUT:-40m}" -p 2 "${pairs[@]}" || failed=1
fi
# Their VMs take twice as long on a machine of which others take half.
if ((${#heavy[@]})); then
  go test -json -count=1 -timeout "${TEST_TIMEOUT:-40m}" -p 1 "${heavy[@]}" || failed=1
fi
# The node VM's clocks are slowed where this machine is too busy for it.
if ((${#slowed[@]})); then
  go test -json -count=1 -timeout "${TEST_TIMEOUT:-50m}" -p 1 "${slowed[@]}" || failed=1
fi
exit "$failed"
