// Muon (Jordan et al. 2024) but for the orthogonalization, by elements. Text for the CPU's loop: no include guard, no includes
// and no namespace of its own; include it after step.h, where GANNET_DEVICE is defined, once per SIMD target.
//
//   M <- M + (1 - momentum) (g - M);  u <- M, or with Nesterov's momentum M - (1 - momentum) (M - g)
//
// u is written where the loop has its parameter: memory of the caller's.
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

// p <- (1 - lr decay) p;  p <- p - lr scale u, where u, orthogonalized, stands in the gradient's place.
template <class T>
struct MuonApplyRule : MuonNumbers<T> {
  template <class V>
  GANNET_DEVICE void operator()(V update, V& param) const {
    param = fma(V(this->minus_rate), update, this->keep * param);
  }
};
