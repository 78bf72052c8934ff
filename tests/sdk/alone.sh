#!/bin/sh
# alone.sh SDK WORK COMMAND...: runs a command in a root that holds the installed SDK as /sdk, a folder as /work, and what the
# system has of a compiler and CMake; neither LibTorch, nor Boost, nor any other header that Gannet itself is built from, nor
# Gannet's tree. Needs user namespaces, and no rights: exit code 99 where the system has none.
set -eu
if [ -z "${GANNET_ALONE:-}" ]; then
  unshare --user --map-root-user --mount true 2>/dev/null || exit 99
  GANNET_ALONE=1 exec unshare --user --map-root-user --mount "$0" "$@"
fi
sdk=$1 work=$2
shift 2
root=$work/.root
mkdir -p "$root"
mount -t tmpfs none "$root"
mkdir "$root/usr" "$root/etc" "$root/dev" "$root/proc" "$root/tmp" "$root/sdk" "$root/work"
for folder in usr etc dev proc; do mount --rbind "/$folder" "$root/$folder"; done
for folder in bin lib lib32 lib64 sbin; do
  if [ -L "/$folder" ]; then cp -P "/$folder" "$root/$folder"
  elif [ -d "/$folder" ]; then mkdir "$root/$folder" && mount --rbind "/$folder" "$root/$folder"; fi
done
mount --bind "$sdk" "$root/sdk"
mount --bind "$work" "$root/work"
for folder in local include/boost include/hwy include/nlohmann include/CLI include/spdlog include/fmt include/torch; do
  [ ! -d "/usr/$folder" ] || mount -t tmpfs none "$root/usr/$folder"
done
cd /
exec chroot "$root" env -i PATH=/usr/bin:/bin HOME=/work LIBTORCH_ROOT=/nowhere "$@"
