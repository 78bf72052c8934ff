// AdaBelief (Zhuang et al. 2020) with the parameters and defaults of adabelief-pytorch 0.2.
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

//   m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) (g - m)^2 + eps;  p <- p - rate m / (sqrt(v) / root_bias + eps)
// Without `rectify`, rate is lr / bc1 and root_bias sqrt(bc2). With it, as in RAdam (Liu et al. 2019),
// root_bias is 1, and in the first steps, whose second moment is unreliable, p <- p - lr / bc1 m.
template <class T>
struct AdaBelief {
  static constexpr gannet_param_spec kParams[] = {
      learning_rate("1e-3"),
      betas("[0.9, 0.999]"),
      weight_decay(),
      sdk::eps("1e-16"),
      boolean("weight_decouple", "true", "decoupled weight decay; false: L2 regularisation"),
      boolean("fixed_decay", "false", "the decoupled decay is not multiplied by the learning rate"),
      boolean("rectify", "true", "rectified as RAdam"),
      boolean("degenerated_to_sgd", "true", "rectify: the first steps are momentum steps; false: they change nothing"),
      boolean("amsgrad", "false", "not available"),
      max_grad_norm(),
  };
  static constexpr const char* kStates[] = {"exp_avg", "exp_avg_var"};
  T beta1, take1, beta2, take2, eps, l2, keep;
  T rate;               // negative
  T inverse_root_bias;  // 1 / root_bias
  bool is_momentum;     // a step without the second moment

  explicit AdaBelief(const Step& s) {
    beta1 = static_cast<T>(s("betas", 0)), take1 = static_cast<T>(1 - s("betas", 0));
    beta2 = static_cast<T>(s("betas", 1)), take2 = static_cast<T>(1 - s("betas", 1));
    eps = static_cast<T>(s("eps"));
    const bool decouple = s.flag("weight_decouple");
    l2 = decouple ? 0 : static_cast<T>(s("weight_decay"));
    keep = decouple ? static_cast<T>(1 - s("weight_decay") * (s.flag("fixed_decay") ? 1 : s("lr"))) : 1;
    double factor = 1 / s.bias_correction(s("betas", 0)), root = 1;
    is_momentum = false;
    if (!s.flag("rectify")) {
      root = std::sqrt(s.bias_correction(s("betas", 1)));
    } else {
      const double beta = s("betas", 1), t = static_cast<double>(s.count()), bias = s.bias_correction(beta);
      const double most = 2 / (1 - beta) - 1, length = most - 2 * t * (1 - bias) / bias;
      is_momentum = !(length >= 5);
      if (!is_momentum)
        factor *= std::sqrt(bias * (length - 4) / (most - 4) * (length - 2) / length * most / (most - 2));
      else if (!s.flag("degenerated_to_sgd"))
        factor = 0;
    }
    rate = static_cast<T>(-s("lr") * factor);
    inverse_root_bias = static_cast<T>(1 / root);
  }
  static void check(const RuleParams& params, const HostServices&) {
    if (params.flag("amsgrad"))
      throw Failure(GANNET_UNSUPPORTED, "'amsgrad' is true, but this AdaBelief has no AMSGrad variant: remove it");
    refuse_max_grad_norm(params);
  }
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& p, V& m, V& v) const {
    const V g = fma(V(l2), p, gradient);
    m = fma(V(take1), g, beta1 * m);
    const V residual = g - m;
    v = fma(V(take2), residual * residual, beta2 * v) + eps;
    const V direction = is_momentum ? m : m / fma(sqrt(v), V(inverse_root_bias), V(eps));
    p = fma(V(rate), direction, keep * p);
  }
};

GANNET_RULES_END

GANNET_ELEMENTWISE(AdaBelief)
GANNET_ELEMENTWISE_PLUGINS("optimizer/adabelief@" GANNET_RULE_DEVICE,
                           GANNET_ELEMENTWISE_OPTIMIZER(AdaBelief, "AdaBelief", "1.0.0",
                                                        "AdaBelief: steps by how far the gradient is from its average"))
