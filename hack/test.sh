#!/usr/bin/env bash
# Runs the tests below ONLY (default: all) and prints test2json: the input of
# gotestsum. Packages that start clusters or VMs run one after the other, for
# each of them is a load for a whole small machine. Those that run tests in a
# guest run two at a time: an emulated CPU keeps one of this machine busy, and
# counts its own time.
set -euo pipefail

only=${ONLY:-.}
timeout=${TEST_TIMEOUT:-20m}

# A package is heavy when it, or its tests, use the test cluster or the guest.
list='{{.ImportPath}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}'
light=() guests=() heavy=()
while read -r package imports; do
  if [[ "$package" =~ /test/guest/ && "$imports" =~ joulevirt/test/guest ]]; then
    guests+=("$package")
  elif [[ "$package $imports" =~ joulevirt/test/ ]]; then
    heavy+=("$package")
  else
    light+=("$package")
  fi
done < <(go list -f "$list" "${only%/}/...")

failed=0
if ((${#light[@]})); then
  go test -json -timeout "$timeout" "${light[@]}" || failed=1
fi
if ((${#guests[@]})); then
  go test -json -count=1 -timeout "$timeout" -p 2 "${guests[@]}" || failed=1
fi
if ((${#heavy[@]})); then
  # Never from the cache: what they talk to is not among what Go looks at.
  go test -json -count=1 -timeout "$timeout" -p 1 "${heavy[@]}" || failed=1
fi
exit "$failed"
