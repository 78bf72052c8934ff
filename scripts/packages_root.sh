#!/bin/bash
# Tries the Debian packages on a clean root, as root: packages_root.sh ROOT LIBTORCH BUILD
#
#   debootstrap --variant=minbase --include=libaio1,libgomp1,libhwy1,libyaml-0-2,zlib1g,g++,cmake,make bookworm ROOT
#   (cd BUILD && cpack)
#
# Installs the SDK alone, then all three; runs `gannet doctor`; builds docs/start.md's three files against /usr and LIBTORCH,
# which is /opt/libtorch there; trains on one process and on two; removes the packages, and lists what they left.
set -euo pipefail
root=$(realpath "${1:?usage: packages_root.sh ROOT LIBTORCH BUILD}") torch=$(realpath "${2:?}") build=$(realpath "${3:?}")
source=$(realpath "$(dirname "$0")/..")
if [ "${GANNET_IN_NAMESPACE:-}" = "" ]; then exec env GANNET_IN_NAMESPACE=1 unshare -m "$0" "$root" "$torch" "$build"; fi

mkdir -p "$root/opt/pytorch" "$root/packages" "$root/work"
mount --bind -o ro "$(dirname "$torch")" "$root/opt/pytorch"  # a wheel's libraries are beside its folder
ln -sfn "pytorch/$(basename "$torch")" "$root/opt/libtorch"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
rm -rf "$root/packages/"* "$root/work/"*
cp "$build"/gannet*_amd64.deb "$root/packages"
awk -v out="$root/work/" '/^`[A-Za-z_.]+`$/ {name = substr($0, 2, length($0) - 2)} /^```[a-z]/ {if (name) {file = out name; name = ""}; next}
  /^```$/ {file = ""} file {print > file}' "$source/docs/start.md"
in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/work LANG=C.UTF-8 bash -euc "$1"; }
files() { (cd "$root" && find . -xdev \( -path ./opt -o -path ./work -o -path ./packages -o -path ./proc -o -path ./dev -o -path ./var \) -prune -o -print | sort); }

in_root 'dpkg -P gannet-dev gannet gannet-sdk >/dev/null 2>&1 || true'  # of a run that failed
files > /tmp/before.$$
echo "== the SDK alone"
in_root 'dpkg -i /packages/gannet-sdk_*.deb >/dev/null; gannet --version
  mkdir -p /work/sdk; cd /work/sdk
  printf "cmake_minimum_required(VERSION 3.22)\nproject(p LANGUAGES CXX)\nfind_package(gannet REQUIRED COMPONENTS sdk)\nfind_package(gannet QUIET)\nif(TARGET gannet::core)\nmessage(FATAL_ERROR core)\nendif()\n" > CMakeLists.txt
  cmake -S . -B build >/dev/null && echo "find_package(gannet COMPONENTS sdk): found"'
echo "== all three"
in_root 'dpkg -i /packages/*.deb >/dev/null; gannet doctor | tail -3; test -e /usr/share/man/man1/gannet.1'
echo "== docs/start.md"
in_root 'cd /work; cmake -S . -B build >/dev/null; cmake --build build | tail -1; OMP_NUM_THREADS=1 build/start 2>/dev/null | tail -1
  OMP_NUM_THREADS=1 gannet run --num_procs 2 build/start 2>/dev/null | tail -1; gannet checkpoint list run1'
echo "== removed"
in_root 'dpkg -P gannet-dev gannet gannet-sdk >/dev/null; ! command -v gannet'
files > /tmp/after.$$
diff /tmp/before.$$ /tmp/after.$$ && echo "no trace"
rm /tmp/before.$$ /tmp/after.$$
