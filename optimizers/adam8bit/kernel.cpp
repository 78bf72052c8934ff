#include "optimizers/adam8bit/kernel.h"

#include <algorithm>
#include <cstring>
#include <gannet/sdk_elementwise.hpp>

#include "optimizers/adam8bit/codes.h"

HWY_BEFORE_NAMESPACE();
namespace gannet::rules::HWY_NAMESPACE {
#include "optimizers/adam8bit/rule.h"

using Floats = hn::CappedTag<float, 16>;
using Numbers = hn::Vec<Floats>;
using V = Lanes<Floats>;
constexpr size_t kLanes = hn::MaxLanes(Floats());
using Ints = hn::RebindToSigned<Floats>;

template <class Code>
HWY_INLINE Numbers load_codes(const Code* from) {
  return hn::ConvertTo(Floats(), hn::PromoteTo(Ints(), hn::LoadU(hn::Rebind<Code, Floats>(), from)));
}
#include "optimizers/adam8bit/encode-inl.h"

// The moments of one block, as floats.
struct Block {
  alignas(64) float first[kBlock], second[kBlock];
};

// Updates the parameters, stores the new moments in `first` and `second`, and updates the largest
// magnitudes of the moments.
template <class Grad, class Out>
HWY_INLINE void update_lanes_of(const Adam8bitRule& rule, Numbers scale, V of_first, V of_second, float* param, const Grad* grad,
                                Out* out, const int8_t* first_codes, const uint8_t* second_codes, float* first, float* second,
                                Numbers& largest_first, Numbers& largest_second) {
  const Floats d;
  const V g(hn::Mul(load(d, grad), scale));
  V m = rule.first_of(V(load_codes(first_codes)), of_first), v = rule.second_of(V(load_codes(second_codes)), of_second);
  V p(load(d, param));
  rule(g, p, m, v);
  store(d, p.lanes, param);
  if constexpr (!std::is_same_v<Out, NoCopy>) store(d, p.lanes, out);
  hn::Store(m.lanes, d, first);
  hn::Store(v.lanes, d, second);
  largest_first = hn::Max(largest_first, hn::Abs(m.lanes));
  largest_second = hn::Max(largest_second, v.lanes);
}

template <class Grad, class Out>
void update_block(const Adam8bitRule& shared_rule, float grad_scale, float* param, const Grad* grad, Out* out,
                  int8_t* first_codes, uint8_t* second_codes, float& first_scale, float& second_scale, size_t count) {
  const Floats d;
  const Adam8bitRule rule = shared_rule;  // a copy that no store can alias: its members stay in registers
  Block block;
  const Numbers scale = hn::Set(d, grad_scale);
  const V of_first(first_unit(first_scale)), of_second(second_unit(second_scale));
  Numbers largest_first = hn::Zero(d), largest_second = hn::Zero(d);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    prefetch(param + i, kLanes * sizeof(float));
    prefetch(grad + i, kLanes * sizeof(Grad));
    update_lanes_of(rule, scale, of_first, of_second, param + i, grad + i, out + i, first_codes + i, second_codes + i,
                    block.first + i, block.second + i, largest_first, largest_second);
  }
  if (i < count) {  // the tensor's last elements, padded with zeros, which stay zeros
    const size_t rest = count - i;
    float p[kLanes] = {};
    Grad g[kLanes] = {};
    Out o[kLanes] = {};
    int8_t c[kLanes] = {};
    uint8_t s[kLanes] = {};
    std::memcpy(p, param + i, rest * sizeof(float));
    std::memcpy(static_cast<void*>(g), grad + i, rest * sizeof(Grad));
    std::memcpy(c, first_codes + i, rest);
    std::memcpy(s, second_codes + i, rest);
    update_lanes_of(rule, scale, of_first, of_second, p, g, o, c, s, block.first + i, block.second + i, largest_first,
                    largest_second);
    std::memcpy(param + i, p, rest * sizeof(float));
    if constexpr (!std::is_same_v<Out, NoCopy>) std::memcpy(static_cast<void*>(out + i), o, rest * sizeof(Out));
  }
  first_scale = hn::GetLane(hn::MaxOfLanes(d, largest_first));
  second_scale = hn::GetLane(hn::MaxOfLanes(d, largest_second));
  const float by_first = inverse_of(first_scale), by_second = inverse_of(second_scale);
  for (i = 0; i + kLanes <= count; i += kLanes)
    encode(rule, hn::Load(d, block.first + i), hn::Load(d, block.second + i), by_first, by_second, first_codes + i,
           second_codes + i);
  if (i < count) {
    int8_t c[kLanes];
    uint8_t s[kLanes];
    encode(rule, hn::Load(d, block.first + i), hn::Load(d, block.second + i), by_first, by_second, c, s);
    std::memcpy(first_codes + i, c, count - i);
    std::memcpy(second_codes + i, s, count - i);
  }
}

template <class Grad, class Out>
void update_typed(const Adam8bitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  const Adam8bitRule rule{step};
  auto* const first_scales = static_cast<float*>(args.states[kFirstScale]);
  auto* const second_scales = static_cast<float*>(args.states[kSecondScale]);
  for (uint64_t i = begin; i < end; i += kBlock)
    update_block(rule, static_cast<float>(args.grad_scale), static_cast<float*>(args.param) + i,
                 static_cast<const Grad*>(args.grad) + i, static_cast<Out*>(args.out) + i,
                 static_cast<int8_t*>(args.states[kFirstCode]) + i, static_cast<uint8_t*>(args.states[kSecondCode]) + i,
                 first_scales[i / kBlock], second_scales[i / kBlock], std::min(kBlock, end - i));
}

template <class Grad>
void update_with(const Adam8bitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (args.out_dtype == GANNET_BFLOAT16) return update_typed<Grad, hwy::bfloat16_t>(step, args, begin, end);
  if (args.out_dtype == GANNET_FLOAT16) return update_typed<Grad, hwy::float16_t>(step, args, begin, end);
  update_typed<Grad, NoCopy>(step, args, begin, end);
}

void adam8bit_update(const Adam8bitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (args.grad_dtype == GANNET_BFLOAT16) return update_with<hwy::bfloat16_t>(step, args, begin, end);
  if (args.grad_dtype == GANNET_FLOAT16) return update_with<hwy::float16_t>(step, args, begin, end);
  update_with<float>(step, args, begin, end);
}

}  // namespace gannet::rules::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gannet::rules {

HWY_EXPORT(adam8bit_update);

void adam8bit_update_cpu(const Adam8bitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  HWY_DYNAMIC_DISPATCH(adam8bit_update)(step, args, begin, end);
}

}  // namespace gannet::rules
#endif
