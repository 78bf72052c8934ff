// The loop of element-wise rules on a CPU with SIMD: reads and unscales the gradient, applies the
// rule, and writes the parameter, the states and the low-precision copy, in one pass over memory.
// Compiled once per SIMD target, by sdk_elementwise.hpp.
//
//   run_elementwise(rule, args, begin, end);      // elements [begin, end) of the range that args describes
//
// The value of an element never depends on where the range begins or ends or on how threads divide
// it: a tail is copied into a full block and runs through the same instructions. (Plugins are
// compiled with -ffp-contract=off, so operations are fused only where the rule says so.)
#if defined(GANNET_ELEMENTWISE_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GANNET_ELEMENTWISE_LOOP_INL_H_
#undef GANNET_ELEMENTWISE_LOOP_INL_H_
#else
#define GANNET_ELEMENTWISE_LOOP_INL_H_
#endif

#include <gannet/abi.h>
#include <gannet/elementwise/lanes-inl.h>
#include <hwy/cache_control.h>

#include <cstring>
#include <gannet/sdk_rule.hpp>
#include <type_traits>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace gannet::rules::HWY_NAMESPACE {

// A rule's number type as SIMD lanes; scalar.h has the version for a single element.
template <class D>
struct LaneMask {
  hn::Mask<D> mask;
  friend HWY_INLINE LaneMask operator!(LaneMask a) { return {hn::Not(a.mask)}; }
  friend HWY_INLINE LaneMask operator&&(LaneMask a, LaneMask b) { return {hn::And(a.mask, b.mask)}; }
  friend HWY_INLINE LaneMask operator||(LaneMask a, LaneMask b) { return {hn::Or(a.mask, b.mask)}; }
  // With a flag of the rule: the same for every lane.
  friend HWY_INLINE LaneMask operator&&(bool a, LaneMask b) { return a ? b : b && !b; }
  friend HWY_INLINE LaneMask operator||(bool a, LaneMask b) { return a ? b || !b : b; }
  friend HWY_INLINE LaneMask operator&&(LaneMask a, bool b) { return b && a; }
  friend HWY_INLINE LaneMask operator||(LaneMask a, bool b) { return b || a; }
};
template <class D>
struct Lanes {
  using Number = hn::TFromD<D>;
  hn::Vec<D> lanes;
  Lanes() = default;
  HWY_INLINE Lanes(Number value) : lanes(hn::Set(D(), value)) {}
  HWY_INLINE explicit Lanes(hn::Vec<D> values) : lanes(values) {}
  friend HWY_INLINE Lanes operator+(Lanes a, Lanes b) { return Lanes(hn::Add(a.lanes, b.lanes)); }
  friend HWY_INLINE Lanes operator-(Lanes a, Lanes b) { return Lanes(hn::Sub(a.lanes, b.lanes)); }
  friend HWY_INLINE Lanes operator*(Lanes a, Lanes b) { return Lanes(hn::Mul(a.lanes, b.lanes)); }
  friend HWY_INLINE Lanes operator/(Lanes a, Lanes b) { return Lanes(hn::Div(a.lanes, b.lanes)); }
  friend HWY_INLINE Lanes operator-(Lanes a) { return Lanes(hn::Neg(a.lanes)); }
  HWY_INLINE Lanes& operator+=(Lanes b) { return *this = *this + b; }
  HWY_INLINE Lanes& operator-=(Lanes b) { return *this = *this - b; }
  HWY_INLINE Lanes& operator*=(Lanes b) { return *this = *this * b; }
  HWY_INLINE Lanes& operator/=(Lanes b) { return *this = *this / b; }
  friend HWY_INLINE LaneMask<D> operator<(Lanes a, Lanes b) { return {hn::Lt(a.lanes, b.lanes)}; }
  friend HWY_INLINE LaneMask<D> operator>(Lanes a, Lanes b) { return {hn::Gt(a.lanes, b.lanes)}; }
  friend HWY_INLINE LaneMask<D> operator<=(Lanes a, Lanes b) { return {hn::Le(a.lanes, b.lanes)}; }
  friend HWY_INLINE LaneMask<D> operator>=(Lanes a, Lanes b) { return {hn::Ge(a.lanes, b.lanes)}; }
  friend HWY_INLINE LaneMask<D> operator==(Lanes a, Lanes b) { return {hn::Eq(a.lanes, b.lanes)}; }
  friend HWY_INLINE LaneMask<D> operator!=(Lanes a, Lanes b) { return {hn::Ne(a.lanes, b.lanes)}; }
  friend HWY_INLINE Lanes select(bool condition, Lanes a, Lanes b) { return condition ? a : b; }
  friend HWY_INLINE Lanes select(LaneMask<D> condition, Lanes a, Lanes b) {
    return Lanes(hn::IfThenElse(condition.mask, a.lanes, b.lanes));
  }
  friend HWY_INLINE Lanes max(Lanes a, Lanes b) { return select(a > b, a, b); }
  friend HWY_INLINE Lanes min(Lanes a, Lanes b) { return select(a < b, a, b); }
  friend HWY_INLINE Lanes abs(Lanes a) { return Lanes(hn::Abs(a.lanes)); }
  friend HWY_INLINE Lanes sqrt(Lanes a) { return Lanes(hn::Sqrt(a.lanes)); }
  friend HWY_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) { return Lanes(hn::MulAdd(a.lanes, b.lanes, c.lanes)); }
};

#include <gannet/elementwise/term-inl.h>

// Random numbers for the elements in the lanes, for rules with kUsesSeed. scalar-inl.h has the same
// bits for a single element.
template <class D>
struct LaneRandom {
  using V = Lanes<D>;
  hn::Vec<hn::RebindToUnsigned<D>> bits;
  // Uniform in [0, 1): a multiple of 2^-23 in fp32, of 2^-52 in fp64.
  HWY_INLINE V uniform() const {
    const hn::RebindToUnsigned<D> u;
    if constexpr (sizeof(typename V::Number) == 4)
      return V(hn::BitCast(D(), hn::Or(hn::ShiftRight<9>(bits), hn::Set(u, 0x3f800000u)))) - V(1);
    else
      return V(hn::BitCast(D(), hn::Or(hn::ShiftRight<12>(bits), hn::Set(u, uint64_t{0x3ff} << 52)))) - V(1);
  }
  // Rounds x stochastically to bfloat16: the mean is x. Infinity, NaN and fp64 values are kept.
  HWY_INLINE V bfloat16(V x) const {
    if constexpr (sizeof(typename V::Number) == 4) {
      const hn::RebindToUnsigned<D> u;
      const auto value = hn::BitCast(u, x.lanes);
      const auto rounded = hn::And(hn::Add(value, hn::And(bits, hn::Set(u, 0xffffu))), hn::Set(u, 0xffff0000u));
      const auto exponent = hn::Set(u, 0x7f800000u);
      const auto special = hn::Eq(hn::And(value, exponent), exponent);
      return V(hn::BitCast(D(), hn::IfThenElse(special, value, rounded)));
    } else {
      return x;
    }
  }
};

#if GANNET_TARGET_MINOR >= 1
// The random bits of a segment's elements, computed for 256 elements at a time.
template <class Rule>
class ElementBits {
 public:
  using Number = typename RuleNumber<Rule>::type;
  using Bits = std::conditional_t<sizeof(Number) == 8, uint64_t, uint32_t>;
  ElementBits(const gannet_update_args& args, const gannet_segment& part, uint64_t end) : random_(args, part), end_(end) {}
  // The bits of `count` elements, at most 256.
  HWY_INLINE const Bits* at(uint64_t i, uint64_t count) {
    if (i < first_ || i + count > first_ + kBlock) {
      first_ = i;
      const uint64_t known = end_ - i < kBlock ? end_ - i : kBlock;
      for (uint64_t k = 0; k < known; ++k) bits_[k] = static_cast<Bits>(random_.bits(i + k) >> (64 - 8 * sizeof(Bits)));
    }
    return bits_ + (i - first_);
  }

 private:
  static constexpr uint64_t kBlock = 256;
  sdk::ElementRandom random_;
  uint64_t end_, first_ = ~uint64_t{0};
  Bits bits_[kBlock] = {};
};
#endif
struct NoBits {
  HWY_INLINE NoBits(const gannet_update_args&, const gannet_segment&, uint64_t) {}
  HWY_INLINE NoBits at(uint64_t, uint64_t) { return *this; }
  friend HWY_INLINE NoBits operator+(NoBits none, uint64_t) { return none; }
};
#if GANNET_TARGET_MINOR >= 1
template <class Rule>
using BitsOf = std::conditional_t<sdk::detail::UsesSeed<Rule>::value, ElementBits<Rule>, NoBits>;
#else
template <class Rule>
using BitsOf = NoBits;
#endif

struct NoCopy {};  // type of `out` if there is no low-precision copy

// The arrays of a piece, and the states that the rule's operator takes.
template <class Rule, class Grad, class Out>
struct Pointers {
  using Number = typename RuleNumber<Rule>::type;
  using States = sdk::detail::UpdateStates<Rule>;
  static constexpr size_t kStates = States::kCount;
  Number* param;
  const Grad* grad;
  Out* out;
  Number* state[kStates > 0 ? kStates : 1];
};

// Updates the lanes at element i and returns the new parameters. `bits` are those of the elements.
template <class D, class Rule, class Grad, class Out, class Bits, size_t... kState>
HWY_INLINE hn::Vec<D> update_lanes(D d, const Rule& rule, typename RuleNumber<Rule>::type scale,
                                   const Pointers<Rule, Grad, Out>& at, uint64_t i, [[maybe_unused]] Bits bits,
                                   std::index_sequence<kState...>) {
  Lanes<D> param(load(d, at.param + i));
  const Lanes<D> gradient(hn::Mul(load(d, at.grad + i), hn::Set(d, scale)));
  Lanes<D> state[sizeof...(kState) > 0 ? sizeof...(kState) : 1];
  ((state[kState].lanes = load(d, at.state[kState] + i)), ...);
  if constexpr (sdk::detail::UsesSeed<Rule>::value)
    rule(gradient, param, state[kState]..., LaneRandom<D>{hn::LoadU(hn::RebindToUnsigned<D>(), bits)});
  else
    rule(gradient, param, state[kState]...);
  (store(d, state[kState].lanes, at.state[kState] + i), ...);
  store(d, param.lanes, at.param + i);
  return param.lanes;
}

// Prefetches the cache lines kPrefetchBytes beyond [from, from + bytes), because a pass over five
// streams outruns the hardware's prefetchers. The distance is not a multiple of 4096, so that no
// prefetch waits for a store that it does not depend on. Prefetching past the end of a buffer is a
// no-op.
inline constexpr size_t kPrefetchBytes = 3072;
HWY_INLINE void prefetch(const void* from, size_t bytes) {
  for (size_t byte = 0; byte < bytes; byte += 64) hwy::Prefetch(static_cast<const char*>(from) + kPrefetchBytes + byte);
}

// From this many elements on, the copy is written around the caches, which could not hold it until
// it is read. Its cache lines then need not be read before they are written.
inline constexpr uint64_t kStreamNumel = 1 << 22;

template <class Rule, class Grad, class Out>
void run_typed(const Rule& shared_rule, const gannet_update_args& args, uint64_t begin, uint64_t end,
               const gannet_segment& part) {
  using Number = typename RuleNumber<Rule>::type;
  using States = sdk::detail::UpdateStates<Rule>;
  static_assert(sdk::detail::are_states<Rule, States>(), "kUpdateStates names what is not a PER_ELEMENT state of kStates");
  constexpr size_t kStates = States::kCount;
  constexpr std::make_index_sequence<kStates> every_state;
  constexpr bool kCopies = !std::is_same_v<Out, NoCopy>;
  const hn::ScalableTag<Number> d;
  const uint64_t lanes = hn::Lanes(d), pair = 2 * lanes;
  const Rule rule = shared_rule;  // a copy that no store can alias: its numbers stay in registers
  const auto scale = static_cast<Number>(args.grad_scale);
  Pointers<Rule, Grad, Out> at{
      static_cast<Number*>(args.param), static_cast<const Grad*>(args.grad), static_cast<Out*>(args.out), {}};
  for (size_t s = 0; s < kStates; ++s) at.state[s] = static_cast<Number*>(args.states[States::index(s)]);
  BitsOf<Rule> bits(args, part, end);
  const bool stream = args.numel >= kStreamNumel && reinterpret_cast<uintptr_t>(at.out + begin) % (pair * sizeof(Out)) == 0;

  uint64_t i = begin;
  for (; i + pair <= end; i += pair) {
    prefetch(at.param + i, pair * sizeof(Number));
    prefetch(at.grad + i, pair * sizeof(Grad));
    for (size_t s = 0; s < kStates; ++s) prefetch(at.state[s] + i, pair * sizeof(Number));
    const auto of_pair = bits.at(i, pair);
    const auto first = update_lanes(d, rule, scale, at, i, of_pair, every_state);
    const auto second = update_lanes(d, rule, scale, at, i + lanes, of_pair + lanes, every_state);
    if constexpr (kCopies) store_pair(d, first, second, at.out + i, stream);
  }
  if constexpr (kCopies) {
    if (stream) hwy::FlushStream();
  }
  for (; i + lanes <= end; i += lanes) {
    const auto param = update_lanes(d, rule, scale, at, i, bits.at(i, lanes), every_state);
    if constexpr (kCopies) store(d, param, at.out + i);
  }
  if (i == end) return;

  constexpr size_t kMax = hn::MaxLanes(hn::ScalableTag<Number>());
  const size_t count = end - i;
  Number param[kMax] = {}, state[kStates > 0 ? kStates : 1][kMax] = {};
  Grad grad[kMax] = {};
  std::memcpy(param, at.param + i, count * sizeof(Number));
  std::memcpy(grad, at.grad + i, count * sizeof(Grad));
  for (size_t s = 0; s < kStates; ++s) std::memcpy(state[s], at.state[s] + i, count * sizeof(Number));
  Pointers<Rule, Grad, Out> copies{param, grad, nullptr, {}};
  for (size_t s = 0; s < kStates; ++s) copies.state[s] = state[s];
  const auto updated = update_lanes(d, rule, scale, copies, 0, bits.at(i, lanes), every_state);
  std::memcpy(at.param + i, param, count * sizeof(Number));
  for (size_t s = 0; s < kStates; ++s) std::memcpy(at.state[s] + i, state[s], count * sizeof(Number));
  if constexpr (kCopies) {
    Out out[kMax];
    store(d, updated, out);
    std::memcpy(at.out + i, out, count * sizeof(Out));
  } else {
    (void)updated;
  }
}

// Calls run_typed with the types that args name (elementwise_supports in sdk_rule.hpp lists them).
// `part` is the tensor with the elements, for rules with kUsesSeed.
template <class Rule, class Grad>
void run_with_grad(const Rule& rule, const gannet_update_args& args, uint64_t begin, uint64_t end, const gannet_segment& part) {
  if (args.out_dtype == GANNET_BFLOAT16) return run_typed<Rule, Grad, hwy::bfloat16_t>(rule, args, begin, end, part);
  if (args.out_dtype == GANNET_FLOAT16) return run_typed<Rule, Grad, hwy::float16_t>(rule, args, begin, end, part);
  run_typed<Rule, Grad, NoCopy>(rule, args, begin, end, part);
}

template <class Rule>
void run_elementwise(const Rule& rule, const gannet_update_args& args, uint64_t begin, uint64_t end,
                     const gannet_segment& part = {}) {
  if constexpr (std::is_same_v<typename RuleNumber<Rule>::type, double>) {
    run_typed<Rule, double, NoCopy>(rule, args, begin, end, part);
  } else {
    if (args.grad_dtype == GANNET_BFLOAT16) return run_with_grad<Rule, hwy::bfloat16_t>(rule, args, begin, end, part);
    if (args.grad_dtype == GANNET_FLOAT16) return run_with_grad<Rule, hwy::float16_t>(rule, args, begin, end, part);
    run_with_grad<Rule, float>(rule, args, begin, end, part);
  }
}

#include <gannet/elementwise/sums-inl.h>

// Writes the weights for evaluation to args.out, in the master's type.
template <class D, class Rule, size_t... kState>
HWY_INLINE void evaluate_lanes(D d, const Rule& rule, const hn::TFromD<D>* param, const hn::TFromD<D>* const* state,
                               hn::TFromD<D>* out, uint64_t i, std::index_sequence<kState...>) {
  const Lanes<D> weights = rule.evaluate(Lanes<D>(load(d, param + i)), Lanes<D>(load(d, state[kState] + i))...);
  store(d, weights.lanes, out + i);
}
template <class Rule>
void evaluate_elementwise(const Rule& shared_rule, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  using Number = typename RuleNumber<Rule>::type;
  using States = sdk::detail::EvaluateStates<Rule>;
  static_assert(sdk::detail::are_states<Rule, States>(), "kEvaluateStates names what is not a PER_ELEMENT state of kStates");
  constexpr std::make_index_sequence<States::kCount> every_state;
  constexpr size_t kStates = States::kCount > 0 ? States::kCount : 1;
  const hn::ScalableTag<Number> d;
  const uint64_t lanes = hn::Lanes(d);
  const Rule rule = shared_rule;
  const auto* param = static_cast<const Number*>(args.param);
  auto* out = static_cast<Number*>(args.out);
  const Number* state[kStates] = {};
  for (size_t s = 0; s < States::kCount; ++s) state[s] = static_cast<const Number*>(args.states[States::index(s)]);
  uint64_t i = begin;
  for (; i + lanes <= end; i += lanes) evaluate_lanes(d, rule, param, state, out, i, every_state);
  if (i == end) return;
  constexpr size_t kMax = hn::MaxLanes(hn::ScalableTag<Number>());
  Number p[kMax] = {}, result[kMax] = {}, copies[kStates][kMax] = {};
  const Number* at[kStates] = {};
  std::memcpy(p, param + i, (end - i) * sizeof(Number));
  for (size_t s = 0; s < States::kCount; ++s) {
    std::memcpy(copies[s], state[s] + i, (end - i) * sizeof(Number));
    at[s] = copies[s];
  }
  evaluate_lanes(d, rule, p, at, result, 0, every_state);
  std::memcpy(out + i, result, (end - i) * sizeof(Number));
}

#include <gannet/elementwise/bfloat16-inl.h>

template <class Family>
struct Runner {
  sdk::detail::RulePass pass;
  const gannet_update_args& args;
  uint64_t begin, end;
  double* sums;
  const gannet_segment& part;
  template <class Rule>
  void operator()(const Rule& rule) const {
    sdk::detail::check_family<Family, Rule>();
    using D = hn::ScalableTag<typename RuleNumber<Rule>::type>;
    if constexpr (sdk::detail::check_functions<Rule, Lanes<D>, LaneRandom<D>, Term<Lanes<D>>>()) run(rule);
  }

 private:
  template <class Rule>
  void run(const Rule& rule) const {
#if GANNET_TARGET_MINOR >= 1
    if constexpr (sdk::detail::RoundsStochastically<Rule>::value) {
      if constexpr (std::is_same_v<typename RuleNumber<Rule>::type, float>) run_bfloat16(rule, args, begin, end, part);
      return;
    }
#endif
    if (pass == sdk::detail::RulePass::kUpdate) return run_elementwise(rule, args, begin, end, part);
    using Number = typename RuleNumber<Rule>::type;
    if constexpr (sdk::detail::kSumCount<Rule> != 0)
      if (pass == sdk::detail::RulePass::kSums) return sum_elementwise(rule, args, begin, end, sums);
    if constexpr (sdk::detail::Evaluates<Rule>::value)
      if (pass == sdk::detail::RulePass::kEvaluate) return evaluate_elementwise(rule, args, begin, end);
    if (pass == sdk::detail::RulePass::kEvaluate)  // a rule of the family that evaluates with the trained weights
      std::memcpy(static_cast<Number*>(args.out) + begin, static_cast<const Number*>(args.param) + begin,
                  (end - begin) * sizeof(Number));
  }
};

// Runs a pass of the rule that a family selects on elements [begin, end).
template <class Family>
void run_family(sdk::detail::RulePass pass, const sdk::Step& step, const gannet_update_args& args, uint64_t begin, uint64_t end,
                double* sums) {
  static constexpr gannet_segment kNone{};
  const gannet_segment& part = sdk::detail::kLooksAtTensors<Family> ? step.tensor() : kNone;
  const Runner<Family> run{pass, args, begin, end, sums, part};
  if (args.param_dtype == GANNET_FLOAT64) return Family::template with_rule<double>(step, run);
  Family::template with_rule<float>(step, run);
}

}  // namespace gannet::rules::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
