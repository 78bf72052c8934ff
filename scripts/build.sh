#!/usr/bin/env bash
# Sets up and builds one preset: scripts/build.sh [default|debug|asan|tsan] [target...]
# GANNET_WARNINGS_AS_ERRORS=ON: a warning ends the build, as in scripts/test.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-default}
[ $# -gt 0 ] && shift
scripts/setup.sh
cmake --preset "$preset" -DGANNET_WARNINGS_AS_ERRORS="${GANNET_WARNINGS_AS_ERRORS:-OFF}" >"/tmp/gannet-configure-$$.log" 2>&1 ||
  { cat "/tmp/gannet-configure-$$.log" >&2; rm -f "/tmp/gannet-configure-$$.log"; echo "build: cmake could not configure (its words are above)" >&2; exit 1; }
rm -f "/tmp/gannet-configure-$$.log"
# A unit that includes torch/torch.h takes 1.1 GB: no more compilers at once than memory carries.
cores=$(nproc)
memory_gib=$(awk '/MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)
jobs=$((memory_gib / 2 < cores ? memory_gib / 2 : cores))
cmake --build --preset "$preset" --parallel "$((jobs > 0 ? jobs : 1))" ${1:+--target "$@"}
