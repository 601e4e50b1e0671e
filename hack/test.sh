#!/usr/bin/env bash
# Runs the tests of a lane below ONLY (default: all) and prints test2json, the input of
# gotestsum: hack/test.sh gate|unit
#
# gate: all tests in files without the build tag e2e; their result depends on the code alone.
# unit: those of the gate that need neither root nor an API server.
set -euo pipefail

lane=$1 only=${ONLY:-.}
# Screenshots of the manager's page and the like.
export JOULEVIRT_ARTIFACTS=${JOULEVIRT_ARTIFACTS:-$PWD/dist/artifacts}

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
