// AdamW with 8-bit moments, except for the loops, which each device implements. It has the
// parameters and defaults of bitsandbytes' AdamW8bit, with its own codes (codes.h).
#pragma once

#include <gannet/sdk_rule.hpp>
#include <vector>

#include "optimizers/adam8bit/codes.h"
#include "optimizers/adam8bit/step.h"

namespace gannet::rules {

enum Adam8bitState : uint64_t { kFirstCode = 0, kFirstScale = 1, kSecondCode = 2, kSecondScale = 3 };

class Adam8bitBase : public sdk::OptimizerBase {
 public:
  static constexpr gannet_param_spec kParams[] = {
      sdk::at_least(sdk::learning_rate("1e-3"), 0),
      sdk::betas("[0.9, 0.999]"),
      sdk::at_least(sdk::weight_decay("0.01", "decoupled weight decay"), 0),
      sdk::eps("1e-8"),
      sdk::max_grad_norm(),
  };
  Adam8bitBase(const gannet_host& host, const sdk::Params& params)
      : OptimizerBase(host, params), params_(kParams, sizeof(kParams) / sizeof(kParams[0]), params) {
    sdk::refuse_max_grad_norm(params_);
  }

  bool supports(uint32_t param, uint32_t grad, uint32_t out) const {
    return param == GANNET_FLOAT32 && sdk::elementwise_supports(param, grad, out);
  }
  std::vector<gannet_state_spec> states() const {
    return {sdk::state("exp_avg_8bit", GANNET_STATE_PER_ELEMENT, GANNET_INT8), sdk::state_per_block("exp_avg_scale", kBlock),
            sdk::state("exp_avg_sq_8bit", GANNET_STATE_PER_ELEMENT, GANNET_UINT8),
            sdk::state_per_block("exp_avg_sq_scale", kBlock)};
  }
  uint64_t range_alignment() const { return kBlock; }

 protected:
  Adam8bitStep step_of(const gannet_update_args& args) const {
    const sdk::Step s(params_, args);
    return {s("lr"), s("betas", 0), s("betas", 1), s("eps"), s("weight_decay"), s.count()};
  }

 private:
  sdk::RuleParams params_;
};

}  // namespace gannet::rules
