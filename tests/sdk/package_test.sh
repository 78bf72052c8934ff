#!/usr/bin/env bash
# package_test.sh CMAKE BUILD_FOLDER CXX: the installed package as its users meet it.
#
# The component sdk alone builds and checks a plugin outside the tree without LibTorch; the binary `gannet` of the component runtime,
# moved elsewhere, finds its own plugins and, by GANNET_PLUGIN_PATH, that one; the plugin trains examples/gpt2; examples/solver is
# built against the component devel, and runs (with GANNET_TEST_FULL=1); so does a program with gannet::models, and so do the
# programs of README.md and docs/start.md, from the component docs.
set -euo pipefail
cmake=$1 build=$2 cxx=$3
if [[ $cxx == *clang* && -z ${GANNET_TEST_FULL:-} ]]; then
  echo "skipped: GANNET_TEST_FULL=1 runs it with clang++ too"
  exit 77
fi
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CMAKE_GENERATOR=Ninja
command -v ninja >/dev/null || unset CMAKE_GENERATOR

fail() { echo "FAILED: $*" >&2; exit 1; }
quiet() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "$*"; }; }
expect() { case $2 in *"$1"*) ;; *) fail "expected '$1' in: $2" ;; esac; }

# ---- the SDK alone: no LibTorch may be needed, so an impossible one is named ----------------------------------------------
quiet "$cmake" --install "$build" --prefix "$work/sdk" --component sdk
[ ! -e "$work/sdk/lib/libgannet_core.so" ] || fail "the sdk component brought the core"
export LIBTORCH_ROOT=$work/nowhere
quiet "$cmake" -S "$here/outside" -B "$work/plugin" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$work/sdk" -DCMAKE_BUILD_TYPE=Release
quiet "$cmake" --build "$work/plugin"
unset LIBTORCH_ROOT
plugin=$work/plugin/lib/gannet/gannet_optimizer_momentum.so
[ -e "$plugin" ] || fail "the plugin was not built into lib/gannet"
report=$("$work/sdk/bin/gannet" plugins check "$plugin") || fail "the installed kit: $report"
expect "0 failed" "$report"

# ---- the runtime, installed and then moved -------------------------------------------------------------------------------
quiet "$cmake" --install "$build" --prefix "$work/first" --component runtime
mv "$work/first" "$work/moved"
gannet=$work/moved/bin/gannet
for file in bash-completion/completions/gannet zsh/site-functions/_gannet fish/vendor_completions.d/gannet.fish man/man1/gannet.1; do
  [ -s "$work/moved/share/$file" ] || fail "share/$file was not installed"
done
listing=$("$gannet" plugins list)
expect "$work/moved/lib/gannet/gannet_accelerator_cpu.so" "$listing"
listing=$(GANNET_PLUGIN_PATH=$work/plugin/lib/gannet "$gannet" plugins list -v)
expect "$plugin" "$listing"
information=$(GANNET_PLUGIN_PATH=$work/plugin/lib/gannet "$gannet" plugins info Momentum)
expect "optimizer Momentum 1.0.0: gradient descent with momentum" "$information"
expect "dampening" "$information"
expect "$plugin" "$("$gannet" plugins info "$plugin")"

# ---- named in the config, that plugin trains the tree's GPT-2 ------------------------------------------------------------
python3 "$here/../examples/gpt2_configs_test.py" "$build/bin/gannet" "$build/bin/gpt2" "$work/plugin/lib/gannet" || fail "the plugin does not train gpt2"

# ---- a program against the whole package ---------------------------------------------------------------------------------
quiet "$cmake" --install "$build" --prefix "$work/sdk" --component runtime
quiet "$cmake" --install "$build" --prefix "$work/sdk" --component devel
if [[ -n ${GANNET_TEST_FULL:-} ]]; then
  quiet "$cmake" -S "$here/../../examples/solver" -B "$work/solver" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$work/sdk" -DCMAKE_BUILD_TYPE=Release
  quiet "$cmake" --build "$work/solver"
  expect "residual" "$("$work/solver/solver" 2>&1)"
fi
quiet "$cmake" -S "$here/with_models" -B "$work/with_models" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$work/sdk" -DCMAKE_BUILD_TYPE=Debug
quiet "$cmake" --build "$work/with_models"
expect "5 tokens" "$("$work/with_models/with_models" 2>&1)"

# ---- the programs of the first pages, as printed -------------------------------------------------------------------------
quiet "$cmake" --install "$build" --prefix "$work/sdk" --component docs
[ -s "$work/sdk/share/doc/gannet/docs/start.md" ] && [ -s "$work/sdk/share/doc/gannet/examples/configs/first_run.json" ] || fail "docs and examples were not installed"
python3 "$here/dead_links.py" "$work/sdk/share/doc/gannet" || fail "links between the installed pages"
python3 "$here/runpaths.py" "$work/sdk" || fail "the RUNPATHs of what is installed"
quiet "$cmake" -S "$work/sdk/share/doc/gannet/examples/cnn" -B "$work/cnn" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$work/sdk"
python3 "$here/first_pages.py" "$cmake" "$cxx" "$work/sdk/share/doc/gannet" "$work/sdk" "$work/pages" || fail "the first pages"
echo "the package serves $cxx"
