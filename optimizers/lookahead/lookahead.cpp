// Lookahead (Zhang et al. 2019) around AdamW and around SGD with momentum.
#include <gannet/sdk_elementwise.hpp>

#include "optimizers/adam/step.h"

GANNET_RULES_BEGIN

#include <gannet/elementwise/lookahead-inl.h>

#include "optimizers/adam/rule.h"
#include "optimizers/sgd/rule.h"

template <class T>
struct InnerAdamW : AdamRule<T> {
  static constexpr gannet_param_spec kParams[] = {
      learning_rate("1e-3"), betas("[0.9, 0.999]"), weight_decay(), sdk::eps("1e-8"), max_grad_norm(),
  };
  explicit InnerAdamW(const Step& s)
      : AdamRule<T>(AdamStep{s("lr"), s("betas", 0), s("betas", 1), s("eps"), s("weight_decay"), s.count(), /*decoupled=*/true,
                             /*bias_correction=*/true}) {}
  static void check(const RuleParams& params, const HostServices&) { refuse_max_grad_norm(params); }
};

template <class T>
struct InnerSgd : MomentumRule<T, false> {
  static constexpr gannet_param_spec kParams[] = {
      learning_rate("1e-3"),
      momentum("0.9"),
      weight_decay("0.0", "L2 regularisation"),
      number("dampening", "0.0", "the buffer takes (1 - dampening) of the gradient"),
      boolean("maximize", "false", "ascend instead of descend"),
      max_grad_norm(),
  };
  explicit InnerSgd(const Step& s) : MomentumRule<T, false>(s) {
    if (s("momentum") == 0) this->take = 1;  // torch.optim.SGD ignores the dampening then
  }
  static void check(const RuleParams& params, const HostServices&) { refuse_max_grad_norm(params); }
};

template <class T>
using LookaheadAdamW = Lookahead<InnerAdamW, T>;
template <class T>
using LookaheadSgd = Lookahead<InnerSgd, T>;

GANNET_RULES_END

GANNET_ELEMENTWISE(LookaheadAdamW)
GANNET_ELEMENTWISE(LookaheadSgd)
GANNET_ELEMENTWISE_PLUGINS("optimizer/lookaheadadamw@" GANNET_RULE_DEVICE " optimizer/lookaheadsgd@" GANNET_RULE_DEVICE,
                           GANNET_ELEMENTWISE_OPTIMIZER(LookaheadAdamW, "LookaheadAdamW", "1.0.0",
                                                        "AdamW with Lookahead: slow weights follow every k steps"),
                           GANNET_ELEMENTWISE_OPTIMIZER(LookaheadSgd, "LookaheadSGD", "1.0.0",
                                                        "momentum SGD with Lookahead: slow weights follow every k steps"))
