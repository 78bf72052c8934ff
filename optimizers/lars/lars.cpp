// LARS (You, Gitman, Ginsburg 2017): SGD with momentum, where each tensor's step is scaled by the
// ratio of its norm to its gradient's.
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

//   ratio = trust |p| / (|g| + decay |p|), 1 if either is 0
//   u = ratio (g + decay p);  b <- momentum b + (1 - dampening) u;  p <- p - lr b, or with Nesterov's momentum p - lr (u +
//   momentum b)
// Biases and norms' weights, which have fewer than two dimensions, get u = g, as is customary.
template <class T>
struct Lars {
  static constexpr gannet_param_spec kParams[] = {
      learning_rate("1e-3"),
      momentum("0.9"),
      weight_decay("0.0", "L2 regularisation of tensors with two or more dimensions"),
      at_least(number("trust_coefficient", "0.001", "the length of a step, relative to the tensor's norm, at learning rate 1"),
               0),
      number("dampening", "0.0", "the buffer takes (1 - dampening) of the scaled gradient"),
      boolean("nesterov", "false", "Nesterov's momentum"),
      max_grad_norm(),
  };
  static constexpr const char* kStates[] = {"momentum_buffer"};
  // The squares of the tensor's parameters and of its gradient.
  static constexpr gannet_sum_spec kSums[] = {sum(GANNET_SUM_OF_TENSOR), sum(GANNET_SUM_OF_TENSOR)};
  T ratio, decay, keep, take, minus_lr, ahead;
  bool is_nesterov;

  explicit Lars(const Step& s) {
    const bool is_adapted = s.tensor().dimensions >= 2;
    const double of_param = std::sqrt(s.sum(0));
    const double divisor = std::sqrt(s.sum(1)) + s("weight_decay") * of_param;
    const bool has_ratio = is_adapted && of_param != 0 && divisor != 0;
    ratio = has_ratio ? static_cast<T>(s("trust_coefficient") * of_param / divisor) : 1;
    decay = is_adapted ? static_cast<T>(s("weight_decay")) : 0;
    keep = static_cast<T>(s("momentum"));
    take = s("momentum") != 0 ? static_cast<T>(1 - s("dampening")) : 1;  // without momentum torch.optim.SGD ignores it
    minus_lr = static_cast<T>(-s("lr"));
    is_nesterov = s.flag("nesterov");
  }
  static void check(const RuleParams& params, const HostServices&) { refuse_max_grad_norm(params); }
  template <class V>
  GANNET_DEVICE void terms(V g, V p, Term<V>& of_param, Term<V>& of_gradient) const {
    of_param = product(p, p);
    of_gradient = product(g, g);
  }
  template <class V>
  GANNET_DEVICE void operator()(V g, V& p, V& buffer) const {
    const V u = ratio * fma(V(decay), p, g);
    buffer = fma(V(take), u, keep * buffer);
    p = fma(V(minus_lr), is_nesterov ? fma(V(keep), buffer, u) : buffer, p);
  }
};

GANNET_RULES_END

GANNET_ELEMENTWISE(Lars)
GANNET_ELEMENTWISE_PLUGINS("optimizer/lars@" GANNET_RULE_DEVICE,
                           GANNET_ELEMENTWISE_OPTIMIZER(Lars, "LARS", "1.0.0",
                                                        "LARS: momentum SGD with a trust ratio for each tensor"))
