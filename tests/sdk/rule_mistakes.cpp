// A rule whose functions take other states than it declares, one mistake for each macro; without one it is sound.
// rule_mistakes_test.py compiles it.
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

template <class T>
struct Rule {
  static constexpr gannet_param_spec kParams[] = {learning_rate("1e-4")};
  static constexpr const char* kStates[] = {"m", "v"};
  static constexpr gannet_sum_spec kSums[] = {sum(GANNET_SUM_OF_TENSOR)};
#ifndef NO_TERM_STATES
  static constexpr const char* kTermStates[] = {"m"};
#endif
  T lr;
  explicit Rule(const Step& s) : lr(T(s("lr"))) {}

  template <class V>
  GANNET_DEVICE void terms(V g, V p, V m, Term<V>& squares) const {
    squares = product(g + p, m);
  }
#ifdef STATE_MISSING
  template <class V>
  GANNET_DEVICE void operator()(V g, V& p, V& m) const {
    p = p - lr * m * g;
  }
#elif defined(PARAMETER_COPIED)
  template <class V>
  GANNET_DEVICE void operator()(V g, V p, V& m, V& v) const {
    p = p - lr * m * g * v;
  }
#else
  template <class V>
  GANNET_DEVICE void operator()(V g, V& p, V& m, V& v) const {
    p = p - lr * m * g * v;
  }
#endif
#ifdef EVALUATES_TOO_FEW
  template <class V>
  GANNET_DEVICE V evaluate(V p, V m) const {
    return p + m;
  }
#endif
};

GANNET_RULES_END

GANNET_ELEMENTWISE_PLUGIN(Rule, "rule", "1.0.0", "a rule that compiles or not")
