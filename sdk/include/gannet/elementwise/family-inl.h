// Definitions that every target needs in addition to its loop. Included by sdk_elementwise.hpp,
// once per target.
GANNET_RULES_BEGIN

// The sign of a number: -1, 0 or 1; NaN for a NaN.
template <class V>
GANNET_DEVICE V sign(V x) {
  using T = typename V::Number;
  return select(x > V(T(0)), V(T(1)), select(x < V(T(0)), V(T(-1)), x));
}

// Makes a family from a single rule.
template <template <class> class Rule>
struct FamilyOf : sdk::detail::FamilySums<Rule<float>>,
                  sdk::detail::FamilyBeginStep<Rule<float>>,
                  sdk::detail::FamilyEndStep<Rule<float>> {
  static constexpr bool kUsesSeed = sdk::detail::UsesSeed<Rule<float>>::value;
  static constexpr bool kUsesLoss = sdk::detail::UsesLoss<Rule<float>>::value;
  static constexpr bool kRoundsStochastically = sdk::detail::RoundsStochastically<Rule<float>>::value;
  static constexpr bool kByTensor = sdk::detail::ByTensor<Rule<float>>::value;
  static constexpr bool kEvaluates = sdk::detail::Evaluates<Rule<float>>::value;
  static constexpr const auto& kParams = Rule<float>::kParams;
  static std::vector<gannet_state_spec> states(const RuleParams& params) {
    if constexpr (sdk::detail::HasStates<Rule<float>>::value)
      return Rule<float>::states(params);
    else
      return sdk::detail::states_of_rule<Rule<float>>();
  }
  static void check(const RuleParams& params, const HostServices& host) {
    if constexpr (sdk::detail::HasCheck<Rule<float>>::value) Rule<float>::check(params, host);
  }
  template <class T, class Run>
  static void with_rule(const Step& step, Run&& run) {
    run(Rule<T>(step));
  }
};

GANNET_RULES_END
