#include "optimizers/onebit/lamb_kernel.h"

#include <algorithm>
#include <cstring>
#include <gannet/sdk_elementwise.hpp>

#include "optimizers/onebit/squares-inl.h"

GANNET_RULES_BEGIN

// Updates the parameters only: the moments are already updated, so this changes no state.
struct OneBitLambRule {
  using Number = float;
  static constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq"};
  float minus_rate, eps, decay;
  template <class V>
  GANNET_DEVICE void operator()(V, V& param, V& exp_avg, V& exp_avg_sq) const {
    const V direction = fma(V(decay), param, exp_avg / (sqrt(exp_avg_sq) + V(eps)));
    param = fma(V(minus_rate), direction, param);
  }
};

void onebit_lamb_apply(const OneBitStep& step, double rate, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  run_elementwise(OneBitLambRule{static_cast<float>(-rate), static_cast<float>(step.eps), static_cast<float>(step.weight_decay)},
                  args, begin, end);
}

// A group of elements: a full one in place, or a copy of the last elements padded with zeros, which
// add nothing to a sum.
template <class T>
class Group {
 public:
  Group(T* from, uint64_t i, uint64_t end) : to_(from + i), count_(std::min<uint64_t>(end - i, kGroup)) {
    if (count_ == kGroup) return;
    std::memset(static_cast<void*>(rest_), 0, sizeof(rest_));
    std::memcpy(static_cast<void*>(rest_), to_, count_ * sizeof(T));
  }
  T* at() { return count_ == kGroup ? to_ : rest_; }
  void store() {
    if (count_ < kGroup) std::memcpy(static_cast<void*>(to_), rest_, count_ * sizeof(T));
  }

 private:
  T* to_;
  uint64_t count_;
  T rest_[kGroup];
};

template <class Grad>
OneBitLambNorms warm_up_typed(const OneBitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  const Narrow d;
  const auto beta1 = hn::Set(d, static_cast<float>(step.beta1)), beta2 = hn::Set(d, static_cast<float>(step.beta2));
  const auto one = hn::Set(d, 1.0f), eps = hn::Set(d, static_cast<float>(step.eps));
  const auto decay = hn::Set(d, static_cast<float>(step.weight_decay)), scale = hn::Set(d, static_cast<float>(args.grad_scale));
  const auto rest1 = hn::Sub(one, beta1), rest2 = hn::Sub(one, beta2);
  Squares weights, updates;
  for (uint64_t i = begin; i < end; i += kGroup) {
    Group<float> param(static_cast<float*>(args.param), i, end), m(static_cast<float*>(args.states[0]), i, end),
        v(static_cast<float*>(args.states[1]), i, end);
    Group<Grad> grad(static_cast<Grad*>(const_cast<void*>(args.grad)), i, end);
    const auto is_there = [&](size_t at) HWY_ATTR {  // excludes the zero padding, whose direction may be 0/0
      const uint64_t left = end - i > at ? end - i - at : 0;
      return hn::FirstN(d, std::min<uint64_t>(left, kWidth));
    };
    for (size_t k = 0; k < kVectors; ++k) {
      const size_t at = k * kWidth;
      const auto g = hn::Mul(load(d, grad.at() + at), scale), p = hn::LoadU(d, param.at() + at);
      const auto first = hn::MulAdd(rest1, g, hn::Mul(beta1, hn::LoadU(d, m.at() + at)));
      const auto second = hn::MulAdd(rest2, hn::Mul(g, g), hn::Mul(beta2, hn::LoadU(d, v.at() + at)));
      hn::StoreU(first, d, m.at() + at);
      hn::StoreU(second, d, v.at() + at);
      const auto u = hn::MulAdd(decay, p, hn::Div(first, hn::Add(hn::Sqrt(second), eps)));
      weights.add(k, p);
      updates.add(k, hn::IfThenElseZero(is_there(at), u));
    }
    m.store();
    v.store();
  }
  return {weights.total(), updates.total()};
}

OneBitLambNorms onebit_lamb_warm_up(const OneBitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (args.grad_dtype == GANNET_BFLOAT16) return warm_up_typed<hwy::bfloat16_t>(step, args, begin, end);
  if (args.grad_dtype == GANNET_FLOAT16) return warm_up_typed<hwy::float16_t>(step, args, begin, end);
  return warm_up_typed<float>(step, args, begin, end);
}

OneBitLambRatios onebit_lamb_frozen(const OneBitStep& step, const gannet_update_args& args, const float* averaged, uint64_t begin,
                                    uint64_t end) {
  const Narrow d;
  const auto beta1 = hn::Set(d, static_cast<float>(step.beta1)), beta2 = hn::Set(d, static_cast<float>(step.beta2));
  const auto one = hn::Set(d, 1.0f), eps = hn::Set(d, static_cast<float>(step.eps)), zero = hn::Zero(d);
  const auto decay = hn::Set(d, static_cast<float>(step.weight_decay));
  const auto rest1 = hn::Sub(one, beta1), rest2 = hn::Sub(one, beta2);
  Squares momenta, updates;
  auto largest = hn::Zero(d);
  for (uint64_t i = begin; i < end; i += kGroup) {
    Group<float> m(static_cast<float*>(args.states[0]), i, end), fresh(static_cast<float*>(args.states[4]), i, end),
        param(static_cast<float*>(args.param), i, end), v(static_cast<float*>(args.states[1]), i, end),
        now(const_cast<float*>(averaged), i, end);
    for (size_t k = 0; k < kVectors; ++k) {
      const size_t at = k * kWidth;
      const auto before = hn::LoadU(d, m.at() + at), frozen = hn::LoadU(d, v.at() + at), p = hn::LoadU(d, param.at() + at);
      const auto is_used = hn::Gt(frozen, zero);
      const auto after = hn::IfThenElseZero(is_used, hn::LoadU(d, now.at() + at));
      const auto gradient = hn::Div(hn::Sub(after, hn::Mul(beta1, before)), rest1);
      const auto second = hn::MulAdd(rest2, hn::Mul(gradient, gradient), hn::Mul(beta2, hn::LoadU(d, fresh.at() + at)));
      hn::StoreU(after, d, m.at() + at);
      hn::StoreU(second, d, fresh.at() + at);
      const auto denominator = hn::Add(hn::Sqrt(frozen), eps);
      largest = hn::Max(largest, hn::IfThenElseZero(is_used, hn::Div(denominator, hn::Add(hn::Sqrt(second), eps))));
      const auto u = hn::IfThenElseZero(is_used, hn::Div(after, denominator));
      momenta.add(k, u);
      updates.add(k, hn::MulAdd(decay, p, u));
    }
    m.store();
    fresh.store();
  }
  float lanes[kGroup];
  hn::StoreU(largest, d, lanes);
  return {momenta.total(), updates.total(), *std::max_element(lanes, lanes + kWidth)};
}

GANNET_RULES_END

#if GANNET_RULE_IS_LAST
namespace gannet::rules {

HWY_EXPORT(onebit_lamb_warm_up);
HWY_EXPORT(onebit_lamb_frozen);
HWY_EXPORT(onebit_lamb_apply);

OneBitLambNorms onebit_lamb_warm_up_cpu(const OneBitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  return HWY_DYNAMIC_DISPATCH(onebit_lamb_warm_up)(step, args, begin, end);
}
OneBitLambRatios onebit_lamb_frozen_cpu(const OneBitStep& step, const gannet_update_args& args, const float* averaged,
                                        uint64_t begin, uint64_t end) {
  return HWY_DYNAMIC_DISPATCH(onebit_lamb_frozen)(step, args, averaged, begin, end);
}
void onebit_lamb_apply_cpu(const OneBitStep& step, double rate, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  HWY_DYNAMIC_DISPATCH(onebit_lamb_apply)(step, rate, args, begin, end);
}

}  // namespace gannet::rules
#endif
