#!/usr/bin/env bash
# Compiles the eBPF programs and writes their Go bindings, below a folder that has the
# sources as the repository has them: hack/generate-bpf.sh [FOLDER]
#
# The same sources give the same objects in each folder, with these versions.
set -euo pipefail

cd "$(dirname "$0")/.."
root=$(realpath "${1:-.}")
clang=clang-16
strip=llvm-strip-16
for tool in "$clang" "$strip"; do
  if ! command -v "$tool" >/dev/null; then
    echo "$tool is missing: run make setup, which installs it on Debian" >&2
    exit 1
  fi
done
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
# The generator is of the version of the library that the product is built with.
go build -o "$tools/bpf2go" github.com/cilium/ebpf/cmd/bpf2go

# generate PACKAGE NAME STEM SOURCE [OPTION]...
generate() {
  "$tools/bpf2go" -cc "$clang" -strip "$strip" -go-package "$1" -output-stem "$3" -target bpfel "${@:5}" \
    -cflags "-O2 -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -idirafter /usr/include/$(uname -m)-linux-gnu" \
    "$2" "$4"
}
(cd "$root/internal/datapath/bpf" && generate bpf Jv jv buffer.c -type sums && generate bpf Shape shape shape.c)
(cd "$root/test/datapathtest" &&
  generate datapathtest Jv jv clocked.c -type sums && generate datapathtest Shape shape clockedshape.c)
