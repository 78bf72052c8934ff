#!/usr/bin/env bash
# Installs what Gannet is built from: Debian packages, and the smallest LibTorch that works, into a cache that clones share.
#
#   scripts/setup.sh            install what is missing (idempotent; seconds when nothing is)
#   scripts/setup.sh --tests    and what only tests and benchmarks need: other compilers and C++ libraries, a browser, fio, Slurm, MPI and sshd
#   scripts/setup.sh --gpu-code and the compilers of plugins for GPUs: clang for AMD's, and nvcc from PyPI for NVIDIA's unless there is one
#   scripts/setup.sh --print    print the folder of the LibTorch in use, and nothing else
#
# LIBTORCH_ROOT=/path/to/libtorch   use that LibTorch, download none
# GANNET_CACHE=/path                where the download goes (default: ~/.cache/gannet)
set -euo pipefail

torch_version=2.11.0
json_version=3.12.0
format_version=19.1.7
cuda_version=13.0.88
cache=${GANNET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gannet}

packages=(g++ cmake ninja-build ccache git python3 python3-pip
          libboost-dev libspdlog-dev libfmt-dev libcli11-dev libhwy-dev libxxhash-dev libaio-dev libgloo-dev libmd-dev zlib1g-dev libyaml-dev
          libsentencepiece-dev
          libgtest-dev libgmock-dev libbenchmark-dev libjs-dygraphs)

[ "${1:-}" != --tests ] || packages+=(clang libclang-rt-dev libc++-dev libc++abi-dev lld rustc fio chromium-headless-shell chrpath
                               iproute2 openssh-server openssh-client openmpi-bin libopenmpi-dev mpich libmpich-dev slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge)

[ "${1:-}" != --gpu-code ] || packages+=(libamdhip64-dev clang-19 clang-tools-19 lld-19)

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

if [ "${1:-}" = --print ]; then
  printf '%s\n' "${LIBTORCH_ROOT:-$cache/libtorch/torch}"
  exit 0
fi

# ---- Debian packages -------------------------------------------------------------------------------------------------
command -v dpkg-query >/dev/null || fail "this script knows Debian and its descendants only; install these yourself: ${packages[*]}"
missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "these packages are missing and only root may install them: run 'apt-get install ${missing[*]}' as root, then this again"
    root=(sudo)
  fi
  echo "setup: installing ${missing[*]}"
  log=$(mktemp)
  { "${root[@]}" apt-get update -qq && "${root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 ||
    { tail -n 15 "$log" >&2; fail "apt-get failed (its last lines are above); without network, install these by other means: ${missing[*]}"; }
  rm -f "$log"
  # The tests start these daemons themselves, in namespaces: here they run neither now (RUNLEVEL=1 above) nor after a boot.
  if command -v systemctl >/dev/null; then
    for daemon in openssh-server:ssh slurmctld:slurmctld slurmd:slurmd munge:munge; do
      [[ " ${missing[*]} " == *" ${daemon%:*} "* ]] || continue
      "${root[@]}" systemctl disable --now "${daemon#*:}" >/dev/null 2>&1 ||
        echo "setup: the service ${daemon#*:} could not be disabled; if this machine is not to run it: systemctl disable --now ${daemon#*:}" >&2
    done
  fi
fi

# ---- LibTorch's CPU half, and the JSON library that knows positions --------------------------------------------------
# download FOLDER REQUIREMENT...: pip packages into $cache/FOLDER, once, whole or not at all.
download() {
  local folder=$1; shift
  local stamp; stamp=$(printf '%s ' "$@")
  [ "$(cat "$cache/$folder/.complete" 2>/dev/null)" = "$stamp" ] && return
  mkdir -p "$cache"
  exec 9>"$cache/lock"
  flock 9                                     # two clones setting up at once: one downloads, the other waits
  if [ "$(cat "$cache/$folder/.complete" 2>/dev/null)" != "$stamp" ]; then
    echo "setup: downloading $* into $cache/$folder"
    local staging; staging=$(mktemp -d "$cache/staging-XXXXXX")
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --target "$staging/packages" "$@" >"$staging/log" 2>&1 ||
      { tail -n 5 "$staging/log" >&2; rm -rf "$staging"
        fail "pip could not download $* (its last lines are above). Is there a network? A LibTorch folder of your own is named with LIBTORCH_ROOT=/path"; }
    printf '%s' "$stamp" >"$staging/packages/.complete"
    rm -rf "${cache:?}/$folder"
    mv "$staging/packages" "$cache/$folder"
    rm -rf "$staging"
  fi
  exec 9>&-
}
download json "nlohmann-json==$json_version"
# nvcc with its parts, which must be of one version. nvcc links from lib64, which the packages
# call lib; CMake looks for the library without a number.
if [ "${1:-}" = --gpu-code ]; then
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
  if [ -z "$nvcc" ]; then
    download cuda nvidia-cuda-nvcc==$cuda_version nvidia-nvvm==$cuda_version nvidia-cuda-crt==$cuda_version \
      nvidia-cuda-cccl==13.0.85 nvidia-cuda-runtime==13.0.96
    nvcc=$cache/cuda/nvidia/cu13/bin/nvcc
    ln -sf libcudart.so.13 "$cache/cuda/nvidia/cu13/lib/libcudart.so"
    ln -sfn lib "$cache/cuda/nvidia/cu13/lib64"
  fi
  echo "setup: CUDA's compiler is $nvcc"
fi
# Without it the check of the format is skipped.
[ "${1:-}" != --tests ] || (download clang-format "clang-format==$format_version") || echo "setup: no clang-format: scripts/check_format.sh will be skipped"
# libtorch_cpu needs libcudart and libcupti to load, a few megabytes; nothing else of CUDA is downloaded.
[ -n "${LIBTORCH_ROOT:-}" ] || download libtorch "torch==$torch_version" nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85

libtorch=${LIBTORCH_ROOT:-$cache/libtorch/torch}
[ -e "$libtorch/lib/libtorch_cpu.so" ] ||
  fail "$libtorch holds no lib/libtorch_cpu.so: LIBTORCH_ROOT must name the folder that contains include/ and lib/"
echo "setup: LibTorch in $libtorch"
