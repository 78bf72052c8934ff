// Code shared by the kernels in nn: the rules of rule.h for SIMD lanes, loops over a row,
// and dropout words. This file is compiled once per SIMD target. Include it after <hwy/highway.h>.
#if defined(GANNET_NN_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GANNET_NN_LANES_INL_H_
#undef GANNET_NN_LANES_INL_H_
#else
#define GANNET_NN_LANES_INL_H_
#endif

#ifndef GANNET_DEVICE
#define GANNET_DEVICE HWY_INLINE
#endif

#include <gannet/elementwise/loop-inl.h>
#include <hwy/contrib/math/math-inl.h>

#include <cmath>

#include "nn/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace gannet::nn::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using gannet::rules::HWY_NAMESPACE::Lanes;

template <class D>
HWY_INLINE Lanes<D> exp(Lanes<D> x) {
  return Lanes<D>(hn::Exp(D(), x.lanes));
}

#include "nn/rule.h"

// Returns erf(z); `falls` is exp(-z^2). Doubles use std::erf one by one, because no short formula
// is accurate enough for them.
template <class D>
HWY_INLINE Lanes<D> erf_of(Lanes<D> z, Lanes<D> falls) {
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) == 4) {
    return erf_within_float(z, falls);
  } else {
    HWY_ALIGN T lanes[hn::MaxLanes(D())];
    hn::Store(z.lanes, D(), lanes);
    for (T& lane : lanes) lane = std::erf(lane);
    return Lanes<D>(hn::Load(D(), lanes));
  }
}

// Calls body(d, i) for the lanes that start at i: whole vectors first, then the remaining elements
// one by one.
template <class T, class Body>
HWY_INLINE void along(int64_t count, Body&& body) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(d, i);
  for (; i < count; ++i) body(one, i);
}

// A sum or maximum over a row. Each lane has its own total; the remaining elements share one more.
template <class T>
struct Total {
  using D = hn::ScalableTag<T>;
  using OneLane = hn::CappedTag<T, 1>;
  Lanes<D> lanes;
  Lanes<OneLane> rest;
  HWY_INLINE explicit Total(T start) : lanes(start), rest(start) {}
  HWY_INLINE void add(Lanes<D> value) { lanes = lanes + value; }
  HWY_INLINE void max_with(Lanes<D> value) { lanes = Lanes<D>(hn::Max(lanes.lanes, value.lanes)); }
  HWY_INLINE T sum() const { return hn::GetLane(hn::SumOfLanes(D(), lanes.lanes)) + hn::GetLane(rest.lanes); }
  HWY_INLINE T largest() const {
    const T of_lanes = hn::GetLane(hn::MaxOfLanes(D(), lanes.lanes)), of_rest = hn::GetLane(rest.lanes);
    return of_lanes > of_rest ? of_lanes : of_rest;
  }
};
template <class T>
HWY_INLINE void add_to(Total<T>& total, Lanes<hn::ScalableTag<T>> value) {
  total.add(value);
}
template <class T>
HWY_INLINE void add_to(Total<T>& total, Lanes<hn::CappedTag<T, 1>> value)
  requires(!std::is_same_v<hn::ScalableTag<T>, hn::CappedTag<T, 1>>)
{
  total.rest = total.rest + value;
}
template <class T>
HWY_INLINE void max_to(Total<T>& total, Lanes<hn::ScalableTag<T>> value) {
  total.max_with(value);
}
template <class T>
HWY_INLINE void max_to(Total<T>& total, Lanes<hn::CappedTag<T, 1>> value)
  requires(!std::is_same_v<hn::ScalableTag<T>, hn::CappedTag<T, 1>>)
{
  total.rest = Lanes<hn::CappedTag<T, 1>>(hn::Max(total.rest.lanes, value.lanes));
}

template <class D>
HWY_INLINE Lanes<D> load_lanes(D d, const hn::TFromD<D>* from) {
  return Lanes<D>(hn::LoadU(d, from));
}
template <class D>
HWY_INLINE void store_lanes(D d, Lanes<D> value, hn::TFromD<D>* to) {
  hn::StoreU(value.lanes, d, to);
}

// Returns `value` in the lanes with a word of at least the threshold, and 0 in the others.
template <class D>
HWY_INLINE Lanes<D> kept(D d, Lanes<D> value, const uint32_t* words, uint32_t threshold) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    const hn::RebindToUnsigned<D> du;
    const auto is_dropped = hn::Lt(hn::LoadU(du, words), hn::Set(du, threshold));
    return Lanes<D>(hn::IfThenZeroElse(hn::RebindMask(d, is_dropped), value.lanes));
  } else {
    const hn::RebindToUnsigned<D> du;
    const auto wide = hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint32_t, D>(), words));
    return Lanes<D>(hn::IfThenZeroElse(hn::RebindMask(d, hn::Lt(wide, hn::Set(du, uint64_t{threshold}))), value.lanes));
  }
}

// Computes dropout_word for 64 elements at a time. The counters' 32-bit words are held in 64-bit
// lanes: multiplications read the lower half of each lane, and a product fills all 64 bits.
HWY_INLINE void words_of_row(const Dropout& dropout, uint64_t row, uint64_t first_column, int64_t count, uint32_t* out) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < (count + 63) / 64 * 64; ++i)
    out[i] = dropout_word(row, first_column + static_cast<uint64_t>(i), dropout.stream, dropout.key);
#else
  const hn::CappedTag<uint64_t, 8> d;
  const hn::Repartition<uint32_t, decltype(d)> d32;
  const auto lanes = static_cast<uint64_t>(hn::Lanes(d));
  const auto times = [&](auto a, auto multiplier) HWY_ATTR { return hn::MulEven(hn::BitCast(d32, a), multiplier); };
  const auto m0 = hn::Set(d32, 0xD2511F53u), m1 = hn::Set(d32, 0xCD9E8D57u);
  const auto steps = hn::Add(hn::Iota(d, uint64_t{0}), hn::Iota(d, uint64_t{0}));
  for (int64_t group = 0; group < count; group += 64) {
    const uint64_t base = (first_column + static_cast<uint64_t>(group)) / 64 * 16;
    for (uint64_t l = 0; l < 16; l += 2 * lanes) {
      // The counters of even elements are in a, those of odd elements in b.
      auto a0 = hn::Add(steps, hn::Set(d, base + l)), b0 = hn::Add(a0, hn::Set(d, uint64_t{1}));
      auto a1 = hn::Set(d, row & 0xffffffffu), b1 = a1;
      auto a2 = hn::Set(d, row >> 32), b2 = a2;
      auto a3 = hn::Set(d, uint64_t{dropout.stream}), b3 = a3;
      uint32_t low = static_cast<uint32_t>(dropout.key), high = static_cast<uint32_t>(dropout.key >> 32);
      for (int round = 0; round < 10; ++round) {
        const auto k0 = hn::Set(d, uint64_t{low}), k1 = hn::Set(d, uint64_t{high});
        const auto pa0 = times(a0, m0), pa1 = times(a2, m1), pb0 = times(b0, m0), pb1 = times(b2, m1);
        a0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(pa1), a1), k0);
        a2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(pa0), a3), k1);
        a1 = pa1;
        a3 = pa0;
        b0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(pb1), b1), k0);
        b2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(pb0), b3), k1);
        b1 = pb1;
        b3 = pb0;
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
      }
      const auto write = [&](int64_t word, auto a, auto b) HWY_ATTR {
        hn::StoreU(hn::OddEven(hn::BitCast(d32, hn::ShiftLeft<32>(b)), hn::BitCast(d32, a)), d32, out + group + 16 * word + l);
      };
      write(0, a0, b0);
      write(1, a1, b1);
      write(2, a2, b2);
      write(3, a3, b3);
    }
  }
#endif
}

}  // namespace gannet::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
