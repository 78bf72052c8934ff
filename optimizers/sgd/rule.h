// SGD as torch.optim.SGD has it: the update of one element. Text for the CPU's loop and a GPU kernel: no include guard, no
// includes and no namespace of its own; include it after step.h, where GANNET_DEVICE is defined, once per SIMD target.
//
//   g <- +-g + decay p;  p <- p - lr g
template <class T>
struct SgdRule : SgdNumbers<T> {
  using Number = T;
  static constexpr int kStates = 0;

  template <class Math, class V>
  GANNET_DEVICE void operator()(Math math, V gradient, V& param) const {
    const SgdNumbers<T>& n = *this;
    const V g = math.mul_add(math.set(n.weight_decay), param, math.mul(math.set(n.sign), gradient));
    param = math.mul_add(math.set(n.minus_lr), g, param);
  }
};

// With a buffer b:  b <- momentum b + (1 - dampening) g;  p <- p - lr b, or with Nesterov's momentum p - lr (g + momentum b).
template <class T, bool kNesterov>
struct MomentumRule : SgdNumbers<T> {
  using Number = T;
  static constexpr int kStates = 1;

  template <class Math, class V>
  GANNET_DEVICE void operator()(Math math, V gradient, V& param, V& buffer) const {
    const SgdNumbers<T>& n = *this;
    const V g = math.mul_add(math.set(n.weight_decay), param, math.mul(math.set(n.sign), gradient));
    buffer = math.mul_add(math.set(n.take), g, math.mul(math.set(n.keep), buffer));
    const V direction = kNesterov ? math.mul_add(math.set(n.momentum), buffer, g) : buffer;
    param = math.mul_add(math.set(n.minus_lr), direction, param);
  }
};
