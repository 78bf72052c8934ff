#!/usr/bin/env bash
# Gathers what a GPU machine without network may lack to build Gannet, in .carry/ (ignored by git): headers and libraries of
# our Debian packages, of Boost only what Boost.DLL includes, and the JSON library. A LibTorch with CUDA, nvcc, CMake, Ninja and
# g++ must be there. Run it where scripts/setup.sh ran, copy the working tree with .carry/, and run
# scripts/gpu/build_and_test.sh there.
#
#   scripts/gpu/stage.sh [folder]        default: .carry
set -euo pipefail
cd "$(dirname "$0")/../.."
carry=${1:-.carry}
limit_mib=64
packages=(libspdlog-dev libspdlog1.10 libfmt-dev libfmt9 libcli11-dev libhwy-dev libhwy1 libxxhash-dev libgtest-dev libgmock-dev libgloo-dev libmd-dev libjs-dygraphs)

fail() { printf 'stage: %s\n' "$*" >&2; exit 1; }

staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT
mkdir -p "$staging/prefix" "$staging/cache/json"

# Under the paths that the packages have in /usr: their CMake files find the rest from where they lie themselves.
for package in "${packages[@]}"; do
  dpkg-query -L "$package" >"$staging/list" 2>/dev/null || fail "the package $package is not installed: run scripts/setup.sh first"
  grep -E '^/usr/((include|lib|share/cmake)/|share/javascript/dygraphs/dygraph\.min\.(js|css)$)' "$staging/list" | while read -r file; do
    [ -d "$file" ] || (cd /usr && cp -a --parents "${file#/usr/}" "$staging/prefix")
  done
done

# All of Boost is 150 MB; the compiler says what the one file that uses it includes.
torch=$(scripts/setup.sh --print)
g++ -std=c++20 -M -DBOOST_DLL_USE_STD_FS -DXXH_INLINE_ALL -Icore -Icore/include -Isdk/include -isystem "$torch/include" core/plugin/open.cpp >"$staging/depends" ||
  fail "the compiler could not list what core/plugin/open.cpp includes"
{ tr -s ' \\' '\n' <"$staging/depends" | grep '^/usr/include/boost/'; echo /usr/include/boost/version.hpp; } | sort -u | while read -r file; do
  (cd /usr && cp -a --parents "${file#/usr/}" "$staging/prefix")
done

cp -a "$(dirname "$(dirname "$torch")")/json/nlohmann_json" "$staging/cache/json/" 2>/dev/null ||
  fail "the JSON library is not in the cache: run scripts/setup.sh first"

rm -f "$staging/list" "$staging/depends"
find "$staging" \( -name '*.py' -o -name '*.pyc' \) -delete
mib=$(du -sm "$staging" | cut -f1)
[ "$mib" -le "$limit_mib" ] || fail "what was gathered takes $mib MiB, more than the $limit_mib that may travel"
mkdir -p "$carry"
rm -rf "${carry:?}/prefix" "${carry:?}/cache"
mv "$staging/prefix" "$staging/cache" "$carry/"
echo "stage: $mib MiB in $carry"
