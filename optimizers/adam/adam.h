// Adam and AdamW but for the loop, which each device has its own of: the parameters of DeepSpeed's "Adam" and "AdamW", and
// what one step is made of.
//
// "Adam" trains as AdamW unless "adam_w_mode" is false; "AdamW" is always AdamW.
#pragma once

#include <gannet/sdk.hpp>

#include "optimizers/adam/step.h"
#include "optimizers/common/buffers.h"

namespace gannet::optimizers {

// torch.optim.AdamW's own default, where "torch_adam" is on and the config gives none.
constexpr double kTorchAdamWDecay = 0.01;

template <bool kIsAdamW>
class AdamBase : public sdk::OptimizerBase {
 public:
  static constexpr gannet_param_spec kParams[] = {
      sdk::learning_rate("1e-3"),
      sdk::role<GANNET_ROLE_BETA1, GANNET_ROLE_BETA2>(
          sdk::below(sdk::at_least(sdk::dynamic_numbers("betas", 2, "[0.9, 0.999]", "decay rates of the two moments"), 0), 1)),
      sdk::role<GANNET_ROLE_WEIGHT_DECAY>(
          sdk::dynamic_number("weight_decay", "0.0", "weight decay (with torch_adam and AdamW: 0.01 unless given)")),
      sdk::at_least(sdk::number("eps", "1e-8", "added to the root of the second moment"), 0),
      sdk::boolean("bias_correction", "true", "divide the moments by 1 - beta^step"),
      sdk::boolean("adam_w_mode", "true", "decoupled weight decay; false: L2 regularisation, for type Adam"),
      sdk::boolean("torch_adam", "false", "torch.optim's defaults and order of roundings"),
      sdk::boolean("amsgrad", "false", "not available"),
      sdk::boolean("set_grad_none", "true", "accepted; gradients are always released after a step"),
      sdk::boolean("fp32_optimizer_states", "true", "states have the master's type; false is not available"),
      sdk::number("max_grad_norm", nullptr, "refused: gradient_clipping does this", GANNET_PARAM_NULLABLE),
  };

  AdamBase(const gannet_host& host, const sdk::Params& params) : OptimizerBase(host, params) {
    if (params.boolean("amsgrad"))
      throw sdk::Failure(GANNET_UNSUPPORTED, "'amsgrad' is true, but this Adam has no AMSGrad variant: remove it");
    if (!params.boolean("fp32_optimizer_states"))
      throw sdk::Failure(GANNET_UNSUPPORTED,
                         "'fp32_optimizer_states' is false, but the moments are kept in the master's type only: remove it");
    if (params.has("max_grad_norm"))
      throw sdk::Failure(
          GANNET_INVALID_ARGUMENT,
          "'max_grad_norm' is not a parameter of the optimizer: set 'gradient_clipping' at the top level of the config");
    torch_order_ = params.boolean("torch_adam");
    if (torch_order_ && !params.boolean("bias_correction"))
      throw sdk::Failure(GANNET_INVALID_ARGUMENT,
                         "'bias_correction' is false, but torch's Adam always corrects the bias: remove one of 'bias_correction' "
                         "and 'torch_adam'");
    bias_correction_ = params.boolean("bias_correction");
    decoupled_ = kIsAdamW || params.boolean("adam_w_mode");
    eps_ = params.number("eps");
    if (kIsAdamW && !params.boolean("adam_w_mode"))
      warn("type AdamW ignores \"adam_w_mode\": false, as DeepSpeed does; for L2 regularisation use type Adam");
    default_decay_ = torch_order_ && decoupled_ && !params.given("weight_decay");
    if (default_decay_) log(GANNET_LOG_INFO, "torch_adam: weight_decay is torch.optim.AdamW's default, 0.01");
  }

  std::vector<gannet_state_spec> states() const { return {sdk::state("exp_avg"), sdk::state("exp_avg_sq")}; }
  bool supports(uint32_t param, uint32_t grad, uint32_t out) const { return elementwise_supports(param, grad, out); }

  AdamStep step_of(const gannet_update_args& args) const {
    AdamStep step{};
    step.lr = args.hyper[0];
    step.beta1 = args.hyper[1];
    step.beta2 = args.hyper[2];
    step.weight_decay = default_decay_ && args.hyper[3] == 0 ? kTorchAdamWDecay : args.hyper[3];
    step.eps = eps_;
    step.step = args.step;
    step.decoupled = decoupled_;
    step.bias_correction = bias_correction_;
    return step;
  }
  bool torch_order() const { return torch_order_; }  // TorchAdamRule instead of AdamRule

 private:
  bool torch_order_, bias_correction_, decoupled_;
  bool default_decay_;  // the group's weight_decay is the schema's 0, which stands for torch's default
  double eps_;
};

}  // namespace gannet::optimizers
