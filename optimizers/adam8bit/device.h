// AdamW8bit on a device: one thread block for each block of codes, and one launch for each tensor
// of a piece.
//
// The results are bitwise equal to those of the CPU loop if the CPU has fused multiply-add. There
// are two exceptions, neither of which reaches an update: a NaN in a gradient, which the host
// rejects, and a block whose moments are all below 2^-126, where the inverse of the largest
// magnitude is infinite.
#pragma once

#include <type_traits>

#include "optimizers/adam8bit/adam8bit.h"
#include "optimizers/device/part.h"
#include "optimizers/device/team.h"

namespace gannet::rules {
namespace device {

#include "optimizers/adam8bit/rule.h"

template <class Device, class Grad, class Out>
struct Adam8bitKernel {
  static constexpr unsigned kThreads = 64, kEach = kBlock / kThreads;  // each thread takes every 64th element of a block
  struct Shared {
    float first[kThreads], second[kThreads];  // the largest magnitudes of each thread's elements
  };
  struct Moments {
    float first[kEach], second[kEach];
  };
  Adam8bitRule rule;
  float grad_scale;
  uint64_t begin, end;  // elements of one tensor, as indices in the range; `begin` is a multiple of kBlock
  float* param;
  const Grad* grad;
  Out* out;
  int8_t* first_codes;
  float* first_scales;
  uint8_t* second_codes;
  float* second_scales;

  GANNET_BOTH static uint64_t blocks(uint64_t begin, uint64_t end) { return ceil_div(end - begin, kBlock); }

  template <class Team>
  GANNET_DEVICE void operator()(const Team& team, uint64_t block, Shared& shared) const {
    using V = Scalar<float>;
    const uint64_t first = begin + block * kBlock, number = first / kBlock;
    typename Team::template PerThread<Moments> moments;
    team.each([&](unsigned t) {
      const V of_first(first_unit(first_scales[number])), of_second(second_unit(second_scales[number]));
      V largest_first(0), largest_second(0);
      Moments& own = moments[t];
      GANNET_UNROLL
      for (unsigned k = 0; k < kEach; ++k) {
        const uint64_t i = first + k * kThreads + t;
        own.first[k] = own.second[k] = 0;
        if (i >= end) continue;
        V m = rule.first_of(V(static_cast<float>(first_codes[i])), of_first);
        V v = rule.second_of(V(static_cast<float>(second_codes[i])), of_second);
        V p(param[i]);
        rule(V(Device::widen(grad[i]) * grad_scale), p, m, v);
        param[i] = p.value;
        if constexpr (!std::is_same_v<Out, NoCopy>) Device::narrow(p.value, out[i]);
        own.first[k] = m.value;
        own.second[k] = v.value;
        largest_first = max(largest_first, abs(m));
        largest_second = max(largest_second, v);
      }
      shared.first[t] = largest_first.value;
      shared.second[t] = largest_second.value;
    });
    largest<kThreads>(team, shared.first);
    largest<kThreads>(team, shared.second);
    team.each([&](unsigned t) {
      const V by_first(inverse_of(shared.first[0])), by_second(inverse_of(shared.second[0]));
      if (t == 0) {
        first_scales[number] = shared.first[0];
        second_scales[number] = shared.second[0];
      }
      GANNET_UNROLL
      for (unsigned k = 0; k < kEach; ++k) {
        const uint64_t i = first + k * kThreads + t;
        if (i >= end) continue;
        const float m = moments[t].first[k];
        const float code = Device::copy_sign(rule.magnitude_of_first(V(m), by_first).value, m);
        first_codes[i] = static_cast<int8_t>(within(Device::to_integer(code), -128, 127));
        const float square = rule.code_of_second(V(moments[t].second[k]), by_second).value;
        second_codes[i] = static_cast<uint8_t>(within(Device::to_integer(square), 0, 255));
      }
    });
  }
  GANNET_DEVICE static int within(int value, int low, int high) { return value < low ? low : value > high ? high : value; }
};

}  // namespace device

template <class Device>
class Adam8bitOn : public Adam8bitBase {
 public:
  using Adam8bitBase::Adam8bitBase;

  void update(const gannet_update_args& args) {
    if (args.numel == 0) return;
    typename Device::Work work(device_, args);
    const device::Adam8bitRule rule{step_of(args)};
    with_gradient_and_copy<Device>(args, [&](const auto* grad, auto* out) {
      for (uint64_t s = 0; s < args.segment_count; ++s) run(work, rule, args, sdk::segment(args, s), grad, out);
    });
  }

 private:
  template <class Work, class Grad, class Out>
  static void run(Work& work, const device::Adam8bitRule& rule, const gannet_update_args& args, const gannet_segment& part,
                  const Grad* grad, Out* out) {
    using Kernel = device::Adam8bitKernel<Device, Grad, Out>;
    const uint64_t end = part.offset + part.numel;
    work.run(Kernel{rule, static_cast<float>(args.grad_scale), part.offset, end, static_cast<float*>(args.param), grad, out,
                    static_cast<int8_t*>(args.states[kFirstCode]), static_cast<float*>(args.states[kFirstScale]),
                    static_cast<uint8_t*>(args.states[kSecondCode]), static_cast<float*>(args.states[kSecondScale])},
             Kernel::blocks(part.offset, end));
  }

  Device device_;
};

}  // namespace gannet::rules
