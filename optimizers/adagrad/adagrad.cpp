// Adagrad (Duchi et al. 2011) with the parameters of torch.optim.Adagrad and DeepSpeed's defaults.
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

//   g <- g + decay p;  sum <- sum + g^2;  p <- p - lr / (1 + (t-1) lr_decay) g / (sqrt(sum) + eps)
//
// This follows torch.optim.Adagrad, which DeepSpeed uses without offload. DeepSpeed's CPU kernel
// leaves the decay out of the numerator.
template <class T>
struct Adagrad {
  static constexpr gannet_param_spec kParams[] = {
      at_least(learning_rate("1e-2"), 0),
      at_least(weight_decay("0.0", "L2 regularisation"), 0),
      sdk::eps("1e-10"),
      at_least(number("lr_decay", "0.0", "the learning rate is divided by 1 + (step - 1) lr_decay"), 0),
      at_least(number("initial_accumulator_value", "0.0", "first value of the sum of squares"), 0),
      boolean("amsgrad", "false", "accepted, without effect, as in DeepSpeed"),
      boolean("fp32_optimizer_states", "true", "states have the master's type; false is not available"),
      max_grad_norm(),
  };
  static constexpr const char* kStates[] = {"sum"};
  T l2, minus_lr, eps;

  explicit Adagrad(const Step& s)
      : l2(static_cast<T>(s("weight_decay"))),
        minus_lr(static_cast<T>(-s("lr") / (1 + static_cast<double>(s.count() - 1) * s("lr_decay")))),
        eps(static_cast<T>(s("eps"))) {}
  static std::vector<gannet_state_spec> states(const RuleParams& params) {
    return {state("sum", GANNET_STATE_PER_ELEMENT, GANNET_DTYPE_NONE, params.number("initial_accumulator_value"))};
  }
  static void check(const RuleParams& params, const HostServices&) {
    if (!params.flag("fp32_optimizer_states"))
      throw Failure(GANNET_UNSUPPORTED,
                    "'fp32_optimizer_states' is false, but the sum is kept in the master's type only: remove it");
    refuse_max_grad_norm(params);
  }
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& p, V& sum) const {
    const V g = fma(V(l2), p, gradient);
    sum = fma(g, g, sum);
    p = fma(V(minus_lr), g / (sqrt(sum) + eps), p);
  }
};

GANNET_RULES_END

GANNET_ELEMENTWISE(Adagrad)
GANNET_ELEMENTWISE_PLUGINS("optimizer/adagrad@" GANNET_RULE_DEVICE,
                           GANNET_ELEMENTWISE_OPTIMIZER(Adagrad, "Adagrad", "1.0.0", "Adagrad, as torch.optim.Adagrad"))
