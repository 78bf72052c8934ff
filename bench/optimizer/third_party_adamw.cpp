// AdamW as a third party would write it, following only docs/plugin_authors.md.
// third_party.py compiles it with Highway and without, under two names.
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

template <class T>
struct Outside {
  static constexpr gannet_param_spec kParams[] = {learning_rate("1e-3"), betas("[0.9, 0.999]"), weight_decay("0.01"),
                                                  eps("1e-8")};
  static constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq"};
  T beta1, beta2, rate, epsilon, keep, root;

  explicit Outside(const Step& s)
      : beta1(T(s("betas", 0))),
        beta2(T(s("betas", 1))),
        rate(T(s("lr") / s.bias_correction(s("betas", 0)))),
        epsilon(T(s("eps"))),
        keep(T(1 - s("lr") * s("weight_decay"))),
        root(T(1 / std::sqrt(s.bias_correction(s("betas", 1))))) {}

  template <class V>
  GANNET_DEVICE void operator()(V g, V& p, V& m, V& v) const {
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    p = keep * p - rate * m / (sqrt(v) * root + epsilon);
  }
};

GANNET_RULES_END

GANNET_ELEMENTWISE_PLUGIN(Outside, OUTSIDE_NAME, "1.0.0", "AdamW by somebody else")
