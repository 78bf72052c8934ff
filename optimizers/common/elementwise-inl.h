// The one loop of element-wise CPU optimizers: gradient in, unscaled, the rule, parameter, states and low-precision copy
// out, in one pass over memory. Compiled once per SIMD target.
//
//   run_elementwise(rule, args, begin, end);      // elements [begin, end) of the range that args describes
//
// A rule is a struct of numbers (float or double, as the master) with
//   using Number = float; static constexpr int kStates = 2;     // 0, 1 or 2 states per element
//   void operator()(Math math, V gradient, V& param, V& state0, V& state1) const
//
// The value of an element never depends on where the range begins or ends or on how threads cut it: a tail is copied into
// a full block and runs through the same instructions. (The files are compiled with -ffp-contract=off: what is fused is
// what the rule says.)
#if defined(GANNET_OPTIMIZERS_COMMON_ELEMENTWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GANNET_OPTIMIZERS_COMMON_ELEMENTWISE_INL_H_
#undef GANNET_OPTIMIZERS_COMMON_ELEMENTWISE_INL_H_
#else
#define GANNET_OPTIMIZERS_COMMON_ELEMENTWISE_INL_H_
#endif

#include <gannet/abi.h>
#include <hwy/cache_control.h>

#include <cstring>
#include <type_traits>

#include "optimizers/common/lanes-inl.h"

#ifndef GANNET_DEVICE
#define GANNET_DEVICE HWY_INLINE  // lanes must not be passed in memory, nor by another target's rules
#endif

HWY_BEFORE_NAMESPACE();
namespace gannet::optimizers::HWY_NAMESPACE {

// ScalarMath (arithmetic.h) for SIMD lanes.
template <class D>
struct LaneMath {
  using Number = hn::TFromD<D>;
  using V = hn::Vec<D>;
  HWY_INLINE V set(Number value) const { return hn::Set(D(), value); }
  HWY_INLINE V add(V a, V b) const { return hn::Add(a, b); }
  HWY_INLINE V sub(V a, V b) const { return hn::Sub(a, b); }
  HWY_INLINE V mul(V a, V b) const { return hn::Mul(a, b); }
  HWY_INLINE V div(V a, V b) const { return hn::Div(a, b); }
  HWY_INLINE V sqrt(V a) const { return hn::Sqrt(a); }
  HWY_INLINE V mul_add(V a, V b, V c) const { return hn::MulAdd(a, b, c); }
};

struct NoCopy {};  // the type of `out` where no low-precision copy is wanted

template <class Number, class Grad, class Out>
struct Pointers {
  Number* param;
  const Grad* grad;
  Out* out;
  Number* state[2];
};

// Updates the lanes at element i and returns the new parameters.
template <class Rule, class Grad, class Out, class D>
HWY_INLINE hn::Vec<D> update_lanes(D d, const Rule& rule, typename Rule::Number scale,
                                   const Pointers<typename Rule::Number, Grad, Out>& at, uint64_t i) {
  const LaneMath<D> math;
  auto param = load(d, at.param + i);
  const auto gradient = hn::Mul(load(d, at.grad + i), hn::Set(d, scale));
  if constexpr (Rule::kStates == 0) {
    rule(math, gradient, param);
  } else {
    auto first = load(d, at.state[0] + i);
    if constexpr (Rule::kStates == 1) {
      rule(math, gradient, param, first);
    } else {
      auto second = load(d, at.state[1] + i);
      rule(math, gradient, param, first, second);
      store(d, second, at.state[1] + i);
    }
    store(d, first, at.state[0] + i);
  }
  store(d, param, at.param + i);
  return param;
}

// The lines of [from, from + bytes) as they stand kPrefetchBytes ahead. A pass of five streams outruns the hardware's
// prefetchers. The distance is no multiple of 4096, so that no prefetch waits for a store it does not depend on; past the
// end of a buffer a prefetch does nothing.
inline constexpr size_t kPrefetchBytes = 3072;
HWY_INLINE void prefetch(const void* from, size_t bytes) {
  for (size_t byte = 0; byte < bytes; byte += 64) hwy::Prefetch(static_cast<const char*>(from) + kPrefetchBytes + byte);
}

// From this many elements on the copy is written past the caches, which would not hold it until it is read; that saves
// reading its lines first.
inline constexpr uint64_t kStreamNumel = 1 << 22;

template <class Rule, class Grad, class Out>
void run_typed(const Rule& shared_rule, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  using Number = typename Rule::Number;
  constexpr bool kCopies = !std::is_same_v<Out, NoCopy>;
  const hn::ScalableTag<Number> d;
  const uint64_t lanes = hn::Lanes(d), pair = 2 * lanes;
  const Rule rule = shared_rule;  // a copy that no store can alias: its numbers stay in registers
  const auto scale = static_cast<Number>(args.grad_scale);
  Pointers<Number, Grad, Out> at{
      static_cast<Number*>(args.param), static_cast<const Grad*>(args.grad), static_cast<Out*>(args.out), {}};
  for (int s = 0; s < Rule::kStates; ++s) at.state[s] = static_cast<Number*>(args.states[s]);
  const bool stream = args.numel >= kStreamNumel && reinterpret_cast<uintptr_t>(at.out + begin) % (pair * sizeof(Out)) == 0;

  uint64_t i = begin;
  for (; i + pair <= end; i += pair) {
    prefetch(at.param + i, pair * sizeof(Number));
    prefetch(at.grad + i, pair * sizeof(Grad));
    for (int s = 0; s < Rule::kStates; ++s) prefetch(at.state[s] + i, pair * sizeof(Number));
    const auto first = update_lanes(d, rule, scale, at, i);
    const auto second = update_lanes(d, rule, scale, at, i + lanes);
    if constexpr (kCopies) store_pair(d, first, second, at.out + i, stream);
  }
  if constexpr (kCopies) {
    if (stream) hwy::FlushStream();
  }
  for (; i + lanes <= end; i += lanes) {
    const auto param = update_lanes(d, rule, scale, at, i);
    if constexpr (kCopies) store(d, param, at.out + i);
  }
  if (i == end) return;

  constexpr size_t kMax = hn::MaxLanes(hn::ScalableTag<Number>());
  const size_t count = end - i;
  Number param[kMax] = {}, state[2][kMax] = {};
  Grad grad[kMax] = {};
  std::memcpy(param, at.param + i, count * sizeof(Number));
  std::memcpy(grad, at.grad + i, count * sizeof(Grad));
  for (int s = 0; s < Rule::kStates; ++s) std::memcpy(state[s], at.state[s] + i, count * sizeof(Number));
  const auto updated = update_lanes(d, rule, scale, Pointers<Number, Grad, Out>{param, grad, nullptr, {state[0], state[1]}}, 0);
  std::memcpy(at.param + i, param, count * sizeof(Number));
  for (int s = 0; s < Rule::kStates; ++s) std::memcpy(at.state[s] + i, state[s], count * sizeof(Number));
  if constexpr (kCopies) {
    Out out[kMax];
    store(d, updated, out);
    std::memcpy(at.out + i, out, count * sizeof(Out));
  } else {
    (void)updated;
  }
}

// Calls run_typed with the types that args name (elementwise_supports in buffers.h lists them).
template <class Rule, class Grad>
void run_with_grad(const Rule& rule, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (args.out_dtype == GANNET_BFLOAT16) return run_typed<Rule, Grad, hwy::bfloat16_t>(rule, args, begin, end);
  if (args.out_dtype == GANNET_FLOAT16) return run_typed<Rule, Grad, hwy::float16_t>(rule, args, begin, end);
  run_typed<Rule, Grad, NoCopy>(rule, args, begin, end);
}

template <class Rule>
void run_elementwise(const Rule& rule, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if constexpr (std::is_same_v<typename Rule::Number, double>) {
    run_typed<Rule, double, NoCopy>(rule, args, begin, end);
  } else {
    if (args.grad_dtype == GANNET_BFLOAT16) return run_with_grad<Rule, hwy::bfloat16_t>(rule, args, begin, end);
    if (args.grad_dtype == GANNET_FLOAT16) return run_with_grad<Rule, hwy::float16_t>(rule, args, begin, end);
    run_with_grad<Rule, float>(rule, args, begin, end);
  }
}

}  // namespace gannet::optimizers::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
