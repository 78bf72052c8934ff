// A kernel is written for a team of threads that share memory. On a GPU the team is a thread block
// (gpu.cuh). Tests run the same code as loops on the host (tests/optimizers/hosted.h), so that
// everything except the launch is tested without a GPU.
//
//   struct Sum {                                                  // the sums of every 256 numbers
//     static constexpr unsigned kThreads = 256;
//     struct Shared { double sums[kThreads]; };
//     const double* x;
//     double* totals;                                             // one per block
//     template <class Team>
//     GANNET_DEVICE void operator()(const Team& team, uint64_t block, Shared& shared) const {
//       team.each([&](unsigned t) { shared.sums[t] = x[block * kThreads + t]; });      // runs on every thread; then all wait
//       add_up<kThreads>(team, shared.sums);
//       team.each([&](unsigned t) { if (t == 0) totals[block] = shared.sums[0]; });
//     }
//   };
//
// Within one each() a thread must not read data that a different thread writes. Data that a thread
// keeps between calls to each() goes in a `typename Team::template PerThread<T>`, with one element
// per thread, held in registers on a GPU. Shared memory is initially undefined.
#pragma once

#include <gannet/elementwise/scalar.h>

#include <cstdint>

#include "optimizers/device/both.h"

namespace gannet::rules::device {

#include <gannet/elementwise/scalar-inl.h>

struct NoCopy {};  // the type of `out` if there is no low-precision copy

GANNET_BOTH uint64_t ceil_div(uint64_t count, uint64_t size) { return (count + size - 1) / size; }

// Hides from the compiler that `value` has not changed, so that what depends on it is computed here,
// and not before a loop, whose registers would then hold the results.
GANNET_DEVICE void compute_here(unsigned& value) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(value));
#elif defined(__HIP_DEVICE_COMPILE__)
  asm volatile("" : "+v"(value));
#else
  static_cast<void>(value);
#endif
}

// Sums values[kThreads] into values[0], always in the same order: first the two halves, then the
// quarters ...
template <unsigned kThreads, class Team, class T>
GANNET_DEVICE void add_up(const Team& team, T* values) {
  static_assert((kThreads & (kThreads - 1)) == 0, "a power of two");
  for (unsigned half = kThreads / 2; half > 0; half /= 2)
    team.each([&](unsigned t) {
      if (t < half) values[t] = values[t] + values[t + half];
    });
}

// Stores the largest of values[kThreads] in values[0].
template <unsigned kThreads, class Team, class T>
GANNET_DEVICE void largest(const Team& team, T* values) {
  static_assert((kThreads & (kThreads - 1)) == 0, "a power of two");
  for (unsigned half = kThreads / 2; half > 0; half /= 2)
    team.each([&](unsigned t) {
      if (t < half && values[t + half] > values[t]) values[t] = values[t + half];
    });
}

// Calls body(i) for each i in [0, count), on one thread each: `work.run(EachElement<Body>{count,
// body}, EachElement<Body>::blocks(count))`.
template <class Body>
struct EachElement {
  static constexpr unsigned kThreads = 256;
  struct Shared {};
  static uint64_t blocks(uint64_t count) { return ceil_div(count, kThreads); }
  uint64_t count;
  Body body;
  template <class Team>
  GANNET_DEVICE void operator()(const Team& team, uint64_t block, Shared&) const {
    team.each([&](unsigned t) {
      const uint64_t i = block * kThreads + t;
      if (i < count) body(i);
    });
  }
};
template <class Work, class Body>
void run_each(Work& work, uint64_t count, const Body& body) {
  work.run(EachElement<Body>{count, body}, EachElement<Body>::blocks(count));
}

}  // namespace gannet::rules::device
