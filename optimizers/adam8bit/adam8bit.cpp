// AdamW with its moments in 8 bits: the parameters and defaults of bitsandbytes' AdamW8bit, and codes of its own (codes.h).
#include <algorithm>
#include <gannet/sdk_rule.hpp>

#include "optimizers/adam8bit/codes.h"
#include "optimizers/adam8bit/kernel.h"

namespace gannet::rules {
namespace {

class AdamW8bit : public sdk::OptimizerBase {
 public:
  static constexpr gannet_param_spec kParams[] = {
      sdk::at_least(sdk::learning_rate("1e-3"), 0),
      sdk::betas("[0.9, 0.999]"),
      sdk::at_least(sdk::weight_decay("0.01", "decoupled weight decay"), 0),
      sdk::eps("1e-8"),
      sdk::max_grad_norm(),
  };
  AdamW8bit(const gannet_host& host, const sdk::Params& params)
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

  void update(const gannet_update_args& args) {
    const sdk::Step s(params_, args);
    const Adam8bitStep step(s("lr"), s("betas", 0), s("betas", 1), s("eps"), s("weight_decay"), s.count());
    parallel_for(args.numel, sdk::kGrain, [&](uint64_t begin, uint64_t end) {
      for (uint64_t k = 0; k < args.segment_count; ++k) {
        const gannet_segment& part = sdk::segment(args, k);
        const uint64_t first = std::max(begin, part.offset), last = std::min(end, part.offset + part.numel);
        if (first < last) adam8bit_update_cpu(step, args, first, last);
      }
    });
  }

 private:
  sdk::RuleParams params_;
};

}  // namespace
}  // namespace gannet::rules

GANNET_PLUGINS("optimizer/adamw8bit@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::AdamW8bit>("AdamW8bit", "cpu", "1.0.0",
                                                                "AdamW with both moments in 8 bits, scaled by blocks"))
