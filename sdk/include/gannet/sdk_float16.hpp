/// bfloat16 and IEEE binary16 in plain C++, for one number or for an array at a time. Depends only
/// on gannet/abi.h.
///
///   float sum = 0;
///   for (uint64_t i = 0; i < count; ++i) sum += static_cast<const gannet::sdk::BFloat16*>(grad)[i];
///   gannet::sdk::narrow(out, result.data(), count, GANNET_FLOAT16);       rounded to nearest even
#pragma once

#include <gannet/abi.h>

#include <cstdint>
#include <cstring>

namespace gannet::sdk {

/// bfloat16 and IEEE binary16, stored as their bits. Arithmetic is done in float; narrowing rounds
/// to nearest even and keeps NaN.
struct BFloat16 {
  uint16_t bits;
  BFloat16() = default;
  explicit BFloat16(float value) {
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof(wide));
    bits = value != value ? uint16_t{0x7fc0} : static_cast<uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
  }
  operator float() const {
    const uint32_t wide = uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
};

struct Float16 {
  uint16_t bits;
  Float16() = default;
  // A float's exponent has 8 bits and bias 127, a half's has 5 bits and bias 15. For a subnormal
  // result, the addition of 0.5 rounds: the sum's last bit has the weight of the half's last bit. A
  // normal result is rounded in integer arithmetic.
  explicit Float16(float value) {
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof(wide));
    const uint32_t sign = wide >> 16 & 0x8000, magnitude = wide & 0x7fffffff;
    uint32_t half;
    if (magnitude > 0x7f800000) {
      half = 0x7e00;                       // NaN
    } else if (magnitude >= 0x47800000) {  // 65536 and above
      half = 0x7c00;
    } else if (magnitude < 0x38800000) {  // below 2^-14: subnormal
      float shifted;
      std::memcpy(&shifted, &magnitude, sizeof(shifted));
      shifted += 0.5f;  // the sum's last bit weighs 2^-24
      std::memcpy(&half, &shifted, sizeof(half));
      half -= 0x3f000000;
    } else {
      half = (magnitude - 0x38000000 + 0x0fff + (magnitude >> 13 & 1)) >> 13;  // a carry into infinity is correct
    }
    bits = static_cast<uint16_t>(sign | half);
  }
  operator float() const {
    const uint32_t sign = uint32_t{bits & 0x8000u} << 16, magnitude = bits & 0x7fffu;
    uint32_t wide;
    if (magnitude >= 0x7c00) {
      wide = 0x7f800000 | (magnitude & 0x3ff) << 13;
    } else if (magnitude >= 0x0400) {
      wide = (magnitude << 13) + 0x38000000;
    } else {  // magnitude * 2^-24
      const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
      std::memcpy(&wide, &subnormal, sizeof(wide));
    }
    wide |= sign;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
};

/// Converts 16-bit floating-point elements to floats and back, rounded to nearest even.
inline void widen(float* to, const void* from, uint64_t count, uint32_t dtype) {
  if (dtype == GANNET_BFLOAT16)
    for (uint64_t i = 0; i < count; ++i) to[i] = static_cast<const BFloat16*>(from)[i];
  else
    for (uint64_t i = 0; i < count; ++i) to[i] = static_cast<const Float16*>(from)[i];
}
inline void narrow(void* to, const float* from, uint64_t count, uint32_t dtype) {
  if (dtype == GANNET_BFLOAT16)
    for (uint64_t i = 0; i < count; ++i) static_cast<BFloat16*>(to)[i] = BFloat16(from[i]);
  else
    for (uint64_t i = 0; i < count; ++i) static_cast<Float16*>(to)[i] = Float16(from[i]);
}

}  // namespace gannet::sdk
