// Pinned to a LibTorch that is not the host's. Opened, it would die on a missing symbol.
#include <cstdlib>

#include "bad.h"

#define OLD_TORCH "torch=1.13.1,cxx11abi=0,compiler=itanium-libstdc++"
BAD_NOTE(bad::make_note(GANNET_TIER_PINNED, OLD_TORCH, "optimizer/bad@cpu"));
BAD_TABLE([] {
  auto descriptor = bad::good_descriptor();
  descriptor.tier = GANNET_TIER_PINNED;
  descriptor.fingerprint = OLD_TORCH;
  return descriptor;
}())

__attribute__((constructor)) static void on_load() { std::abort(); }
