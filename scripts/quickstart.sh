#!/usr/bin/env bash
# From a fresh clone to a trained model: sets up, builds, and trains a small GPT-2 on real text on 2 processes (about two
# minutes of training on two cores), and makes a page of the run. Further arguments go to the program: scripts/quickstart.sh --steps 50
set -euo pipefail
cd "$(dirname "$0")/.."
began=$(date +%s)
if [ ! -e build/CMakeCache.txt ] || [ -n "$(find core sdk accelerators optimizers schedulers plugins examples cmake CMakeLists.txt -newer build/.quickstart -print -quit 2>/dev/null || echo stale)" ]; then
  scripts/build.sh default gannet gpt2 plugins
  touch build/.quickstart
fi
echo "quickstart: built after $(($(date +%s) - began)) s; training starts"
mkdir -p build/quickstart
rm -f build/quickstart/metrics.jsonl
build/bin/gannet run --num_procs 2 build/bin/gpt2 --set gannet.metrics.path=build/quickstart/metrics.jsonl "$@"
build/bin/gannet report build/quickstart/metrics.jsonl -o build/quickstart/report.html
