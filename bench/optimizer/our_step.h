// The whole optimizer step as the engine runs it, on the engine's own buffers and plugin: norm and overflow check in one pass,
// then unscale, clip, AdamW and the bf16 copy in another.
#pragma once

#include <cmath>

#include "base/parallel.h"
#include "grads/grad_norm.h"
#include "interfaces/optimizer.h"
#include "tensor/flat_buffer.h"

namespace gannet::bench {

inline const plugin::Plugin& adamw_plugin() {
  static auto& registry = *new plugin::Registry({});
  return registry.require(GANNET_KIND_OPTIMIZER, "AdamW", "cpu");
}

class OurStep {
 public:
  static constexpr double kLossScale = 128;
  static constexpr uint64_t kGrain = 16384;

  explicit OurStep(uint64_t numel)
      : numel_(numel),
        param_(allocate_flat(static_cast<int64_t>(numel), at::kFloat, at::kCPU)),
        exp_avg_(allocate_flat(static_cast<int64_t>(numel), at::kFloat, at::kCPU)),
        exp_avg_sq_(allocate_flat(static_cast<int64_t>(numel), at::kFloat, at::kCPU)),
        grad_(allocate_flat(static_cast<int64_t>(numel), at::kBFloat16, at::kCPU)),
        out_(allocate_flat(static_cast<int64_t>(numel), at::kBFloat16, at::kCPU)),
        adamw_(adamw_plugin(), plugin::parse_params(adamw_plugin(), Dict{{"weight_decay", 0.01}}, [](auto&) { return "bench"; }),
               host_) {
    auto* param = static_cast<float*>(param_.data_ptr());
    auto* grad = static_cast<uint16_t*>(grad_.data_ptr());
    parallel_for(0, numel, kGrain, [&](uint64_t begin, uint64_t end) noexcept {
      for (uint64_t i = begin; i < end; ++i) {
        param[i] = static_cast<float>(i % 17) * 0.1f;
        grad[i] = static_cast<uint16_t>(0x3c00 + i % 64);  // bf16, about 0.008
      }
    });
  }

  void run() {
    const NormResult total = sum_of_squares(grad_.data_ptr(), GANNET_BFLOAT16, numel_, 0);
    if (!total.finite) return;
    const double norm = std::sqrt(total.sum_of_squares) / kLossScale;
    const double clip = std::max(1.0, (norm + 1e-6) / 1.0);
    void* states[] = {exp_avg_.data_ptr(), exp_avg_sq_.data_ptr()};
    gannet_update_args args{};
    args.struct_size = sizeof(args);
    args.param_dtype = GANNET_FLOAT32;
    args.grad_dtype = GANNET_BFLOAT16;
    args.out_dtype = GANNET_BFLOAT16;
    args.numel = numel_;
    args.param = param_.data_ptr();
    args.grad = grad_.data_ptr();
    args.out = out_.data_ptr();
    args.states = states;
    args.state_count = 2;
    args.grad_scale = 1 / (kLossScale * clip);
    args.step = ++step_;
    args.hyper = adamw_.hyper_values().data();
    args.hyper_count = adamw_.hyper_values().size();
    adamw_.update(args);
  }

 private:
  uint64_t numel_;
  at::Tensor param_, exp_avg_, exp_avg_sq_;  // [numel] fp32
  at::Tensor grad_, out_;                    // [numel] bf16
  Host host_;
  Optimizer adamw_;
  uint64_t step_ = 0;
};

}  // namespace gannet::bench
