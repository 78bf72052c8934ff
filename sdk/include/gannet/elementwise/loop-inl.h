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
  friend HWY_INLINE LaneMask<D> operator<(Lanes a, Lanes b) { return {hn::Lt(a.lanes, b.lanes)}; }
  friend HWY_INLINE LaneMask<D> operator>(Lanes a, Lanes b) { return {hn::Gt(a.lanes, b.lanes)}; }
  friend HWY_INLINE LaneMask<D> operator==(Lanes a, Lanes b) { return {hn::Eq(a.lanes, b.lanes)}; }
  friend HWY_INLINE Lanes select(LaneMask<D> condition, Lanes a, Lanes b) {
    return Lanes(hn::IfThenElse(condition.mask, a.lanes, b.lanes));
  }
  friend HWY_INLINE Lanes max(Lanes a, Lanes b) { return select(a > b, a, b); }
  friend HWY_INLINE Lanes min(Lanes a, Lanes b) { return select(a < b, a, b); }
  friend HWY_INLINE Lanes abs(Lanes a) { return Lanes(hn::Abs(a.lanes)); }
  friend HWY_INLINE Lanes sqrt(Lanes a) { return Lanes(hn::Sqrt(a.lanes)); }
  friend HWY_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) { return Lanes(hn::MulAdd(a.lanes, b.lanes, c.lanes)); }
};

struct NoCopy {};  // type of `out` if there is no low-precision copy

template <class Rule, class Grad, class Out>
struct Pointers {
  using Number = typename RuleNumber<Rule>::type;
  static constexpr size_t kStates = sdk::detail::kStateCount<Rule>;
  Number* param;
  const Grad* grad;
  Out* out;
  Number* state[kStates > 0 ? kStates : 1];
};

// Updates the lanes at element i and returns the new parameters.
template <class D, class Rule, class Grad, class Out, size_t... kState>
HWY_INLINE hn::Vec<D> update_lanes(D d, const Rule& rule, typename RuleNumber<Rule>::type scale,
                                   const Pointers<Rule, Grad, Out>& at, uint64_t i, std::index_sequence<kState...>) {
  Lanes<D> param(load(d, at.param + i));
  const Lanes<D> gradient(hn::Mul(load(d, at.grad + i), hn::Set(d, scale)));
  Lanes<D> state[sizeof...(kState) > 0 ? sizeof...(kState) : 1];
  ((state[kState].lanes = load(d, at.state[kState] + i)), ...);
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

// From this many elements on, writes of the copy bypass the caches, which could not hold it until
// it is read. This saves reading its cache lines before they are written.
inline constexpr uint64_t kStreamNumel = 1 << 22;

template <class Rule, class Grad, class Out>
void run_typed(const Rule& shared_rule, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  using Number = typename RuleNumber<Rule>::type;
  constexpr size_t kStates = sdk::detail::kStateCount<Rule>;
  constexpr std::make_index_sequence<kStates> every_state;
  constexpr bool kCopies = !std::is_same_v<Out, NoCopy>;
  const hn::ScalableTag<Number> d;
  const uint64_t lanes = hn::Lanes(d), pair = 2 * lanes;
  const Rule rule = shared_rule;  // a copy that no store can alias: its numbers stay in registers
  const auto scale = static_cast<Number>(args.grad_scale);
  Pointers<Rule, Grad, Out> at{
      static_cast<Number*>(args.param), static_cast<const Grad*>(args.grad), static_cast<Out*>(args.out), {}};
  for (size_t s = 0; s < kStates; ++s) at.state[s] = static_cast<Number*>(args.states[s]);
  const bool stream = args.numel >= kStreamNumel && reinterpret_cast<uintptr_t>(at.out + begin) % (pair * sizeof(Out)) == 0;

  uint64_t i = begin;
  for (; i + pair <= end; i += pair) {
    prefetch(at.param + i, pair * sizeof(Number));
    prefetch(at.grad + i, pair * sizeof(Grad));
    for (size_t s = 0; s < kStates; ++s) prefetch(at.state[s] + i, pair * sizeof(Number));
    const auto first = update_lanes(d, rule, scale, at, i, every_state);
    const auto second = update_lanes(d, rule, scale, at, i + lanes, every_state);
    if constexpr (kCopies) store_pair(d, first, second, at.out + i, stream);
  }
  if constexpr (kCopies) {
    if (stream) hwy::FlushStream();
  }
  for (; i + lanes <= end; i += lanes) {
    const auto param = update_lanes(d, rule, scale, at, i, every_state);
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
  const auto updated = update_lanes(d, rule, scale, copies, 0, every_state);
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
template <class Rule, class Grad>
void run_with_grad(const Rule& rule, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (args.out_dtype == GANNET_BFLOAT16) return run_typed<Rule, Grad, hwy::bfloat16_t>(rule, args, begin, end);
  if (args.out_dtype == GANNET_FLOAT16) return run_typed<Rule, Grad, hwy::float16_t>(rule, args, begin, end);
  run_typed<Rule, Grad, NoCopy>(rule, args, begin, end);
}

template <class Rule>
void run_elementwise(const Rule& rule, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if constexpr (std::is_same_v<typename RuleNumber<Rule>::type, double>) {
    run_typed<Rule, double, NoCopy>(rule, args, begin, end);
  } else {
    if (args.grad_dtype == GANNET_BFLOAT16) return run_with_grad<Rule, hwy::bfloat16_t>(rule, args, begin, end);
    if (args.grad_dtype == GANNET_FLOAT16) return run_with_grad<Rule, hwy::float16_t>(rule, args, begin, end);
    run_with_grad<Rule, float>(rule, args, begin, end);
  }
}

struct Runner {
  const gannet_update_args& args;
  uint64_t begin, end;
  template <class Rule>
  void operator()(const Rule& rule) const {
    run_elementwise(rule, args, begin, end);
  }
};

// Runs the rule that a family selects on elements [begin, end).
template <class Family>
void run_family(const sdk::Step& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (args.param_dtype == GANNET_FLOAT64) return Family::template with_rule<double>(step, Runner{args, begin, end});
  Family::template with_rule<float>(step, Runner{args, begin, end});
}

}  // namespace gannet::rules::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
