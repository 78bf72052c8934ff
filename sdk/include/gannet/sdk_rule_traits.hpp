/// Detects at compile time what a rule declares. Part of gannet/sdk_rule.hpp.
#pragma once

#include <gannet/abi.h>

#include <cstddef>
#include <gannet/sdk.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace gannet::sdk {

class RuleParams;
class GroupStep;

namespace detail {

// Number of states of a rule: the extent of its kStates, or 0 if it has none. (sizeof is used
// because it makes the compiler complete the array type in a template.)
template <class Rule, class = void>
struct StateCount : std::integral_constant<size_t, 0> {};
template <class Rule>
struct StateCount<Rule, std::void_t<decltype(Rule::kStates)>>
    : std::integral_constant<size_t, sizeof(Rule::kStates) / sizeof(Rule::kStates[0])> {};
template <class Rule>
inline constexpr size_t kStateCount = StateCount<Rule>::value;

constexpr gannet_state_spec spec_of(const char* name) { return state(name); }
constexpr gannet_state_spec spec_of(const gannet_state_spec& spec) { return spec; }

template <class Rule>
std::vector<gannet_state_spec> states_of_rule() {
  std::vector<gannet_state_spec> states;
  if constexpr (kStateCount < Rule >> 0)
    for (const auto& each : Rule::kStates) states.push_back(spec_of(each));
  return states;
}

// Whether a type has `states(const RuleParams&)`, and `check(const RuleParams&, const HostServices&)`.
template <class Type, class = void>
struct HasStates : std::false_type {};
template <class Type>
struct HasStates<Type, std::void_t<decltype(Type::states(std::declval<const RuleParams&>()))>> : std::true_type {};
template <class Type, class = void>
struct HasCheck : std::false_type {};
template <class Type>
struct HasCheck<Type, std::void_t<decltype(Type::check(std::declval<const RuleParams&>(), std::declval<const HostServices&>()))>>
    : std::true_type {};

// The number of sums of a rule: the extent of its kSums, or 0 if it has none.
template <class Rule, class = void>
struct SumCount : std::integral_constant<size_t, 0> {};
template <class Rule>
struct SumCount<Rule, std::void_t<decltype(Rule::kSums)>>
    : std::integral_constant<size_t, sizeof(Rule::kSums) / sizeof(Rule::kSums[0])> {};
template <class Rule>
inline constexpr size_t kSumCount = SumCount<Rule>::value;

template <class Rule>
std::vector<gannet_sum_spec> sums_of_rule() {
  std::vector<gannet_sum_spec> sums;
  if constexpr (kSumCount < Rule >> 0) {
    for (const gannet_sum_spec& each : Rule::kSums) {
      if (each.scope != GANNET_SUM_OF_TENSOR && each.scope != GANNET_SUM_OF_GROUP && each.scope != GANNET_SUM_OF_MODEL)
        throw Failure(GANNET_INTERNAL, "a rule's kSums are of a tensor, of the group or of the model, not of rows or columns");
      sums.push_back(each);
    }
  }
  return sums;
}

// Constants and functions that a rule or a family may have.
template <class Type, class = void>
struct UsesSeed : std::false_type {};
template <class Type>
struct UsesSeed<Type, std::void_t<decltype(Type::kUsesSeed)>> : std::bool_constant<Type::kUsesSeed> {};
template <class Type, class = void>
struct ByTensor : std::false_type {};
template <class Type>
struct ByTensor<Type, std::void_t<decltype(Type::kByTensor)>> : std::bool_constant<Type::kByTensor> {};
template <class Type, class = void>
struct UsesLoss : std::false_type {};
template <class Type>
struct UsesLoss<Type, std::void_t<decltype(Type::kUsesLoss)>> : std::bool_constant<Type::kUsesLoss> {};
template <class Type, class = void>
struct RoundsStochastically : std::false_type {};
template <class Type>
struct RoundsStochastically<Type, std::void_t<decltype(Type::kRoundsStochastically)>>
    : std::bool_constant<Type::kRoundsStochastically> {};
template <class Type>
inline constexpr bool kLooksAtTensors =
    kSumCount<Type> != 0 || UsesSeed<Type>::value || RoundsStochastically<Type>::value || ByTensor<Type>::value;
// evaluate() is a function template for a rule, and kEvaluates a constant of a family.
template <class Type, class = void>
struct HasEvaluate : std::false_type {};
template <class Type>
struct HasEvaluate<Type, std::void_t<decltype(&Type::template evaluate<float>)>> : std::true_type {};
// Whether Type has a member of that name in any form: then the name is ambiguous in BothEvaluate.
struct OtherEvaluate {
  int evaluate;
};
template <class Type>
struct BothEvaluate : Type, OtherEvaluate {};
template <class Type, bool is_final = std::is_final<Type>::value, class = void>
struct NamesEvaluate : std::true_type {};
template <class Type>
struct NamesEvaluate<Type, true> : HasEvaluate<Type> {};  // cannot be derived from
template <class Type>
struct NamesEvaluate<Type, false, std::void_t<decltype(&BothEvaluate<Type>::evaluate)>> : std::false_type {};
template <class Type, class = void>
struct Evaluates : HasEvaluate<Type> {};
template <class Type>
struct Evaluates<Type, std::void_t<decltype(Type::kEvaluates)>> : std::bool_constant<Type::kEvaluates> {};
template <class Type, class = void>
struct HasBeginStep : std::false_type {};
template <class Type>
struct HasBeginStep<Type, std::void_t<decltype(Type::begin_step(std::declval<const GroupStep&>()))>> : std::true_type {};
template <class Type, class = void>
struct HasEndStep : std::false_type {};
template <class Type>
struct HasEndStep<Type, std::void_t<decltype(Type::end_step(std::declval<const GroupStep&>()))>> : std::true_type {};

constexpr const char* name_of(const char* name) { return name; }
constexpr const char* name_of(const gannet_state_spec& spec) { return spec.name; }
constexpr bool same_text(const char* a, const char* b) {
  while (*a != 0 && *a == *b) ++a, ++b;
  return *a == *b;
}
// The index in kStates of the state with this name, or the number of states.
template <class Rule>
constexpr size_t state_index(const char* name) {
  size_t i = 0;
  if constexpr (kStateCount < Rule >> 0)
    while (i < kStateCount<Rule> && !same_text(name_of(Rule::kStates[i]), name)) ++i;
  return i;
}

// Members that FamilyOf has only if its rule has them.
template <class Rule, class = void>
struct FamilySums {};
template <class Rule>
struct FamilySums<Rule, std::void_t<decltype(Rule::kSums)>> {
  static constexpr const auto& kSums = Rule::kSums;
};
template <class Rule, bool = HasBeginStep<Rule>::value>
struct FamilyBeginStep {};
template <class Rule>
struct FamilyBeginStep<Rule, true> {
  static void begin_step(const GroupStep& step) { Rule::begin_step(step); }
};
template <class Rule, bool = HasEndStep<Rule>::value>
struct FamilyEndStep {};
template <class Rule>
struct FamilyEndStep<Rule, true> {
  static void end_step(const GroupStep& step) { Rule::end_step(step); }
};

// list_and() and states_and() append elements to a constant list, for rules that wrap other rules.
template <class T, size_t kCount>
struct List {
  T at[kCount];
};
template <class T, size_t kCount, class... More>
constexpr auto list_and(const T (&list)[kCount], const More&... more) {
  List<T, kCount + sizeof...(More)> all{};
  for (size_t i = 0; i < kCount; ++i) all.at[i] = list[i];
  size_t next = kCount;
  ((all.at[next++] = more), ...);
  return all;
}
template <class Rule>
constexpr auto states_and(const gannet_state_spec& last) {
  List<gannet_state_spec, kStateCount<Rule> + 1> all{};
  if constexpr (kStateCount < Rule >> 0)
    for (size_t i = 0; i < kStateCount<Rule>; ++i) all.at[i] = spec_of(Rule::kStates[i]);
  all.at[kStateCount<Rule>] = last;
  return all;
}

// Which of kStates a function of the rule takes: those that it lists by name, or all (operator()
// and evaluate()), or none (terms()).
template <class Rule, class = void>
struct UpdateStates {
  static constexpr size_t kCount = kStateCount<Rule>;
  static constexpr size_t index(size_t i) { return i; }
};
template <class Rule>
struct UpdateStates<Rule, std::void_t<decltype(Rule::kUpdateStates)>> {
  static constexpr size_t kCount = sizeof(Rule::kUpdateStates) / sizeof(Rule::kUpdateStates[0]);
  static constexpr size_t index(size_t i) { return state_index<Rule>(Rule::kUpdateStates[i]); }
};
template <class Rule, class = void>
struct TermStates {
  static constexpr size_t kCount = 0;
  static constexpr size_t index(size_t) { return 0; }
};
template <class Rule>
struct TermStates<Rule, std::void_t<decltype(Rule::kTermStates)>> {
  static constexpr size_t kCount = sizeof(Rule::kTermStates) / sizeof(Rule::kTermStates[0]);
  static constexpr size_t index(size_t i) { return state_index<Rule>(Rule::kTermStates[i]); }
};
template <class Rule, class = void>
struct EvaluateStates {
  static constexpr size_t kCount = kStateCount<Rule>;
  static constexpr size_t index(size_t i) { return i; }
};
template <class Rule>
struct EvaluateStates<Rule, std::void_t<decltype(Rule::kEvaluateStates)>> {
  static constexpr size_t kCount = sizeof(Rule::kEvaluateStates) / sizeof(Rule::kEvaluateStates[0]);
  static constexpr size_t index(size_t i) { return state_index<Rule>(Rule::kEvaluateStates[i]); }
};
template <class Rule, class States>
constexpr bool are_states() {
  for (size_t i = 0; i < States::kCount; ++i) {
    if (States::index(i) >= kStateCount<Rule>) return false;
    if constexpr (kStateCount < Rule >> 0)
      if (spec_of(Rule::kStates[States::index(i)]).extent != GANNET_STATE_PER_ELEMENT) return false;
  }
  return true;
}

// Whether a rule's functions take one number for each of their states. V is the number's type in a
// loop, Random its random numbers.
template <class V, size_t>
using Each = V;
template <class Rule, class V, class Random, size_t... kState>
constexpr bool takes_update(std::index_sequence<kState...>) {
  if constexpr (UsesSeed<Rule>::value)
    return std::is_invocable_v<const Rule&, V, V&, Each<V&, kState>..., Random>;
  else
    return std::is_invocable_v<const Rule&, V, V&, Each<V&, kState>...>;
}
template <class Rule, class V>
struct EvaluateCall {
  template <size_t... kState>
  static auto with(std::index_sequence<kState...>, int)
      -> decltype(std::declval<const Rule&>().evaluate(std::declval<V>(), std::declval<Each<V, kState>>()...), std::true_type());
  template <class States>
  static std::false_type with(States, long);
};
template <class Rule, class V, class Term>
struct TermsCall {
  template <size_t... kState, size_t... kSum>
  static auto with(std::index_sequence<kState...>, std::index_sequence<kSum...>, int)
      -> decltype(std::declval<const Rule&>().terms(std::declval<V>(), std::declval<V>(), std::declval<Each<V, kState>>()...,
                                                    std::declval<Each<Term&, kSum>>()...),
                  std::true_type());
  template <class States, class Sums>
  static std::false_type with(States, Sums, long);
};
// Whether a rule's operator() takes the parameter by value: it would change a copy.
template <class Rule, class V, class Random, size_t... kState>
constexpr bool takes_copy(std::index_sequence<kState...>) {
  if constexpr (UsesSeed<Rule>::value)
    return std::is_invocable_v<const Rule&, V, V, Each<V&, kState>..., Random>;
  else
    return std::is_invocable_v<const Rule&, V, V, Each<V&, kState>...>;
}
// The errors of a rule whose functions take other numbers than it declares, each in a sentence; the
// loops are compiled only if this is true, because they would add hundreds of lines.
template <class Rule, class V, class Random, class Term>
constexpr bool check_functions() {
  constexpr bool updates = takes_update<Rule, V, Random>(std::make_index_sequence<UpdateStates<Rule>::kCount>());
  static_assert(updates,
                "the rule's operator() takes a gradient, the parameter and each state of kStates (or of kUpdateStates), and with "
                "kUsesSeed a random number: template <class V> void operator()(V gradient, V& parameter, V& state...) const");
  constexpr bool copies = takes_copy<Rule, V, Random>(std::make_index_sequence<UpdateStates<Rule>::kCount>());
  static_assert(!copies, "the rule's operator() takes the parameter by value, and would change a copy: write V& parameter");
  bool evaluates = true, sums = true;
  if constexpr (HasEvaluate<Rule>::value) {
    constexpr bool takes =
        decltype(EvaluateCall<Rule, V>::with(std::make_index_sequence<EvaluateStates<Rule>::kCount>(), 0))::value;
    static_assert(takes,
                  "the rule's evaluate() takes the parameter and each state of kStates (or of kEvaluateStates): "
                  "template <class V> V evaluate(V parameter, V state...) const");
    evaluates = takes;
  }
  if constexpr (kSumCount<Rule> != 0) {
    constexpr bool takes = decltype(TermsCall<Rule, V, Term>::with(std::make_index_sequence<TermStates<Rule>::kCount>(),
                                                                   std::make_index_sequence<kSumCount<Rule>>(), 0))::value;
    static_assert(
        takes,
        "the rule's terms() takes the gradient, the parameter, each state of kTermStates (which lists the states that it "
        "takes: none without it) and a Term for each of kSums: "
        "template <class V> void terms(V gradient, V parameter, V state..., Term<V>& term...) const");
    sums = takes;
  }
  return updates && !copies && evaluates && sums;
}

template <class Rule>
constexpr bool have_master_dtype() {
  if constexpr (kStateCount < Rule >> 0)
    for (const auto& each : Rule::kStates)
      if (spec_of(each).dtype != GANNET_DTYPE_NONE) return false;
  return true;
}

// A family's optimizer claims the features in the family's constants; its rules must use no others.
template <class Family, class Rule>
constexpr void check_family() {
  static_assert(kSumCount<Rule> == 0 || kSumCount<Rule> == kSumCount<Family>,
                "a rule with kSums belongs to a family with the same kSums");
  static_assert(!UsesSeed<Rule>::value || UsesSeed<Family>::value, "a rule with kUsesSeed belongs to a family with kUsesSeed");
  static_assert(!UsesLoss<Rule>::value || UsesLoss<Family>::value, "a rule with kUsesLoss belongs to a family with kUsesLoss");
  static_assert(HasEvaluate<Rule>::value || !NamesEvaluate<Rule>::value,
                "evaluate() is a template of one type, template <class V> V evaluate(V parameter, V state...) const");
  static_assert(!HasEvaluate<Rule>::value || Evaluates<Family>::value,
                "a rule with evaluate() belongs to a family with kEvaluates");
  static_assert(RoundsStochastically<Rule>::value == RoundsStochastically<Family>::value,
                "kRoundsStochastically is a constant of the family and of each of its rules");
}

}  // namespace detail
}  // namespace gannet::sdk
