// AdamW8bit: the update of one element, and the conversion of its moments from and to codes. The
// CPU loop and a GPU kernel include this once per SIMD target, after step.h and codes.h, where
// GANNET_DEVICE is defined. It has no include guard, no includes and no namespace.
//
//   m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) g^2;  p <- p - lr decay p;  p <- p - lr/bc1 m / (sqrt(v) / sqrt(bc2) + eps)
struct Adam8bitRule : Adam8bitStep {
  // These decode the moments. `unit` is the block's first_unit() or second_unit() (codes.h).
  template <class V>
  GANNET_DEVICE V first_of(V code, V unit) const {
    return code * abs(code) * unit;
  }
  template <class V>
  GANNET_DEVICE V second_of(V code, V unit) const {
    const V square = code * code;
    return square * square * unit;
  }
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& param, V& exp_avg, V& exp_avg_sq) const {
    exp_avg = fma(V(one_minus_beta1), gradient, beta1 * exp_avg);
    exp_avg_sq = fma(V(one_minus_beta2), gradient * gradient, beta2 * exp_avg_sq);
    const V denominator = fma(sqrt(exp_avg_sq), V(inverse_root_bias2), V(eps));
    param = fma(V(decay), param, param);
    param = fma(exp_avg / denominator, V(minus_step_size), param);
  }
  // These return the codes before they are rounded. `inverse` is the inverse of the block's largest
  // magnitude. The first moment's code has no sign yet.
  template <class V>
  GANNET_DEVICE V magnitude_of_first(V exp_avg, V inverse) const {
    return sqrt(abs(exp_avg) * inverse) * kFirstCodes;
  }
  template <class V>
  GANNET_DEVICE V code_of_second(V exp_avg_sq, V inverse) const {
    const V code = sqrt(sqrt(exp_avg_sq * inverse)) * kSecondCodes;
    return select(exp_avg_sq > V(0), max(code, V(1)), code);
  }
};
