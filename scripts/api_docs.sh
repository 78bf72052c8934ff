#!/usr/bin/env bash
# Makes the pages of the public API from the headers: build/api/html/index.html. Needs doxygen (apt-get install doxygen).
set -euo pipefail
cd "$(dirname "$0")/.."
command -v doxygen >/dev/null || { echo "api_docs: doxygen is missing: apt-get install doxygen" >&2; exit 3; }
mkdir -p build/api
doxygen docs/Doxyfile
echo "build/api/html/index.html"
