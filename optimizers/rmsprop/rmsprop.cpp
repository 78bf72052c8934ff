// RMSprop (Hinton, lecture 6e; centered as in Graves 2013) with the parameters and semantics of
// torch.optim.RMSprop.
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

//   g <- g + decay p;  v <- alpha v + (1-alpha) g^2
//   centered:      a <- a + (1-alpha) (g - a);  d = sqrt(v - a^2) + eps;      else  d = sqrt(v) + eps
//   with momentum: b <- momentum b + g / d;  p <- p - lr b;                   else  p <- p - lr g / d
// The coefficients shared by the four variants.
template <class T>
struct RMSpropRule {
  T l2, alpha, one_minus_alpha, eps, minus_lr, momentum;

  explicit RMSpropRule(const Step& s)
      : l2(static_cast<T>(s("weight_decay"))),
        alpha(static_cast<T>(s("alpha"))),
        one_minus_alpha(static_cast<T>(1 - s("alpha"))),
        eps(static_cast<T>(s("eps"))),
        minus_lr(static_cast<T>(-s("lr"))),
        momentum(static_cast<T>(s("momentum"))) {}

 protected:
  template <class V>
  GANNET_DEVICE V gradient_of(V gradient, V p, V& v) const {
    const V g = fma(V(l2), p, gradient);
    v = fma(one_minus_alpha * g, g, alpha * v);
    return g;
  }
  template <class V>
  GANNET_DEVICE V scaled(V g, V v, V& average) const {
    average = fma(V(one_minus_alpha), g - average, average);
    return g / (sqrt(v - average * average) + eps);
  }
  template <class V>
  GANNET_DEVICE void step(V direction, V& p, V& buffer) const {
    buffer = fma(V(momentum), buffer, direction);
    p = fma(V(minus_lr), buffer, p);
  }
};
template <class T>
struct RMSpropPlain : RMSpropRule<T> {
  static constexpr const char* kStates[] = {"square_avg"};
  using RMSpropRule<T>::RMSpropRule;
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& p, V& v) const {
    const V g = this->gradient_of(gradient, p, v);
    p = fma(V(this->minus_lr), g / (sqrt(v) + this->eps), p);
  }
};
template <class T>
struct RMSpropMomentum : RMSpropRule<T> {
  static constexpr const char* kStates[] = {"square_avg", "momentum_buffer"};
  using RMSpropRule<T>::RMSpropRule;
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& p, V& v, V& buffer) const {
    const V g = this->gradient_of(gradient, p, v);
    this->step(g / (sqrt(v) + this->eps), p, buffer);
  }
};
template <class T>
struct RMSpropCentered : RMSpropRule<T> {
  static constexpr const char* kStates[] = {"square_avg", "grad_avg"};
  using RMSpropRule<T>::RMSpropRule;
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& p, V& v, V& average) const {
    const V g = this->gradient_of(gradient, p, v);
    p = fma(V(this->minus_lr), this->scaled(g, v, average), p);
  }
};
template <class T>
struct RMSpropCenteredMomentum : RMSpropRule<T> {
  static constexpr const char* kStates[] = {"square_avg", "grad_avg", "momentum_buffer"};
  using RMSpropRule<T>::RMSpropRule;
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& p, V& v, V& average, V& buffer) const {
    const V g = this->gradient_of(gradient, p, v);
    this->step(this->scaled(g, v, average), p, buffer);
  }
};

struct RMSprop {
  static constexpr gannet_param_spec kParams[] = {
      at_least(learning_rate("1e-2"), 0),
      momentum("0.0", "momentum factor; 0: no momentum buffer is kept"),
      at_least(weight_decay("0.0", "L2 regularisation"), 0),
      at_least(number("alpha", "0.99", "decay of the average of squares"), 0),
      sdk::eps("1e-8"),
      boolean("centered", "false", "divide by the standard deviation: the average gradient is kept as well"),
      max_grad_norm(),
  };
  static bool has_buffer(const RuleParams& params) { return params.number("momentum") != 0; }
  static void check(const RuleParams& params, const HostServices&) { refuse_max_grad_norm(params); }
  static std::vector<gannet_state_spec> states(const RuleParams& params) {
    std::vector<gannet_state_spec> all = {state("square_avg")};
    if (params.flag("centered")) all.push_back(state("grad_avg"));
    if (has_buffer(params)) all.push_back(state("momentum_buffer"));
    return all;
  }
  template <class T, class Run>
  static void with_rule(const Step& s, Run&& run) {
    if (!has_buffer(s.params()) && s("momentum") != 0)
      throw Failure(
          GANNET_INVALID_ARGUMENT,
          "momentum was changed from 0, but RMSprop without momentum keeps no buffer: give a momentum above 0 in the config");
    if (s.flag("centered")) {
      if (has_buffer(s.params())) return run(RMSpropCenteredMomentum<T>(s));
      return run(RMSpropCentered<T>(s));
    }
    if (has_buffer(s.params())) return run(RMSpropMomentum<T>(s));
    run(RMSpropPlain<T>(s));
  }
};

GANNET_RULES_END

GANNET_ELEMENTWISE_FAMILY(RMSprop)
GANNET_ELEMENTWISE_PLUGINS("optimizer/rmsprop@" GANNET_RULE_DEVICE,
                           GANNET_ELEMENTWISE_OPTIMIZER(RMSprop, "RMSprop", "1.0.0", "RMSprop, as torch.optim.RMSprop"))
