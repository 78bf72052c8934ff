// Adam and AdamW: the update of one element. There is no include guard: include this once per
// target, after step.h, between GANNET_RULES_BEGIN and GANNET_RULES_END.

// The update of DeepSpeed's CPU kernel (Kingma & Ba 2015; decay as in Loshchilov & Hutter 2019), in
// the kernel's order of roundings, so that CPU runs match it to the last bits. The root is
// corrected rather than the moments, and the decay is rounded into the parameter first.
//   m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) g^2;  p <- p - lr decay p;  p <- p - lr/bc1 m / (sqrt(v) / sqrt(bc2) + eps)
// DeepSpeed's CUDA kernel uses a different order, with two more products. Here all devices use one
// order, so results with and without offload are bitwise equal.
template <class T>
struct AdamRule {
  static constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq"};
  T beta1, one_minus_beta1, beta2, one_minus_beta2;
  T inverse_root_bias2;    // 1/sqrt(bc2)
  T eps, minus_step_size;  // -lr/bc1
  T decoupled_decay;       // -lr decay; 0 unless the decay is decoupled
  T l2;                    // 0 if the decay is decoupled

  explicit AdamRule(const AdamStep& s) {
    // As in DeepSpeed's kernels, the betas are rounded to the master's type first, and everything
    // else is derived from them. In fp32, 1 - 0.999 has a relative error of 1.3e-5, and the bias
    // correction must divide by the actual sum of the moments' weights.
    beta1 = static_cast<T>(s.beta1);
    one_minus_beta1 = 1 - beta1;
    beta2 = static_cast<T>(s.beta2);
    one_minus_beta2 = 1 - beta2;
    const auto bias = [&](double beta) { return s.bias_correction ? 1 - std::pow(beta, static_cast<double>(s.step)) : 1; };
    inverse_root_bias2 = static_cast<T>(1 / std::sqrt(bias(double{beta2})));
    eps = static_cast<T>(s.eps);
    minus_step_size = static_cast<T>(-s.lr / bias(double{beta1}));
    decoupled_decay = s.decoupled ? -static_cast<T>(s.lr) * static_cast<T>(s.weight_decay) : 0;
    l2 = s.decoupled ? 0 : static_cast<T>(s.weight_decay);
  }
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& param, V& exp_avg, V& exp_avg_sq) const {
    const V g = fma(V(l2), param, gradient);
    exp_avg = fma(V(one_minus_beta1), g, beta1 * exp_avg);
    exp_avg_sq = fma(V(one_minus_beta2), g * g, beta2 * exp_avg_sq);
    const V denominator = fma(sqrt(exp_avg_sq), V(inverse_root_bias2), V(eps));
    const V decayed = fma(V(decoupled_decay), param, param);
    param = fma(exp_avg / denominator, V(minus_step_size), decayed);
  }
};
