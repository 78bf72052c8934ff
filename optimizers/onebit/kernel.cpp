#include "optimizers/onebit/kernel.h"

#include <hwy/cache_control.h>

#include <cstring>
#include <gannet/sdk_elementwise.hpp>

#include "optimizers/onebit/squares-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gannet::rules::HWY_NAMESPACE {

using Sign = hn::CappedTag<float, kGroup>;
constexpr size_t kSigns = hn::MaxLanes(Sign());

// Loads the mask of lanes [at, at + kSigns) in a group of 16 elements. LoadMaskBits and
// StoreMaskBits may access 8 bytes but use only one bit per lane. Narrow vectors use only a part of
// a byte.
HWY_INLINE hn::Mask<Sign> load_mask(const uint8_t* bits, size_t at) {
  uint8_t bytes[8];
  if constexpr (kSigns >= 8) {
    std::memcpy(bytes, bits + at / 8, kSigns / 8);
  } else {
    bytes[0] = static_cast<uint8_t>(bits[at / 8] >> at % 8);
  }
  return hn::LoadMaskBits(Sign(), bytes);
}
HWY_INLINE void store_mask(hn::Mask<Sign> mask, uint8_t* bits, size_t at) {
  uint8_t bytes[8];
  hn::StoreMaskBits(Sign(), mask, bytes);
  if constexpr (kSigns >= 8) {
    std::memcpy(bits + at / 8, bytes, kSigns / 8);
  } else {
    const auto part = static_cast<uint8_t>((bytes[0] & ((1u << kSigns) - 1)) << at % 8);
    bits[at / 8] = at % 8 == 0 ? part : static_cast<uint8_t>(bits[at / 8] | part);
  }
}

// The prefetch distance of loops that have few operations. A prefetch past the end of a buffer is
// harmless.
constexpr size_t kAheadBytes = 3072;
HWY_INLINE void prefetch_ahead(const void* from) { hwy::Prefetch(static_cast<const char*>(from) + kAheadBytes); }

template <class Grad>
double add_error_typed(const MomentumInputs& from, float* error, uint64_t begin, uint64_t end) {
  const Narrow d;
  const auto beta = hn::Set(d, from.beta), one_minus_beta = hn::Set(d, from.one_minus_beta);
  const auto scale = hn::Set(d, from.gradient_scale);
  const auto* gradient = static_cast<const Grad*>(from.gradient);
  Squares squares;
  const auto add = [&](const float* m, const Grad* g, float* e) HWY_ATTR {
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t at = v * kWidth;
      const auto momentum = hn::MulAdd(one_minus_beta, hn::Mul(load(d, g + at), scale), hn::Mul(beta, hn::LoadU(d, m + at)));
      const auto sum = hn::Add(momentum, hn::LoadU(d, e + at));
      hn::StoreU(sum, d, e + at);
      squares.add(v, sum);
    }
  };
  uint64_t i = begin;
  for (; i + kGroup <= end; i += kGroup) {
    prefetch_ahead(from.momentum + i);
    prefetch_ahead(gradient + i);
    prefetch_ahead(error + i);
    add(from.momentum + i, gradient + i, error + i);
  }
  if (i < end) {
    float m[kGroup] = {}, e[kGroup] = {};
    Grad g[kGroup];
    std::memset(static_cast<void*>(g), 0, sizeof(g));
    std::memcpy(m, from.momentum + i, (end - i) * sizeof(float));
    std::memcpy(e, error + i, (end - i) * sizeof(float));
    std::memcpy(static_cast<void*>(g), gradient + i, (end - i) * sizeof(Grad));
    add(m, g, e);
    std::memcpy(error + i, e, (end - i) * sizeof(float));
  }
  return squares.total();
}

double add_error(const MomentumInputs& from, float* error, uint64_t begin, uint64_t end) {
  if (from.gradient_dtype == GANNET_BFLOAT16) return add_error_typed<hwy::bfloat16_t>(from, error, begin, end);
  if (from.gradient_dtype == GANNET_FLOAT16) return add_error_typed<hwy::float16_t>(from, error, begin, end);
  return add_error_typed<float>(from, error, begin, end);
}

void compress(float* values, uint64_t count, float scale, uint8_t* bits) {
  const Sign d;
  const auto plus = hn::Set(d, scale), minus = hn::Set(d, -scale), zero = hn::Zero(d);
  const auto group = [&](float* x, uint8_t* to) HWY_ATTR {
    for (size_t at = 0; at < kGroup; at += kSigns) {
      const auto value = hn::LoadU(d, x + at);
      const auto is_plus = hn::Ge(value, zero);
      store_mask(is_plus, to, at);
      hn::StoreU(hn::Sub(value, hn::IfThenElse(is_plus, plus, minus)), d, x + at);
    }
  };
  uint64_t i = 0;
  for (; i + kGroup <= count; i += kGroup) {
    prefetch_ahead(values + i);
    group(values + i, bits + i / 8);
  }
  if (i == count) return;
  float rest[kGroup] = {};
  std::memcpy(rest, values + i, (count - i) * sizeof(float));
  group(rest, bits + i / 8);
  std::memcpy(values + i, rest, (count - i) * sizeof(float));
}

double average(const uint8_t* bits, uint64_t stride, const float* scales, uint32_t ranks, float* error, uint64_t count) {
  const Sign d;
  const auto share = hn::Set(d, 1.0f / static_cast<float>(ranks));
  Squares squares;
  const auto group = [&](uint64_t i, float* e) HWY_ATTR {
    for (size_t at = 0; at < kGroup; at += kSigns) {
      auto sum = hn::Zero(d);
      for (uint32_t r = 0; r < ranks; ++r)
        sum =
            hn::Add(sum, hn::IfThenElse(load_mask(bits + r * stride + i / 8, at), hn::Set(d, scales[r]), hn::Set(d, -scales[r])));
      hn::StoreU(hn::MulAdd(sum, share, hn::LoadU(d, e + at)), d, e + at);
    }
  };
  const auto add_squares = [&](const float* e) HWY_ATTR {
    for (size_t v = 0; v < kVectors; ++v) squares.add(v, hn::LoadU(Narrow(), e + v * kWidth));
  };
  uint64_t i = 0;
  for (; i + kGroup <= count; i += kGroup) {
    prefetch_ahead(error + i);
    group(i, error + i);
    add_squares(error + i);
  }
  if (i == count) return squares.total();
  float rest[kGroup] = {};
  std::memcpy(rest, error + i, (count - i) * sizeof(float));
  group(i, rest);
  for (uint64_t k = count - i; k < kGroup; ++k) rest[k] = 0;  // elements past the tensor's end
  add_squares(rest);
  std::memcpy(error + i, rest, (count - i) * sizeof(float));
  return squares.total();
}

void expand(const uint8_t* bits, uint64_t count, float scale, float* values) {
  const Sign d;
  const auto plus = hn::Set(d, scale), minus = hn::Set(d, -scale);
  const auto group = [&](const uint8_t* from, float* to) HWY_ATTR {
    for (size_t at = 0; at < kGroup; at += kSigns) hn::StoreU(hn::IfThenElse(load_mask(from, at), plus, minus), d, to + at);
  };
  uint64_t i = 0;
  for (; i + kGroup <= count; i += kGroup) group(bits + i / 8, values + i);
  if (i == count) return;
  float rest[kGroup];
  group(bits + i / 8, rest);
  std::memcpy(values + i, rest, (count - i) * sizeof(float));
}

}  // namespace gannet::rules::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gannet::rules {

HWY_EXPORT(add_error);
HWY_EXPORT(compress);
HWY_EXPORT(average);
HWY_EXPORT(expand);

double add_error_cpu(const MomentumInputs& from, float* error, uint64_t begin, uint64_t end) {
  return HWY_DYNAMIC_DISPATCH(add_error)(from, error, begin, end);
}
void compress_cpu(float* values, uint64_t count, float scale, uint8_t* bits) {
  HWY_DYNAMIC_DISPATCH(compress)(values, count, scale, bits);
}
double average_cpu(const uint8_t* bits, uint64_t stride, const float* scales, uint32_t ranks, float* error, uint64_t count) {
  return HWY_DYNAMIC_DISPATCH(average)(bits, stride, scales, ranks, error, count);
}
void expand_cpu(const uint8_t* bits, uint64_t count, float scale, float* values) {
  HWY_DYNAMIC_DISPATCH(expand)(bits, count, scale, values);
}

}  // namespace gannet::rules
#endif
