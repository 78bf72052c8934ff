// AdamW for bf16 parameters without fp32 masters ("bf16_master_weights_and_grads"): parameters and
// moments are bf16, rounded stochastically after a step that is computed in fp32.
#include <gannet/sdk_elementwise.hpp>

#include "optimizers/adam/step.h"

GANNET_RULES_BEGIN

#include "optimizers/adam/rule.h"

template <class T>
struct AdamWBf16 : AdamRule<T> {
  static constexpr bool kRoundsStochastically = true;
  static constexpr gannet_param_spec kParams[] = {
      learning_rate("1e-3"),
      betas("[0.9, 0.999]"),
      weight_decay(),
      sdk::eps("1e-8"),
      boolean("bias_correction", "true", "divide the moments by 1 - beta^step"),
      max_grad_norm(),
  };
  explicit AdamWBf16(const Step& s)
      : AdamRule<T>(AdamStep{s("lr"), s("betas", 0), s("betas", 1), s("eps"), s("weight_decay"), s.count(), /*decoupled=*/true,
                             s.flag("bias_correction")}) {}
  static void check(const RuleParams& params, const HostServices&) { refuse_max_grad_norm(params); }
};

GANNET_RULES_END

GANNET_ELEMENTWISE(AdamWBf16)
GANNET_ELEMENTWISE_PLUGINS("optimizer/adamwbf16@" GANNET_RULE_DEVICE,
                           GANNET_ELEMENTWISE_OPTIMIZER(AdamWBf16, "AdamWBF16", "1.0.0",
                                                        "AdamW for bf16 parameters without fp32 masters, rounded stochastically"))
