// The arithmetic in which an update rule is written, for plain numbers: what a GPU kernel and a scalar loop hand to a rule.
// For SIMD lanes elementwise-inl.h has the same functions.
//
//   const auto root = math.sqrt(math.mul_add(a, b, c));
#pragma once

#include <cmath>

#ifdef __CUDACC__
#define GANNET_DEVICE __device__ __forceinline__
#else
#define GANNET_DEVICE inline
#endif

namespace gannet::optimizers {

template <class T>
struct ScalarMath {
  using Number = T;
  GANNET_DEVICE T set(T value) const { return value; }
  GANNET_DEVICE T add(T a, T b) const { return a + b; }
  GANNET_DEVICE T sub(T a, T b) const { return a - b; }
  GANNET_DEVICE T mul(T a, T b) const { return a * b; }
  GANNET_DEVICE T div(T a, T b) const { return a / b; }
  GANNET_DEVICE T sqrt(T a) const { return ::sqrt(a); }
  GANNET_DEVICE T mul_add(T a, T b, T c) const { return ::fma(a, b, c); }  // a * b + c, rounded once
};

}  // namespace gannet::optimizers
