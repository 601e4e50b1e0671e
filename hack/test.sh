#!/usr/bin/env bash
# Runs the tests below ONLY (default: all) and prints test2json: the input of
# gotestsum. Packages with VMs under load run one after the other, for each of
# them is a load for a whole small machine. Two at a time run those that run
# tests in a guest, where an emulated CPU keeps one of this machine busy and
# counts its own time, and those that mostly wait for an API server.
set -euo pipefail

only=${ONLY:-.}
timeout=${TEST_TIMEOUT:-20m}
# Where tests keep what people look at: screenshots of the manager's page.
export JOULEVIRT_ARTIFACTS=${JOULEVIRT_ARTIFACTS:-$PWD/dist/artifacts}

# Packages that take part in a test cluster, or run a VM, are told by what they,
# or their tests, import from test/; those with VMs under load by their names.
alone='/test/(e2e|nodevm|dataplane)(/|$)'
list='{{.ImportPath}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}'
light=() pairs=() heavy=() slowed=()
while read -r package imports; do
  if [[ "$package" == */test/nodevm ]]; then
    slowed+=("$package")
  elif [[ "$package" =~ $alone ]]; then
    heavy+=("$package")
  elif [[ "$package $imports" =~ joulevirt/test/ ]]; then
    pairs+=("$package")
  else
    light+=("$package")
  fi
done < <(go list -f "$list" "${only%/}/...")

failed=0
if ((${#light[@]})); then
  go test -json -timeout "$timeout" "${light[@]}" || failed=1
fi
# Never from the cache: what these talk to is not among what Go looks at.
if ((${#pairs[@]})); then
  go test -json -count=1 -timeout "$timeout" -p 2 "${pairs[@]}" || failed=1
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
