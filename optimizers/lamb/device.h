// LAMB on a device: both passes run tensor by tensor.
//
// For each tensor, a piece costs one launch for the sums and one for the update. The host waits for
// the device once per piece, because the host combines the sums.
#pragma once

#include <vector>

#include "optimizers/device/part.h"
#include "optimizers/device/team.h"
#include "optimizers/lamb/lamb.h"

namespace gannet::rules {
namespace device {

#include "optimizers/lamb/rule.h"

// Computes the sums of squares of one block of a tensor, in double. Each thread takes every 256th
// element, and the threads' sums are added in a fixed order. The CPU uses a different order, so
// sums may differ in their last bits.
template <class Device, class T, class Grad>
struct LambSumsKernel {
  static constexpr unsigned kThreads = 256;
  struct Shared {
    double weights[kThreads], update[kThreads];
  };
  LambRule<T> rule;
  T scale;
  TensorBlocks blocks;
  const T* param;
  const Grad* grad;
  const T* exp_avg;
  const T* exp_avg_sq;
  LambSums* sums;  // one per block

  template <class Team>
  GANNET_DEVICE void operator()(const Team& team, uint64_t block, Shared& shared) const {
    team.each([&](unsigned t) {
      using V = Scalar<T>;
      using Wide = Scalar<double>;
      Wide weights = 0, update = 0;
      const uint64_t end = blocks.end(block);
      for (uint64_t i = blocks.begin(block) + t; i < end; i += kThreads) {
        const V weight(param[i]);
        V first(exp_avg[i]), second(exp_avg_sq[i]);
        const V u = rule.direction(V(static_cast<T>(Device::widen(grad[i])) * scale), weight, first, second);
        weights = fma(Wide(weight.value), Wide(weight.value), weights);
        update = fma(Wide(u.value), Wide(u.value), update);
      }
      shared.weights[t] = weights.value;
      shared.update[t] = update.value;
    });
    add_up<kThreads>(team, shared.weights);
    add_up<kThreads>(team, shared.update);
    team.each([&](unsigned t) {
      if (t != 0) return;
      sums[block].weights = shared.weights[0];
      sums[block].update = shared.update[0];
    });
  }
};

}  // namespace device

template <class Device>
class LambOn : public LambBase {
 public:
  using LambBase::LambBase;

  void sums(const gannet_update_args& args, uint32_t, double* sums) {
    if (args.numel == 0) return;
    typename Device::Work work(device_, args);
    uint64_t count = 0;
    for (uint64_t s = 0; s < args.segment_count; ++s) count += TensorBlocks(sdk::segment(args, s)).count();
    auto* const on_device = work.template memory<LambSums>(0, count);
    with_numbers<Device>(args, [&](auto number, const auto* grad) {
      using T = decltype(number);
      const device::LambRule<T> rule{lamb_numbers<T>(step_of(args))};
      auto* next = on_device;
      for (uint64_t s = 0; s < args.segment_count; ++s) {
        const TensorBlocks blocks(sdk::segment(args, s));
        run_sums(work, rule, args, blocks, grad, next);
        next += blocks.count();
      }
    });
    sums_.resize(count);
    work.to_host(sums_.data(), on_device, count);
    // The blocks are added in order, as on the CPU.
    const LambSums* next = sums_.data();
    for (uint64_t s = 0; s < args.segment_count; ++s)
      for (uint64_t b = TensorBlocks(sdk::segment(args, s)).count(); b > 0; --b, ++next) {
        sums[args.sum_count * s] += next->weights;
        sums[args.sum_count * s + 1] += next->update;
      }
  }

  void update(const gannet_update_args& args) {
    if (args.numel == 0) return;
    typename Device::Work work(device_, args);
    const LambStep step = step_of(args);
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& segment = sdk::segment(args, s);
      const UpdatePart<2> part(args, segment.offset, segment.numel);
      const double ratio = coefficient(args.sums + s * args.sum_count);
      if (args.param_dtype == GANNET_FLOAT64)
        update_as<double>(work, step, ratio, part.args);
      else
        update_as<float>(work, step, ratio, part.args);
    }
  }

 private:
  template <class Work, class T, class Grad>
  static void run_sums(Work& work, const device::LambRule<T>& rule, const gannet_update_args& args, const TensorBlocks& blocks,
                       const Grad* grad, LambSums* to) {
    using Kernel = device::LambSumsKernel<Device, T, Grad>;
    work.run(Kernel{rule, static_cast<T>(args.grad_scale), blocks, static_cast<const T*>(args.param), grad,
                    static_cast<const T*>(args.states[0]), static_cast<const T*>(args.states[1]), to},
             blocks.count());
  }
  template <class T, class Work>
  static void update_as(Work& work, const LambStep& step, double ratio, const gannet_update_args& args) {
    device::LambRule<T> rule{lamb_numbers<T>(step)};
    rule.minus_rate = static_cast<T>(-rule.step_size * ratio);
    work.each(rule, args);
  }

  Device device_;
  std::vector<LambSums> sums_;  // sums of the blocks; kept between calls, so that a step allocates nothing
};

}  // namespace gannet::rules
