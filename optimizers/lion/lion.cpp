// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2).
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

//   p <- p (1 - lr decay) - lr sign(b1 m + (1-b1) g);  m <- b2 m + (1-b2) g
//
// sign(0) is 0, as in the paper. DeepSpeed's CPU kernel moves by -lr at +0 and by lr at -0, and its
// CUDA kernel by lr at both. The results differ where both the average and the gradient are exactly
// zero (in rows that no token has touched).
template <class T>
struct Lion {
  static constexpr gannet_param_spec kParams[] = {
      learning_rate("1e-3"),
      betas("[0.9, 0.999]"),
      weight_decay(),
      boolean("set_grad_none", "true", "accepted; gradients are always released after a step"),
      boolean("fp32_optimizer_states", "true", "states have the master's type; false is not available"),
      max_grad_norm(),
  };
  static constexpr const char* kStates[] = {"exp_avg"};
  T keep, minus_lr, beta1, one_minus_beta1, beta2, one_minus_beta2;

  explicit Lion(const Step& s)
      : keep(static_cast<T>(1 - s("lr") * s("weight_decay"))),
        minus_lr(static_cast<T>(-s("lr"))),
        beta1(static_cast<T>(s("betas", 0))),
        one_minus_beta1(static_cast<T>(1 - s("betas", 0))),
        beta2(static_cast<T>(s("betas", 1))),
        one_minus_beta2(static_cast<T>(1 - s("betas", 1))) {}
  static void check(const RuleParams& params, const HostServices&) {
    if (!params.flag("fp32_optimizer_states"))
      throw Failure(GANNET_UNSUPPORTED,
                    "'fp32_optimizer_states' is false, but the average is kept in the master's type only: remove it");
    refuse_max_grad_norm(params);
  }
  template <class V>
  GANNET_DEVICE void operator()(V g, V& p, V& m) const {
    const V direction = sign(fma(V(one_minus_beta1), g, beta1 * m));
    p = fma(V(minus_lr), direction, keep * p);
    m = fma(V(one_minus_beta2), g, beta2 * m);
  }
};

GANNET_RULES_END

GANNET_ELEMENTWISE(Lion)
GANNET_ELEMENTWISE_PLUGINS("optimizer/lion@" GANNET_RULE_DEVICE,
                           GANNET_ELEMENTWISE_OPTIMIZER(Lion, "Lion", "1.0.0", "Lion: the sign of an interpolated momentum"))
