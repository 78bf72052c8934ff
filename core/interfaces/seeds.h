// The seeds of the random numbers that optimizers draw (gannet_update_args::seed,
// gannet_segment::seed).
#pragma once

#include <cstdint>
#include <gannet/sdk_random.hpp>
#include <string_view>

namespace gannet {

// A tensor's seed, computed from its name with FNV-1a, so that it is the same in every run, on any
// rank and in any group.
constexpr uint64_t tensor_seed(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  return sdk::mixed_bits(hash);
}

// The seed of the step that follows `applied_steps` updates.
constexpr uint64_t step_seed(uint64_t run_seed, int64_t applied_steps) {
  return sdk::mixed_bits(sdk::mixed_bits(run_seed) + static_cast<uint64_t>(applied_steps));
}

}  // namespace gannet
