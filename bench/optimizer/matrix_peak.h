// Baselines for Muon's products: multiply-adds in registers, and the same iteration with LibTorch's
// products.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <immintrin.h>

#include <algorithm>

#include "base/parallel.h"

namespace gannet::bench {

// Runs rounds of 16 (12) independent multiply-adds on the widest vectors available, on each thread.
__attribute__((target("avx512f"))) inline void spin_512(uint64_t count) {
  __m512 sums[16];
  for (auto& sum : sums) sum = _mm512_set1_ps(1);
  const __m512 factor = _mm512_set1_ps(0.999f), term = _mm512_set1_ps(0.001f);
  for (uint64_t i = 0; i < count; ++i) {
#pragma GCC unroll 16
    for (auto& sum : sums) {
      sum = _mm512_fmadd_ps(sum, factor, term);
      asm volatile("" : "+v"(sum));
    }
  }
}
__attribute__((target("avx2,fma"))) inline void spin_256(uint64_t count) {
  __m256 sums[12];
  for (auto& sum : sums) sum = _mm256_set1_ps(1);
  const __m256 factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(0.001f);
  for (uint64_t i = 0; i < count; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      sum = _mm256_fmadd_ps(sum, factor, term);
      asm volatile("" : "+x"(sum));
    }
  }
}
inline void spin(uint64_t count) {
  parallel_for(0, parallel_thread_count(), 1,
               [&](uint64_t, uint64_t) noexcept { __builtin_cpu_supports("avx512f") ? spin_512(count) : spin_256(count); });
}
inline double operations_of_spin(uint64_t count) {
  const double round = __builtin_cpu_supports("avx512f") ? 2 * 16 * 16 : 2 * 12 * 8;
  return round * parallel_thread_count() * static_cast<double>(count);
}

// The iteration on the matrix itself, fp32, out of place; x is wide.
inline at::Tensor newton_schulz(at::Tensor x) {
  at::NoGradGuard no_grad;
  x = x / (x.norm() + 1e-7);
  for (int step = 0; step < 5; ++step) {
    const at::Tensor a = x.mm(x.t());
    x = at::addmm(x, at::addmm(a, a, a, -4.7750, 2.0315), x, 3.4445, 1);
  }
  return x;
}

// Multiplications and additions in the iteration when symmetry is not exploited: the operations
// that "GFLOP/s" counts.
inline double operations_of_newton_schulz(double n, double m) { return 5 * (2 * n * n * m + 2 * n * n * n + 2 * n * n * m); }

}  // namespace gannet::bench
