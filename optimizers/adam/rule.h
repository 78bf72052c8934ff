// Adam and AdamW: the update of one element. The CPU's loop and a GPU kernel compile this same text, so it has no include
// guard, no includes and no namespace of its own: include it after step.h, where GANNET_DEVICE is defined, in the namespace
// of the loop, once per SIMD target.
//
// `Math` is ScalarMath<T> (optimizers/common/arithmetic.h) or LaneMath<D> (elementwise-inl.h). A term that is switched off has
// the factor 0.

// DeepSpeed's CPU kernel (Kingma & Ba 2015; decay as in Loshchilov & Hutter 2019), in its order of roundings, so that runs on a
// CPU stay within its last bits: the root is corrected rather than the moments, the decay is rounded into the parameter first.
//   m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) g^2;  p <- p - lr decay p;  p <- p - lr/bc1 m / (sqrt(v) / sqrt(bc2) + eps)
// Its CUDA kernel does the same algebra in another order, with two products more. Offloading changes no bit here, so there is
// one order for all devices.
template <class T>
struct AdamRule : AdamNumbers<T> {
  using Number = T;
  static constexpr int kStates = 2;

  template <class Math, class V>
  GANNET_DEVICE void operator()(Math math, V gradient, V& param, V& exp_avg, V& exp_avg_sq) const {
    const AdamNumbers<T>& n = *this;
    const V g = math.mul_add(math.set(n.l2), param, gradient);
    exp_avg = math.mul_add(math.set(n.one_minus_beta1), g, math.mul(math.set(n.beta1), exp_avg));
    exp_avg_sq = math.mul_add(math.set(n.one_minus_beta2), math.mul(g, g), math.mul(math.set(n.beta2), exp_avg_sq));
    const V denominator = math.mul_add(math.sqrt(exp_avg_sq), math.set(n.inverse_root_bias2), math.set(n.eps));
    const V decayed = math.mul_add(math.set(n.decoupled_decay), param, param);
    param = math.mul_add(math.div(exp_avg, denominator), math.set(n.minus_step_size), decayed);
  }
};

// torch.optim's order of roundings, which "torch_adam" asks for: the decay multiplies the parameter first, the first moment
// is a lerp, products are rounded before they are added.
//   p <- p (1 - lr decay);  m <- m + (1-b1)(g - m);  v <- b2 v + ((1-b2) g) g
//   p <- p + (-lr/bc1 m) / (sqrt(v)/sqrt(bc2) + eps)
template <class T>
struct TorchAdamRule : TorchAdamNumbers<T> {
  using Number = T;
  static constexpr int kStates = 2;

  template <class Math, class V>
  GANNET_DEVICE void operator()(Math math, V gradient, V& param, V& exp_avg, V& exp_avg_sq) const {
    const TorchAdamNumbers<T>& n = *this;
    const V g = math.mul_add(math.set(n.l2), param, gradient);
    param = math.mul(param, math.set(n.keep));
    exp_avg = math.mul_add(math.set(n.one_minus_beta1), math.sub(g, exp_avg), exp_avg);
    exp_avg_sq = math.add(math.mul(math.set(n.beta2), exp_avg_sq), math.mul(math.mul(math.set(n.one_minus_beta2), g), g));
    const V denominator = math.add(math.div(math.sqrt(exp_avg_sq), math.set(n.root_bias2)), math.set(n.eps));
    param = math.add(param, math.div(math.mul(math.set(n.minus_step_size), exp_avg), denominator));
  }
};
