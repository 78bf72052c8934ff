// LAMB (You et al. 2020) as in DeepSpeed's FusedLamb: the update of one element. The CPU loop and a
// GPU kernel include this once per SIMD target, after step.h, where GANNET_DEVICE is defined. It
// has no include guard, no includes and no namespace.
//
//   m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) g^2;  u = m / (sqrt(v) + eps) + decay p
//   p <- p - step_size * coefficient(norm p, norm u) * u
//
// The direction u is computed twice: for its norm, without storing the moments, and for the update.
// The moments in u are not bias-corrected; the correction is part of the step size.
template <class T>
struct LambRule : LambNumbers<T> {
  static constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq"};
  static constexpr const char* kTermStates[] = {"exp_avg", "exp_avg_sq"};
  static constexpr gannet_sum_spec kSums[] = {sdk::sum(GANNET_SUM_OF_TENSOR), sdk::sum(GANNET_SUM_OF_TENSOR)};
  T minus_rate = 0;  // -step_size * the tensor's coefficient

  template <class V>
  GANNET_DEVICE V direction(V gradient, V param, V& exp_avg, V& exp_avg_sq) const {
    const LambNumbers<T>& n = *this;
    exp_avg = fma(V(n.one_minus_beta1), gradient, n.beta1 * exp_avg);
    exp_avg_sq = fma(V(n.one_minus_beta2), gradient * gradient, n.beta2 * exp_avg_sq);
    const V root = sqrt(exp_avg_sq + n.eps_inside);
    return fma(V(n.weight_decay), param, exp_avg / (root + n.eps_outside));
  }
  // The squares of the weights and of the direction.
  template <class V>
  GANNET_DEVICE void terms(V gradient, V param, V exp_avg, V exp_avg_sq, Term<V>& weights, Term<V>& update) const {
    const V u = direction(gradient, param, exp_avg, exp_avg_sq);
    weights = product(param, param);
    update = product(u, u);
  }
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& param, V& exp_avg, V& exp_avg_sq) const {
    const V u = direction(gradient, param, exp_avg, exp_avg_sq);
    param = fma(V(minus_rate), u, param);
  }
};
