#!/usr/bin/env bash
# Sets up, builds and runs every test: scripts/test.sh [preset] [ctest arguments...]
#   scripts/test.sh                  the release build, all tests
#   scripts/test.sh asan -L unit     the unit tests under AddressSanitizer
#   scripts/test.sh full -R guest    with every combination, program and fault of the tests that run a part of them otherwise
set -euo pipefail
cd "$(dirname "$0")/.."
preset=default
case "${1:-}" in
  default|debug|asan|tsan) preset=$1; shift ;;
  full) export GANNET_TEST_FULL=1; shift ;;
esac
scripts/setup.sh --tests
GANNET_WARNINGS_AS_ERRORS=${GANNET_WARNINGS_AS_ERRORS:-ON} scripts/build.sh "$preset"
python3 scripts/check_rooms.py
# One more at a time than there are cores: tests wait, too, for ranks to start or for a deadline.
ctest --preset "$preset" --output-on-failure --parallel "$(($(nproc) + 1))" "$@"
# Memory errors that no result shows: a build of its own, of half an hour and more.
if [ -n "${GANNET_TEST_FULL:-}" ] && [ $# -eq 0 ]; then
  scripts/build.sh asan
  ctest --preset asan --output-on-failure --parallel "$(nproc)" -L unit
fi
