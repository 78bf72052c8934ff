// A rule's number type for plain loops and GPU kernels: one element at a time. lanes-inl.h has the
// SIMD version.
//
//   const V root = sqrt(fma(a, b, c));
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__) || defined(__HIP__)
#define GANNET_DEVICE __device__ __forceinline__
#elif !defined(GANNET_DEVICE)
#define GANNET_DEVICE inline __attribute__((always_inline))
#endif
