#include "grads/grad_norm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/format.h"
#include "base/parallel.h"

// Highway requires this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "grads/grad_norm.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace gannet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DoubleTag = hn::CappedTag<double, 32>;
using FloatTag = hn::Rebind<float, DoubleTag>;
using BitsTag = hn::Rebind<uint32_t, DoubleTag>;

HWY_INLINE hn::Vec<DoubleTag> widen(const double* from) { return hn::LoadU(DoubleTag(), from); }
HWY_INLINE hn::Vec<DoubleTag> widen(const float* from) { return hn::PromoteTo(DoubleTag(), hn::LoadU(FloatTag(), from)); }
HWY_INLINE hn::Vec<DoubleTag> widen(const hwy::bfloat16_t* from) {
  return hn::PromoteTo(DoubleTag(), hn::PromoteTo(FloatTag(), hn::LoadU(hn::Rebind<hwy::bfloat16_t, DoubleTag>(), from)));
}
// Returns |x|, which has the same square as x. Works on the bits, because Highway's own conversion
// yields no infinity on CPUs where it is emulated. The product adjusts the exponent bias
// exactly, including subnormal numbers.
HWY_INLINE hn::Vec<DoubleTag> widen(const hwy::float16_t* from) {
  const auto half =
      hn::PromoteTo(BitsTag(), hn::LoadU(hn::Rebind<uint16_t, DoubleTag>(), reinterpret_cast<const uint16_t*>(from)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(BitsTag(), 0x7fffu)));
  const auto finite = hn::Mul(hn::BitCast(FloatTag(), magnitude), hn::Set(FloatTag(), 0x1p112f));
  const auto special = hn::BitCast(FloatTag(), hn::Or(magnitude, hn::Set(BitsTag(), 0x7f800000u)));
  const auto is_finite = hn::RebindMask(FloatTag(), hn::Lt(magnitude, hn::Set(BitsTag(), 0x1fu << 23)));
  return hn::PromoteTo(DoubleTag(), hn::IfThenElse(is_finite, finite, special));
}

// Squares of fp32 and 16-bit numbers are exact in fp64, so a fused multiply-add equals two
// operations.
template <class T>
double block_sum(const T* from, uint64_t count) {
  constexpr size_t kLanes = 32;
  constexpr size_t kVectors = kLanes / hn::MaxLanes(DoubleTag());
  constexpr size_t kWidth = hn::MaxLanes(DoubleTag());
  hn::Vec<DoubleTag> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(DoubleTag());
  auto add = [&](const T* group) HWY_ATTR {
    for (size_t v = 0; v < kVectors; ++v) {
      const auto x = widen(group + v * kWidth);
      sums[v] = hn::MulAdd(x, x, sums[v]);
    }
  };
  // A single stream of reads does not fill the memory queues, so prefetch 3 KiB ahead. A prefetch
  // past the end does no harm.
  auto prefetch = [&](const T* group) {
    for (size_t byte = 0; byte < kLanes * sizeof(T); byte += 64)
      hwy::Prefetch(reinterpret_cast<const char*>(group) + 3072 + byte);
  };
  uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    prefetch(from + i);
    add(from + i);
  }
  if (i < count) {
    T rest[kLanes];
    std::memset(static_cast<void*>(rest), 0, sizeof(rest));
    std::memcpy(static_cast<void*>(rest), from + i, (count - i) * sizeof(T));
    add(rest);
  }
  double lanes[kLanes];
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], DoubleTag(), lanes + v * kWidth);
  double total = 0;
  for (double lane : lanes) total += lane;
  return total;
}

double sum_block(const void* data, gannet_dtype dtype, uint64_t first, uint64_t count) {
  switch (dtype) {
    case GANNET_FLOAT64:
      return block_sum(static_cast<const double*>(data) + first, count);
    case GANNET_FLOAT16:
      return block_sum(static_cast<const hwy::float16_t*>(data) + first, count);
    case GANNET_BFLOAT16:
      return block_sum(static_cast<const hwy::bfloat16_t*>(data) + first, count);
    default:
      return block_sum(static_cast<const float*>(data) + first, count);
  }
}

}  // namespace gannet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gannet {
namespace {

HWY_EXPORT(sum_block);

bool is_float(gannet_dtype dtype) {
  return dtype == GANNET_FLOAT32 || dtype == GANNET_FLOAT64 || dtype == GANNET_FLOAT16 || dtype == GANNET_BFLOAT16;
}

uint64_t size_of(gannet_dtype dtype) { return dtype == GANNET_FLOAT64 ? 8 : dtype == GANNET_FLOAT32 ? 4 : 2; }

template <class Bits>
std::optional<uint64_t> first_with_full_exponent(const void* data, uint64_t count, Bits exponent) {
  const auto* bits = static_cast<const Bits*>(data);
  for (uint64_t i = 0; i < count; ++i)
    if ((bits[i] & exponent) == exponent) return i;
  return std::nullopt;
}

}  // namespace

NormResult sum_of_squares(const void* data, gannet_dtype dtype, uint64_t count, uint64_t offset, NormResult so_far) {
  GANNET_CHECK(is_float(dtype), formatted("dtype {}", static_cast<int>(dtype)));
  // The block sums of one wave are on the stack, so that a step allocates nothing.
  constexpr uint64_t kWave = 1024;
  double sums[kWave];
  const uint64_t lead = offset % kNormBlock;  // elements of the first block that are before this buffer
  const uint64_t blocks = (lead + count + kNormBlock - 1) / kNormBlock;
  NormResult result = so_far;
  for (uint64_t wave = 0; wave < blocks; wave += kWave) {
    const uint64_t wave_end = std::min(blocks, wave + kWave);
    auto first = [&](uint64_t block) { return block == 0 ? 0 : std::min(count, block * kNormBlock - lead); };
    parallel_for(wave, wave_end, 1, [&](uint64_t begin, uint64_t end) noexcept {
      for (uint64_t b = begin; b < end; ++b)
        sums[b - wave] = HWY_DYNAMIC_DISPATCH(sum_block)(data, dtype, first(b), first(b + 1) - first(b));
    });
    for (uint64_t b = wave; b < wave_end; ++b) {
      result.sum_of_squares += sums[b - wave];
      if (std::isfinite(sums[b - wave])) continue;
      // The square of a finite fp64 number may overflow; those of narrower types cannot.
      const char* block = static_cast<const char*>(data) + first(b) * size_of(dtype);
      if (dtype != GANNET_FLOAT64 || first_non_finite(block, dtype, first(b + 1) - first(b))) result.finite = false;
    }
  }
  if (!result.finite) result.sum_of_squares = std::numeric_limits<double>::quiet_NaN();
  return result;
}

std::optional<uint64_t> first_non_finite(const void* data, gannet_dtype dtype, uint64_t count) {
  GANNET_CHECK(is_float(dtype), formatted("dtype {}", static_cast<int>(dtype)));
  switch (dtype) {
    case GANNET_FLOAT64:
      return first_with_full_exponent<uint64_t>(data, count, 0x7ff0'0000'0000'0000u);
    case GANNET_FLOAT16:
      return first_with_full_exponent<uint16_t>(data, count, 0x7c00u);
    case GANNET_BFLOAT16:
      return first_with_full_exponent<uint16_t>(data, count, 0x7f80u);
    default:
      return first_with_full_exponent<uint32_t>(data, count, 0x7f80'0000u);
  }
}

}  // namespace gannet
#endif
