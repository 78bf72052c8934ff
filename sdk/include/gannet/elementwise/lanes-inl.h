// Loads and stores of SIMD lanes, with conversion from and to the type in memory, for the loops of
// CPU optimizers. Compiled once per SIMD target (Highway's foreach_target): include it after
// <hwy/highway.h>.
//
//   auto g = load(d, grad);          // float, double, bfloat16_t or float16_t in memory become float or double lanes
//   store(d, p, out);                // rounded to nearest even; NaN stays NaN, overflow becomes infinity
//   store_pair(d, p, q, out, stream);   // `stream`: bypasses the caches; requires `out` aligned to the size of both
#if defined(GANNET_ELEMENTWISE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GANNET_ELEMENTWISE_LANES_INL_H_
#undef GANNET_ELEMENTWISE_LANES_INL_H_
#else
#define GANNET_ELEMENTWISE_LANES_INL_H_
#endif

#include <hwy/highway.h>

// If the CPU has no conversion to fp16, Highway 1.0 emulates it, but truncates and does not handle
// infinity.
#undef GANNET_HARDWARE_HALF
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || (HWY_ARCH_ARM_A64 && HWY_TARGET == HWY_NEON)
#define GANNET_HARDWARE_HALF 1
#else
#define GANNET_HARDWARE_HALF 0
#endif

HWY_BEFORE_NAMESPACE();
namespace gannet::rules::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hwy::bfloat16_t* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::bfloat16_t, D>(), from));
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hwy::float16_t* from) {
#if GANNET_HARDWARE_HALF
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), from));
#else
  const hn::RebindToUnsigned<D> bits_of;
  const auto half = hn::PromoteTo(bits_of, hn::LoadU(hn::Rebind<uint16_t, D>(), reinterpret_cast<const uint16_t*>(from)));
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(bits_of, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(bits_of, 0x7fffu)));
  // The multiplication changes the exponent bias from 15 to 127. It is exact, for subnormal numbers
  // as well.
  const auto finite = hn::BitCast(bits_of, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f)));
  const auto is_finite = hn::Lt(magnitude, hn::Set(bits_of, 0x1fu << 23));
  const auto special = hn::Or(magnitude, hn::Set(bits_of, 0x7f800000u));
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(is_finite, finite, special)));
#endif
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> value, hn::TFromD<D>* to) {
  hn::StoreU(value, d, to);
}

// The low 16 bits of each lane. The lanes are treated as signed: every value then fits, and the
// saturating demotion does not change it.
template <class D, class Bits>
HWY_INLINE auto low_half(D, Bits bits) {
  return hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::BitCast(hn::RebindToSigned<D>(), bits));
}

template <class D>
HWY_INLINE auto round_to(hwy::bfloat16_t, D d, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> bits_of;
  const auto bits = hn::BitCast(bits_of, value);
  const auto high = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(high, hn::Set(bits_of, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(bits_of, 0x7fffu))));
  const auto quiet_nan = hn::Or(high, hn::Set(bits_of, 0x40u));
  const auto is_nan = hn::RebindMask(bits_of, hn::IsNaN(value));
  return low_half(d, hn::IfThenElse(is_nan, quiet_nan, rounded));
}

template <class D>
HWY_INLINE auto round_to(hwy::float16_t, D d, hn::Vec<D> value) {
#if GANNET_HARDWARE_HALF
  return hn::BitCast(hn::Rebind<uint16_t, D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), value));
#else
  const hn::RebindToUnsigned<D> bits_of;
  const auto bits = hn::BitCast(bits_of, value);
  const auto magnitude = hn::And(bits, hn::Set(bits_of, 0x7fffffffu));
  // The first product turns values that are too large into infinity; the second restores the scale.
  // Adding `anchor`, a power of two that is 13 bits above the last bit to keep, makes the addition
  // round to nearest even, subnormal results included.
  const auto scaled = hn::Mul(hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f)), hn::Set(d, 0x1p-110f));
  const auto exponent = hn::Max(hn::And(hn::Add(bits, bits), hn::Set(bits_of, 0xff000000u)), hn::Set(bits_of, 0x71000000u));
  const auto anchor = hn::BitCast(d, hn::Add(hn::ShiftRight<1>(exponent), hn::Set(bits_of, 0x07800000u)));
  const auto anchored = hn::BitCast(bits_of, hn::Add(anchor, scaled));
  const auto number =
      hn::Add(hn::And(hn::ShiftRight<13>(anchored), hn::Set(bits_of, 0x7c00u)), hn::And(anchored, hn::Set(bits_of, 0xfffu)));
  const auto is_nan = hn::Gt(magnitude, hn::Set(bits_of, 0x7f800000u));
  const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(bits_of, 0x80000000u)));
  return low_half(d, hn::Or(sign, hn::IfThenElse(is_nan, hn::Set(bits_of, 0x7e00u), number)));
#endif
}

template <class D, class Half, class = decltype(Half::bits)>
HWY_INLINE void store(D d, hn::Vec<D> value, Half* to) {
  hn::StoreU(round_to(Half(), d, value), hn::Rebind<uint16_t, D>(), reinterpret_cast<uint16_t*>(to));
}

template <class D, class Half>
HWY_INLINE void store_pair(D d, hn::Vec<D> first, hn::Vec<D> second, Half* to, bool stream) {
#if HWY_TARGET == HWY_SCALAR
  (void)stream;
  store(d, first, to);
  store(d, second, to + 1);
#else
  const hn::Repartition<uint16_t, D> full;
  const auto both = hn::Combine(full, round_to(Half(), d, second), round_to(Half(), d, first));
  auto* bits = reinterpret_cast<uint16_t*>(to);
  if (stream) {
    hn::Stream(both, full, bits);
  } else {
    hn::StoreU(both, full, bits);
  }
#endif
}

}  // namespace gannet::rules::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
