// Encodes a vector of moments on the CPU. Uses estimates of roots where they give the same codes as
// rule.h's exact roots. kernel.cpp includes this once per SIMD target; it has no include guard and
// no namespace.
//
// A code is a root rounded to the nearest integer. A slightly wrong root gives the same code unless
// it is close to the midpoint of two integers. Vectors with such a root, one in sixty with AVX-512,
// use rule.h's exact roots, so the codes are bitwise the same. The estimates are faster because a
// core computes exact roots one vector at a time, while multiplications overlap.
//
// The margin kNear is derived from the error of the estimates for the largest code, 255. The
// relative error e of an estimate of 1/sqrt(x) is at most 2^-14 (AVX-512) or 1.5 * 2^-12 (AVX2).
// Newton's step leaves 1.5 e^2 for the first moment's root, and 10.5 (1.5 e)^2 for the second's:
// 2.3e-5 or 8.1e-4 of a code. Ten roundings of 2^-24, including those of the exact roots, add at
// most 1.6e-4, and the rounding to kFraction bits adds 2^-15: 2.1e-4 or 1.0e-3 in total. kNear is
// 2.4e-4 or 2.0e-3.
#undef GANNET_ESTIMATES_ROOTS  // set for another target: this file is included once per target
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define GANNET_ESTIMATES_ROOTS 1
constexpr int kNearBits = HWY_TARGET <= HWY_AVX3 ? 12 : 9;
constexpr float kNear = 1.0f / (1 << kNearBits);
#else
#define GANNET_ESTIMATES_ROOTS 0  // other targets' estimates have fewer bits
#endif

template <class Code>
HWY_INLINE void store_codes(Numbers values, Code* to) {
  const hn::Rebind<Code, Floats> d;
  hn::StoreU(hn::DemoteTo(d, hn::NearestInt(values)), d, to);
}

HWY_INLINE void encode_exactly(const Adam8bitRule& rule, Numbers m, Numbers v, float by_first, float by_second, int8_t* first,
                               uint8_t* second) {
  store_codes(hn::CopySign(rule.magnitude_of_first(V(m), V(by_first)).lanes, m), first);
  store_codes(rule.code_of_second(V(v), V(by_second)).lanes, second);
}

#if GANNET_ESTIMATES_ROOTS
using Bits = hn::RebindToUnsigned<Floats>;

// For x in [-128, 256), the low bits of 768 + x hold x in fixed point: kFraction bits after the
// point, eight before it. Adding 1/2 and truncating rounds to the nearest integer. With kNear added
// as well, the upper bits of the fraction, kIsClear, are all zero if x is within kNear of a
// midpoint between two integers.
constexpr int kFraction = 14;
constexpr uint32_t kIsClear = ((1u << kFraction) - 1) & ~((1u << (kFraction + 1 - kNearBits)) - 1);
HWY_INLINE hn::Vec<Bits> in_fixed_point(Numbers x) { return hn::BitCast(Bits(), hn::Add(x, hn::Set(Floats(), 768.5f + kNear))); }

template <class Code>
HWY_INLINE void store_integers(hn::Vec<Bits> fixed_point, Code* to) {
  const hn::Rebind<uint8_t, Floats> d;
  hn::StoreU(hn::TruncateTo(d, hn::ShiftRight<kFraction>(fixed_point)), d, reinterpret_cast<uint8_t*>(to));
}

// Returns the magnitude of the first moment's code, for x = 127^2 |m| / largest > 0.
HWY_INLINE Numbers estimated_root(Numbers x) {
  const Numbers inverse = hn::ApproximateReciprocalSqrt(x), root = hn::Mul(x, inverse);
  return hn::MulAdd(hn::NegMulAdd(root, root, x), hn::Mul(inverse, hn::Set(Floats(), 0.5f)), root);
}

// Returns the second moment's code, for x = v / largest > 0. With w near x^-1/4 the code is 255 x
// w^3 (1 + 3/4 (1 - x w^4)).
HWY_INLINE Numbers estimated_fourth_root(Numbers x) {
  const Floats d;
  const Numbers w = hn::ApproximateReciprocalSqrt(hn::Mul(x, hn::ApproximateReciprocalSqrt(x)));
  const Numbers square = hn::Mul(w, w), root = hn::Mul(x, square);
  const Numbers off = hn::NegMulAdd(root, square, hn::Set(d, 1.0f));
  return hn::Mul(hn::Mul(root, w), hn::MulAdd(off, hn::Set(d, 0.75f * kSecondCodes), hn::Set(d, kSecondCodes)));
}
#endif

HWY_INLINE void encode(const Adam8bitRule& rule, Numbers m, Numbers v, float by_first, float by_second, int8_t* first,
                       uint8_t* second) {
#if GANNET_ESTIMATES_ROOTS
  const Floats d;
  // The lower limits keep the estimates finite: 1e-20 has the code 0, and kSecondPerCode has the
  // code 1, as do all smaller positive second moments.
  const Numbers of_first = hn::Max(hn::Mul(hn::Abs(m), hn::Set(d, by_first * (kFirstCodes * kFirstCodes))), hn::Set(d, 1e-20f));
  const Numbers of_second = hn::Max(hn::Mul(v, hn::Set(d, by_second)), hn::Set(d, kSecondPerCode));
  const auto first_fixed = in_fixed_point(hn::CopySign(estimated_root(of_first), m));
  const auto second_fixed = in_fixed_point(estimated_fourth_root(of_second));
  const auto is_clear = hn::Set(Bits(), kIsClear);
  const auto least = hn::Min(hn::And(first_fixed, is_clear), hn::And(second_fixed, is_clear));
  if (HWY_LIKELY(hn::AllFalse(Bits(), hn::Eq(least, hn::Zero(Bits()))))) {
    const auto is_zero = hn::RebindMask(Bits(), hn::Eq(v, hn::Zero(d)));
    store_integers(first_fixed, first);
    store_integers(hn::IfThenZeroElse(is_zero, second_fixed), second);
    return;
  }
#endif
  encode_exactly(rule, m, v, by_first, by_second, first, second);
}
