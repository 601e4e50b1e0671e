#!/bin/sh
# Installs joulevirt-guest and starts it: install.sh SOURCE SHA256
#
# SOURCE is an https:// or http:// address or a path of the program, SHA256 what
# sha256sum prints for it. The unit joulevirt-guest.service must be there already.
# Nothing is installed when the sum is another. DESTDIR is a folder to install into
# instead of /; then nothing is started.
set -eu

if [ $# -ne 2 ]; then
	echo "usage: install.sh SOURCE SHA256" >&2
	exit 2
fi
target=${DESTDIR:-}/usr/local/bin/joulevirt-guest
mkdir -p "${target%/*}"
staged=$(mktemp "$target.XXXXXX")
trap 'rm -f "$staged"' EXIT

case $1 in
http://* | https://*)
	if command -v curl >/dev/null; then
		curl --fail --silent --show-error --location --retry 5 --output "$staged" "$1"
	else
		wget -q -O "$staged" "$1"
	fi
	;;
*) cp "$1" "$staged" ;;
esac
if ! echo "$2  $staged" | sha256sum -c - >/dev/null 2>&1; then
	echo "install.sh: $1 has another SHA-256 than $2: nothing was installed" >&2
	exit 1
fi
chmod 0755 "$staged"
mv "$staged" "$target"

if [ -z "${DESTDIR:-}" ]; then
	systemctl daemon-reload
	systemctl enable joulevirt-guest.service
	systemctl restart joulevirt-guest.service
fi
