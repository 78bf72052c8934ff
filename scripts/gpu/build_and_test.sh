#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds against its LibTorch, runs the tests labelled gpu, then measures the update.
# Without network it takes the rest from .carry/ (scripts/gpu/stage.sh).
#
#   scripts/gpu/build_and_test.sh [build folder]      default: build-gpu
#   LIBTORCH_ROOT=/path/to/libtorch                   else that of `python3 -c "import torch"`
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build-gpu}
fail() { printf 'build_and_test: %s\n' "$*" >&2; exit 1; }

command -v nvidia-smi >/dev/null || fail "nvidia-smi was not found: is there an NVIDIA driver?"
nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader || fail "the driver shows no GPU"
torch=${LIBTORCH_ROOT:-$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))')} || fail "no PyTorch found: name a LibTorch with LIBTORCH_ROOT"
[ -e "$torch/lib/libtorch_cuda.so" ] || fail "$torch has no lib/libtorch_cuda.so: a LibTorch with CUDA is needed"
architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '.')

if [ -d .carry/prefix ]; then
  export CMAKE_PREFIX_PATH="$PWD/.carry/prefix${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}" BOOST_ROOT="$PWD/.carry/prefix" GANNET_CACHE="$PWD/.carry/cache"
fi
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLIBTORCH_ROOT="$torch" -DGANNET_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="$architecture" \
  -DGANNET_BUILD_EXAMPLES=OFF >"$build.log" 2>&1 || { tail -n 30 "$build.log" >&2; fail "cmake could not configure (its words are above)"; }
cmake --build "$build" --target gpu_test accelerators_test gpu_speed gannet plugins >"$build.log" 2>&1 || { grep -E -A 5 'error|FAILED' "$build.log" >&2; fail "the build failed"; }
"$build/bin/gannet" plugins list
ctest --test-dir "$build" -L gpu --output-on-failure --no-tests=error
"$build/tests/gpu_speed" 100
