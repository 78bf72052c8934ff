// LAMB (You et al. 2020) as DeepSpeed's FusedLamb has it: the update of one element. Text for the CPU's loop and a GPU kernel: no
// include guard, no includes and no namespace of its own; include it after step.h, where GANNET_DEVICE is defined, once per SIMD
// target.
//
//   m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) g^2;  u = m / (sqrt(v) + eps) + decay p
//   p <- p - step_size * coefficient(norm p, norm u) * u
//
// The direction u is made twice: for its norm, where the moments are not stored, and for the update. The moments in u are not
// corrected; the correction is part of the step size.
template <class T>
struct LambRule : LambNumbers<T> {
  using Number = T;
  static constexpr int kStates = 2;
  T minus_rate = 0;  // -step_size * the tensor's coefficient

  template <class Math, class V>
  GANNET_DEVICE V direction(Math math, V gradient, V param, V& exp_avg, V& exp_avg_sq) const {
    const LambNumbers<T>& n = *this;
    exp_avg = math.mul_add(math.set(n.one_minus_beta1), gradient, math.mul(math.set(n.beta1), exp_avg));
    exp_avg_sq = math.mul_add(math.set(n.one_minus_beta2), math.mul(gradient, gradient), math.mul(math.set(n.beta2), exp_avg_sq));
    const V root = math.sqrt(math.add(exp_avg_sq, math.set(n.eps_inside)));
    const V adam = math.div(exp_avg, math.add(root, math.set(n.eps_outside)));
    return math.mul_add(math.set(n.weight_decay), param, adam);
  }
  template <class Math, class V>
  GANNET_DEVICE void operator()(Math math, V gradient, V& param, V& exp_avg, V& exp_avg_sq) const {
    const V u = direction(math, gradient, param, exp_avg, exp_avg_sq);
    param = math.mul_add(math.set(minus_rate), u, param);
  }
};
