// SGD: the update of one element. There is no include guard: include this once per target, between
// GANNET_RULES_BEGIN and GANNET_RULES_END.

// The effective gradient of a step: g <- +-g + decay p.
template <class T>
struct SgdGradient {
  T sign;  // -1 to maximize
  T weight_decay, minus_lr;
  explicit SgdGradient(const Step& s)
      : sign(s.flag("maximize") ? -1 : 1), weight_decay(static_cast<T>(s("weight_decay"))), minus_lr(static_cast<T>(-s("lr"))) {}
  template <class V>
  GANNET_DEVICE V of(V gradient, V param) const {
    return fma(V(weight_decay), param, sign * gradient);
  }
};

//   p <- p - lr g
template <class T>
struct SgdRule : SgdGradient<T> {
  using SgdGradient<T>::SgdGradient;
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& param) const {
    param = fma(V(this->minus_lr), this->of(gradient, param), param);
  }
};

// With a buffer b:  b <- momentum b + (1 - dampening) g;  p <- p - lr b, or with Nesterov's momentum p - lr (g + momentum b).
template <class T, bool kNesterov>
struct MomentumRule : SgdGradient<T> {
  using Number = T;
  static constexpr const char* kStates[] = {"momentum_buffer"};
  T momentum;    // the momentum in Nesterov's step
  T keep, take;  // buffer <- keep buffer + take g; the first step sets the buffer to the gradient

  explicit MomentumRule(const Step& s) : SgdGradient<T>(s), momentum(static_cast<T>(s("momentum"))) {
    const bool first = s.count() <= 1;
    keep = first ? 0 : momentum;
    take = first ? 1 : static_cast<T>(1 - s("dampening"));
  }
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& param, V& buffer) const {
    const V g = this->of(gradient, param);
    buffer = fma(V(take), g, keep * buffer);
    const V direction = kNesterov ? fma(V(momentum), buffer, g) : buffer;
    param = fma(V(this->minus_lr), direction, param);
  }
};
