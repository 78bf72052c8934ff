// The whole optimizer step as the engine runs it: norm and overflow check in one pass, then unscale, clip, AdamW and the bf16
// copy in another.
#pragma once

#include <cmath>

#include "arena.h"
#include "base/parallel.h"
#include "optimizers/common/buffers.h"
#include "optimizers/loaded_plugin.h"
#include "precision/grad_norm.h"

namespace gannet::bench {

class OurStep {
 public:
  explicit OurStep(uint64_t numel, uint64_t gap = 3 * Arena::kPage, bool huge = true)
      : numel(numel), arena_(16 * numel, gap, huge), param(arena_.take<float>(numel)), exp_avg(arena_.take<float>(numel)),
        exp_avg_sq(arena_.take<float>(numel)), grad(arena_.take<uint16_t>(numel)), out(arena_.take<uint16_t>(numel)),
        plugin_("optimizer_adam", "AdamW"), adamw_(plugin_, Dict{{"weight_decay", 0.01}}, host_) {
    // Filled by the threads that will work on it.
    parallel_for(0, numel, optimizers::kGrain, [&](uint64_t begin, uint64_t end) noexcept {
      for (uint64_t i = begin; i < end; ++i) {
        param[i] = static_cast<float>(i % 17) * 0.1f;
        exp_avg[i] = exp_avg_sq[i] = 0;
        grad[i] = static_cast<uint16_t>(0x3c00 + i % 64);  // bf16, about 0.008
        out[i] = 0;
      }
    });
  }

  void run() {
    const NormResult total = sum_of_squares(grad, GANNET_BFLOAT16, numel, 0);
    if (!total.finite) return;
    const double norm = std::sqrt(total.sum_of_squares) / kLossScale;
    const double clip = std::max(1.0, (norm + 1e-6) / 1.0);
    void* states[] = {exp_avg, exp_avg_sq};
    gannet_update_args args{};
    args.struct_size = sizeof(args);
    args.param_dtype = GANNET_FLOAT32;
    args.grad_dtype = GANNET_BFLOAT16;
    args.out_dtype = GANNET_BFLOAT16;
    args.numel = numel;
    args.param = param;
    args.grad = grad;
    args.out = out;
    args.states = states;
    args.state_count = 2;
    args.grad_scale = 1 / (kLossScale * clip);
    args.step = ++step_;
    args.hyper = adamw_.params.hyper.data();
    args.hyper_count = adamw_.params.hyper.size();
    adamw_.update(args);
  }

  static constexpr double kLossScale = 128;
  const uint64_t numel;

 private:
  Arena arena_;

 public:
  float *param, *exp_avg, *exp_avg_sq;  // [numel] fp32
  uint16_t *grad, *out;                 // [numel] bf16

 private:
  test::TestHost host_;
  test::LoadedPlugin plugin_;
  test::OptimizerUnderTest adamw_;
  uint64_t step_ = 0;
};

}  // namespace gannet::bench
