// Muon (Jordan et al. 2024) without the orthogonalization, as element-wise rules. The loops of each
// device include this once per SIMD target, after step.h, where GANNET_DEVICE is defined. It has no
// include guard, no includes and no namespace.
//
//   M <- M + (1 - momentum) (g - M);  u <- M, or with Nesterov's momentum M - (1 - momentum) (M - g)
//
// The loop's parameter array is a buffer of the caller that receives u.
template <class T, bool kNesterov>
struct MuonDirectionRule : MuonNumbers<T> {
  using Number = T;
  static constexpr const char* kStates[] = {"exp_avg"};

  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& direction, V& exp_avg) const {
    const V take(this->one_minus_momentum);
    exp_avg = fma(take, gradient - exp_avg, exp_avg);
    direction = kNesterov ? fma(take, gradient - exp_avg, exp_avg) : exp_avg;
  }
};

// p <- (1 - lr decay) p;  p <- p - lr scale u, where the orthogonalized u is passed as the
// gradient.
template <class T>
struct MuonApplyRule : MuonNumbers<T> {
  template <class V>
  GANNET_DEVICE void operator()(V update, V& param) const {
    param = fma(V(this->minus_rate), update, this->keep * param);
  }
};
