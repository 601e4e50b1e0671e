#!/usr/bin/env bash
# Prints the size of the project, one figure a line, as information: nothing
# fails because of it.
set -uo pipefail

cd "$(dirname "$0")/.."
files() { git ls-files "$@"; }
lines() { tr '\n' '\0' | xargs -0 -r cat | wc -l; }
# Without tests and generated files.
code() { grep -v '_test\.go$' | grep -vE 'zz_generated|_bpfe[lb]\.go$'; }
shipped=('api/*.go' 'cmd/*.go' 'controllers/*.go' 'internal/*.go' 'policies/*.go')

echo "shipped_go_lines $(files "${shipped[@]}" | code | lines)"
echo "shipped_go_files $(files "${shipped[@]}" | code | wc -l)"
echo "test_go_lines $(files '*_test.go' | lines)"
echo "helper_go_lines $(files 'test/*.go' 'hack/*.go' | code | lines)"
echo "all_go_lines $(files '*.go' | lines)"
echo "docs_words $(files '*.md' | tr '\n' '\0' | xargs -0 cat | wc -w)"
echo "api_fields $(cat api/v1alpha1/*_types.go | grep -cE '`json:"[a-z]')"
echo "api_reasons $(grep -rhoE '\bReason[A-Z][A-Za-z]* +(= |[A-Za-z]+ = )"' api/v1alpha1 internal/model --include=*.go | wc -l)"
echo "metrics $(grep -rhoE '"joulevirt_[a-z_]+"' --include=*.go internal controllers cmd | sort -u | wc -l)"
echo "largest_packages:"
for folder in $(files "${shipped[@]}" | code | xargs -n1 dirname | sort -u); do
  echo "  $(files "$folder/*.go" | grep -E "^$folder/[^/]+$" | code | lines) $folder"
done | sort -rn | head -12
exit 0
