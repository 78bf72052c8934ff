// Muon (Jordan et al. 2024) but for the orthogonalization, by elements. Text for the CPU's loop: no include guard, no includes
// and no namespace of its own; include it after step.h, where GANNET_DEVICE is defined, once per SIMD target.
//
//   M <- M + (1 - momentum) (g - M);  u <- M, or with Nesterov's momentum M - (1 - momentum) (M - g)
//
// u is written where the loop has its parameter: memory of the caller's.
template <class T, bool kNesterov>
struct MuonDirectionRule : MuonNumbers<T> {
  using Number = T;
  static constexpr int kStates = 1;

  template <class Math, class V>
  GANNET_DEVICE void operator()(Math math, V gradient, V& direction, V& exp_avg) const {
    const V take = math.set(this->one_minus_momentum);
    exp_avg = math.mul_add(take, math.sub(gradient, exp_avg), exp_avg);
    direction = kNesterov ? math.mul_add(take, math.sub(gradient, exp_avg), exp_avg) : exp_avg;
  }
};

// p <- (1 - lr decay) p;  p <- p - lr scale u, where u, orthogonalized, stands in the gradient's place.
template <class T>
struct MuonApplyRule : MuonNumbers<T> {
  using Number = T;
  static constexpr int kStates = 0;

  template <class Math, class V>
  GANNET_DEVICE void operator()(Math math, V update, V& param) const {
    param = math.mul_add(math.set(this->minus_rate), update, math.mul(math.set(this->keep), param));
  }
};
