// Elements of the contract's dtypes: reading and writing one as a double, sizes and names.
#pragma once

#include <gannet/abi.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gannet/sdk_reduce.hpp>

namespace gannet::kit {

inline size_t bytes_of(gannet_dtype dtype) { return sdk::bytes_of(dtype); }
inline bool is_float(gannet_dtype dtype) { return sdk::is_float(dtype); }

inline double get(const void* data, size_t i, gannet_dtype dtype) {
  double value = 0;
  sdk::detail::with_type(dtype, [&](auto type) { value = static_cast<double>(static_cast<const decltype(type)*>(data)[i]); });
  return value;
}

// Rounds to nearest, ties to even.
inline void put(void* data, size_t i, gannet_dtype dtype, double value) {
  sdk::detail::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>)
      static_cast<T*>(data)[i] = T(static_cast<float>(value));
    else
      static_cast<T*>(data)[i] = static_cast<T>(value);
  });
}

// A hash of integers, the same on every machine. Uniform in [0, 2^64).
inline uint64_t mixed(uint64_t seed, uint64_t a, uint64_t b = 0, uint64_t c = 0) {
  uint64_t x = seed * 0x9e3779b97f4a7c15 + a * 0xbf58476d1ce4e5b9 + b * 0x94d049bb133111eb + c * 0xd6e8feb86659fd93;
  for (int round = 0; round < 2; ++round) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    x ^= x >> 31;
  }
  return x;
}

// Uniform in [-1, 1).
inline double uniform(uint64_t bits) { return static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-63; }

inline const char* name_of(uint32_t dtype) {
  constexpr const char* kNames[] = {"none", "fp32", "fp64", "fp16", "bf16", "int8", "uint8", "int16", "int32", "int64", "bool"};
  return dtype <= GANNET_BOOL ? kNames[dtype] : "unknown";
}

}  // namespace gannet::kit
