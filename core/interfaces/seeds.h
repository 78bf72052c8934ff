// The numbers that optimizers draw random numbers from (gannet_update_args::seed, gannet_segment::seed).
#pragma once

#include <cstdint>
#include <string_view>

namespace gannet {

// Every bit of the result depends on every bit of the number: the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
constexpr uint64_t mixed_bits(uint64_t bits) {
  bits += 0x9e3779b97f4a7c15u;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return bits ^ (bits >> 31);
}

// Of a tensor: by its name, so that it is the same in every run, on every rank and in whatever group the tensor is. FNV-1a.
constexpr uint64_t tensor_seed(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  return mixed_bits(hash);
}

// Of a step: `applied_steps` updates are behind it.
constexpr uint64_t step_seed(uint64_t run_seed, int64_t applied_steps) {
  return mixed_bits(mixed_bits(run_seed) + static_cast<uint64_t>(applied_steps));
}

}  // namespace gannet
