// A rule that has every part that a rule may have, for the kit: with Highway, and without it as the
// reference.
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

template <class T>
struct Parts {
  static constexpr bool kUsesSeed = true, kUsesLoss = true;
  static constexpr gannet_param_spec kParams[] = {learning_rate("1e-2"), momentum("0.9")};
  static constexpr gannet_state_spec kStates[] = {state("momentum_buffer"), state_from_parameter("p0"), state("squares")};
  static constexpr const char* kTermStates[] = {"p0"};
  static constexpr const char* kUpdateStates[] = {"squares", "momentum_buffer"};
  static constexpr const char* kEvaluateStates[] = {"p0"};
  static constexpr gannet_sum_spec kSums[] = {sum(GANNET_SUM_OF_TENSOR), sum(GANNET_SUM_OF_TENSOR, GANNET_MAX),
                                              sum(GANNET_SUM_OF_GROUP, GANNET_MIN), sum(GANNET_SUM_OF_MODEL, GANNET_SUM, 1)};
  T rate, keep, noise;

  explicit Parts(const Step& s) : keep(T(s("momentum"))) {
    const double loss = std::isfinite(s.loss()) ? s.loss() : 0, largest = s.sum(1), smallest = s.sum(2);
    const double scale = 1 + std::sqrt(s.sum(0)) + largest - smallest + std::abs(s.sum(3)) + s.kept<double>(3);
    rate = T(s("lr") / (std::isfinite(scale) ? scale : 1) / (1 + 1e-6 * loss));
    noise = T(1e-3 * s("lr") / static_cast<double>(s.tensor().dimensions + 1));
  }
  static std::vector<gannet_state_spec> states(const RuleParams&) {
    auto all = sdk::detail::states_of_rule<Parts>();
    all.push_back(state("largest_step", GANNET_STATE_SCALAR, GANNET_FLOAT64));
    return all;
  }
  static void begin_step(const GroupStep& s) { s.host().metric("rate", s("lr")); }
  static void end_step(const GroupStep& s) {
    double& largest = s.kept<double>(3);
    largest = std::max(largest, std::abs(s.sum(3)));
    s.host().metric("largest_step", largest);
  }
  template <class V>
  GANNET_DEVICE void terms(V g, V p, V p0, Term<V>& a, Term<V>& b, Term<V>& c, Term<V>& d) const {
    a = product(g, g);
    b = product(abs(p), V(T(1)));
    c = product(-abs(g), V(T(1)));
    d = product(g, p0 - p);
  }
  template <class V, class Random>
  GANNET_DEVICE void operator()(V g, V& p, V& squares, V& buffer, const Random& random) const {
    squares = fma(g, g, squares);
    buffer = fma(V(keep), buffer, g);
    p = p - rate * buffer + noise * (random.uniform() - V(T(0.5)));
    buffer = random.bfloat16(buffer);
  }
  template <class V>
  GANNET_DEVICE V evaluate(V p, V p0) const {
    return V(T(0.5)) * (p + p0);
  }
};

GANNET_RULES_END

GANNET_ELEMENTWISE_PLUGIN(Parts, "parts", "1.0.0", "every part of a rule")
