// Lookahead (Zhang et al. 2019) around an element-wise rule: every `k` steps the slow weights move
// towards the rule's by the fraction `alpha`, and the rule continues from there. Evaluation uses
// the slow weights. Include this in a file of rules, between GANNET_RULES_BEGIN and
// GANNET_RULES_END; there is no include guard, since the file is included once per target:
//
//   #include <gannet/elementwise/lookahead-inl.h>
//   template <class T>
//   using LookaheadLion = Lookahead<Lion, T>;         // Lion: a rule as in gannet/sdk_elementwise.hpp
//   GANNET_RULES_END
//   GANNET_ELEMENTWISE_PLUGIN(LookaheadLion, "lookaheadlion", "1.0.0", "Lion with Lookahead")
//
// Adds the params "k" and "alpha" and the state "slow". The rule has kStates of one value per element
// and an operator that takes them all; it has no sums, seed, begin_step(), end_step() or evaluate().
template <template <class> class Inner, class T>
struct Lookahead {
  using Number = T;
  using Rule = Inner<T>;
  static_assert(!sdk::detail::kLooksAtTensors<Rule> && !sdk::detail::HasStates<Rule>::value &&
                    !sdk::detail::HasBeginStep<Rule>::value && !sdk::detail::HasEndStep<Rule>::value &&
                    !sdk::detail::HasEvaluate<Rule>::value &&
                    sdk::detail::UpdateStates<Rule>::kCount == sdk::detail::kStateCount<Rule>,
                "Lookahead wraps rules that have kStates alone: no kSums, kUsesSeed, kByTensor, kUpdateStates, states(), "
                "begin_step(), end_step() or evaluate()");
  static constexpr bool kUsesLoss = sdk::detail::UsesLoss<Rule>::value;
  static constexpr auto kAllParams = sdk::detail::list_and(
      Rule::kParams, at_least(integer("k", "5", "steps between two moves of the slow weights"), 1),
      at_most(at_least(number("alpha", "0.5", "how far the slow weights move: 1 is all the way to the rule's"), 0), 1));
  static constexpr const auto& kParams = kAllParams.at;
  static constexpr auto kAllStates = sdk::detail::states_and<Rule>(state_from_parameter("slow"));
  static constexpr const auto& kStates = kAllStates.at;
  static constexpr const char* kEvaluateStates[] = {"slow"};
  Rule inner;
  T alpha;
  bool meets;  // whether this step sets the parameters to the slow weights

  explicit Lookahead(const Step& s)
      : inner(s), alpha(static_cast<T>(s("alpha"))), meets(s.count() % static_cast<uint64_t>(s("k")) == 0) {}
  static void check(const RuleParams& params, const HostServices& host) {
    if constexpr (sdk::detail::HasCheck<Rule>::value) Rule::check(params, host);
  }
  template <class V, class... States>
  GANNET_DEVICE void operator()(V g, V& p, V& first, States&... rest) const {
    update(std::make_index_sequence<sizeof...(rest)>(), g, p, first, rest...);
  }
  template <class V>
  GANNET_DEVICE V evaluate(V, V slow) const {
    return slow;
  }

 private:
  // The last state is "slow"; the ones before are the rule's.
  template <size_t... kState, class V, class... States>
  GANNET_DEVICE void update(std::index_sequence<kState...>, V g, V& p, States&... states) const {
    V* const all[] = {&states...};
    inner(g, p, *all[kState]...);
    V& slow = *all[sizeof...(kState)];
    const V moved = fma(V(alpha), p - slow, slow);
    p = meets ? moved : p;
    slow = meets ? moved : slow;
  }
};
