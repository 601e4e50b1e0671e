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

# A line for each package with tests: its name and all that its tests depend on.
tests=$(go list -test -f '{{if not .ForTest}}{{.ImportPath}} {{.Deps}}{{end}}' "${only%/}/..." | sed -n 's/^\([^ ]*\)\.test /\1 /p')
if [[ $lane == unit ]]; then
  # Those of test/cluster start an API server or install programs, those of test/hosttest need root.
  tests=$(grep --extended-regexp --invert-match '^[^ ]*/test/|/test/(cluster|hosttest)' <<<"$tests" || true)
fi
if [[ -z $tests ]]; then
  echo "test: no test of the lane $lane below $only" >&2
  exit 1
fi
mapfile -t packages < <(cut --delimiter=' ' --fields=1 <<<"$tests")
# Never from the cache: Go does not know which programs the tests talk to.
exec go test -json -ldflags=-s -count=1 -p 2 -timeout "${TEST_TIMEOUT:-20m}" "${packages[@]}"
