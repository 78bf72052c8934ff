#!/usr/bin/env bash
# Packs what a machine with a GPU needs to run the tests of devices: programs, libraries and plugins of a finished build, stripped,
# with the system's libraries that they need beside LibTorch, and the losses to expect, trained here on the CPU. Nothing is built
# there and no network is needed: LibTorch with CUDA, Python 3 and a driver are. Run it behind scripts/build.sh.
#
#   scripts/gpu/pack.sh [folder]        default: .carry/pack, which git ignores
#   BUILD=folder                        the build to pack; default: build
set -euo pipefail
cd "$(dirname "$0")/../.."
pack=${1:-.carry/pack}
build=${BUILD:-build}
limit_mib=48
fail() { printf 'pack: %s\n' "$*" >&2; exit 1; }
command -v chrpath >/dev/null || fail "chrpath was not found: apt-get install chrpath"
[ -x "$build/tests/device_rows" ] || fail "$build/tests/device_rows was not found: run scripts/build.sh first"

rm -rf "$pack"
mkdir -p "$pack"
pack=$(realpath "$pack")
mkdir -p "$pack/bin" "$pack/lib/gannet" "$pack/tests/plugins" "$pack/system"
cmake --install "$build" --prefix "$pack/installed" --component runtime >/dev/null
cp -a "$pack/installed/bin/." "$pack/bin/"
cp -a "$pack/installed/libexec" "$pack/"
cp -a "$pack/installed/lib/." "$pack/lib/"
rm -rf "$pack/installed" "$pack/lib/cmake"
# What was not installed is for tests alone, as the devices made of host memory.
cp "$build"/lib/gannet/*.so "$pack/lib/gannet/"
for program in accelerators_test accelerators_checked_test gpu_test gpu_speed device_rows libgannet_patient_epoll.so; do
  [ ! -e "$build/tests/$program" ] || cp "$build/tests/$program" "$pack/tests/"
done
cp "$build"/tests/plugins/gannet_test_hosted_*.so "$pack/tests/plugins/"

# Everything that LibTorch, the C and C++ libraries and the driver do not bring.
is_elf() { [ "$(head -c 4 "$1" | tail -c 3)" = ELF ]; }
files=$(find "$pack" -type f \( -perm -u+x -o -name '*.so*' \) | while read -r file; do ! is_elf "$file" || echo "$file"; done)
for file in $files; do ldd "$file"; done | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
  grep -Ev '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libgomp|ld-linux-x86-64|libtorch[a-z_]*|libc10[a-z_]*|libshm|libcudart|libcupti|libgannet[a-z_]*)\.so' |
  grep -v '/torch/' | while read -r library; do cp -L "$library" "$pack/system/"; done

for file in $files "$pack"/system/*; do
  strip --strip-unneeded "$file"
  readelf -d "$file" | grep -q 'R.*PATH' || continue  # nothing to replace; run.py names the folders to the loader, too
  up=$(realpath --relative-to="$(dirname "$file")" "$pack")
  path="\$ORIGIN/$up/lib:\$ORIGIN/$up/system"
  room=$(chrpath -l "$file" | sed 's/.*PATH=//' | tr -d '\n' | wc -c)  # chrpath cannot make it longer
  if [ "${#path}" -le "$room" ]; then chrpath -r "$path" "$file" >/dev/null; else chrpath -d "$file" >/dev/null; fi
done
cp scripts/gpu/run.sh scripts/gpu/run.py scripts/gpu/rows.py scripts/gpu/report.py "$pack/"
LIBTORCH_ROOT=$(scripts/setup.sh --print) python3 "$pack/run.py" --expect
mib=$(du -sm "$pack" | cut -f1)
[ "$mib" -le "$limit_mib" ] || fail "the pack takes $mib MiB, more than the $limit_mib that may travel"
echo "pack: $mib MiB in $pack"
