#!/usr/bin/env bash
# Runs the phases of a pack (scripts/gpu/pack.sh) on this machine; see run.py.
#
#   ./run.sh probe tests matrix --deadline 540 --out results
exec python3 "$(dirname "$0")/run.py" "$@"
