#!/usr/bin/env bash
# Runs the tests below ONLY (default: all) and prints test2json, the input of
# gotestsum. `hack/test.sh unit` runs only the packages without a cluster, a VM
# or a need for root.
#
# The package whose VMs are pinned, which takes idle CPUs, runs alone. All others
# run two at a time, the longest first: beside the emulated machines of the first
# one that waits much; those with VMs that answer requests come when that is done,
# and the one that provokes faults beside the shorter ones. Three at a time make VMs
# wait for CPUs so long that guests do not start.
set -euo pipefail

only=${ONLY:-.}
timeout=${TEST_TIMEOUT:-20m}
# Screenshots of the manager's page and the like.
export JOULEVIRT_ARTIFACTS=${JOULEVIRT_ARTIFACTS:-$PWD/dist/artifacts}

# Packages that use a cluster or a VM import something below test/, those that
# make cgroups and network namespaces import hosttest.
list='{{.ImportPath}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}'
packages=$(go list -f "$list" "${only%/}/...")
if [[ -z $packages ]]; then
  echo "test: no package below $only" >&2
  exit 1
fi
declare -A order=(
  [e2e/kernels]=0 [install]=1 [e2e/nodes]=2 [e2e/traffic]=3 [scale]=4 [e2e/placement]=5 [faults]=6
)
light=() rooted=() longest=() pairs=() alone=()
while read -r package imports; do
  suite=${package#*/test/}
  if [[ $suite == e2e ]]; then
    alone+=("$package")
  elif [[ -n ${order[$suite]:-} ]]; then
    longest[order[$suite]]=$package
  elif [[ "$package $imports" =~ joulevirt/test/ ]]; then
    pairs+=("$package")
  elif [[ "$package $imports" =~ /internal/host/hosttest ]]; then
    rooted+=("$package")
  else
    light+=("$package")
  fi
done <<<"$packages"
pairs=("${longest[@]}" "${pairs[@]}")

if [[ ${1:-} == unit ]]; then
  echo "test: ${#light[@]} packages; left out: ${#rooted[@]} that need root, $((${#pairs[@]} + ${#alone[@]})) that use a cluster or a VM (make test runs them)" >&2
  ((${#light[@]})) || exit 1
  exec go test -json -ldflags=-s -timeout "$timeout" "${light[@]}"
fi

failed=0
if ((${#light[@]} + ${#rooted[@]})); then
  go test -json -ldflags=-s -timeout "$timeout" "${light[@]}" "${rooted[@]}" || failed=1
fi
# Never from the cache: Go does not know which programs these talk to.
if ((${#pairs[@]})); then
  go test -json -ldflags=-s -count=1 -timeout "${TEST_TIMEOUT:-40m}" -p 2 "${pairs[@]}" || failed=1
fi
if ((${#alone[@]})); then
  go test -json -ldflags=-s -count=1 -timeout "${TEST_TIMEOUT:-40m}" "${alone[@]}" || failed=1
fi
exit "$failed"
