/// Reductions in host memory, for Comm plugins: element sizes, typed sums, and the conversions that
/// 16-bit floating-point types need. They depend only on the SDK, and are plain loops that a
/// compiler vectorises.
///
///   gannet::sdk::combine(mine, theirs, count, GANNET_BFLOAT16, GANNET_SUM);      mine[i] += theirs[i], rounded to nearest even
#pragma once

#include <cstring>
#include <gannet/sdk.hpp>
#include <gannet/sdk_float16.hpp>

namespace gannet::sdk {

/// Size of one element. Throws Failure if the number is not one of gannet_dtype.
inline uint64_t bytes_of(uint32_t dtype) {
  switch (dtype) {
    case GANNET_FLOAT64:
    case GANNET_INT64:
      return 8;
    case GANNET_FLOAT32:
    case GANNET_INT32:
      return 4;
    case GANNET_FLOAT16:
    case GANNET_BFLOAT16:
    case GANNET_INT16:
      return 2;
    case GANNET_INT8:
    case GANNET_UINT8:
    case GANNET_BOOL:
      return 1;
    default:
      throw Failure(GANNET_INVALID_ARGUMENT, "dtype " + std::to_string(dtype) + " is not one of gannet_dtype");
  }
}

inline bool is_16_bit_float(uint32_t dtype) { return dtype == GANNET_FLOAT16 || dtype == GANNET_BFLOAT16; }
inline bool is_float(uint32_t dtype) { return is_16_bit_float(dtype) || dtype == GANNET_FLOAT32 || dtype == GANNET_FLOAT64; }

namespace detail {

/// Calls body(T{}) with the C++ type of the dtype; a bool is treated as a byte.
template <class Body>
void with_type(uint32_t dtype, Body&& body) {
  switch (dtype) {
    case GANNET_FLOAT32:
      return body(float{});
    case GANNET_FLOAT64:
      return body(double{});
    case GANNET_FLOAT16:
      return body(Float16{});
    case GANNET_BFLOAT16:
      return body(BFloat16{});
    case GANNET_INT8:
      return body(int8_t{});
    case GANNET_UINT8:
    case GANNET_BOOL:
      return body(uint8_t{});
    case GANNET_INT16:
      return body(int16_t{});
    case GANNET_INT32:
      return body(int32_t{});
    case GANNET_INT64:
      return body(int64_t{});
    default:
      bytes_of(dtype);  // throws
  }
}

}  // namespace detail

/// into[i] = into[i] op other[i]. Averages and premultiplied sums are only added; scale() does the
/// rest. A sum of booleans is a logical or.
inline void combine(void* into, const void* other, uint64_t count, uint32_t dtype, uint32_t op) {
  detail::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    T* a = static_cast<T*>(into);
    const T* b = static_cast<const T*>(other);
    if (op == GANNET_MAX || (dtype == GANNET_BOOL && op == GANNET_SUM))
      for (uint64_t i = 0; i < count; ++i) a[i] = a[i] < b[i] ? b[i] : a[i];
    else if (op == GANNET_MIN)
      for (uint64_t i = 0; i < count; ++i) a[i] = b[i] < a[i] ? b[i] : a[i];
    else
      for (uint64_t i = 0; i < count; ++i) a[i] = static_cast<T>(a[i] + b[i]);
  });
}

/// data[i] *= factor, computed in double for float64 and in float for the others. Only for
/// floating-point types.
inline void scale(void* data, uint64_t count, uint32_t dtype, double factor) {
  if (factor == 1.0) return;
  if (!is_float(dtype)) throw Failure(GANNET_INVALID_ARGUMENT, "only floating-point types are multiplied by a factor");
  detail::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    T* values = static_cast<T*>(data);
    if constexpr (sizeof(T) == 8)
      for (uint64_t i = 0; i < count; ++i) values[i] = static_cast<T>(static_cast<double>(values[i]) * factor);
    else
      for (uint64_t i = 0; i < count; ++i) values[i] = static_cast<T>(static_cast<float>(values[i]) * static_cast<float>(factor));
  });
}

/// Reduces the same part of every rank's buffer, in the order of the ranks; `result` may be one of
/// the parts. With `in_float`, 16-bit elements are added as floats and rounded once.
inline void reduce_parts(void* result, const std::vector<const void*>& parts, uint64_t count, uint32_t dtype, uint32_t op,
                         bool in_float, double final_factor) {
  if (count == 0) return;
  if (in_float) {
    std::vector<float> sum(count), next(count);
    widen(sum.data(), parts[0], count, dtype);
    for (size_t i = 1; i < parts.size(); ++i) {
      widen(next.data(), parts[i], count, dtype);
      combine(sum.data(), next.data(), count, GANNET_FLOAT32, op);
    }
    scale(sum.data(), count, GANNET_FLOAT32, final_factor);
    return narrow(result, sum.data(), count, dtype);
  }
  const uint64_t bytes = count * bytes_of(dtype);
  std::vector<char> sum(static_cast<const char*>(parts[0]), static_cast<const char*>(parts[0]) + bytes);
  for (size_t i = 1; i < parts.size(); ++i) combine(sum.data(), parts[i], count, dtype, op);
  scale(sum.data(), count, dtype, final_factor);
  std::memcpy(result, sum.data(), bytes);
}

}  // namespace gannet::sdk
