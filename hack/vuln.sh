#!/usr/bin/env bash
# Looks for known vulnerabilities in what the code calls: hack/vuln.sh GOVULNCHECK GO DATABASE
#
# DATABASE is a version of the module golang.org/x/vulndb or an address. GO is the Go release that
# counts for the standard library: that of releases. Its own vulnerabilities are warnings unless
# DATABASE is an address, as a fixed release of Go may not be at hand.
set -euo pipefail

govulncheck=$1 go=$2 database=$3

strict=
if [[ $database == https://* ]]; then
  strict=1
elif module=$(go mod download -json "golang.org/x/vulndb@$database"); then
  database=file://$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' <<<"$module")/data/osv
else
  echo "vuln: NOT CHECKED: the module proxy does not have golang.org/x/vulndb@$database" >&2
  exit 0
fi

code=0
found=$(GOVERSION=go$go "$govulncheck" -db "$database" ./...) || code=$?
case $code in
0) echo "vuln: none known" ;;
3)
  if [[ -n $strict ]] || grep -q '^  Module: ' <<<"$found"; then
    echo "$found"
    exit 1
  fi
  echo "vuln: WARNING: known vulnerabilities of Go $go: pin a later GO_IMAGE in Dockerfile:" $(grep -oE '^Vulnerability .*' <<<"$found" | cut -d' ' -f3) >&2
  ;;
*)
  echo "$found"
  exit "$code"
  ;;
esac
