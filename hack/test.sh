#!/usr/bin/env bash
# Runs the tests of a lane below ONLY (default: all) and prints test2json, the input of
# gotestsum: hack/test.sh gate|unit|race
#
# gate: all tests in files without the build tag e2e; their result depends on the code alone.
# unit: those of the gate that need neither root nor an API server.
# race: packages that start goroutines and need one of the two, with the race detector. It makes them so
#   slow that tests fail, which does not count: only data races do. It prints no test2json.
set -euo pipefail

lane=$1 only=${ONLY:-.}

# without_programs leaves out packages with tests that run programs, of test/cluster an API server, or
# need root, as those of test/hosttest do.
without_programs() { grep --extended-regexp --invert-match '^[^ ]*/test/|/test/(cluster|hosttest)' || true; }

# Screenshots of the manager's page and the like.
export JOULEVIRT_ARTIFACTS=${JOULEVIRT_ARTIFACTS:-$PWD/dist/artifacts}

# A line for each package with tests: its name and all that its tests depend on.
tests=$(go list -test -f '{{if not .ForTest}}{{.ImportPath}} {{.Deps}}{{end}}' "${only%/}/..." | sed -n 's/^\([^ ]*\)\.test /\1 /p')
if [[ $lane == unit ]]; then
  tests=$(without_programs <<<"$tests")
fi
if [[ -z $tests ]]; then
  echo "test: no test of the lane $lane below $only" >&2
  exit 1
fi
mapfile -t packages < <(cut --delimiter=' ' --fields=1 <<<"$tests")
# Never from the cache: Go does not know which programs the tests talk to. Vetting is make vet's.
run=(go test -json -vet=off -ldflags=-s -shuffle=on -count=1 -p 2 -timeout "${TEST_TIMEOUT:-20m}")
if [[ $lane == unit ]]; then
  exec "${run[@]}" "${packages[@]}"
fi

# With the race detector too, and built anew for it: packages of the lane unit that start goroutines.
unit=$(without_programs <<<"$tests" | cut --delimiter=' ' --fields=1)
concurrent=$(grep --recursive --files-with-matches --extended-regexp --include='*.go' '^\s*go [a-zA-Z]|\.Go\(' "$only" | xargs --no-run-if-empty dirname | sort -u)
raced=() others=()
for package in "${packages[@]}"; do
  folder=./${package##*/joulevirt/}
  if ! grep --quiet --line-regexp --fixed-strings "$folder" <<<"$concurrent"; then continue; fi
  if grep --quiet --line-regexp --fixed-strings "$package" <<<"$unit"; then raced+=("$package"); elif [[ $folder != ./test/* ]]; then others+=("$package"); fi
done
if [[ $lane == race ]]; then
  log=dist/race.log
  CGO_ENABLED=1 go test -race -vet=off -ldflags=-s -count=1 -p 1 -timeout 60m "${others[@]}" >"$log" 2>&1 || true
  races=$(grep --count '^WARNING: DATA RACE' "$log" || true)
  built=$(grep --count --extended-regexp '^(ok|FAIL)\s+\S+\s+[0-9.]+s' "$log" || true)
  echo "RACE ${#others[@]} packages: $built ran, $races data races, $(grep --count '^--- FAIL' "$log" || true) tests failed, see $log"
  exit $((races > 0 || built < ${#others[@]}))
fi
failed=0
if ((${#raced[@]})); then
  CGO_ENABLED=1 "${run[@]}" -race "${raced[@]}" || failed=1
fi
"${run[@]}" "${packages[@]}" || failed=1
exit "$failed"
