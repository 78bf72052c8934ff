// The sums of an element-wise rule with SIMD, part of loop-inl.h: included in its namespace, so there
// is no include guard. plain-inl.h has the same sums, to the last bit, without SIMD.

// Sums are added in double, in which products of fp32 numbers are exact. Element i of a block is
// always added to partial sum i % kPartialSums, whatever the vector width.
using SumLanes = hn::CappedTag<double, 8>;
inline constexpr size_t kPartialSums = 16;
inline constexpr size_t kSumWidth = hn::MaxLanes(SumLanes());
inline constexpr size_t kSumVectors = kPartialSums / kSumWidth;

template <uint32_t kReduce>
HWY_INLINE hn::Vec<SumLanes> with_product(hn::Vec<SumLanes> a, hn::Vec<SumLanes> b, hn::Vec<SumLanes> sum) {
  if constexpr (kReduce == GANNET_MAX || kReduce == GANNET_MIN) {
    const auto value = hn::Mul(a, b);
    const auto replaces = kReduce == GANNET_MAX ? hn::Gt(value, sum) : hn::Lt(value, sum);
    return hn::IfThenElse(hn::Or(replaces, hn::IsNaN(value)), value, sum);
  } else {
    return hn::MulAdd(a, b, sum);
  }
}
// Adds the products of one vector to the sums at `into`. Since roots and divisions take most of the
// time, floats use full vectors too: their products fill two vectors of sums (one on HWY_SCALAR),
// those of doubles one.
#if HWY_TARGET == HWY_SCALAR
template <class T>
using SummedElements = hn::Rebind<T, SumLanes>;

template <uint32_t kReduce>
HWY_INLINE void add_products(hn::Vec<SummedElements<float>> a, hn::Vec<SummedElements<float>> b, hn::Vec<SumLanes>* into) {
  *into = with_product<kReduce>(hn::PromoteTo(SumLanes(), a), hn::PromoteTo(SumLanes(), b), *into);
}
#else
template <class T>
using SummedElements = hn::Repartition<T, SumLanes>;

template <uint32_t kReduce>
HWY_INLINE void add_products(hn::Vec<SummedElements<float>> a, hn::Vec<SummedElements<float>> b, hn::Vec<SumLanes>* into) {
  const SumLanes wide;
  const hn::Half<SummedElements<float>> half;
  into[0] = with_product<kReduce>(hn::PromoteTo(wide, hn::LowerHalf(a)), hn::PromoteTo(wide, hn::LowerHalf(b)), into[0]);
  into[1] =
      with_product<kReduce>(hn::PromoteTo(wide, hn::UpperHalf(half, a)), hn::PromoteTo(wide, hn::UpperHalf(half, b)), into[1]);
}
#endif
template <uint32_t kReduce>
HWY_INLINE void add_products(hn::Vec<SumLanes> a, hn::Vec<SumLanes> b, hn::Vec<SumLanes>* into) {
  *into = with_product<kReduce>(a, b, *into);
}

// The partial sums of a rule's kSums, and how kPartialSums elements are added to them.
template <class Rule, class Grad>
struct PartialSums {
  using Number = typename RuleNumber<Rule>::type;
  using D = SummedElements<Number>;
  using V = Lanes<std::remove_const_t<D>>;
  using States = sdk::detail::TermStates<Rule>;
  static constexpr size_t kSums = sdk::detail::kSumCount<Rule>, kStates = States::kCount;
  hn::Vec<SumLanes> at[kSums][kSumVectors];

  HWY_INLINE void clear() {
    for (size_t k = 0; k < kSums; ++k)
      for (size_t v = 0; v < kSumVectors; ++v) at[k][v] = hn::Set(SumLanes(), sdk::empty_sum(Rule::kSums[k].reduce_op));
  }
  template <size_t... kState, size_t... kSum>
  HWY_INLINE void add(const Rule& rule, hn::Vec<D> scale, const Number* param, const Grad* grad,
                      [[maybe_unused]] const Number* const* states, std::index_sequence<kState...>,
                      std::index_sequence<kSum...>) {
    const D d;
    for (size_t e = 0; e < kPartialSums; e += hn::MaxLanes(d)) {
      [[maybe_unused]] const V state[kStates > 0 ? kStates : 1] = {V(load(d, states[kState] + e))...};
      Term<V> terms[kSums];
      rule.terms(V(hn::Mul(load(d, grad + e), scale)), V(load(d, param + e)), state[kState]..., terms[kSum]...);
      (add_products<Rule::kSums[kSum].reduce_op>(terms[kSum].a.lanes, terms[kSum].b.lanes, at[kSum] + e / kSumWidth), ...);
    }
  }
};

// Adds the terms of elements [begin, end) to `sums`, one number for each of the rule's kSums.
template <class Rule, class Grad>
void sum_typed(const Rule& shared_rule, const gannet_update_args& args, uint64_t begin, uint64_t end, double* sums) {
  using Partial = PartialSums<Rule, Grad>;
  using Number = typename Partial::Number;
  using States = typename Partial::States;
  static_assert(sdk::detail::are_states<Rule, States>(), "kTermStates names what is not a PER_ELEMENT state of kStates");
  constexpr std::make_index_sequence<Partial::kStates> every_state;
  constexpr std::make_index_sequence<Partial::kSums> every_sum;
  constexpr size_t kStates = Partial::kStates > 0 ? Partial::kStates : 1;
  const Rule rule = shared_rule;
  const auto scale = hn::Set(typename Partial::D(), static_cast<Number>(args.grad_scale));
  const auto* param = static_cast<const Number*>(args.param);
  const auto* grad = static_cast<const Grad*>(args.grad);
  const Number* state[kStates] = {};
  for (size_t s = 0; s < Partial::kStates; ++s) state[s] = static_cast<const Number*>(args.states[States::index(s)]);
  Partial partial;
  partial.clear();
  uint64_t i = begin;
  for (; i + kPartialSums <= end; i += kPartialSums) {
    prefetch(param + i, kPartialSums * sizeof(Number));
    prefetch(grad + i, kPartialSums * sizeof(Grad));
    const Number* at[kStates] = {};
    for (size_t s = 0; s < Partial::kStates; ++s) prefetch(at[s] = state[s] + i, kPartialSums * sizeof(Number));
    partial.add(rule, scale, param + i, grad + i, at, every_state, every_sum);
  }
  if (i < end) {
    // Padding with zeros could give a term of 0/0. So the last element is repeated to fill the group,
    // and the sums of the repeats are discarded below.
    Number p[kPartialSums], copies[kStates][kPartialSums];
    Grad g[kPartialSums];
    const Number* at[kStates] = {};
    for (size_t k = 0; k < kPartialSums; ++k) {
      const uint64_t from = i + k < end ? i + k : end - 1;
      p[k] = param[from];
      std::memcpy(static_cast<void*>(g + k), grad + from, sizeof(Grad));
      for (size_t s = 0; s < Partial::kStates; ++s) copies[s][k] = state[s][from];
    }
    for (size_t s = 0; s < Partial::kStates; ++s) at[s] = copies[s];
    const Partial before = partial;
    partial.add(rule, scale, p, g, at, every_state, every_sum);
    for (size_t v = 0; v < kSumVectors; ++v) {
      const size_t left = end - i > v * kSumWidth ? end - i - v * kSumWidth : 0;
      const auto is_there = hn::FirstN(SumLanes(), left < kSumWidth ? left : kSumWidth);
      for (size_t k = 0; k < Partial::kSums; ++k) partial.at[k][v] = hn::IfThenElse(is_there, partial.at[k][v], before.at[k][v]);
    }
  }
  for (size_t k = 0; k < Partial::kSums; ++k) {
    double lanes[kPartialSums], total = sdk::empty_sum(Rule::kSums[k].reduce_op);
    for (size_t v = 0; v < kSumVectors; ++v) hn::StoreU(partial.at[k][v], SumLanes(), lanes + v * kSumWidth);
    for (const double lane : lanes) sdk::add_to_sum(total, lane, Rule::kSums[k].reduce_op);
    sdk::add_to_sum(sums[k], total, Rule::kSums[k].reduce_op);
  }
}
template <class Rule>
void sum_elementwise(const Rule& rule, const gannet_update_args& args, uint64_t begin, uint64_t end, double* sums) {
  if constexpr (std::is_same_v<typename RuleNumber<Rule>::type, double>) {
    sum_typed<Rule, double>(rule, args, begin, end, sums);
  } else {
    if (args.grad_dtype == GANNET_BFLOAT16) return sum_typed<Rule, hwy::bfloat16_t>(rule, args, begin, end, sums);
    if (args.grad_dtype == GANNET_FLOAT16) return sum_typed<Rule, hwy::float16_t>(rule, args, begin, end, sums);
    sum_typed<Rule, float>(rule, args, begin, end, sums);
  }
}
