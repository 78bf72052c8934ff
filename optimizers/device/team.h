// A kernel is written for a team of threads that share memory. On a GPU the team is a thread block (cuda.cuh); tests run the same
// text as loops on the host (tests/optimizers/hosted.h), so that all but the launch is tested where there is no GPU.
//
//   struct Sum {                                                  // the sum of each 256 numbers
//     static constexpr unsigned kThreads = 256;
//     struct Shared { double sums[kThreads]; };
//     const double* x;
//     double* totals;                                             // [blocks]
//     template <class Team>
//     GANNET_DEVICE void operator()(const Team& team, uint64_t block, Shared& shared) const {
//       team.each([&](unsigned t) { shared.sums[t] = x[block * kThreads + t]; });      // every thread; then all wait
//       add_up<kThreads>(team, shared.sums);
//       team.each([&](unsigned t) { if (t == 0) totals[block] = shared.sums[0]; });
//     }
//   };
//
// Within one each() no thread may read what another one writes. What a thread keeps from one each() to the next is in a
// `typename Team::template Own<T>`, an element for each thread: registers on a GPU. Shared memory is undefined at the start.
#pragma once

#include <gannet/elementwise/scalar.h>

#include <cstdint>

#include "optimizers/device/both.h"

namespace gannet::rules::device {

#include <gannet/elementwise/scalar-inl.h>

struct NoCopy {};  // the type of `out` where no low-precision copy is wanted

GANNET_BOTH uint64_t ceil_div(uint64_t count, uint64_t size) { return (count + size - 1) / size; }

// Adds values[kThreads] up into values[0], always in the same order: halves, then quarters ...
template <unsigned kThreads, class Team, class T>
GANNET_DEVICE void add_up(const Team& team, T* values) {
  static_assert((kThreads & (kThreads - 1)) == 0, "a power of two");
  for (unsigned half = kThreads / 2; half > 0; half /= 2)
    team.each([&](unsigned t) {
      if (t < half) values[t] = values[t] + values[t + half];
    });
}

// The largest of values[kThreads] into values[0].
template <unsigned kThreads, class Team, class T>
GANNET_DEVICE void largest(const Team& team, T* values) {
  static_assert((kThreads & (kThreads - 1)) == 0, "a power of two");
  for (unsigned half = kThreads / 2; half > 0; half /= 2)
    team.each([&](unsigned t) {
      if (t < half && values[t + half] > values[t]) values[t] = values[t + half];
    });
}

// body(i) for i in [0, count), a thread each: `work.run(Each<Body>{count, body}, Each<Body>::blocks(count))`.
template <class Body>
struct Each {
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
  work.run(Each<Body>{count, body}, Each<Body>::blocks(count));
}

}  // namespace gannet::rules::device
