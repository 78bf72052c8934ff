#!/usr/bin/env bash
# make.sh: makes the binaries of the header's minor, in a folder of their own, on an x86-64 machine. README.md says when.
#
#   GCC=gcc tests/sdk/kept/make.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
sdk=$here/../../../sdk
number() { sed -n "s/^#define GANNET_ABI_$1 \([0-9]*\)$/\1/p" "$sdk/include/gannet/abi.h"; }
folder=$here/$(number MAJOR).$(number MINOR)
mkdir -p "$folder"
for name in steady ramp drawn passes listed polyak; do
  "${GCC:-gcc}" -std=c99 -pedantic -Os -ffp-contract=off -march=x86-64 -shared -fPIC -I"$sdk/include" \
    -Wl,--version-script="$sdk/cmake/plugin.map" -Wl,--build-id=none -Wl,-z,noseparate-code -s \
    -o "$folder/$name.so" "$here/../shelf/$name.c" -lm
done
ls -l "$folder"
