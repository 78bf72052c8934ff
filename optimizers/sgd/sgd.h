// SGD but for the loop, which each device has its own of: the parameters and the semantics of torch.optim.SGD, and what one
// step is made of.
#pragma once

#include <gannet/sdk.hpp>

#include "optimizers/common/buffers.h"
#include "optimizers/sgd/step.h"

namespace gannet::optimizers {

class SgdBase : public sdk::OptimizerBase {
 public:
  static constexpr gannet_param_spec kParams[] = {
      sdk::at_least(sdk::learning_rate("1e-3"), 0),
      sdk::role<GANNET_ROLE_MOMENTUM>(
          sdk::at_least(sdk::dynamic_number("momentum", "0.0", "momentum factor; 0: no momentum buffer is kept"), 0)),
      sdk::role<GANNET_ROLE_WEIGHT_DECAY>(sdk::at_least(sdk::dynamic_number("weight_decay", "0.0", "L2 regularisation"), 0)),
      sdk::number("dampening", "0.0", "the buffer takes (1 - dampening) of the gradient"),
      sdk::boolean("nesterov", "false", "Nesterov's momentum"),
      sdk::boolean("maximize", "false", "ascend instead of descend"),
      sdk::number("max_grad_norm", nullptr, "refused: gradient_clipping does this", GANNET_PARAM_NULLABLE),
  };

  SgdBase(const gannet_host& host, const sdk::Params& params) : OptimizerBase(host, params) {
    dampening_ = params.number("dampening");
    nesterov_ = params.boolean("nesterov");
    maximize_ = params.boolean("maximize");
    has_buffer_ = params.number("momentum") != 0;
    if (nesterov_ && (!has_buffer_ || dampening_ != 0))
      throw sdk::Failure(GANNET_INVALID_ARGUMENT, "'nesterov' needs a 'momentum' above 0 and a 'dampening' of 0");
    if (params.has("max_grad_norm"))
      throw sdk::Failure(
          GANNET_INVALID_ARGUMENT,
          "'max_grad_norm' is not a parameter of the optimizer: set 'gradient_clipping' at the top level of the config");
  }

  std::vector<gannet_state_spec> states() const {
    if (!has_buffer_) return {};
    return {sdk::state("momentum_buffer")};
  }
  bool supports(uint32_t param, uint32_t grad, uint32_t out) const { return elementwise_supports(param, grad, out); }

  SgdStep step_of(const gannet_update_args& args) const {
    SgdStep step{};
    step.lr = args.hyper[0];
    step.momentum = args.hyper[1];
    step.weight_decay = args.hyper[2];
    step.dampening = dampening_;
    step.has_buffer = has_buffer_;
    step.nesterov = nesterov_;
    step.maximize = maximize_;
    step.step = args.step;
    if (!has_buffer_ && step.momentum != 0)
      throw sdk::Failure(
          GANNET_INVALID_ARGUMENT,
          "momentum was changed from 0, but SGD without momentum keeps no buffer: give a momentum above 0 in the config");
    return step;
  }

 private:
  double dampening_;
  bool nesterov_, maximize_, has_buffer_;
};

}  // namespace gannet::optimizers
