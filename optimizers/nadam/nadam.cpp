// NAdam (Dozat 2016) with the parameters and semantics of torch.optim.NAdam.
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

//   g <- g + decay p, or p <- p (1 - lr decay) if decoupled
//   m <- m + (1-b1) (g - m);  v <- b2 v + (1-b2) g^2;  d = sqrt(v / (1 - b2^t)) + eps
//   mu_t = b1 (1 - 0.96^(t psi) / 2);  P_t = mu_1 ... mu_t
//   p <- p - lr (1 - mu_t) / (1 - P_t) g / d - lr mu_(t+1) / (1 - P_t mu_(t+1)) m / d
//
// P_t is a function of t, so it is not a state. "betas" and "momentum_decay" are fixed during a
// run.
template <class T>
struct NAdam {
  static constexpr gannet_param_spec kParams[] = {
      at_least(learning_rate("2e-3"), 0),
      below(at_least(numbers("betas", 2, "[0.9, 0.999]", "decay rates of the two moments; schedules do not change them"), 0), 1),
      at_least(weight_decay(), 0),
      sdk::eps("1e-8"),
      at_least(number("momentum_decay", "4e-3", "psi: how fast the first moment's weight grows"), 0),
      boolean("decoupled_weight_decay", "false", "decoupled weight decay; else L2 regularisation"),
      max_grad_norm(),
  };
  static constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq"};
  T keep, l2, one_minus_beta1, beta2, one_minus_beta2, bias2, eps, minus_of_gradient, minus_of_average;

  explicit NAdam(const Step& s) {
    const double lr = s("lr"), beta1 = s("betas", 0), t = static_cast<double>(s.count());
    const bool decoupled = s.flag("decoupled_weight_decay");
    const auto mu = [&](double step) { return beta1 * (1 - 0.5 * std::pow(0.96, step * s("momentum_decay"))); };
    // Once the product is below 1e-18, 1 - product no longer changes.
    double product = 1;
    for (double step = 1; step <= t && product > 1e-18; ++step) product *= mu(step);
    keep = decoupled ? static_cast<T>(1 - lr * s("weight_decay")) : 1;
    l2 = decoupled ? 0 : static_cast<T>(s("weight_decay"));
    one_minus_beta1 = static_cast<T>(1 - beta1);
    beta2 = static_cast<T>(s("betas", 1));
    one_minus_beta2 = static_cast<T>(1 - s("betas", 1));
    bias2 = static_cast<T>(s.bias_correction(s("betas", 1)));
    eps = static_cast<T>(s("eps"));
    minus_of_gradient = static_cast<T>(-lr * (1 - mu(t)) / (1 - product));
    minus_of_average = static_cast<T>(-lr * mu(t + 1) / (1 - product * mu(t + 1)));
  }
  static void check(const RuleParams& params, const HostServices&) { refuse_max_grad_norm(params); }
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& p, V& m, V& v) const {
    const V g = fma(V(l2), p, gradient);
    m = fma(V(one_minus_beta1), g - m, m);
    v = fma(one_minus_beta2 * g, g, beta2 * v);
    const V denominator = sqrt(v / bias2) + eps;
    p = keep * p;
    p = fma(V(minus_of_gradient), g / denominator, p);
    p = fma(V(minus_of_average), m / denominator, p);
  }
};

GANNET_RULES_END

GANNET_ELEMENTWISE(NAdam)
GANNET_ELEMENTWISE_PLUGINS("optimizer/nadam@" GANNET_RULE_DEVICE,
                           GANNET_ELEMENTWISE_OPTIMIZER(NAdam, "NAdam", "1.0.0",
                                                        "Adam with Nesterov's momentum, as torch.optim.NAdam"))
