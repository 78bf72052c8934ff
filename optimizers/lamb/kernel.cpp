#include "optimizers/lamb/kernel.h"

#include <gannet/sdk_elementwise.hpp>

HWY_BEFORE_NAMESPACE();
namespace gannet::rules::HWY_NAMESPACE {
#include "optimizers/lamb/rule.h"

// Squares are added in double, in which squares of fp32 numbers are exact. Element i of a block is
// always added to sum i % kSums, whatever the vector width.
using Wide = hn::CappedTag<double, 8>;
constexpr size_t kSums = 16;
constexpr size_t kWidth = hn::MaxLanes(Wide());
constexpr size_t kVectors = kSums / kWidth;

// Floats use full vectors too, since their roots and divisions take most of the time.
// add_squares() adds the squares of one vector to the sums at `into`: two vectors of sums for
// floats (one on HWY_SCALAR), one for doubles.
#if HWY_TARGET == HWY_SCALAR
template <class T>
using Elements = hn::Rebind<T, Wide>;

HWY_INLINE void add_squares(hn::Vec<Elements<float>> value, hn::Vec<Wide>* into) {
  const auto wide = hn::PromoteTo(Wide(), value);
  *into = hn::MulAdd(wide, wide, *into);
}
#else
template <class T>
using Elements = hn::Repartition<T, Wide>;

HWY_INLINE void add_squares(hn::Vec<Elements<float>> value, hn::Vec<Wide>* into) {
  const auto lower = hn::PromoteTo(Wide(), hn::LowerHalf(value));
  const auto upper = hn::PromoteTo(Wide(), hn::UpperHalf(hn::Half<Elements<float>>(), value));
  into[0] = hn::MulAdd(lower, lower, into[0]);
  into[1] = hn::MulAdd(upper, upper, into[1]);
}
#endif
HWY_INLINE void add_squares(hn::Vec<Wide> value, hn::Vec<Wide>* into) { *into = hn::MulAdd(value, value, *into); }

template <class T, class Grad>
LambSums sums_typed(const LambStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  const Elements<T> d;
  using V = Lanes<std::remove_const_t<decltype(d)>>;
  const LambRule<T> rule{lamb_numbers<T>(step)};
  const auto scale = hn::Set(d, static_cast<T>(args.grad_scale));
  const auto* param = static_cast<const T*>(args.param);
  const auto* grad = static_cast<const Grad*>(args.grad);
  const auto* exp_avg = static_cast<const T*>(args.states[0]);
  const auto* exp_avg_sq = static_cast<const T*>(args.states[1]);

  hn::Vec<Wide> weights[kVectors], updates[kVectors];
  for (size_t v = 0; v < kVectors; ++v) weights[v] = updates[v] = hn::Zero(Wide());
  auto add = [&](const T* p, const Grad* g, const T* m, const T* s) HWY_ATTR {
    for (size_t at = 0; at < kSums; at += hn::MaxLanes(d)) {
      const V weight(load(d, p + at));
      V first(load(d, m + at)), second(load(d, s + at));
      const V u = rule.direction(V(hn::Mul(load(d, g + at), scale)), weight, first, second);
      add_squares(weight.lanes, weights + at / kWidth);
      add_squares(u.lanes, updates + at / kWidth);
    }
  };
  uint64_t i = begin;
  for (; i + kSums <= end; i += kSums) {
    prefetch(param + i, kSums * sizeof(T));
    prefetch(grad + i, kSums * sizeof(Grad));
    prefetch(exp_avg + i, kSums * sizeof(T));
    prefetch(exp_avg_sq + i, kSums * sizeof(T));
    add(param + i, grad + i, exp_avg + i, exp_avg_sq + i);
  }
  if (i < end) {
    // With eps 0 the direction of zeros is 0/0. So the rest of the group repeats the last element,
    // and the repeats' sums are discarded below.
    T p[kSums], m[kSums], s[kSums];
    Grad g[kSums];
    for (size_t k = 0; k < kSums; ++k) {
      const uint64_t from = i + k < end ? i + k : end - 1;
      p[k] = param[from];
      std::memcpy(static_cast<void*>(g + k), grad + from, sizeof(Grad));
      m[k] = exp_avg[from];
      s[k] = exp_avg_sq[from];
    }
    hn::Vec<Wide> weights_before[kVectors], updates_before[kVectors];
    for (size_t v = 0; v < kVectors; ++v) weights_before[v] = weights[v], updates_before[v] = updates[v];
    add(p, g, m, s);
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t left = end - i > v * kWidth ? end - i - v * kWidth : 0;
      const auto is_there = hn::FirstN(Wide(), left < kWidth ? left : kWidth);
      weights[v] = hn::IfThenElse(is_there, weights[v], weights_before[v]);
      updates[v] = hn::IfThenElse(is_there, updates[v], updates_before[v]);
    }
  }
  LambSums total;
  double lanes[kSums];
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(weights[v], Wide(), lanes + v * kWidth);
  for (const double lane : lanes) total.weights += lane;
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(updates[v], Wide(), lanes + v * kWidth);
  for (const double lane : lanes) total.update += lane;
  return total;
}

LambSums lamb_sums(const LambStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (args.param_dtype == GANNET_FLOAT64) return sums_typed<double, double>(step, args, begin, end);
  if (args.grad_dtype == GANNET_BFLOAT16) return sums_typed<float, hwy::bfloat16_t>(step, args, begin, end);
  if (args.grad_dtype == GANNET_FLOAT16) return sums_typed<float, hwy::float16_t>(step, args, begin, end);
  return sums_typed<float, float>(step, args, begin, end);
}

template <class T>
void update_as(const LambStep& step, double coefficient, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  LambRule<T> rule{lamb_numbers<T>(step)};
  rule.minus_rate = static_cast<T>(-rule.step_size * coefficient);
  run_elementwise(rule, args, begin, end);
}

void lamb_update(const LambStep& step, double coefficient, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (args.param_dtype == GANNET_FLOAT64) return update_as<double>(step, coefficient, args, begin, end);
  update_as<float>(step, coefficient, args, begin, end);
}

}  // namespace gannet::rules::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gannet::rules {

HWY_EXPORT(lamb_sums);
HWY_EXPORT(lamb_update);

LambSums lamb_sums_cpu(const LambStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  return HWY_DYNAMIC_DISPATCH(lamb_sums)(step, args, begin, end);
}
void lamb_update_cpu(const LambStep& step, double coefficient, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  HWY_DYNAMIC_DISPATCH(lamb_update)(step, coefficient, args, begin, end);
}

}  // namespace gannet::rules
#endif
