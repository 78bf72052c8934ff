// A 64-bit hash of a sequence of numbers, for comparisons between ranks:
//
//   uint64_t hash = 0;
//   for (const uint64_t number : numbers) hash = hash_combined(hash, number);
#pragma once

#include <cstdint>

namespace gannet {

// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
// 2014).
constexpr uint64_t hash_combined(uint64_t hash, uint64_t number) {
  uint64_t z = (hash ^ number) + 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

}  // namespace gannet
