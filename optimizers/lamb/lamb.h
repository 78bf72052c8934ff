// LAMB, except for the loops, which each device implements: the parameters of DeepSpeed's "Lamb"
// (FusedLamb) and the scalars of a step.
//
// A step makes two passes over memory. The first sums the squares of a tensor's weights and of its
// direction. The second updates the tensor, scaling the learning rate by the ratio of the two
// norms. In fp32 this moves 44 bytes per parameter: 16 are read for the norms, and 16 are
// read and 12 written for the update.
#pragma once

#include <gannet/sdk_rule.hpp>

#include "optimizers/lamb/step.h"

namespace gannet::rules {

class LambBase : public sdk::OptimizerBase {
 public:
  static constexpr gannet_param_spec kParams[] = {
      sdk::learning_rate("1e-3"),
      sdk::betas("[0.9, 0.999]"),
      sdk::weight_decay("0.0", "weight decay, part of the direction"),
      sdk::at_least(sdk::number("eps", "1e-8", "added to the root of the second moment"), 0),
      sdk::boolean("bias_correction", "true", "correct the step size for the moments' start at 0"),
      sdk::boolean("eps_inside_sqrt", "false", "add eps to the second moment, under the root"),
      sdk::at_least(sdk::number("max_coeff", "10.0", "largest trust ratio"), 0),
      sdk::at_least(sdk::number("min_coeff", "0.01", "smallest trust ratio"), 0),
      sdk::boolean("amsgrad", "false", "not available"),
      sdk::max_grad_norm(),
  };

  LambBase(const gannet_host& host, const sdk::Params& params) : OptimizerBase(host, params) {
    if (params.boolean("amsgrad"))
      throw sdk::Failure(GANNET_UNSUPPORTED, "'amsgrad' is true, but LAMB has no AMSGrad variant: remove it");
    sdk::refuse_max_grad_norm(params);
    eps_ = params.number("eps");
    eps_inside_sqrt_ = params.boolean("eps_inside_sqrt");
    bias_correction_ = params.boolean("bias_correction");
    min_coeff_ = params.number("min_coeff");
    max_coeff_ = params.number("max_coeff");
    if (min_coeff_ > max_coeff_)
      throw sdk::Failure(GANNET_INVALID_ARGUMENT, "'min_coeff' is above 'max_coeff', so that no trust ratio is within them");
  }

  std::vector<gannet_state_spec> states() const {
    return {sdk::state("exp_avg"), sdk::state("exp_avg_sq"),
            sdk::state("lamb_coeff", GANNET_STATE_PER_TENSOR, GANNET_FLOAT32, 1)};
  }
  // The two sums of squares: of the weights and of the direction.
  std::vector<gannet_sum_spec> wanted_sums() const { return {sdk::sum(GANNET_SUM_OF_TENSOR), sdk::sum(GANNET_SUM_OF_TENSOR)}; }
  bool supports(uint32_t param, uint32_t grad, uint32_t out) const { return sdk::elementwise_supports(param, grad, out); }

  // Stores the trust ratios as a state, for monitoring. A tensor without a gradient in this step
  // has sums of 0 and keeps its last ratio.
  void end_step(const gannet_step_args& args) {
    auto* kept = static_cast<float*>(args.states[2]);
    for (uint64_t t = 0; t < args.tensor_count; ++t) {
      const double* row = args.sums + t * args.sum_count;
      if (row[0] != 0 || row[1] != 0) kept[t] = static_cast<float>(coefficient(row));
    }
  }

 protected:
  double coefficient(const double* sums_of_tensor) const {
    return lamb_coefficient(sums_of_tensor[0], sums_of_tensor[1], min_coeff_, max_coeff_);
  }
  LambStep step_of(const gannet_update_args& args) const {
    LambStep step{};
    step.lr = args.hyper[0];
    step.beta1 = args.hyper[1];
    step.beta2 = args.hyper[2];
    step.weight_decay = args.hyper[3];
    step.eps = eps_;
    step.step = args.step;
    step.eps_inside_sqrt = eps_inside_sqrt_;
    step.bias_correction = bias_correction_;
    return step;
  }

 private:
  double eps_, min_coeff_, max_coeff_;
  bool eps_inside_sqrt_, bias_correction_;
};

}  // namespace gannet::rules
