#!/usr/bin/env bash
# Runs the tests of a lane below ONLY (default: all) and prints test2json, the input of
# gotestsum: hack/test.sh gate|unit|e2e
#
# gate: all tests in files without the build tag e2e; their result depends on the code alone.
# unit: those of the gate that need neither root nor an API server.
# e2e: tests in files with the tag: nodes, VMs, load, browsers, servers (docs/testing.md).
set -euo pipefail

lane=$1 only=${ONLY:-.}
# Screenshots of the manager's page and the like.
export JOULEVIRT_ARTIFACTS=${JOULEVIRT_ARTIFACTS:-$PWD/dist/artifacts}

if [[ $lane == e2e ]]; then
  mapfile -t files < <(grep --recursive --files-with-matches --extended-regexp --include='*_test.go' '^//go:build e2e( |$)' "$only" | sort)
  if ((${#files[@]} == 0)); then
    echo "test: no test with the tag e2e below $only" >&2
    exit 1
  fi
  # Others of the same packages are the gate's.
  names=$(sed -n 's/^func \(Test[A-Za-z0-9_]*\)(t \*testing\.T).*/\1/p' "${files[@]}" | sort -u | paste --serial --delimiters='|')
  packages=$(printf '%s\n' "${files[@]}" | xargs dirname | sort -u | sed 's|^\([^./]\)|./\1|' | xargs go list -tags=e2e)
  declare -A order=(
    [e2e/kernels]=0 [install]=1 [e2e/nodes]=2 [e2e/traffic]=3 [scale]=4 [e2e/placement]=5 [faults]=6
  )
  # The package whose VMs are pinned, which takes idle CPUs, runs alone. All others run two at a
  # time, the longest first: beside the emulated machines of the first one that waits much; those
  # with VMs that answer requests come when that is done, and the one that provokes faults beside
  # the shorter ones. Three at a time make VMs wait for CPUs so long that guests do not start.
  longest=() pairs=() alone=()
  while read -r package; do
    suite=${package#*/test/}
    if [[ $suite == e2e ]]; then
      alone+=("$package")
    elif [[ -n ${order[$suite]:-} ]]; then
      longest[order[$suite]]=$package
    else
      pairs+=("$package")
    fi
  done <<<"$packages"
  pairs=("${longest[@]}" "${pairs[@]}")
  run=(go test -json -tags=e2e -ldflags=-s -count=1 -timeout "${TEST_TIMEOUT:-40m}" -run "^($names)\$")
  failed=0
  if ((${#pairs[@]})); then
    "${run[@]}" -p 2 "${pairs[@]}" || failed=1
  fi
  if ((${#alone[@]})); then
    "${run[@]}" "${alone[@]}" || failed=1
  fi
  exit "$failed"
fi

# Packages that use a control plane import something below test/, those that make cgroups and
# network namespaces import hosttest.
list='{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}{{end}}'
packages=$(go list -f "$list" "${only%/}/...")
if [[ -z $packages ]]; then
  echo "test: no test of the gate below $only" >&2
  exit 1
fi
light=() rooted=() pairs=()
while read -r package imports; do
  if [[ "$package $imports" =~ joulevirt/test/ ]]; then
    pairs+=("$package")
  elif [[ $imports =~ /internal/host/hosttest ]]; then
    rooted+=("$package")
  else
    light+=("$package")
  fi
done <<<"$packages"
run=(go test -json -ldflags=-s -timeout "${TEST_TIMEOUT:-20m}")

if [[ $lane == unit ]]; then
  echo "test: ${#light[@]} packages; left out: ${#rooted[@]} that need root, ${#pairs[@]} that use a control plane (make test runs them)" >&2
  ((${#light[@]})) || exit 1
  exec "${run[@]}" "${light[@]}"
fi

failed=0
if ((${#light[@]} + ${#rooted[@]})); then
  "${run[@]}" "${light[@]}" "${rooted[@]}" || failed=1
fi
# Never from the cache: Go does not know which programs these talk to.
if ((${#pairs[@]})); then
  "${run[@]}" -count=1 -p 2 "${pairs[@]}" || failed=1
fi
exit "$failed"
