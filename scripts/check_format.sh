#!/usr/bin/env bash
# Checks that every source is as clang-format and .clang-format have it: scripts/check_format.sh [--fix]
# Exit code 77: there is no clang-format 19 (scripts/setup.sh --tests installs it; other versions break lines elsewhere).
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${GANNET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gannet}
format=$cache/clang-format/clang_format/data/bin/clang-format
[ -x "$format" ] || { echo "format: $format is not there"; exit 77; }
mode=(--dry-run -Werror)
[ "${1:-}" != --fix ] || mode=(-i)
git -c safe.directory="*" ls-files -z --cached --others --exclude-standard '*.h' '*.hpp' '*.cpp' '*.cu' '*.cuh' |
  while IFS= read -r -d '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done |
  xargs -0 -n 40 -P "$(nproc)" "$format" "${mode[@]}" || { echo "format: scripts/check_format.sh --fix mends it"; exit 1; }
echo "format: every source is in form"
