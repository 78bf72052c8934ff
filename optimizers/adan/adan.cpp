// Adan (Xie et al. 2022, "Adan: Adaptive Nesterov Momentum Algorithm for Faster Optimizing Deep
// Models") with the parameters of the authors' package.
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

//   d = g - previous g (0 in the first step)
//   m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) d;  n <- b3 n + (1-b3) (g + b2 d)^2
//   u = (m / bc1 + b2 v / bc2) / (sqrt(n / bc3) + eps);  p <- (p - lr u) / (1 + lr decay)
//   with no_prox: p <- (1 - lr decay) p - lr u
template <class T>
struct Adan {
  static constexpr gannet_param_spec kParams[] = {
      learning_rate("1e-3"),
      below(at_least(dynamic_numbers("betas", 3, "[0.98, 0.92, 0.99]",
                                     "decay rates of the gradient, of its difference and of the second moment"),
                     0),
            1),
      weight_decay(),
      sdk::eps("1e-8"),
      boolean("no_prox", "false", "decay the parameter before the update, as AdamW does, and not by a proximal step"),
      max_grad_norm(),
  };
  static constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq", "exp_avg_diff", "previous_grad"};
  T beta1, take1, beta2, take2, beta3, take3;
  T step1, step2;  // lr / bc1 and lr b2 / bc2, both negative
  T inverse_root_bias3, eps, keep, shrink;
  bool is_first;

  explicit Adan(const Step& s) {
    beta1 = static_cast<T>(s("betas", 0)), take1 = static_cast<T>(1 - s("betas", 0));
    beta2 = static_cast<T>(s("betas", 1)), take2 = static_cast<T>(1 - s("betas", 1));
    beta3 = static_cast<T>(s("betas", 2)), take3 = static_cast<T>(1 - s("betas", 2));
    step1 = static_cast<T>(-s("lr") / s.bias_correction(s("betas", 0)));
    step2 = static_cast<T>(-s("lr") * s("betas", 1) / s.bias_correction(s("betas", 1)));
    inverse_root_bias3 = static_cast<T>(1 / std::sqrt(s.bias_correction(s("betas", 2))));
    eps = static_cast<T>(s("eps"));
    const double decay = s("lr") * s("weight_decay");
    keep = s.flag("no_prox") ? static_cast<T>(1 - decay) : 1;
    shrink = s.flag("no_prox") ? 1 : static_cast<T>(1 / (1 + decay));
    is_first = s.count() <= 1;
  }
  static void check(const RuleParams& params, const HostServices&) { refuse_max_grad_norm(params); }
  template <class V>
  GANNET_DEVICE void operator()(V g, V& p, V& m, V& n, V& v, V& previous) const {
    const V difference = is_first ? V(T(0)) : g - previous;
    m = fma(V(take1), g, beta1 * m);
    v = fma(V(take2), difference, beta2 * v);
    const V ahead = fma(V(beta2), difference, g);
    n = fma(V(take3), ahead * ahead, beta3 * n);
    const V direction = fma(V(step2), v, step1 * m) / fma(sqrt(n), V(inverse_root_bias3), V(eps));
    p = fma(V(keep), p, direction) * shrink;
    previous = g;
  }
};

GANNET_RULES_END

GANNET_ELEMENTWISE(Adan)
GANNET_ELEMENTWISE_PLUGINS("optimizer/adan@" GANNET_RULE_DEVICE,
                           GANNET_ELEMENTWISE_OPTIMIZER(Adan, "Adan", "1.0.0", "Adan: adaptive Nesterov momentum"))
