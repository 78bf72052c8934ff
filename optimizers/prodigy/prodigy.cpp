// Prodigy (Mishchenko & Defazio 2023, algorithm 4): Adam that estimates its own learning rate, with
// the parameters of the authors' package, prodigyopt.
#include <gannet/sdk_elementwise.hpp>

#include "estimate.h"

GANNET_RULES_BEGIN

//   r <- b3 r + <d/d0 dlr g, p0 - p>, over the model;  s <- b3 s + d/d0 dlr g;  D = d_coef r / |s|_1
//   m <- b1 m + (1-b1) d g;  v <- b2 v + (1-b2) d^2 g^2
//   p <- p - dlr decay p - dlr m / (sqrt(v) + D' eps)
// where dlr is lr d, d the estimate before the step and D' after it (estimate.h). p0 is the initial parameter.
template <class T>
struct Prodigy {
  static constexpr gannet_param_spec kParams[] = {
      learning_rate("1.0"),
      betas("[0.9, 0.999]"),
      weight_decay(),
      sdk::eps("1e-8"),
      below(at_least(number("beta3", nullptr, "decay rate of the estimate's sums; unset: the root of the second beta",
                            GANNET_PARAM_NULLABLE),
                     0),
            1),
      boolean("decouple", "true", "decoupled weight decay; false: L2 regularisation"),
      boolean("use_bias_correction", "false", "Adam's bias correction"),
      boolean("safeguard_warmup", "false", "leave the learning rate out of the estimate's divisor, for warm-ups"),
      above(number("d0", "1e-6", "the first estimate"), 0),
      above(number("d_coef", "1.0", "multiplies the estimate"), 0),
      at_least(number("growth_rate", nullptr, "largest factor by which the estimate grows in a step; unset: any",
                      GANNET_PARAM_NULLABLE),
               1),
      max_grad_norm(),
  };
  static constexpr gannet_state_spec kStates[] = {state("exp_avg"), state("exp_avg_sq"), state("s"), state_from_parameter("p0")};
  static constexpr const char* kUpdateStates[] = {"exp_avg", "exp_avg_sq", "s"};
  static constexpr const char* kTermStates[] = {"s", "p0"};
  static constexpr gannet_sum_spec kSums[] = {sum(GANNET_SUM_OF_MODEL), sum(GANNET_SUM_OF_MODEL)};
  T beta1, take1, beta2, take2, beta3, take3, eps, l2, keep, minus_rate;
  bool moves;
  T progress_rate, is_counted;  // a group with learning rate 0 does not count in the estimate

  explicit Prodigy(const Step& s) {
    const ProdigyEstimate now(s);
    moves = now.moves;
    beta1 = static_cast<T>(now.moves ? s("betas", 0) : 1), take1 = static_cast<T>(now.moves ? now.d * (1 - s("betas", 0)) : 0);
    beta2 = static_cast<T>(now.moves ? s("betas", 1) : 1);
    take2 = static_cast<T>(now.moves ? now.d * now.d * (1 - s("betas", 1)) : 0);
    beta3 = static_cast<T>(now.beta3), take3 = static_cast<T>(now.take3);
    progress_rate = static_cast<T>(now.progress_rate), is_counted = s("lr") > 0 ? 1 : 0;
    eps = static_cast<T>(now.next * s("eps"));
    const bool decouple = s.flag("decouple");
    l2 = decouple ? 0 : static_cast<T>(s("weight_decay"));
    keep = decouple ? static_cast<T>(1 - now.rate * s("weight_decay")) : 1;
    minus_rate = static_cast<T>(-now.rate);
  }
  static std::vector<gannet_state_spec> states(const RuleParams& params) {
    auto all = sdk::detail::states_of_rule<Prodigy>();
    all.push_back(state("d", GANNET_STATE_SCALAR, GANNET_FLOAT64, params.number("d0")));
    all.push_back(state("d_max", GANNET_STATE_SCALAR, GANNET_FLOAT64, params.number("d0")));
    all.push_back(state("d_numerator", GANNET_STATE_SCALAR, GANNET_FLOAT64));
    all.push_back(state("k", GANNET_STATE_SCALAR, GANNET_FLOAT64));
    return all;
  }
  static void check(const RuleParams& params, const HostServices&) { refuse_max_grad_norm(params); }
  static void end_step(const GroupStep& s) {
    const ProdigyEstimate now(s);
    if (!now.is_estimated) return;
    s.kept<double>(kEstimate) = now.next;
    s.kept<double>(kLargest) = now.largest;
    s.kept<double>(kNumerator) = now.numerator;
    s.kept<double>(kSteps) += 1;
    s.host().metric("d", now.next);
  }
  template <class V>
  GANNET_DEVICE void terms(V gradient, V p, V s, V p0, Term<V>& progress, Term<V>& distance) const {
    const V g = fma(V(l2), p, gradient);
    progress = product(progress_rate * g, p0 - p);
    distance = product(abs(fma(V(take3), g, beta3 * s)), V(is_counted));
  }
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& p, V& m, V& v, V& s) const {
    const V g = fma(V(l2), p, gradient);
    m = fma(V(take1), g, beta1 * m);
    v = fma(V(take2), g * g, beta2 * v);
    s = fma(V(take3), g, beta3 * s);
    if (moves) p = fma(V(minus_rate), m / (sqrt(v) + eps), keep * p);
  }
};

GANNET_RULES_END

GANNET_ELEMENTWISE(Prodigy)
GANNET_ELEMENTWISE_PLUGINS("optimizer/prodigy@" GANNET_RULE_DEVICE,
                           GANNET_ELEMENTWISE_OPTIMIZER(Prodigy, "Prodigy", "1.0.0",
                                                        "Prodigy: Adam that estimates its own learning rate"))
