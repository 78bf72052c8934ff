// The arithmetic in which an update rule is written, for plain numbers: what a GPU kernel and a scalar loop hand to a rule.
// For SIMD lanes elementwise-inl.h has the same functions.
//
//   const auto root = math.sqrt(math.mul_add(a, b, c));
#pragma once

#include <cmath>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define GANNET_DEVICE __device__ __forceinline__
#else
#define GANNET_DEVICE inline
#endif

namespace gannet::optimizers {

// HIP's functions of these names come from a library of the device, of which older ones lack newer processors; the compiler's own
// are an instruction each.
#ifdef __HIPCC__
GANNET_DEVICE float square_root(float a) { return __builtin_sqrtf(a); }
GANNET_DEVICE double square_root(double a) { return __builtin_sqrt(a); }
GANNET_DEVICE float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
GANNET_DEVICE double multiply_add(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
template <class T>
GANNET_DEVICE T square_root(T a) {
  return ::sqrt(a);
}
template <class T>
GANNET_DEVICE T multiply_add(T a, T b, T c) {
  return ::fma(a, b, c);
}
#endif

template <class T>
struct ScalarMath {
  using Number = T;
  GANNET_DEVICE T set(T value) const { return value; }
  GANNET_DEVICE T add(T a, T b) const { return a + b; }
  GANNET_DEVICE T sub(T a, T b) const { return a - b; }
  GANNET_DEVICE T mul(T a, T b) const { return a * b; }
  GANNET_DEVICE T div(T a, T b) const { return a / b; }
  GANNET_DEVICE T sqrt(T a) const { return square_root(a); }
  GANNET_DEVICE T mul_add(T a, T b, T c) const { return multiply_add(a, b, c); }  // a * b + c, rounded once
};

}  // namespace gannet::optimizers
