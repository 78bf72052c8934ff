// A rule that says what authors usually write: compound assignments, every comparison, conditions joined, select() by a flag.
// authors_page_test.py compiles it with the flags of docs/plugin_authors.md; with a macro it reads a parameter wrongly.
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

template <class T>
struct Habits {
  static constexpr gannet_param_spec kParams[] = {learning_rate("1e-2"),
                                                  betas("[0.9, 0.99]"),
                                                  eps("1e-8"),
                                                  weight_decay("0.01"),
                                                  number("cap", "1.0", "the largest step"),
                                                  boolean("nesterov", "true", "whether to look ahead"),
                                                  text("note", "\"none\"", "any text")};
  static constexpr const char* kStates[] = {"fast", "slow"};
  T lr, beta1, beta2, epsilon, decay, cap;
  bool nesterov;
  explicit Habits(const Step& s)
      : lr(T(s("lr"))),
        beta1(T(s("betas"))),
#if defined(BEYOND_THE_LIST)
        beta2(T(s("betas", 2))),
#elif defined(BEYOND_A_NUMBER)
        beta2(T(s("eps", 1))),
#elif defined(TEXT_AS_NUMBER)
        beta2(T(s("note"))),
#else
        beta2(T(s("betas", 1))),
#endif
        epsilon(T(s("eps"))),
        decay(T(s("weight_decay"))),
        cap(T(s("cap"))),
        nesterov(s.flag("nesterov")) {
  }

  template <class V>
  GANNET_DEVICE void operator()(V g, V& p, V& fast, V& slow) const {
    fast *= beta1;
    fast += (1 - beta1) * g;
    slow = beta2 * slow + (1 - beta2) * abs(g);
    V step = select(nesterov, beta1 * fast + (1 - beta1) * g, fast);
    step /= slow + epsilon;
    step = sign(step) * min(abs(step), V(cap));
    step = select(g >= V(0) && p <= V(0), step, select(!(g != V(0)) || g == V(0), V(0), step));
#ifdef SIMPLE_CONDITIONS  // GCC does not vectorise `flag && a > b`
    p -= lr * (step + decay * p);
#else
    p -= lr * (step + select(nesterov && p > V(0), decay * p, select(p < V(0) || !nesterov, decay * p, V(0))));
#endif
  }
};

GANNET_RULES_END

GANNET_ELEMENTWISE_PLUGIN(Habits, "habits", "1.0.0", "what authors usually write")
