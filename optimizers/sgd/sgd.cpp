// SGD with the parameters and semantics of torch.optim.SGD.
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

#include "rule.h"

struct Sgd {
  static constexpr gannet_param_spec kParams[] = {
      at_least(learning_rate("1e-3"), 0),
      momentum("0.0", "momentum factor; 0: no momentum buffer is kept"),
      at_least(weight_decay("0.0", "L2 regularisation"), 0),
      number("dampening", "0.0", "the buffer takes (1 - dampening) of the gradient"),
      boolean("nesterov", "false", "Nesterov's momentum"),
      boolean("maximize", "false", "ascend instead of descend"),
      max_grad_norm(),
  };
  static bool has_buffer(const RuleParams& params) { return params.number("momentum") != 0; }
  static void check(const RuleParams& params, const HostServices&) {
    if (params.flag("nesterov") && (!has_buffer(params) || params.number("dampening") != 0))
      throw Failure(GANNET_INVALID_ARGUMENT, "'nesterov' needs a 'momentum' above 0 and a 'dampening' of 0");
    refuse_max_grad_norm(params);
  }
  static std::vector<gannet_state_spec> states(const RuleParams& params) {
    if (!has_buffer(params)) return {};
    return sdk::detail::states_of_rule<MomentumRule<float, false>>();
  }
  template <class T, class Run>
  static void with_rule(const Step& s, Run&& run) {
    if (has_buffer(s.params())) {
      if (s.flag("nesterov")) return run(MomentumRule<T, true>(s));
      return run(MomentumRule<T, false>(s));
    }
    if (s("momentum") != 0)
      throw Failure(
          GANNET_INVALID_ARGUMENT,
          "momentum was changed from 0, but SGD without momentum keeps no buffer: give a momentum above 0 in the config");
    run(SgdRule<T>(s));
  }
};

GANNET_RULES_END

GANNET_ELEMENTWISE_FAMILY(Sgd)
GANNET_ELEMENTWISE_PLUGINS("optimizer/sgd@" GANNET_RULE_DEVICE,
                           GANNET_ELEMENTWISE_OPTIMIZER(Sgd, "SGD", "1.0.0", "stochastic gradient descent, as torch.optim.SGD"))
