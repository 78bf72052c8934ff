// SGD with the parameters and semantics of torch.optim.SGD.
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

// The effective gradient of a step: g <- +-g + decay p.
template <class T>
struct SgdGradient {
  T sign;  // -1 to maximize
  T weight_decay, minus_lr;
  explicit SgdGradient(const Step& s)
      : sign(s.flag("maximize") ? -1 : 1), weight_decay(static_cast<T>(s("weight_decay"))), minus_lr(static_cast<T>(-s("lr"))) {}
  template <class V>
  GANNET_DEVICE V of(V gradient, V param) const {
    return fma(V(weight_decay), param, sign * gradient);
  }
};

//   p <- p - lr g
template <class T>
struct SgdRule : SgdGradient<T> {
  using SgdGradient<T>::SgdGradient;
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& param) const {
    param = fma(V(this->minus_lr), this->of(gradient, param), param);
  }
};

// With a buffer b:  b <- momentum b + (1 - dampening) g;  p <- p - lr b, or with Nesterov's momentum p - lr (g + momentum b).
template <class T, bool kNesterov>
struct MomentumRule : SgdGradient<T> {
  using Number = T;
  static constexpr const char* kStates[] = {"momentum_buffer"};
  T momentum;    // the momentum in Nesterov's step
  T keep, take;  // buffer <- keep buffer + take g; the first step sets the buffer to the gradient

  explicit MomentumRule(const Step& s) : SgdGradient<T>(s), momentum(static_cast<T>(s("momentum"))) {
    const bool first = s.count() <= 1;
    keep = first ? 0 : momentum;
    take = first ? 1 : static_cast<T>(1 - s("dampening"));
  }
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& param, V& buffer) const {
    const V g = this->of(gradient, param);
    buffer = fma(V(take), g, keep * buffer);
    const V direction = kNesterov ? fma(V(momentum), buffer, g) : buffer;
    param = fma(V(this->minus_lr), direction, param);
  }
};

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
