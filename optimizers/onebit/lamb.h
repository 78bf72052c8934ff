// DeepSpeed's OneBitLamb (Li et al. 2021, 1-bit LAMB).
//
// The warm-up is LAMB without bias correction, and c is a moving average of each tensor's trust
// ratio. After the warm-up, the momentum is the compressed average over the ranks, and the variance
// v in the denominator is frozen. The trust ratio is c times a factor that tracks how far a fresh
// variance v' has moved from the frozen one. v' is updated with the gradient that would explain the
// momentum's change:
//
//   g' = (m - b1 m_before) / (1 - b1);  v' <- b2 v' + (1-b2) g'^2;  u0 = m / (sqrt(v) + eps);  u = u0 + decay p
//   factor = max((sqrt(v) + eps) / (sqrt(v') + eps));  with decay: r = min(1, |u0|/|u|), factor <- factor r + 1 - r
//   factor within [factor_min, factor_max], then within factor_threshold of the last one;  p <- p - lr c factor u
//
// DeepSpeed compresses all momenta with one scale, and first multiplies each tensor's momentum by a
// constant to equalize their magnitudes. Here each tensor has its own scale (compressor.h), which
// serves the same purpose without constants.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "optimizers/onebit/base.h"
#include "optimizers/onebit/lamb_kernel.h"

namespace gannet::rules {

class OneBitLamb : public OneBitBase {
 public:
  static constexpr gannet_param_spec kParams[] = {
      sdk::at_least(sdk::learning_rate("1e-3"), 0),
      sdk::betas("[0.9, 0.999]"),
      sdk::at_least(sdk::weight_decay("0.0", "weight decay, part of the direction"), 0),
      sdk::eps("1e-8"),
      freeze_step_param(),
      sdk::at_least(sdk::number("max_coeff", "10.0", "largest trust ratio of the warm-up"), 0),
      sdk::at_least(sdk::number("min_coeff", "0.01", "smallest trust ratio of the warm-up"), 0),
      sdk::below(sdk::at_least(sdk::number("coeff_beta", "0.9", "decay rate of the average of trust ratios"), 0), 1),
      sdk::at_least(sdk::number("factor_max", "4.0", "largest factor of the frozen trust ratio"), 0),
      sdk::at_least(sdk::number("factor_min", "0.5", "smallest factor of the frozen trust ratio"), 0),
      sdk::at_least(sdk::number("factor_threshold", "0.1", "how far the factor moves in a step, relative to itself"), 0),
      cuda_aware_param(),
      comm_backend_name_param(),
      sdk::boolean("bias_correction", "true", "no effect, as in DeepSpeed: the rule has none"),
      sdk::boolean("eps_inside_sqrt", "false", "no effect, as in DeepSpeed"),
      sdk::boolean("amsgrad", "false", "not available"),
      sdk::max_grad_norm(),
  };

  OneBitLamb(const gannet_host& host, const sdk::Params& params)
      : OneBitBase(host, params),
        max_coeff_(params.number("max_coeff")),
        min_coeff_(params.number("min_coeff")),
        coeff_beta_(params.number("coeff_beta")),
        factor_max_(params.number("factor_max")),
        factor_min_(params.number("factor_min")),
        factor_threshold_(params.number("factor_threshold")) {
    if (min_coeff_ > max_coeff_)
      throw sdk::Failure(GANNET_INVALID_ARGUMENT, "'min_coeff' is above 'max_coeff', so that no trust ratio is within them");
    if (factor_min_ > factor_max_)
      throw sdk::Failure(GANNET_INVALID_ARGUMENT, "'factor_min' is above 'factor_max', so that no factor is within them");
  }

  uint64_t capabilities() const { return GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR | GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION; }
  std::vector<gannet_state_spec> states() const {
    return {sdk::state("exp_avg"),
            sdk::state("exp_avg_sq"),
            error_state("worker_error", GANNET_STATE_OF_RANK),
            error_state("server_error", GANNET_STATE_SERVED),
            sdk::state("exp_avg_sq_fresh"),
            sdk::state("lamb_coeff_freeze", GANNET_STATE_PER_TENSOR, GANNET_FLOAT64, 0),
            sdk::state("last_factor", GANNET_STATE_PER_TENSOR, GANNET_FLOAT64, 1),
            sdk::state("lamb_coeff", GANNET_STATE_PER_TENSOR, GANNET_FLOAT64, 1)};
  }

  void begin_step(const gannet_step_args& args) { next_.assign(args.tensor_count, {}); }

  void update(const gannet_update_args& args) {
    cut(args);
    const OneBitStep step = step_of(args);
    args.step > freeze_step_ ? frozen(step, args) : warm_up(step, args);
    parallel_for(blocks_.size(), 1, [&](uint64_t begin, uint64_t end) {
      for (uint64_t b = begin; b < end; ++b) {
        const uint64_t tensor = sdk::segment(args, blocks_[b].segment).tensor_index;
        onebit_lamb_apply_cpu(step, step.lr * next_[tensor].coeff, args, blocks_[b].begin, blocks_[b].end);
      }
    });
    if (args.step == freeze_step_)
      parallel_for(args.numel, sdk::kGrain, [&](uint64_t begin, uint64_t end) {
        std::memcpy(static_cast<float*>(args.states[4]) + begin, static_cast<const float*>(args.states[1]) + begin,
                    (end - begin) * sizeof(float));
      });
  }

  // Stores the per-tensor states of the tensors that were updated. These states are replicated on all
  // ranks, so update() only reads them.
  void end_step(const gannet_step_args& args) {
    for (uint64_t t = 0; t < args.tensor_count; ++t) {
      if (!next_[t].is_set) continue;
      static_cast<double*>(args.states[5])[t] = next_[t].frozen_coeff;
      static_cast<double*>(args.states[6])[t] = next_[t].factor;
      static_cast<double*>(args.states[7])[t] = next_[t].coeff;
    }
  }

 private:
  struct NextStates {  // the next states of one tensor
    double frozen_coeff = 0, factor = 1, coeff = 1;
    bool is_set = false;
  };
  struct Block {  // a thread's unit of work, in one tensor
    uint64_t segment, begin, end;
    OneBitLambNorms norms;
    OneBitLambRatios ratios;
  };

  // Blocks begin at multiples of sdk::kGrain in their tensor, so that sums over them depend on
  // nothing else.
  void cut(const gannet_update_args& args) {
    blocks_.clear();
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& part = sdk::segment(args, s);
      for (uint64_t done = 0; done < part.numel; done += sdk::kGrain)
        blocks_.push_back({s, part.offset + done, part.offset + std::min(done + sdk::kGrain, part.numel), {}, {}});
    }
  }

  void warm_up(const OneBitStep& step, const gannet_update_args& args) {
    parallel_for(blocks_.size(), 1, [&](uint64_t begin, uint64_t end) {
      for (uint64_t b = begin; b < end; ++b)
        blocks_[b].norms = onebit_lamb_warm_up_cpu(step, args, blocks_[b].begin, blocks_[b].end);
    });
    std::vector<OneBitLambNorms> of(args.segment_count);
    for (const Block& block : blocks_) {
      of[block.segment].weights += block.norms.weights;
      of[block.segment].update += block.norms.update;
    }
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const uint64_t tensor = sdk::segment(args, s).tensor_index;
      NextStates& next = next_[tensor];
      next = {static_cast<const double*>(args.states[5])[tensor], 1, 1, true};
      if (of[s].weights > 0 && of[s].update > 0)
        next.coeff = std::clamp(std::sqrt(of[s].weights) / std::sqrt(of[s].update), min_coeff_, max_coeff_);
      if (next.coeff != 1) next.frozen_coeff = coeff_beta_ * next.frozen_coeff + (1 - coeff_beta_) * next.coeff;
    }
  }

  void frozen(const OneBitStep& step, const gannet_update_args& args) {
    auto* const exp_avg = static_cast<float*>(args.states[0]);
    averaged_.resize(args.numel);
    if (is_compressed(args.step)) {
      compressor_.average(args, step.beta1, exp_avg, static_cast<float*>(args.states[2]), static_cast<float*>(args.states[3]),
                          averaged_.data());
    } else {  // on a single rank, the average is the momentum itself
      const auto beta = static_cast<float>(step.beta1);
      const MomentumInputs from{exp_avg, args.grad, args.grad_dtype, beta, 1 - beta, static_cast<float>(args.grad_scale)};
      parallel_for(args.numel, sdk::kGrain, [&](uint64_t begin, uint64_t end) {
        std::fill(averaged_.begin() + static_cast<ptrdiff_t>(begin), averaged_.begin() + static_cast<ptrdiff_t>(end), 0);
        add_error_cpu(from, averaged_.data(), begin, end);
      });
    }
    parallel_for(blocks_.size(), 1, [&](uint64_t begin, uint64_t end) {
      for (uint64_t b = begin; b < end; ++b)
        blocks_[b].ratios = onebit_lamb_frozen_cpu(step, args, averaged_.data(), blocks_[b].begin, blocks_[b].end);
    });
    std::vector<OneBitLambRatios> of(args.segment_count);
    for (const Block& block : blocks_) {
      OneBitLambRatios& sum = of[block.segment];
      sum = {sum.momentum + block.ratios.momentum, sum.update + block.ratios.update,
             std::max(sum.denominators, block.ratios.denominators)};
    }
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const uint64_t tensor = sdk::segment(args, s).tensor_index;
      const double last = static_cast<const double*>(args.states[6])[tensor];
      double factor = of[s].denominators;
      if (step.weight_decay > 0) {
        const double share = of[s].update > 0 ? std::min(1.0, std::sqrt(of[s].momentum / of[s].update)) : 1.0;
        factor = factor * share + 1 - share;
      }
      factor = std::clamp(factor, factor_min_, factor_max_);
      factor = std::clamp(factor, last * (1 - factor_threshold_), last * (1 + factor_threshold_));
      const double frozen_coeff = static_cast<const double*>(args.states[5])[tensor];
      next_[tensor] = {frozen_coeff, factor, frozen_coeff * factor, true};
    }
  }

  const double max_coeff_, min_coeff_, coeff_beta_, factor_max_, factor_min_, factor_threshold_;
  std::vector<NextStates> next_;  // one per tensor of the group, for the current step
  std::vector<Block> blocks_;     // blocks of the last piece; kept, so that a step allocates nothing
  std::vector<float> averaged_;
};

}  // namespace gannet::rules
